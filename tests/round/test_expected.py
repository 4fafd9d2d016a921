"""Where links take values by what they state."""

from __future__ import annotations

import numpy as np
import pytest
from fedplug import Adds, Bound, Noise, Rounding, Scales, Uncredited
from fedplug.round.expected import Expected, places

VALUES = np.linspace(-1, 1, 4000)


def wrong(expected: Expected | None, given: np.ndarray) -> str:
    assert expected is not None
    return expected.problem(given, VALUES, np.abs(VALUES))


def test_factors_and_roundings_follow_one_another() -> None:
    """What is rounded before it is added up is rounded once an upload."""
    assert Expected.of((Scales(2.0), Rounding(0.5), Scales(-3.0))) == Expected(factor=-6.0, room=0.75)
    assert Expected.of((Rounding(0.5), Adds(), Uncredited("so"), Rounding(0.5)), 4) == Expected(room=1.25)
    assert wrong(Expected.of((Rounding(0.5),)), VALUES + 0.2) == ""
    assert wrong(Expected.of((Rounding(0.5),)), VALUES + 0.3) == "4000 of 4000 values went elsewhere, up to 0.3 away"


def test_what_leaves_open_where_values_go_is_compared_with_nothing() -> None:
    assert Expected.of((Bound(1.0),)) is None
    for noise in (Noise(mechanism="gaussian", multiplier=1.0), Noise(mechanism="pure", multiplier=1.0, scale=1.0)):
        assert Expected.of((noise,)) is None
    gaussian = Noise(mechanism="gaussian", scale=1.0)
    assert Expected.of((gaussian, Scales(2.0))) is Expected.of((gaussian, gaussian)) is None


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_noise_that_is_stated_is_there(mechanism: str) -> None:
    """Who stated noise and added none had an epsilon for it."""
    draw = getattr(np.random.default_rng(7), "normal" if mechanism == "gaussian" else "laplace")
    noise = draw(0.0, 1.0, 4000)
    one = Expected.of((Noise(mechanism=mechanism, scale=1.0),))
    assert wrong(one, VALUES + noise) == ""
    assert wrong(one, VALUES).startswith("values moved by 0 on average and not by noise of 1")
    assert wrong(one, VALUES * 8 + noise).startswith("values moved by ")
    assert "of 4000 values went elsewhere" in wrong(one, VALUES * 200 + noise)
    assert wrong(Expected.of((Noise(mechanism=mechanism, scale=3.0),)), VALUES + noise).startswith("values moved by ")
    assert wrong(Expected.of((Noise(mechanism=mechanism, scale=(1.0, 9.0)),)), VALUES + noise) == ""
    assert "of 4000 values moved by less than a tenth" in wrong(one, VALUES + np.where(VALUES > 0.2, 2 * noise, 0))
    coarse = Expected.of((Noise(mechanism=mechanism, scale=0.1, grid=4.0),))
    assert wrong(coarse, np.zeros(4000)) == ""  # where the grid is coarser than the noise nothing need move


def test_places_are_others_each_time() -> None:
    assert places(0).tolist() == []
    assert places(10).tolist() == list(range(10))
    found = {int(places(4096 * 100)[0]) for _ in range(40)}
    assert len(found) > 10
    assert max(found) < 100
