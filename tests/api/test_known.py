"""What follows from effects: the fold over a zone's links, number by number."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import (
    Adds,
    Bound,
    Changes,
    CoversSupport,
    Known,
    Noise,
    Opens,
    Rounding,
    Scales,
    Scramble,
    Seal,
    Uncredited,
)
from fedplug.api import norms
from fedplug.api.operations import Misplaced
from fedplug.api.releases import Release
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

PLAIN = Known(zone="noised", link="this", layers=(90, 10))
SEAL = Seal(scheme="a test", opened_by="clients", range=8.0, step=0.5)


def behind(*effects: Any, before: Known = PLAIN) -> Known:
    return before.after(effects)


def gaussian(scale: Any, **facts: Any) -> Noise:
    return Noise(mechanism="gaussian", scale=scale, **facts)


def only(known: Known) -> Release:
    (release,) = known.releases
    return release


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_a_bound_implies_others_only_where_that_is_true() -> None:
    assert PLAIN.norm() is None
    assert behind(Bound(2.0)).norm() == 2.0
    assert behind(Bound(2.0)).norm(1) is None
    assert behind(Bound(2.0, order=1)).norm(1) == 2.0
    for scalar in (Bound(0.5, per="scalar"), Bound(0.5, order=math.inf)):
        assert behind(scalar).norm() == pytest.approx(0.5 * math.sqrt(100))
        assert behind(scalar).norm(1) == pytest.approx(0.5 * 100)
    assert behind(Bound((3.0, 4.0), per="layer")).norm() == 5.0
    assert behind(Bound((3.0, 4.0), order=1, per="layer")).norm(1) == 7.0
    assert behind(Bound(3.0, per="layer")).norm() == pytest.approx(3 * math.sqrt(2))
    assert behind(Bound((3.0, 4.0), per="layer")).layer_norms() == (3.0, 4.0)
    assert behind(Bound(5.0)).layer_norms() is None


def test_before_a_model_is_known_magnitudes_bound_no_norm() -> None:
    """The check of a recipe knows no layers; a link there must take what it is given."""
    early = Known(zone="noised", link="this")
    assert behind(Bound(0.5, per="scalar"), before=early).norm() == math.inf
    assert only(behind(Bound(0.5, per="scalar"), gaussian(1.0), before=early)).noise_multiplier == 0


def test_of_several_bounds_the_least_counts_and_a_second_clip_replaces_its_like() -> None:
    assert behind(Bound(2.0), Bound(0.1, per="scalar")).norm() == pytest.approx(1.0)
    assert behind(Bound(2.0), Bound(0.5, per="scalar")).norm() == 2.0
    again = behind(Bound(2.0), Bound(3.0))
    assert again.bounds == (Bound(3.0),)
    assert [clip.bound.norm for clip in again.clips] == [2.0, 3.0]


def test_scaling_stretches_bounds_noise_grid_and_what_an_encryption_holds() -> None:
    found = behind(Bound(2.0), gaussian(4.0, grid=0.25), SEAL, Opens(), Scales(-3.0))
    assert found.factor == -3.0
    assert found.scales == (12.0,)
    assert found.grid == pytest.approx(1.5)  # the seal's step is the coarser
    release = only(found)
    assert (release.range, release.step) == (24.0, 1.5)
    assert release.noise_multiplier == 2.0  # of the clip before the noise: scaling costs nothing
    assert behind(Bound((1.0, 2.0), per="layer"), Scales(0.5)).layer_norms() == (0.5, 1.0)


@pytest.mark.parametrize(
    ("bound", "norm"),
    [
        (Bound(9.0), 9.0 + 0.25 * math.sqrt(100)),
        (Bound(90.0, order=1), 90.0 + 0.25 * 100),
        (Bound((9.0, 3.0), per="layer"), (9.0 + 0.25 * math.sqrt(90), 3.0 + 0.25 * math.sqrt(10))),
        (Bound(9.0, per="layer"), (9.0 + 0.25 * math.sqrt(90), 9.0 + 0.25 * math.sqrt(10))),
        (Bound(2.0, per="scalar"), 2.25),
        (Bound(2.0, order=math.inf), 2.25),
        # What is smaller than half a step goes to 0, so that no value more than doubles.
        (Bound(1.0), 2.0),
        (Bound(1.0, order=1), 2.0),
        (Bound((1.0, 3.0), per="layer"), (2.0, 3.0 + 0.25 * math.sqrt(10))),
    ],
    ids=str,
)
def test_rounding_lengthens_norms_by_half_a_step_a_scalar(bound: Bound, norm: Any) -> None:
    found = behind(bound, Rounding(0.5))
    assert found.bounds[0].norm == pytest.approx(norm)
    assert found.grid == 0.5


@settings(deadline=None)
@given(arrays(np.float64, 100, elements=st.floats(-1, 1)), st.floats(0.01, 2.0), st.sampled_from([1, 2]))
def test_rounded_values_keep_the_widened_bound(values: Any, step: float, order: int) -> None:
    norm = float(np.linalg.norm(values, order))
    rounded = np.rint(values / step) * step
    most = behind(Bound(norm, order=order), Rounding(step)).norm(order)
    assert most is not None
    assert np.linalg.norm(rounded, order) <= most * (1 + 1e-12)


def test_changes_keep_norms_only_where_that_is_said() -> None:
    assert behind(Bound(1.0), Rounding(0.5), Changes("kept")).bounds != ()
    assert behind(Bound(1.0), Rounding(0.5), Changes("kept")).grid == 0
    assert behind(Bound(1.0), Changes()).bounds == ()
    assert behind(Bound(1.0)) == behind(Bound(1.0), *())


# -- noise -------------------------------------------------------------------------------------------------------------


def test_a_noise_costs_its_scale_over_the_bound_of_its_norm() -> None:
    release = only(behind(Bound(0.5), gaussian(2.0, source="exact", slack=1e-9, calibrated_delta=1e-5, grid=0.1)))
    assert (release.noise_multiplier, release.clipping_norm, release.link) == (4.0, 0.5, "this")
    assert (release.source, release.slack, release.calibrated_delta, release.step) == ("exact", 1e-9, 1e-5, 0.1)
    assert only(behind(Bound(0.5, order=1), Noise(mechanism="laplace", scale=2.0))).noise_multiplier == 4.0
    # Of a norm of another order nothing follows, and where nothing is known no noise hides anything.
    for chain in ((gaussian(2.0),), (Bound(0.5, order=1), gaussian(2.0)), (Bound(0.5), Noise(mechanism="laplace",
                  scale=2.0))):  # fmt: skip
        assert only(behind(*chain)).noise_multiplier == 0
        assert math.isnan(only(behind(*chain)).clipping_norm)


def test_noise_ends_every_bound_unless_it_is_none() -> None:
    noised = behind(Bound(0.5), gaussian(2.0, grid=0.25))
    assert (noised.norm(), noised.grid, noised.clips[0].noised) == (None, 0.25, True)
    silent = behind(Bound(0.5), Rounding(0.5), gaussian(0.0))
    assert silent.norm() is not None
    assert (silent.grid, silent.clips[0].noised) == (0.5, False)
    assert only(silent).noise_multiplier == 0


def test_noise_of_a_size_for_each_layer_is_one_release_of_all_of_them() -> None:
    """(sum of (C_l / s_l)^2)^(-1/2), without credit for the noise of others."""
    release = only(behind(Bound((3.0, 4.0), per="layer"), gaussian((6.0, 16.0))))
    assert release.noise_multiplier == pytest.approx(1 / math.hypot(0.5, 0.25))
    assert "sizes of its own, so others' noise earns no credit" in release.uncredited
    assert only(behind(Bound((3.0, 4.0), per="layer"), gaussian((6.0, 0.0)))).noise_multiplier == 0
    # A bound of the whole update may lie in the layer with the least noise.
    assert only(behind(Bound(2.0), gaussian((6.0, 16.0)))).noise_multiplier == 3.0


def test_a_stated_multiplier_counts_where_the_scale_is_not_one_number() -> None:
    release = only(behind(Bound(1.0), gaussian(None, multiplier=2.5)))
    assert release.noise_multiplier == 2.5
    assert "sizes of its own" in release.uncredited
    assert only(behind(Bound(1.0), gaussian(None))).noise_multiplier == 0
    pure = only(behind(Noise(mechanism="pure", multiplier=0.5)))
    assert (pure.noise_multiplier, pure.uncredited) == (0.5, "")


def test_what_keeps_others_noise_from_counting_stays_with_the_release() -> None:
    before = behind(Bound(1.0), Uncredited("values are drawn alike"), gaussian(2.0))
    after = behind(Bound(1.0), gaussian(2.0), Uncredited("values are drawn alike"))
    assert only(before).uncredited == only(after).uncredited == "values are drawn alike"
    twice = behind(Bound(1.0), gaussian(2.0), Uncredited("first"), Uncredited("second"))
    assert (only(twice).uncredited, twice.uncredited) == ("first", ("first", "second"))


# -- seals -------------------------------------------------------------------------------------------------------------


def test_a_seal_says_what_it_holds_of_the_noise_before_it() -> None:
    sealed = behind(Bound(1.0), gaussian(2.0), SEAL)
    assert (only(sealed).range, only(sealed).step) == (8.0, 0.5)
    assert (sealed.sealed, sealed.sealers, sealed.weighted, sealed.grid) == ((SEAL,), ("this",), True, 0.5)
    assert behind(Bound(9.0), SEAL).norm() == pytest.approx(9.0 + 0.25 * math.sqrt(100))
    # Noise that is added to the opened sum has never been under it.
    central = behind(Bound(9.0), SEAL, Adds(), Opens(), gaussian(2.0, trust="central"))
    assert (only(central).range, only(central).step, central.sealed) == (math.inf, 0.0, ())
    assert only(central).noise_multiplier == pytest.approx(2.0 / 11.5)


def test_of_two_seals_the_narrower_and_the_coarser_count_and_the_outer_opens_first() -> None:
    outer = dataclasses.replace(SEAL, range=2.0, step=0.125)
    both = behind(Bound(1.0), gaussian(2.0), SEAL, outer)
    assert (only(both).range, only(both).step) == (2.0, 0.5)
    assert behind(Opens(), before=both).sealed == (SEAL,)


@pytest.mark.parametrize("unknown", [{"range": math.nan}, {"step": math.nan}])
def test_a_seal_of_which_nobody_knows_what_it_holds_earns_no_credit(unknown: dict[str, Any]) -> None:
    found = behind(Bound(1.0), gaussian(2.0), dataclasses.replace(SEAL, **unknown))
    assert only(found).uncredited == "this does not say what values it holds, so others' noise earns no credit"
    assert (found.bounds, found.sealed != ()) == ((), True)


def test_a_scramble_leaves_the_weight_out_and_a_sum_of_plain_values_has_no_grid() -> None:
    scramble = Scramble(hides="values", range=4.0, step=0.25)
    scrambled = behind(Rounding(0.5), scramble)
    assert (scrambled.weighted, scrambled.grid) == (False, 0.25)
    assert behind(Rounding(0.5), Adds()).grid == 0  # weights are not whole numbers
    assert behind(Rounding(0.5), Adds()).summed
    assert behind(SEAL, Adds()).grid == 0.5
    assert behind(CoversSupport()).covers_support


# -- what nobody says --------------------------------------------------------------------------------------------------


def test_a_link_at_a_client_that_states_nothing_voids_everything() -> None:
    known = behind(Bound(1.0), Rounding(0.5), gaussian(2.0), Scales(2.0), SEAL).voided(at_client=True)
    assert (known.bounds, known.releases, known.scales, known.sealed, known.grid) == ((), (), (), (), 0.0)
    assert known.unstated == ("this",)
    # Its own noise may count again, without that of others.
    later = behind(Bound(1.0), gaussian(2.0), before=known)
    assert only(later).noise_multiplier == 2.0
    assert only(later).uncredited == "this states no effect, so nothing is promised behind it"


def test_a_link_at_the_server_that_states_nothing_leaves_local_noise() -> None:
    """Whatever a server does with noised uploads costs no more; noise that it added itself may be gone."""
    local, central = gaussian(2.0), gaussian(9.0, trust="central", multiplier=9.0)
    known = behind(Bound(1.0), local, Adds(), central).voided(at_client=False)
    assert [release.trust for release in known.releases] == ["local"]
    assert known.scales == (2.0,)
    assert (known.bounds, known.factor) == ((), 1.0)


# -- order rules and statements ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("there", "what"), [(gaussian(2.0), "noise"), (SEAL, "encryption"), (Bound(1.0), "clip")], ids=["n", "e", "c"]
)
def test_an_order_rule_names_link_rule_zone_and_remedy(there: Any, what: Any) -> None:
    PLAIN.before(what, "move it")
    with pytest.raises(Misplaced) as caught:
        behind(there).before(what, "move it")
    assert str(caught.value) == f"this must not come after {what} in the chain of zone noised; move it"


def test_a_missing_norm_names_who_took_it() -> None:
    assert behind(Bound(1.0)).need_norm("clip") == 1.0
    with pytest.raises(Misplaced, match=r"^this needs a bound of the L1 norm .* in the chain of zone noised; clip"):
        behind(Bound(1.0)).need_norm("clip", order=1)
    silent = dataclasses.replace(behind(Bound(1.0)), link="odd").voided(at_client=True)
    with pytest.raises(Misplaced, match=r"zone noised \(odd states no effect, so bounds do not hold behind it\); clip"):
        silent.need_norm("clip")
    noised = dataclasses.replace(behind(Bound(1.0), gaussian(1.0)), link="that")
    with pytest.raises(Misplaced, match=r"zone noised \(behind the noise of this no bound holds\); clip"):
        noised.need_norm("clip")


@settings(deadline=None, max_examples=50)
@given(
    noised=arrays(np.float64, 100, elements=st.floats(-1, 1)), moved=arrays(np.float64, 100, elements=st.floats(-1, 1)),
    clip=st.sampled_from([Bound(1.0), Bound(2.0, order=1), Bound(0.1, order=math.inf), Bound(0.5, per="layer")]),
    first=st.sampled_from([Bound(1.0), Bound(1.0, order=1), Bound((0.6, 0.8), per="layer"), Bound(0.1, per="scalar")]),
    order=st.sampled_from([1, 2]),
)  # fmt: skip
def test_a_clip_behind_noise_brings_values_no_further_apart_than_is_said(
    noised: Any, moved: Any, clip: Bound, first: Bound, order: int
) -> None:
    known = behind(first, gaussian(1.0), clip, Adds())
    stated = min([n for b in known.beneath if (n := norms.implied(b, order, known.layers)) is not None], default=None)
    if stated is None:
        return
    # What one client's data adds to the noise is as long as the first bound allows.
    away = norms.implied(first, 2, known.layers) or first.norm
    size = np.linalg.norm(moved, 1 if first.order == 1 else 2)
    moved = np.clip(moved, -0.1, 0.1) if first.per == "scalar" else moved * min(1, away / max(size, 1e-9))
    if first.per == "layer":
        moved = np.concatenate([scaled(moved[:90], 0.6), scaled(moved[90:], 0.8)])
    apart = clipped(noised + moved, clip) - clipped(noised, clip)
    assert np.linalg.norm(apart, order) <= stated * (1 + 1e-9)


def scaled(values: Any, norm: float, order: float = 2) -> Any:
    return values * min(1, norm / max(float(np.linalg.norm(values, order)), 1e-12))


def clipped(values: Any, clip: Bound) -> Any:
    assert isinstance(clip.norm, float)
    if clip.order == math.inf:
        return np.clip(values, -clip.norm, clip.norm)
    if clip.per == "layer":
        return np.concatenate([scaled(values[:90], clip.norm), scaled(values[90:], clip.norm)])
    return scaled(values, clip.norm, clip.order)


def test_a_clip_in_another_norm_behind_noise_ends_what_lies_beneath() -> None:
    """Scaled down to an L1 norm of 10, two vectors that lie 1 apart in L2 come to lie 5 apart."""
    assert behind(Bound(1.0), gaussian(0.1), Bound(10.0, order=1), Adds()).sensitivity() is None
    one = np.zeros(100)
    one[0] = 10.0
    apart = scaled(one + 0.1, 10.0, 1) - scaled(one, 10.0, 1)
    assert np.linalg.norm(apart) > 4.9 * np.linalg.norm(np.full(100, 0.1))
    laplace = Noise(mechanism="laplace", scale=0.1)
    assert behind(Bound(1.0, order=1), laplace, Bound(5.0), Adds()).sensitivity(1) is None
    assert behind(Bound(1.0), gaussian(0.1), Bound(0.5), Adds()).sensitivity() == 0.5


def test_central_noise_is_measured_by_what_lies_beneath_local_noise() -> None:
    """Noise that does not depend on the data does not raise a sensitivity; its grid does, by one step a scalar."""
    clipped = Known(zone="noised", layers=(100,)).after((Bound(1.0),))
    local = clipped.after((Noise(mechanism="gaussian", scale=0.5, grid=2.0**-10),))
    assert local.norm() is None  # the values themselves have no bound
    assert local.sensitivity() == pytest.approx(1 + 2.0**-10 * 10)
    both = local.after((fedplug.Adds(), Noise(mechanism="gaussian", scale=2.0, trust="central")))
    assert [release.noise_multiplier for release in both.releases] == pytest.approx([0.5, 2 / (1 + 2.0**-10 * 10)])
    assert local.after((fedplug.Changes("kept"),)).sensitivity() is None
