"""`fedplug.run` and `fedplug.resume`: a run folder around a protocol, from the first round or from a checkpoint."""

from __future__ import annotations

import shutil
from pathlib import Path

from fedplug.api.errors import CheckpointError, FedplugError
from fedplug.console.display import Display
from fedplug.recipe import yaml_source
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.own_files import keep
from fedplug.recipe.recipe import Recipe, load_recipe
from fedplug.round.checkpoint import Checkpoints
from fedplug.runs.execution import Execution
from fedplug.runs.folder import locked, new_folder, write_text
from fedplug.runs.settings import Settings


def start(
    recipe: Recipe,
    settings: Settings,
    catalog: Catalog | None = None,
    folder_name: str | None = None,
    watch: Display | None = None,
) -> tuple[int, Path]:
    """Runs a recipe from the start; gives the exit code and the run folder, which is named after `folder_name` or the
    recipe.

    `catalog` and `watch` are as in `Execution`.
    """
    run_dir = new_folder(Path(settings.output), folder_name or recipe.name)
    with locked(run_dir):
        write_text(run_dir / "recipe.yaml", yaml_source.dump(recipe.to_plain()))
        keep(recipe.own_files, run_dir)
        try:
            return Execution(recipe, run_dir, settings, catalog, watch).execute(None), run_dir
        except (FedplugError, KeyboardInterrupt) as error:
            saved = bool(Checkpoints(run_dir).rounds())
            if not saved:  # nothing ran, so there is nothing to keep
                shutil.rmtree(run_dir, ignore_errors=True)
            if isinstance(error, KeyboardInterrupt):  # before the first round, or after the last
                nothing = "nothing had begun, and nothing is left behind"
                words = f"to go on: fedplug resume {run_dir}" if saved else nothing
                raise KeyboardInterrupt(f"Interrupted; {words}") from error
            raise


def resume(
    run_dir: Path,
    settings: Settings,
    round: int | None = None,
    catalog: Catalog | None = None,
    watch: Display | None = None,
) -> int:
    """Continues an interrupted run from its last checkpoint, or from that of `round`; gives the exit code.

    Raises:
        CheckpointError: there is no run there, its checkpoint is damaged, or its charging.jsonl is not whole.
        SetupError: another process writes in its folder.
    """
    file = run_dir / "recipe.yaml"
    if not file.is_file():
        remedy = "fedplug run prints a run's folder"
        raise CheckpointError(f"{run_dir} is not a run folder: it has no recipe.yaml; {remedy}")
    with locked(run_dir):
        recipe = load_recipe(file, (), catalog)
        checkpoint = Checkpoints(run_dir).read(round)
        execution = Execution(recipe, run_dir, settings, catalog, watch)
        execution.archive.charges.require(execution.archive.checkpoints)
        return execution.execute(checkpoint)
