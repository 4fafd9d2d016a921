"""YAML text to plain data with positions (`fedplug.recipe.source`), and back.

Scalars follow the YAML 1.2 core rules: `1e-5` is a number, `on`, `off`, `yes` and `no` are text, `010` is ten.
Duplicate keys, tags and keys that are not text are refused.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

import yaml
from fedplug.api.errors import SetupError
from fedplug.recipe.source import LONGEST, MOST_BITS, KeyPath, Marks, Position, Problem, Source, too_long

_MAX_VALUES = 100_000  # aliases can make a small file expand without bound


def _core_rules(owner: type[yaml.SafeLoader] | type[yaml.SafeDumper]) -> None:
    """Gives a loader or dumper the scalar rules of the YAML 1.2 core schema."""
    for tag, pattern, first in (
        ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
        ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
        ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
        ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
         list("-+.0123456789")),
    ):  # fmt: skip
        owner.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"^(?:{pattern})$"), first)


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = {}  # noqa: RUF012  # PyYAML's own are those of YAML 1.1, where `off` is False


class _Dumper(yaml.SafeDumper):
    yaml_implicit_resolvers = {}  # noqa: RUF012

    def ignore_aliases(self, data: Any) -> bool:
        return True


_core_rules(_Loader)
_core_rules(_Dumper)


def dump(data: Any) -> str:
    """YAML text that `read_text` gives back unchanged. (`yaml.safe_dump` would write the text "1e5" without quotes.)"""
    # Not allow_unicode: PyYAML then leaves line separators such as U+0085 bare, and reads them back as blanks.
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=120)


def read_text(text: str, origin: str, in_file: bool = True) -> Source:
    """Reads YAML text. `in_file=False` leaves lines and columns out of positions (for `--set`)."""
    source = Source(origin, None)

    def position(mark: yaml.Mark | None) -> Position:
        return Position(origin, mark.line + 1, mark.column + 1) if in_file and mark else Position(origin)

    try:
        node = _known_node(text) if len(text) <= _SHORT else _node(text)
    except yaml.MarkedYAMLError as error:
        details = ", ".join(filter(None, [error.problem, error.context, error.note]))
        if "'\\t'" in details:
            details = "a tab cannot indent in YAML; write spaces in its place"
        source.problems.append(Problem(position(error.problem_mark or error.context_mark), f"not YAML: {details}"))
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        mark = Position(origin, before.count("\n") + 1, error.position - before.rfind("\n")) if in_file else None
        source.problems.append(Problem(mark or Position(origin), f"not YAML: {error.reason}"))
    except RecursionError:
        source.problems.append(Problem(Position(origin), "nested too deeply"))
    else:
        if node is not None:
            _Reading(source, position).document(node)
    source.marks.setdefault((), Marks(Position(origin, int(in_file), 1), Position(origin, int(in_file), 1)))
    return source


def _node(text: str) -> yaml.Node | None:
    return _Loader(text).get_single_node()


_SHORT = 20_000
_known_node = functools.lru_cache(maxsize=64)(_node)
"""The same of a text that may have been read before: each combination of a grid reads the same files, and PyYAML takes
longer than all checks of what it reads. Nobody changes a node.
"""


def use_of(given: str | Mapping[str, Any], what: str) -> tuple[str, dict[str, Any]]:
    """The name of a component and its options, from `NAME` or `{use: NAME, option: value}`, as text or as a mapping.

    Raises:
        SetupError: it is neither; names `what`, which it was given for.
    """
    text = isinstance(given, str) and given.lstrip().startswith("{")
    use: Any = read_text(str(given), what, in_file=False).data if text else given
    if isinstance(use, str) and use:
        return use, {}
    if not isinstance(use, Mapping) or not isinstance(use.get("use"), str):
        raise SetupError(f"{what}={given!r} must be the name of a component, or {{use: NAME, option: value}}")
    return use["use"], {str(key): value for key, value in use.items() if key != "use"}


class _Reading:
    """One pass over the nodes of a document."""

    def __init__(self, source: Source, position: Any) -> None:
        self.source, self.position, self.count = source, position, 0
        self.open: list[yaml.Node] = []

    def document(self, node: yaml.Node) -> None:
        at = self.position(node.start_mark)
        self.source.marks[()] = Marks(at, at)
        try:
            self.source.data = self.value(node, ())
        except _TooLarge:
            self.complain(node, f"the recipe expands to more than {_MAX_VALUES} values; use fewer aliases")

    def complain(self, node: yaml.Node, message: str) -> None:
        self.source.problems.append(Problem(self.position(node.start_mark), message))

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        self.count += 1
        if self.count > _MAX_VALUES:
            raise _TooLarge
        if any(node is outer for outer in self.open):
            self.complain(node, "an alias refers to the value that contains it")
            return None
        self.open.append(node)
        try:
            if isinstance(node, yaml.MappingNode):
                return self.mapping(node, path)
            if isinstance(node, yaml.SequenceNode):
                return self.sequence(node, path)
            return self.scalar(node)
        finally:
            self.open.pop()

    def mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        if node.tag != "tag:yaml.org,2002:map":
            self.complain(node, f"the tag {node.tag} is not supported; write a plain mapping")
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self.scalar(key_node) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                shown = repr(key_node.value) if isinstance(key_node, yaml.ScalarNode) else "a list or mapping"
                self.complain(key_node, f"a key must be text, not {shown}; write it in quotes")
            elif key == "<<":
                self.complain(key_node, "merge keys (<<) are not supported; repeat the lines, or use extends")
            elif key in result:
                first = self.source.marks[(*path, key)].key
                self.complain(key_node, f"duplicate key {key!r}, first given at {first}; remove one of the two")
            else:
                # Marked before the value is read, so that complaints about the value can point here.
                at = self.position(key_node.start_mark), self.position(value_node.start_mark)
                self.source.marks[(*path, key)] = Marks(*at)
                result[key] = self.value(value_node, (*path, key))
        return result

    def sequence(self, node: yaml.SequenceNode, path: KeyPath) -> list[Any]:
        if node.tag != "tag:yaml.org,2002:seq":
            self.complain(node, f"the tag {node.tag} is not supported; write a plain list")
        result = []
        for index, item in enumerate(node.value):
            at = self.position(item.start_mark)
            self.source.marks[(*path, index)] = Marks(at, at)
            result.append(self.value(item, (*path, index)))
        return result

    def scalar(self, node: yaml.Node) -> Any:
        kind, text = node.tag.removeprefix("tag:yaml.org,2002:"), node.value
        try:
            if kind == "str":
                return text
            if kind == "null":
                return None
            if kind == "bool":
                return {"true": True, "false": False}[text.lower()]
            if kind == "int":
                # Python reads no decimal number of more than 4,300 digits.
                value = int(text, {"0o": 8, "0x": 16}.get(text[:2], 10)) if len(text) <= 100 else 1 << MOST_BITS
                if too_long(value):
                    self.complain(node, f"{text[:40]}{'...' * (len(text) > 40)}: {LONGEST}")
                    return None
                return value
            if kind == "float":
                # Python writes infinity and not-a-number without the dot.
                return float(re.sub(r"^([-+]?)\.(?=[infaINFA])", r"\1", text))
        except (ValueError, KeyError):
            self.complain(node, f"{text[:40]!r} cannot be read as {kind}")
            return None
        self.complain(node, f"the tag {node.tag} is not supported; write plain text, numbers, lists and mappings")
        return None


class _TooLarge(Exception):
    """The document has more values than any recipe."""
