"""docs/claims.md: every line has a verdict that follows from docs/numbers by its rule, a setting, seeds, a link to its
command, and no number that the link lacks.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from scripts import script

DOCS = Path(__file__).parent.parent / "docs"
NUMBERS = DOCS / "numbers"
FILES = sorted(NUMBERS.glob("claims-*.csv"))
PAPERS = {"paraaegis", "selectiveshield", "sensecrypt", "fas", "fedre"}
CONTROL = "control or alternative"
COLUMNS = ["id", "claim", "verdict", "here", CONTROL, "setting", "seeds", "numbers"]
RULES = script(DOCS / "verdicts.py")
MEASURED, VERDICTS = set(RULES.DECIDED), set(RULES.VERDICTS)
WITHOUT_TABLE: set[str] = set()
"""Lines whose numbers are in no file, so that a reader applies the rule."""
OF_PRINTED_NUMBERS = {"F9"}
"""Lines that the paper's own numbers decide, so that no table of ours can change them."""
EXACT = {"0.5", "1"}
"""Numbers that are known exactly, in comparisons by `~`: the AUC of a guess, the Rand index of the true clusters."""
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
    return numbers_in(f"{line['here']} {line[CONTROL]}") - known


def test_each_paper_has_its_lines_on_the_page() -> None:
    page = (DOCS / "claims.md").read_text(encoding="utf-8")
    assert {path.stem.removeprefix("claims-") for path in FILES} == PAPERS
    assert all(f"<!-- numbers: claims-{paper} -->" in page for paper in PAPERS)
    assert {verdict for verdict in VERDICTS if f"\n| {verdict} | " in page} == VERDICTS


@pytest.mark.parametrize("paper", sorted(PAPERS))
def test_the_scoreboards_count_the_lines(paper: str) -> None:
    with (NUMBERS / f"claims-{paper}.csv").open(encoding="utf-8", newline="") as file:
        counted = Counter(row["verdict"] for row in csv.DictReader(file))
    assert set(counted) <= VERDICTS
    row = " | ".join(str(counted[kind]) for kind in RULES.VERDICTS)
    head = f"| {' | '.join(RULES.VERDICTS).replace('reproduced in ', 'in ')} |\n{'| --- ' * len(RULES.VERDICTS)}|\n"
    assert f"{head}| {row} |\n" in (DOCS / f"papers/{paper}.md").read_text(encoding="utf-8"), row
    assert f"](papers/{paper}.md) | {row} |\n" in (DOCS / "claims.md").read_text(encoding="utf-8"), row


def test_verdicts_follow_from_the_numbers() -> None:
    given, wrong = RULES.comparisons(), []
    for line in RULES.lines():
        found = RULES.verdict(line, given.get(line["id"], []))
        if found is None:
            assert line["verdict"] not in MEASURED or line["id"] in WITHOUT_TABLE, line["id"]
        elif found != line["verdict"]:
            wrong.append(f"{line['id']}: {line['verdict']}; by the rules {found}")
    assert not wrong


def test_comparisons_are_of_lines_and_of_known_parts() -> None:
    known, given = {line["id"] for line in RULES.lines()}, RULES.comparisons()
    assert len(known) == len(LINES), "an id is there twice"
    assert set(given) <= known
    rows = [row for of_line in given.values() for row in of_line]
    assert {row["part"] for row in rows} <= set(RULES.PARTS)
    assert {row["id"] for row in rows if row["part"] == "no table"} == WITHOUT_TABLE


def line_of(setting: str) -> Line:
    return {"id": "X1", "setting": setting}


def compared(*signs: tuple[str, str, str, str]) -> list[Line]:
    return [dict(zip(("id", "part", "left", "is", "right"), ("X1", *each), strict=True)) for each in signs]


CLOSE = ("paraaegis-table1 : static 0.5 : iid", "paraaegis-table1 : static 0.2 : iid")
"""0.943 ± 0.006 and 0.939 ± 0.006."""


@pytest.mark.parametrize(("setting", "rows", "expected"), [
    ("the paper's", [("claim", "2", ">", "1")], "reproduced"),
    ("the paper's", [("claim", "2", ">", "1"), ("size", "1.01", "as printed", "1")], "reproduced"),
    ("the paper's", [("claim", "2", ">", "1"), ("size", "1.03", "as printed", "1")], "reproduced in direction"),
    ("the paper's", [("claim", "2", ">", "1"), ("size", "1.03", "as printed", "1 ± 0.03")], "reproduced"),
    ("the paper's", [("claim", CLOSE[0], ">", CLOSE[1])], "reproduced in direction"),
    ("the paper's", [("claim", "2", ">", "1"), ("alternative", "8", "<=", "1")], "reproduced"),
    ("ours: digits", [("claim", "2", ">", "1"), ("size", "1", "as printed", "1")], "reproduced in direction"),
    ("the paper's", [("claim", "2", "<", "1")], "refuted"),
    ("the paper's", [("claim", "2", ">", "1"), ("control", "8", "<=", "1")], "refuted"),
    ("the paper's", [("claim", CLOSE[0], "<", CLOSE[1])], "our setting differs"),
    ("ours: digits", [("claim", "2", ">", "1"), ("control", "8", "<=", "1")], "our setting differs"),
    ("ours: digits", [("no table", "in the text", "", ""), ("alternative", "2", ">", "1")], None),
    ("ours: digits", [], None),
])  # fmt: skip
def test_the_rules(setting: str, rows: list[tuple[str, str, str, str]], expected: str | None) -> None:
    assert RULES.verdict(line_of(setting), compared(*rows)) == expected


def test_a_printed_number_is_not_reached_by_our_own_spread() -> None:
    ours = "selectiveshield-ilrg-tau : 0.01 : encrypted %"  # 28.2 ± 4.9, printed 28.64
    assert RULES.holds(compared(("size", ours, "as printed", "28.64"))[0])
    assert RULES.holds(compared(("claim", ours, "~", "33"))[0])
    assert not RULES.holds(compared(("size", ours, "as printed", "33"))[0])


def test_sizes_are_of_printed_numbers_and_equality_is_of_ours_or_of_exact_ones() -> None:
    for rows in RULES.comparisons().values():
        for row in rows:
            assert row["part"] != "size" or row["is"] == RULES.PRINTED, row
            if row["is"] == "~":
                assert all(" : " in row[side] or row[side] in EXACT for side in ("left", "right")), row


def decided() -> list[tuple[Line, list[Line]]]:
    given = RULES.comparisons()
    return [(line, given[line["id"]]) for line in RULES.lines() if line["verdict"] in MEASURED]


def test_a_verdict_has_a_control() -> None:
    for line, rows in decided():
        parts = {row["part"] for row in rows}
        if line["verdict"] in (RULES.REPRODUCED, RULES.REFUTED):
            assert "control" in parts, line["id"]
        elif line["verdict"] == RULES.DIRECTION and not line[CONTROL].startswith("none is needed"):
            assert parts & {"control", "alternative"}, f"{line['id']}: {line[CONTROL]}"


def test_a_line_that_the_spread_decides_says_so() -> None:
    for line, rows in decided():
        if any(RULES.close(row) for row in rows if row["part"] in RULES.DECIDING):
            assert "within the spread" in line["here"] + line[CONTROL], line["id"]


def with_numbers(cells: dict[str, float]) -> Callable[[str], Sequence[Line]]:
    """docs/numbers with other numbers in some cells, which have no spread then."""
    table = RULES.table

    def other(asked: str) -> Sequence[Line]:
        rows = [dict(each) for each in table(asked)]
        for cell, number in cells.items():
            name, row, column = cell.split(" : ")
            column, first = column.partition(" #")[0], row.split(" + ")
            for each in rows if name == asked else []:
                if [*each.values()][: len(first)] == first:
                    each.update({column: " / ".join([str(number)] * 3), f"{column} sd": ""})
        return rows

    return other


def turned(rows: list[Line]) -> list[dict[str, float]]:
    """Changes of cells: those that make all failing comparisons true, or, where none fails, one for each false one."""
    away = {"<": -1e6, "<=": -1e6, ">": 1e6, ">=": 1e6, "~": 0.0, RULES.PRINTED: 0.0}
    failing = [row for row in rows if not RULES.holds(row)]
    found = []
    for row in failing or rows:
        cell, other, sign = (row["left"], row["right"], 1) if " : " in row["left"] else (row["right"], row["left"], -1)
        if " : " in cell:
            by = away[row["is"]] if failing else -away[row["is"]] or 1e6
            found.append({cell: RULES.value(other).number + sign * by})
    return [{cell: number for each in found for cell, number in each.items()}] if failing else found


def test_a_changed_number_changes_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    unmoved = set()
    for line, rows in decided():
        for cells in turned([row for row in rows if row["part"] in RULES.DECIDING]):
            with monkeypatch.context() as patched:
                patched.setattr(RULES, "table", with_numbers(cells))
                if RULES.verdict(line, rows) == line["verdict"]:
                    unmoved.add(line["id"])
    assert unmoved == OF_PRINTED_NUMBERS


def test_a_side_is_a_number_or_one_cell() -> None:
    share = RULES.value("fas-digits : 10% : accuracy without noise")
    assert (share.number, share.sd) == (0.932, 0.011), "the column of standard deviations belongs to the number"
    least_mean = "sensecrypt-figure8 : 1 + SenseCrypt : naive #2"
    assert (RULES.value(least_mean).number, RULES.value(least_mean).sd) == (0.53, 0.11)
    assert RULES.value("-1.5e3").number == -1500
    assert RULES.value("17,214.75").number == 17214.75


@pytest.mark.parametrize(("side", "message"), [
    ("no-such-table : a : b", "there is no docs/numbers/no-such-table.csv"),
    ("fas-digits : 11% : MB up", "is in 0 rows"),
    ("fas-digits : 10% : MB", "has no column 'MB'; it has share encrypted"),
    ("fas-digits : 10%", "is not TABLE : ROW : COLUMN"),
    ("fas-table2 : homomorphism: largest error of a sum : `fas.scramble`", "has no number in place 1"),
])  # fmt: skip
def test_a_side_that_is_no_number_is_refused(side: str, message: str) -> None:
    with pytest.raises(RULES.WrongComparison, match=re.escape(message)):
        RULES.value(side)


def test_near_is_two_percent_or_the_spread() -> None:
    assert RULES.holds(compared(("claim", "1.019", "~", "1"))[0])
    assert not RULES.holds(compared(("claim", "1.03", "~", "1"))[0])
    spread = "negotiation : ParaAegis' ballots on Fisher information, under the clients' key : server, most classes"
    assert RULES.holds(compared(("claim", spread, "~", "0.5"))[0]), "0.55 ± 0.08"
    with pytest.raises(RULES.WrongComparison, match="none of ~, as printed, <"):
        RULES.holds(compared(("claim", "1", "=", "1"))[0])


def test_a_verdict_that_the_numbers_do_not_give_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert RULES.main(["P1", "S9"]) == 0
    assert "control holds: 0.619 > 0.189" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="no line has the id P99"):
        RULES.main(["P99"])


def test_the_accounts_are_those_of_the_ledger() -> None:
    accounts = script(DOCS.parent / "benchmarks/claim_accounts.py")
    with (NUMBERS / "epsilon-accounts.csv").open(encoding="utf-8", newline="") as file:
        assert [*csv.DictReader(file)] == accounts.rows()
    with (NUMBERS / "who-sees-what.csv").open(encoding="utf-8", newline="") as file:
        ledger = {row["protocol"]: row["epsilon of the server's view"] for row in csv.DictReader(file)}
    found = [row["the server's view"] for row in accounts.rows()[:2]]
    assert found == [ledger["paraaegis-key-server"], ledger["dp-fedavg"]]


@each_line
def test_a_line_has_a_verdict_a_control_and_a_place_with_its_command(line: Line) -> None:
    assert line["verdict"] in VERDICTS
    assert all(line[column] for column in COLUMNS)
    assert PLACE.search(line["claim"]), "say where in the paper, or that it is not there"
    linked = LINK.findall(line["numbers"])
    assert linked
    texts = ["".join(section(page, anchor)) for page, anchor in linked]
    if line["verdict"] == RULES.UNMEASURED:
        assert COMMAND.search(texts[0]), f"{linked[0]} shows no command that would measure it"
    if line["verdict"] in MEASURED:
        assert line["setting"].startswith((RULES.THEIRS, RULES.OUR))
        assert line["seeds"] != "–"
        assert COMMAND.search(texts[0]), f"{linked[0]} shows no command that makes the number"
        assert numbers_in(line["here"]), "say what was measured"


@each_line
def test_a_line_quotes_no_number_that_its_source_lacks(line: Line) -> None:
    assert not strange(line)


def test_a_wrong_number_is_noticed() -> None:
    line = next(line for _, line in LINES if "0.619" in line["here"])
    assert strange({**line, "here": line["here"].replace("0.619", "0.629")}) == {"0.629"}
    assert strange({**line, CONTROL: "9e9, 17,214.5 and -3"}) == {"9e9", "17,214.5", "-3"}


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
