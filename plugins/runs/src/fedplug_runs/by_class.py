"""Figures of classification that rare classes cannot hide behind: recall by class, balanced accuracy, AUC, the guess.

A model that always says the commonest class has an accuracy that looks good where the others are rare. So a run knows
what that guess gets, and each client counts by class. Counts of disjoint shares of the common test set add up. AUC is
the share of pairs, one example of the class and one of another class, whose scores are in the right order. Pairs within
one client's share count, so that no scores travel.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.data import ACCURACY, Figure
from fedplug.api.records import Count, Record

if TYPE_CHECKING:
    from fedplug.api.data import Examples
    from fedplug.api.roles import Task
    from fedplug.recipe.recipe import Recipe
    from fedplug.round.world import World
    from numpy.typing import NDArray

BALANCED = Figure("balanced accuracy", better="higher")
"""Mean recall of the classes that occur."""
AUC = Figure("AUC", better="higher")
"""Area under the ROC curve; of several classes the mean of each against the rest."""
OWN_MODELS = ", own models"
"""Behind the name of a figure that all clients' own models have together, in a row."""
WITH_ACCURACY = frozenset(f"{figure.name}{whose}" for figure in (BALANCED, AUC) for whose in ("", OWN_MODELS))
"""Figures that say hardly more than accuracy, where that leads: narrow tables are without them."""
_MOST_CLASSES, _MOST_RANKED = 1000, 200
_FEW = 0.1
_PAIRED = 64


def figure_named(name: str, figures: Iterable[Figure]) -> Figure | None:
    """The declaration of a figure of a row, of the clients' own models too; None where there is none."""
    return next((figure for figure in figures if figure.name == name.removesuffix(OWN_MODELS)), None)


class ByClass(Record):
    """Counts of an evaluation by class, in the order of the classes; those of several clients add up.

    Attributes:
        are: examples that are of the class.
        right: those of them that the model calls so.
        above: pairs of an example of the class and one of another class whose scores are in the right order, twice; a
            pair with equal scores counts half. Empty where there are too many classes, or scores that are no numbers.
    """

    are: list[Count]
    right: list[Count]
    above: list[Count] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        """Raises ValueError where these are no counts of one set of examples."""
        if len(self.are) != len(self.right) or len(self.above) not in (0, len(self.are)):
            lengths = f"{len(self.are)}, {len(self.right)} and {len(self.above)}"
            raise ValueError(f"by_class counts {lengths} classes, and must count the same classes each time")
        total = sum(self.are)
        if total >= 2**31 or any(right > are for right, are in zip(self.right, self.are, strict=True)):
            raise ValueError("by_class has more right answers than examples of a class, or more than anybody counts")
        if any(above > 2 * are * (total - are) for above, are in zip(self.above, self.are, strict=False)):
            raise ValueError("by_class has more pairs in the right order than there are pairs")


def counted(outputs: NDArray[Any] | None, answers: NDArray[Any], classes: int) -> ByClass | None:
    """The counts of a model on examples; None where these have no one class each, or the model has not told enough.

    Args:
        outputs: (n, classes or more), a larger number for a class that the model holds more likely.
        answers: (n,), the classes.
        classes: how many there are.
    """
    if outputs is None or answers.ndim != 1 or outputs.ndim != 2 or len(outputs) != len(answers):
        return None
    if not 2 <= classes <= min(outputs.shape[1], _MOST_CLASSES):
        return None
    if not len(answers) or answers.min() < 0 or answers.max() >= classes:
        return None
    right = answers[outputs.argmax(1) == answers]
    are = np.bincount(answers, minlength=classes)
    above = _above(outputs, answers, are)[:classes] if outputs.shape[1] <= _MOST_RANKED else []
    return ByClass(are.tolist(), np.bincount(right, minlength=classes).tolist(), above)


def _above(outputs: NDArray[Any], answers: NDArray[Any], are: NDArray[np.int64]) -> list[int]:
    """Twice the Mann-Whitney statistic of each class against the rest: pair by pair of a client's few examples, where
    calls cost more than comparisons, and of many from ranks with ties in the middle.
    """
    if not np.isfinite(outputs).all():
        return []
    scores = _likelihoods(outputs)
    n, classes = scores.shape
    if n <= _PAIRED:
        theirs = scores[:, answers]  # the score of each example (rows) for the class of each (columns)
        mine = theirs.diagonal()
        pairs = ((mine > theirs).astype(np.int64) + (mine >= theirs)) * (answers[:, None] != answers)
        found: list[int] = np.bincount(answers, weights=pairs.sum(0), minlength=len(are)).astype(np.int64).tolist()
        return found
    order = np.argsort(scores, axis=0, kind="stable")
    ordered = np.take_along_axis(scores, order, 0)
    first, last = np.zeros((n, classes), np.int64), np.full((n, classes), n - 1)
    tied = ordered[1:] == ordered[:-1]
    place = np.arange(n)[:, None]
    # The first and the last place of each run of equal scores, so that ranks are exact halves.
    first[1:] = np.maximum.accumulate(np.where(tied, 0, place[1:]), axis=0)
    last[:-1] = np.minimum.accumulate(np.where(tied, n - 1, place[:-1])[::-1], axis=0)[::-1]
    ranks = np.empty((n, classes), np.int64)
    np.put_along_axis(ranks, order, first + last + 2, 0)  # twice the rank, counted from 1
    own = np.bincount(answers, weights=ranks[np.arange(n), answers], minlength=len(are)).astype(np.int64)
    return [max(0, int(total)) for total in own - are * (are + 1)]


def _likelihoods(outputs: NDArray[Any]) -> NDArray[np.float64]:
    """Of each class by softmax; of two classes the difference, which has the same order and never saturates."""
    scores: NDArray[np.float64] = outputs.astype(np.float64)
    if scores.shape[1] == 2:
        difference = scores[:, 1] - scores[:, 0]
        return np.stack([-difference, difference], 1)
    scores = np.exp(scores - scores.max(1, keepdims=True))
    scores /= scores.sum(1, keepdims=True)
    return scores


def recalls_of(counts: Sequence[ByClass]) -> list[float | None]:
    """Of each class the share of its examples that the model finds; None where none is of it."""
    are, right = (np.sum([getattr(each, name) for each in counts], axis=0) for name in ("are", "right"))
    return [found / there if there else None for found, there in zip(right.tolist(), are.tolist(), strict=True)]


def balanced(counts: Sequence[ByClass]) -> float | None:
    """Mean recall of the classes that occur."""
    known = [recall for recall in recalls_of(counts) if recall is not None] if counts else []
    return math.fsum(known) / len(known) if known else None


def auc(counts: Sequence[ByClass]) -> float | None:
    """Mean over the classes of the share of pairs in the right order; None where there are too few pairs.

    A class counts where its pairs within clients' shares are at least half as many as in shares with an equal mix.
    """
    if not counts or not all(each.above for each in counts):
        return None
    are, above = (np.array([getattr(each, name) for each in counts], np.float64) for name in ("are", "above"))
    sizes = are.sum(1, keepdims=True)
    pairs, total = (are * (sizes - are)).sum(0), are.sum(0)
    enough = (pairs > 0) & (2 * len(counts) * pairs >= total * (total.sum() - total))
    return float(np.mean(above.sum(0)[enough] / (2 * pairs[enough]))) if enough.any() else None


def figures_by_class(counts: Sequence[ByClass]) -> dict[str, float]:
    """Balanced accuracy and AUC, as far as they can be made, of counts on disjoint shares of the examples."""
    found = {BALANCED.name: balanced(counts), AUC.name: auc(counts)}
    return {name: value for name, value in found.items() if value is not None}


def rarest(answers: NDArray[Any]) -> tuple[int, float] | None:
    """The rarest class among answers, and its share, if it is so rare that accuracy hides it; else None.

    Of up to five classes it is below a tenth. Of more it is also below half of what each would have if all were equally
    common, in a set with ten examples a class or more: of ten classes one always is at a tenth or below.
    """
    if answers.dtype.kind not in "iu" or not answers.size or answers.min() < 0:
        return None
    counts = np.bincount(answers.reshape(-1))
    there = np.flatnonzero(counts)
    label = int(there[counts[there].argmin()])
    share = float(counts[label] / counts.sum())
    bound = _FEW if len(there) <= 1 / (2 * _FEW) else 0.5 / len(there) if counts.sum() >= 10 * len(there) else 0.0
    return (label, share) if len(there) > 1 and share < bound else None


def in_order_of_classes(examples: Examples) -> bool:
    """Whether examples come class by class, so that a slice of them is of few classes."""
    labels = examples.labels
    return len(labels) > 1 and bool((labels[1:] >= labels[:-1]).all() and labels[0] != labels[-1])


@dataclasses.dataclass(frozen=True)
class Guess:
    """What is known of a run's figures before its first round, from the common test set, which is public.

    Attributes:
        by_class: whether the model answers with one class an example.
        figures: by name, of the best guess that looks at no input.
        common: the class that it names; empty where it names none.
        classes: names of the classes.
        counts: of the classes in the common test set, in their order; empty with data at sites.
        leads: balanced accuracy, where a class is rare; None: what the task says.
        why: of that, a sentence.
    """

    by_class: bool = False
    figures: Mapping[str, float] = dataclasses.field(default_factory=dict)
    common: str = ""
    classes: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()
    leads: Figure | None = None
    why: str = ""


def is_by_class(task: Task | None) -> bool:
    """Whether a recipe's models are judged by class too: they say one class an example, as far as its task tells."""
    return task is None or (task.descends == "cross_entropy" and task.judged_by[0].name == ACCURACY.name)


def guess_of(recipe: Recipe, world: World, task: Task | None) -> Guess:
    """What a guess gets on the common test set.

    With data at sites there is none. What chance gives is known all the same: of K classes 1/K, and an AUC of a half.

    Args:
        recipe: of the run.
        world: its data.
        task: of the recipe; None: one class an example, or a pixel.
    """
    classes, one = tuple(world.classes), is_by_class(task)
    if world.data is None:
        agreed = recipe.data.agreed
        if not one or agreed is None or agreed.holds.per != "example":
            return Guess()
        return Guess(True, {BALANCED.name: 1 / len(classes), AUC.name: 0.5}, classes=classes)
    answers = world.data.test.answers
    if not answers.size:
        return Guess()
    if not one or answers.dtype.kind not in "iu":
        return Guess(figures=_guessed(task, answers))
    counts = np.bincount(answers.reshape(-1), minlength=len(classes))
    most = int(counts.argmax())
    common = classes[most] if most < len(classes) else str(most)
    figures = {ACCURACY.name: float(counts[most] / counts.sum())}
    if answers.ndim != 1:
        return Guess(figures={**figures, **_guessed(task, answers)}, common=common)
    figures |= {BALANCED.name: 1 / int(np.count_nonzero(counts)), AUC.name: 0.5}
    if (rare := rarest(answers)) is None:
        return Guess(True, figures, common, classes, tuple(counts.tolist()))
    label, share = rare
    name = classes[label] if label < len(classes) else str(label)
    why = (
        f"class {name} is {share:.1%} of the test examples ({counts[label]} of {counts.sum()}), so balanced accuracy "
        f"leads: the commonest class alone, {common}, gets an accuracy of {figures[ACCURACY.name]:.3f}. To have rare "
        "classes count more in training, class_weights in train gives each class a weight"
    )
    return Guess(True, figures, common, classes, tuple(counts.tolist()), BALANCED, why)


def _guessed(task: Task | None, answers: NDArray[Any]) -> dict[str, float]:
    return {name: float(value) for name, value in task.guesses(answers).items()} if task is not None else {}
