"""Mixes that claimed more than what runs: each is refused with a sentence now, or its claim is right."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Generator
from typing import Any

import fedplug
import numpy as np
import pytest
import toy_components
from fedplug import (
    Adds,
    Block,
    Bound,
    Client,
    Context,
    Effects,
    Known,
    Noise,
    Opens,
    Seal,
    hookimpl,
)
from fedplug.api.operations import Misplaced
from fedplug.api.errors import FedplugError, RecipeError
from fedplug.api.links import Link, fold
from fedplug.recipe.implementations import hook_problems
from fedplug.recipe.recipe import Recipe
from fedplug_baselines.dp_sgd import DpSgd
from fedplug_std.gaussian import CentralGaussian, Gaussian
from fedplug_std.mean import Mean
from toy_components import recipe_of, toy_catalog
from toy_protocol import run_protocol

PUSH = {"use": "toy.push"}
CLIP = {"use": "std.clip", "norm": 1.0}
SEAL = Seal(scheme="a test", opened_by="key_server", range=math.inf, step=0.0)


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a class known to recipes as `toy.odd`."""

    def known(group: str, found: type) -> None:
        monkeypatch.setitem(toy_components.TOYS, group, {**toy_components.TOYS.get(group, {}), "toy.odd": found})

    return known


def noised(*chain: Any, **changes: Any) -> dict[str, Any]:
    return recipe_of("noised", list(chain), train=PUSH, **changes)


def problems_of(plain: dict[str, Any]) -> str:
    with pytest.raises(RecipeError) as caught:
        Recipe.from_plain(plain, toy_catalog())
    return str(caught.value)


# -- who hides something, and where ------------------------------------------------------------------------------------


class Adding(fedplug.Opener):
    """Add noise to the sum, and forget to say that it is central."""

    site = "server"

    def opens(self, known: Known, ctx: Context) -> Effects:
        return (Noise(mechanism="gaussian", scale=known.need_norm("clip first", central=True)),)

    @hookimpl
    def postprocess(self, block: Block, ctx: Context) -> Block:
        return block.replace(values=block.plain() + np.random.default_rng().normal(size=block.size).astype(np.float32))


class Trusting(fedplug.Protector):
    """Call noise on an upload central."""

    def effects(self, known: Known, ctx: Context) -> Effects:
        return (Noise(mechanism="gaussian", scale=1.0, trust="central"),)

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        return block


class AtClients(CentralGaussian):
    """Add noise to a sum that clients have opened."""

    site = "client"


def test_noise_counts_where_it_is_added(toys: Any) -> None:
    toys("postprocess", Adding)
    said = problems_of(noised(CLIP, postprocess={"noised": [{"use": "toy.odd"}]}))
    assert "adds noise to the sum, at a server, and states trust='local'; that is 'central' noise" in said
    toys("protect", Trusting)
    said = problems_of(noised(CLIP, {"use": "toy.odd"}))
    assert "states trust='central'; that is 'local' or 'distributed' noise" in said


def test_noise_on_a_sum_that_clients_have_opened_hides_nothing(toys: Any) -> None:
    toys("postprocess", AtClients)
    seal, noise = {"use": "std.bfv", "key_holder": "clients"}, {"use": "toy.odd", "norm": 1.0, "noise_multiplier": 1.0}
    plain = recipe_of("encrypted", [CLIP, seal], train=PUSH, postprocess={"encrypted": ["std.bfv", noise]})
    assert "adds noise at the clients to the encrypted sum, which they have in hand" in problems_of(plain)


@pytest.mark.parametrize(("opened_by", "site"), [("key_server", "server"), ("clients", "server"), ("shares", "client")])
def test_a_sum_is_opened_by_those_who_hold_its_key(opened_by: Any, site: Any) -> None:
    class Says:
        def __init__(self, *stated: Any) -> None:
            self.stated = stated

        def effects(self, known: Known, ctx: Context) -> Any:
            return self.stated

        sums = opens = effects

    links = [
        Link("noised", "protect", "seal", Says(dataclasses.replace(SEAL, opened_by=opened_by)), "client"),
        Link("noised", "aggregate", "sum", Says(Adds()), "server"),
        Link("noised", "postprocess", "open", Says(Opens()), site),
    ]
    ctx = Context(0, 1, fedplug.Layout.of([("w", (4,))]), (), 3, 2, 7, "", fedplug.Server())
    with pytest.raises(Misplaced, match=f"at site='{site}', but seal states that {opened_by} open it"):
        fold(links, ctx)


# -- what is stated is what runs ---------------------------------------------------------------------------------------


class Half(Gaussian):
    """Add a tenth of the noise."""

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        return block


class Bareback(DpSgd):
    """Train without noise."""

    def train(self, client: Client, ctx: Context) -> dict[str, float]:
        return {}


class Ten(Mean):
    """Add up ten times."""

    @hookimpl
    def aggregate(self, blocks: dict[int, Block], weights: dict[int, float], ctx: Context) -> Block:
        total = super().aggregate(blocks, weights, ctx)
        return total.replace(values=total.plain() * np.float32(10))


class TenThatSays(Ten):
    """Say that it is a sum."""

    def sums(self, known: Known, ctx: Context) -> Effects:
        return (Adds(),)


def test_a_class_that_does_something_else_states_it_itself() -> None:
    (problem,) = hook_problems(Half, "protect")
    assert problem.startswith("overrides protect of Gaussian and inherits its effects, which says what that one does")
    (problem,) = hook_problems(Bareback, "trainer")
    assert problem.startswith("overrides train of DpSgd and inherits its round_release")
    (problem,) = hook_problems(Ten, "aggregate")
    assert "or write sums = Mean.sums if all of it still holds" in problem
    assert hook_problems(TenThatSays, "aggregate") == []


def test_a_sum_is_compared_with_the_uploads(toys: Any) -> None:
    toys("aggregate", TenThatSays)
    with pytest.raises(FedplugError, match="it states that it adds the weighted uploads up, and 650 of 650 values"):
        run_protocol(noised(CLIP, aggregate={"use": "toy.odd"}))


class Bare(fedplug.Extension):
    """Send the block as it was before the noise."""

    @hookimpl(wrapper=True)
    def protect(self, block: Block, client: Client, ctx: Context) -> Generator[None, Block, Block]:
        yield
        return block


class InPlace(fedplug.Extension):
    """Lengthen the block before it is clipped and noised."""

    @hookimpl(wrapper=True)
    def protect(self, block: Block, client: Client, ctx: Context) -> Generator[None, Block, Block]:
        block.plain()[:] *= 10
        return (yield)


@pytest.mark.parametrize("extension", [Bare, InPlace])
def test_extensions_look_on(extension: type, toys: Any) -> None:
    toys("extension", extension)
    noise = {"use": "std.gaussian", "noise_multiplier": 1.0}
    try:
        outcome = run_protocol(noised(CLIP, noise, extensions=["toy.odd"]))
    except FedplugError as error:
        reasons = [str(error)]
    else:
        reasons = [reason for row in outcome.rows for reason in row.clients.dropped.values()]
    assert any("an extension (toy.odd) changed what std." in reason for reason in reasons)


class Seeded(fedplug.Protector):
    """Draw noise from the recipe's seed, and not say so."""

    def effects(self, known: Known, ctx: Context) -> Effects:
        return (Noise(mechanism="gaussian", scale=known.need_norm("clip first")),)

    def draw(self, client: Client, size: int) -> Any:
        return client.rng(self).normal(0, 1, size)

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        return block.replace(values=block.plain() + self.draw(client, block.size).astype(np.float32))


class Secret(Seeded):
    """Draw it from the system, under a rotation of signs that everybody knows."""

    effects = Seeded.effects

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        signs = ctx.public_rng("signs").choice([-1.0, 1.0], block.size)
        noise = signs * self.draw(client, block.size)
        return block.replace(values=block.plain() + noise.astype(np.float32))

    def draw(self, client: Client, size: int) -> Any:
        return np.random.default_rng(list(os.urandom(32))).normal(0, 1, size)


def test_noise_that_is_said_to_be_secret_is_not_drawn_from_the_seed(toys: Any) -> None:
    toys("protect", Seeded)
    with pytest.raises(FedplugError, match="it states secure noise, and draws from the recipe's seed"):
        run_protocol(noised(CLIP, {"use": "toy.odd"}))
    toys("protect", Secret)
    assert run_protocol(noised(CLIP, {"use": "toy.odd"})).rows[-1].clients.dropped == {}


class Leaks(fedplug.Protector):
    """Put the values beside the values."""

    def effects(self, known: Known, ctx: Context) -> Effects:
        return ()

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        return block.replace(meta={"raw": block.plain().copy()})


class Points(Leaks):
    """Show which values are large: by one each in positions that stay in order."""

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        sizes = np.abs(block.plain())
        return block.replace(positions=(2 * np.arange(block.size) + (sizes > np.median(sizes))).astype(np.uint32))

    effects = Leaks.effects


@pytest.mark.parametrize(("found", "field"), [(Leaks, "meta"), (Points, "positions")])
def test_nothing_travels_beside_the_values_of_an_upload(found: type, field: str, toys: Any) -> None:
    toys("protect", found)
    with pytest.raises(FedplugError, match=f"it changed the block's {field}, which travel in the clear"):
        run_protocol(noised(CLIP, {"use": "toy.odd"}, {"use": "std.gaussian", "noise_multiplier": 1.0}))


class Growing(fedplug.Protector):
    """Clip to what it keeps, which grows at the clients alone."""

    def _norm(self, party: Any) -> float:
        return float(party.memory(self).get("norm", 1.0))

    def effects(self, known: Known, ctx: Context) -> Effects:
        return (Bound(self._norm(ctx.party)),)

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        norm, values = self._norm(client), block.plain()
        client.memory(self)["norm"] = 5.0
        return block.replace(values=(values * min(1.0, norm / np.linalg.norm(values) / 1.001)).astype(np.float32))


class Fading(fedplug.Protector):
    """Add noise that halves from round to round, at the clients alone."""

    def effects(self, known: Known, ctx: Context) -> Effects:
        known.need_norm("clip first")
        return (Noise(mechanism="gaussian", scale=0.5 ** ctx.party.memory(self).get("round", 0)),)

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        client.memory(self)["round"] = ctx.round + 1
        noise = np.random.default_rng(list(os.urandom(32))).normal(0, 0.5**ctx.round, block.size)
        return block.replace(values=block.plain() + noise.astype(np.float32))


@pytest.mark.parametrize(
    "chain", [(Growing, {"use": "std.gaussian", "noise_multiplier": 1.0}), (CLIP, Fading)], ids=["bound", "noise"]
)
def test_bounds_and_noise_that_a_client_alone_keeps_are_none(chain: Any, toys: Any) -> None:
    toys("protect", next(part for part in chain if isinstance(part, type)))
    plain = noised(*({"use": "toy.odd"} if isinstance(part, type) else part for part in chain), rounds=2)
    with pytest.raises(FedplugError, match="its noised block keeps other bounds, or has other noise, than the server"):
        run_protocol(plain)


class Told(fedplug.Protector):
    """Clip to what the server works out and tells."""

    def setup(self, cohort: Any, key_server: Any, ctx: Context) -> None:
        norm = ctx.party.memory(self)["norm"] = np.quantile([0.5, 1.5], 0.5)
        cohort.tell(self.learn, float(norm))

    @fedplug.at_client
    def learn(self, client: Client, norm: float) -> None:
        client.memory(self)["norm"] = norm

    def effects(self, known: Known, ctx: Context) -> Effects:
        return (Bound(ctx.party.memory(self).get("norm", 1.0)),)

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        norm, values = client.memory(self)["norm"], block.plain()
        return block.replace(values=(values * min(1.0, norm / np.linalg.norm(values) / 1.001)).astype(np.float32))


def test_bounds_that_everybody_was_told_hold(toys: Any) -> None:
    toys("protect", Told)
    outcome = run_protocol(noised({"use": "toy.odd"}, {"use": "std.gaussian", "noise_multiplier": 1.0}))
    assert outcome.rows[-1].clients.dropped == {}


# -- what the model carries --------------------------------------------------------------------------------------------


def test_averaged_batch_norm_statistics_are_in_the_released_model() -> None:
    model = {"use": "std.cnn"}
    noise = {"use": "std.gaussian", "noise_multiplier": 1.0}
    ledger = run_protocol(noised(CLIP, noise, rounds=1, buffers="mean", model=model)).protocol.ledger
    (shown,) = [each for each in ledger.reveals if each.what == "batch-norm statistics"]
    assert "released_model" in shown.to
    assert ledger.report().views["released_model"].epsilon is None, "no noise is on them"
    assert ledger.verdict().startswith("NO end-to-end DP")
