"""Public grids: the finest that float32 holds, and the part of delta that a source uses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fedplug.api.errors import ProtectionError
from fedplug.api.grids import STEPS, check_exact, exact_slack, finest, note_of, power_of_two, too_fine
from hypothesis import given
from hypothesis import strategies as st


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6), st.sampled_from(["gaussian", "laplace"]))
def test_the_finest_grid_is_a_power_of_two_on_which_values_and_noise_are_float32(
    reach: float, std: float, mechanism: str
) -> None:
    grid = finest(reach, std, mechanism)
    far = reach + {"gaussian": 12, "laplace": 74}[mechanism] * std
    assert math.frexp(grid)[0] == 0.5
    assert STEPS * grid >= far * (1 - 1e-12)
    assert STEPS * grid / 2 < far  # the next finer one does not reach


def test_the_edges_of_float32() -> None:
    for reach in (2.0**-102, 2.0**127):
        assert np.float32(finest(reach, 0.0)) * np.float32(STEPS) == np.float32(reach)
    for reach, std in ((5e-324, 0.0), (1e-300, 1e-300), (1.0, 1e300), (1e300, 1.0), (0.0, math.inf)):
        for mechanism in ("gaussian", "laplace"):
            with pytest.raises(ProtectionError, match="are not numbers of float32"):
                finest(reach, std, mechanism)


def test_a_grid_is_a_power_of_two_or_left_out() -> None:
    assert power_of_two(None) is None
    assert power_of_two(0.25) == 0.25
    with pytest.raises(ValueError, match=r"grid=0.3 must be a power of two, such as 0.25; or leave it out"):
        power_of_two(0.3)
    assert "grid=0.25 must be at least 0.5, or float32 cannot hold the results" in str(too_fine(0.25, 0.5))
    check_exact(1.0, 2.0**-15)
    with pytest.raises(ProtectionError, match=r"grid=1 must be at most std / 2\^15"):
        check_exact(1.0, 1.0)


def test_a_discrete_gaussian_differs_from_the_rounded_one_by_less_than_its_slack() -> None:
    """Computed from the two distributions themselves, at 4 steps a deviation."""
    from scipy import stats  # type: ignore[import-untyped]

    steps, std = np.arange(-60, 61), 4.0
    discrete = np.exp(-(steps**2) / (2 * std**2))
    discrete /= discrete.sum()
    rounded = stats.norm.cdf((0.5 - abs(steps)) / std) - stats.norm.cdf((-0.5 - abs(steps)) / std)
    assert 0.5 * float(np.abs(discrete - rounded).sum()) < exact_slack(std, 1)
    assert exact_slack(std, 4) == 2 * exact_slack(std, 1)


def test_each_source_has_its_sentence() -> None:
    notes = {source: note_of(source, "gaussian", 1e-9) for source in ("secure", "exact", "reproducible")}
    assert "cryptographic stream" in notes["secure"]
    assert "1e-09" in notes["exact"]
    assert "subtract" in notes["reproducible"]
