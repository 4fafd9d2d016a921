"""What sections of a recipe are handed once a run is complete."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest
from fedplug import Field, Options, Section
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.recipe import Recipe
from fedplug.runs.files import read_rows
from fedplug.runs.finished import FinishedRun
from fedplug.runs.run import start
from fedplug.runs.settings import Settings
from toy_components import TOYS, recipe_of, toy_catalog

HANDED: list[FinishedRun] = []


class Audit(Section):
    """Look a run over when it is finished."""

    class Options(Options):
        code: int = Field(1, description="the exit code")

    lists: ClassVar[dict[str, str]] = {}

    def after_run(self, run: FinishedRun) -> int:
        """Remembers it."""
        HANDED.append(run)
        return int(self.options.code)


@pytest.mark.parametrize("code", [0, 3])
def test_a_section_is_handed_a_run_that_is_whole_and_its_code_is_the_runs(code: int, tmp_path: Path) -> None:
    HANDED.clear()
    used = {"dataset", "partition", "model", "trainer", "negotiate_mask", "aggregate"}
    installed = toy_catalog()
    classes = {
        group: {name: entry.load() for name, entry in installed.groups[group].items() if name.startswith("std.")}
        for group in used
    }
    catalog = Catalog.of({**TOYS, **classes}, {"audit": Audit})
    recipe = Recipe.from_plain(recipe_of(rounds=1, audit={"code": code}), catalog)
    settings = Settings(output=tmp_path, quiet=True, device="cpu")
    found, folder = start(recipe, settings, catalog)
    (handed,) = HANDED
    assert found == code
    assert (handed.recipe, handed.folder, handed.settings, handed.catalog) == (recipe, folder, settings, catalog)
    assert handed.in_sweep is False
    assert len(read_rows(handed.folder)) == 1, "everything is written before"
    assert len(handed.world.assignment) == recipe.data.clients
