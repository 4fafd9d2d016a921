"""The functions for scripts and notebooks: `fedplug.run`, `resume`, `open_run`, `check`, `components`. The commands
with these names call them too.

Keywords of `run` are settings of this machine or top-level keys of the recipe. One name is both: `data` is the folder
of data sets where it is a path, and else the recipe's section. `model`, `data` and the loss may be objects of the
script, see `fedplug_runs.session`.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedplug.api.errors import PluginError, SetupError

from fedplug_runs.settings import TABLE, Settings

if TYPE_CHECKING:
    from fedplug.recipe.catalog import Catalog
    from fedplug.recipe.recipe import Recipe
    from fedplug.recipe.source import Source

    from fedplug_runs.execution import Stop
    from fedplug_runs.result import Run
    from fedplug_runs.shown import Display, Shown

Sets = Iterable[str] | Mapping[str, Any]
"""Changes of a recipe: texts such as `protect.noised.0.norm=0.5`, or such paths with their values."""
SETTINGS = tuple(row.name for row in TABLE)
"""The settings that `run` takes as keywords."""
OF_SESSION = ("model", "data", "train")
"""The sections of a recipe that an object may replace."""


def run(
    recipe: Path | str | Mapping[str, Any] | Recipe,
    sets: Sets | None = None,
    *,
    settings: Settings | None = None,
    display: Shown | Display = "lines",
    loss: Any = None,
    keep_data: bool = False,
    stop: Stop | None = None,
    **keywords: Any,
) -> Run:
    """Runs a recipe from the start, in a new run folder: `fedplug.run("recipes/fedavg.yaml", rounds=5)`.

    Args:
        recipe: a file or the name of a shipped one, plain data as in such a file, or a recipe.
        sets: changes of single values, applied in order.
        settings: of this machine; by default those of the user's config file.
        display: `lines`, one a round, `terminal`, as the command line shows it, or your own display.
        loss: a function of outputs and answers that gives the mean loss of a batch, where the recipe trains with
            `std.sgd` or what builds on it.
        keep_data: whether arrays that are the data are kept in the run folder, `session_data.npz`.
        stop: such as a `threading.Event`; once it is set, the run ends after the current round and is resumed like an
            interrupted one.
        keywords: single settings (`engine`, `workers`, `device`, `output`, ...: see `Settings`), where `listeners`,
            `muted` and `plugins` are added to those of `settings`; and top-level keys of the recipe, each as a whole,
            over `sets`: `rounds=5`. `model` may be a class, a function or a module, `data` four arrays or a function.
            `data` is the folder of data sets where it is a path. Among `listeners` may be objects with
            `observe(event)`, and functions of an event.

    Returns:
        The run; `complete` is False where `stop` ended it.

    Raises:
        RecipeError: the recipe is wrong; `problems` has every mistake.
        SetupError: a keyword is neither a setting nor a key of recipes, or this machine lacks something.
        FedplugError: the run failed; the message says what to do, and `run_folder` is its folder.
        KeyboardInterrupt: it was interrupted; everything up to the last round is saved, `resume` continues.
    """
    changes = {key: value for key, value in keywords.items() if key in SETTINGS}
    if not isinstance(changes.get("data"), str | Path | None):
        del changes["data"]
    values = {key: value for key, value in keywords.items() if key not in changes}
    _require(values, [*_keys(), *SETTINGS], "neither a setting nor a key of recipes")
    chosen = _settings(settings, changes)
    from fedplug_runs import execution
    from fedplug_runs.listeners import of_session

    checked = check(recipe, sets, plugins=chosen.plugins, loss=loss, trust=True, **values)
    of_session(chosen.listeners)  # before there is a folder
    code, folder = execution.start(checked, chosen, watch=display, keep_data=keep_data, stop=stop)
    return _ended(code, folder, chosen)


def resume(
    folder: Path | str | Run,
    round: int | None = None,
    *,
    settings: Settings | None = None,
    display: Shown | Display = "lines",
    stop: Stop | None = None,
    **changes: Any,
) -> Run:
    """Continues an interrupted run from its last checkpoint.

    Args:
        folder: of the run, or the run.
        round: go back to the checkpoint after this many rounds.
        settings: of this machine; by default those that the run had, over the user's config file.
        display, stop, changes: as in `run`; the recipe and the folder are those of the run. Where its data
            are arrays that another session had, `data` gives them again.

    Raises:
        CheckpointError: there is no run there, or its checkpoint is damaged.
        SetupError: another process writes in its folder, or this machine lacks something.
        FedplugError: the run failed; the message says what to do, and `run_folder` is its folder.
        KeyboardInterrupt: as in `run`.
    """
    settable = [key for key in SETTINGS if key not in ("output", "plugins")]
    _require(changes, settable, "not a setting of a resumed run")
    path = Path(folder) if isinstance(folder, Path | str) else folder.folder
    if not isinstance(changes.get("data"), str | Path | None):
        from fedplug_runs.session import give_again

        give_again(path, changes.pop("data"))
    from fedplug_runs import execution
    from fedplug_runs.onward import settings_of

    chosen = _settings(settings_of(path) if settings is None else settings, changes)
    code = execution.resume(path, chosen, round, watch=display, stop=stop)
    return _ended(code, path, chosen)


def open_run(
    folder: Path | str, *, settings: Settings | None = None, data: Path | str | None = None, trust: bool | None = None
) -> Run:
    """A run that ended, complete or not, as its folder has it; `data` is the folder of data sets, which `Run.model`
    needs. With `trust` its recipe may run code that the folder brings and that has not run here before.

    Raises:
        CheckpointError: there is no run in that folder.
    """
    from fedplug_runs.result import Run

    return Run(Path(folder), _settings(settings, {"data": data, "trust": trust}))


def check(
    recipe: Path | str | Mapping[str, Any] | Recipe,
    sets: Sets | None = None,
    *,
    catalog: Catalog | None = None,
    plugins: Sequence[Path | str] = (),
    loss: Any = None,
    trust: bool = False,
    **values: Any,
) -> Recipe:
    """The recipe with all defaults, checked and not run.

    Args:
        recipe, sets, loss, values: as in `run`.
        catalog: the components on offer; by default what is installed.
        plugins: as in `run`.
        trust: whether code of the recipe's own may run that has not run here before. A recipe with such code can only
            be had with it.

    Raises:
        RecipeError: `problems` has every mistake, `not_run` what cannot be checked without `trust`.
        PluginError: one of `plugins` cannot be used.
        SetupError: a keyword is not a key of recipes.
    """
    from fedplug_runs.overlay import finished, load_recipe
    from fedplug_runs.own_files import with_files
    from fedplug_runs.trust import RUNS

    _require(values, _keys(), "not a key of recipes")
    catalog = with_files(catalog, plugins, RUNS if trust else None)
    changes = [*(sets.items() if isinstance(sets, Mapping) else sets or ())]
    if loss is not None or not all(isinstance(value, str | None) for value in map(values.get, OF_SESSION)):
        from fedplug_runs.session import sections

        def written() -> Mapping[str, Any]:
            data = _source(recipe, changes).data
            return data if isinstance(data, Mapping) else {}

        values = sections(written, values, loss, catalog)
    changes += values.items()
    if isinstance(recipe, Path | str):
        return load_recipe(recipe, changes, catalog)
    # A recipe is read anew in any case: nobody has checked a copy with other values.
    checked = finished(_source(recipe, changes), catalog)
    return checked if isinstance(recipe, Mapping) else dataclasses.replace(checked, origin=recipe.origin)


def _source(recipe: Path | str | Mapping[str, Any] | Recipe, changes: Sequence[Any]) -> Source:
    """A recipe as plain data, changed; whether it is right nobody has looked yet."""
    from fedplug.recipe.source import Source

    from fedplug_runs.overlay import override, read_extended
    from fedplug_runs.shelf import located

    if isinstance(recipe, Path | str):
        return read_extended(located(recipe), changes)
    source = Source("recipe", copy.deepcopy(recipe if isinstance(recipe, Mapping) else recipe.to_plain()))
    override(source, changes)
    return source


@dataclasses.dataclass(frozen=True)
class ComponentRecord:
    """An installed component: its name as recipes write it, the hook or kind, the distribution that offers it with its
    version, and the first line of its documentation.
    """

    name: str
    group: str
    plugin: str
    version: str
    summary: str


def components(hook: str | None = None, *, catalog: Catalog | None = None) -> list[ComponentRecord]:
    """The components on offer, by hook and name; imports none of them.

    Args:
        hook: only those of this hook or kind, such as `protect`, `dataset`.

    Raises:
        PluginError: there is no such hook.
    """
    from fedplug.recipe.catalog import GROUPS, Catalog

    from fedplug_runs.docstrings import summary

    if hook is not None and hook not in GROUPS:
        from fedplug.recipe.source import closest

        raise PluginError(f"there is no hook {hook!r}; {closest(hook, GROUPS)}")
    return [
        ComponentRecord(entry.name, entry.group, entry.distribution, entry.version, summary(entry))
        for entry in catalog or Catalog.discover()
        if hook in (None, entry.group)
    ]


def _settings(base: Settings | None, changes: Mapping[str, Any]) -> Settings:
    if base is not None and not isinstance(base, Settings):
        raise SetupError(f"settings={base!r} must be a fedplug.Settings; single ones are keywords: engine='processes'")
    return (Settings.load() if base is None else base).with_words(changes)


def _keys() -> list[str]:
    """Every key that recipes can have."""
    from fedplug.recipe.catalog import Catalog
    from fedplug.recipe.parts import SECTIONS, General

    return [*General.model_fields, *SECTIONS, *Catalog.discover().sections]


def _require(given: Iterable[str], known: Sequence[str], what: str) -> None:
    """Refuses keywords that are not `known`: most are misspelt.

    Raises:
        SetupError: names each, with what is close to it.
    """
    if wrong := [key for key in given if key not in known]:
        from fedplug.recipe.source import closest

        from fedplug_runs.settings import FORMERLY

        hints = {
            key: f"it is now called {FORMERLY[key]}" if FORMERLY.get(key) in known else closest(key, sorted(known))
            for key in wrong
        }
        raise SetupError("\n".join(f"{key}: this is {what}; {hint}" for key, hint in hints.items()))


def _ended(code: int, folder: Path, settings: Settings) -> Run:
    from fedplug_runs.execution import INTERRUPTED
    from fedplug_runs.result import Run

    if code == INTERRUPTED:
        raise KeyboardInterrupt(f"fedplug.resume({str(folder)!r}) continues it")
    return Run(folder, settings, code)
