"""Results that cannot be right, or are worth nothing, in sentences that say what to change.

A sum whose values were nearly all lost opens like any other, and the run ends well. So the run says it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from fedplug.api.data import ACCURACY
from fedplug.api.events import Events
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe

from fedplug_runs import units
from fedplug_runs.by_class import AUC, BALANCED, Guess
from fedplug_runs.events import RowMade, RowsRestored
from fedplug_runs.rows import Row

SATURATED, ROUNDED_AWAY = ".saturated", ".rounded_away"
"""Behind the name of a component in the log of a row."""
_MUCH, _MOST = 0.05, 0.5
_FEW = 0.05
_FEWEST_ROUNDS = 3
_FINER = ("bits", "grid_bits", "fraction_bits", "grid")
_RANKS = 0.6
_FEW_CLASSES = 5
_LEARNS = 0.01


class Doubts:
    """Hears the rows of a run, and notes once of each component that it loses values; `of_results` has the rest.

    The shares are those that clients report with their other numbers for the metrics.

    Args:
        recipe, composition, events: of the run.
        guess: what is known of the common test set.
    """

    def __init__(self, recipe: Recipe, composition: Composition, events: Events, guess: Guess) -> None:
        self._recipe, self._composition, self._events, self._guess = recipe, composition, events, guess
        self._said = set[str]()
        events.subscribe(RowMade, lambda event: self._hear(event.row))
        events.subscribe(RowsRestored, self._restore)

    def _restore(self, event: RowsRestored) -> None:
        """What was noted before the run was cut off is not noted again."""
        self._said |= {key for row in event.rows for key, share in row.log.items() if self._loses(key, share)}

    def _hear(self, row: Row) -> None:
        for key, share in row.log.items():
            if key not in self._said and (said := self._loses(key, share)):
                self._said.add(key)
                self._events.note(f"round {row.round}: {said}")

    def of_losses(self, rows: Sequence[Row]) -> list[str]:
        """What was noted of components that lose values, for those who have heard no notes."""
        found = {key: (row, share) for row in reversed(rows) for key, share in row.log.items()
                 if self._loses(key, share)}  # fmt: skip
        return [f"round {row.round}: {self._loses(key, share)}" for key, (row, share) in found.items()]

    def _loses(self, key: str, share: float) -> str:
        """What a component's log says of lost values, with the option that keeps them; empty where it keeps them."""
        name, dot, word = key.rpartition(".")
        if name not in self._composition.components:
            return ""
        place = self._place(name)
        options = type(self._composition.components[name].options).model_fields
        if dot + word == SATURATED and share >= _MUCH:
            width = self._width(name)
            remedy = f"raise its range{width}" if "range" in options else "give it a larger range"
            much = "Most of the update is lost" if share >= _MOST else "Part of the update is lost"
            return (
                f"{place}: {share:.0%} of the values that clients sealed lie beyond its range and are cut off there. "
                f"{much}: {remedy}, or lower lr in train or clip the update"
            )
        if dot + word == ROUNDED_AWAY:
            finer = [f"raise {name}" for name in _FINER[:3] if name in options]
            finer += ["lower grid"] if "grid" in options else []
            coarse = [f"lower its range{self._width(name)}, whose share a step is"] if "range" in options else []
            remedy = ", or ".join([*coarse, *finer]) or "give it a finer step"
            return (
                f"{place}: {share:.0%} of the values that clients sealed are smaller than half a step and became 0. "
                f"The update is lost: {remedy}"
            )
        return ""

    def _place(self, name: str) -> str:
        """The component, its use, and the zones that it closes."""
        use = next(use for use in self._recipe.uses if use.name == name)
        zones = [zone for zone, links in self._recipe.protect.items() if any(link.name == name for link in links)]
        where = f"zone {' and '.join(zones)}" if zones else "the update"
        return f"{where}, component {name}" + (f" ({use.use})" if use.use != name else "")

    def _width(self, name: str) -> str:
        value = getattr(self._composition.components[name].options, "range", None)
        return f" ({value:g})" if isinstance(value, float) else ""

    def of_results(self, rows: Sequence[Row]) -> list[str]:
        """What is odd about the results of a run that has ended, a sentence each."""
        return [*self._not_moving(rows)] or [*self._guessing(rows)]

    def _not_moving(self, rows: Sequence[Row]) -> Iterator[str]:
        known = [row.leading for row in rows if row.leading is not None]
        if len(rows) < _FEWEST_ROUNDS or len(known) < len(rows) or len({*known}) > 1 or math.isnan(known[0]):
            return
        leads = rows[0].leads
        if known[0] == 1 and leads in (ACCURACY, BALANCED):  # there is nothing to learn
            return
        first, last = rows[0].loss, rows[-1].loss
        learns = first is not None and last is not None and abs(first - last) > _LEARNS * abs(first)
        if learns and not self._said and rows[-1].no_better:  # it learns to say the commonest class, which is said
            return
        causes = list[str]()
        if self._said:
            first = next(row.round for row in rows if self._said & row.log.keys())
            causes.append(f"values that are lost since round {first}, as noted then")
        if skipped := sum(bool(row.skipped) for row in rows):
            why = next(row.skipped for row in rows if row.skipped)
            causes.append(f"{skipped} of {len(rows)} rounds were skipped ({why})")
        if unopened := next((told for row in rows for told in row.unopened), None):
            causes.append(f"sums that did not open (zone {unopened.zone}: {unopened.reason})")
        if not causes:
            causes = self._usual_causes()
        yield (
            f"{leads.name} is {units.number(known[0])} after each of {len(rows)} rounds: the model has learnt nothing "
            f"since round 1. Likely causes: {'; '.join(causes)}"
        )

    def _usual_causes(self) -> list[str]:
        options = self._recipe.train.options
        steps = f"steps that are too small (lr is {options.lr:g} in train)" if hasattr(options, "lr") else "small steps"
        noise = "noise or a clip that leaves nothing of the updates" if any(self._recipe.protect.values()) else ""
        return [*filter(None, (steps, noise)), "inputs of another scale than the model expects"]

    def _guessing(self, rows: Sequence[Row]) -> Iterator[str]:
        measured = [row for row in rows if row.leading is not None]
        if not measured or not (name := (row := measured[-1]).no_better):
            return
        value, guess = row.judged[name], row.guess[name]
        if guess == 1 and name in (BALANCED.name, ACCURACY.name):
            yield "all test examples are of one class, so that a guess is always right: judge the model on more classes"
            return
        said = f"the model is no better than a guess: {name} {units.number(value)}, a guess {units.number(guess)}"
        if name == BALANCED.name and row.accuracy is not None and row.accuracy > guess + _FEW:
            said += f", although accuracy is {units.number(row.accuracy)}"
        missed = [label for label, recall in row.recalls.items() if recall == 0]
        if missed and len(missed) < len(row.recalls):
            named = ", ".join(missed[:5]) + (f" and {len(missed) - 5} more" if len(missed) > 5 else "")
            said += f"; it finds no example of {named}"
        if (ranks := row.figures.get(AUC.name)) is not None and ranks >= _RANKS:
            said += f"; its scores do tell classes apart (AUC {units.number(ranks)})"
        counts = self._guess.counts or (0, 1)  # at sites nobody knows
        uneven = min(counts) * 2 <= max(counts)
        if uneven and name in (BALANCED.name, ACCURACY.name) and not self._said:
            said += self._weights()
        yield said

    def _weights(self) -> str:
        options = self._recipe.train.options
        if "class_weights" not in type(options).model_fields:
            return ". To have rare classes count more, use a trainer with class_weights, such as std.sgd"
        if getattr(options, "class_weights", None) is not None:
            return ". Give rare classes more weight with class_weights in train"
        counts = self._guess.counts
        example = "class_weights in train gives each class a weight"
        if 0 < len(counts) <= _FEW_CLASSES and all(counts):
            weights = ", ".join(f"{max(counts) / count:.2g}" for count in counts)
            example = f"write class_weights: [{weights}] in train"
        return f". To have rare classes count more, {example}"
