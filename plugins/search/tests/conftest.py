"""Small recipes, and where what is found of them goes."""

from __future__ import annotations

from pathlib import Path

import pytest
from fedplug.recipe.catalog import Catalog
from fedplug_runs.settings import Settings
from search_toys import written
from toy_components import toy_catalog


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return toy_catalog()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(output=tmp_path / "found", device="cpu")


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """FedAvg of a linear model on digits."""
    return written(tmp_path, rounds=1)


@pytest.fixture
def pushed(tmp_path: Path) -> Path:
    """The same with a push in place of training, and noise that follows from the seed."""
    return _noised(tmp_path, "reproducible")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """The same with noise that protects."""
    return _noised(tmp_path, "secure")


def _noised(folder: Path, source: str) -> Path:
    noise = {"use": "std.gaussian", "noise_multiplier": 1.0, "source": source}
    chain = [{"use": "std.clip", "norm": 1.0}, noise]
    return written(folder, zone="noised", chain=chain, rounds=3, train={"use": "toy.push"})
