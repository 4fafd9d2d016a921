"""A small recipe, and where what is made of it goes."""

from __future__ import annotations

from pathlib import Path

import pytest
from fedplug.recipe.catalog import Catalog
from fedplug_runs import yaml_source
from fedplug_runs.settings import Settings
from toy_components import recipe_of, toy_catalog


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return toy_catalog()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(output=tmp_path / "made", device="cpu")


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """FedAvg with a push in place of training, as a file."""
    file = tmp_path / "toy.yaml"
    file.write_text(yaml_source.dump(recipe_of(rounds=1, train={"use": "toy.push"})), encoding="utf-8")
    return file
