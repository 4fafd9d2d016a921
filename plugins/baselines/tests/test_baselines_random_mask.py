"""Random masks: of the stated size, public, and the same at every client."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fedplug import Layout
from fedplug.api.errors import RecipeError
from fedplug.recipe.recipe import Recipe
from fedplug_baselines.random_mask import RandomMask
from hypothesis import given
from hypothesis import strategies as st
from toy_components import recipe_of
from toy_protocol import calls_of, run_protocol

SEAL = {"use": "std.bfv", "key_holder": "clients"}


def component(**options: Any) -> RandomMask:
    made = RandomMask(RandomMask.Options(**options))
    made.name = "baselines.random_mask"
    return made


def recipe(ratio: float, per_round: bool = False, **changes: Any) -> dict[str, Any]:
    zones = component(ratio=ratio).plans.zones
    protect = {"encrypted": [SEAL], "clear": []}
    return recipe_of(
        negotiate_mask={"use": "baselines.random_mask", "ratio": ratio, "per_round": per_round},
        protect={zone: chain for zone, chain in protect.items() if zone in zones},
        postprocess={"encrypted": ["std.bfv"]} if ratio else {},
    ) | changes  # fmt: skip


def encrypted(make_client: Any, size: int, round: int = 0, **options: Any) -> Any:
    plan = component(**options).plan(make_client(Layout.of([("w", (size,))]), round=round).facts)
    return plan.positions("encrypted")


@given(st.integers(1, 400), st.floats(0, 1))
def test_a_share_of_the_model_is_that_many_distinct_scalars(make_client: Any, size: int, ratio: float) -> None:
    found = encrypted(make_client, size, ratio=ratio)
    assert len(np.unique(found)) == len(found) == int(ratio * size + 1e-9)


def test_one_mask_a_run_or_one_a_round(make_client: Any) -> None:
    first, later = (encrypted(make_client, 500, round, ratio=0.1) for round in (0, 3))
    assert np.array_equal(first, later)
    first, again, later = (encrypted(make_client, 500, round, ratio=0.1, per_round=True) for round in (0, 0, 3))
    assert np.array_equal(first, again)
    assert len(np.intersect1d(first, later)) < 25  # 5 expected by chance


def test_every_scalar_is_as_likely_as_any_other(make_client: Any) -> None:
    masks = [encrypted(make_client, 40, round, ratio=0.25, per_round=True) for round in range(2000)]
    counts = np.bincount(np.concatenate(masks), minlength=40)
    assert np.abs(counts - 500).max() < 5 * np.sqrt(2000 * 0.25 * 0.75)


def test_its_limits_are_fedavg_and_encrypted_fedavg_bit_for_bit() -> None:
    assert np.array_equal(run_protocol(recipe(0.0)).vector, run_protocol(recipe_of()).vector)
    assert np.array_equal(run_protocol(recipe(1.0)).vector, run_protocol(recipe_of("encrypted", [SEAL])).vector)


def test_no_message_carries_the_mask() -> None:
    outcome = run_protocol(recipe(0.2, per_round=True))
    assert [round(row.zones["encrypted"] * 650) for row in outcome.rows] == [130, 130]
    assert outcome.rows[1].mask_churn > 0.2
    calls = [call for message in outcome.sent("client:1") for call in calls_of(message)]
    assert "fedplug.protect" in calls
    assert not any(call.startswith("baselines.random_mask") for call in calls)


@pytest.mark.parametrize("ratio", [-0.1, 1.01, True])
def test_a_share_out_of_range_is_refused(ratio: Any) -> None:
    with pytest.raises(RecipeError, match="ratio"):
        Recipe.from_plain(recipe(0.5, negotiate_mask={"use": "baselines.random_mask", "ratio": ratio}))
