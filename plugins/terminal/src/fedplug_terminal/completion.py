"""What a shell completes in addition to commands, options and files: names of components, keys of a recipe in `--set`.

A shell asks by starting the program anew at every press of the key, so nothing heavy is imported here, nor by what is
called. Whatever goes wrong completes nothing: a person is in the middle of a line.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shlex
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

Answers = Iterator[str | tuple[str, str]]
"""The possible words, each perhaps with a word of help."""

_HELP = 70  # longer help would be broken into lines, of which each would be taken for an answer
_ZSH = """

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  %(complete_func)s "$@"
fi
"""


def _named(group: str | None) -> Callable[[str], Answers]:
    """Completes names of installed components of one group, or of all, with their summaries."""

    def complete(incomplete: str) -> Answers:
        from fedplug.recipe.catalog import Catalog
        from fedplug_runs.docstrings import summary

        entries = {entry.name: entry for entry in Catalog.discover() if group in (None, entry.group)}
        for name, entry in sorted(entries.items()):
            if name.startswith(incomplete):
                yield name, textwrap.shorten(summary(entry), _HELP, placeholder=" ...")

    return complete


components, engines, extensions = _named(None), _named("engine"), _named("extension")
attacks, metrics = _named("attack"), _named("metric")


def words(incomplete: str) -> Answers:
    """What `fedplug list` can be narrowed by: hooks, plugins, components."""
    from fedplug.recipe.catalog import Catalog

    catalog = Catalog.discover()
    yield from ((group, "hook") for group, entries in catalog.groups.items() if entries)
    yield from ((name, "plugin") for name in dict.fromkeys(entry.distribution for entry in catalog))
    yield from components(incomplete)


def _shipped(*kinds: str) -> Callable[[str], Answers]:
    """Completes names of shipped files, one folder at a time, and files here that begin so, if there is such a name;
    else the shell completes files itself.
    """

    def complete(incomplete: str) -> Answers:
        from fedplug_runs.shelf import shipped

        answers: dict[str, str] = {}
        for each in shipped():
            if each.name.startswith(incomplete) and each.kind in kinds:
                part, slash, _ = each.name.removeprefix(incomplete).partition("/")
                help = "" if slash else textwrap.shorten(each.summary, _HELP, placeholder=" ...")
                answers.setdefault(f"{incomplete}{part}{slash}", help)
        if answers:
            here = Path(incomplete) if incomplete.endswith("/") else Path(incomplete).parent
            for path in sorted(here.glob("*")):
                word = f"{path}/" if path.is_dir() else str(path)
                if word.startswith(incomplete) and (path.is_dir() or path.suffix in (".yaml", ".yml")):
                    answers.setdefault(word, "")
        yield from answers.items()

    return complete


def runs(incomplete: str) -> Answers:
    """Folders of runs, the newest first: in the folder that the word leads to, and in the folder of runs."""
    with contextlib.suppress(Exception):
        from fedplug_runs.settings import Settings

        here = Path(incomplete if incomplete.endswith("/") else Path(incomplete).parent)
        found: dict[Path, None] = {}
        for place in (here, Settings.load().output) if "/" not in incomplete else (here,):
            for pattern in ("*/recipe.yaml", "*/*/recipe.yaml"):
                found |= dict.fromkeys(file.parent for file in place.glob(pattern))
        for path in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True):
            if str(path).startswith(incomplete) and _is_run(path):
                yield str(path), ""


def _is_run(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("run.lock", "checkpoint", "metrics.jsonl", "summary.json"))


def attack_values(incomplete: str) -> Answers:
    """Paths to the options of the attacks that the line names, with their defaults."""
    with contextlib.suppress(Exception):  # as in `values`
        from fedplug.recipe.catalog import Catalog
        from fedplug_runs.choice import options_class

        line, catalog = _line(), Catalog.discover()
        named = [after for word, after in itertools.pairwise(line) if word == "--attack"]
        for number, name in enumerate(named):
            entry = catalog.get("attack", name) or catalog.get("attack", f"attacks.{name}")
            kind = entry and options_class(entry.load())
            for key, field in kind.model_fields.items() if kind else ():
                word = f"attack.attacks.{number}.{key}="
                if word.startswith(incomplete):
                    yield word if field.is_required() else word + _text(field.get_default(call_default_factory=True))


def _line() -> list[str]:
    """The words of the line so far. Of one that ends in an option without its value, click knows no arguments."""
    return shlex.split(os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or "")


recipes, grids = _shipped("recipe", "comparison"), _shipped("grid")


def values(incomplete: str) -> Answers:
    """Paths in the recipe on the line, with the values that they have; those of options left out are defaults."""
    with contextlib.suppress(Exception):  # a line or a recipe that is not right yet
        line = _line()
        from fedplug_runs.overlay import load_recipe
        from fedplug_runs.shelf import named

        words = (word for word in line[2:] if word.endswith((".yaml", ".yml")) or _is_run(Path(word)) or named(word))
        file = Path(next(words))
        file = file / "recipe.yaml" if file.is_dir() else file
        yield from _keys(load_recipe(file).to_plain(), incomplete)


def answer_zsh_at_once() -> None:
    """Has the script that typer installs for zsh complete at the first key too.

    zsh reads the file at that key, and takes what it does for the answer; typer's only defines the function then, so
    that in every new shell the first key rings a bell.
    """
    with contextlib.suppress(ImportError, AttributeError, KeyError):  # of another typer, which may have fixed it
        from typer import _completion_classes, _completion_shared

        script = _completion_shared._completion_scripts["zsh"].rstrip() + _ZSH
        _completion_shared._completion_scripts["zsh"] = script
        _completion_classes.ZshComplete.source_template = script


def _keys(data: Any, incomplete: str) -> list[str]:
    """Dotted paths that begin so, one part further than what is written.

    A shell takes a single answer for the end of the word, so the keys of a section replace a section that is alone.
    """
    fitting = {}
    for path, value in _paths(data):
        if path.startswith(incomplete):
            part, dot, _ = path.removeprefix(incomplete).partition(".")
            fitting[f"{incomplete}{part}." if dot else f"{path}={_text(value)}"] = bool(dot)
    return _keys(data, next(iter(fitting))) if [*fitting.values()] == [True] else [*fitting]


def _paths(data: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that is neither a mapping with something in it nor a list of mappings, by its dotted path."""
    if isinstance(data, list | tuple) and any(isinstance(value, Mapping) for value in data):
        data = dict(enumerate(data))
    if isinstance(data, Mapping) and data:
        for key, value in data.items():
            yield from _paths(value, f"{before}{key}.")
    else:
        yield before.removesuffix("."), data


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), default=str)
