"""The facts that follow from operations: the fold over a zone's links, number by number."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from fedplug import (
    Clip,
    Combine,
    FixedPoint,
    Known,
    Look,
    Map,
    Misplaced,
    Noise,
    Open,
    Post,
    Rotate,
    Round,
    Scale,
    Scramble,
    Seal,
    Shift,
    WeightedSum,
    Widen,
)
from fedplug.api import norms
from fedplug.api.known import Release
from fedplug.api.norms import Bound
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

PLAIN = Known(zone="noised", link="this", layers=(90, 10))
SEAL = Seal(scheme="a test", opened_by="clients", numbers=FixedPoint(8.0, 0.5))


ADD = WeightedSum()
MAP = Map(lambda block, client, facts: block)
POST = Post(lambda values, public: values)
COMBINE = Combine(lambda blocks, weights, facts: blocks[0])
SHIFT = Shift(lambda public: np.ones(100, np.float32))
WEIGHED = WeightedSum(by=lambda blocks, server, facts: {})


def behind(*operations: Any, before: Known = PLAIN) -> Known:
    return before.after(*operations)


def gaussian(std: Any, **facts: Any) -> Noise:
    return Noise.gaussian(std, **facts)


def only(known: Known) -> Release:
    (release,) = known.releases
    return release


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_a_bound_implies_others_only_where_that_is_true() -> None:
    assert PLAIN.norm() is None
    assert behind(Clip(2.0)).norm() == 2.0
    assert behind(Clip(2.0)).norm(1) is None
    assert behind(Clip(2.0, order=1)).norm(1) == 2.0
    for scalar in (Clip(0.5, per="scalar"), Clip(0.5, order=math.inf)):
        assert behind(scalar).norm() == pytest.approx(0.5 * math.sqrt(100))
        assert behind(scalar).norm(1) == pytest.approx(0.5 * 100)
    assert behind(Clip((3.0, 4.0), per="layer")).norm() == 5.0
    assert behind(Clip((3.0, 4.0), order=1, per="layer")).norm(1) == 7.0
    assert behind(Clip(3.0, per="layer")).norm() == pytest.approx(3 * math.sqrt(2))
    assert behind(Clip((3.0, 4.0), per="layer")).layer_norms() == (3.0, 4.0)
    assert behind(Clip(5.0)).layer_norms() is None


def test_before_a_model_is_known_magnitudes_bound_no_norm() -> None:
    """The check of a recipe knows no layers. A link there must accept its input."""
    early = Known(zone="noised", link="this")
    assert behind(Clip(0.5, per="scalar"), before=early).norm() == math.inf
    # The cost of the noise is known once the model is.
    assert math.isnan(only(behind(Clip(0.5, per="scalar"), gaussian(1.0), before=early)).noise_multiplier)


def test_of_several_bounds_the_least_counts_and_a_second_clip_replaces_its_like() -> None:
    assert behind(Clip(2.0), Clip(0.1, per="scalar")).norm() == pytest.approx(1.0)
    assert behind(Clip(2.0), Clip(0.5, per="scalar")).norm() == 2.0
    again = behind(Clip(2.0), Clip(3.0))
    assert again.bounds == (Bound(3.0),)
    assert [clip.bound.norm for clip in again.clips] == [2.0, 3.0]


def test_scaling_stretches_bounds_noise_grid_and_what_an_encryption_holds() -> None:
    found = behind(Clip(2.0), gaussian(4.0, grid=0.25), SEAL, Open(), Scale(-3.0))
    assert found.factor == -3.0
    assert found.scales == (12.0,)
    assert found.grid == pytest.approx(1.5)  # the seal's step is the coarser
    release = only(found)
    assert (release.range, release.step) == (24.0, 1.5)
    assert release.noise_multiplier == 2.0  # of the clip before the noise: scaling costs nothing
    assert behind(Clip((1.0, 2.0), per="layer"), Scale(0.5)).layer_norms() == (0.5, 1.0)


@pytest.mark.parametrize(
    ("bound", "norm"),
    [
        (Clip(9.0), 9.0 + 0.25 * math.sqrt(100)),
        (Clip(90.0, order=1), 90.0 + 0.25 * 100),
        (Clip((9.0, 3.0), per="layer"), (9.0 + 0.25 * math.sqrt(90), 3.0 + 0.25 * math.sqrt(10))),
        (Clip(9.0, per="layer"), (9.0 + 0.25 * math.sqrt(90), 9.0 + 0.25 * math.sqrt(10))),
        (Clip(2.0, per="scalar"), 2.25),
        (Clip(2.0, order=math.inf), 2.25),
        # A value below half a step goes to 0, so no value more than doubles.
        (Clip(1.0), 2.0),
        (Clip(1.0, order=1), 2.0),
        (Clip((1.0, 3.0), per="layer"), (2.0, 3.0 + 0.25 * math.sqrt(10))),
    ],
    ids=str,
)
def test_rounding_lengthens_norms_by_half_a_step_a_scalar(bound: Clip, norm: Any) -> None:
    found = behind(bound, Round(0.5))
    assert found.bounds[0].norm == pytest.approx(norm)
    assert found.grid == 0.5


@settings(deadline=None)
@given(arrays(np.float64, 100, elements=st.floats(-1, 1, width=32)), st.floats(0.01, 2.0), st.sampled_from([1, 2]))
def test_rounded_values_keep_the_widened_bound(values: Any, step: float, order: int) -> None:
    norm = float(np.linalg.norm(values, order))
    rounded = np.rint(values / step) * step
    most = behind(Clip(norm, order=order), Round(step)).norm(order)
    if 0 < norm < 2.0**-102:  # no clip bounds what float32 cannot hold
        assert most is None
        return
    assert most is not None
    assert np.linalg.norm(rounded, order) <= most * (1 + 1e-12)


def test_rounding_toward_zero_lengthens_no_norm() -> None:
    found = behind(Clip(1.0), Round(0.5, toward_zero=True))
    assert (found.bounds, found.grid) == ((Bound(1.0),), 0.5)


def test_what_a_function_gives_has_no_bound_until_it_is_clipped() -> None:
    for function in (MAP, POST):
        assert behind(Clip(1.0), Round(0.5), function).bounds == ()
        assert behind(Clip(1.0), Round(0.5), function).grid == 0
        assert behind(function, Clip(1.0)).norm() == 1.0
    assert behind(Clip(1.0), Look(lambda block, client, facts: None)) == behind(Clip(1.0)) == behind(Clip(1.0), *())


def test_a_public_vector_moves_values_out_of_their_bounds() -> None:
    assert behind(Clip(1.0), SHIFT).norm() is None
    noised = behind(Clip(1.0), gaussian(2.0, grid=0.0), SHIFT)
    assert noised.sensitivity() is None, "float32 rounds next to large numbers"
    assert only(noised).uncredited == "this changes values behind the noise, so others' noise earns no credit"
    assert only(noised).words == ["this"]
    assert (only(noised).noise_multiplier, noised.scales) == (2.0, (2.0,))
    for shifted in ((SHIFT, ADD), (ADD, Shift.model(1)), (ADD, SHIFT)):
        assert behind(Clip(1.0), *shifted).sensitivity() is None
    assert behind(Clip(1.0), ADD, Shift.model(1), Clip(1.0)).sensitivity() == 2.0


@pytest.mark.parametrize("factor", [1, -1])
def test_a_multiple_of_the_global_model_keeps_credit_and_rests_on_nobodys_word(factor: int) -> None:
    """Everybody has the model, and the core adds it."""
    noised = behind(Clip(1.0), gaussian(2.0, grid=0.25), Shift.model(factor))
    assert (only(noised).uncredited, only(noised).words, noised.uncredited) == ("", [], ())
    assert (noised.norm(), noised.grid) == (None, 0.0)
    assert noised.sensitivity() is None


@pytest.mark.parametrize("factor", [0, 2, 0.5, math.nan, "1", None])
def test_a_multiple_of_the_model_is_one_or_minus_one(factor: Any) -> None:
    with pytest.raises(ValueError, match=r"Shift\.model\(.*\): it must be 1 or -1"):
        Shift.model(factor)


# -- noise -------------------------------------------------------------------------------------------------------------


def test_a_noise_costs_its_scale_over_the_bound_of_its_norm() -> None:
    noise = dataclasses.replace(gaussian(2.0, source="exact", calibrated_delta=1e-5, grid=0.1), slack=1e-9)
    release = only(behind(Clip(0.5), noise))
    assert (release.noise_multiplier, release.clipping_norm, release.link) == (4.0, 0.5, "this")
    assert (release.source, release.slack, release.calibrated_delta, release.step) == ("exact", 1e-9, 1e-5, 0.1)
    assert only(behind(Clip(0.5, order=1), Noise.laplace(2.0))).noise_multiplier == 4.0
    # A norm of another order implies nothing, and where nothing is known no noise hides anything.
    for chain in ((gaussian(2.0),), (Clip(0.5, order=1), gaussian(2.0)), (Clip(0.5), Noise.laplace(2.0))):
        assert only(behind(*chain)).noise_multiplier == 0
        assert math.isnan(only(behind(*chain)).clipping_norm)


def test_noise_ends_every_bound_unless_it_is_none() -> None:
    noised = behind(Clip(0.5), gaussian(2.0, grid=0.25))
    assert (noised.norm(), noised.grid, noised.clips[0].noised) == (None, 0.25, True)
    silent = behind(Clip(0.5), Round(0.5), gaussian(0.0))
    assert silent.norm() is not None
    assert (silent.grid, silent.clips[0].noised) == (0.5, False)
    assert only(silent).noise_multiplier == 0


def test_noise_of_a_size_for_each_layer_is_one_release_of_all_of_them() -> None:
    """(sum of (C_l / s_l)^2)^(-1/2), without credit for the noise of others."""
    release = only(behind(Clip((3.0, 4.0), per="layer"), gaussian((6.0, 16.0))))
    assert release.noise_multiplier == pytest.approx(1 / math.hypot(0.5, 0.25))
    assert "each client's noise has different sizes, so others' noise earns no credit" in release.uncredited
    assert only(behind(Clip((3.0, 4.0), per="layer"), gaussian((6.0, 0.0)))).noise_multiplier == 0
    # A bound of the whole update may lie in the layer with the least noise.
    assert only(behind(Clip(2.0), gaussian((6.0, 16.0)))).noise_multiplier == 3.0


@pytest.mark.parametrize("reads", ["scores", "num_examples"])
def test_noise_of_a_size_that_clients_work_out_costs_the_least_multiplier_of_any(reads: Any) -> None:
    noise = Noise.by(lambda *read: 1e9, reads=reads, at_least=2.5)
    release = only(behind(Clip(1.0), noise))
    assert (release.noise_multiplier, release.clipping_norm, release.scored) == (2.5, 1.0, reads == "scores")
    assert "different sizes" in release.uncredited
    assert behind(Clip(1.0), noise).scales == (None,)
    assert only(behind(noise)).noise_multiplier == 0  # no bound, no price
    assert only(behind(Clip(1.0, order=1), noise)).noise_multiplier == 0


def test_a_mechanism_of_a_plugins_own_costs_what_it_says_behind_a_bound_and_on_its_word() -> None:
    own = Noise.own("pure", lambda values, public, stream: values, multiplier=0.5, source="secure", order=1)
    release = only(behind(Clip(1.0, order=1), own))
    assert release.noise_multiplier == 0.5
    assert release.uncredited == "the draws of this do not add up as the noise of the core does"
    assert only(behind(own)).noise_multiplier == only(behind(Clip(1.0), own)).noise_multiplier == 0
    assert behind(Clip(1.0, order=1), own).sensitivity(1) is None  # its effect on the values is unknown


@pytest.mark.parametrize(
    ("operations", "multiplier"),
    [
        # Laplace: epsilons of the layers add up, 1 / (2 / 4 + 3 / 2).
        ((Clip((2.0, 3.0), 1, "layer"), dataclasses.replace(Noise.laplace(1.0), std=(4.0, 2.0))), 0.5),
        ((Clip((2.0, 3.0), 2, "layer"), dataclasses.replace(Noise.laplace(1.0), std=(4.0, 2.0))), 0.0),
        ((Clip((3.0, 4.0), 2, "layer"), gaussian((3.0, 4.0))), 1 / math.sqrt(2)),
        ((Clip(50.0), gaussian(1.0)), 0.02),
        ((Clip(50.0), Clip(1.0), gaussian(1.0)), 1.0),
        ((gaussian(1.0),), 0.0),
    ],
)  # fmt: skip
def test_no_more_is_believed_of_noise_than_its_size_over_the_bound(operations: Any, multiplier: float) -> None:
    assert only(behind(*operations)).noise_multiplier == pytest.approx(multiplier)


# -- behind noise ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "operation",
    [Clip(0.1), Clip(0.1, order=1), Clip(0.1, per="scalar"), Scale(0.5), Round(0.5), Round(0.5, True), SHIFT, POST],
    ids=lambda operation: repr(operation)[:30],
)  # fmt: skip
def test_what_the_core_does_to_noised_values_keeps_their_price(operation: Any) -> None:
    before = only(behind(Clip(1.0), gaussian(2.0)))
    after = behind(Clip(1.0), gaussian(2.0), operation)
    assert only(after).noise_multiplier == before.noise_multiplier == 2.0
    assert after.freed == ()


def test_changes_behind_noise_end_the_credit_for_others_noise_and_public_numbers_do_not() -> None:
    why = "this changes values behind the noise, so others' noise earns no credit"
    for operation in (POST, SHIFT, Clip(0.1)):
        assert only(behind(Clip(1.0), gaussian(2.0), operation)).uncredited == why
        assert behind(Clip(1.0), gaussian(2.0), operation).uncredited == (why,)
    for operation in (Shift.model(-1), Scale(2.0), Round(0.5)):
        assert not only(behind(Clip(1.0), gaussian(2.0), operation)).uncredited
    for clamp in (Clip(0.01, math.inf, "scalar"), Clip(0.01, order=math.inf)):
        assert only(behind(Clip(1.0), gaussian(2.0), clamp)).range == 0.01
    # A server that works on the sum of noised uploads takes nothing of their noise away.
    for operation in (POST, Clip(0.1)):
        assert not only(behind(Clip(1.0), gaussian(2.0), ADD, operation)).uncredited
    twice = behind(Clip(1.0), gaussian(2.0), POST, COMBINE)
    assert only(twice).uncredited == why
    assert len(twice.uncredited) == 2


def test_a_function_with_the_party_in_hand_voids_the_noise_before_it() -> None:
    known = behind(Clip(1.0), Round(0.5), gaussian(2.0), Scale(2.0), MAP)
    assert (known.bounds, known.releases, known.scales, known.grid, known.factor) == ((), (), (), 0.0, 1.0)
    assert known.freed == ("this",)
    assert behind(MAP).freed == ()
    # Its own noise may count again, without that of others.
    later = behind(Clip(1.0), gaussian(2.0), before=known)
    assert only(later).noise_multiplier == 2.0
    assert only(later).uncredited == "this changes values behind the noise, so others' noise earns no credit"


def test_a_function_on_a_sum_leaves_local_noise() -> None:
    """Any processing of noised uploads at the server costs no more. The noise that it added itself may be gone."""
    local, central = gaussian(2.0), gaussian(9.0, trust="central")
    known = behind(Clip(1.0), local, ADD, central, MAP)
    assert [release.trust for release in known.releases] == ["local"]
    assert known.scales == (2.0,)
    assert (known.bounds, known.factor, known.freed) == ((), 1.0, ("this",))
    assert behind(Clip(1.0), local, ADD, MAP).freed == ()


def test_a_function_on_a_bare_sum_leaves_nothing_that_noise_could_be_measured_by() -> None:
    """Then the divisor of the sum may be anything, so a clip of the sum bounds only its values."""
    for known in (behind(Clip(1.0), ADD, MAP, Clip(1.0)), behind(Clip(1.0), COMBINE, Clip(1.0)),
                  behind(Clip(1.0), WEIGHED, Clip(1.0))):
        assert known.sensitivity() is None
        assert known.uncredited
        assert only(behind(gaussian(1.0, trust="central"), before=known)).noise_multiplier == 0


def test_behind_a_sum_bounds_are_of_how_far_two_sums_lie_apart() -> None:
    total = behind(Clip(1.0), ADD)
    assert total.sensitivity() == 1.0
    assert total.after(POST).sensitivity() is None
    assert total.after(Clip(1.0)).sensitivity() == 2.0  # from one end of the ball to the other
    assert behind(ADD, Clip(1.0)).sensitivity() == 2.0
    assert behind(Clip(1.0), Scale(0.5), ADD).sensitivity() == 0.5
    assert total.after(Round(1.0)).sensitivity() == pytest.approx(1.0 + math.sqrt(100))
    assert total.after(gaussian(3.0, trust="central")).releases[0].noise_multiplier == 3.0


def test_a_combination_earns_no_credit_and_names_the_remedy() -> None:
    known = behind(Clip(1.0), gaussian(2.0), COMBINE)
    assert only(known).noise_multiplier == 2.0
    assert only(known).uncredited == "this does not add the uploads up, so others' noise earns no credit"
    with pytest.raises(Misplaced, match="this does not add the uploads up; add the noise at the clients"):
        behind(Clip(1.0), COMBINE).need_norm("clip it", central=True)


# -- seals -------------------------------------------------------------------------------------------------------------


def test_a_seal_says_what_it_holds_of_the_noise_before_it() -> None:
    sealed = behind(Clip(1.0), gaussian(2.0), SEAL)
    assert (only(sealed).range, only(sealed).step) == (8.0, 0.5)
    assert (sealed.closed, sealed.closer, sealed.weighted, sealed.grid) == (SEAL, "this", True, 0.5)
    assert behind(Clip(9.0), SEAL).norm() == pytest.approx(9.0 + 0.25 * math.sqrt(100))
    # Noise that is added to the opened sum has never been under it.
    central = behind(Clip(9.0), SEAL, ADD, Open(), gaussian(2.0, trust="central"))
    assert (only(central).range, only(central).step, central.closed) == (math.inf, 0.0, None)
    assert only(central).noise_multiplier == pytest.approx(2.0 / 11.5)


@pytest.mark.parametrize("unknown", [{"range": math.nan}, {"step": math.nan}])
def test_a_seal_of_which_nobody_knows_what_it_holds_earns_no_credit(unknown: dict[str, Any]) -> None:
    found = behind(Clip(1.0), gaussian(2.0), dataclasses.replace(SEAL, **unknown))
    assert only(found).uncredited == "this does not say what values it holds, so others' noise earns no credit"
    assert (found.bounds, found.closed is not None) == ((), True)


def test_a_scramble_leaves_the_weight_out_and_a_sum_of_plain_values_has_no_grid() -> None:
    scramble = Scramble(hides="values", numbers=FixedPoint(4.0, 0.25))
    scrambled = behind(Round(0.5), scramble)
    assert (scrambled.weighted, scrambled.grid) == (False, 0.25)
    assert behind(Round(0.5), ADD).grid == 0  # weights are not whole numbers
    assert behind(Round(0.5), ADD).summed
    assert behind(SEAL, ADD).grid == 0.5
    assert behind(Widen()).covers_support


# -- order rules -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("there", "what"), [(gaussian(2.0), "noise"), (SEAL, "encryption"), (Clip(1.0), "clip")], ids=["n", "e", "c"]
)
def test_an_order_rule_names_link_rule_zone_and_remedy(there: Any, what: Any) -> None:
    PLAIN.before(what, "move it")
    with pytest.raises(Misplaced) as caught:
        behind(there).before(what, "move it")
    assert str(caught.value) == f"this must not come after {what} in the chain of zone noised; move it"


def test_an_order_rule_says_which_words_there_are() -> None:
    with pytest.raises(ValueError, match=r"^known.before\('sealing', .* one of 'noise', 'encryption', 'clip'$"):
        PLAIN.before("sealing", "move it")  # type: ignore[arg-type]


def test_a_missing_norm_names_who_took_it() -> None:
    assert behind(Clip(1.0)).need_norm("clip") == 1.0
    with pytest.raises(Misplaced, match=r"^this needs a bound of the L1 norm .* in the chain of zone noised; clip"):
        behind(Clip(1.0)).need_norm("clip", order=1)
    free = dataclasses.replace(behind(Clip(1.0)), link="odd").after(MAP)
    with pytest.raises(Misplaced, match=r"zone noised; odd changes values freely, .* in hand; put a clip behind it"):
        free.need_norm("clip")
    with pytest.raises(Misplaced, match=r"zone noised; this computes values by a function; put a clip behind it"):
        behind(Clip(1.0), POST).need_norm("clip")
    noised = dataclasses.replace(behind(Clip(1.0), gaussian(1.0)), link="that")
    with pytest.raises(Misplaced, match=r"zone noised \(behind the noise of this no bound holds\); clip"):
        noised.need_norm("clip")


@settings(deadline=None, max_examples=50)
@given(
    noised=arrays(np.float64, 100, elements=st.floats(-1, 1)), moved=arrays(np.float64, 100, elements=st.floats(-1, 1)),
    clip=st.sampled_from([Clip(1.0), Clip(2.0, order=1), Clip(0.1, order=math.inf), Clip(0.5, per="layer")]),
    first=st.sampled_from([Clip(1.0), Clip(1.0, order=1), Clip((0.6, 0.8), per="layer"), Clip(0.1, per="scalar")]),
    order=st.sampled_from([1, 2]),
)  # fmt: skip
def test_a_clip_behind_noise_brings_values_no_further_apart_than_is_said(
    noised: Any, moved: Any, clip: Clip, first: Clip, order: int
) -> None:
    known = behind(first, gaussian(1.0), clip, ADD)
    stated = min([n for b in known.beneath if (n := norms.implied(b, order, known.layers)) is not None], default=None)
    if stated is None:
        return
    # The part that one client's data adds to the noise can be as long as the first bound allows.
    away = norms.implied(first, 2, known.layers) or first.norm
    size = np.linalg.norm(moved, 1 if first.order == 1 else 2)
    moved = np.clip(moved, -0.1, 0.1) if first.per == "scalar" else moved * min(1, away / max(size, 1e-9))
    if first.per == "layer":
        moved = np.concatenate([scaled(moved[:90], 0.6), scaled(moved[90:], 0.8)])
    apart = clipped(noised + moved, clip) - clipped(noised, clip)
    assert np.linalg.norm(apart, order) <= stated * (1 + 1e-9)


def scaled(values: Any, norm: float, order: float = 2) -> Any:
    return values * min(1, norm / max(float(np.linalg.norm(values, order)), 1e-12))


def clipped(values: Any, clip: Clip) -> Any:
    assert isinstance(clip.norm, float)
    if clip.order == math.inf:
        return np.clip(values, -clip.norm, clip.norm)
    if clip.per == "layer":
        return np.concatenate([scaled(values[:90], clip.norm), scaled(values[90:], clip.norm)])
    return scaled(values, clip.norm, clip.order)


def test_a_clip_in_another_norm_behind_noise_ends_what_lies_beneath() -> None:
    """Scaling down to an L1 norm of 10 moves two vectors from a distance of 1 in L2 to a distance of 5."""
    assert behind(Clip(1.0), gaussian(0.1), Clip(10.0, order=1), ADD).sensitivity() is None
    one = np.zeros(100)
    one[0] = 10.0
    apart = scaled(one + 0.1, 10.0, 1) - scaled(one, 10.0, 1)
    assert np.linalg.norm(apart) > 4.9 * np.linalg.norm(np.full(100, 0.1))
    laplace = Noise.laplace(0.1)
    assert behind(Clip(1.0, order=1), laplace, Clip(5.0), ADD).sensitivity(1) is None
    assert behind(Clip(1.0), gaussian(0.1), Clip(0.5), ADD).sensitivity() == 0.5


def test_central_noise_is_measured_by_what_lies_beneath_local_noise() -> None:
    """Noise that does not depend on the data does not raise a sensitivity. Its grid does, by one step per scalar."""
    local = behind(Clip(1.0), gaussian(0.5, grid=2.0**-10))
    assert local.norm() is None  # the values themselves have no bound
    assert local.sensitivity() == pytest.approx(1 + 2.0**-10 * 10)
    both = local.after(ADD, gaussian(2.0, trust="central"))
    assert [release.noise_multiplier for release in both.releases] == pytest.approx([0.5, 2 / (1 + 2.0**-10 * 10)])
    assert local.after(POST).sensitivity() is None


def test_what_is_no_operation_is_refused() -> None:
    with pytest.raises(TypeError, match="this gives 'noise', which is no operation"):
        PLAIN.after("noise")  # type: ignore[arg-type]


# -- noise in whole numbers, rounding at random, rotation --------------------------------------------------------------

BETA = math.exp(-0.5)
STEPS = Noise.integer("skellam_sum", 4.0, grid=0.5)
UNIT = (Clip(2.0), Round(0.5, beta=BETA))


def test_rounding_at_random_leaves_the_norm_of_the_paper() -> None:
    """min{(2 + 0.5 * 10)^2, 4 + 0.25 * 100 / 4 + sqrt(2 * 0.5) * 0.5 * (2 + 0.25 * 10)} = min{49, 12.5}."""
    assert norms.rounded(2.0, 0.5, 100, BETA) == pytest.approx(math.sqrt(12.5))
    assert norms.rounded(2.0, 0.5, 100, 1e-300) == 7.0, "a draw that never fails has the worst of them"
    known = behind(*UNIT)
    assert known.norm() == pytest.approx(math.sqrt(12.5))
    assert known.grid == 0.5
    assert behind(Clip(2.0, order=1), Round(0.5, beta=BETA)).norm(1) == 52.0, "each of 100 moves by less than a step"
    assert behind(Clip(0.0, order=1), Round(0.5, beta=BETA)).norm(1) == 50.0
    apart = behind(Clip(2.0), gaussian(1.0), Round(0.5, beta=BETA))
    assert (apart.grid, apart.sensitivity()) == (0.5, 2.0 + 2 * 0.5 * 10)


def test_noise_in_whole_numbers_is_credited_on_its_grid_alone() -> None:
    release = only(behind(*UNIT, STEPS))
    assert (release.mechanism, release.trust, release.step, release.size) == ("skellam_sum", "distributed", 0.5, 100)
    assert release.noise_multiplier == pytest.approx(4 / math.sqrt(12.5))
    assert release.uncredited == ""
    fine, coarse, odd = (Seal(scheme="a test", opened_by="shares", opens_with=3, numbers=FixedPoint(math.inf, step))
                         for step in (0.125, 1.0, 0.2))  # fmt: skip
    assert only(behind(*UNIT, STEPS, fine)).uncredited == ""
    for off in (coarse, odd, Scale(1 / 3), Clip(1.0), POST):
        assert only(behind(*UNIT, STEPS, off)).uncredited
    halved = only(behind(*UNIT, STEPS, Scale(0.5)))
    assert (halved.step, halved.uncredited) == (0.25, "")


def test_a_rotation_keeps_the_l2_norm_of_all_values_and_nothing_else() -> None:
    turn, back = Rotate(), Rotate(back=True)
    known = behind(Clip(2.0), Clip(0.1, per="scalar"), turn)
    assert (known.norm(), known.norm(1), known.norm(math.inf)) == (1.0, None, None), "0.1 * sqrt(100)"
    assert known.rotated == ("this",)
    assert behind(Clip((3.0, 4.0), per="layer"), turn).norm() == 5.0
    summed = behind(*UNIT, turn, ADD, back)
    assert (summed.rotated, summed.grid) == ((), 0.0)
    assert summed.sensitivity() == pytest.approx(math.sqrt(12.5))
    assert only(behind(*UNIT, STEPS, turn)).uncredited, "behind the noise it takes values off the grid"
    assert behind(MAP, turn).norm() is None

