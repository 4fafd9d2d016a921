"""The runs below a folder: whole ones, those that were cut off, one that is being written, and a damaged one."""

from __future__ import annotations

from pathlib import Path

from fedplug_runs.folder import locked
from fedplug_runs.listing import look_at, runs_below
from run_toys import ROUNDS, start, stopped


def test_each_run_says_how_far_it_came_and_whether_it_goes_on(tmp_path: Path) -> None:
    whole = start(tmp_path)
    with stopped(lambda _, round: round == 2):
        cut = start(tmp_path / "study")
    (tmp_path / "app").mkdir()
    (tmp_path / "app/recipe.yaml").write_text("name: no run\n")
    runs = {Path(run.folder): run for run in runs_below(tmp_path)}
    assert runs.keys() == {whole, cut}
    one, other = runs[whole], runs[cut]
    assert (one.state, one.done, one.resume, one.engine) == ("complete", f"{ROUNDS}/{ROUNDS}", "", "local")
    assert one.figure == "accuracy"
    assert one.value is not None
    assert one.judged == f"accuracy {one.value:.3f}"
    assert one.verdict.startswith(("Protected", "No protection", "Weakly", "No meaningful"))
    assert one.date.startswith("20")
    assert (other.state, other.planned, other.resume) == ("stopped", ROUNDS, f"fedplug resume {cut}")
    assert other.rounds < ROUNDS
    with locked(cut):
        assert look_at(cut).state == "running"
    assert runs_below(whole) == [one]


def test_a_damaged_run_is_said_and_hides_no_other(tmp_path: Path) -> None:
    whole, other = start(tmp_path), start(tmp_path)
    (whole / "metrics.jsonl").write_text("{}\n")
    (other / "ledger.json").write_text("{")
    found = {run.folder: run for run in runs_below(tmp_path)}
    assert {run.state for run in found.values()} == {"damaged"}
    assert "metrics.jsonl, line 1, is damaged" in found[str(whole)].problem
    assert "ledger.json is damaged" in found[str(other)].problem
    assert found[str(other)].rounds == ROUNDS


def test_a_run_that_was_killed_in_its_set_up_can_be_resumed(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "recipe.yaml").write_text("name: young\nrounds: 3\n")
    found = look_at(tmp_path)
    assert (found.recipe, found.done, found.state, found.verdict, found.date) == ("young", "0/3", "stopped", "", "")
    assert found.judged == "–"
