"""Docstrings from source files: the pattern's results equal Python's, and the parser finds the others."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import pytest
from fedplug.recipe.catalog import Catalog
from fedplug_runs.docstrings import docstring, docstring_of, source_file, summary

SOURCE = '''"""A module that must not run."""
from .other import Thing as Renamed
raise RuntimeError("imported")


class Plain(dict[str, int]):  # a comment
    """Choose by rule [x].

    More.
    """

    class Inner:
        "Choose inside."


class Bare:
    value = """no docstring"""


def command(
    path: str = "(", *, names: list[str] | None = None
) -> None:
    """Do it."""
'''


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Plain", "Choose by rule [x].\n\n    More."),
        ("Plain.Inner", "Choose inside."), ("Plain.Absent", ""), ("Bare", ""),
        ("command", "Do it."), ("Renamed", "A thing."), ("Absent", ""),
    ],
)  # fmt: skip
def test_docstrings_are_read_without_importing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    package = tmp_path / "summarised"
    package.mkdir()
    (package / "source.py").write_text(SOURCE)
    (package / "other.py").write_text('class Thing: "A thing."\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    from fedplug_runs import docstrings as summaries

    summaries._spec.cache_clear()  # it may hold that there is no such package, or the folder of another test
    assert docstring_of("summarised.source", name) == said


def test_every_installed_component_has_a_summary_as_python_reads_it() -> None:
    entries = list(Catalog.discover())
    assert {"local", "processes"} <= {entry.name for entry in entries if entry.group == "engine"}
    for entry in entries:
        path = source_file(entry.value.partition(":")[0])
        assert path is not None
        assert path.is_file(), entry.name
        assert summary(entry), entry.name
    for entry in [entry for entry in entries if entry.distribution == "fedplug-std"]:
        assert inspect.cleandoc(docstring(entry)) == inspect.getdoc(entry.load()), entry.name
        assert summary(entry) == docstring(entry).partition("\n")[0], entry.name
