"""What a component has in hand changes no bound, no noise and no entry: arrays, options, facts, weights, statements."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import (
    Block,
    Client,
    Clip,
    Cohort,
    Facts,
    Known,
    Look,
    Map,
    Noise,
    Operations,
    Plan,
    Reveals,
    Widen,
    at_client,
)
from fedplug.api.errors import FedplugError, TooFewClients
from fedplug.api.known import Release
from fedplug.recipe.recipe import Recipe
from fedplug_ledger.costs import times_square
from fedplug_ledger.ledger import Ledger
from mix_toys import install
from test_shown import CLIP, Talks, noise, run, views
from toy_base import Toy
from toy_components import recipe_of
from toy_protocol import Outcome, run_protocol


class Acts(Toy, fedplug.Protector):
    """A link; what it does is a test's."""

    class Options(fedplug.Options):
        norms: list[float] = fedplug.Field([1.0], description="bounds")

    def protect(self, known: Known, facts: Facts) -> Operations:
        return ()


def link(
    monkeypatch: pytest.MonkeyPatch, protect: Callable[..., Any], chain: Sequence[Any] = ("toy.acts",), **more: Any
) -> Outcome:
    install(monkeypatch, {"protect": {"toy.acts": type("Linked", (Acts,), {"protect": protect, **more})}})
    return run_protocol(recipe_of("noised", [each if each != "toy.acts" else {"use": each} for each in chain]))


# -- arrays ------------------------------------------------------------------------------------------------------------


def test_a_function_cannot_change_values_that_it_gave_or_was_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the clip it would lift the bound, behind the noise take it away."""
    kept: dict[int, Any] = {}
    norms: list[float] = []

    def give(block: Block, client: Client, facts: Facts) -> Any:
        kept[client.client_id] = np.zeros(block.size, np.float32)
        return kept[client.client_id]

    def lift(block: Block, client: Client, facts: Facts) -> None:
        kept[client.client_id][:] = 1e6
        assert block.values is not None
        below: Any = block.values
        while isinstance(below, np.ndarray):
            assert not below.flags.writeable
            below = below.base
        assert isinstance(below, bytes)

    def measure(block: Block, client: Client, facts: Facts) -> None:
        norms.append(float(np.linalg.norm(block.plain())))

    def protect(self: Any, known: Known, facts: Facts) -> Operations:
        return Map(give), Clip(1.0), Look(lift), Look(measure), Noise.gaussian(4.0)

    link(monkeypatch, protect)
    assert norms
    assert max(norms) <= 1


def test_an_update_is_what_training_made_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Swaps(Toy, fedplug.Scorer):
        def score_parameters(self, client: Client, facts: Facts) -> Any:
            with pytest.raises(ValueError, match="read-only"):
                client.update *= 0
            client.update = client.data.train.labels[: facts.layout.size].astype(np.float32)
            return np.zeros(facts.layout.size, np.float32)

    install(monkeypatch, {"score_parameters": {"toy.swaps": Swaps}})
    with pytest.raises(FedplugError, match="a component has put another update in the place of that of training"):
        run_protocol(recipe_of("noised", [CLIP, noise(2.0)], score_parameters=[{"use": "toy.swaps"}]))


# -- facts and options -------------------------------------------------------------------------------------------------


def test_what_a_function_keeps_in_options_or_facts_reaches_no_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def keep(block: Block, client: Client, facts: Facts) -> None:
        linked = next(step.link.component for step in facts.steps(block.zone))
        linked.options.norms.append(1e6)
        facts.component("toy.acts").options.norms.append(1e6)
        assert not hasattr(facts, "memo")

    def protect(self: Any, known: Known, facts: Facts) -> Operations:
        asked.append(len(self.options.norms))
        return Look(keep), Clip(self.options.norms[-1]), Noise.gaussian(4.0)

    link(monkeypatch, protect)
    assert set(asked) == {1}


def test_plain_options_are_each_components_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nobody can change a value: a function can still put another in its place."""
    asked: list[float] = []

    class Plain(Acts):
        class Options(fedplug.Options):
            norm: float = fedplug.Field(1.0, description="a bound")

    def keep(block: Block, client: Client, facts: Facts) -> None:
        vars(facts.component("toy.acts").options)["norm"] = 1e6
        vars(next(step.link.component for step in facts.steps(block.zone)).options)["norm"] = 1e6

    def protect(self: Any, known: Known, facts: Facts) -> Operations:
        asked.append(self.options.norm)
        return Look(keep), Clip(self.options.norm), Noise.gaussian(4.0)

    link(monkeypatch, protect, Options=Plain.Options)
    assert set(asked) == {1.0}


def test_a_plan_is_asked_of_what_no_function_has_had_in_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """A public plan that went by data of the round before would be no public fact."""
    seen: list[bool] = []

    class Planned(Toy, fedplug.PublicPlan):
        plans = fedplug.Plans(zones=frozenset({"noised"}))

        def plan(self, facts: Facts) -> str:
            seen.append("kept" in vars(self))
            return "noised"

    def keep(block: Block, client: Client, facts: Facts) -> None:
        vars(facts.component("toy.planned"))["kept"] = float(block.plain()[0])

    def protect(self: Any, known: Known, facts: Facts) -> Operations:
        return Look(keep), Clip(1.0), Noise.gaussian(4.0)

    install(monkeypatch, {"negotiate_mask": {"toy.planned": Planned}})
    install(monkeypatch, {"protect": {"toy.acts": type("Linked", (Acts,), {"protect": protect})}})
    run_protocol(recipe_of("noised", [{"use": "toy.acts"}], negotiate_mask={"use": "toy.planned"}, rounds=3))
    assert len(seen) >= 3
    assert not any(seen)


def test_what_is_public_is_handed_out_as_a_copy() -> None:
    told = {"a": {"norms": [1.0], "v": np.ones(2)}}
    facts = Facts(0, 1, fedplug.Layout(()), ("noised",), 2, 2, 7, "", published=told)
    facts.of("a")["norms"].append(5.0)  # type: ignore[index]
    assert facts.of("a")["norms"] == [1.0]
    with pytest.raises(ValueError, match="read-only"):
        facts.of("a")["v"][0] = 3


# -- sizes of noise ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"mechanism": "laplace", "std": 4.0}, "its price goes by the L1 norm"),
        ({"mechanism": "gaussian", "std": 4.0, "order": math.inf}, "its price goes by the L2 norm"),
        ({"mechanism": "gaussian", "std": 40.0, "size": lambda n: 0.1, "reads": "num_examples"}, "give one of them"),
        ({"mechanism": "gaussian", "std": 4.0, "takes_back": (0.0, math.nan)}, "finite"),
    ],
)
def test_noise_has_one_size_and_the_norm_of_its_mechanism(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Noise(**fields)


def test_zeros_behind_noise_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def protect(self: Any, known: Known, facts: Facts) -> Operations:
        return Clip(1.0), Noise.gaussian(4.0), Widen()

    with pytest.raises(FedplugError, match="give Widen before the noise"):
        link(monkeypatch, protect)


def test_taken_back_noise_is_charged_by_the_bounds_of_its_rounds() -> None:
    """y_2 + y_1 / 2 has fresh noise of 4 x 0.01 over x_2 + x_1 / 2, of which x_1 was up to 1 long."""
    book = Ledger(recipe_name="", num_clients=1, rounds=2, min_clients=1, delta=1e-5)
    for round, bound in enumerate((1.0, 0.01)):
        release = Release("gaussian", 4.0, bound, trust="central", takes_back=(0.5,) * round)
        book.record(round, charged=[0], zone_sizes={"noised": 3.0}, total=3, releases={"noised": [release]})
    moved = (0.01 + 0.5) / (4 * 0.01)
    assert book.costs["noised"].total[0] == pytest.approx(1 / 16 + moved**2)


def test_what_is_not_a_number_is_not_free() -> None:
    assert times_square(1.0, np.array([0.0, 2.0, math.nan])).tolist() == [0.0, 4.0, math.inf]


# -- weights and ballots -----------------------------------------------------------------------------------------------


def test_a_weight_is_at_most_one_wherever_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    class Weighs(Talks):
        def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
            super().negotiate_mask(cohort, facts)
            with pytest.raises(TypeError):
                cohort.server.weights[0] = 50.0  # type: ignore[index]
            cohort.server.remembered.weights[0] = 50.0

    assert 0 in run(monkeypatch, Weighs).rows[-1].clients.dropped


def test_one_client_of_many_values_does_not_repeat_a_vote_under_as_many_noises(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counts(Talks):
        def ballots(self, facts: Facts) -> Operations:
            return Clip(1.0), Noise.gaussian(10.0, trust="central")

        def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
            super().negotiate_mask(cohort, facts)
            votes = {c: np.ones(1 if c else 1000, np.float32) for c in cohort.client_ids}
            with pytest.raises(FedplugError, match="client 0 gave 1000 values, and others 1"):
                cohort.server.release(self, votes)
            cohort.server.release(self, {c: np.ones(1, np.float32) for c in cohort.client_ids[1:]})

    monkeypatch.setattr(Talks, "ballots", Counts.ballots, raising=False)
    run(monkeypatch, type("Votes", (Counts, fedplug.Ballots), {}))


def test_a_component_hands_its_cohort_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forges(Talks):
        def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
            super().negotiate_mask(cohort, facts)
            with pytest.raises(ValueError, match="hands it to nobody"):
                cohort.of(facts.component("std.clip"))

    run(monkeypatch, Forges)


# -- entries -----------------------------------------------------------------------------------------------------------


def test_an_upload_that_is_left_out_is_entered_as_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd(Talks):
        plans = fedplug.Plans(zones=frozenset({"noised", "clear"}))

        @at_client
        def take(self, client: Client) -> None:
            odd = np.arange(client.facts.layout.size) % 2 == 0 if client.client_id == 0 else None
            plan = Plan.of(client.facts, "noised") if odd is None else Plan.of(client.facts, "noised", clear=odd)
            client.plan = plan

    install(monkeypatch, {"negotiate_mask": {"toy.talks": Odd}})
    plain = recipe_of("noised", [CLIP, noise(2.0)], negotiate_mask={"use": "toy.talks"})
    plain["protect"]["clear"] = []
    outcome = run_protocol(plain)
    assert any("clear" in entry.zones for entry in outcome.protocol.ledger.log)
    assert views(outcome)["server"].state == "none"


def test_a_statement_of_a_round_that_ends_early_is_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    class Once(Talks):
        def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
            super().negotiate_mask(cohort, facts)
            if facts.round:
                raise TooFewClients("enough")

        def reveals(self, facts: Facts) -> Sequence[Reveals]:
            return [Reveals("updates", ("server",), voids=True, note="all")] if facts.round else []

    assert views(run(monkeypatch, Once))["server"].state == "none"


def test_a_cohort_that_was_published_is_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tells(Talks):
        covered: Any = "nothing to pay"

        def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
            super().negotiate_mask(cohort, facts)
            cohort.publish(self, {"n": len(cohort)}, covered_by=self.covered)

    central = [CLIP], [{"use": "std.central_gaussian", "noise_multiplier": 2.0, "norm": 1.0}]
    more = {"sampling": {"scheme": "poisson", "rate": 0.9}, "rounds": 2,
            "postprocess": {"noised": central[1]}, "protect": {"noised": central[0]}}  # fmt: skip
    secret = [entry.secret_cohort for kind in (Talks, Tells)
              for entry in run(monkeypatch, kind, **more).protocol.ledger.log]  # fmt: skip
    assert not any(secret[len(secret) // 2 :])


def test_a_zone_is_closed_on_the_terms_that_held_before_round_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdict says once how it is closed."""
    from toy_sealers import Bare

    class Later(Bare):
        def protect(self, known: Known, facts: Facts) -> Operations:
            (seal,) = super().protect(known, facts)
            return (dataclasses.replace(seal, scheme="bare" if facts.round else "AES"),)

    install(monkeypatch, {"protect": {"toy.later": Later}})
    plain = recipe_of("encrypted", [{"use": "toy.later"}], postprocess={"encrypted": ["toy.later"]}, rounds=2)
    with pytest.raises(FedplugError, match="round 2: a zone is closed on other terms than before round 1"):
        run_protocol(plain)


# -- whose word --------------------------------------------------------------------------------------------------------


def test_noise_in_a_link_covers_no_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(self: Any, cohort: Cohort, facts: Facts) -> None:
        cohort.ask(self.raw)

    @at_client
    def raw(self: Any, client: Client) -> Any:
        return client.update[:1]

    def reveals(self: Any, facts: Facts) -> Sequence[Reveals]:
        return [Reveals("a value", ("server",), covered_by="epsilon", asked=("raw",))]

    def protect(self: Any, known: Known, facts: Facts) -> Operations:
        return Clip(1.0), Noise.gaussian(4.0)

    line = views(link(monkeypatch, protect, prepare=ask, raw=raw, reveals=reveals))["server"]
    assert "a value" in line.not_covered


def test_sections_and_services_of_others_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedplug.recipe import composition as composing
    from fedplug.recipe.catalog import SERVICE, Entry
    from fedplug_ledger.charging import _words
    from toy_components import toy_catalog

    composition = composing.Composition(composing_recipe := Recipe.from_plain(recipe_of(), toy_catalog()))
    before = _words(composition)
    sections: Any = dict.fromkeys(("acme", "availability"), SimpleNamespace(uses={}))
    composition.recipe = dataclasses.replace(composing_recipe, sections=sections)
    real, strange = composing.installed, Entry("evaluation", SERVICE, "acme:judge", "acme-judge", "1")
    of_acme = {SERVICE: {"evaluation": strange}}
    monkeypatch.setattr(composing, "installed", lambda group: real(group) | of_acme.get(group, {}))
    assert set(_words(composition)) - set(before) == {"section acme", "service evaluation"}


def test_facts_lead_to_no_component_that_a_function_has_had_in_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue is not frozen: a bound could follow from values that a function put there in an earlier round."""
    found: list[int] = []

    def build(self: Any, options: Any) -> None:
        Acts.__init__(self, options)
        self.seen = collections.deque()

    def queues(self: Any, facts: Facts) -> list[Any]:
        return [each.component.seen for chain in facts.links.values() for each in chain if each.name == self.name]

    def protect(self: Any, known: Known, facts: Facts) -> Operations:
        found.extend(len(seen) for seen in queues(self, facts) if facts.round)
        return (Look(lambda block, client, facts: queues(self, facts)[0].append(float(np.abs(block.plain()).max()))),)

    link(monkeypatch, protect, __init__=build)
    assert found
    assert not any(found)


def test_what_runs_before_operations_are_asked_for_reaches_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scorer has the facts in hand before the chain is asked for, and all clients of a process have the same."""
    found: list[int] = []

    class Marks(Toy, fedplug.Scorer):
        def score_parameters(self, client: Client, facts: Facts) -> Any:
            facts.component("toy.acts").seen.append(1e6)
            facts.links["noised"][0].component.seen.append(1e6)
            return np.ones(facts.layout.size, np.float32)

    def build(self: Any, options: Any) -> None:
        Acts.__init__(self, options)
        self.seen = collections.deque()

    def protect(self: Any, known: Known, facts: Facts) -> Operations:
        found.append(len(self.seen))
        return Clip(1.0), Noise.gaussian(4.0)

    install(monkeypatch, {"score_parameters": {"toy.marks": Marks}})
    install(monkeypatch, {"protect": {"toy.acts": type("Linked", (Acts,), {"protect": protect, "__init__": build})}})
    run_protocol(recipe_of("noised", [{"use": "toy.acts"}], score_parameters=[{"use": "toy.marks"}], rounds=2))
    assert found
    assert not any(found)
