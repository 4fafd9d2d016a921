"""The prose of pages, and of Python sources, keeps to docs/prose.md, as far as a program can tell."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WRITTEN = sorted(
    path
    for pattern in ("README.md", "CONTRIBUTING.md", "docs/**/*.md", "plugins/*/README.md")
    for path in ROOT.glob(pattern)
    if "reference" not in path.parts and path.name != "licences.md"
)  # fmt: skip
"""Pages that people write; programs write the others."""
PAGES = [path for path in WRITTEN if path.name != "prose.md"]
"""Pages that keep the rules. The page of the rules quotes mistakes."""
EVIDENCE = re.compile(r"docs/(papers/.*|edges/.*|claims|costs|results|attacks-measured)\.md")
LONGEST_PAGE = 2_000
"""Words of a page, except those of Evidence, on which readers look things up."""
ALL_PAGES = 40_000
"""Words of all pages that people write. To add some, delete others."""
RULES = {
    r"\bbeside\b(?!-)": "write: next to, with, compared with, in addition to",
    r"\bwho(so)?ever\b": "write: anyone who, the party that",
    r"\bstands?\b": "write: is, appears, means",
    r"\bof (its|their|your|one's|his|her) own\b": "write: its own X, a separate X, another X",
    r"\bwhat (came|comes|became) of\b": "write: the result",
    r"\b(comes|came|come) to (?!(an?|the|be) )": "write: is, totals, reaches",
    r"\bwhat (it|that|this|they|each|a \w+) (is|are|does|do|did|was|were)\b(?=[.,;:]|$)": "name the thing",
    r"(^|[,;] )(measured|tested|done|tried), and otherwise\b": "write a whole clause",
    r"[^.|:]*;[^.|]*;[^.|]*": "one semicolon a sentence at most: split it",
}  # fmt: skip
LONGEST = 45
"""Most words in a sentence. The style asks for 20; this limit catches only clear violations."""
_LEFT = ("<!-- numbers: ", "<!-- end of numbers -->")


def prose(text: str) -> list[tuple[int, str]]:
    """Line number and text of each paragraph, without code, tables of numbers, comments, links' targets."""
    for pattern in (r"<!-- numbers: .*?<!-- end of numbers -->", r"```.*?```", r"<!--.*?-->", r"<[^>]+>"):
        text = re.sub(pattern, lambda found: "\n" * found[0].count("\n"), text, flags=re.DOTALL)
    found: list[tuple[int, str]] = []
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        if line.startswith("    ") and (number == 1 or not lines[number - 2].strip()):
            continue
        said = re.sub(r"`[^`]*`", "`x`", re.sub(r"\]\([^)]*\)", "]", line)).strip()
        begins = not said or said.startswith(("#", "|", "*", "-", "1.", "2.", "3.", "4.", "5.", "6.", "7.", "8."))
        if not begins and found and found[-1][1] and not found[-1][1].startswith(("#", "|")):
            found[-1] = (found[-1][0], f"{found[-1][1]} {said}")
        else:
            found.append((number, said))
    return [(number, said) for number, said in found if said]


def words(text: str) -> int:
    """The words of a page's paragraphs, headings and tables. Code in a line counts as one word."""
    return sum(bool(re.search(r"\w", word)) for _, said in prose(text) for word in said.split())


SEMICOLONS = r"[^.|:]*;[^.|]*;[^.|]*"
"""The one rule that other strings than docstrings are free of: semicolons end lines of CSS and join facts in tables."""


def hits(rule: str, said: str) -> list[re.Match[str]]:
    """What a rule finds. The rule on semicolons would take long in texts that do not have two."""
    if rule == SEMICOLONS and said.count(";") < 2:
        return []
    return [*re.finditer(rule, said, re.IGNORECASE)]


def problems(text: str) -> list[str]:
    """The violations of the rules, each with its line."""
    found = []
    for number, said in prose(text):
        for rule, remedy in RULES.items():
            for hit in hits(rule, said):
                found.append(f"line {number}: {hit[0].strip()[:60]!r}: {remedy}")
        if not said.startswith("|"):
            for sentence in re.split(r"(?<=[.!?:]) +(?=[A-Z`*\[(])", said):
                if (words := sum("`x`" not in word for word in sentence.split())) > LONGEST:
                    found.append(f"line {number}: {words} words: {sentence[:60]!r}: split it")
    return found


def id_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=id_of)
def test_prose(page: Path) -> None:
    found = problems(page.read_text(encoding="utf-8"))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("page", [path for path in WRITTEN if not EVIDENCE.fullmatch(id_of(path))], ids=id_of)
def test_no_page_is_too_long(page: Path) -> None:
    found = words(page.read_text(encoding="utf-8"))
    assert found <= LONGEST_PAGE, f"{id_of(page)} has {found} words; a page has at most {LONGEST_PAGE}: cut or split it"


def test_all_pages_together_are_not_too_long() -> None:
    counts = {id_of(path): words(path.read_text(encoding="utf-8")) for path in WRITTEN}
    longest = sorted(counts, key=lambda page: -counts[page])[:5]
    total = sum(counts.values())
    assert total <= ALL_PAGES, f"{total} words, at most {ALL_PAGES}; the longest are {longest}: cut what helps least"


def test_words_are_counted_without_code_numbers_and_comments() -> None:
    numbers = "<!-- numbers: x -->\n| 1 | 2 |\n<!-- end of numbers -->\n"
    text = f"# Two words\n\n<!-- no -->\n```text\nnot these\n```\n\n    nor this\n\n| one | [two](x.md) |\n\n{numbers}"
    assert words(text) == 4


@pytest.mark.parametrize("wrong", [
    "It stands beside the table.", "Whoever holds it reads it.", "It has noise of its own.", "a; b; c",
    "That is what it does.", " ".join(["word"] * 46) + ".",
])  # fmt: skip
def test_the_rules_find_what_they_are_for(wrong: str) -> None:
    assert problems(wrong)


def test_code_and_numbers_are_left_alone() -> None:
    numbers = "<!-- numbers: x -->\nbeside\n<!-- end of numbers -->\n"
    assert not problems(f"Run `beside`.\n\n```text\nstands; a; b\n```\n\n{numbers}")


# ---- Python sources: docstrings, comments, messages

FOLDERS = (
    "core/fedplug", "plugins/audit", "plugins/baselines", "plugins/evidence", "plugins/fas", "plugins/fedre",
    "plugins/flower", "plugins/kit", "plugins/lab", "plugins/nvflare", "plugins/paraaegis", "plugins/party",
    "plugins/ray", "plugins/search", "plugins/secagg", "plugins/selectiveshield", "plugins/sensecrypt",
    "plugins/threshold", "plugins/trackers", "plugins-contrib", "release",
)  # fmt: skip
"""Folders whose Python sources keep the rules."""
OF_PYTHON = {
    r"\bwhat (\S+ ){1,5}(came|comes|come) to\b": "write: the result, the outcome, the total",
}


def said_in(source: str) -> Iterator[tuple[int, str, bool]]:
    """Line number and text of each docstring, string and comment, and whether it is prose for certain."""
    tree = ast.parse(source)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "`x`" for part in node.values]
            yield node.lineno, "".join(map(str, parts)), False
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            around = parents[node]
            if not isinstance(around, ast.JoinedStr):
                yield node.lineno, node.value, isinstance(around, ast.Expr)
    block: list[str] = []
    begun = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if block and token.start[0] != last + 1:
                yield begun, " ".join(block), True
                block = []
            begun = begun if block else token.start[0]
            block.append(token.string.lstrip("#: "))
            last = token.start[0]
    if block:
        yield begun, " ".join(block), True


def problems_in_python(source: str) -> list[str]:
    """What the rules find in a source, each with its line."""
    found = []
    for number, text, certain in said_in(source):
        if not certain and " " not in text.strip():
            continue  # a name, a key
        for paragraph in re.split(r"\n\s*\n|\n(?=\s*[\w.*, ]+: |\s*[*-] )", text):
            said = " ".join(re.sub(r"`[^`]*`", "`x`", paragraph).split())
            for rule, remedy in (RULES | OF_PYTHON).items():
                if rule == SEMICOLONS and not certain:
                    continue
                for hit in hits(rule, said):
                    found.append(f"line {number}: {hit[0].strip()[:60]!r}: {remedy}")
    return found


SOURCES = sorted(
    path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py*") if path.suffix in (".py", ".pyi")
)


@pytest.mark.parametrize("file", SOURCES, ids=[path.relative_to(ROOT).as_posix() for path in SOURCES])
def test_prose_of_python(file: Path) -> None:
    found = problems_in_python(file.read_text(encoding="utf-8"))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("wrong", [
    '"""It stands here."""', "x = 1  # of its own", 'raise ValueError(f"{x} lies beside {y}")', "# one;\n# two; three",
    'print("whoever reads " "this")',
])  # fmt: skip
def test_the_rules_find_what_python_sources_say(wrong: str) -> None:
    assert problems_in_python(wrong)


def test_names_and_code_in_python_sources_are_left_alone() -> None:
    source = 'beside = stands["beside"]\n# The key `stands` of a recipe.\nCSS = "a: 1; b: 2; c: 3"\n'
    assert not problems_in_python(source)
