"""What a link behind noise is not handed; behind the account of a level see test_accounts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import fedplug
import numpy as np
import pytest
from fedplug import Block, Bound, Changes, Effects, Reveals, Scales, Shifts, hookimpl
from fedplug.api.errors import TooFewClients
from toy_components import TOYS, recipe_of
from toy_protocol import Outcome, run_protocol

TAKEN: dict[str, Callable[[Any], Any]] = {
    "examples": lambda client: client.data.train.inputs.mean(),
    "test examples": lambda client: client.data.own_test.answers[0],
    "scores": lambda client: client.scores_by(None)[0],
    "update": lambda client: client.update[0],
    "update in numpy": lambda client: np.abs(client.update).max(),
    "local model": lambda client: client.local[0],
    "model": lambda client: client.model.get_vector()[0],
}


class Takes(fedplug.Protector):
    """Add a number that noise does not cover."""

    taken: ClassVar[Callable[[Any], Any]]
    said: ClassVar[Effects] = (Changes(),)
    shown: ClassVar[list[Reveals]] = []

    def effects(self, known: Any, ctx: Any) -> Effects:
        return self.said

    def reveals(self, ctx: Any) -> list[Reveals]:
        return self.shown

    @hookimpl
    def protect(self, block: Block, client: Any, ctx: Any) -> Block:
        number = np.float32(type(self).taken(client))
        return block if self.said == () else block.replace(values=block.plain() + number)


NOISE = [{"use": "std.clip", "norm": 1.0}, {"use": "std.gaussian", "noise_multiplier": 1.0}]


def ran(monkeypatch: pytest.MonkeyPatch, chain: list[Any], taken: str, **facts: Any) -> Outcome:
    monkeypatch.setitem(TOYS.setdefault("protect", {}), "toy.takes", Takes)
    monkeypatch.setattr(Takes, "taken", staticmethod(TAKEN[taken]), raising=False)
    for name, value in facts.items():
        monkeypatch.setattr(Takes, name, value)
    scores = [{"use": "std.magnitude"}]
    return run_protocol(recipe_of("noised", chain, score_parameters=scores, rounds=1))


@pytest.mark.parametrize("taken", TAKEN)
def test_a_link_behind_noise_goes_by_the_block_alone(monkeypatch: pytest.MonkeyPatch, taken: str) -> None:
    with pytest.raises(TooFewClients, match=r"component toy\.takes, .* its update behind the noise of std\.gaussian"):
        ran(monkeypatch, [*NOISE, {"use": "toy.takes"}], taken)


@pytest.mark.parametrize("said", [(Shifts(),), (Bound(1e9),), (Scales(1.0), Changes("kept"))])
def test_whatever_it_states(monkeypatch: pytest.MonkeyPatch, said: Effects) -> None:
    with pytest.raises(TooFewClients, match="behind the noise"):
        ran(monkeypatch, [*NOISE, {"use": "toy.takes"}], "update", said=said)


def test_before_the_noise_it_may_go_by_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = ran(monkeypatch, [{"use": "toy.takes"}, *NOISE], "update")
    assert outcome.protocol.ledger.verdict().startswith("DP: ")


def test_a_link_that_says_what_uploads_show_is_named_in_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = [Reveals("the largest value", ("aggregator", "released_model"))]
    outcome = ran(monkeypatch, [*NOISE, {"use": "toy.takes"}], "update", shown=shown)
    assert "UNACCOUNTED the largest value" in outcome.protocol.ledger.verdict()
    paid = [Reveals("the largest value", ("aggregator",), covered_by="epsilon")]
    with pytest.raises(TooFewClients, match="behind the noise"):
        ran(monkeypatch, [*NOISE, {"use": "toy.takes"}], "update", shown=paid)


def test_a_link_whose_values_stay_may_look(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ran(monkeypatch, [*NOISE, {"use": "toy.takes"}], "update", said=()).rows[-1].clients.dropped == {}


class Keeps(fedplug.Protector):
    """Keep the update where another component might find it."""

    def effects(self, known: Any, ctx: Any) -> Effects:
        return ()

    @hookimpl
    def protect(self, block: Block, client: Any, ctx: Any) -> Block:
        client.cache["values"] = client.memory(self)["values"] = block.plain().copy()
        client.cache[f"toy.takes.{block.plain()[0]}"] = client.cache["toy.takes.values"] = block.plain().copy()
        return block


@pytest.mark.parametrize("taken", ["cache", "state", "name", "keys"])
def test_behind_noise_nothing_is_handed_on_past_it(monkeypatch: pytest.MonkeyPatch, taken: str) -> None:
    places: dict[str, Callable[[Any], Any]] = {
        "cache": lambda client: client.cache["values"][0],
        "state": lambda client: client.state["toy.keeps"]["values"][0],
        "name": lambda client: client.cache["toy.takes.values"][0],
        "keys": lambda client: float(next(iter(client.cache)).removeprefix("toy.takes.")),
    }
    monkeypatch.setitem(TOYS.setdefault("protect", {}), "toy.keeps", Keeps)
    monkeypatch.setitem(TAKEN, taken, places[taken])
    how = "StopIteration" if taken == "keys" else "what others keep there"  # it sees no keys at all
    with pytest.raises(TooFewClients, match=rf"component toy\.takes, .*{how}"):
        ran(monkeypatch, [{"use": "toy.keeps"}, *NOISE, {"use": "toy.takes"}], taken)


class Remembers(fedplug.Protector):
    """Count rounds under its own name, as a quantiser keeps what it has rounded away."""

    @hookimpl
    def protect(self, block: Block, client: Any, ctx: Any) -> Block:
        own = client.memory(self)
        own["rounds"] = own.get("rounds", 0) + 1
        client.cache[f"{self.name} {block.zone}"] = own["rounds"]
        assert client.cache.pop(f"{self.name} {block.zone}") == ctx.round + 1
        return block

    def effects(self, known: Any, ctx: Any) -> Effects:
        return (Changes(),)


def test_behind_noise_a_link_finds_what_it_keeps_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOYS.setdefault("protect", {}), "toy.remembers", Remembers)
    outcome = run_protocol(recipe_of("noised", [*NOISE, {"use": "toy.remembers"}], rounds=3))
    assert all(row.clients.dropped == {} for row in outcome.rows)


class Adopts(fedplug.Opener):
    """Add to the sum, at each client, what no noise covers."""

    site = "client"
    said: ClassVar[Effects | None] = (Changes(),)

    def opens(self, known: Any, ctx: Any) -> Any:
        return self.said

    @hookimpl
    def postprocess(self, block: Block, ctx: Any) -> Block:
        return block.replace(values=block.plain() + np.float32(ctx.party.data.train.inputs.mean()))


def test_a_link_that_clients_run_on_the_sum_goes_by_the_block_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOYS.setdefault("postprocess", {}), "toy.adopts", Adopts)
    plain = recipe_of("noised", NOISE, postprocess={"noised": [{"use": "toy.adopts"}]}, rounds=1)
    outcome = run_protocol(plain)
    assert all(np.array_equal(vector, outcome.vectors[0]) for vector in outcome.vectors.values())
    monkeypatch.setattr(Adopts, "said", None)
    assert not run_protocol(plain).protocol.ledger.verdict().startswith("DP")
