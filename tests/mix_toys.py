"""Mixes of two noises, with their claims or the reasons for a refusal."""

from __future__ import annotations

from typing import Any

import pytest
from fedplug.api.errors import RecipeError
from fedplug.recipe.recipe import Recipe
from fedplug_ledger.verdict import Line
from toy_components import TOYS, toy_catalog
from toy_protocol import run_protocol

ENCRYPTED = "encrypted"


def install(monkeypatch: pytest.MonkeyPatch, mine: dict[str, dict[str, type]]) -> None:
    """Recipes of this test know these classes, by hook and name."""
    for group, classes in mine.items():
        monkeypatch.setitem(TOYS, group, {**TOYS.get(group, {}), **classes})


def refused(plain: dict[str, Any]) -> str:
    with pytest.raises(RecipeError) as error:
        Recipe.from_plain(plain, toy_catalog())
    return str(error.value)


def views(plain: dict[str, Any]) -> dict[str, Line]:
    return run_protocol(plain).protocol.ledger.report().views


def zero_out(plain: dict[str, Any], view: str) -> float:
    epsilons = views(plain)[view].epsilons
    assert epsilons is not None
    return epsilons.zero_out["epsilon_exact"]


def clipped(*after: Any, norm: float = 1.0) -> list[Any]:
    return [{"use": "std.clip", "norm": norm}, *after]


def noise(multiplier: float, **options: Any) -> dict[str, Any]:
    return {"use": "std.gaussian", "noise_multiplier": multiplier, **options}
