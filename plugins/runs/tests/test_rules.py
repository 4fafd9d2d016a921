"""Recipes that would fail in a run: the cohort, evaluation, scores. References are in `tests/recipe/test_check.py`."""

from __future__ import annotations

from typing import Any

import pytest
from fedplug.recipe.recipe import Recipe
from fedplug_runs import functions
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


@pytest.mark.parametrize(("chain", "needed"), [
    ([{"use": "std.clip", "norm": 1.0}, {"use": "secagg.bonawitz", "threshold": 4}], 4),
    ([{"use": "std.clip", "norm": 1.0}, {"use": "secagg.bonawitz"}], 3),
    ([{"use": "std.clip", "norm": 1.0}, {"use": "threshold.bfv", "threshold": 4}], 4),
])  # fmt: skip
def test_rounds_that_nobody_could_open_are_noted(chain: list[Any], needed: int) -> None:
    changes: dict[str, Any] = {
        "data": {"use": "std.digits", "clients": 5, "partition": {"use": "std.iid"}},
        "negotiate_mask": {"use": "std.single_zone", "zone": "encrypted"},
        "protect": {"encrypted": chain}, "postprocess": {"encrypted": [chain[-1]["use"]]},
    }  # fmt: skip
    said = functions.check(recipe_of(**changes, min_clients=3)).notes
    assert [note for note in said if "cannot be opened" in note] == [
        note for note in said if f"min_clients=3 is below the {needed} clients" in note
    ]
    assert len([note for note in said if "cannot be opened" in note]) == (needed > 3)


def test_long_names_are_refused_before_they_are_names_of_files() -> None:
    assert "zone zzzzzzzzzzzzzzzzzzzz... has 300 characters" in refused(recipe_of(protect={"z" * 300: []}))
    assert "at most 100" in refused(recipe_of(name="n" * 300))


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 0, -1, "much", True])
@pytest.mark.parametrize("noise", [
    {"use": "std.gaussian", "delta": 1e-5}, {"use": "std.laplace"}, {"use": "paraaegis.literal_noise", "delta": 1e-5},
])  # fmt: skip
def test_an_epsilon_is_a_positive_number(noise: dict[str, Any], value: Any) -> None:
    said = refused(recipe_of(protect={"noised": [{"use": "std.clip", "norm": 1.0}, noise | {"epsilon": value}]}))
    assert "epsilon=" in said
    assert "must be" in said


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
