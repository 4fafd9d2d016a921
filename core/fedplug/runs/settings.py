"""Settings of a run that are not part of the protocol: where and how fast it runs, what it keeps.

Defaults come from a user config file, `fedplug/config.toml` under `$XDG_CONFIG_HOME` (or `~/.config`):

    device = "cuda:0"
    output = "~/fedplug-runs"
    engine = "processes"
    data = "/data/images"
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedplug.api.errors import SetupError

OF_PROCESSES = ("workers", "timeout")
"""Settings that change nothing where all parties are in one process: it cannot wait for itself."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the command line and the config file say of a run.

    Attributes:
        engine: what runs the parties: `local`, `processes`, or an engine of a plugin.
        engine_options: of that engine alone; with it written `{use: NAME, option: value}`.
        workers: worker processes of engines that have them; None: the engine decides.
        device: `auto` (a CUDA device if there is one), `cpu`, `cuda`, `cuda:1`, ...
        output: folder in which every run gets its own folder.
        data: folder of data sets; None where the user named none.
        record_wire: keep every message in the run folder, so that attacks can read them later.
        listeners: extensions that hear the run without standing in its recipe; in the config file `with`.
        muted: extensions that are for every run and are not to hear this one; in the config file `without`.
        plugins: Python files whose components count as installed (`fedplug.recipe.plugin_files`); not in the config
            file.
        quiet: print only warnings and the end of the run; not in the config file.
        resident: how many clients may be in memory at a time; what the others hold lies on the disk. None: all.
        timeout: seconds that a party may take for an answer, on engines whose parties are processes of their own; one
            that is silent for longer is out of the round, and may be back in the next. 0: no limit; None:
            half an hour.
    """

    engine: str = "local"
    workers: int | None = None
    device: str = "auto"
    output: Path = Path("runs")
    data: Path | None = None
    record_wire: bool = False
    quiet: bool = False
    listeners: tuple[str, ...] = ()
    muted: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    resident: int | None = None
    timeout: int | None = None
    engine_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def load(cls, path: Path | None = None) -> Settings:
        """Defaults, over them the config file, over that the variable FEDPLUG_DATA.

        Args:
            path: the config file; by default the user's, which need not exist.

        Raises:
            SetupError: the file cannot be read, or holds an unknown key or a value of the wrong type.
        """
        import tomllib

        explicit, path = path is not None, path or config_path()
        given: dict[str, Any] = {}
        if explicit or path.is_file():
            try:
                given = tomllib.loads(path.read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
                raise SetupError(f"{path}: cannot be read: {error}") from error
        settings = cls().replace(_checked(given, str(path)))
        folder = os.environ.get("FEDPLUG_DATA")
        return settings.replace({"data": Path(folder).expanduser()}) if folder else settings

    def replace(self, changes: Mapping[str, Any]) -> Settings:
        """A copy in which the values that are not None are changed.

        An engine may come with its options: `{use: NAME, option: value}`, as text or as a mapping. These are set beside
        those of the same engine that are there.

        Raises:
            SetupError: fewer than one worker, or than one client in memory, a timeout below 0, or no name of an engine.
        """
        given = {key: value for key, value in changes.items() if value is not None}
        if "engine" in given:
            name, options = engine_use(given["engine"])
            before = self.engine_options if name == self.engine else {}
            given |= {"engine": name, "engine_options": {**before, **options}}
        changed = dataclasses.replace(self, **given)
        if changed.workers is not None and changed.workers < 1:
            raise SetupError(f"workers={changed.workers} must be >= 1; leave it out to let the engine decide")
        if changed.resident is not None and changed.resident < 1:
            raise SetupError(f"resident={changed.resident} must be >= 1; leave it out to have all clients in memory")
        if changed.timeout is not None and changed.timeout < 0:
            raise SetupError(f"timeout={changed.timeout} must be >= 0 seconds; 0 means no limit")
        return changed


def engine_use(given: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name of an engine and its options, from `NAME` or `{use: NAME, option: value}`.

    Raises:
        SetupError: it is neither.
    """
    use: Any = given
    if isinstance(given, str) and given.lstrip().startswith("{"):
        import yaml

        with contextlib.suppress(yaml.YAMLError):
            use = yaml.safe_load(given)
    if isinstance(use, str) and not use.lstrip().startswith("{"):
        return use, {}
    if not isinstance(use, Mapping) or not isinstance(use.get("use"), str):
        raise SetupError(f"engine={given!r} must be the name of an engine, or {{use: NAME, option: value}}")
    return use["use"], {str(key): value for key, value in use.items() if key != "use"}


def config_path() -> Path:
    """Where the user's config file is looked for."""
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "fedplug" / "config.toml"


def _checked(given: Mapping[str, Any], origin: str) -> dict[str, Any]:
    kinds: dict[str, type] = dict.fromkeys(("engine", "device", "output", "data"), str)
    kinds |= {"workers": int, "resident": int, "timeout": int, "record_wire": bool, "with": list, "without": list}
    words = {str: "text in quotes", int: "a whole number", bool: "true or false", list: "a list of texts in quotes"}
    fields = {"with": "listeners", "without": "muted"}
    problems: list[str] = []
    values: dict[str, Any] = {}
    for key, value in given.items():
        kind = kinds.get(key)
        if kind is None:
            from difflib import get_close_matches

            close = get_close_matches(key, kinds, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there is {', '.join(kinds)}"
            problems.append(f"{origin}: unknown key {key!r}; {hint}")
        elif key == "engine" and isinstance(value, dict):
            values[key] = value
        elif type(value) is not kind or (isinstance(value, list) and not all(isinstance(v, str) for v in value)):
            problems.append(f"{origin}: {key}={value!r} must be {words[kind]}")
        elif isinstance(value, list):
            values[fields[key]] = tuple(value)
        else:
            values[key] = Path(str(value)).expanduser() if key in ("output", "data") else value
    if problems:
        raise SetupError("\n".join(problems))
    return values
