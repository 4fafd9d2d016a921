"""The number of the core's packages, and how often one round moves between modules.

    python benchmarks/rooms.py

Prints lines of code (without docstrings, comments and empty lines), modules, and what one round of
recipes/paraaegis-dynamic.yaml enters: the difference between a run of three rounds and one of two, so that set-up and
end do not count. A move is a call from one module to another, a call any call of a Python function. Prints the aim next
to each, and the names that the smallest plugin imports.
"""

from __future__ import annotations

import ast
import io
import sys
import tempfile
import tokenize
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import fedplug

ROOT = Path(__file__).parents[1]
CORE = str(Path(fedplug.__file__).parent)
PLUGINS = str(ROOT / "plugins")
RECIPE = ROOT / "recipes" / "paraaegis-dynamic.yaml"
AIMS = {"code": 7_500, "modules": 55, "core modules": 40, "moves": 3_000, "names": 8}


def code_lines(source: str) -> int:
    """Lines with code: no docstrings, comments or empty lines."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for one in body if isinstance(body, list) else ():
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str):
                docstrings |= set(range(one.lineno, (one.end_lineno or one.lineno) + 1))
    lines: set[int] = set()
    skip = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in skip:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def size() -> tuple[int, int]:
    """Lines of code and modules of the core, without `__init__.py`."""
    files = [file for file in sorted(Path(CORE).rglob("*.py")) if file.name != "__init__.py"]
    return sum(code_lines(file.read_text("utf-8")) for file in files), len(files)


def walked(rounds: int) -> tuple[Counter[str], int, int]:
    """Calls by module, moves between modules, and calls of a run of that number of rounds."""
    entered: Counter[str] = Counter()
    moves = calls = 0

    def module_of(frame: FrameType | None) -> str:
        file = frame.f_code.co_filename if frame else ""
        return file if file.startswith((CORE, PLUGINS)) else ""

    def profile(frame: FrameType, event: str, _: Any) -> None:
        nonlocal moves, calls
        if event == "call" and (module := module_of(frame)):
            entered[module] += 1
            calls += 1
            before = frame.f_back
            while before is not None and not module_of(before):
                before = before.f_back
            moves += module_of(before) != module

    with tempfile.TemporaryDirectory() as folder:
        sys.setprofile(profile)
        try:
            fedplug.run(RECIPE, rounds=rounds, output=folder, quiet=True, muted=["lab.report"])
        finally:
            sys.setprofile(None)
    return entered, moves, calls


def smallest_plugin() -> int:
    """Names that the sketch of `fedplug new --role protector` imports from fedplug."""
    source = (ROOT / "plugins/lab/src/fedplug_lab/templates/protect.py").read_text("utf-8")
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]
    return sum(
        len(node.names) for node in imports
        if any(name.name == "fedplug" for name in node.names) or getattr(node, "module", "") == "fedplug"
    )  # fmt: skip


def main() -> None:
    """Prints the numbers with their aims."""
    walked(2)  # imports and caches that happen once
    short, long = walked(2), walked(3)
    entered = {module for module, count in long[0].items() if count > short[0][module]}
    core = sum(module.startswith(CORE) for module in entered)
    code, modules = size()
    found = {"code": code, "modules": modules, "core modules": core, "moves": long[1] - short[1]}
    found["names"] = smallest_plugin()
    print(f"{'':<34} {'found':>7} {'aim':>7}")
    titles = {
        "code": "lines of code in the core", "modules": "modules of the core",
        "core modules": "core modules that a round enters", "moves": "moves between modules in a round",
        "names": "names that the smallest plugin uses",
    }  # fmt: skip
    for name, title in titles.items():
        print(f"{title:<34} {found[name]:>7} {AIMS[name]:>7}")
    print(f"{'plugin modules that a round enters':<34} {len(entered) - core:>7}")
    print(f"{'calls in a round':<34} {long[2] - short[2]:>7}")


if __name__ == "__main__":
    main()
