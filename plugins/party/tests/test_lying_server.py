"""Servers that lie, to real parties under every sealer: no secret of one use serves for a second upload, whether the
parties are saved and sent back, and no sum of fewer clients opens than `min_clients`.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_toys import Checked
from fedplug.api import codec
from fedplug.api.blocks import Block
from fedplug.api.errors import PartyLost, TooFewClients
from fedplug.api.events import Uploaded
from fedplug.api.parties import Party, Server
from fedplug.mechanisms.closing import Closing
from fedplug.round.sums import Arrivals
from fedplug.wire.calls import read_reply
from fedplug_party.engine import PartyEngine
from fedplug_party.frames import Command, Reply, Request
from fedplug_runs.checkpoint import StateFiles
from fedplug_secagg import masks
from fedplug_std import _dataset_files
from paillier_toys import small_tables
from party_toys import Beside
from toy_components import paraaegis, recipe_of
from toy_protocol import build

VICTIM = "client:0"
SIZE = 62
"""Scalars of the model."""


def sealed(seal: Any, **changes: Any) -> dict[str, Any]:
    """Four clients, each of which moves a small model by a known amount, and one sealer."""
    seal = {"use": seal} if isinstance(seal, str) else seal
    name = seal["use"]
    plain = recipe_of(
        "encrypted", [{"use": "std.clip", "norm": 8.0}, seal], train={"use": "toy.push", "scale": 0.01}, min_clients=3,
        aggregate={"use": "std.mean", "weighting": "uniform"}, postprocess={"encrypted": [name]},
    )  # fmt: skip
    plain["data"]["use"] = "std.breast_cancer"
    if name == "baselines.batchcrypt":  # negotiates too
        plain |= {"negotiate_mask": seal, "protect": {"encrypted": [name]}}
    return plain | changes


SEALERS = {
    "secagg.bonawitz": sealed("secagg.bonawitz"),
    "signed": sealed({"use": "secagg.bonawitz", "signed": True}, min_clients=4),
    "secagg.plus": sealed({"use": "secagg.plus", "sigma": 20, "dropped": 0.2}),
    "threshold.bfv": sealed("threshold.bfv"),
    "baselines.lwe": sealed({"use": "baselines.lwe", "noise_multiplier": 1.0}),
    "std.bfv": sealed({"use": "std.bfv", "key_holder": "clients"}),
    "std.ckks": sealed({"use": "std.ckks", "key_holder": "key_server"}),
    "std.paillier": sealed({"use": "std.paillier", "key_holder": "clients", "key_bits": 2048}),
    "baselines.ckks": sealed({"use": "baselines.ckks", "key_holder": "clients"}),
    "baselines.batchcrypt": sealed({"use": "baselines.batchcrypt", "key_holder": "clients", "clip": "range"}),
    "sensecrypt.paillier": sealed({"use": "sensecrypt.paillier", "key_holder": "clients"}),
    "fas.scramble": sealed("fas.scramble"),
}


@pytest.fixture(autouse=True, scope="module")
def _made_once() -> Iterator[None]:
    """Each of the many parties would read the data set anew."""
    with small_tables(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(_dataset_files, "breast_cancer", functools.cache(_dataset_files.breast_cancer))
        yield


class Caught(Exception):
    """The server has what it wanted, or gives up."""


@dataclasses.dataclass(eq=False)
class Rewinding:
    """A server that relays what an honest one asks, up to the victim's upload in round 1.

    The victim does not train until then, so that it can be sent back to before its training. Instead of asking for the
    upload, the server has the victim save its state, asks, sends it back, hands it another model, and asks again.

    Attributes:
        done: after how many rounds it says that it saves.
        numbered: whether the calls of the second upload are numbered, as those that outlast their round are.
        said: the replies to its requests.
    """

    beside: Beside
    done: int = 1
    numbered: bool = False
    said: list[Reply] = dataclasses.field(default_factory=list)
    _plan: list[list[Any]] = dataclasses.field(default_factory=list)
    _number: Iterator[int] = dataclasses.field(default_factory=itertools.count)

    def exchange(self, requests: Mapping[str, bytes], seconds: float) -> Iterator[tuple[str, bytes | PartyLost]]:
        for address, data in requests.items():
            request = Request.read(data)
            if address == VICTIM and request.command == "deliver":
                request = self._delivered(request)
            reply = self._sent(address, request)
            yield address, dataclasses.replace(reply, number=request.number).to_bytes()

    def close(self) -> None:
        """Nothing to close."""

    def _delivered(self, request: Request) -> Request:
        message, calls = self._opened(request.message)
        lasting = [call for call in calls if call[0] and call[1] == 0]
        self._plan += [[0, *call[1:]] for call in lasting if call[3] in ("adopt", "adopt_all")]
        if calls[-1][1] == 0 and calls[-1][3] == "protect":
            self._rewind(request, message, calls)
        kept = [call for call in calls if call[3] != "train"]
        return dataclasses.replace(request, message=self._closed(message, kept))

    def _rewind(self, request: Request, message: dict[str, Any], calls: list[list[Any]]) -> None:
        train, upload = [0, 0, "fedplug", "train", []], calls[-1]
        between = [call for call in calls[:-1] if call[3] != "train"]
        checkpoint = f"{self.done}-lie"
        first = self._closed(message, [*between, train, *self._plan, upload])
        model = {"encrypted": Block("encrypted", SIZE, np.ones(SIZE, np.float32), np.arange(SIZE, dtype=np.uint32))}
        again = [*between, [0, 0, "fedplug", "adopt", [model, None, "all", {}]], train, *self._plan, upload]
        if self.numbered:
            numbers = itertools.count(message["known"] + 100)
            again = [*([next(numbers), *call[1:]] for call in again), [0, 1, "fedplug", "ready", []]]
        second = self._closed(message, again)
        # Some sealers ask nothing before the upload: with this question the victim is in the middle of the round.
        self._say(request, "deliver", self._closed(message, [[0, 0, "fedplug", "ready", []]]), "")
        for command, data in (("save", b""), ("deliver", first), ("load", b""), ("deliver", second)):
            self._say(request, command, data, checkpoint if command != "deliver" else "")
        raise Caught

    def _say(self, request: Request, command: Command, message: bytes, checkpoint: str) -> None:
        changed = dataclasses.replace(request, command=command, message=message, checkpoint=checkpoint)
        self.said.append(self._sent(VICTIM, changed))

    def _sent(self, address: str, request: Request) -> Reply:
        data = dataclasses.replace(request, number=next(self._number)).to_bytes()
        ((_, answer),) = self.beside.exchange({address: data}, 0.0)
        assert isinstance(answer, bytes)
        return Reply.read(answer)

    @staticmethod
    def _opened(message: bytes) -> tuple[dict[str, Any], list[list[Any]]]:
        plain: Any = codec.decode(codec.unframe(message))
        return plain, [codec.decode(call) for call in plain["calls"]]  # type: ignore[misc]

    @staticmethod
    def _closed(message: dict[str, Any], calls: list[list[Any]]) -> bytes:
        return codec.frame(codec.encode({**message, "calls": [codec.encode(call) for call in calls]}))


def attacked(folder: Path, plain: dict[str, Any], **how: Any) -> Rewinding:
    """What the server got out of the victim."""
    liar = Rewinding(Beside(folder / "parties", plain), **how)
    checked = Checked(plain, lambda job: PartyEngine(dataclasses.replace(job, store=StateFiles(folder)), liar), folder)
    checked.set_up()
    with pytest.raises(Caught):
        checked.protocol.run()
    return liar


def answers(liar: Rewinding) -> list[Any]:
    """Of the two questions for an upload: what was answered, or why not."""
    found = []
    for reply in liar.said[2::2]:
        if reply.outcome != "done":
            found.append(reply.reason)
        else:
            answer = read_reply(reply.message)[0]
            found.append(answer.value if answer.error is None else answer.error.message)
    return found


@pytest.mark.parametrize("name", SEALERS)
def test_a_party_that_was_saved_in_the_middle_of_a_round_gives_no_upload_of_it(name: str, tmp_path: Path) -> None:
    """Before, both uploads came, under equal masks: their difference was that of the two updates."""
    liar = attacked(tmp_path, SEALERS[name])
    assert [reply.outcome for reply in liar.said[1::2]] == ["done", "done"]  # it takes the server's word for the save
    for said in answers(liar):
        assert "belongs to round 1, and this client was saved in the middle of it, which ended it" in said
    noted = [line.get("answered") for line in liar.beside.parties[VICTIM].state.notes.lines]
    assert "fedplug.protect" not in noted


def test_a_save_that_is_said_to_be_of_an_earlier_round_is_refused_and_ends_nothing(tmp_path: Path) -> None:
    liar = attacked(tmp_path, SEALERS["secagg.bonawitz"], done=0)
    _, save, _, load, _ = liar.said
    assert (save.outcome, load.outcome) == ("refused", "refused")
    assert "to save its state after 0 rounds, in the middle of round 1; it is saved between rounds alone" in save.reason
    first, second = answers(liar)
    assert first["blocks"]["encrypted"].sealed_by == "secagg.bonawitz"
    assert "round 1 already" in second


def test_calls_that_outlast_their_round_give_no_upload_either(tmp_path: Path) -> None:
    liar = attacked(tmp_path, SEALERS["secagg.bonawitz"], numbered=True)
    assert answers(liar)[1] is True  # of the question with which a message must end
    assert liar.beside.parties[VICTIM].host.clients[VICTIM].remembered.protected == 0  # it was made, and stays there
    assert len(liar.said[-1].message) < 2000


# -- fewer clients than min_clients ------------------------------------------------------------------------------------

FEW = {
    "secagg.bonawitz": "helps to open none of fewer than min_clients=10",
    "signed": "helps to open none of fewer than min_clients=10",
    "secagg.plus": "helps to open none of fewer than min_clients=10",
    "threshold.bfv": "8 clients are said to be in the sum; below 10 it shows too much of each",
    "baselines.lwe": "shares of 8 clients were asked for; opening fewer than min_clients=10 would show too much",
    "std.bfv": "holds 8 updates; opening fewer than min_clients=10 would show too much of each",
    "std.ckks": "holds 8 updates; opening fewer than min_clients=10 would show too much of each",
}


@pytest.mark.parametrize("name", FEW)
def test_no_party_helps_to_open_a_sum_of_fewer_clients_than_its_own_recipe_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ten upload, and the server says that two dropped out, as if eight were enough."""
    take = Arrivals.take

    def losing(self: Arrivals, client_id: int, reply: Any) -> None:
        if client_id in (8, 9):
            self.office.drop(client_id, "it dropped out")
        else:
            take(self, client_id, reply)

    def opening(self: Closing, block: Block, clients: Sequence[int], party: Party) -> Block:
        least = 8 if isinstance(party, Server) else self.facts.min_clients
        facts = dataclasses.replace(self.facts, min_clients=least)
        return opens(dataclasses.replace(self, facts=facts), block, clients, party)

    opens = Closing.open
    monkeypatch.setattr(Arrivals, "take", losing)
    monkeypatch.setattr(Closing, "open", opening)
    stated = SEALERS[name] | {"min_clients": 10, "rounds": 1}
    stated["data"] = stated["data"] | {"clients": 10}
    beside = Beside(tmp_path / "parties", stated)
    protocol, _, watch = build(stated, beside.engine)
    protocol.office.min_clients = 8
    protocol.sums.recipe = protocol.delivery.recipe = dataclasses.replace(protocol.recipe, min_clients=8)
    protocol.setup()
    before, said = vector_of(beside), []
    try:
        protocol.run()
    except TooFewClients as error:
        said.append(str(error))
    said += [*watch.notes, *protocol.office.dropped.values()]
    assert any(FEW[name] in each for each in said), said
    assert np.array_equal(vector_of(beside), before)  # the model keeps its values


def vector_of(beside: Beside) -> Any:
    """The victim's model."""
    host: Any = beside.parties[VICTIM].host
    return host.clients[VICTIM].vector


# -- what an honest server does ----------------------------------------------------------------------------------------


def uploaded(checked: Checked) -> Block:
    """The victim's upload of round 1."""
    sent = [message for message in checked.protocol.wire.messages if (message.sender, message.round) == (VICTIM, 0)]
    (blocks,) = [answer.blocks for message in sent if (answer := message.answered()) and answer.blocks]
    return blocks["encrypted"]


def residues(block: Block) -> Any:
    """Values under masks that cancel or are of LWE, int32."""
    (data,) = block.ciphertexts
    assert masks.packed_size(SIZE, 32) == len(data)
    return masks.unpack(data, SIZE, 32).view(np.int32).astype(np.int64)


def repeated(plain: dict[str, Any], folder: Path) -> tuple[Beside, list[Checked], list[dict[str, Any]]]:
    """A run whose server is killed with the uploads of round 1 in hand, and then resumed, with parties that restart.

    Returns:
        The parties, both servers, and what the victim's components remember at the end of each attempt at round 1.
    """
    beside, servers, remembered = Beside(folder / "parties", plain), [], list[dict[str, Any]]()

    def look(event: Uploaded) -> None:
        if event.round == 0:
            host: Any = beside.parties[VICTIM].host
            remembered.append(copy.deepcopy(host.clients[VICTIM].state))
            if len(servers) == 1:
                raise Caught

    for _ in range(2):
        servers.append(
            Checked(plain, lambda job: PartyEngine(dataclasses.replace(job, store=StateFiles(folder)), beside), folder)
        )
        servers[-1].protocol.events.subscribe(Uploaded, look)
        if len(servers) == 1:
            servers[0].set_up()
            with pytest.raises(Caught):
                servers[0].protocol.run()
            for address in [*beside.parties]:
                beside.start(address)
    found = servers[1].checkpoints.read()
    assert found is not None
    servers[1].engine.load(found[2])
    servers[1].protocol.restore(found[1])
    servers[1].protocol.run(found[0])
    assert servers[1].dropped() == [{}, {}]
    assert [beside.parties[f"client:{each}"].state.notes.repeats for each in range(4)] == [1] * 4
    moved = servers[1].vectors(folder)
    assert all(np.array_equal(moved["client-0"], vector) for vector in moved.values())
    return beside, servers, remembered


RARELY = ("sensecrypt.paillier", "signed")
"""The same scheme as of another sealer, or as of the same one without signatures."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in RARELY else ()) for name in SEALERS]
)
def test_a_round_that_a_resumed_run_repeats_has_fresh_secrets(name: str, tmp_path: Path) -> None:
    """Both attempts have the same updates, whose difference is 0."""
    _, servers, _ = repeated(SEALERS[name], tmp_path)
    one, two = map(uploaded, servers)
    assert len(one.ciphertexts) == len(two.ciphertexts) > 0
    assert not {*one.ciphertexts} & {*two.ciphertexts}
    if name in ("secagg.bonawitz", "signed", "secagg.plus", "baselines.lwe"):
        assert np.median(np.abs(residues(one) - residues(two))) > 2**24


def test_noise_that_continues_over_rounds_is_drawn_anew_in_a_repeated_round(tmp_path: Path) -> None:
    """Of the noise that both attempts share, each takes back the same: the difference has the fresh noise of both."""
    noise = {"use": "std.distributed_correlated_gaussian", "noise_multiplier": 1.0}
    plain = sealed("secagg.bonawitz")
    plain["protect"]["encrypted"].insert(1, noise)
    _, _, attempts = repeated(plain, tmp_path)
    drawn = [kept["noise"][0] for state in attempts for kept in state.values() if "noise" in kept]
    assert len(drawn) == 2
    assert np.median(np.abs(drawn[0] - drawn[1])) > 0.1 * np.std(drawn[0]) > 0


def test_a_vote_that_a_resumed_run_repeats_has_a_fresh_key(tmp_path: Path) -> None:
    """Both attempts have the same scores, and so the same nominations."""
    plain = paraaegis(min_clients=3, train={"use": "toy.push", "scale": 0.01})
    _, servers, _ = repeated(plain, tmp_path)
    one, two = (ballot(server) for server in servers)
    assert one.sum() == two.sum()
    assert not np.array_equal(one, two)


def ballot(checked: Checked) -> Any:
    """The victim's ballot in round 1, as bits."""
    sent = [message for message in checked.protocol.wire.messages if (message.sender, message.round) == (VICTIM, 0)]
    (given,) = [a.value for message in sent if (a := message.answered()) and isinstance(a.value, np.ndarray)]
    return np.unpackbits(given).astype(int)
