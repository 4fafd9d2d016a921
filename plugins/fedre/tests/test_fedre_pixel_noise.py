"""Noise on pixels: its place, its size, that it stays the same, and that it promises nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fedplug.api.errors import RecipeError
from fedplug.recipe.recipe import Recipe
from fedplug_fedre.pixel_noise import PixelNoise, unit_range
from fedplug_kit import conformance
from toy_components import recipe_of
from toy_protocol import run_protocol

NAME = "fedre.pixel_noise"


def recipe(**options: Any) -> dict[str, Any]:
    train = {"use": NAME, "epochs": 1, "batch_size": 32, "lr": 0.05, "std": 0.3, "source": "reproducible"} | options
    return recipe_of(train=train)


def test_conforms() -> None:
    """Without noise; the kit's own tests try it with noise."""
    conformance(NAME, {"std": 0.0, "lr": 0.1}, recipe={"model": "std.mlp"})


def test_the_worked_example(monkeypatch: pytest.MonkeyPatch) -> None:
    """std 0.3 on the 4x4 box of the digits: the noise is only there, with that size, and the same in every round."""
    seen: dict[int, list[Any]] = {}
    original = PixelNoise.noised

    def watched(self: Any, client: Any) -> Any:
        found = original(self, client)
        seen.setdefault(client.client_id, []).append(found.inputs - unit_range(client.data.train.inputs))
        client.cache.pop(f"{self.name}.examples")  # as in a process that takes over from a checkpoint
        return found

    monkeypatch.setattr(PixelNoise, "noised", watched)
    run_protocol(recipe(preference={"box": [2, 2, 6, 6]}, source="secure"))
    assert sorted(seen) == [0, 1, 2, 3]
    for first, second in seen.values():
        assert np.array_equal(first, second)
        inside = first[:, :, 2:6, 2:6]
        assert np.std(inside) == pytest.approx(0.3, rel=0.05)  # 16 pixels of over 200 images: 5 standard errors
        assert np.count_nonzero(first) == np.count_nonzero(inside)
    assert not np.array_equal(seen[0][0][:8], seen[1][0][:8])  # each client has different noise


def test_without_noise_it_is_sgd() -> None:
    # Streams are named after the component, so orders of examples differ. Whole batches do not depend on them.
    whole = {"batch_size": 10_000, "lr": 0.5}
    plain = run_protocol(recipe_of(train={"use": "std.sgd", "epochs": 1, **whole}))
    none = run_protocol(recipe(std=0.0, **whole))
    some = run_protocol(recipe(std=1.0, **whole))
    assert np.allclose(none.vector, plain.vector, atol=1e-6)
    assert np.abs(some.vector - plain.vector).max() > 1e-3


def test_no_guarantee_is_stated() -> None:
    report = run_protocol(recipe(std=5.0, source="secure")).protocol.ledger.report()
    assert report.verdict.status == "no_protection"
    assert all(view.epsilon is None for view in report.views.values())


def test_boxes_of_a_file_are_refused() -> None:
    with pytest.raises(RecipeError, match="numbered by public examples"):
        Recipe.from_plain(recipe(preference={"boxes": "a.json"}))
