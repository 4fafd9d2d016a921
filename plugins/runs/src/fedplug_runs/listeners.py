"""Extensions that hear a run: those of its recipe, those of every run, those of the user, and objects of a script."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedplug.api.errors import FedplugError, PluginError, SetupError, cause_of, log_error, of_component
from fedplug.api.events import Event, Events
from fedplug.api.roles import Extension
from fedplug.recipe.catalog import Catalog, Entry
from fedplug.recipe.composition import instantiate, wrapped_hooks
from fedplug.recipe.parts import Use
from fedplug.recipe.recipe import Recipe

from fedplug_runs.choice import options_of
from fedplug_runs.events import ResultsWritten, RunFinished, RunStarted, RunStopped
from fedplug_runs.files import Files
from fedplug_runs.hints import suggest
from fedplug_runs.own_files import in_file, is_own
from fedplug_runs.trust import RUNS
from fedplug_runs.yaml_source import use_of


class _OfSession(Extension):
    """Hears for an object of a script that is no extension: one with `observe(event)`, or a function of an event."""

    def __init__(self, listener: Any) -> None:
        self.name = str(getattr(listener, "__name__", None) or type(listener).__name__)
        self.hears = tuple(getattr(listener, "hears", ()))  # type: ignore[misc]
        self._listener = listener

    def observe(self, event: Event) -> Iterable[str] | None:
        """What a function gives is no note: `list.append` and `print` are functions too."""
        if hasattr(self._listener, "observe"):
            notes: Iterable[str] | None = self._listener.observe(event)
            return notes
        self._listener(event)
        return None


def of_session(given: Iterable[Any]) -> list[Extension]:
    """The objects among `listeners`; names of extensions, and mappings with one, are left out.

    Raises:
        SetupError: one is neither.
    """
    objects = [each for each in given if not isinstance(each, str | Mapping)]
    for each in objects:
        if isinstance(each, type) or not callable(getattr(each, "observe", each)):
            raise SetupError(
                f"listeners: {each!r} must be the name of an extension, an object with observe(event), or a function"
            )
    return [each if isinstance(each, Extension) else _OfSession(each) for each in objects]


def listen(
    extensions: Iterable[Extension], events: Events, run_dir: Path | None = None, outside: bool = True
) -> None:
    """Has extensions hear what happens from here on; tracebacks of theirs go to `run_dir`.

    `outside` says whether they may write elsewhere too, see `fedplug_runs.files.Files`.

    Before the ledger listens: what an extension refuses was never asked for, and is charged to nobody.
    """
    for extension in extensions:
        _Listener(extension, events, run_dir, outside)


def listeners(
    catalog: Catalog,
    wanted: Sequence[str | Mapping[str, Any]] = (),
    unwanted: Sequence[str] = (),
    broken: Callable[[str], None] | None = None,
    recipe: Recipe | None = None,
) -> list[tuple[Entry, Extension]]:
    """The extensions that hear a run, though its recipe does not name them: those for every run, and those asked for;
    each with who offers it.

    Args:
        catalog: the components on offer.
        wanted: names of components, or `{use: acme.rows, file: rows.csv}`, as text or as a mapping.
        unwanted: names of extensions for every run that are not to hear this one.
        broken: is given the error of an extension for every run that cannot be imported, and the run continues; None
            raises.
        recipe: of the run; each may complain about it, as an extension of the recipe does. None: nobody does.

    Raises:
        SetupError: a name that there is not, options that are wrong, an extension that complains, or one that wraps
            hooks or states what it shows, which only a recipe can ask for.
    """
    uses = [use_of(given, "with") for given in wanted]
    named = {name for name, _ in uses}
    for name in unwanted:
        if catalog.get("extension", name) is None:
            raise SetupError(f"--without {name}: there is no such extension; {suggest(catalog, 'extension', name)}")
    for entry in catalog.groups["extension"].values():
        if entry.name in {*named, *unwanted}:
            continue
        try:
            kind: Any = entry.load()
        except PluginError as error:
            if broken is None:
                raise
            broken(f"{error}; the run continues without it")
            continue
        if kind.every_run:
            uses.append((entry.name, {}))
    made = [_built(catalog, *use) for use in uses]
    if recipe is not None:
        for _, extension in made:
            with of_component(extension.name, "check"):
                if complaints := list(extension.check(recipe)):
                    raise SetupError("\n".join(f"--with {extension.name}: {complaint}" for complaint in complaints))
    return made


def _built(catalog: Catalog, name: str, options: dict[str, Any]) -> tuple[Entry, Extension]:
    offered = in_file(name, RUNS) if is_own(name) else catalog.named(name)
    entry = next((entry for entry in offered if entry.group == "extension"), None)
    if entry is None:
        raise SetupError(f"--with {name}: there is no such extension; {suggest(catalog, 'extension', name)}")
    kind: type[Extension] = entry.load()
    if wrapped_hooks(kind):
        raise SetupError(f"--with {name}: it wraps hooks, at every party; write extensions: [{name}] into the recipe")
    if kind.reveals is not Extension.reveals:
        raise SetupError(
            f"--with {name}: it shows something, which the ledger lists only for extensions of the recipe; write "
            f"extensions: [{name}] into the recipe"
        )
    try:
        checked = options_of(name, kind, options)
    except SetupError as error:
        raise SetupError(f"--with {name}: {'; '.join(str(error).splitlines())}") from error
    return entry, instantiate(Use(name, name, "extension", checked, made_of=kind))


class _Listener:
    """An extension that gets no further events once it has failed."""

    def __init__(self, extension: Extension, events: Events, run_dir: Path | None, outside: bool) -> None:
        self._extension, self._events, self._run_dir, self._failed = extension, events, run_dir, False
        self._outside = outside
        for kind in extension.hears or (Event,):
            events.subscribe(kind, self)

    def __call__(self, event: Event) -> None:
        if self._failed:
            return
        try:
            # What an extension does to it must not reach the run.
            heard = copy.deepcopy(event)
            if isinstance(heard, RunStarted):
                heard = dataclasses.replace(heard, files=Files(heard.folder, self._outside))
            for text in self._extension.observe(heard) or ():
                self._events.note(text)
        except Exception as error:
            if isinstance(error, FedplugError) and not isinstance(event, ResultsWritten | RunFinished | RunStopped):
                raise  # stops the run; one that is over cannot be stopped, and why it is must not be hidden
            self._failed = True
            log_error(self._run_dir, f"extension {self._extension.name}, {type(event).__name__}", error)
            self._events.note(f"extension {self._extension.name} has stopped: {cause_of(error)}")
