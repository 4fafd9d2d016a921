"""The libraries behind the trackers, which are optional: whether one is there, and how to get it."""

from __future__ import annotations

import importlib.util
import re

_PASSWORD = re.compile(r"(://[^/\s:@]*):[^/\s@]+@")


def masked(text: str) -> str:
    """A text without the passwords of addresses in it, `http://me:***@host`: files of the run are kept and shown."""
    return _PASSWORD.sub(r"\1:***@", text)


def missing(extra: str, modules: tuple[str, ...]) -> str:
    """What to do about a library that is not installed, in a sentence; empty where all of it is there.

    Looks for the modules and imports none of them: MLflow takes seconds.

    Args:
        extra: of the distribution, that brings the library.
        modules: that the tracker imports, top-level names.
    """
    absent = [name for name in modules if importlib.util.find_spec(name) is None]
    if not absent:
        return ""
    what = " and ".join(absent)
    return f"{what} {'is' if len(absent) == 1 else 'are'} not installed; pip install 'fedplug-trackers[{extra}]'"
