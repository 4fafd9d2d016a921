"""What was true of a target, from the parties taken back: for the scorer alone, and the questions of a challenge."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.data import Examples
from fedplug.api.errors import FedplugError
from fedplug.api.parties import stream
from fedplug.round.world import matched_test

from fedplug_attacks.api.observation import ObservedUpdate
from fedplug_attacks.api.truth import Truth
from fedplug_attacks.views.rewind import Moment, Rewound
from fedplug_attacks.workshop.attributes import Attributes
from fedplug_attacks.workshop.scorer import are_tokens, pixels

if TYPE_CHECKING:
    from numpy.typing import NDArray


def scale_of(examples: Examples, std: tuple[float, ...]) -> NDArray[np.float32] | None:
    """The public spread of each column of a table, (d,): what it is standardised with, or 1; None of images."""
    if examples.inputs.ndim != 2 or examples.inputs.dtype.kind != "f":
        return None
    columns = examples.inputs.shape[1]
    return np.asarray(std if len(std) == columns else [1.0] * columns, np.float32)


class Truths:
    """The private data behind the targets of a run.

    Args:
        rewound: the parties, which have it.
        repeats: whether training a client once more gives its update of the run; not so where noise is drawn once.
        wanted: whether some metric compares updates, which then are made again where no probe made them.
        note: told of what could not be made again.
        attributes: which examples have the attribute that the recipe asks for; None where it asks for none.
    """

    def __init__(
        self, rewound: Rewound, repeats: bool, wanted: bool, note: Callable[[str], None],
        attributes: Attributes | None = None,
    ) -> None:  # fmt: skip
        self.attributes = attributes
        self.rewound, self.repeats, self.wanted, self.note = rewound, repeats, wanted, note
        self._updates: dict[tuple[int, int], Any] = {}

    def of(self, round: int, target: int, moment: Moment | None, observed: ObservedUpdate | None) -> Truth:
        """What is true of a target in a round (0-based).

        Args:
            round, target: of the update.
            moment: of a probe, whose batch and update count; None or without either: all of the target's data.
            observed: what the adversary saw of the update.
        """
        data = self.rewound.client(target).data
        examples = moment.batches[target] if moment and target in moment.batches else data.train
        update = moment.updates.get(target) if moment else None
        if update is None and self.wanted and observed is not None and len(observed.contributors) == 1:
            update = self._made_again(round, target)
        return Truth(
            images=pixels(examples),
            labels=examples.labels,
            num_classes=max(len(data.classes), int(examples.labels.max(initial=0)) + 1),
            regions=examples.regions,
            region_names=tuple(data.region_names),
            update=update,
            observed=observed,
            scale=scale_of(examples, data.std),
            tokens=np.unique(examples.inputs).astype(np.int64) if are_tokens(examples) else None,
            attribute=None if self.attributes is None else self.attributes.of(examples),
            public_share=None if self.attributes is None else self.attributes.public_share,
            texts=examples.inputs.astype(np.int64) if are_tokens(examples) else None,
        )

    def challenge(self, target: int, seed: int, size: int, batch: Examples | None = None) -> tuple[Examples, Any]:
        """Candidates, half of them the target's own and half test examples of the same class mix, and which are its.

        Its own are those of the probed batch, or else any that it trains on.

        Drawn and ordered by a stream of the target's data too: from the seed alone, which the attack is told, the order
        would give the members away.

        Args:
            target: the client.
            seed: of the view.
            size: how many candidates, if it has enough.
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

    def _made_again(self, round: int, target: int) -> Any:
        """The update of a client before any protection, trained once for all attacks; None where that fails."""
        if not self.repeats:
            return None
        if (round, target) not in self._updates:
            if any(when != round for when, _ in self._updates):
                self._updates.clear()  # rounds are attacked one after the other
            try:
                self._updates[round, target] = self.rewound.update(round, target)
            except FedplugError as error:
                self.note(f"the update of client {target} cannot be made again: {error}")
                self._updates[round, target] = None
        return self._updates[round, target]
