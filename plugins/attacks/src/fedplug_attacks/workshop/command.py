"""`fedplug attack`: attacks on a finished run, from its recipe or named on the command line."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedplug.api.errors import FedplugError, RecipeError, SetupError, ViewError, describe
from fedplug.api.events import Events, Note, ResultsWritten
from fedplug.api.files import private_process
from fedplug.recipe import overlay, yaml_source
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.composition import Composition
from fedplug.recipe.own_files import with_files
from fedplug.recipe.recipe import Recipe
from fedplug.round.steps import needs_key_server
from fedplug.round.world import World
from fedplug.runs.execution import listen, listeners
from fedplug.runs.folder import load_run, locked
from fedplug.runs.settings import Settings

from fedplug_attacks.workshop.display import AttackDisplay, make_attack_display
from fedplug_attacks.workshop.run import AttackRun

INTERRUPTED = 130


def attack(
    run_dir: Path,
    settings: Settings,
    attacks: Sequence[str] = (),
    metrics: Sequence[str] = (),
    scope: dict[str, Any] | None = None,
    sets: Sequence[str] = (),
    catalog: Catalog | None = None,
) -> int:
    """Attacks a finished run; gives the exit code. Targets that are finished already are not attacked again.

    Args:
        run_dir: the run folder.
        settings: of this machine.
        attacks: names of attacks; those of the recipe if empty.
        metrics: names of metrics; those of the recipe, or all that are computed by default.
        scope: keys of `fedplug_attacks.workshop.scope.AttackScope` that replace those of the recipe.
        sets: `attack.path=value`, over all that.
        catalog: the components on offer; those installed if None.

    Raises:
        ViewError: there is nothing to attack, or no run there.
        RecipeError: what the command line says is not a valid section `attack`.
        SetupError: another process writes in its folder; or this brings code that nobody says may run.
    """
    file = run_dir / "recipe.yaml"
    if not file.is_file():
        raise ViewError(f"{run_dir} is not a run folder: it has no recipe.yaml; fedplug run prints a run's folder")
    catalog = with_files(catalog, settings.plugins)
    ran = load_run(run_dir, catalog, settings.trust, ask=True)
    recipe = with_attacks(ran, file, catalog, attacks, metrics, scope or {}, sets)
    with locked(run_dir), private_process():
        return execute(recipe, ran, run_dir, settings, catalog, shlex.join(["fedplug", *sys.argv[1:]]))


def execute(
    recipe: Recipe,
    ran: Recipe,
    run_dir: Path,
    settings: Settings,
    catalog: Catalog | None,
    command: str,
    world: World | None = None,
) -> int:
    """Makes the attacks of a recipe on a run; gives the exit code, 130 where it was interrupted.

    Args:
        recipe: with the attacks to make.
        ran: as the run was made.
        run_dir, settings, catalog: as in `attack`.
        command: how to go on after an interruption.
        world: of the run, where this process has it already.
    """
    from fedplug.runs.execution import resolve_device, terminated_like_interrupted

    catalog = catalog or Catalog.discover()
    watch = make_attack_display(settings.quiet)
    data_root = settings.data_root
    events = Events()
    listen(listeners(catalog, settings.listeners, settings.muted), events, run_dir)
    events.subscribe(Note, lambda event: watch.note(event.text))

    def redraw(folder: Path) -> None:
        events.tell(ResultsWritten(folder))

    keys = needs_key_server(Composition(ran))
    run: AttackRun | None = None
    try:
        with terminated_like_interrupted():
            device = resolve_device(settings.device)
            run = AttackRun(recipe, ran, run_dir, data_root, device, keys, catalog, watch, world)
            summary = run.execute()
    except KeyboardInterrupt:
        done, total = (max(0, run.done - 1), run.total) if run else (0, 0)
        _keep(run, run_dir, watch, redraw)
        watch.interrupted(done, total, run_dir / "attacks", command)
        return INTERRUPTED
    except FedplugError:
        _keep(run, run_dir, watch, redraw)
        raise
    finally:
        if run is not None:
            run.close()
        watch.close()
    redraw(run_dir)
    watch.finish(summary, run_dir / "attacks", sorted(run_dir.glob("*.html")))
    return 0


def _keep(run: AttackRun | None, run_dir: Path, watch: AttackDisplay, redraw: Callable[[Path], None]) -> None:
    """Sums up what was finished before an end that came early; whatever fails here must not hide why it came."""
    if run is None or not run.folder.is_dir():
        return
    try:
        run.summary()
        redraw(run_dir)
    except Exception as error:  # such as a library whose import was interrupted half-way
        watch.note(f"the finished targets are kept, but the report is not up to date: {describe(error)}")


def with_attacks(
    ran: Recipe,
    file: Path,
    catalog: Catalog,
    attacks: Sequence[str],
    metrics: Sequence[str],
    scope: dict[str, Any],
    sets: Sequence[str],
) -> Recipe:
    """The recipe of a run with other attacks; everything else stays as it ran.

    Raises:
        ViewError: neither the recipe nor the command line names an attack.
        RecipeError: a mistake in the options, with its place.
    """
    plain = ran.to_plain()
    section: dict[str, Any] = dict(plain.get("attack", {}))
    if attacks:
        section["attacks"] = [{"use": _full(name, "attack", catalog)} for name in attacks]
    if metrics:
        section["metrics"] = [{"use": _full(name, "metric", catalog)} for name in metrics]
    if "probe" in scope:  # what the command line leaves out stays as the recipe has it
        probe = {**(section.get("probe") or {}), **{key: n for key, n in scope["probe"].items() if n is not None}}
        if "batch_size" not in probe:
            raise SetupError(f"--batches {probe['batches']} changes nothing without --probe SIZE; add it")
        scope = {**scope, "probe": probe}
    section |= scope
    if not section.get("attacks"):
        raise ViewError(
            f"{file} names no attacks; name some: --attack ilrg --adversary server ({catalog.offer('attack')})"
        )
    if strangers := [text for text in sets if not text.startswith("attack.")]:
        raise SetupError(
            f"--set {strangers[0]}: the run is finished, and only its attacks can be set; write attack.PATH=VALUE, "
            "such as --set attack.attacks.0.restarts=3"
        )
    source = yaml_source.Source(str(file), plain | {"attack": section})
    overlay.override(source, sets)
    if source.problems:
        raise RecipeError([str(problem) for problem in source.problems])
    return Recipe.from_plain(source.data, catalog, origin="recipe")


def _full(name: str, group: str, catalog: Catalog) -> str:
    """`ilrg` means the one component of that name that some plugin offers in the group."""
    if "." in name:
        return name
    found = [full for full in catalog.groups[group] if full.rpartition(".")[2] == name]
    return found[0] if len(found) == 1 else name
