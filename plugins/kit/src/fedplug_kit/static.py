"""Checks of a component's class, before anything runs: documentation, options, roles, imports."""

from __future__ import annotations

import functools
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterator

from fedplug.api.component import Options, site_of
from fedplug.api.roles import ROLES
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.composition import hook_problems
from fedplug_runs.own_files import OWN, in_file, is_own, parts, read
from fedplug_runs.own_files import component as component_of
from fedplug_runs.trust import RUNS
from pydantic import BaseModel

from fedplug_kit.spelling import member_problems

HEAVY = ("torch", "torchvision", "tensorflow", "jax", "tenseal", "opacus", "sklearn", "dp_accounting", "opendp", "phe",
         "torchmetrics", "lpips")  # fmt: skip
"""Libraries that a component's module must import inside its methods: `fedplug check` and `show` import the module."""


def check_component(component: type | str, group: str | None = None, catalog: Catalog | None = None) -> None:
    """Asserts that a component can be listed, shown, checked, composed and sent to any engine.

    Args:
        component: the name of an installed component, `FILE.py:NAME`, or a class that is not installed.
        group: the entry-point group that is meant, where a class is in several, or is no component, such as a module.
        catalog: where names are looked up; by default the installed plugins.

    Raises:
        AssertionError: lists everything that is wrong.
        PluginError: a component of that name cannot be imported.
    """
    members = members_of(component, group, catalog)
    problems = [problem for found, _ in members[:1] for problem in _class_problems(found)]
    problems += [problem for found, member_of in members for problem in hook_problems(found, member_of)]
    name = component if isinstance(component, str) else component.__qualname__
    assert not problems, f"{name}:\n" + "\n".join(f"  - {problem}" for problem in dict.fromkeys(problems))


def members_of(
    component: type | str, group: str | None = None, catalog: Catalog | None = None
) -> list[tuple[type, str]]:
    """The class that is meant, once for each of its entry-point groups; the arguments are those of `check_component`.

    Raises:
        AssertionError: there is none.
        PluginError: a file is missing, cannot be run, or has no such component.
    """
    if not isinstance(component, str):
        groups = [group] if group else [each for each, role in ROLES.items() if issubclass(component, role)]
        assert groups, f"{component.__name__} has no role; write class {component.__name__}(fedplug.Protector)"
        return [(component, each) for each in groups]
    if is_own(component) and group is not None:
        own = read(component, (), None)
        RUNS.covers([own], component)
        return [(component_of(own, parts(component)[0], group), group)]
    entries = in_file(component, RUNS) if is_own(component) else (catalog or Catalog.discover()).named(component)
    assert entries, f"no component {component!r} is installed; is the plugin installed, with this entry point?"
    return [(entry.load(), entry.group) for entry in entries]


def _class_problems(found: type) -> Iterator[str]:
    summary = next(iter((inspect.cleandoc(found.__doc__) if found.__doc__ else "").splitlines()), "").strip()
    if not summary:
        yield "needs a docstring whose first line describes it in one sentence; `fedplug list` prints it"
    elif len(summary) > 120:
        yield f"the first line of the docstring has {len(summary)} characters; `fedplug list` has room for 120"
    yield from _options_problems(found)
    parameters = list(inspect.signature(found).parameters.values())
    needed = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if [p.name for p in needed] != ["options"]:
        yield f"must be built from its options alone: __init__(self, options), not {inspect.signature(found)}"
    yield from _payload_problems(found)
    yield from member_problems(found)
    yield from import_problems(found.__module__)


def _options_problems(found: type) -> Iterator[str]:
    model = getattr(found, "Options", None)
    if not (isinstance(model, type) and issubclass(model, Options)):
        yield "needs a nested class Options(fedplug.Options), even if it has no fields"
        return
    assert issubclass(model, BaseModel)
    for name, field in model.model_fields.items():
        if not field.description:
            yield f"option {name} needs a description: Field(..., description=...)"
        if name in ("use", "name", "clients", "partition"):
            yield f"option {name} must have another name; recipes use this word"
    if model.model_config.get("extra") != "forbid" or not model.model_config.get("frozen"):
        yield "its Options must stay frozen and refuse unknown keys, as fedplug.Options does"


def _payload_problems(found: type) -> Iterator[str]:
    """Checks that methods that run at other parties take the party first."""
    for name, method in inspect.getmembers(found, callable):
        site = site_of(method)
        if site is not None and list(inspect.signature(method).parameters)[1:2] != [site]:
            yield f"{name} is marked @at_{site}, so its first argument after self must be named {site}"


_IMPORTER = """
import importlib.util, json, os, sys, traceback

import fedplug
for name in fedplug.__all__:
    getattr(fedplug, name)

def load(path, module, file):
    sys.path[:] = path
    try:
        __import__(module)
    except ModuleNotFoundError as missing:
        # For example a test file that pytest imported by its path, which no name on the path leads to.
        if not file or not module.startswith(missing.name or "?"):
            raise
        spec = importlib.util.spec_from_file_location(module, file)
        sys.modules[spec.name] = found = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(found)

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # keeps a module's prints out of the answers

def answer(**said):
    print(json.dumps(said), file=answers, flush=True)

for line in sys.stdin:
    path, module, file, heavy = json.loads(line)
    child = os.fork() if hasattr(os, "fork") else 0
    if child:
        if os.waitpid(child, 0)[1]:
            answer(fails="it crashes the interpreter")
        continue
    try:
        load(path, module, file)
        answer(heavy=sorted(set(heavy) & set(sys.modules)))
    except BaseException as error:
        answer(fails=traceback.format_exception_only(error)[-1].strip().splitlines()[-1])
    os._exit(0)
"""


@functools.cache
def _importer() -> subprocess.Popen[str]:
    """An interpreter with nothing but fedplug, which forks a child for each module: a start takes a second."""
    return subprocess.Popen(
        [sys.executable, "-c", _IMPORTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True,
    )  # fmt: skip


@functools.cache
def import_problems(module: str) -> tuple[str, ...]:
    """Problems of importing a module with only fedplug loaded: it fails, or imports a heavy library."""
    known = sys.modules.get(module)
    shown = os.path.basename(known.__file__ or module) if known and module.startswith(OWN) else module
    importer = _importer()
    assert importer.stdin is not None
    assert importer.stdout is not None
    print(json.dumps([sys.path, module, known.__file__ if known else None, HEAVY]), file=importer.stdin, flush=True)
    answer = json.loads(importer.stdout.readline())
    if not hasattr(os, "fork"):  # it has imported the module itself
        _importer.cache_clear()
    if "fails" in answer:
        return (f"importing {shown} in a fresh interpreter fails: {answer['fails']}",)
    remedy = "import it inside the methods that use it"
    return tuple(f"importing {shown} imports {library}; {remedy}" for library in answer["heavy"])
