"""Reads Python files of a job without running them: calls with the values of their arguments, and classes of models."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedplug.api.errors import SetupError


class Unknown(Exception):
    """The value of an expression does not follow from the text."""


_CASTS: dict[str, Any] = {"float": float, "int": int, "str": str, "bool": bool}
_CONFIG = "run_config"
"""Flower's name for what the app's pyproject.toml configures."""


class Source:
    """A Python file as a tree.

    Args:
        path: the file.
        config: what `context.run_config` holds in it, or `args` of a command line.

    Raises:
        SetupError: it cannot be read, or is not Python.
    """

    def __init__(self, path: Path, config: Mapping[str, Any] | None = None) -> None:
        self.path, self.config = path, config or {}
        try:
            self.tree = ast.parse(path.read_text(encoding="utf-8"), path.name)
        except SyntaxError as error:
            raise SetupError(f"{path}:{error.lineno}: it is not Python: {error.msg}") from error
        except (OSError, ValueError, RecursionError, MemoryError) as error:
            raise SetupError(f"{path} cannot be read: {error or 'it is nested too deeply'}") from error
        self._assigned: dict[str, list[ast.AST]] = {}
        self._set = set[str]()  # attributes that the file sets itself, such as those of args
        for node in ast.walk(self.tree):
            for name, value in _bound(node):
                self._assigned.setdefault(name, []).append(value)
            if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
                self._set.add(node.attr)
        self._only_if: dict[ast.AST, list[tuple[ast.expr, bool]]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.If | ast.IfExp) and "__name__" not in ast.unparse(node.test):
                for branch, wanted in ((node.body, True), (node.orelse, False)):
                    for child in branch if isinstance(branch, list) else [branch]:
                        for each in ast.walk(child):
                            self._only_if.setdefault(each, []).append((node.test, wanted))

    def calls(self, *names: str) -> Iterator[tuple[str, ast.Call]]:
        """Calls of functions and classes with these names, however they were imported, in the order of the lines;
        without those under a condition that does not hold.
        """
        every = (node for node in ast.walk(self.tree) if isinstance(node, ast.Call))
        found = [call for call in every if self.condition(call) is not None]
        for call in sorted(found, key=lambda node: (node.lineno, node.col_offset)):
            if (name := called(call)) in names:
                yield name, call

    def condition(self, node: ast.AST) -> str | None:
        """What has to hold for a node to run, as text: empty where that is known, None where it is known not to."""
        unknown = []
        for test, wanted in self._only_if.get(node, []):
            try:
                holds = bool(self.value(test))
            except Unknown:
                unknown.append(ast.unparse(test) if wanted else f"not ({ast.unparse(test)})")
                continue
            if holds != wanted:
                return None
        return " and ".join(unknown)

    def imports(self, *packages: str) -> list[str]:
        """Those packages that it imports from."""
        found = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.partition(".")[0])
        return [package for package in packages if package in found]

    def defaults(self) -> dict[str, Any]:
        """The defaults of options that argparse is told: `add_argument("--noise", default=1.0)`."""
        found = {}
        for _, call in self.calls("add_argument"):
            default = self.arguments(call, ()).get("default")
            names = [node.value for node in call.args if isinstance(node, ast.Constant) and isinstance(node.value, str)]
            if default is not None and (name := next((name for name in names if name.startswith("--")), None)):
                with contextlib.suppress(Unknown):
                    found[name[2:].replace("-", "_")] = self.value(default)
        return found

    def modules(self) -> list[str]:
        """Classes of torch modules at the top of the file."""
        return [
            node.name for node in self.tree.body
            if isinstance(node, ast.ClassDef) and any(_named(base) == "Module" for base in node.bases)
        ]  # fmt: skip

    def arguments(self, call: ast.Call, positional: Sequence[str]) -> dict[str, ast.expr]:
        """The arguments of a call by name."""
        given = dict(zip(positional, call.args, strict=False))
        return {**given, **{keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}}

    def value(self, node: ast.expr) -> Any:
        """What an expression gives: constants, names that are assigned once, arithmetic, and the app's configuration.

        Raises:
            Unknown: it follows from more than that, or from itself.
        """
        try:
            return self._value(node)
        except RecursionError:
            raise Unknown(ast.unparse(node)) from None

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value):
                return value
            case ast.Name():
                return self.value(self.assigned(node))
            case ast.List(elements) | ast.Tuple(elements):
                return [self.value(element) for element in elements]
            case ast.UnaryOp(ast.USub(), operand):
                return -self.value(operand)
            case ast.BinOp(left, operator, right):
                return _computed(operator, self.value(left), self.value(right))
            case ast.Call(ast.Name(name), [argument], []) if name in _CASTS:
                return _cast(_CASTS[name], self.value(argument))
            case ast.Attribute(ast.Name("args"), name) if name not in self._set:
                return self._configured(name)
            case ast.Subscript(of, key) if self._is_config(of):
                return self._configured(self.value(key))
            case ast.Call(ast.Attribute(of, "get"), [key, *_], []) if self._is_config(of):
                name = self.value(key)
                if name not in self.config and len(node.args) > 1:
                    return self.value(node.args[1])
                return self._configured(name)
        raise Unknown(ast.unparse(node))

    def assigned(self, node: ast.expr) -> ast.expr:
        """What a name stands for, if it is assigned once; another expression as it is.

        Raises:
            Unknown: it is assigned elsewhere, or several times, or to itself.
        """
        seen = set[str]()
        while isinstance(node, ast.Name):
            values = self._assigned.get(node.id, [])
            if node.id in seen or len({ast.dump(value) for value in values}) != 1:
                raise Unknown(node.id)
            seen.add(node.id)
            (value, *_) = values
            if not isinstance(value, ast.expr):  # an argument, an import, a loop
                raise Unknown(node.id)
            node = value
        return node

    def _is_config(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Attribute):
            return node.attr == _CONFIG
        try:
            return isinstance(node, ast.Name) and self._is_config(self.assigned(node))
        except Unknown:
            return False

    def _configured(self, name: Any) -> Any:
        if name not in self.config:
            raise Unknown(f"{_CONFIG}[{name!r}]")
        return self.config[name]


def _bound(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """The names that a node binds, each with what it is then: the value of a plain assignment, or the node itself where
    a loop, an argument, `+=` or the like decides.
    """
    match node:
        case ast.Assign(targets, value):
            yield from ((target.id, value) for target in targets if isinstance(target, ast.Name))
            parts = (part for target in targets if not isinstance(target, ast.Name) for part in ast.walk(target))
            yield from ((part.id, node) for part in parts if isinstance(part, ast.Name))
        case ast.AnnAssign(ast.Name(name), _, ast.expr() as value):
            yield name, value
        case ast.arg(name) | ast.ExceptHandler(_, str() as name) | ast.MatchAs(_, str() as name):
            yield name, node
        case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
            yield name, node
        case ast.AugAssign(target) | ast.For(target) | ast.AsyncFor(target) | ast.NamedExpr(target):
            yield from ((part.id, node) for part in ast.walk(target) if isinstance(part, ast.Name))
        case ast.comprehension(target):
            yield from ((part.id, node) for part in ast.walk(target) if isinstance(part, ast.Name))
        case ast.withitem(_, ast.expr() as target):
            yield from ((part.id, node) for part in ast.walk(target) if isinstance(part, ast.Name))
        case ast.Delete(targets):
            yield from ((target.id, node) for target in targets if isinstance(target, ast.Name))
        case ast.Import(aliases) | ast.ImportFrom(_, aliases):
            yield from ((alias.asname or alias.name.partition(".")[0], node) for alias in aliases)


def called(call: ast.Call) -> str:
    """The last part of the name of what is called."""
    return _named(call.func)


def _named(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _cast(kind: Any, value: Any) -> Any:
    try:
        return kind(value)
    except (TypeError, ValueError) as error:
        raise Unknown(f"{kind.__name__}({value!r})") from error


def _computed(operator: ast.operator, left: Any, right: Any) -> Any:
    if not all(isinstance(each, int | float) and abs(each) < 2**63 for each in (left, right)):
        raise Unknown(f"{left!r} and {right!r}")
    try:
        match operator:
            case ast.Add():
                return left + right
            case ast.Sub():
                return left - right
            case ast.Mult():
                return left * right
            case ast.Div():
                return left / right
            case ast.FloorDiv():
                return left // right
            case ast.Pow() if abs(right) < 1000:
                return float(left) ** right
    except (ArithmeticError, ValueError) as error:
        raise Unknown(f"{left!r} and {right!r}") from error
    raise Unknown(type(operator).__name__)


def models(folder: Path, base: Path, name_of: Callable[[Path, Path], str]) -> list[dict[str, Any]]:
    """Uses of the classes of torch modules in the files of a folder; files that are not Python have none."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        try:
            source = Source(path)
        except SetupError:
            continue
        found += [{"use": f"{name_of(path, base)}:{name}"} for name in source.modules()]
    return found
