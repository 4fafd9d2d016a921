"""One client of a finished run at its own site: rounds that its party kept, repeated with one batch as its data.

The site has its state before a round and every message that the server sent it. Replaying these to its own client gives
the upload of a batch under the plan, the facts and the keys of the run. No other party takes part: there is no sum but
those that the server sent back.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedplug.api.errors import ViewError, describe
from fedplug.api.links import seal_of
from fedplug.api.parties import SERVER, Client, ClientMemory, Openings, Server, client_address
from fedplug.recipe.composition import Composition
from fedplug.round.hosted import HostedClient
from fedplug.round.parties import ClientHost
from fedplug.wire.calls import read_reply
from fedplug_runs.checkpoint import StateFiles
from fedplug_runs.wire_record import Message, file_of, read_wire

from fedplug_attacks.views.observer import Begun
from fedplug_attacks.views.probe import OneBatch, probing
from fedplug_attacks.views.rewind import Moment, Restored

if TYPE_CHECKING:
    import numpy as np
    from fedplug.api.blocks import Layout
    from fedplug.recipe.recipe import Recipe
    from fedplug.round.world import World
    from numpy.typing import NDArray


class AtHome(Restored):
    """One client, taken back to rounds that its party kept. Close it at the end.

    Args:
        recipe: of the run.
        client_id: the client.
        kept: the folder of kept rounds, with the layout of a run folder: checkpoints and messages.
        device: torch device name.
        world: of the recipe, with this client's data.
    """

    whole = False  # a party has kept a round of each kind, and its site attacks each of them

    def __init__(self, recipe: Recipe, client_id: int, kept: Path, device: str, world: World) -> None:
        super().__init__(recipe, world.public, kept)
        self.client_id, self._wire = client_id, kept / "wire"
        self._composition = Composition(recipe)
        self._host = ClientHost(recipe, self._composition, [client_id], None, device, StateFiles(), world)

    @property
    def rounds(self) -> list[int]:
        """The kept rounds, from 0, without the end of the run."""
        return [round for round in self.checkpoints.rounds() if round < self.recipe.rounds]

    @property
    def ended(self) -> bool:
        """Whether the end of the run was kept, and so the last model."""
        return self.recipe.rounds in self.checkpoints.rounds()

    def client(self, client_id: int) -> Client:
        """The client, with its data: for the scorer alone.

        Raises:
            ViewError: another client was asked for.
        """
        if client_id != self.client_id:
            raise ViewError(f"the data of client {client_id} are at its own site; this is client {self.client_id}")
        return self._client

    def somebody(self) -> Client:
        """See `Restored.somebody`."""
        return self._client

    @property
    def _client(self) -> HostedClient:
        return self._host.clients[client_address(self.client_id)]

    # -- moments -------------------------------------------------------------------------------------------------------

    def before(self, round: int) -> Moment:
        """The client at the end of the run, once it has adopted the last model.

        Raises:
            CheckpointError: the end was not kept, or its files are damaged.
            ViewError: the messages are damaged, or the client cannot repeat its answers.
        """
        self._take_back(round)
        messages = self._replayed(round)
        return Moment(self._kept_with(), messages)

    def probe(self, round: int, batch: OneBatch, sums: bool = False) -> Moment:
        """The client's actions in a round if it had this one batch; nothing follows its upload.

        Args:
            round: 0-based.
            batch: its batch.
            sums: of uploads; there are none at a single site.

        Raises:
            CheckpointError, ViewError: as in `before`.
        """
        self._take_back(round)
        with probing(self._host, batch) as steps:
            messages = self._replayed(round)
        batches = {self.client_id: self._client.data.train.take(batch.indices(self._client))}
        others, told = self._another(messages)
        return Moment(self._kept_with(others), [*messages, *told], batches, dict(steps.updates), others=others)

    def update(self, round: int, client_id: int) -> NDArray[np.float32]:
        """Updates of the run are not made again here; a probe gives the update of its batch.

        Raises:
            ViewError: always.
        """
        raise ViewError("a site attacks single batches, and does not repeat the training of a whole round")

    def updates(self, round: int, client_ids: Sequence[int]) -> dict[int, NDArray[np.float32]]:
        """None: those of other clients are at their sites."""
        return {}

    def begun(self, round: int, client_id: int) -> Begun:
        """See `Rewound.begun`."""
        if (round, client_id) not in self._begun:
            self._take_back(round)
            begun = Begun.of(self._client, round, self._composition, self.layout, self.public)
            self._begun[round, client_id] = begun
        return self._begun[round, client_id]

    # -- what others see -----------------------------------------------------------------------------------------------

    def closing(self, round: int) -> dict[str, str]:
        """The zones that the client sends in a round (0-based), each with who opens it alone.

        `clients`: all clients hold the key. `sum`: nobody; others see it in sums over clients. Empty: it is not sealed,
        or that follows from what is published in the round.
        """
        found = dict[str, str]()
        facts = self._host.facts(round, self.begun(round, self.client_id).published)
        for zone in facts.links:
            try:
                seal = seal_of(facts.steps(zone)) if facts.sent(zone) else None
                if facts.sent(zone):
                    found[zone] = "" if seal is None else "clients" if seal[1].opened_by == "clients" else "sum"
            except Exception:  # a plugin's operations may fail in any way without what it has published
                found[zone] = ""
        return found

    def asks(self, round: int) -> bool:
        """Whether the server asked the client something about its plan in a round (0-based)."""
        sent = (message for message in self._kept(round) if message.sender == SERVER)
        return self.recipe.negotiate_mask.name in (call.component for message in sent for call in message.asked())

    @property
    def layout(self) -> Layout:
        """Of the model."""
        return self._host.model.layout

    @functools.cached_property
    def shared_key(self) -> bool:
        """Whether all clients hold the key that opens each other's uploads."""
        return any("clients" in self.closing(round).values() for round in self.rounds)

    def _another(self, messages: Sequence[Message]) -> tuple[tuple[int, ...], list[Message]]:
        """Another client, which knows what all clients know: its number, and the messages that all were sent."""
        others = [each for each in range(self.recipe.data.clients) if each != self.client_id][:1]
        sent = [message for message in messages if message.sender == SERVER]
        return tuple(others), [
            dataclasses.replace(message, receiver=client_address(other)) for other in others for message in sent
        ]

    # -- the client ----------------------------------------------------------------------------------------------------

    def _take_back(self, round: int) -> None:
        found = self.checkpoints.rounds()
        if round not in found:
            kept = ", ".join(str(each + 1) for each in found) or "none"
            raise ViewError(f"round {round + 1} was not kept at this site; it has: {kept}")
        client = self._client
        client.openings = Openings()  # what is opened again here is not told to anybody
        self._host.load(self.checkpoints.path(round))

    def _replayed(self, round: int) -> list[Message]:
        """The messages of a round with the client's new answers, up to its upload."""
        own, replayed = client_address(self.client_id), list[Message]()
        for message in self._kept(round):
            if message.sender != SERVER:
                continue
            data = self._host.deliver(own, message.data)
            data = data if isinstance(data, bytes) else data.to_bytes()
            reply = read_reply(data)[0]
            if reply.error is not None or reply.behind:
                why = reply.error.message if reply.error else "its state is older than the messages"
                raise ViewError(f"client {self.client_id} cannot repeat round {round + 1}: {why}")
            answer = Message(own, SERVER, round, "negotiate", data, len(data), {})
            answered = answer.answered()
            uploaded = answered is not None and answered.blocks is not None
            replayed += [message, dataclasses.replace(answer, phase="upload") if uploaded else answer]
            if uploaded:
                break
        return replayed

    def _kept(self, round: int) -> list[Message]:
        """The messages of a round, as they were sent and received."""
        file = self._wire / file_of(round + 1)
        try:
            return read_wire(file)
        except Exception as error:  # a damaged file may fail in any way
            why = f"{file} is damaged ({describe(error)}), so round {round + 1} cannot be attacked"
            raise ViewError(f"{why}; restore it from a copy") from error

    def _kept_with(self, others: Sequence[int] = ()) -> Path:
        """A folder with the states of the client, of the server, and of other clients as far as all are alike."""
        server = Server()
        server.remembered.published = {"all": self._client.remembered.published}
        folder = self._saved(self._host.save, server)
        for other in others:
            StateFiles().save_clients(folder, {client_address(other): self._alike(other)})
        return folder

    def _alike(self, other: int) -> HostedClient:
        """Another client with what it shares with this one: model, public facts, cohort secret, and a common key."""
        own, twin = self._client, HostedClient(other, self._host)
        twin.facts, twin.vector, knows = own.facts, own.vector, own.remembered
        twin.remembered = ClientMemory(
            done=knows.done, round=knows.round, trained=knows.trained, buffers=knows.buffers,
            most_examples=knows.most_examples, cohort_secret=knows.cohort_secret, answer_key=knows.answer_key,
            published=knows.published,
        )  # fmt: skip
        if not self._composition.plans.own and self.recipe.groups is None:
            twin.plan = own.plan
        if self.shared_key:
            twin.state = own.state
        return twin
