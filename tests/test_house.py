"""The architecture: which packages may import which, and names that the core must not use."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from fedplug.recipe.catalog import Catalog
from scripts import script

ROOT = Path(__file__).parents[1]
CORE = ROOT / "core/fedplug"
BELOW = {
    "api": [],
    "mechanisms": ["api"],
    "wire": ["api"],
    "recipe": ["api"],
    "round": ["mechanisms", "wire", "recipe"],
    "engines": ["round"],
}


def rooms_below(room: str) -> set[str]:
    return {found for below in BELOW[room] for found in (below, *rooms_below(below))}


def modules() -> dict[str, Path]:
    return {".".join(path.relative_to(CORE).with_suffix("").parts): path for path in sorted(CORE.rglob("*.py"))}


def imports(path: Path, known: dict[str, Path]) -> Iterator[tuple[str, bool]]:
    """Modules of the core that a module imports, lazily too, and whether for annotations alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "fedplug":
            base = (node.module or "").partition(".")[2]
            for alias in node.names:
                inner = f"{base}.{alias.name}".lstrip(".")
                yield (inner if inner in known else base), id(node) in typing
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("fedplug."):
                    yield alias.name.removeprefix("fedplug."), id(node) in typing


def test_every_module_is_in_a_room() -> None:
    outside = [name for name in modules() if name.partition(".")[0] not in BELOW]
    assert outside == ["__init__", "__main__"]


def test_imports_go_down_only_lazy_ones_too() -> None:
    known, upward = modules(), set()
    for name, path in known.items():
        room = name.partition(".")[0]
        if room not in BELOW:
            continue
        for other, annotation in imports(path, known):
            there = other.partition(".")[0]
            if there != room and there not in rooms_below(room):
                upward.add(f"{name} -> {other}" + ("" if annotation else " when it runs"))
    assert not upward


SOURCES = {"fedplug": CORE} | {
    folder.name: folder for folder in sorted(CORE.parents[1].glob("plugins*/*/src/*")) if folder.is_dir()
}
"""The package of each distribution, by the name of its folder."""


def circle_in(package: Path) -> list[str]:
    """Files of a package that import each other in a circle, as a path; empty where there is none.

    All imports count: those for annotations, those inside functions, and relative ones.
    """
    known = {name: path for path in package.rglob("*.py") if (name := _dotted(path, package)) != package.name}
    return circle_of({name: sorted(known.keys() & {*_needed(path, name)} - {name}) for name, path in known.items()})


def circle_of(needs: Mapping[str, Sequence[str]]) -> list[str]:
    """A way from something back to it through what it needs; empty where there is none."""
    done = set[str]()

    def found(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name not in done:
            for other in needs[name]:
                if circle := found(other, [*path, name]):
                    return circle
            done.add(name)
        return []

    return next((circle for name in needs if (circle := found(name, []))), [])


def _dotted(path: Path, package: Path) -> str:
    return ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")


@functools.cache
def _needed(path: Path, name: str) -> list[str]:
    return [*_needs(path, name)]


def _needs(path: Path, name: str) -> Iterator[str]:
    around = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [*around[: len(around) - node.level + 1], node.module] if node.level else [node.module]
            origin = ".".join(filter(None, base))
            yield origin
            yield from (f"{origin}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("name", SOURCES)
def test_no_file_needs_itself_through_others(name: str) -> None:
    assert not circle_in(SOURCES[name])


def test_no_distribution_needs_itself_through_others() -> None:
    """Templates of `fedplug new` are text for plugins of others, which need what they name."""
    needs = {
        name: sorted({
            other for path in package.rglob("*.py") if "templates" not in path.parts
            for needed in _needed(path, _dotted(path, package))
            if (other := needed.partition(".")[0]) != name and other in SOURCES
        })
        for name, package in SOURCES.items()
    }  # fmt: skip
    assert "fedplug_std" in needs["fedplug_baselines"]
    assert not circle_of(needs)


def test_a_circle_of_annotations_and_lazy_imports_is_found(tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    for name, text in {
        "one": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from toy.two import Two\n",
        "two": "from . import three\n",
        "three": "def later():\n    from toy.one import One\n",
        "four": "from toy import one\n",
    }.items():
        (tmp_path / "toy" / f"{name}.py").write_text(text)
    assert sorted(circle_in(tmp_path / "toy")[1:]) == ["toy.one", "toy.three", "toy.two"]


MOST_LINES, MOST_MODULES = 8_723, 52
"""Of the core. They may fall, and never rise: what does not fit is a plugin behind a seam."""


def test_the_core_never_grows() -> None:
    lines, files = script(ROOT / "benchmarks/rooms.py").size()
    remedy = "put it behind a seam, in a plugin; an operation belongs here: make the core smaller by as much elsewhere"
    assert lines <= MOST_LINES, remedy
    assert files <= MOST_MODULES, remedy


@pytest.mark.parametrize("room", sorted(BELOW))
def test_a_room_says_what_it_is_for(room: str) -> None:
    text = ast.get_docstring(ast.parse((CORE / room / "__init__.py").read_text(encoding="utf-8"))) or ""
    assert text.count(".") >= 2, text
    assert "import" in text.lower()


def test_the_core_names_no_component_of_a_plugin() -> None:
    """Nor in a docstring. Messages may name the standard component that helps: a bare name means `std`."""
    names = {entry.name for entry in Catalog.discover() if "." in entry.name and not entry.name.startswith("std.")}
    assert len(names) > 50
    found = re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, sorted(names)))})(?![\w])")
    said = {
        f"{name}: {match[0]}"
        for name, path in modules().items()
        for match in found.finditer(path.read_text(encoding="utf-8"))
    }
    assert not said


TESTED = {f"core/fedplug/{room}": f"tests/{room}" for room in BELOW} | {
    f"plugins/{name}/src/fedplug_{name}": f"plugins/{name}/tests" for name in ("ledger", "runs")
}


@pytest.mark.parametrize("folder", TESTED)
def test_each_module_has_a_test_module_of_its_name(folder: str) -> None:
    names = {path.stem for path in (ROOT / folder).glob("*.py")} - {"__init__"}
    tested = {path.stem.removeprefix("test_") for path in (ROOT / TESTED[folder]).glob("test_*.py")}
    assert not names - tested


PUBLIC = re.compile(
    r"fedplug(\.api(\..*)?|\.mechanisms\.(closing|noise)|\.engines\.(base|hosts))?"
    r"|fedplug_ledger\.(accounting|integers|renyi|verdict|grades)|fedplug_runs\.(events|files|rows|row_text|shown|units|wire_record)"
)
"""The names that `docs/writing-a-plugin.md` calls public."""
APPLICATIONS = {
    "attacks", "audit", "evidence", "flower", "kit", "lab", "ledger", "nvflare", "party", "policy", "robust", "runs",
    "search", "terminal",
}
"""Plugins that drive runs, or hold parties of one, rather than take part in rounds. They go deeper into the core."""


def test_plugins_use_the_public_api_alone() -> None:
    root, inside = CORE.parents[1], set()
    for path in [*root.glob("plugins/*/src/**/*.py"), *root.glob("plugins-contrib/*/src/**/*.py")]:
        if path.relative_to(root).parts[1] in APPLICATIONS:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            used = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            used += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in used:
                ours = name.partition(".")[0] in ("fedplug", "fedplug_ledger", "fedplug_runs")
                if ours and not PUBLIC.fullmatch(name):
                    inside.add(f"{path.parent.name}.{path.stem} -> {name}")
    assert not inside


OUTSIDE_RUNS = {
    "fedplug_lab.new": "a project that the user asked for",
    "fedplug_flower.app_folder": "an app that the user asked for",
    "fedplug_nvflare.job_folder": "a job that the user asked for",
    "fedplug_terminal.shelf": "a copy of a shipped recipe that the user asked for",
    "fedplug_runs.files": "the door",
    "fedplug_trackers.to_wandb": "a folder that the user may name; wandb writes in it",
    "fedplug_ray.trial": "a folder of temporary files, of mode 0700",
    "fedplug_runs.machine": "a file of the system, not on a disk",
}
"""Modules that write without the functions for private files, and their output."""
WRITING = {"write_text", "write_bytes", "mkdir", "makedirs", "touch"}
MODES = re.compile(r"[wxa].*|.*\+.*")
MAY_WRITE = re.compile(rf"\b(?:open|truncate|{'|'.join(sorted(WRITING))})\b")
"""The names that `_writes` looks for: a text without them is not worth parsing."""


def _writes(node: ast.AST) -> bool:
    """Whether a call makes or changes a file or a folder by way of the standard library."""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Name):
        # `os.open` sets the mode of its handle; the null device keeps nothing.
        opened = node.func.id == "open" and not isinstance(node.args[0], ast.Call | ast.Attribute)
        modes = node.args[1:2] if opened else []
    elif isinstance(node.func, ast.Attribute):
        # Methods of a path, and functions of `os`. `truncate` of an open file changes a file opened by those functions.
        name, of_os = node.func.attr, isinstance(node.func.value, ast.Name) and node.func.value.id == "os"
        if name in WRITING or (of_os and name == "truncate"):
            return True
        opened = name == "open" and not of_os
        modes = node.args[:1] if opened else []
    else:
        return False
    modes += [word.value for word in node.keywords if opened and word.arg == "mode"]
    said = [each.value for each in modes if isinstance(each, ast.Constant)]
    return any(isinstance(each, str) and MODES.fullmatch(each) for each in said)


def test_all_that_is_written_goes_through_the_door_to_private_files() -> None:
    root, beside = CORE.parents[1], set()
    sources = [CORE, *root.glob("plugins/*/src/*"), *root.glob("plugins-contrib/*/src/*")]
    for source in sources:
        for path in sorted(source.rglob("*.py")):
            name = ".".join((source.name, *path.relative_to(source).with_suffix("").parts))
            text = path.read_text(encoding="utf-8")
            if name in OUTSIDE_RUNS or not MAY_WRITE.search(text):
                continue
            if any(map(_writes, ast.walk(ast.parse(text)))):
                beside.add(name)
    assert not beside


@pytest.mark.parametrize("plugin", ["altfl", "clover"])
def test_a_method_of_a_paper_fits_into_180_lines_and_18_names(plugin: str) -> None:
    """The API is small enough for that: an example of a whole method, and the names of fedplug that it takes."""
    root, lines, names = CORE.parents[1], 0, set[str]()
    for path in root.glob(f"plugins-contrib/{plugin}/src/**/*.py"):
        source = path.read_text(encoding="utf-8")
        lines += script(root / "benchmarks/rooms.py").code_lines(source)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "fedplug":
                names |= {alias.name for alias in node.names}
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "fedplug":
                names.add(node.attr)
    assert lines <= 180
    assert len(names) <= 18, sorted(names)
