"""Loss distributions of many releases: never below the exact curve, little above it, no larger in a longer run."""

from __future__ import annotations

import math
from typing import Any

import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution
from fedplug.privacy.accounting import gaussian_epsilon
from fedplug_std import loss_distributions
from fedplug_std.accountants import Pld
from fedplug_std.loss_distributions import Gaussian, coarser, composed, repeated, width_of

DELTA = 1e-5


def size_of(distribution: object) -> int:
    return int(distribution._pmf_remove.size)  # type: ignore[attr-defined]


def theirs(multiplier: float, rate: float, relation: str, width: float) -> Any:
    """One release as dp_accounting discretises it."""
    return privacy_loss_distribution.from_gaussian_mechanism(
        multiplier, sampling_prob=rate, value_discretization_interval=width,
        neighboring_relation=NeighboringRelation[relation],
    )  # fmt: skip


@pytest.mark.parametrize("factor", [2, 8, 32])
def test_a_coarser_grid_is_never_cheaper_and_keeps_the_sums(factor: int) -> None:
    fine = theirs(1.0, 0.1, "ADD_OR_REMOVE_ONE", 1e-3).self_compose(50)
    wide = coarser(fine, factor * 1e-3)
    assert size_of(wide) < size_of(fine) / factor + 3
    assert width_of(wide) == pytest.approx(factor * 1e-3)
    for ours, before in ((wide._pmf_remove, fine._pmf_remove), (wide._pmf_add, fine._pmf_add)):
        losses = [(i + pmf._lower_loss) * pmf._discretization for pmf in (ours, before) for i in range(pmf.size)]
        weights = [float(p) * math.exp(-loss) for p, loss in zip([*ours._probs, *before._probs], losses, strict=True)]
        assert math.fsum(ours._probs) == pytest.approx(math.fsum(before._probs))
        assert math.fsum(weights[: ours.size]) == pytest.approx(math.fsum(weights[ours.size :]))
    for epsilon in (0.0, 0.5, 2.0, 4.0, 6.0):
        exact = fine.get_delta_for_epsilon(epsilon)
        assert exact * (1 - 1e-9) <= wide.get_delta_for_epsilon(epsilon)
    assert wide.get_epsilon_for_delta(DELTA) <= fine.get_epsilon_for_delta(DELTA) * 1.002


@pytest.mark.parametrize("relation", ["REPLACE_SPECIAL", "REPLACE_ONE"])
@pytest.mark.parametrize(("multiplier", "rate", "count"), [(1.0, 0.1, 100), (1.0, 0.1, 2000), (3.0, 0.01, 5000)])
def test_many_releases_cost_what_a_fine_grid_of_dp_accounting_says(
    multiplier: float, rate: float, count: int, relation: str
) -> None:
    fine = theirs(multiplier, rate, relation, 2e-5 if rate < 0.1 else 4e-4).self_compose(count)
    ours = composed([(Gaussian(multiplier, rate, relation == "REPLACE_ONE"), count)])
    exact = fine.get_epsilon_for_delta(DELTA)
    assert exact * (1 - 1e-4) <= ours.get_epsilon_for_delta(DELTA) <= exact * 1.001
    assert size_of(ours) < 4000


def test_without_sampling_the_exact_curve_holds_and_kinds_compose() -> None:
    exact = gaussian_epsilon(1 / math.sqrt(300 / 20**2 + 5 / 2**2), DELTA)
    ours = composed([(Gaussian(20.0), 300), (Gaussian(2.0), 5)])
    assert exact <= ours.get_epsilon_for_delta(DELTA) <= exact * 1.001
    doubled = composed([(Gaussian(20.0, replaced=True), 300), (Gaussian(2.0, replaced=True), 5)])
    assert doubled.get_epsilon_for_delta(DELTA) == pytest.approx(
        gaussian_epsilon(1 / 2 / math.sqrt(300 / 20**2 + 5 / 2**2), DELTA), rel=1e-3
    )


def test_a_longer_run_needs_no_larger_grid() -> None:
    kind = Gaussian(1.0, 0.1)
    sizes = [size_of(composed([(kind, rounds)])) for rounds in (100, 1000, 4000, 1_000_000)]
    assert max(sizes) <= 2**13
    assert width_of(repeated(kind, 3000, 1.0)) > 32 * width_of(repeated(kind, 3, 1e-6))


def test_noise_that_changes_with_every_round_composes_round_by_round_as_from_the_start() -> None:
    """Bit for bit: a run that is resumed asks for all rounds at once."""
    releases = [("gaussian", 2.0 * 0.99**round, 0.5, 1) for round in range(8)]
    going = Pld(Pld.Options())
    one_by_one = [going.compose(releases[: n + 1], DELTA, "zero_out") for n in range(8)]
    for count in (8, 6):
        loss_distributions._BEFORE.clear()
        assert one_by_one[count - 1] == going.compose(releases[:count], DELTA, "zero_out")
    assert going.compose(releases[:3], DELTA, "zero_out") == one_by_one[2]
