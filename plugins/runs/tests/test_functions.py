"""fedplug from Python: runs, recipes and settings as keywords that are told apart."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import fedplug
import pytest
import torch
from fedplug import FedplugError, RecipeError
from fedplug.api.errors import CheckpointError, PluginError, SetupError
from python_toys import PLAIN
from run_toys import stopped

# ---- light


def test_importing_fedplug_imports_nothing_heavy() -> None:
    program = (
        "import sys, fedplug; fedplug.components('protect'); fedplug.run; fedplug.open_run\n"
        "print([name for name in ('torch', 'matplotlib', 'typer', 'rich', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---- a run


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"it has no recipe\.yaml"):
        fedplug.open_run(tmp_path)
    with pytest.raises(CheckpointError, match=r"it has no recipe\.yaml"):
        fedplug.resume(tmp_path)


# ---- what is printed


def test_a_script_sees_a_line_a_round(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = fedplug.run(PLAIN, output=tmp_path, device="cpu", rounds=1)
    first, second, *more = capsys.readouterr().out.splitlines()
    assert first.startswith("recipe small, clients 4, rounds 1")
    assert second.startswith("round 1/1  accuracy")
    assert more == [f"note: {doubt}" for doubt in run.summary.doubts]
    assert run.folder.parent == tmp_path
    quiet = fedplug.run(PLAIN, output=tmp_path, device="cpu", rounds=1, quiet=True)
    assert capsys.readouterr().out.splitlines() == [f"note: {doubt}" for doubt in quiet.summary.doubts]


def test_an_interrupted_run_is_saved_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with stopped(lambda _, round: round == 1), pytest.raises(KeyboardInterrupt, match=r"fedplug\.resume"):
        fedplug.run(PLAIN, output=tmp_path, device="cpu")
    (folder,) = tmp_path.glob("small-*")
    assert f"everything up to round 1 is saved. To continue: fedplug.resume({str(folder)!r})" in capsys.readouterr().out
    cut_off = fedplug.open_run(folder)
    assert not cut_off.complete
    assert isinstance(cut_off.model, torch.nn.Module)
    assert fedplug.resume(cut_off, quiet=True).complete


# ---- recipes and settings


def test_recipes_come_as_files_as_plain_data_and_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(json.dumps(PLAIN), encoding="utf-8")
    recipe = fedplug.check(PLAIN)
    assert fedplug.check(file) == fedplug.check(str(file)) == fedplug.check(recipe) == recipe
    texts = fedplug.check(file, ["protect.noised.0.norm=0.5", "rounds=7"])
    assert texts == fedplug.check(PLAIN, {"protect.noised.0.norm": 0.5}, rounds=7)
    assert texts == fedplug.check(recipe, {"protect.noised.0.norm": 0.5, "rounds": 1}, rounds=7)
    assert PLAIN["protect"]["noised"][0]["norm"] == 0.1  # the caller's data do not change
    assert fedplug.check(PLAIN, data={**PLAIN["data"], "clients": 5}).clients == 5


def test_every_mistake_of_a_recipe_comes_at_once() -> None:
    with pytest.raises(RecipeError) as caught:
        fedplug.check(PLAIN, {"train.lr": -1}, rounds=0)
    assert len(caught.value.problems) == 2
    assert "rounds: rounds=0 must be >= 1" in str(caught.value)


def test_the_data_of_the_caller_are_left_alone() -> None:
    noised = [{"use": "std.clip", "norm": 0.1}, {"use": "std.gaussian", "epsilon": 8, "delta": 1e-5}]
    fedplug.check(PLAIN, {"protect.noised": noised, "protect.noised.0.norm": 0.5})
    assert noised[0] == {"use": "std.clip", "norm": 0.1}


@pytest.mark.parametrize(
    ("keywords", "complaint"),
    [
        ({"engin": "local"}, "engin: this is neither a setting nor a key of recipes; did you mean engine?"),
        ({"round": 5}, "round: this is neither a setting nor a key of recipes; did you mean rounds?"),
        ({"workers": 2}, "workers=2 changes nothing with the engine local"),
        ({"timeout": 60}, "timeout=60 changes nothing with the engine local; take engine processes"),
        ({"engine": "proceses"}, "did you mean processes"),
        ({"display": "live"}, "display='live' must be 'lines', 'terminal'"),
        ({"muted": "lab.report"}, "muted='lab.report' must be a list"),
        ({"settings": {"device": "cpu"}}, "must be a fedplug.Settings"),
        ({"data": "/absent"}, "the folder of data sets /absent does not exist"),
    ],
)
def test_keywords_that_are_wrong_say_so(tmp_path: Path, keywords: dict[str, Any], complaint: str) -> None:
    with pytest.raises(FedplugError, match=complaint.replace("?", r"\?")):
        fedplug.run(PLAIN, **({"output": tmp_path / "runs"} | keywords))
    assert not list(tmp_path.glob("runs/*"))


def test_check_takes_no_settings() -> None:
    with pytest.raises(SetupError, match="quiet: this is not a key of recipes"):
        fedplug.check(PLAIN, quiet=True)


def test_components_are_records() -> None:
    (clip,) = [found for found in fedplug.components("protect") if found.name == "std.clip"]
    assert (clip.group, clip.plugin) == ("protect", "fedplug-std")
    assert clip.summary.startswith("Scale a zone's values down")
    assert len(fedplug.components()) > len(fedplug.components("protect"))
    with pytest.raises(PluginError, match="did you mean protect"):
        fedplug.components("protekt")


def test_a_recipe_that_was_changed_is_checked_again() -> None:
    changed = dataclasses.replace(fedplug.check(PLAIN), min_clients=99)
    with pytest.raises(RecipeError, match="min_clients=99 must be <="):
        fedplug.check(changed)
