"""Public facts: what was published by a round, which zones are sent when, and components as their options make them."""

from __future__ import annotations

import copy
import dataclasses
from types import SimpleNamespace
from typing import Any, ClassVar

import fedplug
import numpy as np
import pytest
from fedplug import Client, Clip, Cohort, Facts, Known, Layout, Look, Noise, Operations, Plan, Plans, Post, PublicPlan
from fedplug.api import codec
from fedplug.api.blocks import Block
from fedplug.api.errors import PluginError, TooFewClients
from fedplug.api.facts import Fresh, Snapshots, in_force, with_published
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.base import facts_of
from hypothesis import given
from hypothesis import strategies as st
from mix_toys import install
from toy_base import Toy
from toy_components import recipe_of, toy_catalog
from toy_protocol import run_protocol

LAYOUT = Layout.of([("a.w", (6,)), ("b.w", (4,))])
ZONES = ("encrypted", "noised", "clear")


def facts(round: int = 0, rounds: int = 10, layout: Layout = LAYOUT, **more: Any) -> Facts:
    return Facts(round, rounds, layout, ZONES, 4, 2, 7, "digest", **more)


# -- what was published ------------------------------------------------------------------------------------------------

EVENTS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["one", "other"]), st.integers(0, 9)), max_size=8)


@given(EVENTS)
def test_snapshots_have_what_was_published_by_the_last_rounds(events: list[tuple[int, str, int]]) -> None:
    """Of the round in which something was published last, and of the one before: nobody asks for earlier ones."""
    published: Snapshots = {}
    whole: dict[int, dict[str, dict[str, Any]]] = {-1: {}}
    round = 0
    for later, name, value in events:
        round += later
        published = with_published(published, round, name, {"value": value})
        now = copy.deepcopy(whole[max(whole)])
        whole[round] = {**now, name: {"value": value}}
    assert len(published) <= 2
    since = min(published, default=0)
    for asked in range(since, round + 2):
        expected = whole[max(each for each in whole if each <= asked)]
        assert {name: dict(told) for name, told in in_force(published, asked).items()} == expected
    assert in_force(published, since - 1) == {}


def test_a_component_is_asked_for_what_it_published() -> None:
    told = facts(published={"toy.norm": {"norm": 0.5}})
    assert told.of("toy.norm") == told.of(SimpleNamespace(name="toy.norm")) == {"norm": 0.5}
    assert told.of("another") == {}
    assert told.at(3).of("toy.norm") == {"norm": 0.5}
    assert told.at(0) is told
    with pytest.raises(dataclasses.FrozenInstanceError):
        told.round = 1  # type: ignore[misc]


VALUES = st.dictionaries(
    st.text(max_size=3),
    st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.text(max_size=3)
        | st.floats(width=32, allow_nan=False).map(np.float32) | st.just(np.arange(3.0)),
        lambda inner: st.lists(inner, max_size=2) | st.tuples(inner, inner), max_leaves=4,
    ),
    max_size=3,
)  # fmt: skip


@given(VALUES, VALUES)
def test_parties_with_equal_facts_have_equal_fingerprints_and_no_others(values: Any, others: Any) -> None:
    """Facts reach the clients as messages."""
    one = facts(published={"toy": values})
    received = facts(published={"toy": codec.decode(codec.encode(values))})
    assert one.fingerprint == received.fingerprint
    same = codec.encode(values) == codec.encode(others)
    assert (one.fingerprint == facts(published={"toy": others}).fingerprint) is same
    assert one.fingerprint not in {
        one.at(1).fingerprint, dataclasses.replace(one, digest="another").fingerprint, facts().fingerprint,
        facts(published={"another": values}).fingerprint,
    }  # fmt: skip


class Norms(Toy, PublicPlan):
    """Publish a norm in each round, and clip to the last one."""

    plans = Plans(zones=frozenset({"noised"}))
    publishes: ClassVar[dict[str, Any]] = {}
    seen: ClassVar[list[tuple[int, Any]]] = []

    def plan(self, facts: Facts) -> str:
        return "noised"

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        cohort.publish(self, {"norm": 1.0 / (1 + facts.round)} | self.publishes, covered_by="nothing to pay")


class ToNorm(Toy, fedplug.Protector):
    """Clip."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        norm = facts.of("toy.norms").get("norm", 7.0)
        return (Clip(norm), Look(self.look), Noise.gaussian(norm))

    def look(self, block: Block, client: Client, facts: Facts) -> None:
        (clip, *_) = facts.steps("noised")[0].operations
        Norms.seen.append((facts.round, clip, facts.of("toy.norms")))


@pytest.fixture
def norms(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A recipe whose clips follow from what is published."""
    Norms.seen.clear()
    install(monkeypatch, {"negotiate_mask": {"toy.norms": Norms}, "protect": {"toy.to_norm": ToNorm}})
    return recipe_of("noised", [{"use": "toy.to_norm"}], negotiate_mask={"use": "toy.norms"}, rounds=3)


def test_what_the_server_publishes_is_a_fact_of_all_parties_from_the_next_step_on(norms: dict[str, Any]) -> None:
    outcome = run_protocol(norms)
    assert [(round, clip.norm) for round, clip, _ in Norms.seen] == [
        (round, 1.0 / (1 + round)) for round in range(3) for _ in range(4)
    ]
    published = outcome.protocol.server.remembered.published["all"]
    assert {round: told["toy.norms"] for round, told in published.items()} == {1: {"norm": 0.5}, 2: {"norm": 1 / 3}}
    (zone,) = {zone for entry in outcome.protocol.ledger.log for zone in entry.zones}
    paid = [entry.zones[zone].releases[0] for entry in outcome.protocol.ledger.log]
    assert [release.clipping_norm for release in paid] == [1.0, 0.5, 1 / 3]
    assert [release.noise_multiplier for release in paid] == [1.0] * 3


@pytest.mark.parametrize("more", [{"a": (1, 2)}, {"a": np.float32(0.5)}, {"a": {3: np.arange(3)}}], ids=str)
def test_the_server_goes_by_what_the_clients_received(
    norms: dict[str, Any], more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tuple comes as a list: then it is one at the server too, and no operation may differ by that."""
    monkeypatch.setattr(Norms, "publishes", more)
    outcome = run_protocol(norms)
    assert [row.clients.answered for row in outcome.rows] == [4, 4, 4]
    server = outcome.protocol.server.remembered.published["all"][2]["toy.norms"]["a"]
    client = Norms.seen[-1][2]["a"]
    assert type(server) is type(client)


@pytest.mark.parametrize("wrong", [{1, 2}, object()], ids=["set", "object"])
def test_what_cannot_travel_is_not_published(
    norms: dict[str, Any], wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Norms, "publishes", {"a": wrong})
    with pytest.raises(fedplug.FedplugError, match="cannot travel; send plain data or numpy arrays"):
        run_protocol(norms)


def test_a_client_that_was_told_another_fact_is_found_out(norms: dict[str, Any]) -> None:
    def lie(protocol: Any, engine: Any) -> None:
        hear = engine.clients.hear

        def heard(client: Any, name: str, values: dict[str, Any]) -> None:
            hear(client, name, {"norm": 100.0} if client.client_id == 2 and client.facts.round == 1 else values)

        engine.clients.hear = heard

    rows = run_protocol(norms, prepare=lie).rows
    assert [sorted(row.clients.dropped) for row in rows] == [[], [2], []]
    assert "it went by other public facts than the server has published" in rows[1].clients.dropped[2]


# -- components that no function has touched ---------------------------------------------------------------------------


def test_components_are_built_when_they_are_first_asked_for_and_anew_for_other_facts() -> None:
    built: list[str] = []

    def maker(name: str) -> Any:
        return lambda: built.append(name) or SimpleNamespace(name=name)

    makers = {"one": maker("one"), "other": maker("other")}
    fresh = Fresh(makers)
    assert (list(fresh), len(fresh), "one" in fresh, built) == (["one", "other"], 2, True, ["one"])
    assert fresh["one"] is fresh["one"]
    assert Fresh(makers)["one"] is not fresh["one"]
    with pytest.raises(KeyError):
        fresh["another"]


class Keeps(Toy, fedplug.Protector):
    """Clip to what a look has kept of the client's own values."""

    executed: ClassVar[list[float]] = []

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.kept = SimpleNamespace(norm=1.0)

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Look(self.look), Clip(self.kept.norm), Noise.gaussian(1.0)) if known.zone == "noised" else (
            Look(self.look), Clip(self.kept.norm)
        )  # fmt: skip

    def look(self, block: Block, client: Client, facts: Facts) -> None:
        self.kept.norm = 1000.0 + float(np.abs(block.plain()).max())
        for zone in facts.links:
            self.executed.append(client.facts.steps(zone)[0].operations[1].norm)


class EveryOther(Toy, PublicPlan):
    """Every other scalar is clear."""

    plans = Plans(zones=frozenset({"noised", "clear"}))

    def plan(self, facts: Facts) -> Plan:
        return Plan.of(facts, "clear", noised=np.arange(facts.layout.size) % 2 == 0)


def test_what_a_look_keeps_on_itself_reaches_no_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither that of the next round, nor that of another zone of this one."""
    install(monkeypatch, {"protect": {"toy.keeps": Keeps}, "negotiate_mask": {"toy.every_other": EveryOther}})
    run_protocol(recipe_of("noised", [{"use": "toy.keeps"}]))
    noise = {"use": "std.gaussian", "noise_multiplier": 1.0}
    run_protocol(recipe_of(
        negotiate_mask={"use": "toy.every_other"},
        protect={"noised": [{"use": "toy.keeps"}], "clear": ["toy.keeps", noise]},
    ))  # fmt: skip
    assert Keeps.executed == [1.0] * (4 * 2 + 4 * 2 * 4)  # clients, rounds, and links that look at each zone


class Votes(Toy, fedplug.Negotiation, fedplug.Ballots):
    """Clip ballots to the largest that a function of them has seen."""

    plans = Plans(zones=frozenset({"clear"}))
    asked: ClassVar[list[float]] = []

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.kept = SimpleNamespace(norm=1.0)

    def ballots(self, facts: Facts) -> Operations:
        self.asked.append(self.kept.norm)
        return Post(self.keep), Clip(self.kept.norm), Noise.gaussian(1.0)

    def keep(self, values: Any, public: Any) -> Any:
        self.kept.norm = float(np.abs(values).max())
        return values

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        cohort.ask(self.vote)

    @fedplug.at_client
    def vote(self, client: Client) -> Any:
        client.plan = Plan.single("clear", client.facts.layout.size, client.facts.zones)
        return client.release(self, [100.0 + client.client_id])

    def reveals(self, facts: Facts) -> list[fedplug.Reveals]:
        return [fedplug.Reveals("votes", ("server",), covered_by="epsilon", asked=("vote",))]


def test_what_one_clients_ballot_leaves_on_a_component_does_not_reach_the_next_ones(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, {"negotiate_mask": {"toy.votes": Votes}})
    outcome = run_protocol(recipe_of(negotiate_mask={"use": "toy.votes"}))
    assert set(Votes.asked) == {1.0}
    releases = [entry.zones["ballots of toy.votes"].releases[0] for entry in outcome.protocol.ledger.log
                if "ballots of toy.votes" in entry.zones]  # fmt: skip
    assert [release.noise_multiplier for release in releases] == [1.0, 1.0]


# -- in which rounds a zone is sent ------------------------------------------------------------------------------------


class Alternates(Toy, PublicPlan):
    """Noised in even rounds, and clear in odd ones."""

    plans = Plans(zones=frozenset({"noised", "clear"}))

    def plan(self, facts: Facts) -> str:
        return "clear" if facts.round % 2 else "noised"


class HalfOfIt(Alternates):
    """In even rounds, half of the model."""

    def plan(self, facts: Facts) -> Plan | str:
        return "clear" if facts.round % 2 else Plan.of(facts, "clear", noised=np.arange(0, facts.layout.size, 2))


class Sometimes(Alternates):
    """Clients negotiate odd rounds."""

    def plan(self, facts: Facts) -> str | None:
        return None if facts.round % 2 else "noised"

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        if facts.plan is None:
            cohort.tell(self.choose)

    @fedplug.at_client
    def choose(self, client: Client) -> None:
        client.plan = Plan.single("clear", client.facts.layout.size, client.facts.zones)


GAUSSIAN = [{"use": "std.clip", "norm": 1.0}, {"use": "std.gaussian", "epsilon": 8, "delta": 1e-5}]


def composed(monkeypatch: pytest.MonkeyPatch, plans: type, **changes: Any) -> Composition:
    install(monkeypatch, {"negotiate_mask": {"toy.plans": plans}})
    plain = recipe_of(
        negotiate_mask={"use": "toy.plans"}, protect={"noised": GAUSSIAN, "clear": []}, rounds=10, **changes
    )
    return Composition(Recipe.from_plain(plain, toy_catalog()))


@pytest.mark.parametrize("layout", [LAYOUT, Layout(())], ids=["a model", "no model yet"])
@pytest.mark.parametrize(
    ("plans", "times", "public"),
    [
        (Alternates, {"noised": 5, "clear": 5}, True), (HalfOfIt, {"noised": 5, "clear": 10}, True),
        (Sometimes, {"noised": 10, "clear": 5}, False),
    ],
)  # fmt: skip
def test_a_zone_is_sent_in_the_rounds_in_which_a_plan_may_hold_it(
    plans: type, times: dict[str, int], public: bool, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    composition = composed(monkeypatch, plans)
    each = [facts_of(composition, layout, round) for round in range(-1, 10)]
    assert {zone: {now.times(zone) for now in each} for zone in times} == {z: {n} for z, n in times.items()}
    assert {now.plans_are_public for now in each} == {public}
    for zone in times:
        sent = [now.sent(zone) for now in each[1:]]
        assert sum(sent) == times[zone]
        assert [now.turn(zone) for now in each] == [0, *(sum(sent[:round]) for round in range(10))]
    assert each[0].sent("encrypted") is False
    assert each[0].times("encrypted") == 1  # a schedule of no rounds has no noise


def test_noise_for_all_rounds_is_noise_for_those_in_which_its_zone_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """(8, 1e-5) needs a multiplier of 0.600 for one round; times sqrt(5) for five, and sqrt(10) for ten."""
    for plans, expected in ((Alternates, 1.342), (HalfOfIt, 1.342), (Sometimes, 1.898)):
        composition = composed(monkeypatch, plans)
        for layout in (LAYOUT, Layout(())):
            (release,) = facts_of(composition, layout, 4).steps("noised")[-1].after.releases
            assert release.noise_multiplier == pytest.approx(expected, abs=5e-4)


def test_the_account_of_a_run_is_the_epsilon_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    composition = composed(monkeypatch, Alternates)
    outcome = run_protocol({**composition.recipe.to_plain(), "protect": {"noised": GAUSSIAN, "clear": GAUSSIAN}})
    # Each zone is calibrated for five rounds.
    assert [sorted(entry.zones) for entry in outcome.protocol.ledger.log] == [["noised"], ["clear"]] * 5
    zones = [zone for entry in outcome.protocol.ledger.log for zone in entry.zones.values()]
    assert [zone.releases[0].noise_multiplier for zone in zones] == pytest.approx([1.342] * 10, abs=5e-4)


def test_a_fixed_plan_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Once(Alternates):
        plans = Plans(zones=frozenset({"noised", "clear"}), fixed=True)

        def plan(self, facts: Facts) -> str:
            asked.append(facts.round)
            return "noised"

    composition = composed(monkeypatch, Once)
    asked.clear()
    now = facts_of(composition, LAYOUT, 5)
    assert (now.times("noised"), now.turn("noised"), asked) == (10, 5, [0])


# -- public plans ------------------------------------------------------------------------------------------------------


class Thirds(Toy, PublicPlan):
    """Needs a model."""

    plans = Plans(zones=frozenset({"noised", "clear"}))

    def plan(self, facts: Facts) -> Plan:
        first = facts.layout.parameters[0].slice
        return Plan.of(facts, "clear", noised=np.arange(first.stop))


def test_before_a_model_is_known_a_plan_that_needs_one_may_hold_everything() -> None:
    part = Thirds(None)
    part.name = "toy.thirds"
    early, late = part.planned(facts(layout=Layout(()))), part.planned(facts())
    assert early is not None
    assert late is not None
    assert (early.labels.size, [zone for zone in ZONES if early.may_hold(zone)]) == (0, [*ZONES])
    assert late.sizes() == {"encrypted": 0, "noised": 6, "clear": 4}
    with pytest.raises(ValueError, match="read-only"):
        late.labels[0] = 0  # all parties of a process share it


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (5, "it gave a int; give a fedplug.Plan, or a zone's name"),
        ("nowhere", "ValueError: zone 'nowhere' is none of encrypted, noised, clear"),
        (KeyError("what"), "KeyError: 'what'"),
        (None, "it gave None, and no client negotiates a plan; give a fedplug.Plan, or a zone's name, or override"),
    ],
    ids=str,
)
def test_what_is_no_plan_is_refused_with_the_component(given: Any, said: str) -> None:
    class Gives(Thirds):
        def plan(self, facts: Facts) -> Any:
            if isinstance(given, Exception):
                raise given
            return given

    part = Gives(None)
    part.name = "toy.gives"
    with pytest.raises(PluginError) as caught:
        part.planned(facts())
    assert str(caught.value).startswith("component toy.gives, plan: ")
    assert said in str(caught.value)


def test_a_public_plan_takes_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the rounds differ: two messages to each client a round, and one more at the end."""
    install(monkeypatch, {"negotiate_mask": {"toy.half": HalfOfIt}})
    plain = recipe_of(negotiate_mask={"use": "toy.half"}, protect={"noised": [], "clear": []}, rounds=4)
    outcome = run_protocol(plain)
    assert [len(outcome.sent("client:0", round=round)) for round in range(4)] == [1] * 4
    assert [row.zones["noised"] for row in outcome.rows] == [0.5, 0.0, 0.5, 0.0]
    assert [row.zones["clear"] for row in outcome.rows] == [0.5, 1.0, 0.5, 1.0]


def test_where_clients_negotiate_after_all_a_client_without_a_plan_is_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgets(Sometimes):
        def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
            pass

    install(monkeypatch, {"negotiate_mask": {"toy.forgets": Forgets}})
    plain = recipe_of(negotiate_mask={"use": "toy.forgets"}, protect={"noised": [], "clear": []})
    with pytest.raises(TooFewClients, match=r"client 0 has no plan in round 2; a negotiation sets client\.plan at"):
        run_protocol(plain)
