"""`ask` and `tell`: delayed messages, their delivery, and clients that drop out or catch up."""

from __future__ import annotations

import pytest
from fake_parties import World
from fedplug.api.errors import TooFewClients


def test_replies_come_back_by_client_in_ascending_order() -> None:
    world = World()
    replies = world.cohort().ask(world.component.hear, "hello")
    assert replies == {c: ["hello", c] for c in range(4)}
    assert list(replies) == [0, 1, 2, 3]


def test_each_client_is_asked_with_a_payload_that_goes_to_nobody_else() -> None:
    world = World()
    cohort, hear = world.cohort([0, 1, 3]), world.component.hear
    world.office.begin_round(0)
    cohort.tell_each_now(hear, {1: "first", 2: "of nobody here"})
    world.component.broken[3] = "no disk"
    assert cohort.ask_each(hear, {1: "b", 0: "a", 3: "d", 2: "c"}) == {0: ["a", 0], 1: ["b", 1]}
    assert (world.heard(0), world.heard(1), world.heard(2)) == (["a"], ["first", "b"], [])
    assert world.wire.requests[0] == 3  # one message each
    assert cohort.client_ids == [0, 1]
    assert cohort.ask_each(hear, {3: "again"}) == {}


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
    assert world.wire.requests[0] == 4  # one message per client
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


def test_below_min_clients_the_round_ends_and_says_why() -> None:
    world = World(min_clients=3)
    world.office.begin_round(6)
    world.component.broken = {0: "no disk", 2: "no disk"}
    with pytest.raises(TooFewClients, match="round 7: clients left: 2, min_clients is 3") as caught:
        world.cohort().ask(world.component.hear, "a")
    assert str(caught.value).count("no disk") == 1  # once per reason
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
