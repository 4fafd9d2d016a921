"""Settings of a run that are not part of the protocol: where and how fast it runs, what it keeps.

`Settings` is the one table of them: the command line makes its options of it (`fedplug-terminal`), scripts give them
as keywords, and the user's config file, `fedplug/config.toml` under `$XDG_CONFIG_HOME` (or `~/.config`), has the
defaults:

    device = "cuda:0"
    output = "~/fedplug-runs"
    engine = "processes"
    data = "/data/images"
"""

# ruff: noqa: RUF009 (`_setting` gives a field)
from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedplug.api.errors import SetupError

OF_PROCESSES = ("workers", "timeout")
"""Settings that change nothing where all parties are in one process: it cannot wait for itself."""


def _setting(
    kind: type, default: Any, help: str, *flags: str, key: str | None = None, metavar: str = "", formerly: str = ""
) -> Any:
    """One row of the table.

    Args:
        kind: of the value: `str`, `Path`, `int`, `bool`, or `list` of texts.
        default: None where somebody else decides.
        help: what the command line says of it.
        flags: its options, where they are not its name.
        key: in the config file, where it is not its name; empty where it cannot be there.
        metavar: what the command line calls the value.
        formerly: its name in earlier versions; who still uses it is told the new one.
    """
    row = {
        "kind": kind, "help": help, "flags": flags, "key": key, "metavar": metavar or None, "formerly": formerly
    }  # fmt: skip
    return dataclasses.field(default=default, metadata=row)


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of a run, from the command line, a script and the config file."""

    engine: str = _setting(
        str, "local",
        "The engine that runs the parties: local, processes, or one of a plugin. fedplug show NAME lists its options.",
        metavar="NAME",
    )  # fmt: skip
    workers: int | None = _setting(int, None, "Worker processes, for engines that have them.")
    device: str = _setting(str, "auto", "auto (CUDA if there is any), cpu, cuda, cuda:1, ...")
    output: Path = _setting(Path, Path("runs"), "Folder in which the run gets its own folder.")
    data: Path | None = _setting(Path, None, "Folder of data sets. Default: FEDPLUG_DATA, or the config file.")
    record_wire: bool = _setting(bool, False, "Record every message.", "--record-wire/--no-record-wire")
    quiet: bool = _setting(bool, False, "Print only warnings, and the results at the end.", "--quiet", "-q", key="")
    listeners: tuple[Any, ...] = _setting(
        list, (), "Add an extension that observes the run: NAME, or '{use: NAME, option: value}'", "--with", key="with",
        metavar="NAME",
    )  # fmt: skip
    muted: tuple[str, ...] = _setting(
        list, (), "Run without this extension.", "--without", key="without", metavar="NAME"
    )
    plugins: tuple[str, ...] = _setting(
        list, (), "A Python file with components. Class X of my.py becomes my.X.", "--plugin", key="",
        metavar="FILE",
    )  # fmt: skip
    max_clients_in_memory: int | None = _setting(
        int, None, "Clients in memory at a time; the others are on disk. Default: all.", metavar="N",
        formerly="resident",
    )  # fmt: skip
    timeout: int | None = _setting(
        int, None, "Leave a client out of the round if it is silent for longer. Default: 1800. 0: no limit.",
        metavar="SECONDS",
    )  # fmt: skip
    trust: bool = _setting(
        bool, False, "Run code that the recipe or the run folder brings, even if it has not run here before.",
        "--trust", key="",
    )  # fmt: skip
    allow_outside: bool = _setting(
        bool, False, "Let extensions of the recipe write outside the run folder.", "--allow-outside", key=""
    )
    threads: int = _setting(
        int, 1, "Threads that a party computes with. With more than 1, results may depend on the machine.",
        metavar="N",
    )  # fmt: skip
    engine_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Of this engine alone; written with it, `{use: NAME, option: value}`."""

    @property
    def data_root(self) -> str | None:
        """The folder of data sets, as parties are handed it; None where nobody names one."""
        return str(self.data) if self.data else os.environ.get("FEDPLUG_DATA") or None

    @classmethod
    def load(cls, path: Path | None = None) -> Settings:
        """Defaults, over them the config file, over that the variable FEDPLUG_DATA.

        Args:
            path: the config file; by default the user's, which need not exist.

        Raises:
            SetupError: the file cannot be read, or holds an unknown key or a value of the wrong type.
        """
        import tomllib

        base = os.environ.get("XDG_CONFIG_HOME")
        users = (Path(base) if base else Path.home() / ".config") / "fedplug" / "config.toml"
        given: dict[str, Any] = {}
        if path is not None or users.is_file():
            path = path or users
            try:
                given = _of_file(tomllib.loads(path.read_text(encoding="utf-8")), str(path))
            except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
                raise SetupError(f"{path}: cannot be read: {error}") from error
        try:
            settings = cls().replace(given)
        except SetupError as error:
            raise SetupError(f"{path}: {error}") from error
        return settings.replace({"data": os.environ.get("FEDPLUG_DATA") or None})

    def replace(self, changes: Mapping[str, Any]) -> Settings:
        """A copy in which the values that are not None are changed.

        An engine may come with its options, which are added to those of the same engine that are there.

        Raises:
            SetupError: a value that cannot be.
        """
        from fedplug_runs.yaml_source import use_of

        given = {key: value for key, value in changes.items() if value is not None}
        given |= {key: Path(given[key]).expanduser() for key in ("output", "data") if key in given}
        if "engine" in given:
            name, options = use_of(given["engine"], "engine")
            before = self.engine_options if name == self.engine else {}
            given |= {"engine": name, "engine_options": {**before, **options}}
        for key, least, remedy in (
            ("workers", 1, "leave it out to let the engine decide"),
            ("threads", 1, "leave it out for 1"),
            ("max_clients_in_memory", 1, "leave it out to have all clients in memory"),
            ("timeout", 0, "it is in seconds, and 0 means no limit"),
        ):
            if key in given and given[key] < least:
                raise SetupError(f"{key}={given[key]} must be >= {least}; {remedy}")
        return dataclasses.replace(self, **given)

    def with_words(self, changes: Mapping[str, Any]) -> Settings:
        """A copy with what a command line or a script says of one run: its lists are added to those that are there.

        Raises:
            SetupError: a value that cannot be, or one that would change nothing.
        """
        lists = [row.name for row in TABLE if row.metadata["kind"] is list and changes.get(row.name) is not None]
        for key in lists:
            if isinstance(changes[key], str | Path | Mapping):
                raise SetupError(f"{key}={changes[key]!r} must be a list")
        more = {
            key: (*getattr(self, key), *(str(word) if isinstance(word, Path) else word for word in changes[key]))
            for key in lists
        }
        settings = self.replace({**changes, **more})
        for key in OF_PROCESSES if settings.engine == "local" else ():
            if changes.get(key) is not None:
                raise SetupError(f"{key}={changes[key]} changes nothing with the engine local; take engine processes")
        return settings


TABLE = tuple(field for field in dataclasses.fields(Settings) if field.metadata)
"""The settings that a person can give, each with what `_setting` says of it."""
FORMERLY = {row.metadata["formerly"]: row.name for row in TABLE if row.metadata["formerly"]}
"""Settings of earlier versions, and what they are called now."""


def _of_file(given: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """The values of a config file, by the name of the setting.

    Raises:
        SetupError: names every key that is unknown, and every value of the wrong type.
    """
    keys: dict[str, Any] = {row.name if (key := row.metadata["key"]) is None else key: row for row in TABLE}
    keys.pop("", None)
    texts = (str, "text in quotes")
    kinds: dict[type, tuple[type, str]] = {
        str: texts, Path: texts, int: (int, "a whole number"), bool: (bool, "true or false"),
        list: (list, "a list of texts in quotes"),
    }  # fmt: skip
    problems: list[str] = []
    for key, value in given.items():
        if key not in keys:
            from fedplug.recipe.source import closest

            hint = f"it is now called {FORMERLY[key]}" if key in FORMERLY else closest(key, keys)
            problems.append(f"{origin}: unknown key {key!r}; {hint}")
            continue
        kind, words = kinds[keys[key].metadata["kind"]]
        if key == "engine" and isinstance(value, dict):
            continue
        if type(value) is not kind or (isinstance(value, list) and not all(isinstance(each, str) for each in value)):
            problems.append(f"{origin}: {key}={value!r} must be {words}")
    if problems:
        raise SetupError("\n".join(problems))
    return {keys[key].name: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
