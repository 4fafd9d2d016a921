"""Bounds of what clients send as whole steps."""

from __future__ import annotations

import dataclasses
import math

import pytest
from fedplug import Misplaced
from fedplug.api.known import Bound, Known, Release
from fedplug_std.fixed_point import bound_of


def test_the_bound_has_room_for_all_the_noise_of_a_round_also_where_it_is_correlated_over_rounds() -> None:
    """Correlated noise takes earlier draws back, so it is larger than what is drawn anew, by its `spread`."""
    clipped = Known(zone="encrypted", bounds=(Bound(2.0),))
    assert bound_of(clipped, "toy", "wrap") == 2.0
    noise = Release(mechanism="gaussian", trust="distributed", noise_multiplier=0.5, clipping_norm=2.0, spread=3.0)
    assert math.isclose(bound_of(dataclasses.replace(clipped, releases=(noise,)), "toy", "wrap"), 2.0 + 12 * 3.0)
    with pytest.raises(Misplaced, match="nothing bounds the encrypted values before toy, so a sum could wrap"):
        bound_of(Known(zone="encrypted"), "toy", "wrap")
