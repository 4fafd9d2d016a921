"""Which classes a client has, from its messages in a negotiation and not from its update."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import fedplug
import numpy as np
from fedplug import Field, Finds, Layout
from fedplug.api.blocks import ENCRYPTED
from fedplug.api.errors import ViewError

from fedplug_attacks import Attacker, AttackReport, Needs, View
from fedplug_attacks._forms import OnView
from fedplug_attacks.api.needs import LAST_BIAS, LAST_WEIGHT, role
from fedplug_attacks.api.told import Told, examples_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

# A class with less than this part of an equal share of the scores counts as absent.
_PRESENT = 0.25

_KINDS = ("vectors", "ballots", "masks")


class Negotiation(OnView):
    """Class presence and counts from ballots, sensitivity vectors and masks (this project).

    Scores of scalars follow from gradients on the client's data. In the last layer, the gradients of row k and bias k
    come mostly from examples of class k, and are small without such examples. So the mean of the sent values over row k
    of the last layer measures the amount of class k: the mean of the numbers of a vector, the share of scalars that a
    ballot names, or the share that lie in a zone for sensitive scalars. Later rounds are about the same data, so rounds
    are averaged. With `compare: clients` a class is compared with the same class of the other clients.

    Positions under a key that the adversary does not hold are read as if they were clear, which gives noise. Counts are
    in proportion to the scores and sum to the client's number of examples if it sent that, else each is 1. Vectors come
    first, then ballots, then masks. A mask is visible even if the ballots were sent under a key.
    """

    finds = Finds(
        needs=Needs(update=False, model=False, loss=None, told=True),
        what=frozenset({"labels"}), headline=("presence_auc", "high"), success=("presence_auc", ">=", 0.9),
    )  # fmt: skip

    class Options(fedplug.Options):
        """The messages to read, and the comparison."""

        read: Literal["any", "vectors", "ballots", "masks"] = Field(
            "any", description="vectors: a number a scalar; ballots: bitmaps and lists of positions; masks: positions "
            "of zones that travel with an upload; any: the first of these that is available"
        )  # fmt: skip
        compare: Literal["rows", "clients"] = Field(
            "rows",
            description="rows: classes of one client with each other; clients: each class also with the same class of "
            "other clients",
        )
        large: Literal["present", "absent"] = Field(
            "present", description="the meaning of a large score; gradients are large where a class is present"
        )

    def describe(self) -> str:
        """A line for the plan."""
        options = self.options
        return f"class presence from negotiation messages ({options.read}, compared by {options.compare})"

    def learn(self, view: View, attacker: Attacker) -> AttackReport:
        """Scores the classes; not applicable if no message is about scalars, or the last layer is not dense."""
        rows = last_rows(attacker.facts.layout, view.num_classes)
        kind, found = self._read(view, attacker.facts.layout, rows)
        assert view.target is not None
        scores = np.mean([values for values, _ in found[view.target]], axis=0)
        presence = scores
        if self.options.compare == "clients":
            others = [np.mean([v for v, _ in told], axis=0) for who, told in found.items() if who != view.target]
            presence = scores - np.mean(others, axis=0) if others else scores
        if self.options.large == "absent":
            presence, scores = -presence, scores.max() - scores
        attacker.progress(1, 1, None)
        placed = float(np.mean([told.placed for _, told in found[view.target]]))
        own = {"placed": placed, "told": float(len(found[view.target])), "kind": float(_KINDS.index(kind))}
        counts = counts_of(scores, examples_of(view.told))
        return AttackReport("finished", own, counts=counts, presence=presence, seed=view.seed)

    def _read(
        self, view: View, layout: Layout, rows: NDArray[np.int64]
    ) -> tuple[str, dict[int, list[tuple[NDArray[np.float64], Told]]]]:
        """For the first kind that the target sent: by client, the mean over each class's row in each reply.

        Raises:
            ViewError: the target sent nothing of the kind.
        """
        wanted = _KINDS if self.options.read == "any" else (self.options.read,)
        found: dict[str, dict[int, list[tuple[NDArray[np.float64], Told]]]] = {kind: {} for kind in _KINDS}
        for told in view.heard:
            scalars = told.scalars(layout)
            if scalars is not None:
                means = np.append(_sensitive(scalars, told), np.nan)[rows]
                found[_kind(scalars, told)].setdefault(told.client_id, []).append((np.nanmean(means, axis=1), told))
        for kind in wanted:
            if view.target in found[kind]:
                return kind, found[kind]
        what = "vector, ballot or mask" if self.options.read == "any" else self.options.read.removesuffix("s")
        raise ViewError(f"the client sent no {what} of single scalars that this adversary can read")


def _kind(scalars: NDArray[np.float64], told: Told) -> str:
    if told.zone:
        return "masks"
    return "ballots" if np.isin(scalars, (0.0, 1.0)).all() else "vectors"


def _sensitive(scalars: NDArray[np.float64], told: Told) -> NDArray[np.float64]:
    """A mask of the client's sensitive scalars: for a zone that is not encrypted, the positions outside of it."""
    return 1 - scalars if told.zone and told.zone != ENCRYPTED else scalars


def last_rows(layout: Layout, num_classes: int) -> NDArray[np.int64]:
    """Positions of each class's row of the last layer and its bias, (K, d + 1); P where there is no bias.

    Raises:
        ViewError: the model does not end in a dense layer with a row a class.
    """
    by_name = {parameter.name: parameter for parameter in layout.parameters}
    weight, bias = role(layout, LAST_WEIGHT, num_classes), role(layout, LAST_BIAS, num_classes)
    if weight is None:
        raise ViewError(f"the model does not end in a fully connected layer with {num_classes} rows")
    inside = by_name[weight].slice
    rows = np.arange(inside.start, inside.stop).reshape(num_classes, -1)
    last = np.full(num_classes, layout.size)
    if bias is not None:
        last = np.arange(by_name[bias].slice.start, by_name[bias].slice.stop)
    return np.column_stack([rows, last]).astype(np.int64)


def counts_of(scores: NDArray[np.float64], examples: int | None) -> NDArray[np.int64]:
    """Whole counts in proportion to the scores, 0 for classes with conspicuously low scores.

    Args:
        scores: (K,).
        examples: of the client; None: not known, and a class that is present counts 1.
    """
    from fedplug_attacks.labels import largest_remainder

    shares = np.maximum(scores, 0.0)
    shares = shares / shares.sum() if shares.sum() > 0 else np.full(len(scores), 1 / len(scores))
    there = shares >= _PRESENT / len(shares)
    return there.astype(np.int64) if examples is None else largest_remainder(np.where(there, shares, 0.0), examples)
