"""The mistakes that an ordinary author of a plugin makes, in five to fifteen lines each.

Each mistake cannot be written, or is refused, or ends in a verdict that protects nobody or names its assumption.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import fedplug
import numpy as np
import pytest
import toy_components
from fedplug import (
    AccountKeeper,
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
    Plans,
    Post,
    Public,
    Reveals,
    Scale,
    at_client,
)
from fedplug.api.errors import FedplugError
from fedplug_baselines.dp_sgd import DpSgd
from fedplug_ledger.verdict import Verdict
from fedplug_ledger.wording import PLAIN_VALUES
from toy_components import recipe_of
from toy_protocol import run_protocol

PUSH = {"use": "toy.push"}
CLIP = {"use": "std.clip", "norm": 1.0}
NOISE = {"use": "std.gaussian", "noise_multiplier": 2.0}
ODD = {"use": "toy.odd"}
Values = Any


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a class known to recipes as `toy.odd`."""

    def known(group: str, found: type) -> None:
        monkeypatch.setitem(toy_components.TOYS, group, {**toy_components.TOYS.get(group, {}), "toy.odd": found})

    return known


def verdict_of(*chain: Any, **changes: Any) -> Verdict:
    """The verdict of a short run with this chain in its only zone."""
    outcome = run_protocol(recipe_of("noised", list(chain), train=PUSH, **changes))
    dropped = [reason for row in outcome.rows for reason in row.clients.dropped.values()]
    assert not dropped, dropped[0]
    return outcome.protocol.ledger.verdict()


def refusal_of(*chain: Any, **changes: Any) -> str:
    """Why such a run is refused, before it starts or before a release."""
    try:
        outcome = run_protocol(recipe_of("noised", list(chain), train=PUSH, **changes))
    except FedplugError as error:
        return str(error)
    return " ".join(reason for row in outcome.rows for reason in row.clients.dropped.values())


# -- noise and its bound -----------------------------------------------------------------------------------------------


class NoClip(fedplug.Protector):
    """Forget that a multiplier needs a bound."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Noise.gaussian(1.0),)


class NoiseThenClip(fedplug.Protector):
    """Clip values that are already noised."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Noise.gaussian(1.0), Clip(1.0))


class LaplaceBehindL2(fedplug.Protector):
    """Scale Laplace noise to a norm of another order."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Clip(1.0), Noise.laplace(2.0))


@pytest.mark.parametrize("mistake", [NoClip, NoiseThenClip, LaplaceBehindL2])
def test_noise_without_a_bound_of_its_order_before_it_has_no_price(mistake: type, toys: Any) -> None:
    toys("protect", mistake)
    verdict = verdict_of(ODD)
    assert verdict.status == "no_protection"
    assert verdict.toward("released_model").reason == "the noise does not protect: epsilon is infinite"


class Half(fedplug.Protector):
    """Take the half of the deviation for it."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Noise.gaussian(2.0 * known.need_norm("clip first") / 2),)


class Root(fedplug.Protector):
    """Take the root of the deviation for it."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Noise.gaussian(math.sqrt(4.0) * known.need_norm("clip first")),)


@pytest.mark.parametrize(("mistake", "multiplier"), [(Half, 1.0), (Root, 2.0)])
def test_another_deviation_is_priced_as_what_it_is(mistake: type, multiplier: float, toys: Any) -> None:
    toys("protect", mistake)
    outcome = run_protocol(recipe_of("noised", [CLIP, ODD], train=PUSH, rounds=1))
    (release,) = outcome.protocol.ledger.log[0].zones["noised"].releases
    assert release.noise_multiplier == pytest.approx(multiplier)
    assert outcome.protocol.ledger.epsilon() == pytest.approx(fedplug.gaussian_epsilon(multiplier, 1e-5))


# -- samplers of an author's own ---------------------------------------------------------------------------------------


class Own(fedplug.Protector):
    """State its own mechanism, but draw differently."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Noise.own("gaussian", self.sample, multiplier=2.0, source="secure", order=2),)

    def sample(self, values: Values, public: Public, stream: np.random.Generator) -> Values:
        raise NotImplementedError


class AThousandth(Own):
    """Add a thousandth of what is stated."""

    def sample(self, values: Values, public: Public, stream: np.random.Generator) -> Values:
        return values + np.random.default_rng().normal(0, 0.002, len(values)).astype(np.float32)


class SeedZero(Own):
    """Draw from a generator that any party can make."""

    def sample(self, values: Values, public: Public, stream: np.random.Generator) -> Values:
        return values + np.random.default_rng(0).normal(0, 2.0, len(values)).astype(np.float32)


class ManualSeed(Own):
    """Seed torch, and draw."""

    def sample(self, values: Values, public: Public, stream: np.random.Generator) -> Values:
        import torch

        with torch.random.fork_rng():
            torch.manual_seed(0)
            return values + 2.0 * torch.randn(len(values)).numpy()


class LastTenBare(Own):
    """Do not change the last ten coordinates."""

    def sample(self, values: Values, public: Public, stream: np.random.Generator) -> Values:
        noise = np.random.default_rng().normal(0, 2.0, len(values)).astype(np.float32)
        noise[-10:] = 0
        return values + noise


class DrawnOnce(Own):
    """Draw noise once and keep it."""

    def sample(self, values: Values, public: Public, stream: np.random.Generator) -> Values:
        if "noise" not in public.memory:
            public.memory["noise"] = np.random.default_rng().normal(0, 2.0, len(values)).astype(np.float32)
        return values + public.memory["noise"]


class TopTenOnly(Own):
    """Add noise to the ten largest values alone."""

    def sample(self, values: Values, public: Public, stream: np.random.Generator) -> Values:
        noised, chosen = values.copy(), np.argsort(-np.abs(values))[:10]
        noised[chosen] += np.random.default_rng().normal(0, 2.0, 10).astype(np.float32)
        return noised


@pytest.mark.parametrize("mistake", [AThousandth, SeedZero, ManualSeed, LastTenBare, DrawnOnce, TopTenOnly])
def test_a_sampler_of_an_authors_own_is_priced_on_the_authors_word(mistake: type, toys: Any) -> None:
    toys("protect", mistake)
    for line in verdict_of(CLIP, ODD).lines:
        # Where values are not changed, clients of a recorded run find them in their messages.
        found = line.detail == PLAIN_VALUES
        assert "on the word of toy.odd" in line.rests_on or found or line.state == "absent"


def test_a_sampler_says_where_it_draws_from() -> None:
    with pytest.raises(TypeError, match="source"):
        Noise.own("gaussian", lambda values, public, stream: values, multiplier=1.0, order=2)  # type: ignore[call-arg]


# -- what follows from data --------------------------------------------------------------------------------------------


class Box:
    """Something that can be changed, on a component that cannot."""

    norm = 1.0


class KeptOnItself(fedplug.Protector):
    """Look at the length of an update, and scale the noise to it."""

    seen: ClassVar[list[float]] = []

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.box = Box()

    def protect(self, known: Known, facts: Facts) -> Operations:
        self.seen.append(self.box.norm)
        return (Look(self.measure), Noise.gaussian(2.0 * self.box.norm))

    def measure(self, block: Block, client: Client, facts: Facts) -> None:
        self.box.norm = float(np.linalg.norm(block.plain()))


def test_what_a_function_keeps_on_its_component_reaches_no_statement(toys: Any) -> None:
    toys("protect", KeptOnItself)
    outcome = run_protocol(recipe_of("noised", [CLIP, ODD], train=PUSH, rounds=3))
    assert set(KeptOnItself.seen) == {1.0}
    multipliers = [entry.zones["noised"].releases[0].noise_multiplier for entry in outcome.protocol.ledger.log]
    assert multipliers == pytest.approx([2.0] * 3)


class ScaleFromData(fedplug.Protector):
    """Scale the noise to the length of the update at hand."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Noise.gaussian(2.0 * float(np.linalg.norm(facts.party.update))),)  # type: ignore[attr-defined]


def test_a_statement_has_no_party_in_hand(toys: Any) -> None:
    toys("protect", ScaleFromData)
    said = "component toy.odd, hook protect: AttributeError: 'Facts' object has no attribute 'party'"
    assert said in refusal_of(CLIP, ODD)


class Feedback(fedplug.Protector):
    """Send the values that the noise has hidden again."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Map(self.correct),)

    def correct(self, block: Block, client: Client, facts: Facts) -> Values:
        memory, update = client.memory(self), client.update
        given = block.plain() + memory.get("missing", np.float32(0))
        memory["missing"] = update - given
        return given


class BareAgain(fedplug.Protector):
    """Remove the noise from the last ten coordinates."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Map(self.restore),)

    def restore(self, block: Block, client: Client, facts: Facts) -> Values:
        values = block.plain().copy()
        values[-10:] = client.update[-10:]
        return values


@pytest.mark.parametrize("mistake", [Feedback, BareAgain])
def test_a_function_with_the_data_in_hand_behind_noise_takes_its_price(mistake: type, toys: Any) -> None:
    toys("protect", mistake)
    assert verdict_of(CLIP, NOISE, ODD).status == "no_protection"


def test_error_feedback_before_the_clip_has_its_price(toys: Any) -> None:
    toys("protect", Feedback)
    assert verdict_of(ODD, CLIP, NOISE).status == "protected_from_all"


class BareBallots(fedplug.Negotiation, fedplug.Ballots):
    """State noise on ballots, and answer without."""

    plans = Plans(zones=frozenset({"noised"}))

    def ballots(self, facts: Facts) -> Operations:
        return (Clip(1.0), Noise.gaussian(2.0))

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        cohort.ask(self.lengths)
        cohort.tell(self.adopt)

    @at_client
    def lengths(self, client: Client) -> Values:
        return np.array([np.linalg.norm(client.update)], np.float32)

    @at_client
    def adopt(self, client: Client) -> None:
        client.plan = Plan.of(client.facts, "noised")

    def reveals(self, facts: Facts) -> list[Reveals]:
        return [Reveals("lengths", ("server",), covered_by="epsilon", asked=("lengths",))]


class NoisedBallots(BareBallots):
    """Do it."""

    @at_client
    def lengths(self, client: Client) -> Values:
        return client.release(self, np.array([np.linalg.norm(client.update)], np.float32))


def test_ballots_with_noise_are_those_that_were_released(toys: Any) -> None:
    toys("negotiate_mask", BareBallots)
    assert "lengths answers with values that did not pass through it" in refusal_of(CLIP, NOISE, negotiate_mask=ODD)
    toys("negotiate_mask", NoisedBallots)
    assert verdict_of(CLIP, NOISE, negotiate_mask=ODD).status == "protected_from_all"


class FullBatches(DpSgd):
    """Keep the account of Poisson batches, and train on everything."""

    def train(self, client: Client, facts: Facts) -> dict[str, float]:
        return {"loss": 0.0}


def test_an_account_rests_on_its_keeper(toys: Any) -> None:
    toys("trainer", FullBatches)
    plain = recipe_of("noised", [], train={"use": "toy.odd", "noise_multiplier": 1.0}, rounds=1)
    verdict = run_protocol(plain).protocol.ledger.verdict()
    assert issubclass(FullBatches, AccountKeeper)
    line = verdict.toward("server")
    assert (line.state, line.unit, line.rests_on[0]) == ("guaranteed", "record", "on the word of toy.odd")


class NothingSpent(fedplug.Accountant):
    """State that nothing costs anything."""

    def compose(self, releases: Any, delta: float, adjacency: str) -> dict[str, float]:
        return {"mine": 0.0}


class NoNumber(NothingSpent):
    """Divide nothing by nothing."""

    def compose(self, releases: Any, delta: float, adjacency: str) -> dict[str, float]:
        return {"mine": math.nan}


def test_an_accountant_of_an_authors_own_is_believed_on_the_authors_word(toys: Any) -> None:
    laplace = ({"use": "std.clip_l1", "norm": 1.0}, {"use": "std.laplace", "epsilon": 4})
    toys("accountant", NothingSpent)
    line = verdict_of(*laplace, accountant=ODD).toward("server")
    assert (line.epsilon, line.rests_on) == (0.0, ["on the word of toy.odd", "on the word of toy.push"])
    toys("accountant", NoNumber)
    assert "component toy.odd, compose: epsilon by mine is nan; it must be >= 0" in refusal_of(*laplace, accountant=ODD)


class PublicByData(fedplug.PublicPlan):
    """Say that plans are public, and choose by the update."""

    plans = Plans(zones=frozenset({"noised", "clear"}), own=frozenset({"noised", "clear"}))

    def plan(self, facts: Facts) -> str:
        return "noised"

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        cohort.tell(self.choose)

    @at_client
    def choose(self, client: Client) -> None:
        client.plan = Plan.of(client.facts, "noised", clear=np.abs(client.update) > 0.01)


def test_where_plans_are_public_a_client_goes_by_the_public_plan(toys: Any) -> None:
    toys("negotiate_mask", PublicByData)
    protect = {"noised": [CLIP, NOISE], "clear": []}
    outcome = run_protocol(recipe_of(train=PUSH, negotiate_mask=ODD, protect=protect))
    assert [row.zones["noised"] for row in outcome.rows] == [1.0, 1.0]
    assert outcome.protocol.ledger.verdict().status == "protected_from_all"


class PlanOfData(PublicByData):
    """Work the public plan out of the update."""

    def plan(self, facts: Facts) -> Plan:  # type: ignore[override]
        return Plan.of(facts, "noised", clear=np.abs(facts.party.update) > 0.01)  # type: ignore[attr-defined]


def test_public_plans_see_no_data(toys: Any) -> None:
    toys("negotiate_mask", PlanOfData)
    said = "component toy.odd, plan: AttributeError: 'Facts' object has no attribute 'party'"
    assert said in refusal_of(negotiate_mask=ODD, protect={"noised": [CLIP, NOISE], "clear": []})


class KeptBefore(fedplug.Protector):
    """Remember the values before the noise, and restore them after it."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Post(self.keep), Clip(1.0), Noise.gaussian(2.0), Post(self.restore))

    def keep(self, values: Values, public: Public) -> Values:
        public.memory["values"] = values.copy()
        return values

    def restore(self, values: Values, public: Public) -> Values:
        return public.memory["values"]


def test_a_memory_does_not_reach_across_noise(toys: Any) -> None:
    toys("protect", KeptBefore)
    assert "component toy.odd, hook protect, zone noised, Post: KeyError: 'values'" in refusal_of(ODD)


class NoiseInTheSum(fedplug.Aggregator):
    """Add noise where the uploads are added up."""

    def aggregate(self, known: Known, facts: Facts) -> Operations:
        return (fedplug.WeightedSum(), Noise.gaussian(2.0))


def test_noise_on_a_sum_is_central_whichever_hook_adds_it(toys: Any) -> None:
    toys("aggregate", NoiseInTheSum)
    ledger = run_protocol(recipe_of("noised", [CLIP], train=PUSH, aggregate=ODD)).protocol.ledger
    assert ledger.log[0].zones["noised"].releases[0].trust == "central"
    assert ledger.report().views["server"].epsilon is None


@pytest.mark.parametrize("coarse", [fedplug.Round(0.1), Clip(0.1, per="scalar")])
def test_what_is_coarse_behind_scaled_noise_takes_the_credit_for_that_of_others(coarse: Any, toys: Any) -> None:
    class Small(fedplug.Protector):
        """Make noised values small, and round or cut them."""

        def protect(self, known: Known, facts: Facts) -> Operations:
            return (Clip(1.0), Noise.gaussian(1.0), Scale(0.01 if isinstance(coarse, fedplug.Round) else 100.0), coarse)

    toys("protect", Small)
    ledger = run_protocol(recipe_of("noised", [ODD], train=PUSH, rounds=1)).protocol.ledger
    assert ledger.log[0].zones["noised"].uncredited


class Momentum(fedplug.Opener):
    """Keep a momentum of the sum, and have the server add its noise to that."""

    site = "server"

    def postprocess(self, known: Known, facts: Facts) -> Operations:
        return (Post(self.mean), Clip(1.0), Noise.gaussian(2.0))

    def mean(self, values: Values, public: Public) -> Values:
        public.memory["mean"] = 0.9 * public.memory.get("mean", np.zeros_like(values)) + values
        return public.memory["mean"]


def test_clients_in_a_memory_before_the_servers_noise_pay_in_every_round(toys: Any) -> None:
    """A client drawn once is in the momentum of all later rounds, so sampling a round hides nobody."""
    toys("postprocess", Momentum)
    plain = recipe_of("noised", [CLIP], train=PUSH, rounds=3)
    plain["data"]["clients"] = 20
    plain |= {
        "sampling": {"scheme": "poisson", "rate": 0.5}, "accountant": {"use": "std.pld"},
        "aggregate": {"use": "std.mean", "weighting": "uniform"}, "postprocess": {"noised": ["toy.odd"]},
    }  # fmt: skip
    ledger = run_protocol(plain).protocol.ledger
    assert not ledger.report().sampling.amplified
    assert [entry.charged for entry in ledger.log] == ["all"] * 3
    at_once = [{"use": "std.central_gaussian", "norm": 1.0, "noise_multiplier": 2.0}]
    assert run_protocol({**plain, "postprocess": {"noised": at_once}}).protocol.ledger.log[0].secret_cohort


# -- what is harmless passes with its price ----------------------------------------------------------------------------


class Harmless(fedplug.Protector, fedplug.Opener):
    """Halve, round, take signs, and keep a momentum of what is noised."""

    site = "server"

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Clip(5.0), Scale(0.5), fedplug.Round(0.01), Post(self.signs))

    def postprocess(self, known: Known, facts: Facts) -> Operations:
        return (Scale(0.5), Post(self.momentum))

    def signs(self, values: Values, public: Public) -> Values:
        return np.sign(values).astype(np.float32)

    def momentum(self, values: Values, public: Public) -> Values:
        public.memory["mean"] = 0.5 * public.memory.get("mean", np.zeros_like(values)) + values
        return public.memory["mean"]


def test_what_is_computed_of_noised_values_costs_nothing_more(toys: Any) -> None:
    toys("protect", Harmless)
    toys("postprocess", Harmless)
    plain = recipe_of("noised", [CLIP, NOISE], train=PUSH)
    bare = run_protocol(plain).protocol.ledger
    more = run_protocol({**plain, "protect": {"noised": [CLIP, NOISE, ODD]}, "postprocess": {"noised": ["toy.odd"]}})
    assert more.protocol.ledger.epsilon() == bare.epsilon()
    assert more.protocol.ledger.verdict().status == "protected_from_all"
    views = more.protocol.ledger.report().views
    assert views["server"].epsilon == bare.report().views["server"].epsilon
