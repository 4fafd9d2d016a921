"""Parties as components see them: a client's start, its measurements, and a component's memory."""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
import pytest
from fedplug import Client, Facts, Layout, Server
from fedplug.api.errors import ProtectionError

LAYOUT = Layout.of([("a.weight", (2,))])


def context(round: int = 0) -> Facts:
    return Facts(round, 3, LAYOUT, ("clear",), 4, 2, 7, "", components={"toy": object()})


def test_a_client_starts_from_its_own_model_where_it_has_one() -> None:
    shared, own = np.zeros(2, np.float32), np.ones(2, np.float32)
    client = Client(vector=shared)
    assert client.start is shared
    client.personal = own
    assert client.start is own
    assert client.local is own
    client.update = np.full(2, 0.5, np.float32)
    assert client.local.tolist() == [1.5, 1.5]


def test_the_seconds_of_an_operation_inside_another_are_the_inner_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    server, now = Server(), iter([0.0, 1.0, 5.0, 7.0])
    with monkeypatch.context() as patch:
        patch.setattr(time, "perf_counter", lambda: next(now))
        with server.operation("outer", 1), server.operation("inner", 4):
            pass
    assert server.operations == {"inner": [4, 4.0], "outer": [1, 3.0]}


def test_components_have_separate_memory() -> None:
    server = Server()
    one, other = SimpleNamespace(name="one"), SimpleNamespace(name="other")
    server.memory(one)["x"] = 1
    assert server.memory(one) == {"x": 1}
    assert server.memory(other) == {}
    with pytest.raises(KeyError, match=r"no component named 'absent'; it has \['toy'\]"):
        context().component("absent")


def test_streams_differ_by_client_round_and_purpose() -> None:
    component = SimpleNamespace(name="toy")
    drawn = set()
    for client_id in range(2):
        for round in range(2):
            client = Client(client_id=client_id)
            client.facts = context(round)
            drawn |= {client.rng(component, purpose).integers(2**62) for purpose in ("a", "b")}
    assert len(drawn) == 8
    public, own = context().public_rng("rotation"), context().rng("rotation")
    assert public.integers(2**62) != own.integers(2**62)


def test_a_client_without_scores_says_so() -> None:
    client = Client(client_id=3)
    with pytest.raises(ProtectionError, match="client 3 has no scores in this round; name one in score_parameters"):
        client.scores_by(None)
    client.scores = {"std.magnitude": np.ones(2, np.float32)}
    assert client.scores_by(None).tolist() == [1, 1]
    with pytest.raises(ProtectionError, match=r"client 3 has no scores of std\.fisher"):
        client.scores_by("std.fisher")
