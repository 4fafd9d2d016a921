"""docs/gallery.md: the cards say what the shipped recipes say."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import fedplug
import pytest
from scripts import script

ROOT = Path(__file__).parent.parent
GALLERY = script(ROOT / "docs/gallery.py")
with GALLERY.NUMBERS.open(encoding="utf-8", newline="") as file:
    ROWS = {row["recipe"]: row for row in csv.DictReader(file)}


def test_every_card_has_a_row_and_every_row_a_card() -> None:
    assert list(ROWS) == [recipe for group in GALLERY.GALLERY.values() for recipe in group]


@pytest.mark.parametrize("name", ROWS)
def test_a_card_has_the_components_of_its_recipe(name: str) -> None:
    recipe: Any = fedplug.check(ROOT / f"recipes/{name}.yaml")
    row = ROWS[name]
    assert {key: row[key] for key in GALLERY.components(recipe)} == GALLERY.components(recipe)
    assert {zone: chain for zone, _, chain in GALLERY.zones_of(row) if chain} == GALLERY.chains_of(recipe)
    assert int(row["rounds"]) == recipe.rounds
