"""Protecting: an update leaves its client as its plan says, once a round."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from faulty_clients import PUSH, sent_again
from fedplug.api.errors import TooFewClients
from toy_components import paraaegis, pushed, recipe_of
from toy_protocol import build, initial_vector, run_protocol


def test_noise_cannot_be_averaged_away_by_asking_again() -> None:
    noise = {"use": "std.gaussian", "noise_multiplier": 2.0, "source": "secure"}
    protocol, engine, _ = build(recipe_of("noised", [{"use": "std.clip", "norm": 1.0}, noise], rounds=3))
    protocol.setup()
    protocol.round(0)
    recorded = [call for m in protocol.wire.messages if m.receiver == "client:1" and m.round == 0
                for call in m.decode()["calls"]]  # fmt: skip
    train, protect = (next(call for call in recorded if call[3] == name) for name in ("train", "protect"))

    def refused(*calls: list[Any]) -> str:
        for body in calls[:-1]:
            assert sent_again(protocol, engine, body).error is None
        reply = sent_again(protocol, engine, calls[-1])
        assert reply.value is None
        return str(reply.error.message)

    assert "has protected its update of round 1 already" in refused(protect)
    assert "has trained in round 1 already" in refused(train)
    later = [0, 1, *protect[2:]]
    assert "has not trained in round 2" in refused(later)  # the update of another round
    assert "there is no round 10 to train in; the recipe has 3" in refused([0, 9, *train[2:]])


def test_a_client_without_a_plan_is_told_so() -> None:
    with pytest.raises(TooFewClients, match="client 0 has no plan in round 1"):
        run_protocol(recipe_of(negotiate_mask={"use": "toy.asks", "question": "nothing"}))


def test_retained_values_are_in_no_message() -> None:
    plain = recipe_of(train=PUSH, negotiate_mask={"use": "toy.own"}, rounds=1)
    outcome = run_protocol(plain)
    wire = b"".join(message.data for message in outcome.wire.messages)
    update = pushed(initial_vector(plain), 7, 2, 0)
    kept = np.arange(len(update)) % 4 == 2
    assert [value.tobytes() in wire for value in update[kept][:40]] == [False] * 40
    assert [value.tobytes() in wire for value in update[~kept][:40]] == [True] * 40


def test_an_empty_zone_is_no_ciphertext() -> None:
    """Spec 39."""
    plain = paraaegis(0.3, rounds=3, decay=0.01)  # 195, 1, and then no scalars
    outcome = run_protocol(plain)
    assert [row.zones["encrypted"] * 650 for row in outcome.rows] == pytest.approx([195, 1, 0])
    sizes = [outcome.wire.of_round(round).up.zones.get("encrypted", 0) for round in range(3)]
    assert sizes[0] > 0
    assert sizes[1] > 0
    assert sizes[2] == 0
    for message in outcome.sent("server", round=2):
        assert "encrypted" not in message.decode()["value"]["blocks"]


def test_clients_keep_no_copy_of_what_they_sent() -> None:
    protocol, engine, _ = build(recipe_of(rounds=2))
    protocol.setup()
    protocol.round(0)
    for client in engine.clients.clients.values():
        assert (client.update, client.trained) == (None, None)
