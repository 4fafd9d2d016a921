"""Mixes for which a claim was once false. Each is now priced correctly, or refused with a reason and a remedy."""

from __future__ import annotations

import math
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import Block, Client, Clip, Facts, Known, Map, Operations, Post, Reveals, Scale
from fedplug.api.errors import RecipeError
from fedplug.api.events import Asking
from fedplug.recipe.catalog import Catalog, Entry
from fedplug.recipe.composition import hook_problems
from fedplug.recipe.recipe import Recipe
from fedplug_ledger.accounting import gaussian_epsilon
from fedplug_ledger.wording import PLAIN_VALUES
from mix_toys import ENCRYPTED, clipped, install, noise, refused, views, zero_out
from toy_components import recipe_of
from toy_protocol import build, run_protocol

CKKS_AT_CLIENTS = {"use": "std.ckks", "key_holder": "clients"}


class Free(fedplug.Protector):
    """Multiplies by 100, with access to the client."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Map(self.hundred),)

    def hundred(self, block: Block, client: Client, facts: Facts) -> Any:
        return block.plain() * np.float32(100)


class Blind(fedplug.Protector):
    """Multiplies by 100, with access only to the values."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Post(lambda values, public: values * np.float32(100)),)


class Scaled(fedplug.Protector):
    """Multiplies by 100, and the core does it."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Scale(100.0),)


class Chatty(fedplug.Negotiation):
    """Asks every client for its largest value, without stating it."""

    class Options(fedplug.Options):
        """Whether it states this."""

        says: bool = False

    @property
    def plans(self) -> fedplug.Plans:
        return fedplug.Plans(zones=frozenset({"noised"}))

    def negotiate_mask(self, cohort: Any, facts: Facts) -> None:
        cohort.ask(self.largest)
        cohort.tell(self.adopt)

    @fedplug.at_client
    def largest(self, client: Client) -> float:
        assert client.update is not None
        return float(np.abs(client.update).max())

    @fedplug.at_client
    def adopt(self, client: Client) -> None:
        client.plan = fedplug.Plan.of(client.facts, "noised")

    def reveals(self, facts: Facts) -> list[Reveals]:
        return [Reveals("largest values", ("server",), asked=("largest",))] if self.options.says else []


class Quiet(fedplug.Negotiation):
    """Retains all but its largest values, and does not state what their positions reveal."""

    class Options(fedplug.Options):
        """The statement and its receivers."""

        tells: tuple[str, ...] = ()
        what: str = "mask"
        own: bool = True

    @property
    def plans(self) -> fedplug.Plans:
        own = frozenset({"noised"} if self.options.own else ())
        return fedplug.Plans(zones=frozenset({"noised", "retained"}), own=own)

    def negotiate_mask(self, cohort: Any, facts: Facts) -> None:
        cohort.tell(self.choose)

    @fedplug.at_client
    def choose(self, client: Client) -> None:
        keep = np.ones(client.facts.layout.size, bool)
        keep[np.argsort(np.abs(client.update))[-50:]] = False
        client.plan = fedplug.Plan.of(client.facts, "noised", retained=keep)

    def reveals(self, facts: Facts) -> list[Reveals]:
        return [Reveals(self.options.what, self.options.tells)] if self.options.tells else []


MINE: dict[str, dict[str, type]] = {
    "protect": {"row.free": Free, "row.blind": Blind, "row.scaled": Scaled},
    "negotiate_mask": {"row.chatty": Chatty, "row.quiet": Quiet},
}


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, MINE)


def test_a_server_link_behind_a_client_link_is_refused() -> None:
    central = {"use": "std.central_gaussian", "norm": 1.0, "epsilon": 1, "delta": 1e-5}
    plain = recipe_of(ENCRYPTED, clipped(CKKS_AT_CLIENTS), postprocess={ENCRYPTED: ["std.ckks", central]})
    said = refused(plain)
    assert "std.central_gaussian runs at the aggregation server, but std.ckks before it runs at the clients" in said
    assert "it would never run" in said
    assert "key_holder: key_server" in said


def test_a_negotiation_without_a_statement_cannot_be_offered() -> None:
    """A misspelt one is a missing one."""

    class Misspelt(fedplug.Negotiation):
        plans = fedplug.Plans(zones=frozenset({"noised"}))
        negotiate_mask = Chatty.negotiate_mask

        def side_channel(self, facts: Facts) -> list[Reveals]:
            return []

    (problem,) = hook_problems(Misspelt, "negotiate_mask")
    assert problem == "has no reveals(facts), which a Negotiation must have"


@pytest.mark.parametrize("use", ["row.free", "row.blind"])
def test_a_function_loses_the_bound_before_it(use: str) -> None:
    said = refused(recipe_of("noised", clipped({"use": use}, noise(1.0))))
    assert "std.gaussian needs a bound of the L2 norm" in said
    assert f"{use} c" in said
    assert "put a clip behind it" in said
    # Its own bound after it holds, whatever it did before.
    again = {"use": "std.clip", "norm": 1.0, "name": "again"}
    plain = recipe_of("noised", clipped({"use": use}, again, noise(1.0)))
    assert zero_out(plain, "server") > 0


def test_a_function_behind_the_noise_that_has_the_client_in_hand_leaves_no_guarantee() -> None:
    outcome = run_protocol(recipe_of("noised", clipped(noise(1.0), {"use": "row.free"})))
    ledger = outcome.protocol.ledger
    assert {view.epsilon for view in ledger.report().views.values()} == {None}
    assert ledger.verdict().status == "no_protection"
    assert any("row.free" in text for text in ledger.report().warnings)


@pytest.mark.parametrize("after", [{"use": "row.blind"}, {"use": "row.scaled"}])
def test_what_is_done_to_noised_values_alone_costs_nothing(after: dict[str, Any]) -> None:
    plain = recipe_of("noised", clipped(noise(1.0)), rounds=1)
    behind = recipe_of("noised", clipped(noise(1.0), after), rounds=1)
    assert zero_out(behind, "server") == zero_out(plain, "server") > 0


def test_noise_without_a_bound_has_no_price() -> None:
    said = refused(recipe_of("noised", [noise(1.0)]))
    assert "std.gaussian needs a bound of the L2 norm" in said
    unbounded = recipe_of("noised", [{"use": "row.bare"}], rounds=1)
    ledger = run_protocol(unbounded).protocol.ledger
    assert {view.epsilon for view in ledger.report().views.values()} <= {None, math.inf}
    assert ledger.verdict().status == "no_protection"


class Bare(fedplug.Protector):
    """Noise, and nothing that bounds values before it."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (fedplug.Noise.gaussian(5.0),)


MINE["protect"]["row.bare"] = Bare


def test_a_protector_that_scales_scales_the_bound() -> None:
    ledger = run_protocol(recipe_of("noised", clipped({"use": "row.scaled"}, noise(1.0)), rounds=1)).protocol.ledger
    (release,) = ledger.log[0].zones["noised"].releases
    assert release.clipping_norm == pytest.approx(100.0)
    assert release.noise_multiplier == pytest.approx(1.0)


def test_a_grid_that_swallows_the_noise_of_others_earns_no_credit_for_it() -> None:
    plain = recipe_of("noised", clipped(noise(0.25, grid=2.0)), rounds=1)
    plain["data"] |= {"clients": 100, "partition": {"use": "std.iid"}}
    plain["aggregate"] = {"use": "std.mean", "weighting": "uniform"}
    released = zero_out(plain, "released_model")
    assert released >= 5.75  # the true value; with credit for 99 others it was 1.55
    fine = zero_out(plain | {"protect": {"noised": clipped(noise(0.25))}}, "released_model")
    assert fine == pytest.approx(gaussian_epsilon(2.5, 1e-5), rel=1e-6)


def test_rounding_behind_the_clip_lifts_the_sensitivity() -> None:
    central = {"use": "std.central_gaussian", "norm": 1.0, "noise_multiplier": 2.867}
    ckks = {"use": "std.ckks", "key_holder": "key_server", "grid_bits": 1}
    plain = recipe_of(ENCRYPTED, clipped(ckks), postprocess={ENCRYPTED: ["std.ckks", central]}, rounds=1)
    released = zero_out(plain, "released_model")
    assert gaussian_epsilon(2.867, 1e-5) == pytest.approx(1.33, abs=0.01)  # the claimed value
    assert released == pytest.approx(2.77, rel=0.1)  # rounding to multiples of 0.5 at most doubles a norm
    assert released == pytest.approx(gaussian_epsilon(2.867 / 2, 1e-5), rel=1e-6)


def test_norms_of_layers_are_not_the_norm_of_the_update() -> None:
    known = Known(zone="noised", layers=(30, 30, 40)).after(Clip((0.15, 0.15, 0.2), per="layer"))
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
    assert found["server"].epsilon is None
    assert "row.chatty asks clients for largest" in found["server"].detail
    verdict = run_protocol(plain).protocol.ledger.verdict()
    assert verdict.status == "no_protection"
    assert verdict.toward("released_model").reason == "row.chatty has answers sent that no statement covers"
    # Its plans may follow from the answers, and the model from its plans.
    assert {view.epsilon for view in found.values()} == {None}
    plain["negotiate_mask"] = {"use": "row.chatty", "says": True}
    # It states what it reveals. But its answers are values of the update, which clients of a recorded run find.
    assert views(plain)["server"].detail == PLAIN_VALUES


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
    assert listed.to == ("server", "client")
    assert "row.quiet does not say who sees it" in listed.note


@pytest.mark.parametrize(
    ("options", "listed"),
    [
        ({}, True),
        ({"own": False}, True),
        ({"tells": ["server"]}, False),
        ({"tells": ["server"], "what": "ballots"}, True),  # a statement about an answer is not one about plans
        ({"tells": ["client"]}, True),  # positions that differ between clients travel
        ({"tells": ["client"], "own": False}, False),
    ],
)
def test_a_component_that_says_who_sees_its_plans_is_taken_at_its_word(options: dict[str, Any], listed: bool) -> None:
    negotiation = {"use": "row.quiet", **options}
    protocol, engine, _ = build(recipe_of("noised", clipped(noise(1.0)), negotiate_mask=negotiation))
    engine.close()
    assert ("plans of clients" in [shown.what for shown in protocol.ledger.reveals]) is listed


def test_a_class_of_another_role_cannot_be_offered() -> None:
    catalog = Catalog.discover()
    catalog.groups["protect"]["row.chatty"] = Entry("row.chatty", "protect", "x:Chatty", "test", "0", Chatty)
    with pytest.raises(RecipeError, match="is not a Protector; write class Chatty"):
        Recipe.from_plain(recipe_of("noised", [{"use": "row.chatty"}]), catalog)
