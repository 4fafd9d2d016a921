"""The post office: delayed messages, clients that drop out of a round and the reasons, and the checkpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from fake_parties import World
from fedplug.api import codec
from fedplug.api.events import ReplyArrived
from fedplug.api.reports import Reports
from fedplug.wire.post_office import alike, listed


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
    world.component.heard[1] = ["keys", "ready"]  # the process ended, and was restored from the checkpoint
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
    assert world.wire.requests[0] == 4 + 5  # asked once more, and not forever


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


def test_reasons_that_differ_in_numbers_only_count_as_one() -> None:
    reasons = {c: f"client {c}: norm {c + 0.5} is above 3e-2" for c in range(9)} | {9: "no disk"}
    assert alike(reasons) == [("client 0: norm 0.5 is above 3e-2", list(range(9))), ("no disk", [9])]
    assert listed(list(range(9))) == "0, 1, 2, 3, 4 and 4 more"
    assert listed([3, 5]) == "3, 5"


MALFORMED: dict[str, Any] = {
    "done": ["x", None, -1, True, 99],
    "saved": [[], 1.5, 1],
    "reports": [5, None, [], {"seconds": 3}, {"seconds": {"train": "x"}}, {"seconds_total": "x"},
                {"train": {"loss": []}}, {"zones": {1: 0.5}},
                {"log": {"a": "x"}}, {"evaluation": {5: 1}}, {"unopened": {"clear": 3}},
                {"churn": b"x"}],
    "error": ["no", {"call": 1, "message": "x"}],
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


@pytest.mark.parametrize("wrong", [{"log": dict.fromkeys(map(str, range(1001)), 0.0)}, {}], ids=["refused", "failed"])
def test_what_a_client_found_in_its_messages_counts_whatever_else_is_wrong_with_the_reply(
    wrong: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who hides a leak behind a report that is refused hides nothing."""
    world, found, heard = World(), {"messages": 1, "found": {"noised": 4}}, []
    world.office.events.subscribe(ReplyArrived, heard.append)
    monkeypatch.setattr(world.parties["client:1"], "collect_reports", lambda: Reports(compared=found, **wrong))
    world.component.broken = {} if wrong else {1: "broken"}
    world.office.begin_round(0)
    assert sorted(world.cohort().ask(world.component.hear, "a")) == [0, 2, 3]
    assert {event.client_id: event.reports.compared for event in heard}[1] == found
    sent = [zones for (direction, _, _), zones in world.wire.counts[0].items() if direction == "up"]
    assert sent[0] > 1000 if wrong else sent[0] > 0
