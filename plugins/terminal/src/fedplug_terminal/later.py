"""Libraries that are imported when somebody first wants something of them.

Almost every component is written with numpy, and `fedplug show` and `fedplug check` import components only to read what
they declare. Importing numpy would be a third of what those commands take.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


class Later(ModuleType):
    """A placeholder for a library. `import numpy as np` gives this; asking it for anything imports the library."""

    def __getattr__(self, name: str) -> Any:
        if name == "__file__":  # `inspect` asks every module there is for its file, and wants nothing of it
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


def put_off(library: str) -> None:
    """Has a library wait until something of it is wanted; without effect where it is imported already."""
    if library not in sys.modules:
        sys.modules[library] = Later(library)
