"""fedplug: compose, run, attack and compare privacy protocols for federated learning.

    run = fedplug.run("paraaegis-dynamic", rounds=5)

The names in `__init__.pyi` are the public API, for scripts and for plugin authors. They are imported on first use:
`fedplug list` stays fast.
"""

from __future__ import annotations

import importlib

with open(f"{__file__.rpartition('.')[0]}.pyi", encoding="utf-8") as _stub:
    _HOME = {words[3]: words[1] for line in _stub if (words := line.split())[:1] == ["from"]}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    try:
        home = _HOME[name]
    except KeyError:
        raise AttributeError(f"module 'fedplug' has no attribute {name!r}") from None
    try:
        globals()[name] = thing = getattr(importlib.import_module(home), name)
    except ModuleNotFoundError as error:
        package = home.partition(".")[0]
        if error.name != package:
            raise
        missing = package.replace("_", "-")
        raise ImportError(f"fedplug.{name} is of {missing}, which you install as fedplug itself") from error
    return thing


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
