"""`fedplug attack`: attacks on a finished run, from its recipe, named on the command line, or the default set."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedplug.api.errors import FedplugError, RecipeError, SetupError, ViewError, describe
from fedplug.api.events import Events, Note
from fedplug.api.parties import threads_of_a_party
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.recipe import Recipe
from fedplug.recipe.source import Source
from fedplug.round.world import World
from fedplug_runs import overlay, units
from fedplug_runs.events import ResultsWritten
from fedplug_runs.execution import INTERRUPTED
from fedplug_runs.files import private_process
from fedplug_runs.folder import load_run, locked
from fedplug_runs.listeners import listen, listeners
from fedplug_runs.machine import resolve_device, terminated_like_interrupted
from fedplug_runs.own_files import with_files
from fedplug_runs.settings import Settings
from fedplug_runs.trust import RUNS
from threadpoolctl import threadpool_limits

from fedplug_attacks.views.home import AtHome
from fedplug_attacks.workshop.default_set import default_sections
from fedplug_attacks.workshop.display import make_attack_display
from fedplug_attacks.workshop.report_section import write_attack_page
from fedplug_attacks.workshop.run import AttackRun
from fedplug_attacks.workshop.stage import Stage


def attack(
    run_dir: Path,
    settings: Settings,
    attacks: Sequence[str] = (),
    metrics: Sequence[str] = (),
    scope: dict[str, Any] | None = None,
    sets: Sequence[str] = (),
    catalog: Catalog | None = None,
    quick: bool = False,
    minutes: float | None = None,
) -> int:
    """Attacks a finished run; returns the exit code. Finished targets are not attacked again.

    Args:
        run_dir: the run folder.
        settings: of this machine.
        attacks: names of attacks; those of the recipe if empty, and the default set if that names none.
        metrics: names of metrics; if empty those of the recipe, or all that are computed by default.
        scope: keys of `fedplug_attacks.workshop.scope.AttackScope` that replace those of the recipe.
        sets: `attack.path=value`, over all that.
        catalog: the available components; the installed ones if None.
        quick, minutes: of the default set; see `fedplug_attacks.workshop.default_set.default_sections`.

    Raises:
        ViewError: there is nothing to attack, or no run there.
        RecipeError: the command line does not give a valid section `attack`.
        SetupError: another process writes in its folder; or the command adds code that nobody has allowed to run.
    """
    file = run_dir / "recipe.yaml"
    if not file.is_file():
        raise ViewError(f"{run_dir} is not a run folder: it has no recipe.yaml; fedplug run prints a run's folder")
    catalog = with_files(catalog, settings.plugins, RUNS)
    ran = load_run(run_dir, catalog, settings.trust, ask=True)
    section = wanted(ran, catalog, attacks, metrics, scope or {}, sets)
    if section.get("attacks") and (quick or minutes is not None):
        option = "--quick" if quick else f"--minutes {minutes:g}"
        raise SetupError(f"{option} is for the default set of attacks, and attacks are named here; leave it out")
    named = [with_section(ran, file, catalog, section, sets)] if section.get("attacks") else []

    def choose(stage: Stage) -> Sequence[Recipe]:
        """The named attacks, or else the default set, which depends on the model."""
        parts = [] if named else default_sections(stage, section, quick, minutes)
        return named or [with_section(ran, file, catalog, part, ()) for part in parts]

    with locked(run_dir), private_process():
        return execute(choose, ran, run_dir, settings, catalog, shlex.join(["fedplug", *sys.argv[1:]]))


def execute(
    choose: Callable[[Stage], Sequence[Recipe]],
    ran: Recipe,
    run_dir: Path,
    settings: Settings,
    catalog: Catalog | None,
    command: str,
    world: World | None = None,
    home: AtHome | None = None,
) -> int:
    """Makes the attacks of a recipe on a run; returns the exit code, 130 after an interruption.

    Args:
        choose: gives recipes with the attacks to make on the run.
        ran: the recipe of the run.
        run_dir, settings, catalog: as in `attack`.
        command: the command that continues after an interruption.
        world: the world of the run, if this process has it already.
        home: the one client of a site; no extension is then told anything, since results may show its data.
    """
    catalog = catalog or Catalog.discover()
    watch, events = make_attack_display(settings.quiet), Events()
    others = [] if home else listeners(catalog, settings.listeners, settings.muted)
    listen((extension for _, extension in others), events, run_dir)
    events.subscribe(Note, lambda event: watch.note(event.text))
    stage: Stage | None = None
    runs: list[AttackRun] = []

    def redraw() -> None:
        write_attack_page(run_dir)
        events.tell(ResultsWritten(run_dir))

    try:
        # Threads of NumPy's many small products mostly wait for each other, in loops that take the time of a core.
        with terminated_like_interrupted(), threadpool_limits(threads_of_a_party(), "blas"):
            stage = Stage(
                ran, run_dir, settings.data_root, resolve_device(settings.device), catalog, watch, world, home
            )  # fmt: skip
            runs += (AttackRun(recipe, stage) for recipe in choose(stage))
            stage.total = sum(run.count() for run in runs)
            watch.start(stage.total, facts_of(runs, stage))
            for run in runs:
                summary = run.execute()
        if stage.left:
            longer = f"run the command again to continue, or with --minutes {5 * (stage.timer.minutes or 1):g}"
            watch.note(f"{len(stage.left)} of {stage.total} targets are left because time is up; {longer}")
    except (KeyboardInterrupt, FedplugError) as stop:
        try:
            for run in runs:
                if run.folder.is_dir():
                    run.summary()
            redraw()
        except Exception as error:  # such as a library whose import was interrupted; it must not hide the reason
            watch.note(f"the finished targets are kept, but the report is not up to date: {describe(error)}")
        if isinstance(stop, FedplugError):
            raise
        done, total = (max(0, stage.done - 1), stage.total) if stage else (0, 0)
        watch.interrupted(done, total, run_dir / "attacks", command)
        return INTERRUPTED
    finally:
        if stage is not None:
            stage.close()
        watch.close()
    redraw()
    watch.finish(summary, run_dir / "attacks", sorted(run_dir.glob("*.html")))
    return 0


def facts_of(runs: Sequence[AttackRun], stage: Stage) -> dict[str, str]:
    """A readable description of the attacked updates."""
    rounds = sorted({round + 1 for run in runs for round, _ in run.occasions.rounds()})
    attacks = dict.fromkeys(use.name for run in runs for use in run.section.attacks)
    adversaries = dict.fromkeys(name for run in runs for name in run.scope.adversaries)
    time = {} if stage.timer.minutes is None else {"time": f"at most about {units.duration(60 * stage.timer.minutes)}"}
    return time | {
        "run": str(stage.run_dir), "rounds": ", ".join(map(str, rounds)), "attacks": ", ".join(attacks),
        "adversaries": ", ".join(adversaries), "device": stage.device,
    }  # fmt: skip


def wanted(
    ran: Recipe,
    catalog: Catalog,
    attacks: Sequence[str],
    metrics: Sequence[str],
    scope: dict[str, Any],
    sets: Sequence[str],
) -> dict[str, Any]:
    """The section `attack` of a run's recipe, updated from the command line; without attacks if nobody names any.

    Raises:
        SetupError: an option has no effect.
    """
    section: dict[str, Any] = dict(ran.to_plain().get("attack", {}))
    if attacks:
        section["attacks"] = [{"use": full_name(name, "attack", catalog)} for name in attacks]
    if metrics:
        section["metrics"] = [{"use": full_name(name, "metric", catalog)} for name in metrics]
    if "probe" in scope:  # keys missing on the command line keep the recipe's values
        probe = {**(section.get("probe") or {}), **{key: n for key, n in scope["probe"].items() if n is not None}}
        if "batch_size" not in probe:
            raise SetupError(f"--batches {probe['batches']} has no effect without --probe SIZE; add it")
        scope = {**scope, "probe": probe}
    section |= scope
    if sets and not section.get("attacks"):
        raise SetupError(
            f"--set {sets[0]}: without --attack fedplug makes the default set of attacks, which has no such options; "
            f"name the attack: --attack ilrg ({catalog.offer('attack')})"
        )
    if strangers := [text for text in sets if not text.startswith("attack.")]:
        raise SetupError(
            f"--set {strangers[0]}: the run is finished, so only its attacks can be set; write attack.PATH=VALUE, such "
            "as --set attack.attacks.0.restarts=3"
        )
    return section


def with_section(
    ran: Recipe, file: Path, catalog: Catalog, section: dict[str, Any], sets: Sequence[str]
) -> Recipe:  # fmt: skip
    """The recipe of a run with other attacks; everything else stays as it ran.

    Raises:
        RecipeError: a mistake in the options, with its place.
    """
    source = Source(str(file), ran.to_plain() | {"attack": section})
    overlay.override(source, sets)
    if source.problems:
        raise RecipeError([str(problem) for problem in source.problems])
    return Recipe.from_plain(source.data, catalog, origin="recipe")


def full_name(name: str, group: str, catalog: Catalog) -> str:
    """Resolves `ilrg` to `attacks.ilrg`, or to the only component of that name that another plugin offers.

    Raises:
        RecipeError: several offer one.
    """
    if "." in name:
        return name
    found = [full for full in catalog.groups[group] if full.rpartition(".")[2] == name]
    if len(found) > 1 and (own := f"attacks.{name}") in found:  # a plugin that is installed later changes no command
        return own
    if len(found) > 1:
        raise RecipeError([f"--{group} {name}: {' and '.join(found)} have this name; write the whole name of one"])
    return found[0] if found else name
