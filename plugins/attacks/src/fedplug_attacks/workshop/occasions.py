"""The attackable moments of a finished run: recorded rounds, batches of a probe, released models."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedplug.api.errors import CheckpointError, ViewError, describe
from fedplug.api.parties import SERVER
from fedplug.recipe.recipe import Recipe
from fedplug_runs.wire_record import Message, read_wire, recordings

from fedplug_attacks.views.probe import OneBatch
from fedplug_attacks.views.rewind import Moment, Restored
from fedplug_attacks.workshop.scope import AttackScope

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclasses.dataclass(frozen=True, eq=False)
class Occasion:
    """One moment to attack, of the run or of a probe, with the possible targets.

    Attributes:
        round: 0-based.
        batch: which batch of the probe; None for the run itself.
        messages: everything recorded up to it.
        folder: folder with every party's state of that moment; None if it was not kept.
        clients: the clients that took part.
        moment: the moment of a probe or a released model; None for the run itself.
        earlier: the moments before it, oldest first: rounds of the run, or those of the probe if several rounds use the
            same batch. Each is looked up on request.
        later: the next messages, which tell clients the sums of this moment; also looked up on request.
    """

    round: int
    batch: OneBatch | None
    messages: list[Message]
    folder: Path | None
    clients: list[int]
    moment: Moment | None = None
    earlier: Callable[[], Iterable[Occasion]] = tuple
    later: Callable[[], Sequence[Message]] = tuple


class Occasions:
    """The moments of a run that a recipe's attacks are tried on.

    Args:
        recipe: of the run.
        scope: the rounds, adversaries and probes.
        run_dir: the run folder.
        rewound: the parties.

    Raises:
        ViewError: a file of recorded messages is damaged.
    """

    def __init__(self, recipe: Recipe, scope: AttackScope, run_dir: Path, rewound: Restored) -> None:
        self.recipe, self.scope, self.run_dir, self.rewound = recipe, scope, run_dir, rewound
        self.checkpoints = rewound.checkpoints
        self.recorded = self._recorded(max(round for round, _ in self.rounds()))

    def rounds(self) -> list[tuple[int, list[str]]]:
        """Rounds, 0-based, each with its adversaries: by default the first, and the final one for released models."""
        names = self.scope.adversaries
        if self.scope.rounds is not None:
            return [(round - 1, names) for round in self.scope.rounds]
        # A run without recordings has only its last checkpoints to probe.
        first = min(self.checkpoints.rounds(), default=0) + self.scope.repeats - 1 if self.scope.probe else 0
        others = [name for name in names if name != "released"]
        final = [(self.recipe.rounds, ["released"])] if "released" in names else []
        return ([(first, others)] if others else []) + final

    def require(self) -> None:
        """Refuses requests that the run folder cannot serve, before anything is tried.

        Raises:
            ViewError: nothing was recorded to attack.
            CheckpointError: the run kept no checkpoint of a round that is probed.
        """
        there = {m.round for m in self.recorded if m.phase == "upload" and m.receiver == SERVER}
        for round, names in self.rounds():
            if self.scope.probe is not None or names == ["released"]:
                for before in self._probed(round):
                    self._require_checkpoint(before)
                self._require_checkpoint(round)
            elif round not in there:
                only = f"recorded uploads of rounds {sorted(round + 1 for round in there)} only"
                raise ViewError(
                    f"{self.run_dir} holds {only if there else 'no recorded messages'}, and round {round + 1} is to "
                    "be attacked; run the recipe with --record-wire, or with attacks in it, and attack that run; or "
                    "probe single batches, for which the checkpoint before the round is enough: --probe 30"
                )

    def _probed(self, round: int) -> range:
        """The rounds before an attacked one that use the same batch.

        Raises:
            ViewError: there are too few rounds.
        """
        times = self.scope.repeats
        if times > round + 1:
            raise ViewError(
                f"probe.rounds is {times}, and up to round {round + 1} there are {round + 1}; attack a later round "
                "(--round), or lower probe.rounds"
            )
        return range(round + 1 - times, round)

    def _require_checkpoint(self, round: int) -> None:
        kept = self.checkpoints.rounds()
        if not kept:
            raise CheckpointError(
                f"{self.run_dir} holds no checkpoint, which probes and released models need; run the recipe again: a "
                "run keeps those of its last two rounds"
            )
        if round not in kept:
            final = f"; {self.recipe.rounds + 1} is the final model" if self.recipe.rounds in kept else ""
            raise CheckpointError(
                f"{self.run_dir} kept no checkpoint from before round {round + 1}; it has those of rounds "
                f"{', '.join(str(each + 1) for each in kept)}{final}. Attack one of these (--round), or run the recipe "
                "with --record-wire, which keeps all"
            )
        if self.rewound.whole:  # a site has no state of the server
            self.checkpoints.read(round)

    def of(
        self, round: int, released: bool, numbers: Iterable[int] | None = None,
        asking: Callable[[int, OneBatch], None] = lambda round, batch: None,
    ) -> Iterator[Occasion]:  # fmt: skip
        """The moments of a round (0-based): its uploads, or if `released` its model; or each batch of a probe.

        Args:
            round: 0-based.
            released: whether the models of that moment are attacked.
            numbers: numbers of the probe's batches, from 0, or only 0 without a probe; None: all.
            asking: called before the parties are asked about a batch.
        """
        probe = self.scope.probe
        for number in range(self.scope.batches) if numbers is None else numbers:
            if probe is None:
                released_at = self.rewound.before(round) if released else None
                now = self._of_run(round)
                yield dataclasses.replace(now, moment=released_at, earlier=functools.partial(self._run, round))
                continue
            first = round + 1 - probe.rounds
            batch = OneBatch(probe.batch_size, number, probe.classes, None if first == round else first)
            asking(round, batch)
            repeated = [self._probe(each, batch) for each in self._probed(round)]
            asked = self._probe(round, batch)
            yield dataclasses.replace(asked, earlier=functools.partial(self._before, round, repeated))

    def _before(self, round: int, repeated: list[Occasion]) -> Iterator[Occasion]:
        yield from self._run(round)
        yield from repeated

    def planted(self, honest: Occasion, models: Mapping[int, NDArray[np.float32]]) -> Occasion:
        """A batch of a probe whose clients received planted models, with the sums of their uploads."""
        assert honest.batch is not None
        assert honest.moment is not None
        batch = dataclasses.replace(honest.batch, planted=models, honest=honest.moment.folder)
        return self._probe(honest.round, batch)

    def _probe(self, round: int, batch: OneBatch) -> Occasion:
        moment = self.rewound.probe(round, batch, self._subtracts or batch.planted is not None)
        before = [message for message in self.recorded if message.round < round]
        clients = sorted({*moment.batches, *moment.others})
        said = [*before, *moment.messages]
        return Occasion(round, batch, said, moment.folder, clients, moment, later=lambda: moment.later)

    def _run(self, end: int) -> Iterator[Occasion]:
        """The rounds of the run before an end (0-based) that were recorded."""
        for round in sorted({m.round for m in self.recorded if 0 <= m.round < end}):
            yield self._of_run(round)

    def _of_run(self, round: int) -> Occasion:
        now = [message for message in self.recorded if message.round == round]
        senders = {m.sender for m in now if m.phase == "upload" and m.receiver == SERVER}
        clients = sorted(int(sender.partition(":")[2]) for sender in senders)
        kept = self.checkpoints.path(round + 1)
        everyone = clients or list(range(self.recipe.data.clients))
        before = [message for message in self.recorded if message.round < round]
        folder = kept if kept.is_dir() else None
        # The first message after a checkpoint delivers its content to the clients.
        later = functools.cache(lambda: self.rewound.before(round + 1).messages if folder else [])
        return Occasion(round, None, [*before, *now], folder, everyone, later=later)

    @property
    def _subtracts(self) -> bool:
        """Whether some adversary has all clients except one on its side, so that opened sums reveal that one."""
        colluding = (sum(r.startswith("client") for r in name.split("+")) for name in self.scope.adversaries)
        return max(colluding) + 1 >= self.recipe.data.clients

    def _recorded(self, last: int) -> list[Message]:
        """The messages recorded up to a round, which are all that an attack on it may know."""
        messages: list[Message] = []
        folder = self.run_dir / "wire"
        for rounds, file in recordings(folder).items():
            if rounds > last + 1:
                break
            try:
                messages += read_wire(file)
            except Exception as error:  # a damaged file may fail in any way
                remedy = "without the file only probes, and rounds before it, can be attacked"
                raise ViewError(f"{file} is damaged ({describe(error)}); {remedy}") from error
        return messages
