"""docs/claims.md: every line has a verdict, a link to its setting and command, and no number that the link lacks."""

from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
NUMBERS = DOCS / "numbers"
FILES = sorted(NUMBERS.glob("claims-*.csv"))
PAPERS = {"paraaegis", "selectiveshield", "sensecrypt", "fas", "fedre"}
COLUMNS = ["claim", "verdict", "here", "the control that decides it", "numbers"]
UNCONFIRMED = "not confirmed in our setting"
MEASURED = {"reproduced", "reproduced in direction", UNCONFIRMED}
VERDICTS = MEASURED | {"not testable here", "not measured"}
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?:e\d+)?")
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)#([^)\s]+)\)")
COMMAND = re.compile(r"^ {4,}(?:\w+=\S+ )*(?:fedplug|python) ", re.MULTILINE)
PLACE = re.compile(r"Sec\.|Table|Fig\.|App\.|eq\.|abstract|Theorem|Remark|not in the paper")
HEADING = re.compile(r"^(#+) (.*)$", re.MULTILINE)

Line = dict[str, str]


def lines() -> list[tuple[str, Line]]:
    found = []
    for path in FILES:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file)
            assert rows.fieldnames == COLUMNS, path.name
            found += [(f"{path.stem}:{number}", row) for number, row in enumerate(rows, 2)]
    return found


LINES = lines()
each_line = pytest.mark.parametrize("line", [line for _, line in LINES], ids=[name for name, _ in LINES])


def section(page: str, anchor: str) -> tuple[str, str]:
    """A section's text with all subsections, and the first text of its enclosing sections."""
    text = (DOCS / page).read_text(encoding="utf-8")
    headings = [(len(found[1]), anchor_of(found[2]), found.start()) for found in HEADING.finditer(text)]
    place = next((place for place, (_, name, _) in enumerate(headings) if name == anchor), None)
    assert place is not None, f"docs/{page} has no heading for #{anchor}"
    level, _, start = headings[place]
    end = next((at for other, _, at in headings[place + 1 :] if other <= level), len(text))
    around = ""
    for before in range(place - 1, -1, -1):
        if headings[before][0] < level:
            level = headings[before][0]
            around += text[headings[before][2] : headings[before + 1][2]]
    return text[start:end], around


def anchor_of(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def numbers_in(text: str) -> set[str]:
    """The numbers of a text, without names of files and options, where digits mean nothing."""
    return set(NUMBER.findall(re.sub(r"`[^`]*`", "", text)))


def strange(line: Line) -> set[str]:
    """The numbers of a line that are in none of its linked sections."""
    known = {
        found for page, anchor in LINK.findall(line["numbers"]) for found in NUMBER.findall(section(page, anchor)[0])
    }
    return numbers_in(f"{line['here']} {line['the control that decides it']}") - known


def test_each_paper_has_its_lines_on_the_page() -> None:
    page = (DOCS / "claims.md").read_text(encoding="utf-8")
    assert {path.stem.removeprefix("claims-") for path in FILES} == PAPERS
    assert all(f"<!-- numbers: claims-{paper} -->" in page for paper in PAPERS)
    assert {verdict for verdict in VERDICTS if f"\n| {verdict} | " in page} == VERDICTS


@pytest.mark.parametrize("paper", sorted(PAPERS))
def test_the_scoreboards_count_the_lines(paper: str) -> None:
    with (NUMBERS / f"claims-{paper}.csv").open(encoding="utf-8", newline="") as file:
        counted = Counter(row["verdict"] for row in csv.DictReader(file))
    kinds = ("reproduced", "reproduced in direction", UNCONFIRMED, "not testable here")
    assert counted.total() == sum(counted[kind] for kind in kinds), "a verdict that the scoreboards do not show"
    row = " | ".join(str(counted[kind]) for kind in kinds)
    head = f"| reproduced | in direction | {UNCONFIRMED} | not testable here |\n| --- | --- | --- | --- |\n"
    assert f"{head}| {row} |\n" in (DOCS / f"papers/{paper}.md").read_text(encoding="utf-8"), row
    assert f"](papers/{paper}.md) | {row} |\n" in (DOCS / "claims.md").read_text(encoding="utf-8"), row


@each_line
def test_a_line_has_a_verdict_a_control_and_a_place_with_its_command(line: Line) -> None:
    assert line["verdict"] in VERDICTS
    assert all(line[column] for column in COLUMNS)
    assert PLACE.search(line["claim"]), "say where in the paper, or that it is not there"
    linked = LINK.findall(line["numbers"])
    assert linked
    texts = ["".join(section(page, anchor)) for page, anchor in linked]
    if line["verdict"] in MEASURED:
        assert COMMAND.search(texts[0]), f"{linked[0]} shows no command that makes the number"
        assert numbers_in(line["here"]), "say what was measured"


@each_line
def test_a_line_quotes_no_number_that_its_source_lacks(line: Line) -> None:
    assert not strange(line)


def test_a_wrong_number_is_noticed() -> None:
    line = next(line for _, line in LINES if "0.619" in line["here"])
    assert strange({**line, "here": line["here"].replace("0.619", "0.629")}) == {"0.629"}
    assert strange({**line, "the control that decides it": "9e9, 17,214.5 and -3"}) == {"9e9", "17,214.5", "-3"}


def test_what_we_would_use_is_what_was_measured() -> None:
    text, _ = section("choosing.md", "what-we-would-use")
    cells = {
        cell.strip()
        for name in ("who-sees-what", "encrypt-or-noise")
        for cell in re.split(r"[,\n]", (NUMBERS / f"{name}.csv").read_text(encoding="utf-8"))
    }
    quoted = {found for found in numbers_in(text) if "." in found}
    assert len(quoted) > 10
    assert quoted <= cells
    assert len(re.findall(r"^    fedplug run recipes/\S+", text, re.MULTILINE)) == 3
