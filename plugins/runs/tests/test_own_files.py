"""Components from the user's own files: the search path, the coverage of the digest, and what is refused."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import fedplug
import pytest
from fedplug.api.errors import PluginError, RecipeError
from fedplug.engines.base import Job
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug_runs import own_files
from fedplug_runs.execution import resume, start
from fedplug_runs.overlay import load_recipe
from fedplug_runs.settings import Settings
from fedplug_runs.trust import RUNS
from own_file_toys import HALVE, RECIPE


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a recipe and the file that it names, seen from elsewhere."""
    monkeypatch.setattr(own_files, "_SEEN", {})
    (tmp_path / "recipes/own").mkdir(parents=True)
    (tmp_path / "recipes/own/halve.py").write_text(HALVE, encoding="utf-8")
    (tmp_path / "recipes/mine.yaml").write_text(RECIPE, encoding="utf-8")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path / "recipes"


def read(path: Path, sets: Sequence[str] = ()) -> Recipe:
    return load_recipe(path, sets, Catalog.discover().under(RUNS))


def problem(path: Path, *sets: str) -> str:
    with pytest.raises(RecipeError) as caught:
        read(path, sets)
    (found,) = caught.value.problems
    return found


def test_a_component_in_a_file_is_one_as_any(folder: Path) -> None:
    recipe = read(folder / "mine.yaml")
    (use,) = recipe.protect["clear"]
    assert (use.use, use.name, use.options.model_dump()) == ("halve.py:Halve", "halve.Halve", {"factor": 0.25})
    part = Composition(recipe).components["halve.Halve"]
    assert type(part).__name__ == "Halve"
    assert part.protect(None, None) == (fedplug.Scale(0.25),)  # type: ignore[attr-defined]
    assert "factor='x' must be" in problem(folder / "mine.yaml", "protect.clear.0.factor=x")


def test_the_digest_covers_what_the_file_holds_and_not_where_it_lies(folder: Path) -> None:
    digest = read(folder / "mine.yaml").digest
    shutil.copytree(folder, folder.parent / "moved")
    assert read(folder.parent / "moved/mine.yaml").digest == digest
    (folder / "own/halve.py").write_text(HALVE + "# changed\n", encoding="utf-8")
    assert read(folder / "mine.yaml").digest != digest


def test_a_file_is_looked_for_next_to_the_recipe_then_in_the_working_directory(folder: Path) -> None:
    (folder / "child.yaml").write_text("extends: mine.yaml\nname: child\n", encoding="utf-8")
    (folder / "deep").mkdir()
    (folder / "deep/child.yaml").write_text("extends: ../mine.yaml\nname: child\n", encoding="utf-8")
    # A file that a parent names is next to the parent.
    assert read(folder / "deep/child.yaml").digest == read(folder / "child.yaml").digest
    here = folder.parent / "elsewhere/here.py"
    here.write_text(HALVE, encoding="utf-8")
    assert read(folder / "mine.yaml", ["protect.clear.0.use=here.py:Halve"]).own_files[0].name == "here.py"
    missing = problem(folder / "mine.yaml", "protect.clear.0.use=gone.py:Halve")
    assert str(folder / "gone.py") in missing
    assert str(here.with_name("gone.py")) in missing
    assert "as seen from the recipe" in missing


def test_names_refer_to_it(folder: Path) -> None:
    text = RECIPE.replace('{use: "own/halve.py:Halve", factor: 0.25}', "own/halve.py:Halve")
    (folder / "plain.yaml").write_text(text, encoding="utf-8")
    (use,) = read(folder / "plain.yaml").protect["clear"]
    assert use.name == "halve.Halve"
    assert use.options.factor == 0.5  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Gone", "halve.py has no Gone; it has Halve, Median"),
        ("Median", "is not a component; its class must inherit from its role, such as fedplug.Protector"),
        ("number", "halve.py:number is a int, which makes no protect component; write a class"),
    ],
)
def test_names_that_do_not_fit_are_refused(folder: Path, name: str, why: str) -> None:
    found = problem(folder / "mine.yaml", f"protect.clear.0={{use: own/halve.py:{name}}}")
    assert why in found


def test_a_class_of_another_role_is_refused(folder: Path) -> None:
    assert "is not an Aggregator" in problem(folder / "mine.yaml", "aggregate=own/halve.py:Halve")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x = 1 +\n", "line 1 cannot be run: SyntaxError"),
        ("import nowhere_to_be_found\n", "cannot be run: ModuleNotFoundError"),
        ("raise SystemExit(3)\n", "cannot be run: SystemExit: 3"),
        (HALVE.replace("def protect", "def protects"), "has no protect(known, facts), which a Protector must have"),
    ],
)
def test_a_file_that_cannot_be_run_is_a_complaint(folder: Path, text: str, why: str) -> None:
    (folder / "own/halve.py").write_text(text, encoding="utf-8")
    found = problem(folder / "mine.yaml")
    assert "mine.yaml:8:" in found
    assert why in found


def test_two_files_of_one_name_are_refused(folder: Path) -> None:
    (folder / "halve.py").write_text(HALVE + "# another\n", encoding="utf-8")
    for place in ("halve.py:Halve", "{use: halve.py:Halve}"):
        found = problem(folder / "mine.yaml", f"protect.clear=[own/halve.py:Halve, {place}]")
        assert "named halve.py and differ; rename one" in found


def test_a_process_that_was_sent_the_files_needs_no_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = read(folder / "mine.yaml")
    monkeypatch.setattr(own_files, "_SEEN", {})  # as in a worker
    with pytest.raises(RecipeError, match="there is no file"):
        Recipe.from_plain(recipe.to_plain())
    built, composition = Job(recipe.to_plain(), own_files=recipe.own_files).build()
    assert built == recipe
    assert "halve.Halve" in composition.components


def test_a_run_keeps_a_copy_and_goes_on_with_no_other(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(output=folder.parent / "runs", quiet=True, muted=("lab.report",))
    code, run = start(read(folder / "mine.yaml"), settings)
    assert code == 0
    assert (run / "halve.py").read_text(encoding="utf-8") == HALVE
    (folder / "own/halve.py").write_text("a new idea", encoding="utf-8")  # the run has its own
    monkeypatch.setattr(own_files, "_SEEN", {})
    assert resume(run, settings, 0) == 0
    (run / "halve.py").write_text(HALVE + "# changed\n", encoding="utf-8")
    monkeypatch.setattr(own_files, "_SEEN", {})
    with pytest.raises(RecipeError, match=r"halve.py has changed: its sha256 is \w+, the recipe says \w+; put"):
        resume(run, settings, 0)


def test_a_name_of_a_component_is_no_file() -> None:
    assert not own_files.is_own("std.clip")
    assert own_files.parts("a/b/net.py:Net") == ("net.py:Net", "net.Net")
    assert Catalog.discover().strays == ()
    with pytest.raises(PluginError, match="there is no file"):
        own_files.read("gone.py:X", [], None)
