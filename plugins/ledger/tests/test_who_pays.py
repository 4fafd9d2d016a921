"""Nobody who pays nothing sends anything of its own, and whoever asks clients is named (third review from outside)."""

from __future__ import annotations

from typing import Any

import fedplug
import numpy as np
import pytest
import toy_components
from fedplug import Client, Clip, Facts, Look, Map, Noise, Operations, Post, Reveals, Shift, at_client
from fedplug.api.blocks import Block
from fedplug.api.errors import DataError
from fedplug.mechanisms import execution
from fedplug.mechanisms.execution import execute
from fedplug.recipe import catalog as installed_catalog
from fedplug.recipe.catalog import DISPLAY, RULES, Entry
from fedplug.recipe.composition import Composition
from fedplug.recipe.composition import strange as titles_of_strangers
from fedplug.recipe.recipe import Recipe
from toy_components import recipe_of, toy_catalog
from toy_protocol import run_protocol

RESTS = {
    "rounds": 4, "sampling": {"scheme": "cyclic", "rate": 0.25, "resting": "noise"},
    "data": {"use": "std.digits", "clients": 4, "partition": {"use": "std.iid"}},
    "negotiate_mask": {"use": "std.single_zone", "zone": "noised"},
}  # fmt: skip
NOISED = [{"use": "std.clip", "norm": 0.5}, {"use": "std.gaussian", "noise_multiplier": 4}]


@pytest.mark.parametrize(
    "own",
    [
        {"train": {"use": "baselines.feddpa", "tau": 0.05, "epochs": 1, "batch_size": 16, "lr": 0.01,
                   "clipping_norm": 0.5, "send_personal": True},
         "negotiate_mask": "baselines.feddpa", "protect": {"noised": ["baselines.feddpa", *NOISED]}},
        {"protect": {"noised": [{"use": "baselines.nbafl", "norm": 1.0, "epsilon": 1.0, "delta": 0.01,
                                 "min_examples": 10, "exposures": 8}]}},
    ],
    ids=["feddpa", "nbafl"],
)  # fmt: skip
def test_a_client_that_rests_has_nothing_but_zeros_beneath_its_noise(
    own: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    beneath: dict[tuple[int, int], float] = {}
    noised = execution._Execution._noised

    def seen(self: Any, noise: Noise, block: Block) -> Any:
        beneath[self.facts.round, self.party.client_id] = float(np.abs(block.plain()).max())
        return noised(self, noise, block)

    monkeypatch.setattr(execution._Execution, "_noised", seen)
    plain = recipe_of(**RESTS | own)
    made = Recipe.from_plain(plain, toy_catalog())
    run_protocol(plain)
    assert len(beneath) == 16
    for (round, client_id), largest in beneath.items():
        assert (largest == 0) == (client_id in made.resting(round))


def test_a_function_behind_noise_runs_for_those_who_rest_and_no_other_does(monkeypatch: pytest.MonkeyPatch) -> None:
    class Chain(fedplug.Protector):
        """Put something into zeros, wherever it can."""

        def protect(self, known: fedplug.Known, facts: Facts) -> Operations:
            put = lambda block, client, facts: block.replace(values=block.plain() + 5)  # noqa: E731
            more = Post(lambda values, public: values + 5)
            return (
                Map(put), more, Shift.model(1), Look(lambda *given: None), Clip(10.0),
                Noise.gaussian(1e-6, source="reproducible"), Post(lambda values, public: values * 2 + 1), Map(put),
            )  # fmt: skip

    plain = recipe_of("noised", [{"use": "toy.chain"}])
    monkeypatch.setitem(toy_components.TOYS, "protect", {**toy_components.TOYS["protect"], "toy.chain": Chain})
    given: list[Any] = []

    def prepare(protocol: Any, engine: Any) -> None:
        client = engine.clients.clients["client:0"]
        step = protocol.facts(0).steps("noised")[0]
        client.facts = protocol.facts(0)
        zeros = Block("noised", client.vector.size, np.zeros(client.vector.size, np.float32))
        given.append(execute(step, zeros, client, client.facts, rests=True).plain())

    run_protocol({**plain, "rounds": 1}, prepare=prepare)
    assert np.abs(given[0] - 1).max() < 1e-4


def test_who_rests_hands_no_function_what_it_remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a noise that is too weak to be charged a function could otherwise send an earlier update once more."""

    class Again(fedplug.Protector):
        """Send the first values in every round."""

        def protect(self, known: fedplug.Known, facts: Facts) -> Operations:
            def first(values: Any, public: fedplug.Public) -> Any:
                return public.memory.setdefault("first", values.copy())

            return Clip(1.0), Noise.gaussian(1e-9, source="reproducible"), Post(first)

    monkeypatch.setitem(toy_components.TOYS, "protect", {**toy_components.TOYS["protect"], "toy.again": Again})
    given: list[float] = []

    def prepare(protocol: Any, engine: Any) -> None:
        client = engine.clients.clients["client:0"]
        client.facts = protocol.facts(0)
        step = client.facts.steps("noised")[0]
        for value, rests in ((0.01, False), (0.0, True)):
            block = Block("noised", client.vector.size, np.full(client.vector.size, value, np.float32))
            given.append(float(np.abs(execute(step, block, client, client.facts, rests=rests).plain()).max()))

    run_protocol({**recipe_of("noised", [{"use": "toy.again"}]), "rounds": 1}, prepare=prepare)
    assert given[0] == pytest.approx(0.01, abs=1e-6)
    assert given[1] < 1e-6


def test_a_model_next_to_which_float32_rounds_noise_away_is_refused() -> None:
    plain = recipe_of(protect={"noised": [{"use": "baselines.nbafl", "norm": 1.0, "epsilon": 6.2, "delta": 0.01,
                                           "min_examples": 10}]},
                      negotiate_mask={"use": "std.single_zone", "zone": "noised"}, rounds=1)  # fmt: skip

    def diverged(protocol: Any, engine: Any) -> None:
        for client in engine.clients.clients.values():
            client.vector = np.full_like(client.vector, 8388708)

    with pytest.raises(fedplug.FedplugError, match="as finely as their noise asks, and one is 8"):
        run_protocol(plain, prepare=diverged)


def test_exact_noise_on_a_sum_has_no_grid_to_lie_on(monkeypatch: pytest.MonkeyPatch) -> None:
    class Exact(fedplug.Opener):
        """Add exact noise to a sum."""

        site = "server"

        def postprocess(self, known: fedplug.Known, facts: Facts) -> Operations:
            return (Noise.gaussian(1.0, source="exact"),)

    monkeypatch.setitem(toy_components.TOYS, "postprocess", {"toy.exact": Exact})
    plain = recipe_of(protect={"noised": [{"use": "std.clip", "norm": 1.0}]}, postprocess={"noised": ["toy.exact"]},
                      negotiate_mask={"use": "std.single_zone", "zone": "noised"})  # fmt: skip
    with pytest.raises(fedplug.RecipeError, match="adds exact noise to a sum, whose values lie on no grid"):
        Recipe.from_plain(plain, toy_catalog())


def test_public_examples_are_nobodys_training_examples() -> None:
    data = {"use": "std.digits", "clients": 4, "partition": {"use": "std.iid"}}
    with pytest.raises(fedplug.RecipeError, match=r"public: std\.digits is the data of the clients"):
        Recipe.from_plain(recipe_of(data=data, public={"use": "std.digits"}), toy_catalog())
    fewer = {"use": "std.digits", "train_size": 100}
    with pytest.raises(DataError, match=r"100 training examples are among the public ones"):
        run_protocol(recipe_of(data=data, public=fewer))


class Watch(fedplug.Extension):
    """Look at every update, and say so."""

    def observe(self, event: Any) -> None:
        """Nothing."""

    def prepare(self, cohort: Any, facts: Facts) -> None:
        cohort.ask(self.peek)

    @at_client
    def peek(self, client: Client) -> Any:
        return client.update

    def reveals(self, facts: Facts) -> list[Reveals]:
        return [Reveals("updates as they are", ("server", "released_model"), voids=True, asked=("peek",))]


class Silent(Watch):
    """Look at every update, and say nothing."""

    def reveals(self, facts: Facts) -> list[Reveals]:
        return []


@pytest.mark.parametrize("kind", [Watch, Silent])
def test_what_an_extension_asks_costs_its_readers_their_guarantee(
    kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(toy_components.TOYS, "extension", {"toy.watch": kind})
    plain = recipe_of(protect={"noised": NOISED}, extensions=[{"use": "toy.watch"}], rounds=1,
                      negotiate_mask={"use": "std.single_zone", "zone": "noised"})  # fmt: skip
    views = run_protocol(plain).protocol.ledger.report().views
    assert views["server"].epsilon is None


def test_rules_displays_and_engines_of_strangers_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    strange = {group: Entry("odd", group, "odd:Odd", "fedplug-odd", "1") for group in (RULES, DISPLAY, "engine")}
    found = installed_catalog.installed

    def offered(group: str) -> dict[str, Entry]:
        return {**found(group), **({"odd": strange[group]} if group in (RULES, DISPLAY) else {})}

    recipe = Recipe.from_plain(recipe_of(), toy_catalog())
    assert not Composition(recipe).strangers
    monkeypatch.setattr("fedplug.recipe.composition.installed", offered)
    composition = Composition(recipe, titles_of_strangers([strange["engine"]]))
    assert composition.strangers == ["rules odd", "display odd", "engine component odd"]


@pytest.mark.parametrize(("delta", "said"), [(1e-5, ()), (0.16, ("with a chance of 96%",)), (0.5, ())])
def test_a_delta_just_below_one_over_the_clients_is_told(delta: float, said: tuple[str, ...]) -> None:
    plain = recipe_of(delta=delta, data={"use": "std.digits", "clients": 6, "partition": {"use": "std.iid"}})
    notes = [note for note in Recipe.from_plain(plain, toy_catalog()).notes if note.startswith("delta=")]
    assert len(notes) == len(said)
    assert all(each in note for each, note in zip(said, notes, strict=True))
