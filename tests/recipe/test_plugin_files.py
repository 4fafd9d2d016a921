"""Components of files that `--plugin` names: their names, the recipes that can use them, and what is refused."""

from __future__ import annotations

from pathlib import Path

import fedplug
import pytest
from fedplug import Settings
from fedplug.api.errors import PluginError, RecipeError
from fedplug.engines.base import Job
from fedplug.recipe.catalog import Catalog
from fedplug_runs import own_files
from fedplug_runs.docstrings import summary
from fedplug_runs.own_files import entries_of, in_file, with_files
from fedplug_runs.trust import RUNS
from own_file_toys import HALVE, RECIPE

TWO_ROLES = '''\
import fedplug


class _Base:
    pass


class Shift(fedplug.Protector, fedplug.Opener):
    """Shift, and shift back."""

    def protect(self, known, facts):
        return ()

    def postprocess(self, known, facts):
        return ()
'''
LOG = '''
import fedplug_runs.events


class Log(fedplug.Extension):
    """Write a line a round."""

    hears = (fedplug_runs.events.RowComplete,)

    def observe(self, event):
        with open("log.txt", "a") as file:
            file.write(f"{event.row.round}\\n")
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe that names `halve.Halve`, and the file elsewhere that has it."""
    monkeypatch.setattr(own_files, "_SEEN", {})
    monkeypatch.chdir(tmp_path)
    Path("files").mkdir()
    Path("files/halve.py").write_text(HALVE, encoding="utf-8")
    Path("mine.yaml").write_text(RECIPE.replace('"own/halve.py:Halve"', "halve.Halve"), encoding="utf-8")
    return tmp_path


def test_a_recipe_names_a_class_of_the_file_and_is_resolved_to_it(folder: Path) -> None:
    with pytest.raises(RecipeError, match=r"unknown protect component 'halve.Halve'.*--plugin halve.py"):
        fedplug.check("mine.yaml")
    recipe = fedplug.check("mine.yaml", plugins=["files/halve.py"], trust=True)
    (use,) = recipe.protect["clear"]
    assert (use.use, use.name, use.options.model_dump()) == ("halve.py:Halve", "halve.Halve", {"factor": 0.25})
    # As if it had named the file, and in a different process without the file.
    named = {"protect.clear.0.use": "files/halve.py:Halve", "protect.clear.0.factor": 0.25}
    assert fedplug.check("mine.yaml", named, trust=True).digest == recipe.digest
    built, composition = Job(recipe.to_plain(), own_files=recipe.own_files).build()
    assert built.digest == recipe.digest
    assert "halve.Halve" in composition.components
    Path("files/halve.py").write_text(HALVE + "# changed\n", encoding="utf-8")
    assert fedplug.check("mine.yaml", plugins=["files/halve.py"], trust=True).digest != recipe.digest


def test_a_plain_name_will_do_and_other_names_are_guessed(folder: Path) -> None:
    plugins = ["files/halve.py"]
    recipe = fedplug.check("mine.yaml", {"protect.clear.0": "halve.Halve"}, plugins=plugins, trust=True)
    assert recipe.protect["clear"][0].own is not None
    with pytest.raises(RecipeError, match=r"unknown protect component 'halve.Halv'; did you mean halve.Halve\?"):
        fedplug.check("mine.yaml", {"protect.clear.0": "halve.Halv"}, plugins=plugins, trust=True)
    with pytest.raises(RecipeError, match="factor='x' must be"):
        fedplug.check("mine.yaml", {"protect.clear.0.factor": "x"}, plugins=plugins, trust=True)
    with pytest.raises(RecipeError, match="it is not an Aggregator"):
        fedplug.check("mine.yaml", {"aggregate": "halve.Halve"}, plugins=plugins, trust=True)


def test_a_run_keeps_a_copy_goes_on_with_it_and_hears_extensions_of_the_file(folder: Path) -> None:
    Path("files/halve.py").write_text(HALVE + LOG, encoding="utf-8")
    settings = Settings(quiet=True, device="cpu", muted=("lab.report",))
    run = fedplug.run("mine.yaml", settings=settings, plugins=["files/halve.py"], listeners=["halve.Log"])
    assert (run.folder / "halve.py").read_text() == HALVE + LOG
    assert Path("log.txt").read_text() == "1\n"
    own_files._SEEN.clear()
    again = fedplug.resume(run, 0, settings=settings, listeners=["files/halve.py:Log"])
    assert len(again.metrics) == 1
    assert Path("log.txt").read_text() == "1\n1\n"


def test_a_class_is_offered_in_each_of_its_roles_and_helpers_are_not(folder: Path) -> None:
    Path("shift.py").write_text(TWO_ROLES, encoding="utf-8")
    before = Catalog.discover()
    catalog = with_files(before, ["shift.py", "files/halve.py", "shift.py"], RUNS)
    assert [entry.group for entry in catalog.named("shift.Shift")] == ["protect", "postprocess"]
    (halve,) = catalog.named("halve.Halve")
    assert (halve.distribution, summary(halve)) == ("halve.py", "Take half of every value.")
    assert not before.named("shift.Shift")
    assert [entry.name for entry in in_file("files/halve.py:Halve", RUNS)] == ["halve.Halve"]
    with pytest.raises(PluginError, match=r"halve.py has no component Median; there is Halve"):
        in_file("files/halve.py:Median", RUNS)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import fedplug\n\nx = 1 +\n", "bad.py, line 3 cannot be run: SyntaxError"),
        ("x = 1\ny = x / 0\n", "bad.py, line 2 cannot be run: ZeroDivisionError"),
        ("x = 1\n", "bad.py has no component: it defines no class"),
        (
            "class Median:\n    def protect(self, block, client, facts): ...\n",
            r"no component: Median has what fedplug.Protector asks for; write class Median\(fedplug.Protector\)",
        ),
        ("class Own:\n    def load(self, root): ...\n", r"write class Own\(fedplug.DataSource\)"),
        ("import fedplug\nclass A(fedplug.Component): ...\n", "A inherits from Component, which is not a role"),
        ("class Net: ...\n", "Net is a plain class.*a recipe says use: bad.py:NAME"),
        (HALVE + HALVE.partition("number")[0], "bad.py has two classes named Halve, lines 5 and 24; rename one"),
    ],
)
def test_a_file_without_use_is_refused(folder: Path, text: str, why: str) -> None:
    Path("bad.py").write_text(text, encoding="utf-8")
    with pytest.raises(PluginError, match=why):
        with_files(None, ["bad.py"], RUNS)


def test_files_and_names_must_be_free(folder: Path) -> None:
    Path("std.py").write_text(HALVE.replace("Halve", "clip"), encoding="utf-8")
    with pytest.raises(PluginError, match=r"protect component std.clip is installed already, by fedplug-std .*rename"):
        with_files(None, ["std.py"], RUNS)
    Path("halve.py").write_text(HALVE, encoding="utf-8")
    with pytest.raises(PluginError, match=r"2 files are named halve\.py"):
        with_files(None, ["halve.py", "files/halve.py"], RUNS)
    with pytest.raises(PluginError, match=r"there is no file .*gone.py; put it there, or .* the working directory"):
        with_files(None, ["gone.py"], RUNS)
    with pytest.raises(PluginError, match="it must be a Python file"):
        with_files(None, ["files"], RUNS)


def test_entries_are_those_of_the_file_alone(folder: Path) -> None:
    own = own_files.read("files/halve.py:Halve", (), None)
    RUNS.covers([own], "halve")
    (entry,) = entries_of(own)
    assert entry.load() is own_files.component(own, "halve.py:Halve", "protect")
    catalog = Catalog({"protect": {entry.name: entry}}, sections={})
    assert catalog.get("protect", "halve.Halve") is entry


def test_an_error_is_named_with_the_line_of_the_own_file(tmp_path: Path) -> None:
    """The line is not that of a library it called, because the author can only fix the component."""
    from fedplug.api.errors import cause_of

    file = tmp_path / "calls.py"
    file.write_text(f"import json\n{HALVE.replace('Scale(self', 'Scale(json.loads(known) * self')}")
    (entry,) = in_file(f"{file}:Halve", RUNS)
    made = entry.load()
    with pytest.raises(ValueError, match="Expecting") as caught:
        made(made.Options()).protect("{", None)
    assert cause_of(caught.value).endswith("(calls.py:13)")
