"""Mixes whose claims hold because of what is executed: bounds that all parties know, and the model's noise."""

from __future__ import annotations

from typing import Any

import fedplug
import numpy as np
import pytest
import toy_components
from fedplug import Client, Clip, Facts, Known, Noise, Operations
from toy_components import recipe_of
from toy_protocol import run_protocol

PUSH = {"use": "toy.push"}
CLIP = {"use": "std.clip", "norm": 1.0}
NOISE = {"use": "std.gaussian", "noise_multiplier": 1.0}
ODD = {"use": "toy.odd"}


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a class known to recipes as `toy.odd`."""

    def known(group: str, found: type) -> None:
        monkeypatch.setitem(toy_components.TOYS, group, {**toy_components.TOYS.get(group, {}), "toy.odd": found})

    return known


class Growing(fedplug.Protector):
    """Clip to a bound that grows, only at the clients, by which no hook of facts can go."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Clip(facts.of(self).get("norm", 1.0)), fedplug.Look(self.grow))

    def grow(self, block: Any, client: Client, facts: Facts) -> None:
        client.memory(self)["norm"] = 5.0


class Fading(fedplug.Protector):
    """Add noise that halves from round to round, as the public round says."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Noise.gaussian(known.need_norm("clip first") * 0.5**facts.round),)


def test_a_bound_that_a_client_alone_keeps_reaches_no_operation(toys: Any) -> None:
    toys("protect", Growing)
    ledger = run_protocol(recipe_of("noised", [ODD, NOISE], train=PUSH, rounds=2)).protocol.ledger
    assert [entry.zones["noised"].releases[0].clipping_norm for entry in ledger.log] == [1.0, 1.0]


def test_noise_that_changes_with_the_round_is_priced_as_it_is_in_each(toys: Any) -> None:
    toys("protect", Fading)
    ledger = run_protocol(recipe_of("noised", [CLIP, ODD], train=PUSH, rounds=3)).protocol.ledger
    multipliers = [entry.zones["noised"].releases[0].noise_multiplier for entry in ledger.log]
    assert multipliers == pytest.approx([1.0, 0.5, 0.25])


class Told(fedplug.Protector):
    """Clip to a bound that the server computes and publishes."""

    def setup(self, cohort: Any, key_server: Any, facts: Facts) -> None:
        cohort.publish(self, {"norm": float(np.quantile([0.5, 1.0], 0.5))}, covered_by="nothing to pay")

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Clip(facts.of(self).get("norm", 1.0)),)


def test_bounds_that_everybody_was_told_hold(toys: Any) -> None:
    toys("protect", Told)
    outcome = run_protocol(recipe_of("noised", [ODD, NOISE], train=PUSH))
    assert outcome.rows[-1].clients.dropped == {}
    ledger = outcome.protocol.ledger
    assert [entry.zones["noised"].releases[0].clipping_norm for entry in ledger.log] == [0.75, 0.75]
    assert ledger.verdict().status == "protected_from_all"


def test_averaged_batch_norm_statistics_are_in_the_released_model() -> None:
    plain = recipe_of("noised", [CLIP, NOISE], train=PUSH, rounds=1, buffers="mean", model={"use": "std.cnn"})
    ledger = run_protocol(plain).protocol.ledger
    (shown,) = [each for each in ledger.reveals if each.what == "batch-norm statistics"]
    assert "released_model" in shown.to
    toward = ledger.verdict().toward("released_model")
    assert (toward.state, toward.epsilon) == ("none", None), "no noise is on them"
    assert toward.reason.startswith("sees batch-norm statistics, ")
