"""The files on which a verdict rests: few, listed in docs/architecture.md, and nothing else makes a promise."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest
from scripts import script

ROOT = Path(__file__).parents[1]
CORE = ROOT / "core/fedplug"
LEDGER = ROOT / "plugins/ledger/src"
MAKE_PROMISES = {"Release", "ZoneEntry", "RoundEntry", "Spent", "Epsilons", "Guarantee", "Line"}
"""What the ledger enters, what follows from it, and what is said of it."""
MAY_PROMISE = re.compile(rf"\b(?:{'|'.join(sorted(MAKE_PROMISES))})\b|ledger\.record\b")
"""A text without any of these makes no promise, and is not worth parsing."""
MOST_LINES = 3_500


@functools.cache
def trusted() -> list[Path]:
    page = (ROOT / "docs/architecture.md").read_text("utf-8")
    section = re.search(r"## What a verdict rests on\n(.*?)\n## ", page, re.DOTALL)
    assert section
    rows = [line.split("|")[1] for line in section[1].splitlines() if line.startswith("| `")]
    names = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    return [(LEDGER if name.startswith("fedplug_ledger/") else CORE) / name for name in names]


@functools.cache
def defined() -> dict[str, set[str]]:
    """By trusted module, the classes of promises that it defines."""
    found = {}
    for file in trusted():
        names = {node.name for node in ast.parse(file.read_text("utf-8")).body if isinstance(node, ast.ClassDef)}
        top = LEDGER if file.is_relative_to(LEDGER) else CORE.parent
        found[".".join(file.relative_to(top).with_suffix("").parts)] = names & MAKE_PROMISES
    return found


def test_they_are_short() -> None:
    code_lines = script(ROOT / "benchmarks/rooms.py").code_lines
    assert sum(code_lines(file.read_text("utf-8")) for file in trusted()) <= MOST_LINES


def test_they_define_whatever_a_promise_is_made_of() -> None:
    assert set().union(*defined().values()) == MAKE_PROMISES


SOURCES = [
    path for top in (CORE, *ROOT.glob("plugins/*/src"), *ROOT.glob("plugins-contrib/*/src"))
    for path in sorted(top.rglob("*.py"))
]  # fmt: skip


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_nothing_else_makes_a_promise(path: Path) -> None:
    text = path.read_text("utf-8")
    if path in trusted() or not MAY_PROMISE.search(text):
        return
    modules, tree = defined(), ast.parse(text)
    own = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name in modules.get(node.module or "", {*MAKE_PROMISES} if node.module == "fedplug" else ())
    }
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert not [call.id for call in calls if isinstance(call, ast.Name) and call.id in own]
    records = [call for call in calls if isinstance(call, ast.Attribute) and call.attr == "record"]
    assert not [call for call in records if ast.unparse(call).endswith("ledger.record")]
