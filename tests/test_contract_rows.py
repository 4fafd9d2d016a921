"""Mixes for which a claim was false once: each is priced truthfully now, or refused with a sentence and a remedy."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import Block, Bound, Changes, Client, Context, Effects, Known, Reveals, Scales, hookimpl
from fedplug.api.errors import FedplugError, RecipeError
from fedplug.api.events import Asking
from fedplug.privacy.accounting import gaussian_epsilon
from fedplug.privacy.ledger_record import ViewReport
from fedplug.privacy.renyi import composed_epsilon
from fedplug.recipe.catalog import Catalog, Entry
from fedplug.recipe.recipe import Recipe
from toy_components import TOYS, recipe_of, toy_catalog
from toy_protocol import build, run_protocol

CKKS_AT_CLIENTS = {"use": "std.ckks", "key_holder": "clients"}
ENCRYPTED = "encrypted"


class Silent(fedplug.Protector):
    """Multiplies by 100 and states nothing."""

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        return block.replace(values=block.plain() * np.float32(100))


class Liar(Silent):
    """Multiplies by 100 and says that norms stay."""

    def effects(self, known: Known, ctx: Context) -> Effects:
        return (Changes("kept"),)


class Honest(Silent):
    """Multiplies by 100 and says so."""

    def effects(self, known: Known, ctx: Context) -> Effects:
        return (Scales(100.0),)


class Chatty(fedplug.Negotiation):
    """Asks every client for its largest value, and states that nowhere."""

    class Options(fedplug.Options):
        """Whether it says so."""

        says: bool = False

    @property
    def plans(self) -> fedplug.Plans:
        return fedplug.Plans(zones=frozenset({"noised"}), public=True)

    @hookimpl
    def negotiate_mask(self, cohort: Any, ctx: Context) -> None:
        cohort.ask(self.largest)
        cohort.tell(self.adopt)

    @fedplug.at_client
    def largest(self, client: Client) -> float:
        assert client.update is not None
        return float(np.abs(client.update).max())

    @fedplug.at_client
    def adopt(self, client: Client) -> None:
        client.plan = fedplug.Plan.single("noised", client.ctx.layout.size, client.ctx.zones)

    def reveals(self, ctx: Context) -> list[Reveals]:
        return [Reveals("largest values", ("aggregator",), asked=("largest",))] if self.options.says else []


class Quiet(fedplug.Negotiation):
    """Keeps all but its largest values to itself, and says nothing of what their places show."""

    class Options(fedplug.Options):
        """What it says, and to whom; of an answer it is asked for, or not."""

        tells: tuple[str, ...] = ()
        asked: bool = False
        own: bool = True

    @property
    def plans(self) -> fedplug.Plans:
        own = frozenset({"noised"} if self.options.own else ())
        return fedplug.Plans(zones=frozenset({"noised", "retained"}), own=own)

    @hookimpl
    def negotiate_mask(self, cohort: Any, ctx: Context) -> None:
        cohort.tell(self.choose)

    @fedplug.at_client
    def choose(self, client: Client) -> None:
        size = client.ctx.layout.size
        keep = np.ones(size, bool)
        keep[np.argsort(np.abs(client.update))[-50:]] = False
        client.plan = fedplug.Plan.of("noised", size, client.ctx.zones, retained=keep)

    def reveals(self, ctx: Context) -> list[Reveals]:
        asked = ("choose",) if self.options.asked else ()
        return [Reveals("positions", self.options.tells, asked=asked)] if self.options.tells else []


@dataclasses.dataclass(frozen=True)
class Steep:
    """A Gaussian's cost, times a factor."""

    factor: float

    def rdp(self, orders: Any, multiplier: float) -> Any:
        return self.factor * orders / (2 * multiplier**2)


class Unequal:
    """The same, but never equal to another of its kind."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def rdp(self, orders: Any, multiplier: float) -> Any:
        return self.factor * orders / (2 * multiplier**2)


class Odd(fedplug.Protector):
    """Noise whose cost only its own curve tells."""

    class Options(fedplug.Options):
        """The name of the mechanism, and the curve."""

        mechanism: str = ""
        factor: float = 1.0
        from_round: int = 99
        equal: bool = True
        stated: bool = True

    def effects(self, known: Known, ctx: Context) -> Effects:
        options = self.options
        factor = options.factor * (100.0 if ctx.round >= options.from_round else 1.0)
        curve = (Steep(factor) if options.equal else Unequal(factor)) if options.stated else None
        scale = known.need_norm("put std.clip before it")
        return (fedplug.Noise(mechanism=options.mechanism or self.name, scale=scale, curve=curve),)

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        values = block.plain() + np.random.default_rng().standard_normal(block.size)
        return block.replace(values=values.astype(np.float32))


class Halved(fedplug.Negotiation):
    """One half of the scalars in one zone, the rest in the other."""

    plans = fedplug.Plans(zones=frozenset({"noised", "clear"}), public=True)

    @hookimpl
    def negotiate_mask(self, cohort: Any, ctx: Context) -> None:
        cohort.tell(self.choose)

    @fedplug.at_client
    def choose(self, client: Client) -> None:
        size, zones = client.ctx.layout.size, client.ctx.zones
        client.plan = fedplug.Plan.of("noised", size, zones, shared=zones, clear=np.arange(size) < size // 2)


def odd(**options: Any) -> dict[str, Any]:
    return {"use": "row.odd", **options}


def two_zones(one: dict[str, Any], other: dict[str, Any], **general: Any) -> dict[str, Any]:
    """A recipe with noise of two kinds behind two clips."""
    clear = [{"use": "std.clip", "norm": 1.0, "name": "clip-2"}, other | {"name": "noise-2"}]
    protect = {"noised": clipped(one), "clear": clear}
    return recipe_of("noised", negotiate_mask={"use": "row.halved"}, **{"rounds": 1, "protect": protect, **general})


MINE: dict[str, dict[str, type]] = {
    "protect": {"row.silent": Silent, "row.liar": Liar, "row.honest": Honest, "row.odd": Odd},
    "negotiate_mask": {"row.chatty": Chatty, "row.quiet": Quiet, "row.halved": Halved},
}  # fmt: skip


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for group, classes in MINE.items():
        monkeypatch.setitem(TOYS, group, {**TOYS.get(group, {}), **classes})


def refused(plain: dict[str, Any]) -> str:
    with pytest.raises(RecipeError) as error:
        Recipe.from_plain(plain, toy_catalog())
    return str(error.value)


def views(plain: dict[str, Any]) -> dict[str, ViewReport]:
    return run_protocol(plain).protocol.ledger.report().views


def zero_out(plain: dict[str, Any], view: str) -> float:
    epsilons = views(plain)[view].epsilons
    assert epsilons is not None
    return epsilons.zero_out["epsilon_exact"]


def clipped(*after: Any, norm: float = 1.0) -> list[Any]:
    return [{"use": "std.clip", "norm": norm}, *after]


def noise(multiplier: float, **options: Any) -> dict[str, Any]:
    return {"use": "std.gaussian", "noise_multiplier": multiplier, **options}


def test_a_server_link_behind_a_client_link_is_refused() -> None:
    central = {"use": "std.central_gaussian", "norm": 1.0, "epsilon": 1, "delta": 1e-5}
    plain = recipe_of(ENCRYPTED, clipped(CKKS_AT_CLIENTS), postprocess={ENCRYPTED: ["std.ckks", central]})
    said = refused(plain)
    assert "std.central_gaussian runs at the aggregation server, but std.ckks before it runs at the clients" in said
    assert "it would never run" in said
    assert "key_holder: key_server" in said


def test_a_misspelt_statement_cannot_load() -> None:
    with pytest.raises(TypeError, match=r"side_channel is not a member of a .*Negotiation.*; did you mean reveals"):

        class Misspelt(Chatty):
            def side_channel(self, ctx: Context) -> list[Reveals]:
                return []


def test_a_protector_that_states_nothing_voids_the_bound_before_it() -> None:
    said = refused(recipe_of("noised", clipped({"use": "row.silent"}, noise(1.0))))
    assert "std.gaussian needs a bound of the L2 norm" in said
    assert "row.silent states no effect" in said
    # A bound of its own behind it holds, whatever it did.
    again = {"use": "std.clip", "norm": 1.0, "name": "again"}
    plain = recipe_of("noised", clipped({"use": "row.silent"}, again, noise(1.0)))
    assert zero_out(plain, "aggregator") > 0


def test_a_protector_behind_the_noise_that_states_nothing_leaves_no_guarantee() -> None:
    outcome = run_protocol(recipe_of("noised", clipped(noise(1.0), {"use": "row.silent"})))
    ledger = outcome.protocol.ledger
    assert {view.epsilon for view in ledger.report().views.values()} == {None}
    assert ledger.verdict().startswith("NO DP")
    assert any("row.silent states no effect" in text for text in ledger.report().warnings)


def test_a_protector_that_breaks_its_word_is_stopped_at_the_border() -> None:
    plain = recipe_of("noised", clipped({"use": "row.liar"}, noise(1.0), norm=0.001))
    with pytest.raises(FedplugError, match=r"component row\.liar, hook protect, zone noised: it states an L2 norm"):
        run_protocol(plain)


def test_a_protector_that_scales_scales_the_bound() -> None:
    ledger = run_protocol(recipe_of("noised", clipped({"use": "row.honest"}, noise(1.0)), rounds=1)).protocol.ledger
    (release,) = ledger.log[0].zones["noised"].releases
    assert release.clipping_norm == pytest.approx(100.0)
    assert release.noise_multiplier == pytest.approx(1.0)


def test_a_grid_that_swallows_the_noise_of_others_earns_no_credit_for_it() -> None:
    plain = recipe_of("noised", clipped(noise(0.25, grid=2.0)), rounds=1)
    plain["data"] |= {"clients": 100, "partition": {"use": "std.iid"}}
    plain["aggregate"] = {"use": "std.mean", "weighting": "uniform"}
    released = zero_out(plain, "released_model")
    assert released >= 5.75  # what is true; with credit for 99 others it was 1.55
    fine = zero_out(plain | {"protect": {"noised": clipped(noise(0.25))}}, "released_model")
    assert fine == pytest.approx(gaussian_epsilon(2.5, 1e-5), rel=1e-6)


def test_rounding_behind_the_clip_lifts_the_sensitivity() -> None:
    central = {"use": "std.central_gaussian", "norm": 1.0, "noise_multiplier": 2.867}
    ckks = {"use": "std.ckks", "key_holder": "key_server", "grid_bits": 1}
    plain = recipe_of(ENCRYPTED, clipped(ckks), postprocess={ENCRYPTED: ["std.ckks", central]}, rounds=1)
    released = zero_out(plain, "released_model")
    assert gaussian_epsilon(2.867, 1e-5) == pytest.approx(1.33, abs=0.01)  # what was claimed
    assert released == pytest.approx(2.77, rel=0.1)  # rounding to multiples of 0.5 at most doubles a norm
    assert released == pytest.approx(gaussian_epsilon(2.867 / 2, 1e-5), rel=1e-6)


def test_norms_of_layers_are_not_the_norm_of_the_update() -> None:
    known = Known(zone="noised", layers=(30, 30, 40)).after((Bound((0.15, 0.15, 0.2), per="layer"),))
    assert known.norm() == pytest.approx(math.hypot(0.15, 0.15, 0.2))


def test_sampling_earns_no_credit_where_the_mask_follows_from_who_takes_part() -> None:
    central = {"use": "std.central_gaussian", "norm": 1.0, "noise_multiplier": 1.0, "name": "noise-1"}
    plain = recipe_of("noised", rounds=1)
    plain["data"] |= {"clients": 60, "partition": {"use": "std.iid"}}
    plain |= {
        "min_clients": 2,
        "sampling": {"scheme": "poisson", "rate": 0.5},
        "accountant": {"use": "std.pld"},
        "aggregate": {"use": "std.mean", "weighting": "uniform"},
        "score_parameters": [{"use": "std.magnitude"}],
        "protect": {"noised": clipped(), "clear": clipped(norm=1.0)},
        "postprocess": {"noised": [central], "clear": [central | {"name": "noise-2"}]},
    }
    plain["protect"]["clear"][0]["name"] = "clip-2"
    public = plain | {
        "negotiate_mask": {"use": "std.single_zone", "zone": "noised"},
        "protect": {"noised": clipped()}, "postprocess": {"noised": [central]},
    }  # fmt: skip
    sampled = run_protocol(public).protocol.ledger.report()
    assert sampled.sampling.amplified
    shown = plain | {"negotiate_mask": {"use": "toy.masks_of_the_cohort"}}
    sampling = run_protocol(shown).protocol.ledger.report().sampling
    assert not sampling.amplified
    assert "shows who took part" in sampling.why


def test_an_answer_that_nobody_states_leaves_the_server_without_a_guarantee() -> None:
    plain = recipe_of("noised", clipped(noise(1.0)), negotiate_mask={"use": "row.chatty"})
    found = views(plain)
    assert found["aggregator"].epsilon is None
    assert "row.chatty asks clients for largest" in found["aggregator"].reason
    verdict = run_protocol(plain).protocol.ledger.verdict()
    assert verdict.startswith("NO end-to-end DP: row.chatty asks clients for largest")
    # Its plans may follow from the answers, and the model from its plans.
    assert {view.epsilon for view in found.values()} == {None}
    plain["negotiate_mask"] = {"use": "row.chatty", "says": True}
    assert zero_out(plain, "aggregator") > 0


def test_an_answer_that_nobody_states_is_entered_before_the_uploads_are_asked_for() -> None:
    plain = recipe_of("noised", clipped(noise(1.0)), negotiate_mask={"use": "row.chatty"})
    protocol, engine, _ = build(plain)
    try:
        protocol.setup()
        protocol.events.subscribe(Asking, lambda event: seen.append(list(protocol.ledger.uncovered)))
        seen: list[list[str]] = []
        protocol.round(0)
    finally:
        engine.close()
    assert [len(notes) for notes in seen] == [1]


def test_plans_that_follow_from_data_are_listed_where_nobody_says_who_sees_them() -> None:
    plain = recipe_of("noised", clipped(noise(1.0)), rounds=1, negotiate_mask={"use": "row.quiet"})
    ledger = run_protocol(plain).protocol.ledger
    (listed,) = [shown for shown in ledger.reveals if shown.what == "plans of clients"]
    assert listed.to == ("aggregator", "client")
    assert "row.quiet does not say who sees it" in listed.note
    assert "plans of clients" in ledger.verdict().partition("UNACCOUNTED")[2]


@pytest.mark.parametrize(
    ("options", "listed"),
    [
        ({}, True),
        ({"own": False}, True),
        ({"tells": ["aggregator"]}, False),
        ({"tells": ["aggregator"], "asked": True}, True),  # a word about an answer is none about plans
        ({"tells": ["client"]}, True),  # positions of a client's own travel
        ({"tells": ["client"], "own": False}, False),
    ],
)
def test_a_component_that_says_who_sees_its_plans_is_taken_at_its_word(options: dict[str, Any], listed: bool) -> None:
    negotiation = {"use": "row.quiet", **options}
    protocol, engine, _ = build(recipe_of("noised", clipped(noise(1.0)), negotiate_mask=negotiation))
    engine.close()
    assert ("plans of clients" in [shown.what for shown in protocol.ledger.reveals]) is listed


def test_a_curve_prices_its_own_mechanism_and_nothing_else() -> None:
    released = run_protocol(two_zones(odd(), odd(factor=100.0))).protocol.ledger
    assert set(released.curves) == {"row.odd", "noise-2"}
    both = composed_epsilon(0.0, [("a", 1.0, 1), ("b", 1.0, 1)], 1e-5, {"a": Steep(1.0), "b": Steep(100.0)})
    assert released.epsilon() == pytest.approx(both)
    # Equal curves may share a name.
    same = run_protocol(two_zones(odd(mechanism="odd"), odd(mechanism="odd"))).protocol.ledger
    assert same.epsilon() == pytest.approx(composed_epsilon(0.0, [("a", 1.0, 2)], 1e-5, {"a": Steep(1.0)}))


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ({}, {"factor": 100.0}, "noise-2 in zone clear states another curve for the mechanism odd"),
        ({}, {"stated": False}, "noise-2 in zone clear states no curve for the mechanism odd"),
        ({"stated": False}, {}, "row.odd in zone noised states no curve for the mechanism odd"),
    ],
)
def test_two_costs_under_one_name_are_refused(one: dict[str, Any], other: dict[str, Any], said: str) -> None:
    found = refused(two_zones(odd(mechanism="odd", **one), odd(mechanism="odd", **other)))
    assert said in found
    assert "name the mechanisms apart (mechanism=self.name)" in found


@pytest.mark.parametrize("name", ["gaussian", "discrete_gaussian", "laplace", "pure"])
def test_a_curve_may_not_reprice_noise_that_the_core_prices(name: str) -> None:
    said = refused(two_zones(noise(1.0), odd(mechanism=name, factor=0.01)))
    assert "recipe.protect.clear.1" in said
    assert f"noise-2 in zone clear states a curve for {name} noise, whose cost is known here" in said


def test_a_curve_that_changes_with_the_round_is_refused() -> None:
    said = refused(recipe_of("noised", clipped(odd(from_round=1)), rounds=2))
    assert "row.odd in zone noised states another curve" in said
    assert "let scale or multiplier change from round to round and not the curve" in said
    for rounds in (1, 2):
        unequal = recipe_of("noised", clipped(odd(equal=False)), rounds=rounds)
        assert "make the curve a frozen dataclass" in refused(unequal)


def test_a_curve_that_changes_in_the_middle_stops_the_run_before_anybody_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The check sees the first round and the last."""
    protocol, engine, _ = build(recipe_of("noised", clipped(odd()), rounds=3))
    try:
        protocol.setup()
        protocol.round(0)
        stated = Odd.effects
        monkeypatch.setattr(Odd, "effects", lambda self, known, ctx: tuple(
            dataclasses.replace(noise, curve=Steep(100.0)) for noise in stated(self, known, ctx)
        ))  # fmt: skip
        with pytest.raises(FedplugError, match=r"round 2: row\.odd in zone noised states another curve"):
            protocol.round(1)
    finally:
        engine.close()
    assert len(protocol.ledger.log) == 1
    assert protocol.books.charging.owed is None


def test_a_ledger_is_set_up_for_one_cost_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Curves that follow from the size of the model are equal in the check, which knows none."""
    stated = Odd.effects
    monkeypatch.setattr(Odd, "effects", lambda self, known, ctx: tuple(
        dataclasses.replace(noise, curve=Steep(1.0 + known.size * (known.zone == "clear")))
        for noise in stated(self, known, ctx)
    ))  # fmt: skip
    with pytest.raises(FedplugError, match=r"noise-2 in zone clear states another curve for the mechanism odd"):
        build(two_zones(odd(mechanism="odd"), odd(mechanism="odd")))


def test_a_class_of_another_role_cannot_be_offered() -> None:
    catalog = Catalog.discover()
    catalog.groups["protect"]["row.chatty"] = Entry("row.chatty", "protect", "x:Chatty", "test", "0", Chatty)
    with pytest.raises(RecipeError, match="is not a Protector; write class Chatty"):
        Recipe.from_plain(recipe_of("noised", [{"use": "row.chatty"}]), catalog)
