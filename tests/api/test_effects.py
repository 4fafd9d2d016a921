"""What a link can state: a tuple of effects, of which each holds only what it can."""

from __future__ import annotations

from typing import Any

import pytest
from fedplug import (
    Bound,
    Effects,
    Known,
    Scramble,
    Seal,
)
from fedplug.api.operations import Misplaced, as_effects

PLAIN = Known(zone="noised", link="this", layers=(90, 10))


SEAL = Seal(scheme="a test", opened_by="clients", range=8.0, step=0.5)


def test_a_seal_cannot_leave_out_what_it_holds() -> None:
    """Nothing would be a claim, too: that every value fits."""
    with pytest.raises(TypeError, match="range"):
        Seal(scheme="a test", opened_by="clients")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="range"):
        Scramble(hides="values")  # type: ignore[call-arg]


@pytest.mark.parametrize("found", [[Bound(1.0)], Bound(1.0), ("noise",), (1.0,), {"noise"}])
def test_effects_are_a_tuple_of_effects(found: Any) -> None:
    with pytest.raises(Misplaced, match=r"^odd states .* as its effects; give a tuple of Bound, Scales"):
        as_effects(found, "odd")


def test_effects_pass_as_they_are() -> None:
    given_effects: Effects = (Bound(1.0), SEAL)
    assert as_effects(given_effects, "odd") is given_effects
    assert as_effects((), "odd") == ()
    with pytest.raises(TypeError, match="this states 'noise', which is not an effect"):
        PLAIN.after(("noise",))  # type: ignore[arg-type]
