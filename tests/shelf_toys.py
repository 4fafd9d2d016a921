"""A distribution that ships recipes, installed for one test."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from fedplug_runs import docstrings


def install(monkeypatch: pytest.MonkeyPatch, site: Path, name: str, files: Mapping[str, str]) -> Path:
    """Puts a distribution on the path.

    Args:
        site: the folder used as `site-packages`.
        name: of the distribution, without its `-recipes`.
        files: the contents of its package, by path.

    Returns:
        The folder of its package.
    """
    package, about = site / f"{name}_recipes", site / f"{name}_recipes-1.2.dist-info"
    for path, text in files.items():
        (package / path).parent.mkdir(parents=True, exist_ok=True)
        (package / path).write_text(text, encoding="utf-8")
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}-recipes\nVersion: 1.2\n\n")
    (about / "entry_points.txt").write_text(f"[fedplug.recipes]\n{name} = {name}_recipes\n")
    docstrings._spec.cache_clear()
    monkeypatch.syspath_prepend(str(site))
    return package


def at_work(monkeypatch: pytest.MonkeyPatch, folder: Path, files: Mapping[str, str]) -> Path:
    """The package of a distribution `acme-recipes` with these files. The working directory is empty, outside it."""
    package = install(monkeypatch, folder / "site", "acme", files)
    (folder / "work").mkdir()
    monkeypatch.chdir(folder / "work")
    return package
