"""Recipes to search in, and what is left of a search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fedplug.round.protocol import Protocol
from fedplug_runs import yaml_source
from toy_components import recipe_of

RECIPES = Path(__file__).parent / "recipes"
TIMES = {"seconds", "peak_memory"}


def written(folder: Path, **changes: Any) -> Path:
    file = folder / "toy.yaml"
    file.write_text(yaml_source.dump(recipe_of(**changes)), encoding="utf-8")
    return file


def trials_of(folder: Path) -> list[dict[str, Any]]:
    return list(json.loads((folder / "trials.json").read_text())["trials"])


def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Rounds that are run from here on, with how many their recipe has."""
    whole, rounds = Protocol.round, list[tuple[int, int]]()

    def watched(protocol: Protocol, round: int) -> None:
        rounds.append((protocol.recipe.rounds, round))
        whole(protocol, round)

    monkeypatch.setattr(Protocol, "round", watched)
    return rounds


def compared(folder: Path) -> list[dict[str, Any]]:
    """What must not depend on when a search was interrupted."""
    return [
        {"values": one["values"], "status": one["status"], "reason": one.get("reason"),
         "numbers": {name: value for name, value in one.get("numbers", {}).items() if name not in TIMES}}
        for one in trials_of(folder)
    ]  # fmt: skip
