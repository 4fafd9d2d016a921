"""The parties of a finished run, restored from a checkpoint: for probes, released models, and the truth of an update.

They are rebuilt in this process, know only the saved state of the run, and do not change the run.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from fedplug.api import codec
from fedplug.api.errors import CheckpointError, FedplugError, TooFewClients
from fedplug.api.parties import SERVER, Client, Openings, file_name
from fedplug.engines.base import Job
from fedplug.engines.local import LocalEngine
from fedplug.round.parties import KeyServerHost
from fedplug_runs.checkpoint import Checkpoints, StateFiles, write_file
from fedplug_runs.files import private_folder
from fedplug_runs.folder import read_ledger
from fedplug_runs.patterns import Pattern, facts_by_group, pattern_of
from fedplug_runs.result import deliver, taken_back
from fedplug_runs.wire_record import Message, Wire, recordings

from fedplug_attacks.views.adversaries import read_client
from fedplug_attacks.views.observer import Begun
from fedplug_attacks.views.probe import OneBatch, probing, tell_sums_of, uploads_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from fedplug.api.data import Examples, Model, PublicData
    from fedplug.api.parties import KeyServer, Server
    from fedplug.recipe.catalog import Catalog
    from fedplug.recipe.recipe import Recipe
    from fedplug.round.protocol import Protocol as Rounds
    from fedplug.round.world import World
    from fedplug_ledger.entries import RoundEntry
    from numpy.typing import NDArray


@dataclasses.dataclass(frozen=True, eq=False)
class Moment:
    """The state of the parties, and the recorded messages, at one moment.

    Attributes:
        folder: folder in which every party saved its state; it disappears with its `Rewound`.
        messages: the messages since the checkpoint.
        batches: the training batch of each client that trained.
        updates: float32 (P,), of each client, before any protection.
        later: for a probe, the messages that would have told clients the sums of these uploads; nobody received them.
        others: clients that took part, and whose data are elsewhere.
    """

    folder: Path
    messages: list[Message]
    batches: dict[int, Examples] = dataclasses.field(default_factory=dict)
    updates: dict[int, NDArray[np.float32]] = dataclasses.field(default_factory=dict)
    later: list[Message] = dataclasses.field(default_factory=list)
    others: tuple[int, ...] = ()


class Restored(abc.ABC):
    """Parties of a finished run, taken back to a moment: all of them (`Rewound`), or one client (`home.AtHome`).

    Args:
        recipe: of the run.
        public: examples that everybody has.
        kept: the folder with the checkpoints of the moments to which they can be taken back.

    Attributes:
        whole: whether all parties are here.
    """

    whole: ClassVar[bool]

    def __init__(self, recipe: Recipe, public: PublicData | None, kept: Path) -> None:
        self.recipe, self.public, self.checkpoints = recipe, public, Checkpoints(kept)
        self._scratch = tempfile.TemporaryDirectory(prefix="fedplug-")
        self._moments, self._begun = 0, dict[tuple[int, int], Begun]()

    def close(self) -> None:
        """Forgets the parties, and what they saved here."""
        self._scratch.cleanup()

    @property
    def sent(self) -> dict[int, Pattern]:
        """What each finished round (0-based) sent, in kind; empty where that is not known."""
        return {}

    def unlike(self, round: int) -> list[int]:
        """Clients of which no two send the same in kind in a round (0-based): the first of each pattern and group."""
        return []

    @abc.abstractmethod
    def before(self, round: int) -> Moment:
        """The parties at the start of a round (0-based); `recipe.rounds` is the end of the run."""

    @abc.abstractmethod
    def probe(self, round: int, batch: OneBatch, sums: bool = False) -> Moment:
        """The parties' actions in a round if each client had this one batch."""

    @abc.abstractmethod
    def update(self, round: int, client_id: int) -> NDArray[np.float32]:
        """The update of a client in a round of the run."""

    @abc.abstractmethod
    def updates(self, round: int, client_ids: Sequence[int]) -> dict[int, NDArray[np.float32]]:
        """The updates of several clients in a round, without those that cannot be reproduced."""

    @abc.abstractmethod
    def client(self, client_id: int) -> Client:
        """A client of this process, with its data: for the scorer alone."""

    @abc.abstractmethod
    def somebody(self) -> Client:
        """A client of this process, for facts that the data of all clients share, such as the shape of an example."""

    @abc.abstractmethod
    def begun(self, round: int, client_id: int) -> Begun | None:
        """What a reader of all messages to a client knew before those of a round (0-based)."""

    def _saved(self, save: Callable[[Path], None], server: Server) -> Path:
        """A new folder with the states of the parties of this process, and of a server."""
        self._moments += 1
        folder = private_folder(Path(self._scratch.name) / f"moment-{self._moments}")
        save(folder)
        write_file(folder / file_name(SERVER), codec.encode({"server": server.to_plain()}))
        return folder


class Rewound(Restored):
    """The parties of a run, restored as often as needed. Close it at the end.

    Args:
        recipe: of the run.
        catalog: the available components; the installed ones if None.
        run_dir: the run folder.
        data_root: folder of data sets, or None.
        device: torch device name.
        key_server: whether the protocol needs one.
        model: with its initial weights.
        world: of the run.
    """

    whole = True

    def __init__(
        self,
        recipe: Recipe,
        catalog: Catalog | None,
        run_dir: Path,
        data_root: str | None,
        device: str,
        key_server: bool,
        model: Model,
        world: World,
    ) -> None:
        super().__init__(recipe, world.public, run_dir)
        self.model, self.run_dir, self._recorded = model, run_dir, bool(recordings(run_dir / "wire"))
        job = Job(
            recipe.to_plain(), data_root, device, key_server=key_server, catalog=catalog, world=world,
            store=StateFiles(),
        )  # fmt: skip
        self._job, self._engine = job, LocalEngine(job)
        self._composition = job.build()[1]

    def close(self) -> None:
        """See `Restored.close`."""
        self._engine.close()
        super().close()

    @functools.cached_property
    def sent(self) -> dict[int, Pattern]:
        """See `Restored.sent`; empty without a checkpoint."""
        kept = self.checkpoints.rounds()
        if not kept:
            return {}
        protocol, _ = self._restored(kept[-1])
        entries = self._entries()
        done = [round for round in range(kept[-1]) if round in entries or not entries]  # others were skipped
        return {round: pattern_of(facts_by_group(protocol, round).values(), entries.get(round)) for round in done}

    def unlike(self, round: int) -> list[int]:
        """See `Restored.unlike`."""
        if round not in self.sent:
            return []
        protocol, _ = self._restored(self.checkpoints.rounds()[-1])
        entry, of = self._entries().get(round), dict[Pattern, int]()
        groups = protocol.server.groups or {"all": list(range(self.recipe.data.clients))}
        for group, facts in facts_by_group(protocol, round).items():
            for client_id in groups[group]:
                of.setdefault(pattern_of([facts], entry, client_id) | {(group, "", "", "")}, client_id)
        return sorted(of.values())

    def _entries(self) -> dict[int, RoundEntry]:
        """The ledger's entry of each round (0-based) of which it has one."""
        with contextlib.suppress(CheckpointError):
            return {entry.round - 1: entry for entry in read_ledger(self.run_dir).log}
        return {}

    def before(self, round: int) -> Moment:
        """The parties at the start of a round (0-based); `recipe.rounds` is the end of the run.

        Raises:
            CheckpointError: the run kept no checkpoint of that moment, or it is damaged.
        """
        protocol, wire = self._restored(round)
        deliver(protocol, round)
        return Moment(self._saved(self._engine.save, protocol.server), wire.take())

    def probe(self, round: int, batch: OneBatch, sums: bool = False) -> Moment:
        """The parties' actions in a round if each client had this one batch.

        Args:
            round: 0-based.
            batch: the batch of each client.
            sums: whether to include the messages that tell clients the sums of their uploads (`Moment.later`).

        Raises:
            CheckpointError: as in `before`.
            TooFewClients: clients failed.
        """
        protocol, wire = self._restored(round)
        try:
            with probing(self._engine.clients, batch) as steps:
                uploads = uploads_of(protocol, round)
        except TooFewClients as error:
            raise TooFewClients(f"{error}. Dropped out: {protocol.office.reasons()}") from error
        batches = {c: client.data.train.take(batch.indices(client)) for c, client in self._clients().items()}
        updates = {c: update for c, update in steps.updates.items() if c in uploads}
        folder, messages = self._saved(self._engine.save, protocol.server), wire.take()
        if sums:
            parties: list[Client | KeyServer] = [*self._clients().values()]
            parties += [host.party for host in self._engine.hosts if isinstance(host, KeyServerHost)]
            for party in parties:
                party.openings = Openings()  # sums opened in another probe of the round belong to another world
                party.remembered.next = round  # what was saved above is for views alone: the round continues here
            with contextlib.suppress(FedplugError):  # an unopened sum shows nothing
                tell_sums_of(protocol, round, uploads)
        return Moment(folder, messages, batches, updates, wire.take())

    def update(self, round: int, client_id: int) -> NDArray[np.float32]:
        """The update of a client in a round of the run, trained again with a bit-identical result.

        Raises:
            CheckpointError: as in `before`.
        """
        protocol = self._trained(round, [client_id])
        update: NDArray[np.float32] | None = self._clients()[client_id].update
        if update is None:
            why = protocol.office.reasons()
            raise CheckpointError(f"client {client_id} did not train round {round + 1} again: {why}")
        return update

    def updates(self, round: int, client_ids: Sequence[int]) -> dict[int, NDArray[np.float32]]:
        """The updates of several clients in a round of the run, as `update`; without those that cannot be reproduced.

        Raises:
            CheckpointError: as in `before`.
        """
        self._trained(round, client_ids)
        clients = self._clients()
        return {c: found for c in client_ids if (found := clients[c].update) is not None}

    def _trained(self, round: int, client_ids: Sequence[int]) -> Rounds:
        """The protocol, after these clients have trained a round again."""
        protocol, _ = self._restored(round)
        protocol.begin(round, "negotiate")
        protocol.facts(round)
        cohort = protocol.cohort(list(client_ids))
        cohort.tell_now(protocol.steps.train)
        protocol.office.min_clients = 1
        cohort.ask(protocol.steps.ready)
        return protocol

    def client(self, client_id: int) -> Client:
        """A client of this process, with its data: for the scorer alone."""
        return self._clients()[client_id]

    def somebody(self) -> Client:
        """See `Restored.somebody`."""
        return self.client(0)

    def begun(self, round: int, client_id: int) -> Begun | None:
        """What a reader of all messages to a client knew before those of a round (0-based).

        None if the run was recorded, since its messages reach back to the first round.
        """
        if self._recorded or round not in self.checkpoints.rounds():
            return None
        if (round, client_id) not in self._begun:
            client = read_client(self.checkpoints.path(round), client_id).party
            assert isinstance(client, Client)
            self._begun[round, client_id] = Begun.of(
                client, round, self._composition, self.model.layout, self.public
            )  # fmt: skip
        return self._begun[round, client_id]

    def _clients(self) -> dict[int, Client]:
        return {client.client_id: client for client in self._engine.clients.clients.values()}

    def _restored(self, round: int) -> tuple[Rounds, Wire]:
        found = self.checkpoints.read(round)
        if found is None:
            raise CheckpointError(f"{self.checkpoints.folder} holds no checkpoint")
        wire = Wire(keep=True)
        return taken_back(self.recipe, self._composition, self._engine, found, wire, self.model, self.public), wire
