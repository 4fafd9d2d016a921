"""How a run goes on: the settings that its folder keeps, and the command that continues it.

A resumed run takes engine, data folder and the rest from `RUN/settings.json`. What may run code or write elsewhere is
not in it, since a run folder may come from somebody else: the printed command names that (`--with`, `--plugin`). Of an
engine's options the folder has numbers, truths and paths alone. A text may be the address of another machine, which
would get the data of all clients and could answer with code. So a text in the folder is read as a path, which no option
takes that wants a text.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedplug.api.errors import CheckpointError, SetupError

from fedplug_runs.files import read_text, write_text
from fedplug_runs.settings import TABLE, Settings

FILE = "settings.json"
_KEPT = ("workers", "max_clients_in_memory", "threads", "timeout", "device", "data", "muted")
_KINDS = {row.name: row.metadata["kind"] for row in TABLE}


def keep_settings(run_dir: Path, settings: Settings, options: Mapping[str, Any]) -> None:
    """Writes the settings of a run, for those who continue it; paths become absolute.

    Args:
        run_dir: the run folder.
        settings: of the run.
        options: of its engine, checked.
    """
    values = {name: getattr(settings, name) for name in _KEPT}
    kept = {name: list(each) if isinstance(each, tuple) else _plain(each) for name, each in values.items()}
    engine = {"use": settings.engine, **{name: _plain(each) for name, each in options.items() if _is_kept(each)}}
    write_text(run_dir / FILE, json.dumps({"engine": engine, **kept}, indent=2) + "\n")


def _is_kept(option: Any) -> bool:
    """Whether the folder keeps an engine's option; the command has the others."""
    return isinstance(option, int | float | Path)


def _plain(value: Any) -> Any:
    return str(value.expanduser().absolute()) if isinstance(value, Path) else value


def settings_of(run_dir: Path) -> Settings:
    """The settings with which a run continues: those of this machine's user, over them those of the run.

    A folder of data sets that is not there any more does not count. A folder of an earlier version has no settings, and
    says perhaps which engine it was.

    Raises:
        CheckpointError: the file is damaged.
        SetupError: the user's config file is.
    """
    settings, file = Settings.load(), run_dir / FILE
    if not file.is_file():
        return settings.replace({"engine": _engine_before(run_dir)})
    try:
        kept = json.loads(read_text(file))
        if not isinstance(kept, dict) or not isinstance(kept.get("engine"), dict):
            raise ValueError("it names no engine")
        for name in _KEPT:
            _require_kind(name, kept.get(name))
        given = {name: kept.get(name) for name in ("engine", *_KEPT)}
        options = {name: Path(each) if isinstance(each, str) else each for name, each in kept["engine"].items()}
        if not all(map(_is_kept, options.values())):
            raise ValueError("an option of its engine is no number, no truth and no path")
        given["engine"] = {**options, "use": kept["engine"]["use"]}
        given["muted"] = tuple(given["muted"] or ()) or None
        if given["data"] is not None and not Path(given["data"]).is_dir():
            given["data"] = None
        return settings.replace(given)
    except (OSError, ValueError, SetupError) as error:
        raise CheckpointError(
            f"{file} is damaged ({error}); put it back as the run wrote it, or delete it and say the engine: "
            f"{resume_command(run_dir)} --engine NAME"
        ) from error


def _require_kind(name: str, value: Any) -> None:
    """Raises ValueError where a value is none for its setting."""
    kind = _KINDS[name]
    if kind is list:
        fits = value is None or (isinstance(value, list) and all(isinstance(each, str) for each in value))
    else:
        fits = value is None or type(value) is (str if kind is Path else kind)
    if not fits:
        raise ValueError(f"{name} is {value!r:.60}")


def _engine_before(run_dir: Path) -> str | None:
    """The engine by the summary of a run; None where it tells nothing."""
    try:
        engine = json.loads(read_text(run_dir / "summary.json"))["engine"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return engine if isinstance(engine, str) else None


_here: dict[Path, tuple[Settings, Any, Mapping[str, Any]]] = {}


def runs_here(run_dir: Path, settings: Settings, engine: Any, options: Mapping[str, Any]) -> None:
    """Has `resume_command` know what the user of this process asked for, which is in no folder.

    Args:
        run_dir: the run folder.
        settings: of the run.
        engine: its class; one whose runs are started elsewhere has `continued_by(run_dir, round)`, which gives the
            command.
        options: of the engine, checked.
    """
    _here[run_dir.absolute()] = settings, engine, options


def resume_command(run_dir: Path, round: int | None = None) -> str:
    """The command that continues a run, ready to paste into a shell.

    Args:
        run_dir: the run folder, which knows the engine and the data.
        round: the checkpoint to go back to; None: the last one.
    """
    settings, engine, options = _here.get(run_dir.absolute(), (Settings(), None, {}))
    if elsewhere := getattr(engine, "continued_by", None):
        return str(elsewhere(run_dir, round))
    words = ["fedplug", "resume", str(run_dir)] + ([] if round is None else ["--round", str(round)])
    if said := {name: each for name, each in options.items() if each is not None and not _is_kept(each)}:
        words += ["--engine", json.dumps({"use": settings.engine, **said})]
    for file in settings.plugins:
        words += ["--plugin", str(file)]
    for each in settings.listeners:
        if isinstance(each, str | Mapping):
            words += ["--with", each if isinstance(each, str) else json.dumps(dict(each))]
    words += ["--allow-outside"] if settings.allow_outside else []
    return shlex.join(words)


def run_command(run_dir: Path) -> str:
    """The command that runs the recipe of a run again, from the start and on the same engine."""
    words = ["fedplug", "run", str(run_dir / "recipe.yaml")]
    try:
        kept = dict(json.loads(read_text(run_dir / FILE))["engine"])
    except (OSError, ValueError, LookupError, TypeError):
        kept = {}
    # A path is absolute there, so that no address is one.
    engine = {name: each for name, each in kept.items()
              if name == "use" or not isinstance(each, str) or Path(each).is_absolute()}  # fmt: skip
    if engine and engine != {"use": "local"}:
        words += ["--engine", json.dumps(engine) if len(engine) > 1 else str(engine.get("use"))]
    return shlex.join(words)


def engine_of(run_dir: Path) -> str:
    """The engine that a run had last; empty where its folder does not tell."""
    try:
        engine = json.loads(read_text(run_dir / FILE))["engine"]["use"]
    except (OSError, ValueError, LookupError, TypeError):
        return _engine_before(run_dir) or ""
    return engine if isinstance(engine, str) else ""
