"""Statistics of the kit: noise of the wrong scale, and noise that follows that of another round, are found."""

from __future__ import annotations

import numpy as np
import pytest
from fedplug.testing.deeds import _repeated_problem, _scale_problem

NOISE = np.random.default_rng(11).normal(size=(2, 4000))


def test_the_stated_scale_is_believed_within_chance() -> None:
    assert list(_scale_problem(NOISE[0] * 2, 2.0, "gaussian", False)) == []
    assert list(_scale_problem(np.zeros(10), 0.0, "gaussian", False)) == []


@pytest.mark.parametrize(("factor", "said"), [(1.2, r"adds 2\.\d+: \+(19|20|21)"), (0.8, "adds 1.")])
def test_another_scale_is_found(factor: float, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(*_scale_problem(NOISE[0] * 2 * factor, 2.0, "gaussian", False))
    assert list(_scale_problem(NOISE[0], 0.0, "gaussian", False))


def test_noise_that_follows_that_of_another_round_is_found() -> None:
    assert list(_repeated_problem(*NOISE)) == []
    assert list(_repeated_problem(NOISE[0], NOISE[0]))
    assert list(_repeated_problem(NOISE[0], NOISE[1] + 0.5 * NOISE[0]))
