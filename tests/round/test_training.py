"""Training: once a round, from the global model, for any clients in one process, on examples or on none."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest
from fedplug.engines.base import Job
from fedplug.engines.local import LocalEngine
from fedplug.recipe.recipe import Recipe
from fedplug.round.parties import ClientHost
from fedplug.wire.calls import read_reply
from fedplug_ledger.accounting import gaussian_epsilon
from mix_toys import install
from publish_toys import PUBLISHING, Rests
from toy_components import paraaegis, recipe_of, toy_catalog
from toy_protocol import Outcome, build, run_protocol


def test_a_message_of_an_earlier_round_trains_and_votes_no_more() -> None:
    protocol, engine, _ = build(paraaegis(rounds=3))
    protocol.setup()
    protocol.run()
    old = next(m for m in protocol.wire.messages if m.receiver == "client:1" and m.round == 0)
    ((_, answer),) = engine.exchange({"client:1": old.data})
    assert isinstance(answer, bytes)
    reply = read_reply(answer)[0]
    assert "fedplug.train belongs to round 1, but this client has been in round 4 already" in reply.error.message
    assert reply.value is None


def test_what_components_see_of_the_model_does_not_depend_on_who_shares_the_process() -> None:
    class Apart(LocalEngine):
        """A separate host for every client, as if each had a process."""

        def __init__(self, job: Job) -> None:
            super().__init__(job)
            for client_id, address in enumerate(list(self._hosts)):
                host = ClientHost(*job.build(), [client_id], None, "cpu")
                self._hosts[address] = host
                self.hosts.append(host)
            del self.hosts[0]

    plain = recipe_of(negotiate_mask={"use": "toy.asks", "question": "model"}, rounds=2)
    plain["model"] = {"use": "std.cnn", "hidden": 8}
    seen = []
    for engine_class in (LocalEngine, Apart):
        protocol, _, _ = build(plain)
        job = Job(Recipe.from_plain(plain, toy_catalog()).to_plain(), catalog=toy_catalog())
        protocol.engine = protocol.office.transport = engine_class(job)
        protocol.setup()
        protocol.run()
        seen.append(protocol.server.state["toy.asks"])
    assert len(set(seen[0]["1"])) == 4  # every client has trained its own model
    assert seen[0] == seen[1]


# -- rounds without private data ---------------------------------------------------------------------------------------


@pytest.fixture
def rested(monkeypatch: pytest.MonkeyPatch) -> Outcome:
    """A run whose trainer reads examples in rounds 1 and 3 alone, and has models of the clients' own."""
    install(monkeypatch, PUBLISHING)
    Rests.found.clear()
    noised = [{"use": "std.clip", "norm": 1.0}, {"use": "std.gaussian", "noise_multiplier": 4.0}]
    return run_protocol(recipe_of("noised", noised, train={"use": "toy.rests"}, rounds=4))


def found(key: str, round: int) -> list[Any]:
    """What the trainer was handed in a round, by client."""
    return [each[key] for each in sorted(Rests.found, key=lambda each: each["client"]) if each["round"] == round]


@pytest.mark.usefixtures("rested")
def test_training_that_reads_no_examples_is_handed_none() -> None:
    for round in (0, 2):
        assert min(found("examples", round)) > 0
        assert found("num_examples", round) == found("examples", round)
        assert found("ahead", round) == pytest.approx([1, 2, 3, 4], abs=1e-6)
        assert len(set(found("weight", round))) == 4
    for round in (1, 3):
        for key in ("examples", "tests", "num_examples", "labels", "ahead", "cache"):
            assert found(key, round) == [0] * 4, key
        assert found("scores", round) == [{}] * 4
        assert found("weight", round) == [1.0] * 4


@pytest.mark.usefixtures("rested")
def test_training_that_reads_no_examples_remembers_such_rounds_alone() -> None:
    labels = found("labels", 0)
    assert min(labels) > 0
    assert found("memory", 1) == [{}] * 4
    assert found("memory", 2) == [{"0": each} for each in labels]
    assert found("memory", 3) == [{"1": 0}] * 4


def test_a_round_without_examples_costs_nothing(rested: Outcome) -> None:
    ledger = rested.protocol.ledger
    assert [sorted(entry.zones) for entry in ledger.log] == [["noised"], [], ["noised"], []]
    assert ledger.epsilon() == pytest.approx(gaussian_epsilon(4.0 / 2**0.5, 1e-5))
    assert ledger.verdict().status == "protected_from_all"


def test_an_update_without_examples_is_the_same_at_all_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """It follows from the global model and the client's number alone, which are public."""
    install(monkeypatch, PUBLISHING)
    outcome = run_protocol(recipe_of(train={"use": "toy.rests"}, rounds=2))
    updates = [
        outcome.sent("server", f"client:{c}", round=1)[-1].decode()["value"]["blocks"]["clear"].plain()
        for c in range(4)
    ]
    assert np.abs(updates[0]).max() == pytest.approx(0.001, rel=1e-3)
    assert all(np.array_equal(updates[0], update) for update in updates)
    assert [sorted(entry.zones) for entry in outcome.protocol.ledger.log] == [["clear"], []]


def test_that_training_reads_no_examples_is_on_the_word_of_the_trainer(rested: Outcome) -> None:
    lines = [line for line in rested.protocol.ledger.verdict().lines if line.state == "guaranteed"]
    assert lines
    assert all("on the word of toy.rests" in line.rests_on for line in lines)


def test_examples_that_such_training_brings_are_counted() -> None:
    protocol, engine, _ = build(recipe_of())
    protocol.setup()
    whole = next(iter(engine.clients.clients.values()))
    client = whole.without_past()
    brought = copy.copy(client)
    brought.data = dataclasses.replace(client.data, train=whole.data.shared_test.take(np.arange(5)))
    assert (client.num_examples, brought.num_examples) == (0, 5)
