"""Options that several commands share, and how plugins add commands.

An entry point of the group `fedplug.command` names the command and the function that is it, annotated as typer wants,
and perhaps marked with `command`. Options that are settings of a run come with `takes`.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from fedplug_runs.onward import settings_of
from fedplug_runs.settings import FORMERLY, TABLE, Settings
from typer.core import TyperCommand

from fedplug_terminal import completion

F = TypeVar("F", bound=Callable[..., Any])

_CHANGE = re.compile(r"[a-z_][\w.@-]*=")
_ROWS = {row.name: row.metadata for row in TABLE}
_COMPLETED: dict[str, Any] = {
    "engine": completion.engines, "device": lambda: ["auto", "cpu", "cuda"], "listeners": completion.extensions,
    "muted": completion.extensions,
}  # fmt: skip


_PANELS = {
    "engine": "Execution", "workers": "Execution", "max_clients_in_memory": "Execution", "threads": "Execution",
    "timeout": "Execution", "device": "Execution",
    "output": "Input and output", "data": "Input and output", "record_wire": "Input and output",
    "quiet": "Input and output",
    "plugins": "Extensions", "listeners": "Extensions", "muted": "Extensions", "allow_outside": "Extensions",
    "trust": "Extensions",
}  # fmt: skip
"""The group of an option in the help of a command with many options."""
_MANY = 12
"""Parameters from which on a command's help shows its settings in groups."""


def _option(name: str, grouped: bool = False) -> Any:
    """A setting as an option."""
    row = _ROWS[name]
    return typer.Option(*row["flags"], metavar=row["metavar"], help=row["help"], autocompletion=_COMPLETED.get(name),
                        rich_help_panel=_PANELS.get(name) if grouped else None)  # fmt: skip


def _whole(sets: list[str] | None) -> list[str] | None:
    """Refuses `--set rounds 3`, before the `3` that is left over is taken for something else."""
    for change in sets or ():
        if "=" not in change:
            raise typer.BadParameter(f"{change!r} is not PATH=VALUE; write --set {change}=VALUE")
    return sets


def _located(word: Any, folders: bool = False) -> Any:
    """The file that a word names, or the folder of a run; a shell that completes a line has no word yet."""
    from fedplug_runs.shelf import located

    return word and located(word, folders=folders)


def _recipes(*, several: bool = False, help: str = "The recipe: a YAML file, or a name of fedplug recipes.") -> Any:
    return typer.Argument(
        metavar="RECIPE..." if several else "RECIPE", help=help, show_default=False,
        autocompletion=completion.recipes,
        callback=(lambda words: [_located(word, True) for word in words]) if several else lambda word: _located(word),
    )  # fmt: skip


RecipeFile = Annotated[Path, _recipes()]
MaybeRecipeFile = Annotated[Path | None, _recipes()]
"""For commands that say themselves when they need one."""
Audited = Annotated[
    Path, typer.Argument(
        metavar="RECIPE|RUN", help="The recipe: a YAML file, or a name of fedplug recipes; or the folder of a run.",
        show_default=False, callback=lambda word: _located(word, True), autocompletion=completion.recipes,
    )
]  # fmt: skip
RecipeFiles = Annotated[list[Path], _recipes(several=True, help="YAML files, or names of fedplug recipes.")]
Compared = Annotated[list[Path], _recipes(several=True, help="Recipes, a comparison, or run folders.")]
GridFile = Annotated[
    Path, typer.Argument(
        metavar="GRID", help="Values to try, a YAML file or a name: parameters, cases.", show_default=False,
        callback=lambda word: _located(word), autocompletion=completion.grids,
    )
]  # fmt: skip
RunFolder = Annotated[
    Path, typer.Argument(
        metavar="RUN", help="The folder of a run.", show_default=False, autocompletion=completion.runs,
    )
]  # fmt: skip
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help=(
            "Change one value of the recipe: --set rounds=5. Numbers count list items from 0: protect.noised.0.norm=1. "
            "With model.use=NAME, and any other use, the new component starts from its defaults: options that the "
            "recipe gives the old one are dropped."
        ),
        autocompletion=completion.values,
        callback=_whole,
    ),
]
Plugins = Annotated[list[Path] | None, _option("plugins")]
Trust = Annotated[bool, _option("trust")]
"""For commands that take no other setting."""
Json = Annotated[bool, typer.Option("--json", help="Print JSON: schema, ok, problems, notes, and what was found.")]
"""See `fedplug_terminal.as_json`."""


def takes(
    *names: str, begun: Callable[..., Settings] | None = None, **fixed: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:  # fmt: skip
    """Gives a command the options of these settings in place of its parameter `settings`, and hands it there the user's
    settings with what the options say, and what is `fixed`.

    `begun` gives the settings that the options change, of the command's other arguments; by default the user's.
    """

    def mark(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def run(**given: Any) -> None:
            changes = {**fixed, **{name: given.pop(name) for name in names}}
            settings = begun(**given) if begun else Settings.load()
            function(**given, settings=settings.with_words(changes))

        keyword = inspect.Parameter.KEYWORD_ONLY
        own = inspect.signature(function, eval_str=True).parameters
        parameters = [own[name].replace(kind=keyword) for name in own if name != "settings"]
        for name in names:
            kind = _ROWS[name]["kind"]
            option = _option(name, grouped=len(names) + len(own) >= _MANY)
            hint = Annotated[(list[str] if kind is list else kind) | None, option]  # type: ignore[valid-type]
            parameters.append(inspect.Parameter(name, keyword, default=None, annotation=hint))
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return mark


class WithEngine(TyperCommand):
    """Reads `--engine NAME --option value` as `--engine '{use: NAME, option: value}'`, and says how to write a change
    of the recipe that lacks its `--set`.
    """

    @staticmethod
    def engine(words: Sequence[str]) -> str:
        """The engine of a command that names none."""
        return Settings.load().engine

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:  # a shell completes a line that is not whole yet
            return super().parse_args(ctx, args)
        known = {option for param in self.params for option in (*param.opts, *param.secondary_opts)}
        try:
            return super().parse_args(ctx, _gathered(args, {*known, "--help"}, self.engine))
        except Exception as error:  # of click's, which newer releases of typer hold inside themselves
            left = re.search(r"unexpected extra arguments? \((.*)\)", str(getattr(error, "message", "")))
            changes = [word for word in left[1].split() if _CHANGE.match(word)] if left else []
            if changes and "--set" in known:
                ctx.fail(f"{changes[0]} is a value of the recipe; write --set {changes[0]}")
            if changes:
                ctx.fail(f"{changes[0]} would change the recipe, and a run continues with its own")
            raise


class WithEngineOfRun(WithEngine):
    """The same for a command whose first word that is a folder is a run, which had an engine."""

    @staticmethod
    def engine(words: Sequence[str]) -> str:
        """See `WithEngine.engine`."""
        run = next((Path(word) for word in words if (Path(word) / "recipe.yaml").is_file()), None)
        return settings_of(run).engine if run else Settings.load().engine


def _gathered(words: list[str], known: set[str], engine: Callable[[Sequence[str]], str]) -> list[str]:
    """The words of a command with the options of its engine in one of them.

    Args:
        words: of the command.
        known: options that the command itself has.
        engine: gives the one of a command that names none.

    Raises:
        SetupError: an option that neither the command nor the engine has, or one without a value.
    """
    strange = [word for word in words if word.startswith("--") and word != "--" and word.partition("=")[0] not in known]
    if not strange:
        return words
    _require_no_old_names(strange, known)
    from fedplug.api.errors import SetupError
    from fedplug.recipe.source import closest
    from fedplug_runs.choice import engine_entry, options_class
    from fedplug_runs.yaml_source import use_of

    chosen = [after for word, after in pairwise([*words, ""]) if word == "--engine"]
    chosen += [word.partition("=")[2] for word in words if word.startswith("--engine=")]
    name, given = use_of(chosen[-1], "engine") if chosen else (engine(words), {})
    kind = options_class(engine_entry(name).load())
    if kind is None:
        _require_no_keys(strange)
        return words
    names = {f"--{field.replace('_', '-')}": field for field in kind.model_fields}
    rest, left = [], iter(words)
    for word in left:
        option, equals, value = word.partition("=")
        if word not in strange:
            rest.append(word)
        elif option not in names:
            hint = closest(option, [*names, *sorted(known)])
            raise SetupError(f"neither the command nor engine {name} has an option {option}; {hint}")
        else:
            text = value if equals else next(left, None)
            if text is None:
                raise SetupError(f"{option} needs a value; fedplug show {name} says which")
            given[names[option]] = text
    return [*rest, "--engine", json.dumps({"use": name, **given})]


def _require_no_old_names(strange: list[str], known: set[str]) -> None:
    """Refuses options of earlier versions, with what they are called now."""
    from fedplug.api.errors import SetupError

    for word in strange:
        option, _, value = word.partition("=")
        name = FORMERLY.get(option.removeprefix("--").replace("-", "_"), "")
        now = f"--{name.replace('_', '-')}"
        if now in known:
            raise SetupError(f"{option} is now called {now}: write {now} {value or _ROWS[name]['metavar']}")


def _require_no_keys(strange: list[str]) -> None:
    """Refuses options that are keys of a recipe, with what they are written as; typer says the rest."""
    from fedplug.api.errors import SetupError
    from fedplug.recipe.parts import General

    for word in strange:
        option, _, value = word.partition("=")
        if (key := option.removeprefix("--")) in General.model_fields:
            raise SetupError(f"{option} is a value of the recipe; write --set {key}={value or 'VALUE'}")


def command(*, group: str = "", **keywords: Any) -> Callable[[F], F]:
    """Marks a function as a command.

    Args:
        group: under which `fedplug --help` lists it: Run, Inspect, Compare, Federate, Develop, or another title. Write
            it as a literal: the list reads it from the source, without importing the plugin.
        keywords: for typer's `command`, such as `epilog` and `cls`.
    """

    def mark(function: F) -> F:
        function.__fedplug_command__ = {"rich_help_panel": group or None, **keywords}  # type: ignore[attr-defined]
        return function

    return mark
