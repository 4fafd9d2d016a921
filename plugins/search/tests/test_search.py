"""`fedplug search`: what it tries, what it makes of constraints, what it leaves, and when it ends early."""

from __future__ import annotations

import csv
import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from fedplug.api.errors import RecipeError
from fedplug.recipe.catalog import Catalog
from fedplug_runs import shelf
from fedplug_runs.folder import read_ledger, read_rows
from fedplug_runs.overlay import load_recipe
from fedplug_runs.settings import Settings
from fedplug_search import searching
from fedplug_search.question import Asked
from fedplug_search.searching import search
from fedplug_search.store import FILE
from gaussian_toys import gaussian_together
from run_toys import stopped
from search_toys import compared, counted, trials_of

# ---- what it finds


def test_the_best_of_a_small_grid_and_all_that_is_left_of_it(
    recipe: Path, settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A step of 0.05 learns and one of 1e-6 does not; a second round costs bytes."""
    asked = Asked(["train.lr=[1e-6, 0.05]", "rounds=[1, 2]"], ["accuracy=0.3"], ["bytes=10MB"])
    assert search(recipe, settings, asked, catalog) == 0
    shown = capsys.readouterr().out
    trials = trials_of(settings.output)
    assert len(trials) == 4
    met = {number for number, trial in enumerate(trials, 1) if trial["status"] == "met"}
    assert {trials[number - 1]["values"]["train.lr"] for number in met} == {0.05}
    # The front by brute force: more accuracy or fewer bytes than each other that meets the constraints.
    numbers = {n: (-trials[n - 1]["numbers"]["accuracy"], trials[n - 1]["numbers"]["bytes"]) for n in met}
    best = {n for n, own in numbers.items()
            if not any(o != own and o[0] <= own[0] and o[1] <= own[1] for o in numbers.values())}  # fmt: skip
    front = json.loads((settings.output / "trials.json").read_text())["front"]
    assert set(front) == best
    assert len(front) > 1
    assert numbers[front[0]][0] == min(loss for loss, _ in numbers.values()), "the most accurate first"
    assert f"{len(met)} of 4 trials meet all constraints, and {len(front)} of them are on the Pareto front." in shown
    # Numbers are those of the runs.
    first = trials[front[0] - 1]
    rows = read_rows(settings.output / first["runs"][0]["folder"])
    assert first["numbers"]["accuracy"] == rows[-1].accuracy
    assert first["numbers"]["bytes"] == sum(row.bytes.up.total + row.bytes.down.total for row in rows)
    # Recipes run as they are: they extend the one that was varied, and are the recipes of the runs.
    for place, number in enumerate(front, 1):
        file = settings.output / "front" / f"{place}.yaml"
        assert shelf.read(file).data["extends"] == "../../toy.yaml"
        assert load_recipe(file, (), catalog).digest == trials[number - 1]["runs"][0]["digest"]
    best_file = settings.output / "best.yaml"
    assert load_recipe(best_file, (), catalog).digest == first["runs"][0]["digest"]
    assert best_file.read_text().startswith(f"# Trial {front[0]} of 4 of a search in toy.yaml (seed 7): accuracy 0.")
    with (settings.output / "trials.csv").open(newline="") as lines:
        table = list(csv.DictReader(lines))
    assert [line["status"] for line in table] == [trial["status"] for trial in trials]
    assert [int(line["trial"]) for line in sorted(table, key=lambda line: line["front"]) if line["front"]] == front
    page = (settings.output / "search.html").read_text()
    assert "accuracy &gt;= 0.300, bytes &lt;= 10.0 MB" in page
    assert 'id="figure-front"' in page
    assert "train.lr" in page
    assert "://" not in page
    # The same command runs nothing again.
    rounds = counted(monkeypatch)
    assert search(recipe, settings, asked, catalog) == 0
    assert not rounds
    assert "4 of 4 trials have ended already" in capsys.readouterr().out
    # A search that lost its study has its runs.
    before = compared(settings.output)
    (settings.output / FILE).unlink()
    assert search(recipe, settings, asked, catalog) == 0
    assert not rounds
    assert compared(settings.output) == before


def test_a_combination_that_is_no_recipe_is_refused_with_its_reason_and_the_others_run(
    recipe: Path, settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RecipeError, match=r"--over min_clients: .*6"):  # of four clients
        search(recipe, settings, Asked(["min_clients=[2, 6]"]), catalog)
    assert not settings.output.exists()
    assert search(recipe, settings, Asked(["min_clients=[2, 6]", "data.clients=[4, 6]"]), catalog) == 0
    statuses = {(*trial["values"].values(),): trial["status"] for trial in trials_of(settings.output)}
    assert statuses == {(2, 4): "met", (2, 6): "met", (6, 4): "refused", (6, 6): "met"}
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("3/4 ")]
    assert line.startswith("3/4 min_clients=6 clients=4: refused: --set min_clients: min_clients=6 ")


def test_where_nothing_meets_the_constraints_it_says_what_is_closest(
    recipe: Path, settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = Asked(["train.lr=[1e-6, 0.05]"], ["accuracy=0.99"], ["bytes=10MB"])
    assert search(recipe, settings, asked, catalog) == 1
    shown = capsys.readouterr().out
    assert "No trial meets all constraints.\nClosest is trial 2: lr=0.05: accuracy 0." in shown
    assert re.search(r"missed most narrowly is accuracy >= 0\.990: accuracy 0\.\d+ is below 0\.990 in trial 2\.", shown)
    assert not (settings.output / "best.yaml").exists()
    assert "Closest is trial 2" in (settings.output / "search.html").read_text()


def test_a_protocol_without_noise_has_no_epsilon_and_so_misses_a_bound(
    recipe: Path, settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    assert search(recipe, settings, Asked(["train.lr=[0.05, 0.1]"], (), ["epsilon=8"]), catalog) == 1
    reason = trials_of(settings.output)[0]["reason"]
    assert reason == "epsilon has no number: its ledger prices nothing, since no zone has noise that counts"
    shown = capsys.readouterr().out
    assert "Of 2 runs of this search that released something, none states an epsilon" in shown


def test_epsilons_at_different_deltas_are_said_not_to_compare_and_each_delta_counts(
    secret: Path, settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = Asked(["delta=[1.0e-5, 1.0e-3]"], (), ["epsilon=100"], sets=["rounds=1"])
    assert search(secret, settings, asked, catalog) == 0
    shown = capsys.readouterr().out
    assert "not comparable: delta: 1e-05 in trial 1; 0.001 in trial 2. Epsilons do not compare." in shown
    total = gaussian_together([1.0, 1.0], 0.00101)
    assert f"together total at most epsilon {total:.3f} at delta 0.00101, composed from their noise:" in shown
    assert "note: Figures of the front are those by which it was chosen from 2 trials, with seed 7" in shown
    assert "Not comparable: delta: 1e-05 in trial 1" in (settings.output / "search.html").read_text()


def test_a_seed_without_an_accuracy_is_not_left_out_of_the_mean(
    recipe: Path, settings: Settings, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = searching.open_run

    def lacking(folder: Path) -> Any:
        run = whole(folder)
        if run.seed == 2:
            run.result.accuracy = None
        return run

    monkeypatch.setattr(searching, "open_run", lacking)
    assert search(recipe, settings, Asked(["rounds=[1, 2]"], ["accuracy=0.1"], seeds=[1, 2]), catalog) == 1
    reasons = [trial["reason"] for trial in trials_of(settings.output)]
    assert reasons == ["accuracy has no number: 1 of its 2 runs states none"] * 2


def test_a_run_that_was_interrupted_or_failed_has_a_price_too(
    secret: Path, settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its clients have uploaded; that nobody used the result takes nothing back."""
    rounds, asked = itertools.count(), Asked(["protect.noised.1.noise_multiplier=[10, 20]"])
    with stopped(lambda *_: next(rounds) == 4):
        assert search(secret, settings, asked, catalog) == 130
    assert len(trials_of(settings.output)) == 1
    together = json.loads((settings.output / "trials.json").read_text())["together"]
    folders = sorted(file.parent for file in settings.output.glob("*/recipe.yaml"))
    rounds_of = [read_ledger(folder).rounds.actual for folder in folders]
    assert len(rounds_of) == 2
    total = gaussian_together([10.0] * rounds_of[0] + [20.0] * rounds_of[1], 2e-5)
    assert (together["runs"], together["without"]) == (2, 0)
    assert together["epsilon"] == pytest.approx(total)
    assert f"at most epsilon {total:.3f}" in (settings.output / "search.html").read_text()
    assert "Interrupted; 1 of 2 trials have ended" in capsys.readouterr().out


def test_noise_from_a_seed_that_all_know_has_no_price(pushed: Path, settings: Settings, catalog: Catalog) -> None:
    assert search(pushed, settings, Asked(["rounds=[1, 2]"]), catalog) == 0
    together = json.loads((settings.output / "trials.json").read_text())["together"]
    assert (together["runs"], together["without"], together["epsilon"]) == (2, 2, None)


def test_one_objective_is_enough(pushed: Path, settings: Settings, catalog: Catalog) -> None:
    asked = Asked(["protect.noised.1.noise_multiplier=[20, 1, 5]"], objectives=["epsilon"])
    assert search(pushed, settings, asked, catalog) == 0
    found = [trial["runs"][0]["epsilon"] for trial in trials_of(settings.output)]
    assert found[0] == min(found)
    assert "noise_multiplier: 20" in (settings.output / "best.yaml").read_text()


# ---- ending early


def test_a_trial_ends_as_soon_as_its_epsilon_is_above_the_bound(
    secret: Path, settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    rounds = counted(monkeypatch)
    path = "protect.noised.1.noise_multiplier"
    asked = Asked([f"{path}=[1, 20]"], (), ["epsilon=3"], objectives=["epsilon", "bytes"])
    assert search(secret, settings, asked, catalog) == 0
    assert rounds == [(3, 0), (3, 1), (3, 0), (3, 1), (3, 2)], "of the first trial, nobody is asked in the second round"
    first, second = trials_of(settings.output)
    assert first["status"] == "pruned"
    ledger = read_ledger(settings.output / first["runs"][0]["folder"])
    assert first["runs"][0]["rounds"] == 1
    assert first["numbers"]["epsilon"] == ledger.epsilon
    assert ledger.epsilon is not None
    assert first["reason"] == f"epsilon is {ledger.epsilon:.3f} after round 1 of 3, above 3.000, and only grows"
    assert second["status"] == "met"
    total = gaussian_together([1.0, 20.0, 20.0, 20.0], 2e-5)
    shown = capsys.readouterr().out
    assert f"All 2 runs of this search together total at most epsilon {total:.3f} at delta 2e-05" in shown
    assert "is another release, which that epsilon does not count" in (settings.output / "best.yaml").read_text(
    ).replace("\n# ", " ") + shown  # fmt: skip
    # Without the rule it runs to its end, and misses the bound all the same.
    ended = settings.replace({"output": settings.output.with_name("whole")})
    whole = Asked(asked.over, (), asked.most, asked.objectives, prune="none")
    assert search(secret, ended, whole, catalog) == 0
    assert [trial["status"] for trial in trials_of(ended.output)] == ["missed", "met"]
    assert len(rounds) == 5 + 6


def test_of_several_seeds_the_mean_counts_and_no_more_run_than_are_needed(
    pushed: Path, settings: Settings, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = ["rounds=1"]
    asked = Asked(["protect.noised.1.noise_multiplier=[1, 20]"], (), ["bytes=10MB"], ["epsilon", "bytes"], sets, [1, 2])
    assert search(pushed, settings, asked, catalog) == 0
    for trial in trials_of(settings.output):
        runs = [read_rows(settings.output / run["folder"])[-1] for run in trial["runs"]]
        assert [run["seed"] for run in trial["runs"]] == [1, 2]
        assert trial["numbers"]["bytes"] == sum(r.bytes.up.total + r.bytes.down.total for r in runs) / 2
        assert trial["numbers"]["epsilon"] == max(row.epsilon or 0 for row in runs)
        both = trial["numbers"]["bytes"]
    rounds = counted(monkeypatch)
    # All of the bytes that both runs may cost are gone after the first: the second has none left.
    tight = settings.replace({"output": settings.output.with_name("tight")})
    asked = Asked(asked.over, (), [f"bytes={both / 3:.0f}"], asked.objectives, sets, [1, 2])
    assert search(pushed, tight, asked, catalog) == 1
    assert rounds == [(1, 0), (1, 0)], "one seed of each trial"
    for trial in trials_of(tight.output):
        assert trial["status"] == "pruned"
        assert re.fullmatch(r"after seed 1: bytes is .* at least, above .*", trial["reason"])
