"""Names of shipped recipes: lookup, order of precedence, and the error for unknown names."""

from __future__ import annotations

from pathlib import Path

import pytest
from fedplug.api.errors import PluginError, RecipeError
from fedplug.recipe.catalog import Catalog
from fedplug_runs import shelf
from fedplug_runs.overlay import load_recipe
from fedplug_runs.shelf import located, meant, named
from recipe_texts import GOOD
from shelf_toys import at_work, install

PLAIN = GOOD.replace("description: for the tests\n", "")
TEXTS = {
    "toy.yaml": f"# A toy (Abe et al. 2024, Fig. 1). It does nothing.\n# Expect: nothing.\n{PLAIN}",
    "deep/toy-child.yaml": "# A child,\n# on two lines.\nextends: ../toy.yaml # its parent\nrounds: 7\n",
    "deep/toy.grid.yaml": "# Some values:\n#   fedplug sweep toy.yaml toy.grid.yaml\nparameters: {rounds: [1, 2]}\n",
    "toys-beside.yaml": "description: 'Two toys.'\nquestion: why\nrecipes: [toy.yaml]\n",
    "README.md": "no recipe",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return at_work(monkeypatch, tmp_path, TEXTS)


def test_every_file_of_the_package_has_its_path_for_a_name(package: Path) -> None:
    ours = {each.name: each for each in shelf.shipped() if each.distribution == "acme-recipes"}
    assert {name: each.kind for name, each in ours.items()} == {
        "toy": "recipe", "toys-beside": "comparison", "deep/toy-child": "recipe", "deep/toy.grid": "grid",
    }  # fmt: skip
    assert {name: each.summary for name, each in ours.items()} == {
        "toy": "A toy (Abe et al. 2024, Fig. 1)", "toys-beside": "Two toys.", "deep/toy-child": "A child, on two lines",
        "deep/toy.grid": "Some values",
    }  # fmt: skip
    assert str(ours["deep/toy-child"]) == "deep/toy-child (acme-recipes 1.2)"


def test_a_file_that_is_there_comes_before_a_name(package: Path) -> None:
    assert located("toy") == package / "toy.yaml"
    assert located(Path("deep/toy-child")) == package / "deep/toy-child.yaml"
    Path("toy").mkdir()
    assert located("toy") == package / "toy.yaml", "a folder is no recipe"
    assert located("toy", folders=True) == Path("toy"), "but it may hold runs"
    Path("toy").rmdir()
    Path("toy").write_text(GOOD)
    assert located("toy") == Path("toy")
    for word in ("nothing.yaml", "x" * 5000, str(package), "toy.yaml"):
        assert located(word) == Path(word)


def test_a_recipe_extends_a_name_and_a_shipped_one_what_is_near_it(package: Path, fake_catalog: Catalog) -> None:
    child = load_recipe("deep/toy-child", (), fake_catalog)
    assert (child.rounds, child.origin) == (7, "deep/toy-child (acme-recipes 1.2)")
    Path("mine.yaml").write_text("extends: deep/toy-child\nseed: 99\n")
    mine = load_recipe("mine.yaml", (), fake_catalog)
    assert (mine.rounds, mine.seed, mine.origin) == (7, 99, "mine.yaml")
    Path("mine.yaml").write_text("extends: deep/toy-chil\n")
    with pytest.raises(RecipeError, match=r"mine.yaml:1:10: deep/toy-chil: .*; did you mean deep/toy-child\?"):
        load_recipe("mine.yaml", (), fake_catalog)


def test_a_copy_says_the_name_of_what_it_extends(package: Path, fake_catalog: Catalog) -> None:
    shipped = named("deep/toy-child")
    assert shipped is not None
    text = shipped.copied()
    assert "extends: toy # its parent\n" in text
    Path("copy.yaml").write_text(text)
    assert load_recipe("copy.yaml", (), fake_catalog).digest == load_recipe(shipped.path, (), fake_catalog).digest


def test_what_may_have_been_meant(package: Path) -> None:
    assert meant(Path("/somewhere/deep/toy-child.yaml")) == "did you mean deep/toy-child?"
    assert meant(Path("toy-chld")) == "did you mean deep/toy-child?"
    assert meant(Path("quite-different")) == ""
    with pytest.raises(RecipeError, match="no such file, and no recipe of that name; fedplug recipes lists those"):
        load_recipe("quite-different")


def test_two_distributions_with_one_name_have_to_be_told_apart(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = install(monkeypatch, tmp_path / "other", "bolt", {"toy.yaml": GOOD, "bolt-own.yaml": GOOD})
    with pytest.raises(PluginError, match=r"toy is shipped by (acme|bolt)-recipes 1\.2 .* write the path"):
        located("toy")
    assert located("bolt-own") == other / "bolt-own.yaml"
    assert located(other / "toy.yaml") == other / "toy.yaml"


def test_a_name_for_a_path_is_given_where_names_are_in_use(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf, "_HANDED", {})
    assert shelf.name_of(package / "toy.yaml") is None
    located("deep/toy-child")
    assert shelf.name_of(package / "toy.yaml") == "toy"
    assert shelf.name_of(Path("mine.yaml")) is None
    assert shelf.origin_of(package / "deep/toy-child.yaml") == "deep/toy-child (acme-recipes 1.2)"
