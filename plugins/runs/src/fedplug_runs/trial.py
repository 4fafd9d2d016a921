"""A little of a run: its real data, a few examples of each client, two rounds, in a folder that is removed.

`fedplug check RECIPE --data DIR` tries it, so that what would fail in a run's second round fails before the first.
"""

from __future__ import annotations

import dataclasses
import io
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from fedplug.api.data import Examples
from fedplug.api.errors import FedplugError, RecipeError
from fedplug.api.events import RoundClosed
from fedplug.api.roles import Extension
from fedplug.recipe.catalog import Catalog, Entry
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.world import Holding, World

from fedplug_runs import units
from fedplug_runs.execution import INTERRUPTED, Execution
from fedplug_runs.files import private_folder, private_process
from fedplug_runs.folder import locked, write_recipe
from fedplug_runs.own_files import keep
from fedplug_runs.settings import Settings
from fedplug_runs.shown import LinesDisplay

_EXAMPLES = 8
"""Examples of a client, for training and for testing."""
_ROUNDS = 2
_CLIENTS = 6
"""With more clients, as many of them are tried where the recipe holds with so few."""


@dataclasses.dataclass(frozen=True)
class Tried:
    """What a trial found.

    Attributes:
        rounds, clients: how many were tried.
        notes: what a run would note, and what it will need that this machine lacks.
    """

    rounds: int
    clients: int
    notes: tuple[str, ...]


def tried(recipe: Recipe, settings: Settings, catalog: Catalog | None = None) -> Tried:
    """Runs a little of a recipe on this machine's engine `local`, and leaves nothing behind.

    Args:
        recipe: as checked; its own code runs.
        settings: the folder of data sets, the device, and where a run's folder would be.
        catalog: the components on offer; by default those installed.

    Raises:
        FedplugError: a run would fail, as the message says.
        KeyboardInterrupt: it was interrupted.
    """
    few = _with_few_clients(recipe, catalog)
    if few is not None:
        try:
            return _run(few, recipe, settings, catalog)
        except FedplugError:
            pass  # perhaps because there are few: the whole recipe tells
    return _run(recipe, recipe, settings, catalog)


def _with_few_clients(recipe: Recipe, catalog: Catalog | None) -> Recipe | None:
    """The same recipe with few clients; None where it needs all, names some, or samples among them."""
    few = max(_CLIENTS, recipe.min_clients)
    if recipe.data.clients <= few or recipe.sampling is not None or recipe.own_files:
        return None
    from fedplug_runs import functions

    plain = recipe.to_plain()
    plain["data"]["clients"] = few
    try:
        return functions.check(plain, catalog=catalog)
    except (RecipeError, FedplugError):
        return None


def _run(recipe: Recipe, whole: Recipe, settings: Settings, catalog: Catalog | None) -> Tried:
    quiet = settings.replace({"engine": "local", "quiet": True, "listeners": (), "record_wire": False})
    quiet = dataclasses.replace(quiet, engine_options={})
    with tempfile.TemporaryDirectory(prefix="fedplug-check-") as made:
        folder = private_folder(Path(made) / "run")
        heard = _Heard()
        with locked(folder), private_process():
            write_recipe(folder, recipe)
            keep(recipe.own_files, folder)
            trial = _Trial(recipe, folder, quiet, catalog, heard)
            if trial.execute(None) == INTERRUPTED:
                raise KeyboardInterrupt("Interrupted; nothing is left behind")
        notes = [note for note in heard.notes if note not in recipe.notes]
        return Tried(len(trial.sizes), recipe.data.clients, (*notes, *_lacking(trial, recipe, whole, settings)))


def _lacking(trial: _Trial, recipe: Recipe, whole: Recipe, settings: Settings) -> list[str]:
    """The disk that a run will need by what the trial wrote, where there is not so much."""
    if not trial.sizes:
        return []
    grows = max(0, trial.sizes[-1] - trial.sizes[0]) / max(1, len(trial.sizes) - 1)
    share = whole.data.clients / recipe.data.clients
    needed = share * (trial.sizes[0] + grows * (whole.rounds - 1))
    place = next(each for each in (settings.output, *settings.output.absolute().parents) if each.is_dir())
    free = shutil.disk_usage(place).free
    if needed <= free:
        return []
    return [
        f"the run folder will take about {units.size(needed)} after {whole.rounds} rounds, and {place} has "
        f"{units.size(free)} left; make room, or choose another place with --output"
    ]


class _Trial(Execution):
    """An execution of two rounds on little data, of which nobody outside hears."""

    def __init__(
        self, recipe: Recipe, run_dir: Path, settings: Settings, catalog: Catalog | None, heard: _Heard
    ) -> None:
        super().__init__(recipe, run_dir, settings, catalog, heard)
        self.sizes: list[int] = []

    def make_world(self, composition: Composition) -> World:
        return _LittleWorld(self.recipe, composition, self.settings.data_root)

    def extensions(self) -> list[Extension]:
        return []

    def _others_who_listen(self) -> list[tuple[Entry, Extension]]:
        return []

    def _end_if_told(self, event: RoundClosed) -> None:
        written = (each for each in self.run_dir.rglob("*") if each.is_file())
        self.sizes.append(sum(each.stat().st_size for each in written))
        if event.round + 1 >= min(_ROUNDS, self.recipe.rounds):
            self.enough()

    def _saved(self) -> list[int]:
        """None that anybody could continue from."""
        return []


class _LittleWorld(World):
    """The data of a recipe, of which each client has a few examples."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        if self.data is not None:
            self.assignment = [_spread(mine) for mine in self.assignment]
            test = self.data.test
            if len(test) > _EXAMPLES * len(self.assignment):
                every = np.linspace(0, len(test) - 1, _EXAMPLES * len(self.assignment)).astype(np.int64)
                self.data = dataclasses.replace(self.data, test=test.take(every))

    def holdings(self, client_ids: list[int]) -> dict[int, Holding]:
        found = super().holdings(client_ids)
        if self.data is not None:
            return found
        little: dict[int, Holding] = {}
        for client, held in found.items():
            test = _few(held.data.own_test)
            data = dataclasses.replace(held.data, train=_few(held.data.train), own_test=test, shared_test=test)
            little[client] = dataclasses.replace(held, data=data)
        return little


def _few(examples: Examples) -> Examples:
    return examples.take(_spread(np.arange(len(examples))))


def _spread(indices: Any) -> Any:
    """A few of them, from all over."""
    if len(indices) <= _EXAMPLES:
        return indices
    return indices[np.linspace(0, len(indices) - 1, _EXAMPLES).astype(np.int64)]


class _Heard(LinesDisplay):
    """Keeps the notes of a run, and shows nothing."""

    def __init__(self) -> None:
        super().__init__(io.StringIO(), quiet=True)
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)
