"""PSI scores from random projections against the exact Jacobian: the stated error, and the cost."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from fedplug.api.data import About
from fedplug_fedre import jacobian
from fedplug_fedre.jacobian import jackknife, psi_scores
from fedplug_kit.static import import_problems
from fedplug_std.models import LeNet5
from jacobian_toys import PLAIN, images, linear, plain, small_conv, whole
from torch.utils._python_dispatch import TorchDispatchMode

# -- projections -------------------------------------------------------------------------------------------------------


def test_both_agree_on_lenet5_within_the_stated_error() -> None:
    """28x28, a box as region: five layers, each within its standard errors; 16 projections give 10% or better."""
    model = LeNet5(LeNet5.Options()).build((1, 28, 28), 10, 1, "cpu")
    examples = images((3, 1, 28, 28), 10)
    regions = np.zeros((3, 28, 28), np.bool_)
    regions[:, 8:16, 6:14] = True
    data = About(classes=(), mean=(0.5,), std=(0.3,))
    exact = psi_scores(model, examples, regions, data, method="exact")
    guessed = psi_scores(model, examples, regions, data, method="projections", projections=16, seed=4)
    assert (exact.exact_passes, guessed.projection_passes) == (3 * 64, 3 * 5 * 16)
    assert np.all(guessed.standard_error < 0.1 * exact.mean)
    assert np.all(guessed.standard_error > 0)
    assert np.all(np.abs(guessed.mean - exact.mean) < 3.5 * guessed.standard_error)


def test_the_stated_error_is_the_error() -> None:
    """Over 80 seeds the error in units of the stated one has mean 0 and standard deviation 1, even with channels."""
    model, examples = small_conv(), images((1, 2, 4, 4), 3)
    regions = np.zeros((1, 4, 4), np.bool_)
    regions[0, :2, :3] = True
    exact = psi_scores(model, examples, regions, plain(2), method="exact").mean
    runs = [
        psi_scores(model, examples, regions, plain(2), method="projections", projections=16, seed=seed)
        for seed in range(80)
    ]
    z = np.array([(one.mean - exact) / one.standard_error for one in runs])
    assert np.all(np.abs(z.mean(0)) < 0.3)
    assert np.all((z.std(0) > 0.8) & (z.std(0) < 1.35))
    relative = np.mean([one.mean for one in runs], axis=0) / exact - 1
    assert np.all(np.abs(relative) < 4 * np.std([one.mean / exact for one in runs], axis=0) / math.sqrt(80))


def test_the_jackknife_takes_the_bias_of_the_root_away() -> None:
    """Squares of a normal, the largest spread there is: the root of the mean of 4 has mean 0.940 (chi with 4 degrees of
    freedom, over 2), its jackknife 4 * 0.940 - 3 * 0.921 = 0.996. With 16 the standard error squared is the variance,
    within a few percent."""

    def chi(count: int) -> float:
        return math.sqrt(2 / count) * math.gamma((count + 1) / 2) / math.gamma(count / 2)

    rng = np.random.default_rng(2)
    squares = np.square(rng.standard_normal((8000, 4, 1)))
    found = np.array([jackknife(one)[0] for one in squares])
    assert abs(np.sqrt(squares.mean(1)).mean() - chi(4)) < 0.01
    assert abs(found.mean() - (4 * chi(4) - 3 * chi(3))) < 0.012
    score, error = np.array([jackknife(one) for one in np.square(rng.standard_normal((5000, 16, 1)))]).T
    assert abs(score.mean() - 1) < 0.008
    assert 0.9 < np.square(error).mean() / score.var() < 1.1


def test_the_jackknife_keeps_what_pixels_share() -> None:
    """A hundred pixels that move together are no more certain than one."""
    one = np.square(np.random.default_rng(2).standard_normal((8, 1)))
    np.testing.assert_allclose(jackknife(np.repeat(one, 100, axis=1)), jackknife(one), rtol=1e-12)


def test_directions_follow_from_the_seed() -> None:
    model, examples = small_conv(1), images((2, 1, 4, 4), 3)
    first, again, other = (
        psi_scores(model, examples, whole(examples), PLAIN, method="projections", seed=seed) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first.mean, again.mean)
    assert (first.mean != other.mean).all()


# -- cost --------------------------------------------------------------------------------------------------------------


class Largest(TorchDispatchMode):
    """The largest tensor that any operation makes, in values."""

    values = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for one in found if isinstance(found, (tuple, list)) else [found]:
            if isinstance(one, torch.Tensor):
                self.values = max(self.values, one.numel())
        return found


@pytest.mark.parametrize("method", ["exact", "projections"])
def test_the_jacobian_is_never_held_as_a_whole(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """LeNet-5 on a quarter of 28x28 has 61,706 x 196 entries, its first fully connected layer alone 48,120 x 196."""
    monkeypatch.setattr(jacobian, "_BYTES", jacobian._BYTES // 2)
    model = LeNet5(LeNet5.Options()).build((1, 28, 28), 10, 1, "cpu")
    examples = images((1, 1, 28, 28), 10)
    regions = np.zeros((1, 28, 28), np.bool_)
    regions[0, :14, :14] = True
    watch = Largest()
    with watch:
        psi_scores(model, examples, regions, PLAIN, method=method)
    assert 48_120 <= watch.values <= jacobian._BYTES // 4 < 48_120 * 196 / 4


def test_auto_is_exact_where_that_is_cheap() -> None:
    """All of 8x8 by a linear model, or a few pixels of a larger image; else random projections."""
    examples = images((1, 1, 8, 8), 3)
    found = psi_scores(linear((1, 8, 8), 3), examples, whole(examples), PLAIN)
    assert (found.exact_passes, found.projection_passes) == (64, 0)
    model, examples = LeNet5(LeNet5.Options()).build((1, 32, 32), 10, 1, "cpu"), images((2, 1, 32, 32), 10)
    regions = whole(examples)
    regions[0] = False
    regions[0, :4, :4] = True
    found = psi_scores(model, examples, regions, PLAIN)
    assert (found.exact_passes, found.projection_passes) == (16, 5 * jacobian.PROJECTIONS)
    assert found.passes == 16 + 5 * jacobian.PROJECTIONS
    assert np.all(found.standard_error > 0)


def test_the_module_imports_no_torch() -> None:
    assert import_problems("fedplug_fedre.jacobian") == ()
