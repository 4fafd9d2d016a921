"""The truth about a target, from the restored parties: for the scorer alone, and the candidates of a challenge."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.data import Examples
from fedplug.api.errors import FedplugError
from fedplug.api.streams import stream
from fedplug_runs.evaluation import matched_test

from fedplug_attacks import ObservedUpdate, Truth
from fedplug_attacks.views.rewind import Moment, Restored
from fedplug_attacks.workshop.attributes import Attributes
from fedplug_attacks.workshop.scorer import are_tokens, pixels

if TYPE_CHECKING:
    from numpy.typing import NDArray


def scale_of(examples: Examples, std: tuple[float, ...]) -> NDArray[np.float32] | None:
    """The public spread of each column of a table, (d,), from the standardisation, or 1; None for images."""
    if examples.inputs.ndim != 2 or examples.inputs.dtype.kind != "f":
        return None
    columns = examples.inputs.shape[1]
    return np.asarray(std if len(std) == columns else [1.0] * columns, np.float32)


def truth_of(examples: Examples, classes: int, std: tuple[float, ...]) -> Truth:
    """The truth about an update of these examples; `std` is the public spread of the columns of a table."""
    return Truth(
        images=pixels(examples),
        labels=examples.labels,
        num_classes=max(classes, int(examples.labels.max(initial=0)) + 1),
        scale=scale_of(examples, std),
        tokens=np.unique(examples.inputs).astype(np.int64) if are_tokens(examples) else None,
        texts=examples.inputs.astype(np.int64) if are_tokens(examples) else None,
    )


class Truths:
    """The private data behind the targets of a run.

    Args:
        rewound: the parties, which have the data.
        repeats: whether training a client again reproduces its update of the run; False if noise is drawn once.
        wanted: whether some metric compares updates; they are then reproduced if no probe made them.
        note: receives messages about updates that could not be reproduced.
        attributes: which examples have the attribute that the recipe requests; None if it requests none.
    """

    def __init__(
        self, rewound: Restored, repeats: bool, wanted: bool, note: Callable[[str], None],
        attributes: Attributes | None = None,
    ) -> None:  # fmt: skip
        self.attributes = attributes
        self.rewound, self.repeats, self.wanted, self.note = rewound, repeats, wanted, note
        self._updates: dict[tuple[int, int], Any] = {}

    def of(self, round: int, target: int, moment: Moment | None, observed: ObservedUpdate | None) -> Truth:
        """The truth about a target in a round (0-based).

        Args:
            round, target: of the update.
            moment: the moment of a probe, whose batch and update count; None or without either: all of the target's
                data.
            observed: the adversary's view of the update.
        """
        data = self.rewound.client(target).data
        examples = moment.batches[target] if moment and target in moment.batches else data.train
        update = moment.updates.get(target) if moment else None
        if update is None and self.wanted and observed is not None and len(observed.contributors) == 1:
            update = self._made_again(round, target)
        return dataclasses.replace(
            truth_of(examples, len(data.classes), data.std),
            regions=examples.regions, region_names=tuple(data.region_names), update=update, observed=observed,
            attribute=None if self.attributes is None else self.attributes.of(examples),
            public_share=None if self.attributes is None else self.attributes.public_share,
        )  # fmt: skip

    def challenge(self, target: int, seed: int, size: int, batch: Examples | None = None) -> tuple[Examples, Any]:
        """Candidates, half the target's own, half test examples of the same class mix, and which are its own.

        Its own are those of the probed batch, or else any that it trains on.

        The stream that draws and orders them also depends on the target's data. The attack knows the seed, so an order
        from the seed alone would reveal the members.

        Args:
            target: the client.
            seed: of the view.
            size: number of candidates, if it has enough.
            batch: of a probe; None: all of its data.
        """
        data = self.rewound.client(target).data
        rng = stream(seed, "challenge", hashlib.sha256(np.ascontiguousarray(data.train.inputs).tobytes()).hexdigest())
        owned = data.train if batch is None else batch
        half = min(size // 2, len(owned))
        mine = owned.take(rng.permutation(len(owned))[:half])
        others = data.shared_test.take(matched_test(mine.labels, data.shared_test.labels, half, rng))
        both = Examples(np.concatenate([mine.inputs, others.inputs]), np.concatenate([mine.labels, others.labels]))
        order = rng.permutation(len(both))
        return both.take(order), (np.arange(len(both)) < len(mine))[order]

    def common(self, target: int, labels: NDArray[np.int64]) -> float:
        """The share of a challenge's test examples, of these labels, that another one of their class mix has too."""
        test = self.rewound.client(target).data.shared_test
        there = np.bincount(test.labels, minlength=int(labels.max(initial=0)) + 1)
        drawn = np.bincount(labels, minlength=len(there))
        return float((drawn**2 / np.maximum(there, 1)).sum() / max(1, len(labels)))

    def _made_again(self, round: int, target: int) -> Any:
        """The update of a client before any protection, trained once for all attacks; None if that fails."""
        if not self.repeats:
            return None
        if (round, target) not in self._updates:
            if any(when != round for when, _ in self._updates):
                self._updates.clear()  # rounds are attacked one after the other
            try:
                self._updates[round, target] = self.rewound.update(round, target)
            except FedplugError as error:
                self.note(f"the update of client {target} cannot be reproduced: {error}")
                self._updates[round, target] = None
        return self._updates[round, target]
