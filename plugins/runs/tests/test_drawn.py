"""What a party has drawn: JSON of bounded size, and why something is left out."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from fedplug.api.reports import MOST_PICTURES
from fedplug_runs.drawn import drawn


def test_what_components_draw_travels_as_json_and_what_cannot_is_named() -> None:
    good = {"counts": np.arange(2), "mark": np.float32(0.5)}
    figures: dict[Any, Any] = {"a": good, "b": object(), "": 1, "c\n": 1, 5: 1}
    texts, left_out = drawn(figures)
    assert not figures, "they are taken"
    assert {name: json.loads(text) for name, text in texts.items()} == {"a": {"counts": [0, 1], "mark": 0.5}}
    assert left_out.keys() == {"b", "", "c\n", "5"}
    assert "its name must be text" in left_out["5"]
    many, rest = drawn({f"p{i}": "x" * 2_000_000 if i == 3 else i for i in range(MOST_PICTURES + 3)})
    assert len(many) == MOST_PICTURES
    assert rest.keys() == {"p3", "p17", "p18"}
