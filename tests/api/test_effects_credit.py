"""What effects promise: no more is believed of noise, of changes and of sums than what they state bears out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from fedplug import (
    Adds,
    Bound,
    Changes,
    Effects,
    Known,
    Noise,
    Reveals,
    Rounding,
    Scales,
    Shifts,
)
from fedplug.api.operations import Misplaced

PLAIN = Known(zone="noised", link="this", layers=(9, 1))
NOISE = Noise(mechanism="gaussian", scale=1.0)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Reveals("updates", ("server",)), "Reveals(to=('server',)): it must be a tuple of 'aggregator'"),  # type: ignore[arg-type]
        (lambda: Reveals("it", ("client",), covered_by="the noise"), "it must be one of 'epsilon', 'nothing to pay'"),  # type: ignore[arg-type]
        (lambda: Noise(mechanism="x", source="seed"), "Noise(source='seed'): it must be one of 'secure', 'exact'"),  # type: ignore[arg-type]
        (lambda: Noise(mechanism="x", scale=-1.0), "Noise(scale=-1.0): it must be a number >= 0"),
        (lambda: Bound(math.nan), "Bound(norm=nan): it must be a number >= 0"),
        (lambda: Bound(1.0, per="tensor"), "Bound(per='tensor'): it must be one of 'update', 'layer', 'scalar'"),  # type: ignore[arg-type]
        (lambda: Scales(math.nan), "Scales(factor=nan): it must be a number >= -inf"),
        (lambda: Changes("keep"), "Changes(norms='keep'): it must be one of 'kept', 'lost'"),  # type: ignore[arg-type]
    ],
)
def test_a_word_that_is_none_promises_nothing(make: Any, said: str) -> None:
    with pytest.raises(ValueError, match="it must be") as caught:
        make()
    assert said in str(caught.value)


def test_changes_behind_the_noise_end_the_credit_for_others_noise() -> None:
    before = PLAIN.after((Bound(1.0), NOISE))
    for effect in (Changes("lost"), Changes("kept"), Bound(0.1)):
        (release,) = before.after((effect,)).releases
        assert release.uncredited == "this changes values behind the noise, so others' noise earns no credit"
    for clamp in (Bound(0.01, math.inf, "scalar"), Bound(0.01, order=math.inf)):
        (release,) = before.after((clamp,)).releases
        assert release.range == 0.01
    (release,) = before.after((Shifts(),)).releases  # by public numbers, the same for all
    assert not release.uncredited
    # A server that works on the sum of noised uploads takes nothing of their noise away.
    (release,) = before.after((Adds(), Changes())).releases
    assert not release.uncredited


def test_behind_a_sum_words_are_about_how_far_two_sums_lie_apart() -> None:
    total = PLAIN.after((Bound(1.0), Adds()))
    assert total.sensitivity() == 1.0
    assert total.after((Changes("kept"),)).sensitivity() is None
    assert total.after((Bound(1.0),)).sensitivity() == 2.0  # from one end of the ball to the other
    assert PLAIN.after((Adds(), Bound(1.0))).sensitivity() == 2.0
    assert total.after((Shifts(),)).sensitivity() is None  # that the numbers are public ones, a sum does not show
    # Of bare uploads the sum of all shifts would show how many there were.
    assert PLAIN.after((Bound(1.0), Shifts(), Adds())).sensitivity() is None
    assert total.after((Rounding(1.0),)).sensitivity() == pytest.approx(1.0 + math.sqrt(10))


@pytest.mark.parametrize(
    ("chain", "multiplier"),
    [
        ((Noise(mechanism="gaussian", scale=1.0, multiplier=1.0),), 0.0),
        ((Bound(50.0), Noise(mechanism="gaussian", scale=1.0, multiplier=1.0)), 0.02),
        ((Bound(1.0), Noise(mechanism="gaussian", scale=1.0, multiplier=0.5)), 0.5),
        ((Noise(mechanism="pure", multiplier=0.5),), 0.5),
        # Laplace: epsilons of the layers add up, 1 / (2 / 4 + 3 / 2).
        ((Bound((2.0, 3.0), 1, "layer"), Noise(mechanism="laplace", scale=(4.0, 2.0))), 0.5),
        ((Bound((2.0, 3.0), 2, "layer"), Noise(mechanism="laplace", scale=(4.0, 2.0))), 0.0),
        ((Bound((3.0, 4.0), 2, "layer"), Noise(mechanism="gaussian", scale=(3.0, 4.0))), 1 / math.sqrt(2)),
    ],
)
def test_no_more_is_believed_of_noise_than_its_size_bears_out(chain: Effects, multiplier: float) -> None:
    (release,) = PLAIN.after(chain).releases
    assert release.noise_multiplier == pytest.approx(multiplier)


def test_numbers_of_numpy_are_numbers() -> None:
    assert PLAIN.after((Bound(np.float32(2)),)).norm() == 2.0  # type: ignore[arg-type]
    assert Noise(mechanism="x", scale=tuple(np.ones(2, np.float32))).scale == (1.0, 1.0)


def test_norms_are_one_a_layer() -> None:
    with pytest.raises(Misplaced, match="this states norms of 1 layers, and the model has 2"):
        PLAIN.after((Bound((1.0,), per="layer"),))
