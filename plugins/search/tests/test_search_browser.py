"""The page of a search in a real browser: on a telephone, a tablet and a desk, in light and dark, and read by axe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browsing import WIDTHS, browser, faults
from fedplug_search import search

__all__ = ["browser"]

RECIPES = Path(__file__).parents[3] / "recipes"


@pytest.fixture(scope="module")
def pages(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Of one search with a front and trials that missed, ended early or were refused; of one that finds nothing."""
    folder = tmp_path_factory.mktemp("searches")
    many = search(
        RECIPES / "dp-fedavg.yaml",
        {"protect.noised.1.epsilon": [2, 8, 50, 400], "delta": [1e-5, 1e-3], "protect.noised.0.norm": [0.01, 0.1]},
        max={"epsilon": 60, "bytes": "100MB"}, objectives=["accuracy", "epsilon", "bytes"],
        sets={"rounds": 2, "train.epochs": 1}, trials=16, output=folder / "many",
    )  # fmt: skip
    assert many.unlike
    assert {trial.status for trial in many.trials} == {"met", "pruned"}
    none = search(
        RECIPES / "fedavg.yaml", {"rounds": [1, 2], "min_clients": [2, 11], "data.clients": [10, 12]},
        max={"epsilon": 1}, trials=8, output=folder / "none",
    )  # fmt: skip
    assert {trial.status for trial in none.trials} == {"missed", "refused"}
    assert not none.found
    return [many.page, none.page]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_of_a_search_can_be_read_everywhere(
    browser: Any, pages: list[Path], width: int, scheme: str
) -> None:
    found = [fault for page in pages for fault in faults(browser, page, width, scheme)]
    assert not found, "\n".join(found)
