"""Loss distributions of many releases: never below the exact curve, little above it, no larger in a longer run."""

from __future__ import annotations

import math

import pytest
from fedplug.privacy.accounting import gaussian_epsilon
from fedplug_std import accountants
from fedplug_std.accountants import Pld
from fedplug_std.loss_distributions import coarser, gaussian, interval_of, many_gaussians, together

DELTA = 1e-5


def size_of(distribution: object) -> int:
    return int(distribution._pmf_remove.size)  # type: ignore[attr-defined]


@pytest.mark.parametrize("factor", [2, 8, 32])
def test_a_coarser_grid_is_never_cheaper_and_keeps_the_sums(factor: int) -> None:
    fine = gaussian(1.0, 0.1, "ADD_OR_REMOVE_ONE", 1e-3).self_compose(50)
    wide = coarser(fine, factor * 1e-3)
    assert size_of(wide) < size_of(fine) / factor + 3
    assert interval_of(wide) == pytest.approx(factor * 1e-3)
    for ours, theirs in ((wide._pmf_remove, fine._pmf_remove), (wide._pmf_add, fine._pmf_add)):
        losses = [(i + pmf._lower_loss) * pmf._discretization for pmf in (ours, theirs) for i in range(pmf.size)]
        weights = [float(p) * math.exp(-loss) for p, loss in zip([*ours._probs, *theirs._probs], losses, strict=True)]
        assert math.fsum(ours._probs) == pytest.approx(math.fsum(theirs._probs))
        assert math.fsum(weights[: ours.size]) == pytest.approx(math.fsum(weights[ours.size :]))
    for epsilon in (0.0, 0.5, 2.0, 4.0, 6.0):
        exact = fine.get_delta_for_epsilon(epsilon)
        assert exact * (1 - 1e-9) <= wide.get_delta_for_epsilon(epsilon)
    assert wide.get_epsilon_for_delta(DELTA) <= fine.get_epsilon_for_delta(DELTA) * 1.002


@pytest.mark.parametrize(("multiplier", "rate", "counts"), [(1.0, 0.1, (100, 1000, 2000)), (3.0, 0.01, (60, 5000))])
def test_many_releases_cost_what_a_fine_grid_says(multiplier: float, rate: float, counts: tuple[int, ...]) -> None:
    one = gaussian(multiplier, rate, "ADD_OR_REMOVE_ONE", 2e-5 if rate < 0.1 else 4e-4)
    for count in counts:
        fine = one.self_compose(count).get_epsilon_for_delta(DELTA)
        ours = many_gaussians(multiplier, rate, count)
        assert fine * (1 - 1e-4) <= ours.get_epsilon_for_delta(DELTA) <= fine * 1.003
        assert size_of(ours) < 40_000


def test_without_sampling_the_exact_curve_holds_and_kinds_compose_on_the_coarsest_grid() -> None:
    parts = [many_gaussians(20.0, 1.0, 300), many_gaussians(2.0, 1.0, 5)]
    assert interval_of(parts[0]) != interval_of(parts[1])
    exact = gaussian_epsilon(1 / math.sqrt(300 / 20**2 + 5 / 2**2), DELTA)
    assert exact <= together(parts).get_epsilon_for_delta(DELTA) <= exact * 1.001


def test_a_longer_run_needs_no_larger_grid() -> None:
    pld = Pld(Pld.Options())
    sizes = []
    for rounds in (100, 1000, 4000):
        releases = (("gaussian", 1.0, 0.1), rounds)
        interval = 1e-3 * pld._widening({releases[0]: rounds}, "zero_out")  # type: ignore[arg-type]
        sizes.append(size_of(accountants._folded((releases,), "zero_out", interval)))
    assert max(sizes) <= 2**14


def test_noise_that_changes_with_every_round_composes_round_by_round_as_from_the_start() -> None:
    """Bit for bit: a run that is resumed asks for all rounds at once."""
    releases = [("gaussian", 2.0 * 0.99**round, 1.0, 1) for round in range(8)]
    going = Pld(Pld.Options())
    one_by_one = [going.compose(releases[: n + 1], DELTA, "zero_out") for n in range(8)]
    for count in (8, 6):
        accountants._BEFORE.clear()
        assert one_by_one[count - 1] == going.compose(releases[:count], DELTA, "zero_out")
    assert going.compose(releases[:3], DELTA, "zero_out") == one_by_one[2]
