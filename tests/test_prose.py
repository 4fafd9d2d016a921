"""The prose of pages keeps to docs/prose.md, as far as a program can tell."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path
    for pattern in ("README.md", "CONTRIBUTING.md", "docs/**/*.md", "plugins/*/README.md")
    for path in ROOT.glob(pattern)
    if "reference" not in path.parts and path.name not in ("prose.md", "licences.md")
)  # fmt: skip
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


def problems(text: str) -> list[str]:
    """The violations of the rules, each with its line."""
    found = []
    for number, said in prose(text):
        for rule, remedy in RULES.items():
            for hit in re.finditer(rule, said, re.IGNORECASE):
                found.append(f"line {number}: {hit[0].strip()[:60]!r}: {remedy}")
        if not said.startswith("|"):
            for sentence in re.split(r"(?<=[.!?:]) +(?=[A-Z`*\[(])", said):
                if (words := sum("`x`" not in word for word in sentence.split())) > LONGEST:
                    found.append(f"line {number}: {words} words: {sentence[:60]!r}: split it")
    return found


NOT_YET = {
    "docs/architecture.md", "docs/attacking.md", "docs/attacks-measured.md", "docs/beside-other-projects.md",
    "docs/cluster.md", "docs/data.md", "docs/evidence.md", "docs/federation.md", "docs/recipes.md", "docs/searching.md",
    "plugins/attacks/README.md",
}  # fmt: skip
"""Pages that are still to be rewritten; one that keeps the rules has to leave this list."""


@pytest.mark.parametrize("page", PAGES, ids=[path.relative_to(ROOT).as_posix() for path in PAGES])
def test_prose(page: Path) -> None:
    found, name = problems(page.read_text(encoding="utf-8")), page.relative_to(ROOT).as_posix()
    if name in NOT_YET:
        assert found, f"{name} keeps the rules: take it from NOT_YET"
        pytest.skip(f"{len(found)} places of {name} are still to be rewritten")
    assert not found, "\n".join(found)


@pytest.mark.parametrize("wrong", [
    "It stands beside the table.", "Whoever holds it reads it.", "It has noise of its own.", "a; b; c",
    "That is what it does.", " ".join(["word"] * 46) + ".",
])  # fmt: skip
def test_the_rules_find_what_they_are_for(wrong: str) -> None:
    assert problems(wrong)


def test_code_and_numbers_are_left_alone() -> None:
    numbers = "<!-- numbers: x -->\nbeside\n<!-- end of numbers -->\n"
    assert not problems(f"Run `beside`.\n\n```text\nstands; a; b\n```\n\n{numbers}")
