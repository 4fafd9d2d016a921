"""Results that cannot be right say so: what is lost in sums, what does not move, what a guess gets too."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import fedplug
import pytest
from fedplug.api.events import Events, Note
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug_runs.by_class import BALANCED, Guess
from fedplug_runs.doubts import Doubts
from fedplug_runs.events import RowMade, RowsRestored
from fedplug_runs.rows import Row
from row_toys import a_row

SEALED = {
    "name": "sealed", "seed": 1, "rounds": 3, "min_clients": 3,
    "data": {"use": "std.digits", "train_size": 200, "test_size": 60, "clients": 4, "partition": {"use": "std.iid"}},
    "model": {"use": "std.logistic"}, "train": {"use": "std.sgd", "lr": 0.1},
    "negotiate_mask": {"use": "std.single_zone", "zone": "encrypted"}, "aggregate": {"use": "std.mean"},
}  # fmt: skip


def sealed_by(**use: Any) -> dict[str, Any]:
    chain = {"encrypted": [use]}
    return {**SEALED, "protect": chain, "postprocess": {"encrypted": [use["use"]]}}


def doubts_of(**use: Any) -> tuple[Doubts, Events, list[str]]:
    recipe = Recipe.from_plain(sealed_by(**use))
    events, notes = Events(), list[str]()
    events.subscribe(Note, lambda event: notes.append(event.text))
    return Doubts(recipe, Composition(recipe), events, Guess()), events, notes


def heard(events: Events, row: Row) -> None:
    events.tell(RowMade(row.round - 1, row, [], 0.0))


@pytest.mark.parametrize(
    ("use", "said"),
    [
        ({"use": "std.bfv", "range": 1e9}, ("100% of the values", "lower its range (1e+09)", "raise bits")),
        ({"use": "std.ckks", "range": 1e-4}, ("of the values", "beyond its range", "raise its range (0.0001)")),
        ({"use": "secagg.plus", "range": 1e12}, ("100% of the values", "lower its range (1e+12)", "raise bits")),
    ],
)
def test_a_run_that_loses_its_updates_says_where_how_much_and_what_to_change(
    use: dict[str, Any], said: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = fedplug.run(sealed_by(**use), output=tmp_path, device="cpu")
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note: round 1: zone encrypted")]
    (lost,) = notes
    assert all(word in lost for word in (f"component {use['use']}", *said))
    assert run.summary.doubts[0] == lost.removeprefix("note: ")
    if len({row.accuracy for row in run.metrics}) == 1:
        assert "the model has learnt nothing since round 1. Likely causes: values that are lost since round 1" in (
            run.summary.doubts[1]
        )
    sound = fedplug.run(sealed_by(use=use["use"], range=8.0), output=tmp_path, device="cpu", quiet=True)
    assert not any(key.endswith("rounded_away") for row in sound.metrics for key in row.log), "nothing is said of these"
    assert sound.summary.doubts == []


def test_each_component_is_noted_once_and_not_again_when_a_run_goes_on() -> None:
    _, events, notes = doubts_of(use="std.bfv", range=0.5)
    heard(events, a_row(1, log={"std.bfv.saturated": 0.049, "other.saturated": 1.0, "loss": 3.0}))
    assert notes == []
    for round in (2, 3):
        heard(events, a_row(round, log={"std.bfv.saturated": 0.06}))
    assert [note.partition(",")[0] for note in notes] == ["round 2: zone encrypted"]
    assert "6% of the values" in notes[0]
    assert "Part of the update is lost: raise its range (0.5)" in notes[0]
    _, events, notes = doubts_of(use="std.bfv", range=0.5)
    events.tell(RowsRestored([a_row(1, log={"std.bfv.saturated": 0.06})]))
    heard(events, a_row(2, log={"std.bfv.saturated": 0.06}))
    assert notes == []


def rows_of(accuracies: list[float], **changes: Any) -> list[Row]:
    return [dataclasses.replace(a_row(k), accuracy=value, **changes) for k, value in enumerate(accuracies, 1)]


def test_an_accuracy_that_does_not_move_has_its_likely_causes() -> None:
    doubts, _, _ = doubts_of(use="std.bfv")
    (said,) = doubts.of_results(rows_of([0.25] * 4, loss=2.0))
    assert said.startswith("accuracy is 0.250 after each of 4 rounds: the model has learnt nothing since round 1.")
    assert "lr is 0.1 in train" in said
    (said,) = doubts.of_results(rows_of([0.25] * 3, loss=2.0, skipped="too few clients"))
    assert "3 of 3 rounds were skipped (too few clients)" in said
    for fine in ([0.25, 0.25], [1.0] * 4, [0.25, 0.25, 0.26], []):
        assert doubts.of_results(rows_of(fine, loss=2.0)) == []


def test_a_model_that_is_no_better_than_a_guess_is_named_with_the_classes_that_it_misses() -> None:
    recipe = Recipe.from_plain(sealed_by(use="std.bfv"))
    guess = Guess(True, {}, "well", ("well", "ill"), (98, 2), BALANCED)
    doubts = Doubts(recipe, Composition(recipe), Events(), guess)
    gets = {"accuracy": 0.98, "balanced accuracy": 0.5, "AUC": 0.5}
    figures = {"balanced accuracy": 0.5, "AUC": 0.8}
    rows = rows_of([0.97, 0.98], leads=BALANCED, guess=gets, figures=figures, recalls={"well": 1.0, "ill": 0.0})
    (said,) = doubts.of_results(rows)
    assert said == (
        "the model is no better than a guess: balanced accuracy 0.500, a guess 0.500, although accuracy is 0.980; it "
        "finds no example of ill; its scores do tell classes apart (AUC 0.800). To have rare classes count more, write "
        "class_weights: [1, 49] in train"
    )
    better = rows_of([0.97], leads=BALANCED, guess=gets, figures={"balanced accuracy": 0.6}, recalls={"ill": 0.2})
    assert doubts.of_results(better) == []
    alone = {"accuracy": 1.0, "balanced accuracy": 1.0}
    (said,) = doubts.of_results(rows_of([1.0], guess=alone, figures={"balanced accuracy": 1.0}, recalls={"well": 1.0}))
    assert said.startswith("all test examples are of one class")
