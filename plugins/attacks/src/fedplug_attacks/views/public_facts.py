"""The public facts about clients' values: clips, noise, scale and grid, and the way updates follow from data.

All facts come from the components' declarations, folded over the list of links (`fedplug.api.links`), and from the
trainer's declaration. Nothing is guessed from options: a fact that is not declared is unknown.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np
from fedplug.api.links import settled
from fedplug.api.operations import Noise, Scramble
from fedplug.mechanisms.rotation import rotate
from fedplug_ledger.public_sizes import sized_in_public

from fedplug_attacks import Meaning, Seen
from fedplug_attacks.api.observation import Clipped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedplug.api.blocks import Layout
    from fedplug.api.facts import Facts
    from fedplug.api.known import Clipped as Bounded
    from fedplug.api.known import Known as Folded
    from fedplug.api.links import Step
    from fedplug.api.parties import Server
    from fedplug.api.roles import Learns
    from numpy.typing import NDArray


def steps_of(zone: str, facts: Facts) -> list[Step] | None:
    """The links of a zone; None if they follow from what was published, and this adversary has not heard it."""
    try:
        return list(facts.steps(zone))
    except Exception:  # a plugin's operations may fail in any way without what it has published
        return None


UNSAID = "what its trainer does not say"
"""`Meaning.loss` of a trainer that does not declare how its updates follow from data."""


@dataclasses.dataclass(frozen=True, eq=False)
class Sent:
    """The public facts of one zone as clients send it.

    Attributes:
        factor: the factor of the client's values.
        grid: they are multiples of it, in units of the update; 0 unknown.
        clips: the norms that they were scaled down to.
        closed: the state of values that stay sealed.
        known: whether every link declares its effect; else neither noise nor clips are known.
        rotated: the source of the signs of each rotation of the values, in order.
    """

    factor: float = 1.0
    grid: float = 0.0
    clips: tuple[Bounded, ...] = ()
    closed: Seen = Seen.ENCRYPTED
    known: bool = True
    rotated: tuple[tuple[str, str], ...] = ()
    _variances: tuple[float | tuple[float, ...], ...] = ()

    @classmethod
    def of(
        cls, zone: str, facts: Facts, trainer: Learns | None, client_id: int | None = None, server: Server | None = None
    ) -> Sent:
        """The facts of a zone in a round.

        Args:
            zone: a zone that is sent.
            facts: the round.
            trainer: its declaration.
            client_id: who sends it; None: any client.
            server: in place of one, with the observer's copy of the model and the vector of the round, for noise whose
                size follows from public scores; None: that size is unknown.
        """
        try:
            found = _uploaded(facts.steps(zone), facts, client_id, server)
        except Exception:  # see `steps_of`; so may sizes that differ by client
            return cls(known=False)
        known, size = not found.freed and found.factor != 0, abs(found.factor) or 1.0
        own = _trainer_variance(trainer, bool(found.clips))
        return cls(
            factor=found.factor or 1.0, grid=0.0 if found.rotated else found.grid / size,
            rotated=tuple((name, zone) for name in found.rotated), clips=found.clips if known else (),
            closed=_closed(found), known=known, _variances=(own, *(_variance(found, i, size) for i in range(
                len(found.scales)))),
        )  # fmt: skip

    def sigma(self, layout: Layout) -> NDArray[np.float32]:
        """Standard deviation of the noise on each scalar of the model, (P,), in units of the update; NaN unknown."""
        total = np.zeros(layout.size)
        for variance in self._variances:
            total += layout.per_scalar(np.array(variance)) if isinstance(variance, tuple) else variance
        found: NDArray[np.float32] = np.sqrt(total if self.known else np.full(layout.size, math.nan)).astype(np.float32)
        return found

    def turned_back(self, values: NDArray[np.float32], facts: Facts) -> NDArray[np.float32]:
        """Values before the rotations, whose signs are public."""
        turned = values.astype(np.float64)
        for name, zone in reversed(self.rotated):
            rotate(turned, facts.public_rng("rotation", name, zone), back=True)
        return turned.astype(np.float32) if self.rotated else values

    def clipped(self, layout: Layout, where: NDArray[np.int64], values: NDArray[np.float32]) -> list[Clipped]:
        """The clips that may have acted on values; none if the values are shorter than the norm.

        Args:
            layout: of the model.
            where: positions of the values.
            values: all values of the zone from one client, in units of the update.
        """
        found = []
        for clip in self.clips:
            bound = clip.bound
            order = math.inf if bound.per == "scalar" else bound.order
            own = Clipped(bound.norm, order, where, clip.noised).scaled(1 / abs(clip.factor))
            norms = own.norm
            if not clip.noised:  # only clear values show their norm
                norms = _that_acted(norms, order, bound.per == "layer", layout, where, values)
            elif bound.per == "layer" and not isinstance(norms, tuple):
                norms = (norms,) * len(layout.layers)
            found.append(dataclasses.replace(own, norm=norms))
        return [clip for clip in found if math.isfinite(clip.least)]


def _uploaded(steps: Sequence[Step], facts: Facts, client_id: int | None, server: Server | None) -> Folded:
    """What is known of a client's values behind its last link, with every size that an observer can work out."""
    found = steps[0].before
    for step in (each for each in steps if each.link.hook == "protect"):
        found = dataclasses.replace(found, link=step.link.name)
        for operation in (step if client_id is None else step.of(client_id, facts)).operations:
            if isinstance(operation, Noise) and operation.size is not None and server is not None:
                sized = sized_in_public(operation, found, server, facts)
                operation = operation if sized is None else settled(sized, found, facts)
            found = found.after(operation)
    return found


def _that_acted(
    norm: float | tuple[float, ...], order: float, per_layer: bool, layout: Layout, where: NDArray[np.int64],
    values: NDArray[np.float32],
) -> float | tuple[float, ...]:  # fmt: skip
    """The norm of a clip, infinite if the values are shorter; one for each layer if the clip has one norm a layer."""
    size = np.abs(values.astype(np.float64))

    def acted(length: float, most: float) -> float:
        # A clip ends a little below its norm, and encrypted values are rounded too.
        return most if length >= 0.99 * most else math.inf

    def length(part: NDArray[np.float64]) -> float:
        return float(np.linalg.norm(part, order)) if len(part) else 0.0

    if not per_layer:
        most = max(norm, default=math.inf) if isinstance(norm, tuple) else norm
        return acted(length(size), most)
    norms = norm if isinstance(norm, tuple) else (norm,) * len(layout.layers)
    layer = layout.per_scalar(np.arange(len(norms)))[where]
    return tuple(acted(length(size[layer == number]), most) for number, most in enumerate(norms))


def _closed(found: Folded) -> Seen:
    """The state of values under these seals, for an adversary without a key."""
    unproved = isinstance(found.closed, Scramble) and found.closed.hides != "values"
    return Seen.SCRAMBLED if unproved else Seen.ENCRYPTED


def _variance(found: Folded, number: int, size: float) -> float | tuple[float, ...]:
    """Variance of one noise, in units of the update; NaN if unknown."""
    scale = found.scales[number]
    # The variance of Laplace noise is 2 b^2.
    times = (2.0 if found.releases[number].mechanism == "laplace" else 1.0) / size**2
    if scale is None:
        return 0.0 if found.releases[number].noise_multiplier == 0 else math.nan
    return tuple(times * s * s for s in scale) if isinstance(scale, tuple) else times * scale * scale


def _trainer_variance(trainer: Learns | None, clipped: bool) -> float:
    """Variance of the noise that the trainer adds to an update; a clip reduces it by an unknown factor.

    Without a trainer's declaration the update counts as clear: no attack treats it as a gradient.
    """
    if trainer is None:
        return 0.0
    return math.nan if trainer.noise is None or (trainer.noise and clipped) else trainer.noise**2


def meaning(learns: Learns | None, examples: int | None, batch_size: int | None) -> Meaning:
    """The meaning of an update's numbers, from the trainer's declaration.

    Args:
        learns: the trainer's declaration for the round; None: it has none.
        examples: how many the target has, where a message told; None if not.
        batch_size: of a probe, which makes one step.
    """
    if learns is None:
        return Meaning(examples=batch_size or examples, loss=UNSAID)
    epochs, size, steps = learns.epochs, learns.batch_size, None
    if batch_size is not None:
        steps, epochs, examples, size = 1, 1, batch_size, batch_size
    elif learns.one_step and examples:
        steps, epochs, examples, size = 1, 1, min(size or examples, examples), min(size or examples, examples)
    elif epochs and examples:
        size = min(size or examples, examples)
        steps = epochs * math.ceil(examples / size)
    return Meaning(
        lr=learns.lr, steps=steps, batch_size=size, examples=examples, epochs=epochs, loss=learns.descends,
        class_weights=learns.class_weights, training_mode=learns.training_mode, momentum=learns.momentum,
        weight_decay=learns.weight_decay,
    )  # fmt: skip


def of_all_examples(learns: Learns | None, examples: int | None) -> bool:
    """Whether every update is certainly made from all examples of a client; False if that is not declared.

    Args:
        learns: the trainer's declaration for the round; None: it has none.
        examples: how many the client has, where a message told; None if not.
    """
    if learns is None:
        return False
    if learns.one_step:
        return learns.batch_size is None or (examples is not None and examples <= learns.batch_size)
    return bool(learns.epochs)
