"""Recipes that would fail in a run: the cohort, evaluation, scores. References are in `tests/recipe/test_check.py`."""

from __future__ import annotations

from typing import Any

import pytest
from mix_toys import refused
from toy_components import recipe_of


@pytest.mark.parametrize(("changes", "why"), [
    ({"min_clients": 5}, "min_clients=5 must be <= data.clients=4"),
    ({"min_clients": 2, "sampling": {"scheme": "poisson", "rate": 0.25}},
     "rate=0.25 gives 1 of 4 clients a round, fewer than min_clients=2; raise it to 0.5 or more"),
    ({"clusters": {"near": [0, 7]}}, "cluster near has client 7"),
    ({"clusters": {"near": []}}, "cluster near has no client"),
    ({"fine_tune": {"use": "baselines.dp_sgd", "epochs": 1, "batch_size": 8, "lr": 0.1, "clipping_norm": 1.0,
                    "noise_multiplier": 1.0}}, "keeps an account, and a fine-tuned model never travels"),
    ({"negotiate_mask": {"use": "fedre.sensitive_layers", "layers": 1},
      "score_parameters": [{"use": "std.magnitude"}]}, "needs a score for each layer"),
])  # fmt: skip
def test_they_are_refused_with_the_remedy(changes: dict[str, Any], why: str) -> None:
    assert why in refused(recipe_of(**changes))
