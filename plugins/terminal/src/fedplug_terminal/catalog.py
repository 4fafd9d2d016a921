"""The bodies of `fedplug list`, `show` and `check`."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedplug.api.errors import FedplugError, PluginError, RecipeError, SetupError
from fedplug.recipe.catalog import GROUPS, SECTION, Catalog, Entry, service
from fedplug_runs import functions
from fedplug_runs.docstrings import docstring
from fedplug_runs.hints import near, suggest
from fedplug_runs.installing import install
from fedplug_runs.settings import Settings
from fedplug_runs.trust import may_run, refusal

from fedplug_terminal.as_json import document, problem
from fedplug_terminal.lines import GAP, aligned, documented, tell, width_of

if TYPE_CHECKING:
    from fedplug.recipe.catalog import Own
    from fedplug.recipe.recipe import Recipe
    from pydantic import BaseModel

_ROOM = 50
"""Characters that summaries need next to the other columns of a list."""
_BOUNDS = {
    "exclusiveMinimum": ">", "minimum": ">=", "exclusiveMaximum": "<", "maximum": "<=", "multipleOf": "multiple of",
    "minLength": "length >=", "maxLength": "length <=", "minItems": "items >=", "maxItems": "items <=",
    "pattern": "pattern",
}  # fmt: skip


SYNONYMS = {
    "batchnorm": ("batch norm",), "homomorphic": ("bfv", "ckks", "paillier"), "mia": ("member",),
    "non-iid": ("dirichlet",), "noniid": ("dirichlet",), "normalization": ("batch norm",),
    "optimizer": ("optimiser", "adam", "sgd"), "personalization": ("personal model",),
    "quantization": ("quantised",), "secagg": ("secret shares",), "tabular": ("table",),
}  # fmt: skip
"""What people look for under a word that the documentation does not use."""


def list_components(catalog: Catalog, as_json: bool, verify: bool, words: Sequence[str] = ()) -> int:
    """Prints the components that some words choose (see `chosen`), grouped by hook; without words, all. Gives the exit
    code.

    `verify` also imports every component, whatever the words.

    Raises:
        PluginError: a word chooses nothing.
    """
    said = {(entry.group, entry.name): docstring(entry) for entry in catalog} if words else {}
    entries = chosen(functions.components(catalog=catalog), words, said)
    if as_json:
        print(json.dumps([dataclasses.asdict(entry) for entry in entries], indent=2, ensure_ascii=False))
    else:
        print("\n".join(_table(entries)))
    for own in catalog.not_run.values():
        print(f"note: {_only_read(own)}", file=sys.stderr)
    return _verify(catalog) if verify else 0


def chosen(
    entries: Sequence[functions.ComponentRecord], words: Sequence[str], said: Mapping[tuple[str, str], str]
) -> list[functions.ComponentRecord]:
    """The components that words choose.

    A word is a hook, a plugin (`std` or `fedplug-std`), a part of a name or summary, or the beginning of a word in the
    documentation; other words for the same count too. Of several hooks a component has one, of several plugins
    likewise; all parts must be in it.

    Args:
        entries: to choose from.
        words: as they were given.
        said: the documentation, by group and name.

    Raises:
        PluginError: nothing is left; the message names the word that is to blame, and what may have been meant.
    """
    plugins = {name for word in words if word not in GROUPS for name in (word, f"fedplug-{word}")}
    plugins &= {entry.plugin for entry in entries}
    hooks = {word for word in words if word in GROUPS}
    parts = [word for word in words if word not in GROUPS and not {word, f"fedplug-{word}"} & plugins]

    def speaks(entry: functions.ComponentRecord, word: str) -> bool:
        text = " ".join(said.get((entry.group, entry.name), "").lower().split())
        return any(
            each in f"{entry.name} {entry.summary}".lower() or re.search(rf"\b{re.escape(each)}", text)
            for each in (word.lower(), *SYNONYMS.get(word.lower(), ()))
        )

    for word in parts:
        if not any(speaks(entry, word) for entry in entries):
            nothing = f"{word!r} is not a hook or a plugin, and no component mentions it"
            known = dict.fromkeys([*GROUPS, *(entry.plugin for entry in entries), *(entry.name for entry in entries)])
            raise PluginError(f"{nothing}; {near(word, known) or 'fedplug list shows all'}")
    left = [each for each in entries if (not hooks or each.group in hooks) and (not plugins or each.plugin in plugins)]
    left = [each for each in left if all(speaks(each, word) for word in parts)]
    if words and not left:
        raise PluginError(f"no component is all of {', '.join(words)}; give fewer words")
    return left


def _table(entries: Sequence[functions.ComponentRecord]) -> Iterator[str]:
    """A line for each; in a terminal without room for all columns, below each hook its components and summaries."""
    rows = [(e.group, e.name, e.plugin, e.version, e.summary) for e in entries]
    head = ("hook", "component", "plugin", "version", "summary")
    columns = width_of(sys.stdout)
    widths = [max(map(len, column)) for column in list(zip(head, *rows, strict=True))[:-1]]
    if columns is None or columns - sum(widths) - GAP * len(widths) >= _ROOM:
        yield from aligned(head, rows, columns)
        return
    longest = max((len(entry.name) for entry in entries), default=0)
    for group in dict.fromkeys(entry.group for entry in entries):
        yield _bold(group)
        yield from aligned((), [(f"  {e.name:<{longest}}", e.summary) for e in entries if e.group == group], columns)


def _verify(catalog: Catalog) -> int:
    """Imports every component and every section of recipes; reports what fails, by plugin and cause."""
    from fedplug.recipe.sections import load
    from fedplug_runs.choice import options_class

    failures = [f"{stray}: fedplug has no such group of components" for stray in catalog.strays]
    for entry in (*catalog, *catalog.sections.values()):
        try:
            kind = load(entry) if entry.group == SECTION else entry.load()
        except PluginError as error:
            failures.append(str(error))
            continue
        try:
            if options := options_class(kind):
                options.model_rebuild()
        except Exception as error:  # of pydantic, over an annotation that is none
            failures.append(f"plugin {entry.distribution}: the options of {entry.name} cannot be built: {error}")
    for failure in dict.fromkeys(failures):
        print(failure, file=sys.stderr)
    count = len(list(catalog))
    print(f"{count} components, {len(failures)} problems", file=sys.stderr)
    return 1 if failures else 0


def show_component(catalog: Catalog, name: str, as_json: bool = False) -> int:
    """Prints the documentation, options and origin of a component that is installed, or in a file: `my.py:Thing`. Gives
    the exit code.

    Raises:
        PluginError: there is no component of that name, or it cannot be imported.
    """
    if ".py:" in name:
        from fedplug_runs.own_files import in_file

        entries = in_file(name, catalog.consent)
    else:
        entries = catalog.named(name) or catalog.named(f"std.{name}")
    if not entries:
        from fedplug_runs.shelf import named

        if (recipe := named(name)) is not None:
            onward = f", and fedplug run {name} runs it" if recipe.kind == "recipe" else ""
            raise PluginError(
                f"{name} is a {recipe.kind}, not a component: fedplug recipes {name} shows its text{onward}"
            )
        raise PluginError(f"there is no component {name!r}; {suggest(catalog, None, name)}")
    if as_json:
        print(document("show", components=[_as_plain(entry) for entry in entries]))
        return 0
    classes: dict[type, list[str]] = {}
    if (own := entries[0].own) and not may_run(own):
        _show_head(entries[0], [entry.group for entry in entries], docstring(entries[0]), [("class", entries[0].value)])
        print()
        tell(_only_read(own))
        return 0
    for entry in entries:
        classes.setdefault(entry.load(), []).append(entry.group)
    for component, groups in classes.items():
        entry = next(e for e in entries if e.group == groups[0])
        _show(component, entry, groups)
    return 0


def _as_plain(entry: Entry) -> dict[str, Any]:
    """A component as plain data; of a file that has not run, what its text shows."""
    import inspect

    from fedplug_runs.choice import options_class

    plain: dict[str, Any] = {
        "name": entry.name, "group": entry.group, "plugin": entry.distribution, "version": entry.version,
        "class": entry.value, "documentation": docstring(entry), "options": [], "inner": {},
    }  # fmt: skip
    if entry.own and not may_run(entry.own):
        return plain | {"options": None, "not_run": _only_read(entry.own)}
    component = entry.load()
    kind = options_class(component)
    keys = ("name", "type", "default", "bounds", "meaning")
    return plain | dict(_declared(component)) | {
        "class": entry.value if entry.own else f"{component.__module__}:{component.__qualname__}",
        "documentation": inspect.getdoc(component) or "", "source": _source(component),
        "options": [dict(zip(keys, row, strict=True)) for row in option_rows(kind)] if kind else [],
        "inner": dict(getattr(component, "inner", {})),
    }  # fmt: skip


def _show(component: type, entry: Entry, groups: list[str]) -> None:
    import inspect

    from fedplug_runs.choice import options_class

    columns = width_of(sys.stdout)
    where = entry.value if entry.own else f"{component.__module__}:{component.__qualname__}"
    facts = [("class", where), ("source", _source(component)), *_declared(component)]
    _show_head(entry, groups, inspect.getdoc(component) or "", facts)
    kind = options_class(component)
    rows = [*(option_rows(kind) if kind else []), *inner_rows(component)]
    print()
    if rows:
        print("\n".join(aligned(("option", "type", "default", "bounds", "meaning"), rows, columns)))
    else:
        print("It has no options.")


def _show_head(entry: Entry, groups: Sequence[str], docstring: str, facts: Sequence[tuple[str, str]]) -> None:
    columns = width_of(sys.stdout)
    documentation = documented(docstring or "(no documentation)", columns)
    print(f"{_bold(entry.name)}  ({', '.join(groups)})\n\n{documentation}\n")
    for label, text in (("plugin", f"{entry.distribution} {entry.version}"), *facts):
        print("\n".join(aligned((), [(f"{label + ':':<19}", text)], columns)))


def _only_read(own: Own) -> str:
    """Says of a file that has not run how much that tells."""
    return f"This is what the text of {own.name} shows; its options and all else are known once it runs. {refusal(own)}"


def _bold(text: str) -> str:
    return f"\033[1m{text}\033[0m" if sys.stdout.isatty() and "NO_COLOR" not in os.environ else text


def _declared(component: type) -> list[tuple[str, str]]:
    """What a class declares in its roles, as far as that does not depend on options."""
    from fedplug.api.roles import Component, Finds, Measures, Plans, roles_of
    from fedplug_runs.members import RECORDS

    facts: list[tuple[str, str]] = []
    served = [role for role in roles_of(component) if role is not Component]
    # A sealer is a protector too, which goes without saying.
    served = [role for role in served if not any(role in other.__mro__[1:] for other in served)]
    if served:
        facts.append(("roles", ", ".join(role.__name__ for role in served)))
    for record in map(vars(component).get, RECORDS):
        if isinstance(record, Plans):
            facts.append(("zones", ", ".join(sorted(record.zones))))
        elif isinstance(record, Finds):
            facts.append(("needs of a view", record.needs.describe()))
        elif isinstance(record, Measures):
            facts.append(("conventions", record.conventions))
    if isinstance(site := vars(component).get("site"), str):
        facts.append(("opens at", site))
    return facts


def _source(component: type) -> str:
    import inspect

    try:
        return f"{inspect.getsourcefile(component)}:{inspect.getsourcelines(component)[1]}"
    except (OSError, TypeError):
        return "unknown"


def option_rows(model: type[BaseModel]) -> list[tuple[str, str, str, str, str]]:
    """Name, type, default, bounds and meaning of each option, as text."""
    properties = model.model_json_schema()["properties"] if model.model_fields else {}
    rows = []
    for name, field in model.model_fields.items():
        if field.is_required():
            default = "required"
        else:
            default = _plain(field.get_default(call_default_factory=True, validated_data={}))
        bounds = ", ".join(dict.fromkeys(_bounds(properties[name])))
        rows.append((name, type_text(field.annotation), default, bounds, field.description or ""))
    return rows


def inner_rows(component: type) -> list[tuple[str, str, str, str, str]]:
    """The same of each component within one."""
    inner: dict[str, str] = getattr(component, "inner", {})
    return [(key, f"{group} component", "required", "", "the component within it") for key, group in inner.items()]


def type_text(annotation: Any) -> str:
    """An annotation as people write it: `float | null`, `'a' | 'b'`, `list[int]`."""
    from typing import Annotated, Literal, get_args, get_origin

    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in (None, type(None)):
        return "null"
    if origin is Literal:
        return " | ".join(map(_plain, arguments))
    if origin is Annotated:
        return type_text(arguments[0])
    if origin is not None and isinstance(origin, type) and origin.__name__ not in ("UnionType", "Union"):
        return f"{origin.__name__}[{', '.join('...' if a is ... else type_text(a) for a in arguments)}]"
    if arguments:
        return " | ".join(map(type_text, arguments))
    return getattr(annotation, "__name__", str(annotation))


def _plain(value: Any) -> str:
    return {"None": "null", "True": "true", "False": "false", "inf": ".inf"}.get(repr(value), repr(value))


def _bounds(schema: dict[str, Any]) -> list[str]:
    texts = [f"{sign} {schema[key]}" for key, sign in _BOUNDS.items() if key in schema]
    for part in schema.get("anyOf", []):
        texts += _bounds(part)
    return texts


def check_recipes(
    recipes: Sequence[Path | str], sets: Sequence[str] | None = None, catalog: Catalog | None = None,
    data: Path | None = None, as_json: bool = False, policy: Path | None = None,
) -> int:  # fmt: skip
    """Prints of each recipe that it is well, with its digest, or everything that is wrong, and what could not be
    checked since code of the recipe's own has not run. Gives the exit code: 1 where something is wrong.

    With `data`, a folder of data sets, two rounds of each recipe that is well are tried with a few examples. With
    `policy`, the file of a site, what a recipe breaks of it is a problem.
    """
    problems = 0
    if as_json:
        return _check_as_json(recipes, sets, catalog, data, policy)
    for path in map(Path, recipes):
        try:
            recipe = _checked(path, sets, catalog, policy)
            notes = [*recipe.notes, *_tried(recipe, data, catalog)]
            tell("\n".join([f"{path}: ok ({recipe.digest[:12]})", *(f"note: {note}" for note in notes)]))
        except RecipeError as error:
            lines = [problem for problem in error.problems if problem not in error.not_run]
            problems += len(lines)
            if error.not_run:
                found = "more may be wrong" if lines else "nothing wrong so far"
                lines.append(f"{path}: {found}; what these name, and what depends on it, was not checked:")
            tell("\n".join([*lines, *error.not_run]))
        except FedplugError as error:
            if data is None:
                raise
            problems += 1
            tell(f"{path}: a run would fail: {error}")
    if problems:
        print(f"{problems} problem{'s' if problems > 1 else ''}", file=sys.stderr)
    return 1 if problems else 0


def _checked(path: Path, sets: Sequence[str] | None, catalog: Catalog | None, policy: Path | None) -> Recipe:
    """The recipe.

    Raises:
        RecipeError: something is wrong with it, or the policy of a site would refuse it.
        SetupError: there is no such policy, or fedplug-policy is missing.
    """
    recipe = functions.check(path, sets, catalog=catalog)
    if policy is not None:
        make = service("site_policy")
        if make is None:
            raise SetupError(f"--policy needs fedplug-policy: {install('fedplug-policy')}")
        if reasons := make(policy).beforehand(recipe, Settings.load().data_root):
            raise RecipeError([f"{path}: {policy}, {reason}" for reason in reasons])
    return recipe


def _tried(recipe: Recipe, data: Path | None, catalog: Catalog | None) -> list[str]:
    """What a little of a run shows, with data sets in a folder; without one, the files that a run will miss."""
    from fedplug_runs.fitting import missing_files

    settings = Settings.load()
    if data is None:
        return list(missing_files(recipe, settings.data_root))
    from fedplug_runs.trial import tried

    found = tried(recipe, settings.replace({"data": data}), catalog)
    rounds = "1 round" if found.rounds == 1 else f"{found.rounds} rounds"
    return [*found.notes, f"tried {rounds} with a few examples of each of {found.clients} clients"]


def _check_as_json(
    recipes: Sequence[Path | str], sets: Sequence[str] | None, catalog: Catalog | None, data: Path | None,
    policy: Path | None,
) -> int:  # fmt: skip
    """The same as an object."""
    found: list[dict[str, Any]] = []
    for path in map(Path, recipes):
        try:
            recipe = _checked(path, sets, catalog, policy)
            found.append({"file": str(path), "ok": True, "name": recipe.name, "digest": recipe.digest,
                          "problems": [], "notes": [*recipe.notes, *_tried(recipe, data, catalog)],
                          "not_checked": []})  # fmt: skip
        except RecipeError as error:
            wrong = [problem(each) for each in error.problems if each not in error.not_run]
            found.append({"file": str(path), "ok": not wrong, "name": None, "digest": None, "problems": wrong,
                          "notes": [], "not_checked": [problem(each) for each in error.not_run]})  # fmt: skip
        except FedplugError as error:
            if data is None:
                raise
            wrong = [{"place": str(path), "message": f"a run would fail: {error}"}]
            found.append({"file": str(path), "ok": False, "name": recipe.name, "digest": recipe.digest,
                          "problems": wrong, "notes": [], "not_checked": []})  # fmt: skip
    ok = all(each["ok"] for each in found)
    print(document("check", ok=ok, recipes=found))
    return 0 if ok else 1
