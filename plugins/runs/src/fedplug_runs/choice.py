"""Which engine a run uses, and the options that this engine has in addition to the common settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedplug.api.component import Options
from fedplug.api.errors import SetupError
from fedplug.recipe.catalog import Catalog, Entry
from pydantic import ValidationError

from fedplug_runs.hints import suggest
from fedplug_runs.option_errors import explain


def engine_entry(name: str, catalog: Catalog | None = None) -> Entry:
    """The engine of that name, among these components or the installed ones.

    Raises:
        SetupError: there is none.
    """
    installed = Catalog.discover()
    entry = (catalog and catalog.get("engine", name)) or installed.get("engine", name)
    if entry is None:
        raise SetupError(f"there is no engine {name!r}; {suggest(installed, 'engine', name)}")
    return entry


def options_class(kind: type) -> type[Options] | None:
    """The options of a component, or those that an engine adds to the common settings; None of an engine without."""
    own: type[Options] | None = getattr(kind, "Options", None)
    return own


def options_of(name: str, kind: type, given: Mapping[str, Any]) -> Options:
    """The options of a component, or an engine's own, checked.

    Args:
        name: for messages, such as `engine ray`.
        kind: its class.
        given: what the command line, the config file or a script says of them.

    Raises:
        SetupError: it has no such option, or a value is wrong; names every one.
    """
    model = options_class(kind)
    if model is None:
        if given:
            raise SetupError(f"{name} has no options: leave out {', '.join(given)}")
        return Options()
    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        problems = explain(error, model, dict(given), name)
        raise SetupError("\n".join(problem.message for problem in problems)) from error
