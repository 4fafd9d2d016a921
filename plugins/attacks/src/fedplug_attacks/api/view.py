"""One adversary's knowledge of one target, and the context of the attack that uses it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedplug.api.errors import ViewError
from fedplug.api.parties import Party
from fedplug_runs.wire_record import Message

from fedplug_attacks.api.told import Told, uploads_in

if TYPE_CHECKING:
    import numpy as np
    from fedplug.api.blocks import Block
    from fedplug.api.data import Examples
    from fedplug.api.roles import Learns
    from numpy.typing import NDArray

    from fedplug_attacks.api.observation import Observation, ObservedUpdate


@dataclasses.dataclass(frozen=True, eq=False)
class Attribute:
    """An attribute of examples that an attack looks for.

    Attributes:
        name: its name, such as `sex=female` or `age above 50`.
        public: bool (n,), which public examples have it; without any public ones empty.
    """

    name: str
    public: NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, eq=False)
class View:
    """Everything one adversary knows about one target: built from recorded messages and the keys it holds.

    Nothing in it leads to a party or to private data, except the candidates of a membership challenge, which are the
    question of that game, not its answer.

    Attributes:
        adversary: `server`, `eavesdropper`, `client`, `server+client`, `key_server`, `released`, ...
        messages: the messages that it could read, in order.
        target: the attacked client; None if all are.
        round: 0-based, in which the update was made.
        update: the observed update of the target; None if it saw nothing.
        vector: float32 (P,), the global model the update was made from, as far as it knows it; else None.
        personal: float32 (P,), the target's own model, where the adversary has it; else None.
        initial: float32 (P,), the public model that the first round started from.
        learns: for each round before this one, the trainer's public declaration; shorter if it declares nothing for
            some.
        model: the adversary's own copy of the recipe's model (a `TorchModel`), holding `vector`. Where that is unknown,
            None; or with observations the public parameters of `initial`, for rounds whose parameters are known.
        num_classes: outputs of the model.
        shape: (C, H, W) of one example.
        mean, std: per channel; inputs in [0, 1] are standardised with them.
        segmentation: True if the model predicts something other than one class an example, such as one a pixel.
        task: what the recipe calls its task; empty where it names none.
        attribute: the attribute that the recipe requests (`attack: {truth: ...}`); None if it requests none.
        candidates: examples of a membership challenge, some of which were the target's; None without one.
        heard: messages of all clients other than updates, as far as they were read: see `told` and `told_by`.
        observations: every round of the target that the adversary saw up to the attacked one, which is the last of them
            if it saw that; ascending. Each is read on request, and the attack may change it. Empty if the attack's
            `Needs.rounds` does not request them.
        seed: for the attack's own randomness; different for each target.
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
    def observed(self) -> ObservedUpdate:
        """The observed update, for an attack that needs it.

        Raises:
            ViewError: the adversary saw none.
        """
        if self.update is None:
            raise ViewError(f"the adversary {self.adversary} saw no update of this target")
        return self.update

    @property
    def start(self) -> NDArray[np.float32]:
        """The global model that the update was made from, (P,), for an attack that needs it.

        Raises:
            ViewError: the adversary does not know it.
        """
        if self.vector is None:
            raise ViewError(f"the adversary {self.adversary} does not know the model that the update was made from")
        return self.vector

    @property
    def told(self) -> tuple[Told, ...]:
        """The target's messages in negotiations, and facts other than values from its uploads; oldest first."""
        return () if self.target is None else self.told_by(self.target)

    def told_by(self, client_id: int) -> tuple[Told, ...]:
        """The same for any client, including the adversary's own."""
        return tuple(told for told in self.heard if told.client_id == client_id)

    def uploads(self, round: int | None = None) -> Iterator[tuple[int, int, Mapping[str, Block]]]:
        """Yields (round, client_id, {zone: Block}) for each protected update this adversary saw."""
        yield from uploads_in(self.messages, round)


@dataclasses.dataclass(eq=False)
class Attacker(Party):
    """The context of an attack: outside every party of the run, with the public facts.

    Attributes:
        device: torch device to compute on.
        progress: called with `(done, total, loss)` during an attack; the loss is its objective, or None.
    """

    device: str = "cpu"
    progress: Callable[[int, int, float | None], None] = lambda done, total, loss: None
