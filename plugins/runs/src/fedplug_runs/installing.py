"""How a distribution of this project is installed: the one place that knows whether they are on PyPI."""

from __future__ import annotations

import json
import shlex
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

PUBLISHED = False
"""Whether the distributions are on PyPI; `release/version.py` says so."""
SOURCE = "https://github.com/fedplug/fedplug"


def install(what: str) -> str:
    """The command that installs a distribution of this project, such as `fedplug-search`, from where this one is: PyPI,
    a checkout, or a folder of wheels.
    """
    if PUBLISHED:
        return shlex.join(["pip", "install", what])
    try:
        noted = json.loads(distribution("fedplug").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        noted = {}
    url, folder = str(noted.get("url", "")), f"plugins/{what.removeprefix('fedplug-')}"
    place = Path(unquote(urlsplit(url).path))
    if url.endswith(".whl"):
        return shlex.join(["pip", "install", "--find-links", str(place.parent), what])
    if url and (place / "plugins").is_dir():
        return shlex.join(["pip", "install", "-e", str(place / folder)])
    return f"in a checkout of {SOURCE}: {shlex.join(['pip', 'install', f'./{folder}'])}"
