"""Records refuse words and numbers that their fields cannot hold."""

from __future__ import annotations

import math
from typing import Any

import pytest
from fedplug import Bound, Changes, Reveals, Seal


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Bound(-1.0), r"^Bound\(norm=-1.0\): it must be a number >= 0$"),
        (lambda: Bound(math.nan), "norm=nan"),
        (lambda: Bound((1.0, -1.0), per="layer"), "number >= 0"),
        (lambda: Bound(1.0, per="zone"), "it must be one of 'update', 'layer', 'scalar'"),  # type: ignore[arg-type]
        (lambda: Changes("maybe"), "one of 'kept', 'lost'"),  # type: ignore[arg-type]
        (lambda: Reveals("mask", to=("everybody",)), "a tuple of 'aggregator'"),  # type: ignore[arg-type]
        (lambda: Reveals("mask", to=(), covered_by="hope"), "one of 'epsilon'"),  # type: ignore[arg-type]
    ],
)
def test_what_a_field_cannot_hold_is_refused_with_its_rule(make: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


def test_unknown_is_allowed_where_it_says_so() -> None:
    assert math.isnan(Seal(scheme="any", opened_by="clients", range=math.nan, step=math.nan).range)
    assert Reveals("mask", to=("client",)).covered_by is None
