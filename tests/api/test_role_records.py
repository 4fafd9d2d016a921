"""What roles declare: frozen records that refuse what they cannot hold."""

from __future__ import annotations

from typing import Any

import pytest
from fedplug import Finds, Plans, Reads, Scoring, Wants
from fedplug_attacks.api.needs import Needs


@pytest.mark.parametrize(
    ("record", "facts"),
    [
        (Plans, {"zones": frozenset(), "own_zones": frozenset()}), (Wants, {"uses_num_examples": True}),
        (Reads, {"per_layer": True}), (Scoring, {"uses_private_data": False}), (Finds, {"images": True}),
        (Needs, {"updates": True}),
    ],
    ids=str,
)  # fmt: skip
def test_a_declaration_that_no_record_has_is_refused(record: Any, facts: dict[str, Any]) -> None:
    unknown = list(facts)[-1]
    with pytest.raises(TypeError, match=unknown):
        record(**facts)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"zones": "clear"}, r"Plans\.zones is 'clear'; it must be a frozenset of names"),
        ({"zones": ["clear"]}, r"Plans\.zones is \['clear'\]; it must be a frozenset of names"),
        ({"zones": frozenset({"clear"}), "own": frozenset({"noised"})}, r"Plans\.own names the zone noised, which"),
    ],
)
def test_zones_are_names(facts: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        Plans(**facts)
