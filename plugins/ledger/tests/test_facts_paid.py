"""The cost of what follows from public facts: sizes by scores, published values, rounds without examples, masks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import fedplug
import numpy as np
import pytest
from fedplug import (
    Block,
    Client,
    Clip,
    Cohort,
    Facts,
    Field,
    Known,
    Map,
    Noise,
    Operations,
    Plan,
    Plans,
    Post,
    PublicPlan,
    Reads,
    Scoring,
)
from fedplug.api.blocks import Scores
from fedplug.api.known import Release
from fedplug_ledger.verdict import Line
from mix_toys import install
from toy_base import Toy
from toy_components import TOYS, Push, recipe_of
from toy_protocol import Outcome, initial_vector, run_protocol

CLIP = {"use": "std.clip", "norm": 1.0}
TWO_LAYERS = {"use": "std.mlp", "hidden": [4]}


def noise(multiplier: float, source: str = "secure") -> dict[str, Any]:
    return {"use": "std.gaussian", "noise_multiplier": multiplier, "source": source}


def paid(outcome: Outcome, zone: str = "noised") -> list[Release]:
    """What each round released in the zone."""
    return [entry.zones[zone].releases[0] for entry in outcome.protocol.ledger.log if zone in entry.zones]


def views(outcome: Outcome) -> Mapping[str, Line]:
    return outcome.protocol.ledger.report().views


# -- noise by scores ---------------------------------------------------------------------------------------------------


class Lengths(Toy, fedplug.Scorer):
    """Score each layer by the length of the global model in it, which everybody knows; or of the update."""

    class Options(fedplug.Options):
        """Which."""

        of: Literal["model", "update", "another model"] = Field("model", description="whose lengths")

    @property
    def scoring(self) -> Scoring:
        return Scoring(per="layer", public=self.options.of != "update")

    def score_parameters(self, client: Client, facts: Facts) -> Scores:
        return self.lengths(client.update if self.options.of == "update" else client.vector, facts)

    def public_scores(self, model: Any, vector: Any, facts: Facts) -> Mapping[int, Scores]:
        found = self.lengths(vector + (self.options.of == "another model"), facts)
        return dict.fromkeys(range(facts.num_clients), found)

    def lengths(self, vector: Any, facts: Facts) -> Scores:
        sums = np.bincount(facts.layout.per_scalar(np.arange(2)), np.square(vector, dtype=np.float64))
        return np.sqrt(sums).astype(np.float32)


class ByScores(Toy, fedplug.Protector):
    """Noise of as much as scores say, and at least as much as is charged; or less."""

    reads = Reads(per="layer", at_server=True)

    class Options(fedplug.Options):
        """How much."""

        factor: float = Field(1.0, description="of the noise")

    def protect(self, known: Known, facts: Facts) -> Operations:
        return Clip(1.0, per="layer"), Noise.by(self.size, reads="scores", at_least=1.0, note="By length")

    def size(self, scores: Scores, present: Any) -> Any:
        return self.options.factor * (2.0 + scores / scores.sum())


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a recipe with noise by scores."""
    install(monkeypatch, {"score_parameters": {"toy.lengths": Lengths}, "protect": {"toy.by_scores": ByScores}})

    def run(of: str = "model", factor: float = 1.0, **changes: Any) -> Outcome:
        return run_protocol(recipe_of(
            "noised", [{"use": "toy.by_scores", "factor": factor}], model=TWO_LAYERS,
            score_parameters=[{"use": "toy.lengths", "of": of}], **changes,
        ))  # fmt: skip

    return run


def test_noise_by_public_scores_costs_what_it_is_in_each_round(scored: Any) -> None:
    """(sum of (C_l / s_l)^2)^(-1/2) for the model that the round starts from, less what two machines may differ in."""
    outcome = scored()
    first, second = paid(outcome)
    model = {"model": TWO_LAYERS}
    lengths = Lengths(Lengths.Options()).lengths(initial_vector(recipe_of(**model)), outcome.protocol.server.facts)
    stds = 2.0 + lengths.astype(np.float64) / lengths.sum()
    assert first.noise_multiplier == pytest.approx((1 - 1e-3) / np.hypot(*(1 / stds)), rel=1e-6)
    assert 1.4 < second.noise_multiplier != first.noise_multiplier
    assert first.note.startswith("By length; ")
    assert "; what the layers of this round cost together with its public scores, stated after the fact, " in first.note
    assert first.note.endswith("before it, a bound: a multiplier of 1")
    assert (first.scored, first.words) == (True, [])


def test_a_bound_is_charged_where_scores_follow_from_data_or_the_server_has_no_model(scored: Any) -> None:
    private = scored("update")
    grouped = scored(negotiate_mask={"use": "toy.groups", "zone": "noised"})
    for outcome in (private, grouped):
        assert [release.noise_multiplier for release in paid(outcome)] == [1.0, 1.0]
        assert not any("after the fact" in release.note for release in paid(outcome))


def test_no_more_is_charged_than_the_bound_says_and_nobody_adds_less_noise_than_is_charged(scored: Any) -> None:
    with pytest.raises(fedplug.FedplugError, match=r"its noise has a multiplier of 0\.\d+ at this client, and 1 "):
        scored(factor=0.5)


def test_scores_that_are_not_those_of_everybody_earn_no_exact_price(scored: Any) -> None:
    with pytest.raises(fedplug.FedplugError, match=r"it gave client 0 other scores in round 1 than public_scores"):
        scored("another model")


# -- published values --------------------------------------------------------------------------------------------------


class Publishes(Toy, PublicPlan):
    """Publish the norm of the next clip."""

    plans = Plans(zones=frozenset({"noised"}))

    class Options(fedplug.Options):
        """On whose account."""

        covered_by: Literal["epsilon", "nothing to pay"] | None = None

    def plan(self, facts: Facts) -> str:
        return "noised"

    def prepare(self, cohort: Cohort, facts: Facts) -> None:
        norm = 1.0 if 0 in cohort.client_ids else 0.25
        cohort.publish(self, {"norm": norm}, covered_by=self.options.covered_by)


class ToPublished(Toy, fedplug.Protector):
    """Clip to it, with noise of 1."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        return Clip(facts.of("toy.publishes").get("norm", 0.5)), Noise.gaussian(1.0)


def published(monkeypatch: pytest.MonkeyPatch, kind: type = Publishes, **options: Any) -> Outcome:
    install(monkeypatch, {"negotiate_mask": {"toy.publishes": kind}, "protect": {"toy.to": ToPublished}})
    use = {"use": "toy.publishes", **options}
    groups = {"groups": {"use": "toy.by_parity"}} if "toy.by_parity" in TOYS["groups"] else {}
    return run_protocol(recipe_of("noised", [{"use": "toy.to"}], negotiate_mask=use, **groups))


def test_what_is_published_and_paid_by_nobody_ends_the_guarantee_of_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = published(monkeypatch)
    shown = [one for one in outcome.protocol.ledger.reveals if one.what == "what toy.publishes publishes"]
    assert [one.voids for one in shown] == [True]  # said once, in two rounds
    for name, line in views(outcome).items():
        if line.state != "absent":
            assert line.state == "none", name
            assert "what toy.publishes publishes" in line.detail


class Pays(Publishes, fedplug.Ballots):
    """With ballots that have noise, from which the norm may follow."""

    def ballots(self, facts: Facts) -> Operations:
        return Clip(1.0), Noise.gaussian(9.0)


@pytest.mark.parametrize(
    ("kind", "covered_by", "state"),
    [
        (Publishes, "nothing to pay", "guaranteed"), (Pays, "epsilon", "guaranteed"),
        (Publishes, "epsilon", "none"),  # it adds no noise
    ],
)  # fmt: skip
def test_what_is_paid_for_ends_nobodys(
    kind: type, covered_by: str, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = published(monkeypatch, kind, covered_by=covered_by)
    shown = any("publishes" in one.what for one in outcome.protocol.ledger.reveals)
    assert shown is (state == "none")
    assert {views(outcome)[name].state for name in ("server", "released_model")} == {state}
    assert [release.noise_multiplier for release in paid(outcome)] == [1.0, 1.0]


class ByParity(Toy, fedplug.Groups):
    """Even and odd clients, whose models differ."""

    def form_groups(self, cohort: Cohort, facts: Facts) -> None:
        if facts.round == 0:
            cohort.regroup({"even": [0, 2], "odd": [1, 3]})

    def reveals(self, facts: Facts) -> tuple[()]:
        return ()


def test_each_group_pays_by_what_was_published_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clip to 1 for the even, and to a quarter, under the same noise, for the odd."""
    install(monkeypatch, {"groups": {"toy.by_parity": ByParity}})
    outcome = published(monkeypatch, covered_by="nothing to pay")
    told = outcome.protocol.server.remembered.published
    norms = {group: [each["toy.publishes"]["norm"] for each in rounds.values()] for group, rounds in told.items()}
    assert {group: norms[group] for group in ("even", "odd")} == {"even": [1.0, 1.0], "odd": [0.25, 0.25]}
    log = outcome.protocol.ledger.log
    found = [(entry.round, sorted(entry.charged), entry.zones["noised"].releases[0].noise_multiplier) for entry in log]
    assert found == [(1, [0, 2], 1.0), (1, [1, 3], 4.0), (2, [0, 2], 1.0), (2, [1, 3], 4.0)]


# -- rounds without examples -------------------------------------------------------------------------------------------


class InTurns(Push):
    """Train in even rounds; in odd ones give half of the model up."""

    def reads_examples(self, facts: Facts) -> bool:
        return facts.round % 2 == 0

    def train(self, client: Client, facts: Facts) -> dict[str, float]:
        assert (client.num_examples > 0) == (len(client.data.train) > 0) == self.reads_examples(facts)
        if self.reads_examples(facts):
            client.memory(self)["kept"] = client.rng(self).integers(99)
            return super().train(client, facts)
        assert client.memory(self) == {}
        assert client.personal is None
        assert client.cache == {}
        client.model.set_vector(client.vector * np.float32(0.5))
        return {"loss": 0.0}


class Turns(Toy, PublicPlan):
    """Noised in even rounds, and clear in odd ones."""

    class Options(fedplug.Options):
        """The zone."""

        zone: str = "noised"

    @property
    def plans(self) -> Plans:
        return Plans(zones=frozenset({self.options.zone, "clear"}))

    def plan(self, facts: Facts) -> str:
        zone: str = "clear" if facts.round % 2 else self.options.zone
        return zone


class Adds(Toy, fedplug.Protector):
    """Add what the client has."""

    class Options(fedplug.Options):
        """How."""

        by: Literal["map", "post", "size", "sampler"] = "map"

    def protect(self, known: Known, facts: Facts) -> Operations:
        match self.options.by:
            case "map":
                return (Map(lambda block, client, facts: block.plain() + np.float32(client.data.train.labels[0])),)
            case "post":
                return (Post(self.momentum),)
            case "size":
                return (Clip(1.0), Noise.by(lambda count: 2.0 + count, reads="num_examples", at_least=2.0))
        return (Clip(1.0), Noise.own("pure", self.sample, multiplier=1.0, source="secure", order=2))

    def momentum(self, values: Any, public: fedplug.Public) -> Any:
        public.memory["kept"] = values + public.memory.get("kept", np.float32(0))
        return public.memory["kept"]

    def sample(self, values: Any, public: fedplug.Public, stream: Any) -> Any:
        return self.momentum(values, public)


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a recipe that trains in every other round."""
    mine = {"negotiate_mask": {"toy.turns": Turns}, "trainer": {"toy.in_turns": InTurns}, "protect": {"toy.adds": Adds}}
    install(monkeypatch, mine)

    def run(chain: list[Any], clear: list[Any] | None = None, zone: str = "noised", **changes: Any) -> Outcome:
        plan = {"use": "toy.turns", "zone": zone}
        protect = {zone: chain, "clear": clear or []}
        return run_protocol(recipe_of(
            negotiate_mask=plan, train={"use": "toy.in_turns"}, protect=protect, rounds=4, **changes
        ))  # fmt: skip

    return run


def test_a_round_that_reads_no_examples_costs_nothing_and_voids_nothing(turns: Any) -> None:
    outcome = turns([CLIP, noise(2.0)])
    assert [(entry.round, sorted(entry.zones)) for entry in outcome.protocol.ledger.log] == [
        (1, ["noised"]), (2, []), (3, ["noised"]), (4, [])
    ]  # fmt: skip
    once = run_protocol(recipe_of("noised", [CLIP, noise(2.0)], train={"use": "toy.push"}))  # the same two rounds
    for name in ("server", "released_model"):
        line, only = views(outcome)[name], views(once)[name]
        assert line.state == only.state == "guaranteed"
        assert line.epsilon == only.epsilon


def test_where_no_round_reads_examples_the_verdict_says_that_updates_are_sent(
    turns: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InTurns, "reads_examples", lambda self, facts: False)
    outcome = turns([CLIP, noise(2.0)])
    assert [entry.public for entry in outcome.protocol.ledger.log] == [["noised"], ["clear"]] * 2
    line = views(outcome)["server"]
    assert (line.state, line.detail) == ("guaranteed", "sees updates that no client's examples went into")
    words = ["on the word of toy.in_turns", "on the word of toy.turns"]
    assert line.rests_on == ["trainers were handed no examples", *words]


def test_other_rounds_of_a_clear_zone_end_the_guarantee_as_ever(turns: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InTurns, "reads_examples", lambda self, facts: True)
    monkeypatch.setattr(InTurns, "train", Push.train)
    outcome = turns([CLIP, noise(2.0)])
    assert [sorted(entry.zones) for entry in outcome.protocol.ledger.log] == [["noised"], ["clear"]] * 2
    assert views(outcome)["server"].state == "none"


@pytest.mark.parametrize("by", ["map", "post", "size", "sampler"])
def test_a_link_that_adds_what_a_client_has_kept_is_charged_in_every_round(turns: Any, by: str) -> None:
    """A function with the party in hand; one that remembers values of earlier rounds; sizes that follow from data."""
    outcome = turns([CLIP, noise(2.0)], [{"use": "toy.adds", "by": by}])
    assert [sorted(entry.zones) for entry in outcome.protocol.ledger.log] == [["noised"], ["clear"]] * 2


def test_an_update_that_follows_from_a_model_that_the_server_must_not_see_is_no_public_one(turns: Any) -> None:
    """Clients alone open the sums. Half of the model, with a minus, would give it away in the clear."""
    seal = {"use": "std.bfv", "key_holder": "clients"}
    outcome = turns([seal], zone="encrypted", postprocess={"encrypted": ["std.bfv"]})
    assert [sorted(entry.zones) for entry in outcome.protocol.ledger.log] == [["encrypted"], ["clear"]] * 2
    assert views(outcome)["server"].state == "none"
    seen = turns([{"use": "std.bfv"}], zone="encrypted", postprocess={"encrypted": ["std.bfv"]})
    assert [sorted(entry.zones) for entry in seen.protocol.ledger.log] == [["encrypted"], []] * 2


def test_a_trainer_that_fails_to_say_is_named(turns: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(self: Any, facts: Facts) -> bool:
        raise KeyError("what")

    monkeypatch.setattr(InTurns, "reads_examples", breaks)
    with pytest.raises(fedplug.FedplugError, match=r"component toy\.in_turns, reads_examples: KeyError: 'what'"):
        turns([CLIP, noise(2.0)])


# -- masks in a released sum -------------------------------------------------------------------------------------------


class OfData(Toy, fedplug.Negotiation):
    """Clients noise less where their update is small; all by the same plan."""

    plans = Plans(zones=frozenset({"encrypted", "noised"}))

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        votes = cohort.ask(self.vote)
        cohort.tell(self.choose, sum(votes.values()) % 2)

    @fedplug.at_client
    def vote(self, client: Client) -> int:
        return client.client_id

    @fedplug.at_client
    def choose(self, client: Client, odd: int) -> None:
        client.plan = Plan.of(client.facts, "noised", encrypted=np.arange(client.facts.layout.size) % 2 == odd)

    def reveals(self, facts: Facts) -> list[fedplug.Reveals]:
        note = "follows from data"
        return [fedplug.Reveals("votes", ("server",), asked=("vote",), note=note),
                fedplug.Reveals("mask", ("server", "client"), note=note)]  # fmt: skip


@pytest.mark.parametrize(
    ("first", "second", "named"),
    [
        (noise(2.0), noise(2.0), False), (noise(2.0), noise(4.0), True),
        (noise(2.0), {"use": "std.laplace", "epsilon": 1.0}, True), (noise(2.0, "exact"), noise(2.0), True),
    ],
    ids=["alike", "unlike sizes", "unlike kinds", "unlike sources"],
)  # fmt: skip
def test_a_mask_that_unlike_noise_shows_in_the_released_model_is_named(
    first: Any, second: Any, named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a thousand scalars, which are in which zone can be told from the spread of their values."""
    install(monkeypatch, {"negotiate_mask": {"toy.of_data": OfData}})
    clip = {"use": "std.clip_l1", "norm": 1.0} if second["use"] == "std.laplace" else CLIP
    chains = {"encrypted": [CLIP, first], "noised": [clip, second]}
    outcome = run_protocol(recipe_of(negotiate_mask={"use": "toy.of_data"}, protect=chains, rounds=1))
    lines = views(outcome)
    for name in ("released_model", "client"):
        assert lines[name].state in ("guaranteed", "beyond")
    assert ("mask" in lines["released_model"].not_covered) is named
    assert "mask" in lines["client"].not_covered  # the negotiation shows it to clients anyway
    # By public plans nothing is shown.
    install(monkeypatch, {"negotiate_mask": {"toy.turns": Turns}})
    alternating = {"noised": chains["noised"], "clear": chains["encrypted"]}
    public = run_protocol(recipe_of(negotiate_mask={"use": "toy.turns"}, protect=alternating))
    assert "mask" not in views(public)["released_model"].not_covered


def test_a_zone_whose_sum_has_no_noise_is_said_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, {"negotiate_mask": {"toy.of_data": OfData}})
    chains = {"encrypted": [CLIP], "noised": [CLIP, noise(2.0)]}
    outcome = run_protocol(recipe_of(negotiate_mask={"use": "toy.of_data"}, protect=chains, rounds=1))
    assert views(outcome)["released_model"].state == "none"
    assert not any("unlike noise" in one.note for one in outcome.protocol.ledger.reveals)


# -- on whose word -----------------------------------------------------------------------------------------------------


class Signs(Toy, fedplug.Protector):
    """The signs of values."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Post(lambda values, public: np.sign(values)),)


def test_a_verdict_names_the_functions_behind_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, {"protect": {"toy.signs": Signs}})
    for chain, word in (([], False), ([{"use": "toy.signs"}], True)):
        outcome = run_protocol(recipe_of("noised", [CLIP, noise(2.0), *chain], rounds=1))
        for name in ("server", "client", "released_model"):
            assert ("on the word of toy.signs" in views(outcome)[name].rests_on) is word


# -- senders -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("divided_by", "weighed", "shown"), [("sent", False, True), ("all", False, False), ("all", True, True)]
)
def test_divisors_that_follow_from_who_sent_what_are_shown_unless_all_are_counted(
    divided_by: Any, weighed: bool, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Mean(Toy, fedplug.Aggregator):
        wants = fedplug.Wants(positions=True)

        def aggregate(self, known: Known, facts: Facts) -> Operations:
            by = self.shares if weighed else None
            return (fedplug.WeightedSum(divided_by=divided_by, by=by),)

        def shares(self, blocks: Mapping[int, Block], server: Any, facts: Facts) -> Any:
            ones = np.ones(len(facts.layout.layers))
            return dict.fromkeys(blocks, (ones, ones))

    install(monkeypatch, {"aggregate": {"toy.mean": Mean}})
    chains = {"clear": [CLIP, noise(2.0)]}
    outcome = run_protocol(
        recipe_of(negotiate_mask={"use": "toy.own"}, aggregate={"use": "toy.mean"}, protect=chains, rounds=1)
    )
    found = [one.what for one in outcome.protocol.ledger.reveals]
    assert ("how many clients sent each parameter" in found) is shown
