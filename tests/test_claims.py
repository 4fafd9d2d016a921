"""Mixes whose claims hold because of what is executed: bounds that all parties know, and the model's noise."""

from __future__ import annotations

from typing import Any

import fedplug
import numpy as np
import pytest
import toy_components
from fedplug import Client, Clip, Facts, Known, Noise, Operations
from fedplug.api.errors import FedplugError
from fedplug.recipe.composition import hook_problems
from fedplug_baselines.dp_sgd import DpSgd
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


class Bareback(DpSgd):
    """Train without noise."""

    def train(self, client: Client, facts: Facts) -> dict[str, float]:
        return {}


def test_a_class_that_trains_otherwise_states_its_account_itself() -> None:
    (problem,) = hook_problems(Bareback, "trainer")
    assert problem.startswith("overrides train of DpSgd and inherits its round_release")


class Growing(fedplug.Protector):
    """Clip to a stored bound, which grows only at the clients."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Clip(facts.party.memory(self).get("norm", 1.0)), fedplug.Look(self.grow))

    def grow(self, block: Any, client: Client, facts: Facts) -> None:
        client.memory(self)["norm"] = 5.0


class Fading(fedplug.Protector):
    """Add noise that halves from round to round, only at the clients."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        std = known.need_norm("clip first") * 0.5 ** facts.party.memory(self).get("round", 0)
        return (fedplug.Look(self.count), Noise.gaussian(std))

    def count(self, block: Any, client: Client, facts: Facts) -> None:
        client.memory(self)["round"] = facts.round + 1


@pytest.mark.parametrize("chain", [(ODD, NOISE, Growing), (CLIP, ODD, Fading)], ids=["bound", "noise"])
def test_bounds_and_noise_that_a_client_alone_keeps_are_none(chain: Any, toys: Any) -> None:
    *links, found = chain
    toys("protect", found)
    with pytest.raises(FedplugError, match="its noised block keeps other bounds, or has other noise, than the server"):
        run_protocol(recipe_of("noised", links, train=PUSH, rounds=2))


class Told(fedplug.Protector):
    """Clip to a bound that the server computes and sends."""

    def setup(self, cohort: Any, key_server: Any, facts: Facts) -> None:
        norm = facts.party.memory(self)["norm"] = float(np.quantile([0.5, 1.5], 0.5))
        cohort.tell(self.learn, norm)

    @fedplug.at_client
    def learn(self, client: Client, norm: float) -> None:
        client.memory(self)["norm"] = norm

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Clip(facts.party.memory(self).get("norm", 1.0)),)


def test_bounds_that_everybody_was_told_hold(toys: Any) -> None:
    toys("protect", Told)
    outcome = run_protocol(recipe_of("noised", [ODD, NOISE], train=PUSH))
    assert outcome.rows[-1].clients.dropped == {}


def test_averaged_batch_norm_statistics_are_in_the_released_model() -> None:
    plain = recipe_of("noised", [CLIP, NOISE], train=PUSH, rounds=1, buffers="mean", model={"use": "std.cnn"})
    ledger = run_protocol(plain).protocol.ledger
    (shown,) = [each for each in ledger.reveals if each.what == "batch-norm statistics"]
    assert "released_model" in shown.to
    toward = ledger.verdict().toward("released_model")
    assert (toward.state, toward.epsilon) == ("none", None), "no noise is on them"
    assert toward.reason.startswith("sees batch-norm statistics, ")
