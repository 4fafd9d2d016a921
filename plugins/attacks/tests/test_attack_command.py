"""`fedplug attack` as a user meets it: names, exit codes, and messages without a traceback."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attack_toys import Echo, Runs, attack_catalog, attacks_of, results
from fedplug.api.errors import RecipeError
from fedplug.recipe.catalog import Catalog, Entry
from fedplug_attacks.workshop.command import full_name
from fedplug_terminal.main import main
from threadpoolctl import threadpool_info, threadpool_limits
from toy_components import recipe_of

SAID = pytest.CaptureFixture[str]
LABELS = "attack.attacks.0.finds=['labels']"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(autouse=True)
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The toys are installed, and no data folder and no user config is in sight."""
    catalog = attack_catalog()
    monkeypatch.setattr(Catalog, "discover", staticmethod(lambda: catalog))
    monkeypatch.delenv("FEDPLUG_DATA", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def folder(runs: Runs, tmp_path: Path) -> Path:
    """A finished run of two rounds, with every message."""
    return Path(shutil.copytree(runs.of(recipe_of()), tmp_path / "run"))


def fedplug(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    """Runs the command line in this process and gives its exit code."""
    monkeypatch.setattr(sys, "argv", ["fedplug", *map(str, words)])
    return int(main() or 0)


def refused(monkeypatch: pytest.MonkeyPatch, capsys: SAID, *words: object, code: int = 1) -> str:
    """What `fedplug attack` says as it refuses."""
    assert fedplug(monkeypatch, "attack", *words) == code
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return said


def small(*words: object) -> list[object]:
    return [*words, "--attack", "echo", "--metric", "count_error", "--set", LABELS]


# -- it works ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("reports")
def test_attacks_and_metrics_go_by_their_short_names(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: SAID
) -> None:
    words = small("attack", folder, "--target", 1, "--target", 2, "--adversary", "server", "--round", 2)
    assert fedplug(monkeypatch, *words) == 0
    shown = capsys.readouterr().out
    assert "toy.echo-server-round2-client1: adaptive" in shown
    assert str(folder / "attacks") in shown
    assert str(folder / "report.html") in shown
    found = results(folder)
    assert set(found) == {"summary", "toy.echo-server-round2-client1", "toy.echo-server-round2-client2"}
    assert found["toy.echo-server-round2-client1"]["use"] == "toy.echo"
    assert fedplug(monkeypatch, *words) == 0
    assert "toy.echo-server-round2-client2: finished before" in capsys.readouterr().out


def test_options_of_attacks_and_of_probes_can_be_set(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = small("attack", folder, "--probe", 3, "--batches", 2, "--target", 0, "-q")
    assert fedplug(monkeypatch, *words, "--set", "attack.probe.classes=1", "--set", "attack.candidates=8") == 0
    found = results(folder)
    assert set(found) == {"summary", *(f"toy.echo-server-round1-client0-probe3.{batch}" for batch in (1, 2))}
    for number, result in enumerate((found[f"toy.echo-server-round1-client0-probe3.{n}"] for n in (1, 2)), 1):
        assert result["probe"] == {"batch_size": 3, "batch": number, "classes": 1, "rounds": 1}
        assert sum(count > 0 for count in result["truth"]["counts"]) == 1


def test_a_recipes_own_attacks_run_again_without_being_named(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = attacks_of("toy.bare", targets=[3])
    run = Path(shutil.copytree(runs.of(recipe_of(rounds=1, attack=section)), tmp_path / "own"))
    shutil.rmtree(run / "attacks")
    assert fedplug(monkeypatch, "attack", run, "-q") == 0
    assert set(results(run)) == {"summary", "toy.bare-server-round1-client3"}


ZEROS = """\
import fedplug
import numpy as np
from fedplug import Finds
from fedplug_attacks.api.needs import Needs
from fedplug_attacks.api.report import AttackReport


class Zeros(fedplug.Attack):
    \"\"\"Say that three examples of the first class were there.\"\"\"

    @property
    def finds(self):
        return Finds(needs=Needs(update=True, model=False), what=frozenset({"labels"}),
                     headline=("count_error", "low"), success=("count_error", "<=", 0.1))

    def attack(self, view, attacker):
        return AttackReport(status="STATUS", labels=np.zeros(3, np.int64))
"""


def test_an_attack_of_a_file_runs_and_does_not_judge_itself(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mine.py"
    own = "an attack can give finished, diverged, not_applicable"
    for status, came, reason in (("finished", "failed", ""), ("success", "inconclusive", own)):
        file.write_text(ZEROS.replace("STATUS", status))
        words = ["--attack", "mine.Zeros", "--plugin", file, "--target", 1, "--adversary", "server", "-q"]
        shutil.rmtree(folder / "attacks", ignore_errors=True)
        assert fedplug(monkeypatch, "attack", folder, *words) == 0
        found = results(folder)["mine.Zeros-server-round1-client1"]
        assert found["use"] == "mine.py:Zeros"
        (form,) = found["forms"].values()
        assert form["status"] == came
        assert reason in form["reason"]


def test_ctrl_c_in_the_middle_says_how_to_go_on(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: SAID) -> None:
    sets = ["--set", "attack.attacks.0.does=interrupt", "--set", "attack.attacks.0.at=[2]"]
    words = [*small("attack", folder, "-q"), *sets]
    assert fedplug(monkeypatch, *words) == 130
    shown = capsys.readouterr().out
    assert "Interrupted; 2 of 4 targets are finished" in shown
    assert f"To go on: fedplug attack {folder}" in shown
    assert set(results(folder)) == {"summary", "toy.echo-server-round1-client0", "toy.echo-server-round1-client1"}
    monkeypatch.setattr(Echo, "_deed", lambda self, report, view: report)
    Echo.heard.clear()
    assert fedplug(monkeypatch, *words) == 0
    assert [view.target for view, _ in Echo.heard] == [2, 3]


def test_numpy_computes_with_one_thread_inside_and_as_before_afterwards(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more, exact batches took seven times the CPU seconds on a machine of two cores that others used too."""

    def threads() -> dict[str, int]:
        return {each["filepath"]: each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}

    inside = list[dict[str, int]]()

    def noted(_: Echo, report: Any, view: Any) -> Any:
        inside.append(threads())
        return report

    monkeypatch.setattr(Echo, "_deed", noted)
    with threadpool_limits(2, "blas"):
        before = threads()
        assert fedplug(monkeypatch, *small("attack", folder, "--target", 1, "-q")) == 0
        assert {library: threads()[library] for library in before} == before
    assert inside
    assert all({*each.values()} == {1} for each in inside)


# -- it refuses --------------------------------------------------------------------------------------------------------


def test_a_run_without_recorded_messages_names_the_remedy(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: SAID
) -> None:
    folder = runs.of(recipe_of(), record=False)
    said = refused(monkeypatch, capsys, *small(folder, "--adversary", "server"))
    assert "holds no recorded messages, and round 1 is to be attacked" in said
    assert "--record-wire" in said
    assert "--probe" in said
    assert not (folder / "attacks").exists()


def test_what_is_no_run_folder_is_called_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: SAID) -> None:
    said = refused(monkeypatch, capsys, tmp_path / "nowhere", "--attack", "echo")
    assert "nowhere is not a run folder: it has no recipe.yaml" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--attack", "echo", "--round", 3], "rounds names round 3, but the recipe has 2"),
        (["--attack", "echo", "--target", 4], "targets names client 4, but there are 4: 0 to 3"),
        (["--attack", "echo", "--adversary", "sever"], "there is no adversary 'sever'"),
        (["--attack", "echo", "--adversary", "client:9"], "there is no client 9"),
        (["--attack", "ekko"], "ekko"),
        (["--attack", "echo", "--metric", "distanse"], "distanse"),
        (["--set", "attack.candidates=9"], "--set attack.candidates=9: without --attack fedplug makes the default set"),
        (["--attack", "echo", "--batches", 2], "--batches 2 has no effect without --probe SIZE"),
        (["--attack", "echo", "--set", "rounds=5"], "only its attacks can be set; write attack.PATH=VALUE"),
        (["--attack", "echo", "--set", "train.lr=1"], "only its attacks can be set"),
        (["--attack", "echo", "--set", "attack.attacks.0.gray=1"], "gray"),
        (["--attack", "echo", "--set", "attack.attacks.0.grey=dark"], "grey"),
        (["--attack", "echo", "--set", "attack.attacks.3.grey=1"], "attack.attacks.3"),
    ],
)
def test_mistakes_are_named_and_nothing_is_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: SAID, words: list[object], said: str
) -> None:
    assert said in refused(monkeypatch, capsys, folder, *words)
    assert not (folder / "attacks").exists()


@pytest.mark.parametrize("words", [["--probe", 0], ["--batches", 0], ["--round", 0], ["--target", -1], ["--atack", 1]])
def test_wrong_usage_has_its_own_exit_code(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: SAID, words: list[object]
) -> None:
    refused(monkeypatch, capsys, folder, "--attack", "echo", *words, code=2)


@pytest.mark.parametrize(("damage", "words"), [
    ("wire/round-0001.wire", "round-0001.wire"), ("recipe.yaml", "recipe.yaml"),
    ("checkpoint/round-0001/clients-0.state", "clients-0.state is damaged"),
])  # fmt: skip
def test_damaged_files_are_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: SAID, damage: str, words: str
) -> None:
    whole = (folder / damage).read_bytes()
    (folder / damage).write_bytes(whole[: len(whole) // 2])
    assert words in refused(monkeypatch, capsys, *small(folder, "--adversary", "client:1", "--target", 0))


def test_a_class_count_that_does_not_fit_is_a_clear_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: SAID
) -> None:
    """A probe of more classes than there are takes all of them; an answer for other classes is refused."""
    assert fedplug(monkeypatch, *small("attack", folder, "--probe", 4, "--target", 0, "-q"),
                   "--set", "attack.probe.classes=99") == 0  # fmt: skip
    monkeypatch.setattr(Echo, "_deed", _for_other_classes)
    assert fedplug(monkeypatch, *small("attack", folder, "--target", 0)) == 0
    entry = results(folder)["toy.echo-server-round1-client0"]["forms"]["adaptive"]
    assert entry["status"] == "inconclusive"
    assert entry["reason"] == "the attack gave counts of shape (3,), not (10)"
    assert "the attack gave counts of shape (3,), not (10)" in capsys.readouterr().out


def _for_other_classes(echo: Echo, report: Any, view: Any) -> Any:
    return dataclasses.replace(report, counts=np.ones(3))


def test_a_run_that_was_not_recorded_is_probed_where_it_can_be(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: SAID
) -> None:
    folder = shutil.copytree(runs.of(recipe_of(rounds=4), record=False), tmp_path / "run")
    said = refused(monkeypatch, capsys, folder, "--attack", "echo", "--probe", 4, "--round", 1)
    assert "kept no checkpoint from before round 1; it has those of rounds 4, 5; 5 is the final model" in said
    assert "--record-wire" in said
    words = ["attack", folder, "--attack", "echo", "--probe", 4, "--target", 0]
    monkeypatch.setattr(sys, "argv", ["fedplug", *map(str, words)])
    assert main() == 0
    assert "rounds 4" in capsys.readouterr().out


def test_an_interruption_that_spoils_the_report_too_is_still_an_interruption(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: SAID
) -> None:
    """Ctrl-C in the middle of an import leaves a library half there, so that the report cannot be drawn either."""
    from fedplug_attacks.workshop import command as attack_command

    folder = shutil.copytree(runs.of(recipe_of(rounds=2)), tmp_path / "run")

    def half_there(run_dir: Path) -> Path:
        raise KeyError("Line2D:kwdoc")

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedplug_lab.listener.rewrite_report", half_there)
    monkeypatch.setattr(attack_command.AttackRun, "_draw", stop)
    (folder / "attacks").mkdir()
    monkeypatch.setattr(sys, "argv", ["fedplug", "attack", str(folder), "--attack", "echo"])
    assert main() == 130
    said = capsys.readouterr().out
    assert "extension lab.report has stopped: KeyError" in said
    assert "fedplug attack" in said


def test_a_plugin_that_is_installed_later_takes_no_short_name() -> None:
    """With a `labels` of another plugin, `--attack labels` was unknown."""
    names = ["attacks.labels", "llg.labels", "a.noisy", "b.noisy", "c.alone"]
    catalog = Catalog({"attack": {name: Entry(name, "attack", "m:C", "d", "1") for name in names}})
    found = [full_name(name, "attack", catalog) for name in ("labels", "alone", "none")]
    assert found == ["attacks.labels", "c.alone", "none"]
    with pytest.raises(RecipeError, match=r"--attack noisy: a.noisy and b.noisy have this name"):
        full_name("noisy", "attack", catalog)
