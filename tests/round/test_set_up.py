"""Set-up: every client is needed once, and its statements must be possible."""

from __future__ import annotations

import math
import re
from typing import Any, ClassVar

import numpy as np
import pytest
from faulty_clients import PUSH, tampered, with_value
from fedplug.api.errors import ClientError, ProtectionError, TooFewClients
from fedplug_std.mean import Mean
from toy_components import TOYS, paraaegis, recipe_of
from toy_protocol import build, calls_of


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "it is None: input should be a dict"), ({"num_examples": "9"}, "num_examples is '9'"),
        ({"num_examples": 0}, "num_examples is 0: input should be greater than or equal to 1"),
        ({"num_examples": 2**32 + 1}, "num_examples is 4294967297: input should be less than or equal to 4294967296"),
        ({"num_examples": 2**70}, "num_examples is a whole number of 71 bits: input should be less"),
        ({"num_examples": 9, "public_key": b"short"}, "public_key is b'short': data should have at least 32 bytes"),
        ({}, "lacks num_examples"),
    ],
    ids=str,
)  # fmt: skip
def test_a_hello_that_cannot_be_right_ends_the_set_up_with_the_reason(value: Any, reason: str) -> None:
    with pytest.raises(TooFewClients, match=f"missing: client 1: its reply cannot be used: its hello:? {reason}"):
        tampered(paraaegis(), with_value(value), phase="setup", rounds=(-1,))


class Heavy(Mean):
    """Weights clients by a test's own rule."""

    rule: ClassVar[Any] = None

    def client_weight(self, num_examples: int, max_examples: int) -> float:
        return Heavy.rule(num_examples, max_examples)


HEAVY = recipe_of("noised", [{"use": "std.clip", "norm": 1.0}], train=PUSH, aggregate={"use": "toy.heavy"}, rounds=1)


OF_WEIGHTS = "a weight is a number in (0, 1], such as num_examples / max_examples"


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (lambda count, most: float(count), r"it gave \d+\.0 for \d+ examples, where the most are \d+"),
        (lambda count, most: 0.0, r"it gave 0\.0 for"), (lambda count, most: -0.5, r"it gave -0\.5 for"),
        (lambda count, most: math.nan, "it gave nan for"), (lambda count, most: math.inf, "it gave inf for"),
        (lambda count, most: None, "it gave None for"), (lambda count, most: "1", "it gave '1' for"),
    ],
)  # fmt: skip
def test_a_weight_that_is_no_share_is_refused_before_anything_runs(
    rule: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Central noise, and the credit for the noise of others, assume weights in (0, 1]."""
    monkeypatch.setitem(TOYS["aggregate"], "toy.heavy", Heavy)
    monkeypatch.setattr(Heavy, "rule", staticmethod(rule))
    said = rf"component toy\.heavy, client_weight: {said}.*; {re.escape(OF_WEIGHTS)}"
    protocol, engine, _ = build(HEAVY)
    try:
        with pytest.raises(ProtectionError, match=said):
            protocol.setup()
        client = engine.clients.clients["client:0"]
        with pytest.raises(ProtectionError, match=said):
            protocol.steps.take_weight(client, 100_000)
        assert client.weight == 1.0
        monkeypatch.setattr(Heavy, "rule", staticmethod(lambda count, most: np.float32(0.5)))
        protocol.steps.take_weight(client, 100_000)
        assert client.weight == 0.5
    finally:
        engine.close()
    sent = [message for message in protocol.wire.messages if message.sender == "server"]
    assert not any("fedplug.take_weight" in calls_of(message) for message in sent)


def test_everyone_is_needed_for_the_set_up() -> None:
    protocol, engine, _ = build(recipe_of())
    deliver = engine.exchange

    def without_client_3(messages: dict[str, bytes]) -> Any:
        for address, answer in deliver(messages):
            yield address, ClientError("cable unplugged") if address == "client:3" else answer

    engine.exchange = without_client_3  # type: ignore[method-assign]
    with pytest.raises(TooFewClients, match="set-up needs every client once; missing: client 3: cable unplugged"):
        protocol.setup()
