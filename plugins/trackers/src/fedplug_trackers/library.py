"""The optional libraries of the trackers: whether a library is installed, and how to install it."""

from __future__ import annotations

import importlib.util
import re

_PASSWORD = re.compile(r"(://[^/\s:@]*):[^/\s@]+@")


def masked(text: str) -> str:
    """The text with the passwords in addresses hidden: `http://me:***@host`. Run files are kept and shown to others."""
    return _PASSWORD.sub(r"\1:***@", text)


def missing(extra: str, modules: tuple[str, ...]) -> str:
    """A sentence with the command to install a missing library; empty if nothing is missing.

    It looks for the modules without importing them, because importing MLflow takes seconds.

    Args:
        extra: the extra of the distribution that installs the library.
        modules: top-level names of the modules that the tracker imports.
    """
    absent = [name for name in modules if importlib.util.find_spec(name) is None]
    if not absent:
        return ""
    what = " and ".join(absent)
    return f"{what} {'is' if len(absent) == 1 else 'are'} not installed; pip install 'fedplug-trackers[{extra}]'"
