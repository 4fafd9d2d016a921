"""Writes files that follow from code and data: the pages of docs/reference (components, recipes, roles, types,
commands), the picture of the core's packages, the list of licences, and each table of numbers from its file in
docs/numbers.

A test says when one is stale.

    python docs/generate.py
"""

from __future__ import annotations

import ast
import csv
import dataclasses
import functools
import inspect
import os
import re
import runpy
import sys
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from importlib.metadata import distributions
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, get_args

import fedplug
from fedplug.api.operations import Operation
from fedplug.api.roles import ROLES, AccountKeeper, Ballots, Component, PublicPlan, Scrambler, Sealer
from fedplug.api.words import Numbers
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.parts import Use
from fedplug_runs.members import RECORDS
from fedplug_terminal.catalog import inner_rows, option_rows

DOCS = Path(__file__).parent
REFERENCE = DOCS / "reference"
ROOMS, DISTRIBUTIONS = DOCS / "pictures/rooms.svg", DOCS / "pictures/distributions.svg"
NUMBERS = DOCS / "numbers"
GALLERY = "gallery"
"""The file of numbers that is shown as cards."""
CORE = DOCS.parent / "core/fedplug"
RECIPES = DOCS.parent / "recipes"
LICENCES = DOCS / "licences.md"
LOCKS = DOCS.parent / "locks"
CONTRIBUTED = ("fedplug-altfl", "fedplug-borda", "fedplug-clover", "fedplug-rowlog")
"""Examples of third-party plugins, which are not part of the reference."""
HOOKS = {
    "score_parameters": "what each scalar or layer is worth",
    "negotiate_mask": "which scalar is in which zone",
    "protect": "what happens to a zone's values at the client",
    "aggregate": "how the server sums",
    "postprocess": "what opens or completes a zone's sum",
    "attack": "what an adversary learns from what it saw",
    "dataset": "data",
    "partition": "which examples each client has",
    "task": "what a model is for: its loss, and what it is judged by",
    "model": "models",
    "trainer": "local training",
    "groups": "groups of clients with a model each",
    "accountant": "epsilon of sampled releases, and of releases that are not Gaussian",
    "metric": "numbers about what an attack found",
    "poison": "what clients do that lie",
    "extension": "what hears the events of a run",
    "engine": "what runs the parties",
}
"""The groups of components in the order of the reference, and the purpose of each."""
NOTE = "Generated from the code by `python docs/generate.py`; do not edit."
LINKS = ("protect", "aggregate", "postprocess")
"""Hooks in which a link returns operations."""
OPERATIONS = get_args(Operation)
TYPES: dict[str, tuple[str, tuple[type, ...]]] = {
    "parties": (
        "The parties, the round, and the lines between them",
        (
            fedplug.Client, fedplug.Server, fedplug.KeyServer, fedplug.Party, fedplug.Facts, fedplug.Cohort,
            fedplug.KeyServerLine, fedplug.Closing,
        ),
    ),
    "values": (
        "What travels between hooks, and what is known of it",
        (fedplug.Block, fedplug.Plan, fedplug.Layout, fedplug.Known, fedplug.Public),
    ),
    "words": (
        "What a sealer is handed and gives",
        (fedplug.Words, fedplug.Sealed, fedplug.Total, fedplug.Opened, fedplug.FixedPoint, Numbers),
    ),
    "operations": ("What a link does to the values", OPERATIONS),
    "recipes": ("The recipe, as `check` is handed it", (fedplug.Recipe, Use, fedplug.Section, fedplug.Around)),
    "data": (
        "Examples and models",
        (
            fedplug.Examples, fedplug.Dataset, fedplug.ClientData, fedplug.PublicData, fedplug.Model,
            fedplug.Evaluation,
            fedplug.Figure,
        ),
    ),
    "records": (
        "What a component says of itself",
        (*dict.fromkeys(RECORDS.values()), fedplug.Reveals, fedplug.Learns, fedplug.GroundTruth),
    ),
}  # fmt: skip
"""Types in the arguments and results of a plugin author's methods, by page: its title and the types."""
NOT_FOR_AUTHORS = (
    "remembered", "to_plain", "from_plain", "restore", "saved", "to_json", "from_json", "whole", "freeze", "memo",
    "once", "planned",
)  # fmt: skip
"""Members that the core uses for parties, recipes and records."""


def made() -> dict[Path, str]:
    """Every file with generated content, as it should be."""
    return {**components(), **recipes(), **_reference(), **_pictures(), **tables(), LICENCES: licences()}


# ---- components


def components() -> dict[Path, str]:
    """A page for each group of components, and one that lists them all."""
    entries = [entry for entry in Catalog.discover() if (entry.distribution or "").startswith("fedplug")]
    entries = [entry for entry in entries if entry.distribution not in CONTRIBUTED]
    pages, shown = {}, dict[type, str]()
    index = [
        f"# Components\n\n{NOTE}\n",
        "What the plugins of this repository offer to recipes. `fedplug list` lists what is installed, "
        "`fedplug show NAME` prints the content of these pages.\n",
    ]
    unknown = {entry.group for entry in entries} - set(HOOKS)
    assert not unknown, f"docs/generate.py knows no title for the groups {sorted(unknown)}; add them to HOOKS"
    for group, members in groupby(sorted(entries, key=_place), lambda entry: entry.group):
        parts = [f"# {group}\n\nComponents of the group `fedplug.{group}`: {HOOKS[group]}. {NOTE}\n"]
        index += [f"## {group}\n", f"{HOOKS[group].capitalize()}.\n", "| component | what it does |\n| --- | --- |"]
        for entry in members:
            found = entry.load()
            index.append(f"| [`{entry.name}`](components/{group}.md#{_anchor(entry.name)}) | {_first(found)} |")
            parts.append(f"## {entry.name}\n")
            if found in shown:
                where = f"[{shown[found]}]({shown[found]}.md#{_anchor(entry.name)})"
                parts.append(f"The same component as under {where}; it has one set of options.\n")
                continue
            shown[found] = group
            parts += [_sentences(found), _given(found), f"From `{entry.distribution}`.\n", options(found)]
        index.append("")
        pages[REFERENCE / "components" / f"{group}.md"] = "\n".join(part for part in parts if part).rstrip() + "\n"
    return {REFERENCE / "components.md": "\n".join(index).rstrip() + "\n", **pages}


def _place(entry: Any) -> tuple[int, str]:
    return [*HOOKS].index(entry.group), entry.name


def _anchor(name: str) -> str:
    return re.sub(r"[^\w\- ]", "", name.lower())


def _sentences(found: Any) -> str:
    """A docstring as markdown. Indented parts, such as lists of attributes, become code."""
    return (inspect.getdoc(found) or "").rstrip() + "\n"


def _given(found: type) -> str:
    """The operations that a link returns, by the names that its hooks use."""
    own = [name for name in LINKS if any(name in vars(part) for part in found.__mro__ if not _is_role(part))]
    if not own:
        return ""
    known = {operation.__name__ for operation in OPERATIONS}
    named: dict[str, None] = {}
    for name in own:
        part = next(part for part in found.__mro__ if name in vars(part))
        tree = ast.parse(textwrap.dedent(inspect.getsource(vars(part)[name])))
        named |= {node.id: None for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in known}
        named |= {node.attr: None for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in known}
    listed = ", ".join(f"[`{name}`](../types/operations.md#{name.lower()})" for name in named)
    return f"Operations that it gives: {listed or 'worked out by its module'}.\n"


def _is_role(part: type) -> bool:
    return part.__module__.startswith("fedplug.api") or part is object


def options(found: type) -> str:
    """A component's options as a table."""
    if not hasattr(found, "Options"):  # an engine may have none
        return ""
    rows = [*option_rows(found.Options), *inner_rows(found)]
    if not rows:
        return "No options.\n"
    cells = [["option", "type", "default", "bounds", "meaning"], ["---"] * 5]
    cells += [[*(f"`{_typed(cell)}`" for cell in row[:3]), *row[3:]] for row in rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in cells)


# ---- recipes


def recipes() -> dict[Path, str]:
    """A page for each group of the gallery, with its recipes as they ship, and what each extends."""
    gallery = runpy.run_path(str(DOCS / "gallery.py"))
    return {
        REFERENCE / "recipes" / f"{gallery['page_of'](group)}.md": _recipes_of(group, titles)
        for group, titles in gallery["GALLERY"].items()
    }


def _recipes_of(group: str, titles: Mapping[str, str]) -> str:
    cards = "[The gallery](../../gallery.md) has what each does."
    parts = [f"# Recipes: {group[:1].lower()}{group[1:]}\n\n{NOTE} {cards}\n"]
    for name, title in titles.items():
        text = (RECIPES / f"{name}.yaml").read_text(encoding="utf-8").rstrip()
        base = re.search(r"^extends: (\S+)$", text, re.MULTILINE)
        where = base and os.path.normpath(Path(name).parent / base[1])
        more = f" It extends `recipes/{where}`, and states what differs." if where else ""
        runs = f"`fedplug run {name.rpartition('/')[2]}` runs `recipes/{name}.yaml`.{more}"
        parts.append(f"## {title}\n\n{runs}\n\n```yaml\n{text}\n```\n")
    return "\n".join(parts)


# ---- roles and commands


def _reference() -> dict[Path, str]:
    """The pages on roles, on types and on commands."""
    roles = [f"# Roles\n\n{NOTE}\n", *_roles()]
    return {REFERENCE / "roles.md": "\n".join(roles).rstrip() + "\n", **types(), REFERENCE / "cli.md": commands()}


def commands() -> str:
    """The page on the command line."""
    import typer
    from fedplug_terminal import commands as plugins
    from fedplug_terminal.app import app

    group: Any = typer.main.get_command(app)
    context = group.make_context("fedplug", [], resilient_parsing=True)
    parts = [
        f"# Commands\n\n{NOTE} `fedplug COMMAND --help` prints the same.\n",
        "| command | what it does |\n| --- | --- |",
    ]
    found = {name: group.commands.get(name) or plugins._loaded(plugins.offered()[name])
             for name in group.list_commands(context)}  # fmt: skip
    found = {name: command for name, command in sorted(found.items()) if not command.hidden}
    parts += [f"| [`fedplug {name}`](#fedplug-{name}) | {_line(each.help)} |" for name, each in found.items()]
    for name, command in found.items():
        usage = " ".join(command.collect_usage_pieces(context))
        parts.append(f"\n## fedplug {name}\n\n{inspect.cleandoc(command.help or '')}\n")
        parts.append(f"```text\nfedplug {name} {usage}\n```\n")
        if command.epilog:
            parts.append(f"{re.sub('Example: (.*)', r'Example: `' + chr(92) + '1`', command.epilog)}\n")
        rows = [row for parameter in command.params if (row := _parameter(parameter, context))]
        parts.append("| argument or option | default | meaning |\n| --- | --- | --- |")
        parts += ["| " + " | ".join(_escaped(cell) for cell in row) + " |" for row in rows]
    return "\n".join(parts).rstrip() + "\n"


def _parameter(parameter: Any, context: Any) -> tuple[str, str, str] | None:
    """An argument's or option's name, default and meaning."""
    if parameter.name == "help" or getattr(parameter, "hidden", False):
        return None
    if parameter.param_type_name == "argument":
        return f"`{parameter.make_metavar(context)}`", "", _line(parameter.help)
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    taken = "" if parameter.is_flag else f" {parameter.make_metavar(context)}"
    default = parameter.default
    shown = "" if default is None or callable(default) or default in (False, "", [], ()) else f"`{default}`"
    return f"`{names}{taken}`", shown, _line(parameter.help)


def _line(text: str | None) -> str:
    return re.sub(r"\s+", " ", text or "").strip()


# ---- numbers


def tables() -> dict[Path, str]:
    """Every page that shows numbers of a file, with regenerated tables."""
    pages = {}
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        if "<!-- numbers: " in text:
            parts = re.split(r"(<!-- numbers: [\w-]+ -->\n)(?:.*?)(?=<!-- end of numbers -->)", text, flags=re.DOTALL)
            for place in range(1, len(parts), 2):
                parts[place] += f"\n{numbers_table(parts[place].split()[2], page)}\n"
            pages[page] = "".join(parts)
    return pages


def numbers_table(name: str, page: Path) -> str:
    """A file of numbers as a table: `x sd`, `x ratio` and `x naive` follow x, as in `0.84 ± 0.001`."""
    path = NUMBERS / f"{name}.csv"
    if not path.is_file():
        sys.exit(f"{page} shows the numbers of {name}, and {path} is not there; write it, or take the marker away")
    with path.open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    link = os.path.relpath(path, page.parent)
    found = [dict(zip(head, row, strict=True)) for row in rows]
    if name == GALLERY:
        return f"{runpy.run_path(str(DOCS / 'gallery.py'))['cards'](found)}\n[Data]({link})\n"
    kept = [column for column in head if not _belongs(column, head)]
    lines = [kept, ["---"] * len(kept), *([_cell(row, key) for key in kept] for row in found)]
    table = "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)
    return f"{table}\n[Data]({link})\n"


ENDS = {" sd": " ± {}", " ratio": " (x{})", " naive": " ({})"}


def _belongs(column: str, head: Sequence[str]) -> bool:
    return any(column.endswith(end) and column.removesuffix(end) in head for end in ENDS)


def _cell(row: Mapping[str, str], key: str) -> str:
    return row[key] + "".join(form.format(row[key + end]) for end, form in ENDS.items() if row.get(key + end))


# ---- licences

COPYLEFT = re.compile(r"\b[AL]?GPL|MPL|EPL")
"""Licences with conditions for redistribution."""


def licences() -> str:
    """The distributions that `make` installs: versions from the locks, licences from `locks/licences.csv`, dependents.

    It does not use the installed distributions, so the page is the same in every environment.
    """
    with (LOCKS / "licences.csv").open(encoding="utf-8", newline="") as file:
        licence = {row["distribution"]: row["licence"] for row in csv.DictReader(file)}
    versions, parents = _locked()
    askers = _askers()
    if lacking := sorted(versions.keys() - {name for name, each in licence.items() if each}):
        sys.exit(f"locks/licences.csv gives no licence of {', '.join(lacking)}; run: make lock")
    asked = sorted(askers.keys() & versions.keys())
    through = sorted(versions.keys() - askers.keys())
    copyleft = sorted(name for name in versions if COPYLEFT.search(licence[name]))
    lines = [
        f"# Licences\n\n{NOTE.replace('the code', 'the lock files')}\n",
        LICENCES_SAID,
        f"## Licences with conditions on handing on\n\n{_licence_head('needed by')}",
        *(_licence_row(name, versions, licence, _all_askers(name, askers, parents)) for name in copyleft),
        f"\n## What fedplug's distributions ask for\n\n{_licence_head('asked for by')}",
        *(_licence_row(name, versions, licence, askers[name]) for name in asked),
        f"\n## What these need in turn\n\n{_licence_head('through')}",
        *(_licence_row(name, versions, licence, parents[name] or ["`make setup`"]) for name in through),
    ]
    return "\n".join(lines) + "\n"


LICENCES_SAID = """\
fedplug, its plugins and the examples of other people's plugins are under the Apache License 2.0. This page lists what
else `make setup`, `make test` and `make docs` install, in the versions of the files in `locks/`, and what the extras
bring that no target installs. The licence is what a distribution's own metadata say. With another version it may be
another one; `pip show NAME` says it.

**`phe` is under the GPL 3.0.** `fedplug-sensecrypt` alone asks for it, since SenseCrypt's paper uses it. The core and
the other plugins do not need it: Paillier of `fedplug-std` is written on `gmpy2`. Using `phe`, changing it and
running a service with it oblige to nothing. Handing on a whole that contains `phe` does, such as an image of a
container, an installer or a machine: the whole goes out under the terms of the GPL 3.0, with its source, which the
Apache License 2.0 allows. `make setup` installs `phe`. After `pip uninstall fedplug-sensecrypt phe` every recipe
without a component of SenseCrypt still runs.

`gmpy2` is under the LGPL 3.0 or later, as are GMP, MPFR and MPC in its wheels. It stays a library that can be
exchanged, so it asks for its licence text and for its source or an offer of it, and asks nothing of the code that
imports it. The MPL 2.0 asks for the source of its files. This is a summary for orientation, and no legal advice.
"""


def _locked() -> tuple[dict[str, str], dict[str, list[str]]]:
    """Versions by distribution, and which other distributions need each, from all locks and `constraints.txt`."""
    versions, parents = dict[str, str](), dict[str, set[str]]()
    for lock in sorted(LOCKS.glob("*.txt")):
        for entry in re.split(r"^(?=\w)", lock.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
            name, version = re.match(r"([\w.-]+)==([^\s;]+)", entry).groups()  # type: ignore[union-attr]
            versions[name] = version
            parents.setdefault(name, set()).update(re.findall(r"^    # +(?:via )?([\w.-]+)$", entry, re.MULTILINE))
    pins = (DOCS.parent / "constraints.txt").read_text(encoding="utf-8")
    versions |= dict(re.findall(r"^([\w.-]+)==(\S+)", pins, re.MULTILINE))
    return versions, {name: sorted(found - {"via"}) for name, found in parents.items()}


def _askers() -> dict[str, list[str]]:
    """Which of our distributions ask for another, and with which extra."""
    found: dict[str, list[str]] = {}
    for path in (DOCS.parent / "pyproject.toml", *sorted(DOCS.parent.glob("plugins*/*/pyproject.toml"))):
        project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        needs = {"": project["dependencies"], **project.get("optional-dependencies", {})}
        for extra, each in needs.items():
            who = f"`{project['name']}`" + (f", extra `{extra}`" if extra else "")
            for need in each:
                name = re.sub(r"[-_.]+", "-", re.split(r"[\[<>=~!; ]", need)[0]).lower()
                found.setdefault(name, []).append(who)
    return found


def _all_askers(name: str, askers: Mapping[str, list[str]], parents: Mapping[str, list[str]]) -> list[str]:
    """Which of our distributions need another, directly or through others."""
    reached, ahead = {name}, [name]
    while ahead:
        fresh = set(parents.get(ahead.pop(), ())) - reached
        reached |= fresh
        ahead += fresh
    return [*dict.fromkeys(who for each in sorted(reached) for who in askers.get(each, ()))]


def _licence_head(last: str) -> str:
    return f"| distribution | version | licence | {last} |\n| --- | --- | --- | --- |"


def _licence_row(name: str, versions: Mapping[str, str], licence: Mapping[str, str], whose: Sequence[str]) -> str:
    return f"| `{name}` | {versions[name]} | {licence[name]} | {'; '.join(whose)} |"


# ---- rooms


def rooms() -> str:
    """A picture of the core's packages."""
    needs = {room: _needed(room) for room in sorted(path.parent.name for path in CORE.glob("*/__init__.py"))}
    return _layers("Rooms of the core", needs, 720)


def _pictures() -> dict[Path, str]:
    return {ROOMS: rooms(), DISTRIBUTIONS: houses()}


IMPORTS = re.compile(r"^ *(?:from|import) (fedplug\w*)", re.MULTILINE)


def houses() -> str:
    """A picture of the distributions of this repository."""
    sources = {path.name: path for path in sorted(CORE.parents[1].glob("plugins/*/src/*")) if path.is_dir()}
    needs: dict[str, set[str]] = {"fedplug": set()}
    for name, source in sources.items():
        texts = (path.read_text(encoding="utf-8") for path in source.rglob("*.py") if "templates" not in path.parts)
        found = {other for text in texts for other in IMPORTS.findall(text)}
        needs[_short(name)] = {_short(other) for other in found & {"fedplug", *sources} - {name}}
    return _layers("Distributions", needs, 1000)


def _short(name: str) -> str:
    return name.removeprefix("fedplug_")


def _layers(title: str, needs: Mapping[str, set[str]], width: int) -> str:
    """A picture of what needs what, from the top down, without arrows that follow from others."""
    reached: dict[str, set[str]] = {}
    level: dict[str, int] = {}
    for room in TopologicalSorter(needs).static_order():
        reached[room] = needs[room].union(*(reached[other] for other in needs[room]))
        level[room] = 1 + max((level[other] for other in needs[room]), default=-1)
    arrows = [(room, other) for room, others in needs.items() for other in sorted(others)
              if not any(other in reached[between] for between in others)]  # fmt: skip
    top, at = max(level.values()), dict[str, tuple[int, int]]()
    for height in range(top + 1):
        row = [room for room in needs if level[room] == height]
        apart = min(200, width // len(row))
        for place, room in enumerate(row):
            at[room] = (width // 2 + int(apart * (place - (len(row) - 1) / 2)), 50 + 80 * (top - height))
    said = "; ".join(f"{room} needs {other}" for room, other in arrows)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {80 * top + 100}" role="img" '
        'aria-labelledby="t d" font-family="system-ui, sans-serif" font-size="16" text-anchor="middle">',
        f'<title id="t">{title}</title><desc id="d">{said}</desc>',
        '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 10 5 0 10z" fill="#59636e"/></marker></defs>',
        f'<rect width="{width}" height="{80 * top + 100}" rx="12" fill="#fff"/>',
    ]
    for room, other in arrows:
        (x, y), (to_x, to_y) = at[room], at[other]
        curve = f"M{x} {y + 20} C{x} {y + 48} {to_x} {to_y - 48} {to_x} {to_y - 21}"
        lines.append(f'<path d="{curve}" fill="none" stroke="#59636e" stroke-width="1.5" marker-end="url(#head)"/>')
    for room, (x, y) in at.items():
        box = f'x="{x - 62}" y="{y - 20}" width="124" height="40" rx="8"'
        lines.append(f'<rect {box} fill="#ddf4ff" stroke="#54aeff"/>')
        lines.append(f'<text x="{x}" y="{y + 5}" fill="#1f2328">{room}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def _imported(tree: ast.Module) -> Iterator[str]:
    """The modules that a module imports, even lazily, except imports only for annotations."""
    typing = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and id(node) not in typing:
            yield node.module or ""


def _needed(room: str) -> set[str]:
    """The packages that a package's modules import."""
    modules = (path.read_text(encoding="utf-8") for path in (CORE / room).glob("*.py"))
    inside = (name.split(".")[1] for text in modules for name in _imported(ast.parse(text)) if name[:8] == "fedplug.")
    return {other for other in {*inside} - {room} if (CORE / other).is_dir()}


def _roles() -> Iterator[str]:
    """Each role with its members."""
    groups: dict[type, list[str]] = {}
    for group, role in ROLES.items():
        groups.setdefault(role, []).append(group)
    served: list[tuple[type, list[str]]] = [(Component, []), *groups.items()]
    closing = ["protect", "postprocess"]
    served[6:6] = [(Sealer, closing), (Scrambler, closing)]
    served.insert(3, (PublicPlan, ["negotiate_mask"]))
    served += [(Ballots, []), (AccountKeeper, [])]
    for role, its_groups in served:
        named = " and ".join(f"`fedplug.{group}`" for group in its_groups)
        entry = f" (entry-point group {named})" if named else ""
        yield f"## {role.__name__}\n\n`fedplug.{role.__name__}`{entry}: {_first(role)}\n"
        yield "| member | |\n| --- | --- |"
        base = {} if role is Component else _members(Component)
        for name, member in _members(role).items():
            if base.get(name) is member or name in ("Options", "name", "options", *NOT_FOR_AUTHORS):
                continue
            said = _first(member) if isinstance(member, property) or callable(member) else _below(role, name)
            yield f"| {_signature(name, member)} | {said} |"
        yield ""
    said = "Records that roles declare are [types](types/records.md), and so is what their methods are handed"
    yield f"{said}: [all types](types.md). Of links, `protect`, `aggregate` and `postprocess` give"
    yield "[operations](types/operations.md).\n"


def _members(role: type) -> dict[str, Any]:
    """The public names of a role, with what the role itself has there."""
    bases = [base for base in reversed(role.__mro__) if base.__module__.startswith("fedplug")]
    names = (name for base in bases for name in (*vars(base).get("__annotations__", {}), *vars(base)))
    return {name: inspect.getattr_static(role, name, None) for name in names if not name.startswith("_")}


# ---- types


def types() -> dict[Path, str]:
    """A page for each kind of types that authors of plugins get, and one that lists them all."""
    pages = {}
    index = [
        f"# Types\n\n{NOTE}\n",
        "What authors of plugins are handed, and what they give. Classes to subclass are [roles](roles.md).\n",
    ]
    where = {each: f"{page}.md#{each.__name__.lower()}" for page, (_, listed) in TYPES.items() for each in listed}
    for page, (title, listed) in TYPES.items():
        index += [f"## {page.capitalize()}\n", f"{title}.\n", "| type | what it is |\n| --- | --- |"]
        index += [f"| [`{each.__name__}`](types/{where[each]}) | {_first(each)} |" for each in listed]
        index.append("")
        parts = [f"# {title}\n\n{NOTE}\n", *(part for each in listed for part in _type(each, where))]
        pages[REFERENCE / "types" / f"{page}.md"] = "\n".join(parts).rstrip() + "\n"
    return {REFERENCE / "types.md": "\n".join(index).rstrip() + "\n", **pages}


def _type(found: type, where: Mapping[type, str]) -> Iterator[str]:
    """One type: its description, its attributes and its methods."""
    name = f"fedplug.{found.__name__}" if found.__name__ in fedplug.__all__ else f"{found.__module__}.{found.__name__}"
    base = next((part for part in found.__mro__[1:] if part in where), None)
    yield f"## {found.__name__}\n\n`{name}`: {_parts(found)['']}\n"
    if base is not None:
        yield f"It has what a [`{base.__name__}`]({where[base]}) has.\n"
    lent = {*vars(base), *vars(base).get("__annotations__", {})} if base else set()
    rows = [row for row in _attributes(found) if row[0] not in lent]
    if rows:
        yield "| attribute | type | |\n| --- | --- | --- |"
        yield from (f"| `{name}` | {_code(kind)} | {said} |" for name, kind, said in rows)
        yield ""
    for method, member in _methods(found).items():
        if method in lent:
            continue
        said = _parts(member)
        yield f"### {found.__name__}.{method}\n\n`{method}{_call(member, found)}`\n\n{said['']}\n"
        for heading in ("Args", "Returns", "Raises"):
            if heading in said:
                yield f"{heading}:\n"
                yield from (f"* `{entry}`: {text}" if entry else text for entry, text in said[heading].items())
                yield ""


def _attributes(found: type) -> Iterator[tuple[str, str, str]]:
    """Fields and properties: name, type, and the text in docstrings of the class and its bases."""
    texts: dict[str, str] = {}
    kinds: dict[str, str] = {}
    for part in reversed(found.__mro__):
        if not part.__module__.startswith("fedplug"):
            continue
        for names, text in _parts(part).get("Attributes", {}).items():
            texts |= dict.fromkeys(names.split(", "), text)
        for name, kind in vars(part).get("__annotations__", {}).items():
            kinds[name] = re.sub(r"^ClassVar\[(.*)\]$", r"\1", str(kind))
            texts[name] = texts.get(name) or _below(part, name)
        for name, member in vars(part).items():
            made = member.func if isinstance(member, functools.cached_property) else getattr(member, "fget", None)
            if made is not None:
                kinds[name] = str(inspect.signature(made).return_annotation)
                texts[name] = _first(made) or texts.get(name, "")
    if dataclasses.is_dataclass(found):  # in the order in which it is made
        kinds = {field.name: kinds[field.name] for field in dataclasses.fields(found) if field.name in kinds} | kinds
    for name, kind in kinds.items():
        if name[0] != "_" and name not in NOT_FOR_AUTHORS:
            assert texts[name], f"nothing says what {found.__name__}.{name} is; its docstring should"
            yield name, _spelt_out(kind, found), texts[name]


def _spelt_out(kind: str, found: type) -> str:
    """A type with its module's aliases resolved."""
    words = _aliases(inspect.getmodule(found))
    while words.keys() & (used := set(re.findall(r"\w+", kind))):
        for name in words.keys() & used:
            kind = re.sub(rf"\b{name}\b", words[name], kind)
    return kind


@functools.cache
def _aliases(module: Any) -> dict[str, str]:
    """Names of types that a module defines only for type checkers, with their definitions."""
    tree = ast.parse(inspect.getsource(module))
    typing = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    made = [node for each in typing for node in each.body if isinstance(node, ast.Assign)]
    aliases = {node.targets[0].id: ast.unparse(node.value) for node in made if isinstance(node.targets[0], ast.Name)}
    plain = {name: re.sub(r"'([A-Z]\w+)'", r"\1", made) for name, made in aliases.items()}
    return {"Text": "str", "Number": "float", **plain}


def _methods(found: type) -> dict[str, Any]:
    """Public methods, including those of bases that are not separate types."""
    methods: dict[str, Any] = {}
    for part in reversed(found.__mro__):
        if part.__module__.startswith("fedplug"):
            for name, member in vars(part).items():
                if inspect.isfunction(member) or isinstance(member, classmethod):
                    methods[name] = member.__func__ if isinstance(member, classmethod) else member
    return {name: each for name, each in methods.items() if name[0] != "_" and name not in NOT_FOR_AUTHORS}


def _call(method: Any, found: type) -> str:
    """A method's parameters with their types, as it is called."""
    signature = inspect.signature(inspect.unwrap(method))
    given = [*signature.parameters.values()][1:]
    # The annotations are strings, which would be shown in quotes.
    plain = [each.replace(annotation=_Shown(_spelt_out(str(each.annotation), found))) for each in given]
    returned = _Shown(_spelt_out(str(signature.return_annotation), found))
    return str(signature.replace(parameters=plain, return_annotation=returned))


class _Shown(str):
    """A type as it is written."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _parts(found: Any) -> dict[str, Any]:
    """A docstring's text under an empty name, and its lists (`Args`, `Attributes`, ...) by entry."""
    text, parts = inspect.getdoc(found) or "", {}
    pieces = re.split(r"^(Args|Attributes|Returns|Raises):\n", text, flags=re.MULTILINE)
    for heading, body in zip(pieces[1::2], pieces[2::2], strict=True):
        listed, after = re.match(r"((?:(?: .*)?\n?)*)(.*)", body, re.DOTALL).groups()  # type: ignore[union-attr]
        pieces[0] += f"\n{after}"
        entries = re.split(r"^    (?=\S)", listed, flags=re.MULTILINE)[1:]
        named = [re.match(r"([\w*]+(?:, [\w*]+)*): (.*)", entry, re.DOTALL) for entry in entries]
        parts[heading] = {
            (match[1] if match else ""): _line_of(match[2] if match else entry)
            for match, entry in zip(named, entries, strict=True)
        }
    paragraphs = [re.sub(r"\s+", " ", each).strip() for each in pieces[0].split("\n\n")]
    return {"": "\n\n".join(filter(None, paragraphs)), **parts}


def _line_of(text: str) -> str:
    return _escaped(re.sub(r"\s+", " ", text).strip())


def _code(kind: str) -> str:
    return f"`{_typed(kind)}`"


def _signature(name: str, member: Any) -> str:
    required = " (must have)" if getattr(member, "__isabstractmethod__", False) else ""
    if not isinstance(member, property) and not callable(member):
        return f"`{name}: {type(member).__name__}`"
    if isinstance(member, property):
        returned = inspect.signature(member.fget).return_annotation if member.fget else ""
        return f"`{name}: {_typed(returned)}`{required}"
    return f"`{name}({', '.join(inspect.signature(member).parameters)})`{required}"


def _typed(annotation: Any) -> str:
    """A type in words: a pipe in a cell of a table reads differently from one site to the next."""
    return str(annotation).replace(" | ", " or ")


def _below(role: type, name: str) -> str:
    """The text under a plain attribute of a class, on one line. Python does not keep such a text as a docstring."""
    body = ast.parse(inspect.getsource(role)).body[0].body  # type: ignore[attr-defined]
    for attribute, text in pairwise(body):
        if isinstance(attribute, ast.AnnAssign) and getattr(attribute.target, "id", "") == name:
            return _line_of(ast.literal_eval(text.value)) if isinstance(text, ast.Expr) else ""
    return ""


def _first(found: Any) -> str:
    """The first paragraph of a docstring, on one line."""
    return _escaped(re.sub(r"\s+", " ", (inspect.getdoc(found) or "").partition("\n\n")[0]))


def _escaped(text: str) -> str:
    return str(text).replace("|", "\\|")


def absent() -> list[str]:
    """Plugins of this repository that are not installed: the reference would lose their pages."""
    projects = DOCS.parent.glob("plugins/*/pyproject.toml")
    named = [tomllib.loads(path.read_text(encoding="utf-8"))["project"]["name"] for path in projects]
    return sorted(name for name in named if not [*distributions(name=name)])


if __name__ == "__main__":
    if lacking := absent():
        sys.exit(f"not installed: {', '.join(lacking)}; `make .venv/.installed-extras` installs all plugins")
    wanted = made()
    for path in sorted({*REFERENCE.rglob("*.md")} - set(wanted)):
        path.unlink()
        print(f"removed {path.relative_to(DOCS)}")
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(DOCS)}")
