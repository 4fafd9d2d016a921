"""Recipes that would fail in a run: the cohort, evaluation, scores. References are in `tests/recipe/test_check.py`."""

from __future__ import annotations

from typing import Any

import pytest
from fedplug.recipe.recipe import Recipe
from mix_toys import refused
from toy_components import recipe_of, toy_catalog


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


@pytest.mark.parametrize(
    ("sampling", "chain", "noted"),
    [
        ({"scheme": "fixed", "rate": 0.5}, [], True),
        ({"rate": 0.5}, [], True),
        ({"scheme": "fixed", "rate": 0.5, "source": "reproducible"}, [], False),
        ({"scheme": "cyclic", "rate": 0.5}, [], False),
        ({"rate": 0.5}, [{"use": "std.clip", "norm": 1.0}, {"use": "std.gaussian", "noise_multiplier": 1.0}], False),
        (None, [], False),
    ],
)  # fmt: skip
def test_a_draw_that_does_not_follow_from_the_seed_is_said_where_no_noise_needs_it(
    sampling: dict[str, Any] | None, chain: list[Any], noted: bool
) -> None:
    zone = "noised" if chain else "clear"
    recipe = Recipe.from_plain(recipe_of(zone, chain, sampling=sampling, min_clients=1), toy_catalog())
    assert any("does not follow from the seed" in note for note in recipe.notes) == noted
