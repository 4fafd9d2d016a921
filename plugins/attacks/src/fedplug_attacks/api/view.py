"""What one adversary knows of one target, and who attacks with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedplug.api.parties import Party
from fedplug.wire.record import SERVER, Message

if TYPE_CHECKING:
    import numpy as np
    from fedplug.api.blocks import Block
    from fedplug.api.data import Examples
    from fedplug.api.roles import Learns
    from numpy.typing import NDArray

    from fedplug_attacks.api.observation import Observation, ObservedUpdate
    from fedplug_attacks.api.told import Told


@dataclasses.dataclass(frozen=True, eq=False)
class Attribute:
    """An attribute of examples that is asked of a target.

    Attributes:
        name: of it, such as `sex=female` or `age above 50`.
        public: bool (n,), which public examples have it; without any public ones empty.
        column: of the rows of the table, where it follows from one that the model is given; else None.
        above: a row has it where that column is above this.
    """

    name: str
    public: NDArray[np.bool_]
    column: int | None = None
    above: float = 0.0


@dataclasses.dataclass(frozen=True, eq=False)
class View:
    """Everything one adversary knows about one target: built from recorded messages and the keys it holds.

    Nothing in it leads to a party or to anybody's data, but for the candidates of a membership challenge, which are
    the question of that game, not its answer.

    Attributes:
        adversary: `server`, `eavesdropper`, `client`, `server+client`, `key_server`, `released`, ...
        messages: those it could read, in order.
        target: the client that is attacked; None where everybody is.
        round: 0-based, in which the update was made.
        update: what it saw of the target's update; None if nothing.
        vector: float32 (P,), the global model the update was made from, as far as it knows it; else None.
        personal: float32 (P,), the target's own model, where the adversary has it; else None.
        initial: float32 (P,), the public model that the first round started from.
        learns: for each round before this one, what the trainer says of itself, as the recipe makes it public; shorter
            where it says nothing of some.
        model: the model of the recipe (a `TorchModel` of the adversary's own), holding `vector`; None if unknown.
        num_classes: outputs of the model.
        shape: (C, H, W) of one example.
        mean, std: per channel; inputs in [0, 1] are standardised with them.
        segmentation: True where the model gives something else than one class an example, such as one a pixel.
        task: what the recipe calls its task; empty where it names none.
        attribute: that the recipe asks of the target (`attack: {truth: ...}`); None where it asks none.
        candidates: of a membership challenge: examples, of which some were the target's; None without one.
        heard: what clients sent besides their updates, all of them, as far as it was read: see `told` and `told_by`.
        observations: every round of the target that the adversary saw up to the attacked one, which is the last of them
            if it saw that; ascending. Each is read when it is asked for, and is the attack's own. Empty where the
            attack's `Needs.rounds` does not ask for them.
        seed: for the attack's own randomness; another one for each target.
    """

    adversary: str
    messages: tuple[Message, ...] = ()
    target: int | None = None
    round: int = 0
    update: ObservedUpdate | None = None
    vector: NDArray[np.float32] | None = None
    personal: NDArray[np.float32] | None = None
    initial: NDArray[np.float32] | None = None
    learns: tuple[Learns, ...] = ()
    model: Any = None
    num_classes: int = 0
    shape: tuple[int, ...] = ()
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    segmentation: bool = False
    task: str = ""
    attribute: Attribute | None = None
    candidates: Examples | None = None
    heard: tuple[Told, ...] = ()
    observations: Sequence[Observation] = ()
    seed: int = 0

    @property
    def told(self) -> tuple[Told, ...]:
        """What the target sent in negotiations, and what its uploads show besides values; oldest first."""
        return () if self.target is None else self.told_by(self.target)

    def told_by(self, client_id: int) -> tuple[Told, ...]:
        """The same of any client, the adversary's own among them."""
        return tuple(told for told in self.heard if told.client_id == client_id)

    def uploads(self, round: int | None = None) -> Iterator[tuple[int, int, Mapping[str, Block]]]:
        """Yields (round, client_id, {zone: Block}) for each protected update this adversary saw."""
        for message in self.messages:
            if message.phase == "upload" and message.receiver == SERVER and round in (None, message.round):
                answered = message.answered()
                if answered is not None and answered.blocks is not None:
                    yield message.round, int(message.sender.partition(":")[2]), answered.blocks


@dataclasses.dataclass(eq=False)
class Attacker(Party):
    """Who runs an attack: outside every party of the run, with a view and the public facts.

    Attributes:
        device: torch device to compute on.
        progress: told `(done, total, loss)` as an attack goes on; the loss is its objective, or None.
    """

    device: str = "cpu"
    progress: Callable[[int, int, float | None], None] = lambda done, total, loss: None
