"""A distribution declares exactly its imports, and the locks have versions of them."""

from __future__ import annotations

import ast
import functools
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
FOLDERS = [Path(), *sorted(path.parent.relative_to(ROOT) for path in ROOT.glob("plugins*/*/pyproject.toml"))]
UNPINNED = {"torch", "torchvision"}
"""In `constraints.txt`, and in no lock, because the right build depends on the machine."""
NOT_IMPORTED = {
    **{
        ("fedplug-recipes", name): "components of its recipes"
        for name in (
            "fedplug", "fedplug-analytics", "fedplug-attacks", "fedplug-baselines", "fedplug-deployed", "fedplug-fas",
            "fedplug-features", "fedplug-fedre", "fedplug-paraaegis", "fedplug-robust", "fedplug-secagg",
            "fedplug-selectiveshield", "fedplug-sensecrypt", "fedplug-std", "fedplug-threshold",
        )
    },
    ("fedplug-sensecrypt", "gmpy2"): "phe uses it where it is there",
    ("fedplug-trackers", "alembic"): "MLflow makes its tables with it, and its client does not bring it",
    ("fedplug-trackers", "sqlalchemy"): "MLflow keeps runs with it, and its client does not bring it",
}
"""Declared, but not imported by the distribution itself, with the reason."""
NOT_DECLARED = {("fedplug-attacks", "torchvision"): "it is looked for alone: torchmetrics imports it where it is there"}
"""Imported by name, but not declared, with the reason."""
TOOLS = {
    "editables": "hatchling needs it to install in place",
    "hatchling": "builds",
    "mypy": "checks types",
    "pytest-xdist": "`make test` gives pytest its options",
    "ruff": "lints",
    "twine": "checks what is to be uploaded",
    "types-jsonschema": "mypy reads it",
    "types-pyyaml": "mypy reads it",
    "zensical": "builds the site",
}
"""In extras for work on a distribution. No module imports them."""
WORK = {"browser", "dev", "docs", "recipes", "release", "test"}
"""Extras of tests and tools. Lazy imports of the sources are in other extras."""
TOGETHER = {"all"}
"""Extras that bring other distributions of the repository, and nothing else."""


def project(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return read


def named(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(each).name) for each in requirements}


def imported(paths: list[Path]) -> set[str]:
    """Top-level packages that modules import, or look for by name, lazily and for annotations too."""
    return {name.partition(".")[0] for path in paths for name in _imported(path)} - sys.stdlib_module_names


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom(module=str(name), level=0):
                yield name
            case ast.Call(
                func=ast.Name(id=called) | ast.Attribute(attr=called), args=[ast.Constant(value=str(name)), *_]
            ) if called in ("import_module", "find_spec", "importorskip", "peer"):
                yield name


@functools.cache
def provided() -> Mapping[str, list[str]]:
    """By package, the distributions that have it; read when a test asks, since it takes a second."""
    return packages_distributions()


def providers(package: str) -> set[str]:
    """Distributions that have a package. fedplug's are installed in place, which hides their packages."""
    if package.partition("_")[0] == "fedplug":
        return {package.replace("_", "-")}
    return {canonicalize_name(each) for each in provided().get(package, [package])}


def sources(folder: Path) -> list[Path]:
    """Modules of a distribution, without templates: the plugins that `fedplug new` makes declare their own."""
    top = ROOT / (folder / "src" if folder.name else "core")
    return [path for path in top.rglob("*.py") if "templates" not in path.parts]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name or "core")
def test_what_is_declared_is_what_is_imported(folder: Path) -> None:
    about = project(folder)
    extras = about.get("optional-dependencies", {})
    declared = named(about["dependencies"])
    declared |= {name for extra, needs in extras.items() if extra not in WORK | TOGETHER for name in named(needs)}
    packages = imported(sources(folder)) - {about["name"].replace("-", "_")}
    excused = {name for who, name in NOT_DECLARED if who == about["name"]}
    undeclared = sorted(package for package in packages if not providers(package) & (declared | excused))
    assert not undeclared, f"{folder / 'pyproject.toml'} does not declare what has {', '.join(undeclared)}"
    used = {name for package in packages for name in providers(package)}
    reasons = {name for who, name in NOT_IMPORTED if who == about["name"]}
    unused = sorted(declared - used - reasons)
    assert not unused, f"{folder / 'pyproject.toml'} declares {', '.join(unused)}, which nothing of it imports"
    assert reasons <= declared - used, "NOT_IMPORTED lists what is imported, or declared no longer"


def test_what_the_work_needs_is_imported_by_tests_and_scripts_or_is_a_tool() -> None:
    places = ("tests", "benchmarks", "docs", "locks", "plugins", "plugins-contrib")
    found = [path for place in places for path in (ROOT / place).rglob("*.py")]
    wanted = {
        name
        for folder in FOLDERS
        for extra, needs in project(folder).get("optional-dependencies", {}).items()
        if extra in WORK
        for name in named(needs)
    }
    packages = {package for package in provided() if providers(package) & wanted}
    packages |= {name.replace("-", "_") for name in wanted}  # those of what is not installed here
    used: set[str] = set()
    for path in found:
        # Most files are long, and name no package that nobody has imported yet.
        if any(package in path.read_text(encoding="utf-8") for package in packages):
            used |= {name for package in imported([path]) for name in providers(package)}
            packages = {package for package in packages if not providers(package) <= used}
    assert wanted - used - {each for each in wanted if each.startswith("fedplug")} == TOOLS.keys()


def locked(name: str) -> dict[str, str]:
    """Versions in a lock, by distribution."""
    text = (ROOT / "locks" / name).read_text(encoding="utf-8")
    return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE))


LOCKS = sorted(path.name for path in (ROOT / "locks").glob("*.txt"))


def test_the_locks_have_a_version_of_all_that_is_declared() -> None:
    """`make setup` installs the locks, so a new requirement in a pyproject.toml would be left out."""
    versions = {name: version for lock in LOCKS for name, version in locked(lock).items()}
    declared = {
        (str(folder), need)
        for folder in FOLDERS
        for needs in (project(folder)["dependencies"], *project(folder).get("optional-dependencies", {}).values())
        for need in needs
    }
    wanted = {(folder, need): Requirement(need) for folder, need in declared if not need.startswith("fedplug")}
    lacking = [
        f"{folder}: {need}"
        for (folder, need), each in sorted(wanted.items(), key=str)
        if each.name not in UNPINNED
        and not each.specifier.contains(versions.get(canonicalize_name(each.name), "0.0.0"))
    ]
    assert not lacking, "run: make lock; it notes versions of these"


def test_a_distribution_has_one_version_in_all_locks() -> None:
    wide = locked("extras.txt")
    for lock in LOCKS:
        if lock == "release.txt":  # alone in its environment: locks/renew.py says why
            continue
        assert {name: wide.get(name, version) for name, version in locked(lock).items()} == locked(lock)
    assert locked("setup.txt").items() <= wide.items()


@pytest.mark.parametrize("lock", LOCKS)
def test_everything_in_a_lock_has_hashes(lock: str) -> None:
    text = (ROOT / "locks" / lock).read_text(encoding="utf-8")
    entries = re.split(r"^(?=\w)", text, flags=re.MULTILINE)[1:]
    assert len(entries) == len(locked(lock))
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", entry) for entry in entries)
    assert not UNPINNED & locked(lock).keys()
