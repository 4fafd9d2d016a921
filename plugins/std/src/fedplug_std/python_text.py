"""Text that comes with Python, for language models without a download."""

from __future__ import annotations

import ast
import sysconfig
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from fedplug import Field

from fedplug_std.datasets import TextOptions, Texts

if TYPE_CHECKING:
    from fedplug import Examples


class PythonText(Texts):
    """Docstrings or source code of Python's own library as bytes, in pieces like `std.text`; needs no download.

    `docstrings` are those of the single modules of the standard library, about 900 kB of English; `code` are the files
    of its packages asyncio, email and unittest, about 1.2 MB. They have no text in common, so one can serve as public
    text and the other as that of clients. They differ slightly between versions of Python, and the digest of a recipe
    does not contain the version.
    """

    class Options(TextOptions):
        """The text, and its cutting."""

        part: Literal["docstrings", "code"] = Field("code", description="which text")

    options: Options

    def pieces(self, root: str | None) -> tuple[Examples, Examples]:
        """Reads the text from the running Python.

        Raises:
            DataError: this Python has no sources, or the context leaves too few pieces.
        """
        from fedplug_std import _dataset_files as files

        chosen = self.options
        library = Path(sysconfig.get_path("stdlib"))
        texts = _docstrings(library) if chosen.part == "docstrings" else _code(library)
        text = b"\n\n".join(filter(None, texts))
        name = f"the {chosen.part} of this Python"
        pieces = files.cut_up(np.frombuffer(text, np.uint8).astype(np.int64), chosen.context, name)
        return files.ends_apart(pieces, chosen.test_fraction)


def _docstrings(library: Path) -> Iterator[bytes]:
    for file in sorted(library.glob("*.py")):
        for node in _statements(ast.parse(file.read_bytes())):
            match node:
                case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                    yield (ast.get_docstring(node) or "").encode()


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """In the order of `ast.walk`, without the expressions, which are most of a tree and have no docstrings."""
    waiting: deque[ast.AST] = deque([tree])
    while waiting:
        node = waiting.popleft()
        within = ast.iter_child_nodes(node)
        waiting.extend(child for child in within if isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)))
        yield node


def _code(library: Path) -> Iterator[bytes]:
    for package in ("asyncio", "email", "unittest"):
        for file in sorted((library / package).glob("*.py")):
            yield file.read_bytes()
