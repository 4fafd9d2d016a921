"""`ask` and `tell`: what is held back, who gets it when, who drops out, who catches up."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from fedplug import at_client, at_key_server
from fedplug.api import codec
from fedplug.api.context import KeyServer, Server
from fedplug.api.errors import ClientError, PartyLost, TooFewClients
from fedplug.api.events import Events
from fedplug.api.reports import Reports
from fedplug.wire.calls import Receiver
from fedplug.wire.cohort import Cohort
from fedplug.wire.key_server_line import KeyServerLine
from fedplug.wire.post_office import PostOffice, alike, listed
from fedplug.wire.record import KEY_SERVER, Wire, client_address


class Component:
    """Writes down what each client hears; clients in `broken` raise instead."""

    name = "toy"

    def __init__(self) -> None:
        self.heard: dict[int, list[Any]] = {}
        self.broken: dict[int, str] = {}

    @at_client
    def hear(self, client: Any, word: Any) -> Any:
        if client.client_id in self.broken:
            raise RuntimeError(self.broken[client.client_id])
        self.heard.setdefault(client.client_id, []).append(word)
        return [word, client.client_id]

    @at_key_server
    def open(self, key_server: Any, word: str) -> str:
        if word == "no":
            raise ValueError("not that")
        return word.upper()


class Fake(KeyServer):
    """A client or key server."""

    def __init__(self, client_id: int = -1) -> None:
        super().__init__()
        self.client_id = client_id

    def collect_reports(self) -> Reports:
        return Reports()


class World:
    """A post office whose engine is a loop; replies come in descending order of id, as if the last were the fastest."""

    def __init__(self, clients: int = 4, min_clients: int = 2) -> None:
        self.component, self.wire = Component(), Wire()
        self.parties = {client_address(c): Fake(c) for c in range(clients)}
        self.lost: set[str] = set()
        self.office = PostOffice(self, self.wire, "digest", list(range(clients)), min_clients, Events())
        self.server = Server()
        self.ids = list(range(clients))
        self.key_server = Fake()

    def exchange(self, messages: dict[str, bytes]) -> Iterator[tuple[str, bytes | Exception]]:
        for address, data in sorted(messages.items(), reverse=True):
            if address in self.lost:
                yield address, PartyLost(f"worker of {address} ended with code -9")
            elif address == KEY_SERVER:
                receiver = Receiver("key_server", {"toy": self.component}, "digest")
                yield address, receiver.handle(data, self.key_server, lambda round: None)
            else:
                receiver = Receiver("client", {"toy": self.component}, "digest")
                yield address, receiver.handle(data, self.parties[address], lambda round: None)

    def cohort(self, ids: list[int] | None = None) -> Cohort:
        return Cohort(self.office, self.server, self.ids if ids is None else ids, self.ids)

    def heard(self, client_id: int) -> list[Any]:
        return self.component.heard.get(client_id, [])


def test_replies_come_back_by_client_in_ascending_order() -> None:
    world = World()
    replies = world.cohort().ask(world.component.hear, "hello")
    assert replies == {c: ["hello", c] for c in range(4)}
    assert list(replies) == [0, 1, 2, 3]


def test_tells_wait_for_the_next_question_and_keep_their_order() -> None:
    world = World()
    cohort, hear = world.cohort(), world.component.hear
    world.office.begin_round(0)
    cohort.tell(hear, 1)
    cohort.tell_now(hear, 2)
    cohort.tell(hear, 3)
    assert world.wire.requests[0] == 0
    assert world.heard(0) == []
    cohort.ask(hear, 4)
    assert all(world.heard(c) == [1, 2, 3, 4] for c in range(4))
    assert world.wire.requests[0] == 4  # one message a client
    cohort.ask(hear, 5)
    assert world.heard(3) == [1, 2, 3, 4, 5]


def test_a_lasting_tell_reaches_clients_that_were_not_there_a_passing_one_does_not() -> None:
    world = World()
    hear = world.component.hear
    world.office.begin_round(0)
    cohort = world.cohort([0, 1])
    cohort.tell(hear, "lasting")
    cohort.tell_now(hear, "passing")
    cohort.ask(hear, "who")
    assert world.heard(0) == ["lasting", "passing", "who"]
    assert world.heard(3) == []
    world.office.begin_round(1)
    world.cohort([0, 3]).ask(hear, "now")
    assert world.heard(0) == ["lasting", "passing", "who", "now"]
    assert world.heard(3) == ["lasting", "now"]


def test_a_client_that_raises_is_out_for_the_round_and_catches_up_in_the_next() -> None:
    world = World()
    hear = world.component.hear
    world.office.begin_round(0)
    cohort = world.cohort()
    world.component.broken[2] = "no disk"
    cohort.tell(hear, "winners")
    assert sorted(cohort.ask(hear, "vote")) == [0, 1, 3]
    assert "toy.hear: RuntimeError: no disk" in world.office.dropped[2]
    assert cohort.client_ids == [0, 1, 3]
    assert len(cohort) == 3
    cohort.tell(hear, "model")
    assert sorted(cohort.ask(hear, "update")) == [0, 1, 3]
    world.component.broken.clear()
    world.office.begin_round(1)
    assert sorted(world.cohort().ask(hear, "vote")) == [0, 1, 2, 3]
    assert world.heard(2) == ["winners", "model", "vote"]
    assert world.heard(0) == ["winners", "vote", "model", "update", "vote"]


def test_a_lost_worker_costs_its_client_the_round() -> None:
    world = World()
    hear = world.component.hear
    world.office.begin_round(0)
    cohort = world.cohort()
    world.lost = {"client:1"}
    assert sorted(cohort.ask(hear, "a")) == [0, 2, 3]
    assert world.office.dropped == {1: "worker of client:1 ended with code -9"}
    cohort.tell(hear, "b")
    world.lost = set()
    assert sorted(cohort.ask(hear, "c")) == [0, 2, 3]  # back, but not before the next round
    world.office.begin_round(1)
    world.cohort().ask(hear, "d")
    assert world.heard(1) == ["b", "d"]


def test_a_client_that_was_restored_hears_again_what_it_has_forgotten() -> None:
    world = World()
    hear = world.component.hear
    world.office.begin_round(0)
    world.cohort().tell(hear, "keys")
    world.cohort().ask(hear, "ready")
    for party in world.parties.values():
        party.remembered.saved = party.remembered.done
    saved = dataclasses.replace(world.parties["client:1"].remembered)
    for number in (0, 1):
        world.office.begin_round(number)
        world.cohort().tell(hear, f"model {number}")
        world.cohort().ask(hear, "update")
    world.component.heard[1] = ["keys", "ready"]  # the process ended, and is restored from the checkpoint
    world.parties["client:1"].remembered = saved
    world.office.begin_round(2)
    assert sorted(world.cohort().ask(hear, "update")) == [0, 1, 2, 3]
    assert world.heard(1) == ["keys", "ready", "model 0", "model 1", "update"]


def test_a_client_that_cannot_be_brought_up_to_date_is_out() -> None:
    world = World()
    hear, exchange = world.component.hear, world.exchange
    world.office.begin_round(0)
    world.cohort().tell(hear, "keys")
    world.cohort().tell(hear, "model")
    world.cohort().ask(hear, "ready")
    memory = world.parties["client:1"].remembered

    def forgetful(messages: dict[str, bytes]) -> Iterator[tuple[str, bytes | Exception]]:
        memory.done -= 1  # it has done less every time it is asked
        return exchange(messages)

    world.exchange = forgetful  # type: ignore[method-assign]
    assert sorted(world.cohort().ask(hear, "update")) == [0, 2, 3]
    assert "started again" in world.office.dropped[1]
    assert world.wire.requests[0] == 4 + 5  # asked once more, and not for ever


def test_below_min_clients_the_round_ends_and_says_why() -> None:
    world = World(min_clients=3)
    world.office.begin_round(6)
    world.component.broken = {0: "no disk", 2: "no disk"}
    with pytest.raises(TooFewClients, match="round 7: 2 clients are left, min_clients is 3") as caught:
        world.cohort().ask(world.component.hear, "a")
    assert str(caught.value).count("no disk") == 1  # once a reason
    assert "(client 0, 2)" in str(caught.value)


def test_a_question_to_a_few_says_nothing_about_the_round() -> None:
    world = World(min_clients=3)
    world.office.begin_round(0)
    assert world.cohort().only([1]).ask(world.component.hear, "a") == {1: ["a", 1]}
    world.component.broken = {0: "x"}
    assert world.cohort().only([0]).ask(world.component.hear, "a") == {}
    assert world.cohort().client_ids == [1, 2, 3]


def test_groups_hold_every_client_once() -> None:
    world = World()
    cohort = world.cohort([0, 1, 2])
    assert cohort.groups == {"all": [0, 1, 2, 3]}
    for wrong in ({"a": [0, 1]}, {"a": [0, 1, 2, 3], "b": [3]}, {"a": [0, 1, 2, 3, 4]}):
        with pytest.raises(ValueError, match="groups must hold each of the 4 clients once"):
            cohort.regroup(wrong)
    cohort.regroup({"a": [3, 0], "b": [1, 2]})
    assert world.cohort().groups == {"a": [0, 3], "b": [1, 2]}
    group = cohort.group("a")
    assert group.client_ids == [0]  # 3 does not take part in this round
    hear = world.component.hear
    world.office.begin_round(0)
    group.tell(hear, "model of a")
    world.cohort().ask(hear, "x")
    assert [world.heard(c) for c in range(4)] == [["model of a", "x"], ["x"], ["x"], ["model of a", "x"]]


def test_what_a_checkpoint_keeps_delivers_the_same_messages() -> None:
    world = World()
    hear = world.component.hear
    world.office.begin_round(0)
    world.cohort([0, 1]).tell(hear, "lasting")
    world.cohort([0, 1]).ask(hear, "who")
    state = world.office.state()
    other = World()
    other.component, other.parties = world.component, world.parties
    other.office.restore(state)
    other.office.begin_round(1)
    other.cohort().tell(hear, "next")
    other.cohort().ask(hear, "now")
    assert world.heard(0) == ["lasting", "who", "next", "now"]
    assert world.heard(3) == ["lasting", "next", "now"]


def test_lasting_calls_are_kept_until_the_client_was_saved_after_them() -> None:
    world = World()
    hear = world.component.hear
    world.office.begin_round(0)
    world.cohort().tell(hear, "model 0")
    world.cohort([0, 1, 2]).ask(hear, "now")
    assert len(world.office.state()["calls"]) == 1  # done by three, but saved by none
    for party in world.parties.values():
        party.remembered.saved = party.remembered.done
    world.office.begin_round(1)
    world.cohort().tell(hear, "model 1")
    world.cohort([0, 1, 2]).ask(hear, "now")
    assert world.office.state()["held"] == [[0, [2]], [1, [2]], [2, [2]], [3, [1, 2]]]


def test_the_key_server_answers_one_question_at_a_time() -> None:
    world = World()
    line = KeyServerLine(world.office)
    assert line.ask(world.component.open, "yes") == "YES"
    with pytest.raises(ClientError, match=r"the key server refused toy\.open: ValueError: not that"):
        line.ask(world.component.open, "no")
    world.lost = {KEY_SERVER}
    with pytest.raises(ClientError, match="the key server is gone"):
        line.ask(world.component.open, "yes")
    assert world.wire.of_round(-1).key_server.total > 0
    assert world.wire.of_round(-1).down.total == 0


def test_reasons_that_differ_in_numbers_only_count_as_one() -> None:
    reasons = {c: f"client {c}: norm {c + 0.5} is above 3e-2" for c in range(9)} | {9: "no disk"}
    assert alike(reasons) == [("client 0: norm 0.5 is above 3e-2", list(range(9))), ("no disk", [9])]
    assert listed(list(range(9))) == "0, 1, 2, 3, 4 and 4 more"
    assert listed([3, 5]) == "3, 5"


def test_a_client_that_a_component_drops_is_out_for_the_round() -> None:
    world = World(min_clients=2)
    hear = world.component.hear
    world.office.begin_round(0)
    cohort = world.cohort()
    cohort.ask(hear, "ballot")
    cohort.drop(2, "its ballot is a float")
    cohort.drop(2, "and another thing")
    assert world.office.dropped == {2: "its ballot is a float"}
    assert cohort.client_ids == [0, 1, 3]
    cohort.tell(hear, "winners")
    assert sorted(cohort.ask(hear, "update")) == [0, 1, 3]
    world.office.begin_round(1)
    assert sorted(world.cohort().ask(hear, "ballot")) == [0, 1, 2, 3]
    assert world.heard(2) == ["ballot", "winners", "ballot"]


MALFORMED: dict[str, Any] = {
    "done": ["x", None, -1, True, 99],
    "saved": [[], 1.5, 1],
    "reports": [5, None, [], {"seconds": 3}, {"seconds": {"train": "x"}}, {"seconds_total": "x"},
                {"train": {"loss": []}}, {"zones": {1: 0.5}},
                {"log": {"a": None}}, {"evaluation": {"count": 1}},
                {"evaluation": {"correct": 10**9, "count": 1, "loss": 0.0, "own_correct": 0, "own_count": 0}},
                {"evaluation": {"correct": 1, "count": 1, "loss": 0.0, "own_correct": -5, "own_count": 1}},
                {"unopened": {"clear": 3}},
                {"churn": b"x"}],
    "error": [None, "no", {"call": 1, "message": "x"}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value"), [(field, value) for field, values in MALFORMED.items() for value in values]
)
def test_a_malformed_reply_costs_its_client_the_round(field: str, value: Any) -> None:
    world = World()
    exchange = world.exchange

    def malformed(messages: dict[str, bytes]) -> Iterator[tuple[str, bytes | Exception]]:
        for address, answer in exchange(messages):
            if address == "client:1" and isinstance(answer, bytes):
                reply = codec.decode(codec.unframe(answer))
                answer = codec.frame(codec.encode({**reply, field: value}))
            yield address, answer

    world.exchange = malformed  # type: ignore[method-assign]
    world.office.begin_round(0)
    assert sorted(world.cohort().ask(world.component.hear, "a")) == [0, 2, 3]
    assert field in world.office.dropped[1]
    world.exchange = exchange  # type: ignore[method-assign]
    world.office.begin_round(1)
    assert sorted(world.cohort().ask(world.component.hear, "b")) == [0, 1, 2, 3]
