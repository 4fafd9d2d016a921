"""What sections of a recipe are handed once a run is complete."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedplug.recipe.catalog import Catalog
    from fedplug.recipe.recipe import Recipe
    from fedplug.round.world import World
    from fedplug.runs.settings import Settings


@dataclasses.dataclass(frozen=True)
class FinishedRun:
    """A run that is complete, for sections that do something with it.

    Attributes:
        recipe: of the run.
        folder: where it was written.
        settings: of this machine.
        catalog: the components on offer; None where they are those installed.
        in_sweep: whether somebody else shows how it goes, so that nothing but warnings is to be printed.
        world: the data and the initial model, which need not be built again.
    """

    recipe: Recipe
    folder: Path
    settings: Settings
    catalog: Catalog | None
    in_sweep: bool
    world: World
