"""`fedplug list`, `fedplug show` and `fedplug check`."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from cli_calls import GOOD, LIGHT, MAIN, call, python
from fedplug.recipe.catalog import Catalog
from fedplug_runs import shelf
from fedplug_runs.docstrings import docstring
from fedplug_terminal import catalog
from fedplug_terminal.catalog import check_recipes


def test_list_is_grouped_in_the_order_of_a_round(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    assert call(monkeypatch, "list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["hook", "component", "plugin", "version", "summary"]
    row = next(line.split() for line in lines if line.split()[1] == "std.clip")
    assert row[:4] == ["protect", "std.clip", "fedplug-std", "0.1.0"]
    groups = list(dict.fromkeys(line.split()[0] for line in lines[1:]))
    assert groups[:5] == ["score_parameters", "negotiate_mask", "protect", "aggregate", "postprocess"]


@pytest.mark.parametrize(
    ("words", "some", "none"),
    [
        (["protect"], {"std.clip", "fas.scramble"}, {"std.mean"}),
        (["protect", "aggregate"], {"std.clip", "std.mean"}, {"std.digits"}),
        (["protect", "std"], {"std.clip"}, {"std.mean", "fas.scramble"}),
        (["fedplug-std", "gaussian"], {"std.gaussian"}, {"std.mean"}),
        (["CKKS"], {"std.ckks"}, {"std.mean"}),
        (["trainer", "adam"], {"std.adamw"}, {"std.sgd"}),  # a name
        (["postprocess", "adam"], {"std.fedopt"}, {"std.central_gaussian"}),
        (["momentum"], {"std.sgd", "std.fedopt"}, {"std.mean"}),  # in the body of the documentation
        (["prox"], {"std.fedprox"}, {"std.sgd"}),
        (["model", "tabular"], {"std.mlp", "std.logistic"}, {"std.cnn"}),  # which it calls tables
    ],
)
def test_list_takes_words(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, words: list[str], some: set[str], none: set[str]
) -> None:
    assert call(monkeypatch, "list", *words) == 0
    names = {line.split()[1] for line in capsys.readouterr().out.splitlines()[1:]}
    assert some <= names
    assert not none & names
    assert call(monkeypatch, "list", *words, "--json") == 0
    assert {row["name"] for row in json.loads(capsys.readouterr().out)} == names


@pytest.mark.parametrize(
    ("words", "said"),
    [(["protct"], "did you mean protect?"), (["gausian"], "did you mean std.gaussian?"),
     (["fedplug-sdt"], "did you mean fedplug-std"), (["xyzzy"], "fedplug list shows all"),
     (["protect", "digits"], "no component is all of protect, digits")],
)  # fmt: skip
def test_list_says_what_may_have_been_meant(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, words: list[str], said: str
) -> None:
    assert call(monkeypatch, "list", *words) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err


def test_other_words_for_the_same_are_words_of_the_documentation() -> None:
    """A word that a component's docstring now uses, or that no component uses any more, needs no entry."""
    said = {entry.name: " ".join(f"{entry.name} {docstring(entry)}".lower().split()) for entry in Catalog.discover()}
    for word, others in catalog.SYNONYMS.items():
        for other in others:
            found = {name for name, text in said.items() if other in text}
            assert found - {name for name, text in said.items() if word in text}, (word, other)


def test_list_in_a_narrow_terminal_has_room_for_summaries(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    assert call(monkeypatch, "list", "protect") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "protect"
    assert all(len(line) <= 80 for line in lines)
    (clip,) = (line for line in lines if " std.clip " in line)
    assert len(clip.split("std.clip")[1].strip()) > 20, "its summary begins on its line"


def test_list_as_json(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    assert call(monkeypatch, "list", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    vote = next(row for row in rows if row["name"] == "paraaegis.vote")
    assert vote["group"] == "negotiate_mask"
    assert vote["plugin"] == "fedplug-paraaegis"
    assert vote["summary"].endswith(".")


def test_list_verify_names_the_plugin_that_cannot_be_imported(tmp_path: Path) -> None:
    info = tmp_path / "acmebroken-3.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acmebroken\nVersion: 3.1\n")
    (info / "entry_points.txt").write_text("[fedplug.attack]\nacmebroken.x = acmebroken:X\n")
    (tmp_path / "acmebroken.py").write_text("import no_such_library\n")
    there = f"sys.path.insert(0, {str(tmp_path)!r})"
    start = f"import sys; {there}; from fedplug_terminal.main import main; sys.exit(main())"
    listed = python(start, "list")
    assert listed.returncode == 0
    assert "acmebroken.x" in listed.stdout
    assert listed.stderr == ""
    verified = python(start, "list", "--verify")
    assert verified.returncode == 1
    assert "plugin acmebroken 3.1: attack component acmebroken.x" in verified.stderr
    assert "No module named 'no_such_library'" in verified.stderr


def test_list_verify_builds_the_options_too(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    import fedplug

    class Clip(fedplug.Protector):
        class Options(fedplug.Options):
            norm: NoSuchType = 1.0  # type: ignore[name-defined]  # noqa: F821

    Clip.__abstractmethods__ = frozenset()
    broken = Catalog.of({"protect": {"acme.clip": Clip}}, {})
    assert catalog.list_components(broken, as_json=False, verify=True) == 1
    assert "the options of acme.clip cannot be built: " in capsys.readouterr().err


def test_list_imports_no_plugin_and_none_of_the_heavy_libraries() -> None:
    # benchmarks/startup.py measures the time.
    result = python(
        MAIN + "tops = {name.partition('.')[0] for name in sys.modules}\n"
        "plugins = {t for t in tops if t.startswith('fedplug_')} - {'fedplug_terminal', 'fedplug_runs'}\n"
        "bad = tops & {'numpy', 'torch', 'pydantic'} | plugins\n"
        "assert code == 0 and not bad, bad", "list",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr


def test_show_prints_documentation_options_and_origin_without_torch() -> None:
    result = python(MAIN + LIGHT + "sys.exit(code)", "show", "std.gaussian")
    assert result.returncode == 0, result.stderr
    out = result.stdout
    assert "Add Gaussian noise" in out
    assert "fedplug-std 0.1.0" in out
    assert "gaussian.py:" in out
    row = next(line for line in out.splitlines() if line.startswith("decay"))
    assert row.split()[1:3] == ["float", "1.0"]
    assert "> 0, <= 1" in row
    assert "'secure' | 'exact' | 'reproducible'" in out


def test_show_of_a_component_with_several_hooks(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    assert call(monkeypatch, "show", "bfv") == 0
    assert "std.bfv  (protect, postprocess)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "said"), [("std.bfv", "Sealer"), ("std.single_zone", "PublicPlan"), ("std.clip", "Protector")]
)
def test_show_names_the_roles_that_say_most(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, name: str, said: str
) -> None:
    assert call(monkeypatch, "show", name) == 0
    assert f"roles:               {said}\n" in capsys.readouterr().out


def test_show_of_a_recipe_says_what_to_type(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(shelf, "named", lambda name: types.SimpleNamespace(kind="recipe"))
    assert call(monkeypatch, "show", "bfv-fedavg") == 1
    assert capsys.readouterr().err == (
        "error: bfv-fedavg is a recipe, not a component: fedplug recipes bfv-fedavg shows its text, and fedplug run "
        "bfv-fedavg runs it\n"
    )


def test_show_of_something_unknown_suggests_the_nearest(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    assert call(monkeypatch, "show", "std.gausian") == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "did you mean std.gaussian" in captured.err


@pytest.mark.parametrize("name", ["local", "processes"])
def test_show_of_an_engine(monkeypatch: pytest.MonkeyPatch, capsys: Any, name: str) -> None:
    assert call(monkeypatch, "show", name) == 0
    assert capsys.readouterr().out.endswith("It has no options.\n")


# -- fedplug check


def test_both_forms_say_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path, good: Path
) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(GOOD.replace("rounds: 2", "rounds: 0"))
    assert call(monkeypatch, "check", str(good), str(bad)) == 1
    plain = capsys.readouterr()
    assert call(monkeypatch, "check", "--", str(good), str(bad)) == 1
    parsed = capsys.readouterr()
    assert (plain.out, plain.err) == (parsed.out, parsed.err)
    assert plain.err == "1 problem\n"


def test_notes_are_below_the_recipe(capsys: Any, tmp_path: Path, good: Path) -> None:
    good.write_text(GOOD.replace("model: std.mlp", "model: {use: std.mlp, hidden: [4]}"))
    child = tmp_path / "child.yaml"
    child.write_text(f"extends: {good.name}\nmodel: std.mlp\n")
    assert check_recipes([child]) == 0
    first, note = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{child}: ok (")
    assert note.startswith(f"note: {child}:2:8: std.mlp does not take over the options")
    assert "hidden is [256, 128], not" in note


def test_gives_the_exit_code(capsys: Any, tmp_path: Path, good: Path) -> None:
    assert check_recipes([good], ["rounds=5"]) == 0
    assert capsys.readouterr().out.startswith(f"{good}: ok (")
    assert check_recipes([good, tmp_path / "none.yaml"]) == 1
    assert "there is no such file" in capsys.readouterr().out
