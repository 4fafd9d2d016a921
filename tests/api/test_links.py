"""Links give operations where they may, and the core folds them."""

from __future__ import annotations

import math
from typing import Any

import pytest
from chain_toys import (
    CLIP,
    MAP,
    POST,
    SEAL,
    Fails,
    Says,
    by_scores,
    context,
    links_of,
    noise,
    only,
)
from fedplug import (
    Clip,
    Combine,
    Known,
    Look,
    Map,
    Misplaced,
    Noise,
    Round,
    Scale,
)
from fedplug.api import grids
from fedplug.api.errors import PluginError, ProtectionError
from fedplug.api.links import Link, ballot_states, fold, uploaded
from fedplug.api.norms import Bound


def test_noise_that_is_worth_nothing_still_moves_values() -> None:
    """Without a bound its multiplier is 0. The other known facts about the values are lost anyway."""
    by = Says("noise", by_scores(1.0))
    for noises, left in ((noise(0.1), ()), (by, ()), (noise(0.0), (Bound(2.0, order=1),))):
        steps = fold(links_of(Says("clip", Clip(2.0, order=1)), noises), context())
        behind = uploaded(steps)
        assert behind is not None
        assert [release.noise_multiplier for release in behind.releases] == [0.0]
        assert behind.bounds == left


# -- permitted places of an operation ----------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["noise", [Clip(1.0)], (1.0,), {"noise"}, ("noise",), None, Clip])
def test_a_link_gives_operations_or_a_function(given: Any) -> None:
    part = Says("odd")
    part.given = given
    link = Link("noised", "protect", "odd", part, "client")
    if given is Clip:  # a class can be called; it is a function like any other
        assert isinstance(fold([link], context())[0].operations[0], Map)
        return
    with pytest.raises(Misplaced, match=r"^component odd, hook protect: it gave .*; give a tuple of operations \(Cl"):
        fold([link], context())


def test_a_function_alone_promises_nothing() -> None:
    part = Says("odd")
    part.given = lambda *_: None  # type: ignore[assignment]
    for hook, kind in (("protect", Map), ("postprocess", Map), ("aggregate", Combine)):
        (operation,) = Link("noised", hook, "odd", part, "client").operations(Known(zone="noised"), context())  # type: ignore[arg-type]
        assert isinstance(operation, kind)
    part.given = Clip(1.0)  # type: ignore[assignment]
    assert Link("noised", "protect", "odd", part, "client").operations(Known(zone="noised"), context()) == (Clip(1.0),)


def test_a_hook_that_fails_is_named() -> None:
    said = r"^component odd, hook protect: KeyError: 'what' \(chain_toys\.py:\d+\)$"
    with pytest.raises(PluginError, match=said):
        fold([Link("noised", "protect", "odd", Fails("odd"), "client")], context())


# -- noise is settled at its place -------------------------------------------------------------------------------------


def settled(*given: Any, **where: Any) -> Noise:
    """The noise of such a link, as executed."""
    (found,) = [operation for operation in only(*given, **where).operations if isinstance(operation, Noise)]
    return found


def test_noise_gets_the_finest_grid_that_float32_holds_unless_a_coarser_one_is_given() -> None:
    assert settled(Clip(2.0), Noise.gaussian(3.0)).grid == grids.finest(2.0, 3.0)
    assert settled(Clip(2.0, order=1), Noise.laplace(3.0)).grid == grids.finest(2.0, 3.0, "laplace")
    assert settled(Clip(2.0), Noise.gaussian(3.0, grid=0.5)).grid == 0.5
    with pytest.raises(ProtectionError, match=r"grid=7.88\S+e-31 must be at least .*, or float32 cannot hold"):
        settled(Clip(2.0), Noise.gaussian(3.0, grid=2.0**-100))
    with pytest.raises(Misplaced, match=r"^odd: grid=0.3 must be a power of two, such as 0.25; or leave it out"):
        settled(Clip(2.0), Noise.gaussian(3.0, grid=0.3))
    with pytest.raises(ProtectionError, match="are not numbers of float32"):
        settled(Clip(2.0), Noise.gaussian(1e39))
    # For a sum it covers all clients that may send: it must not show how many did.
    central = settled(Noise.gaussian(3.0), hook="postprocess", site="server", before=(CLIP,))
    assert (central.trust, central.grid) == ("central", grids.finest(1.0 * 3, 3.0))
    layers = settled(Clip((2.0, 8.0), per="layer"), Noise.gaussian((1.0, 4.0)))
    assert layers.grid == grids.finest(2.0, 1.0)


def test_what_the_source_takes_is_noted_by_the_core() -> None:
    exact = settled(Clip(2.0), Noise.gaussian(3.0, source="exact", note="Mine"))
    assert exact.slack == grids.exact_slack(3.0 / (exact.grid or math.nan), 4 * 1 * 3)
    assert exact.note.startswith("Mine; discrete Gaussian; over the run delta grows by less than (1 + e^epsilon)")
    assert exact.mechanism == "discrete_gaussian"
    assert "subtract this noise" in settled(Clip(2.0), Noise.gaussian(3.0, source="reproducible")).note
    with pytest.raises(ProtectionError, match=r"grid=1 must be at most std / 2\^15"):
        settled(Clip(2.0), Noise.gaussian(3.0, source="exact", grid=1.0))


def test_the_price_of_a_links_own_mechanism_rests_on_that_link() -> None:
    own = Noise.own("skellam", lambda values, public, stream: values, multiplier=2.0, source="secure", order=2)
    for noises, words in ((own, ["odd"]), (Noise.gaussian(1.0), []), (by_scores(1.0), [])):
        (release,) = only(Clip(1.0), noises).after.releases
        assert release.words == words


# -- ballots -----------------------------------------------------------------------------------------------------------


def test_ballots_are_a_clip_and_a_noise() -> None:
    made, states = ballot_states("votes", (Scale(2.0), Clip(1.0), Noise.gaussian(2.0), POST), context())
    (release,) = states[-1].releases
    assert (release.noise_multiplier, release.link) == (2.0, "votes")
    assert [type(operation).__name__ for operation in made] == ["Scale", "Clip", "Noise", "Post"]
    (central,) = ballot_states("votes", (Clip(1.0), Noise.gaussian(2.0, trust="central")), context())[1][-1].releases
    assert (central.trust, central.noise_multiplier) == ("central", 2.0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((MAP,), "the ballots of votes give Map; give Clip and Noise, with Scale or Post"),
        ((Look(lambda *_: None),), "give Look"), ((Round(0.5),), "give Round"), (SEAL.given, "give Seal"),
        ((Clip(1.0, per="scalar"),), "give Clip of each layer or scalar, and how many a ballot has the ledger does"),
        ((Clip(1.0, order=math.inf),), "give Clip of each"), ((Clip(1.0, per="layer"),), "give Clip of each"),
        ((Clip(1.0), Noise.gaussian((1.0, 2.0))), "give Noise of each layer"),
        ("yes", "component votes, hook ballots: it gave 'yes'; give a tuple of operations"),
    ],
)  # fmt: skip
def test_ballots_give_what_the_ledger_can_price(given: Any, said: str) -> None:
    with pytest.raises(Misplaced) as caught:
        ballot_states("votes", given, context())
    assert said in str(caught.value)
