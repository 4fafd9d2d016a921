"""`fedplug recipes`: the list, the text of one, and a copy to change."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_calls import GOOD, call
from fedplug.recipe import catalog
from fedplug_runs.installing import install
from fedplug_terminal import completion
from shelf_toys import at_work

TEXTS = {
    "zz-toy.yaml": f"# A toy. It does nothing.\n{GOOD}",
    "zz/child.yaml": "# A child of it.\nextends: ../zz-toy.yaml\nrounds: 7\n",
    "zz/values.grid.yaml": "# Some values.\nparameters: {rounds: [1, 2]}\n",
    "zz/both.yaml": "# Both of them.\nquestion: why\n"
    "recipes: [{recipe: ../zz-toy.yaml, name: one}, {recipe: child.yaml, name: two}]\n",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return at_work(monkeypatch, tmp_path, TEXTS)


def test_recipes_are_listed_with_a_line_each(
    package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "recipes") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "zz-toy A toy" in [" ".join(line.split()) for line in lines]
    assert not {"zz/both", "zz/values.grid"} & {line.split()[0] for line in lines}
    assert call(monkeypatch, "recipes", "--all") == 0
    assert {"zz/both", "zz/values.grid"} <= {line.split()[0] for line in capsys.readouterr().out.splitlines()}
    assert call(monkeypatch, "recipes", "zz/") == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names == ["zz/both", "zz/child", "zz/values.grid"]


def test_a_recipe_is_printed_and_copied_and_never_over_a_file(
    package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "recipes", "zz/child") == 0
    assert capsys.readouterr().out == TEXTS["zz/child.yaml"]
    assert call(monkeypatch, "recipes", "zz/child", "--copy") == 0
    said = "child.yaml has zz/child (acme-recipes 1.2); change it, then: fedplug run child.yaml\n"
    assert capsys.readouterr().out == said
    assert Path("child.yaml").read_text() == TEXTS["zz/child.yaml"].replace("../zz-toy.yaml", "zz-toy")
    assert call(monkeypatch, "check", "child.yaml", "zz/child") == 0
    digests = {line.rpartition("(")[2] for line in capsys.readouterr().out.splitlines()}
    assert len(digests) == 1
    for words, complaint in (
        (("zz/child", "--copy"), "child.yaml exists already and was not changed; name another file: --out FILE"),
        (
            ("zz/child", "--copy", "--out", "no/x.yaml"),
            "no is not a folder; create it, or name another file: --out FILE",
        ),
        (("zz/chld", "--copy"), "there is no recipe 'zz/chld'; did you mean zz/child?"),
        (("qqqq",), "there is no recipe 'qqqq'; fedplug recipes lists them"),
        (("--copy",), "say which: fedplug recipes NAME --copy; fedplug recipes lists them"),
    ):
        assert call(monkeypatch, "recipes", *words) == 1
        assert complaint in capsys.readouterr().err
    assert call(monkeypatch, "recipes", "zz/child", "--copy", "--out", "other.yaml") == 0
    assert Path("other.yaml").exists()


def test_a_comparison_is_copied_and_runs_from_any_folder(
    package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "recipes", "zz/both", "--copy") == 0
    assert capsys.readouterr().out.endswith("change it, then: fedplug compare both.yaml\n")
    assert "{recipe: zz-toy, name: one}, {recipe: zz/child, name: two}" in Path("both.yaml").read_text()
    assert call(monkeypatch, "compare", "both.yaml", "--dry-run") == 0
    assert [line[:4] for line in capsys.readouterr().out.splitlines()] == ["1/2 ", "2/2 ", "esti", "esti", "esti"]


def test_where_nothing_is_installed_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fedplug_runs.shelf.installed", lambda group: {})
    assert call(monkeypatch, "recipes") == 1
    assert capsys.readouterr().err.endswith(f"fedplug-recipes: {install('fedplug-recipes')}\n")


@pytest.mark.parametrize(
    "words",
    [("check",), ("run", "--set", "rounds=0"), ("sites", "--out", "x", "--set", "rounds=0"),
     ("compare", "zz-toy", "--set", "rounds=0"), ("search", "--set", "rounds=0", "--over", "seed=[1, 2]"),
     ("party", "--set", "rounds=0", "--client", "0", "--state", "x"), ("federation-try", "--set", "rounds=0"),
     ("federation-app", "x", "--set", "rounds=0")],
    ids=lambda words: words[0],
)  # fmt: skip
def test_every_command_that_takes_a_recipe_takes_a_name(
    words: tuple[str, ...], package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if words[0] not in ("check", "run") and words[0] not in catalog.installed(catalog.COMMAND):
        pytest.skip("its plugin is not installed")
    code = call(monkeypatch, words[0], "zz/child", *words[1:])
    said = capsys.readouterr()
    if words[0] == "check":
        assert (code, said.out.split()[1]) == (0, "ok")
    else:
        assert code == 1
        assert "rounds=0 must be >= 1" in said.err + said.out


def test_a_sweep_takes_two_names(
    package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "sweep", "zz/child", "zz/values.grid", "--dry-run") == 0
    assert "2/2 rounds=2" in capsys.readouterr().out


def test_a_shell_completes_names_and_files_that_begin_so(package: Path) -> None:
    Path("zz-mine.yaml").write_text(GOOD)
    Path("zz-notes.txt").write_text("")
    assert dict(completion.recipes("zz")) == {  # type: ignore[arg-type]
        "zz-toy": "A toy", "zz/": "", "zz-mine.yaml": "",
    }  # fmt: skip
    assert dict(completion.recipes("zz/c")) == {"zz/child": "A child of it"}  # type: ignore[arg-type]
    assert dict(completion.grids("zz/")) == {"zz/values.grid": "Some values"}  # type: ignore[arg-type]
    assert not [*completion.recipes("zz-mi")], "the shell completes files itself"


def test_keys_of_a_recipe_that_is_named_on_the_line(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMP_WORDS", "fedplug run zz/child --set rou")
    assert list(completion.values("rou")) == ["rounds=7"]
