"""Computes the verdicts of docs/claims.md from docs/numbers, by their rules.

    python docs/verdicts.py [ID ...]

Each line of `docs/numbers/claims-PAPER.csv` has an id, and a `setting` that begins with "the paper's" or with "ours".
`docs/numbers/verdicts.csv` has its comparisons: `id, part, left, is, right`. A side is a number, if need be with its
spread ("0.601 ± 0.018"), or `TABLE : ROW : COLUMN`, where ROW gives the first cells of a row, joined by " + ". `#3`
after a column is the third number in the cell. `is` is one of

* <, <=, >, >=: an order of the means. It is *close* if the larger standard deviation is no smaller than the difference;
* ~: equal, within 2% or within the standard deviation of a side. Both sides are ours, or one is known exactly, such as
  a guess;
* as printed: within 2% of the number on the right, which is the paper's, or within the spread that the paper prints.
  Our standard deviation does not count.

`part` is what a comparison is for:

* claim: what the claim says, of our numbers;
* size: our number against the printed one;
* control: what the claim needs of a fair control;
* alternative: what another design, cipher or attack gives. It decides nothing, and tells a reader what to use;
* no table: there is nothing to compare, because `left` says where the number is. A reader applies the rule.

The rules:

* reproduced: claim and control hold in the paper's own setting, none of them closely, and so do the sizes, if the claim
  prints any;
* reproduced in direction: claim and control hold in another setting, closely, or with other sizes;
* refuted: the claim or its control fails in the paper's own setting, and not closely;
* our setting differs: it fails in ours, or closely.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import operator
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

NUMBERS = Path(__file__).parent / "numbers"
PAPERS = ("paraaegis", "selectiveshield", "sensecrypt", "fas", "fedre")
REPRODUCED, DIRECTION, REFUTED = "reproduced", "reproduced in direction", "refuted"
OURS, UNTESTABLE, UNMEASURED = "our setting differs", "not testable here", "not measured"
VERDICTS = (REPRODUCED, DIRECTION, REFUTED, OURS, UNTESTABLE, UNMEASURED)
DECIDED = VERDICTS[:4]
"""Verdicts that follow from comparisons."""
THEIRS, OUR = "the paper's", "ours"
PARTS = ("claim", "size", "control", "alternative", "no table")
DECIDING = ("claim", "control")
_NUMBER = re.compile(r"([-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:e[-+]?\d+)?)(?: ± (\d*\.?\d+))?")
_NEAR = 0.02

Line = dict[str, str]


class WrongComparison(ValueError):
    """A comparison names no number."""


@dataclasses.dataclass(frozen=True)
class Value:
    """A number with its standard deviation, 0 where none is known."""

    number: float
    sd: float = 0.0


def _near(left: Value, right: Value) -> bool:
    return abs(left.number - right.number) <= max(_NEAR * abs(right.number), left.sd, right.sd) + 1e-12


def _as_printed(left: Value, right: Value) -> bool:
    return _near(dataclasses.replace(left, sd=0), right)


def _of_numbers(compare: Callable[[float, float], bool]) -> Callable[[Value, Value], bool]:
    return lambda left, right: compare(left.number, right.number)


_ORDERS: dict[str, Callable[[Value, Value], bool]] = {
    "<": _of_numbers(operator.lt), "<=": _of_numbers(operator.le), ">": _of_numbers(operator.gt),
    ">=": _of_numbers(operator.ge),
}  # fmt: skip
PRINTED = "as printed"
_IS = {"~": _near, PRINTED: _as_printed, **_ORDERS}


@functools.cache
def table(name: str) -> tuple[dict[str, str], ...]:
    """The rows of one file of docs/numbers.

    Raises:
        WrongComparison: there is no such file.
    """
    path = NUMBERS / f"{name}.csv"
    if not path.is_file():
        raise WrongComparison(f"there is no docs/numbers/{name}.csv")
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


def value(said: str) -> Value:
    """A side of a comparison.

    Raises:
        WrongComparison: it is no number, and no cell with one.
    """
    name, *rest = said.split(" : ")
    if not rest:
        return _read(said, 1, said)
    if len(rest) != 2:
        raise WrongComparison(f"{said!r} is not TABLE : ROW : COLUMN")
    row, (column, _, place) = rest[0].split(" + "), rest[1].partition(" #")
    found = [each for each in table(name) if [*each.values()][: len(row)] == row]
    if len(found) != 1:
        raise WrongComparison(f"{said!r} is in {len(found)} rows of docs/numbers/{name}.csv, and must be in one")
    if column not in found[0]:
        raise WrongComparison(f"docs/numbers/{name}.csv has no column {column!r}; it has {', '.join(found[0])}")
    read = _read(found[0][column], int(place or 1), said)
    spread = found[0].get(f"{column} sd")
    return dataclasses.replace(read, sd=float(spread)) if spread else read


def _read(cell: str, place: int, said: str) -> Value:
    numbers = _NUMBER.findall(cell)
    if len(numbers) < place:
        raise WrongComparison(f"{said!r} is {cell!r}, which has no number in place {place}")
    number, sd = numbers[place - 1]
    return Value(float(number.replace(",", "")), float(sd or 0))


def holds(comparison: Line) -> bool:
    """Whether one comparison is true.

    Raises:
        WrongComparison: it names no numbers, or `is` is none of the signs.
    """
    if comparison["is"] not in _IS:
        raise WrongComparison(f"{comparison['id']}: {comparison['is']!r} is none of {', '.join(_IS)}")
    return _IS[comparison["is"]](value(comparison["left"]), value(comparison["right"]))


def close(comparison: Line) -> bool:
    """Whether an order is decided by no more than the spread, so that other seeds may reverse it.

    Raises:
        WrongComparison: it names no numbers.
    """
    left, right = value(comparison["left"]), value(comparison["right"])
    return comparison["is"] in _ORDERS and 0 < abs(left.number - right.number) <= max(left.sd, right.sd) + 1e-12


def verdict(line: Line, comparisons: Sequence[Line]) -> str | None:
    """The verdict that the rules give a line; None where it has nothing to compare.

    Raises:
        WrongComparison: a comparison names no number, or the setting does not say whose it is.
    """
    deciding = [each for each in comparisons if each["part"] in DECIDING]
    if not deciding:
        return None
    theirs = line["setting"].startswith(THEIRS)
    if not theirs and not line["setting"].startswith(OUR):
        raise WrongComparison(f"{line['id']}: setting must begin with {THEIRS!r} or {OUR!r}: {line['setting']!r}")
    if failing := [each for each in deciding if not holds(each)]:
        return REFUTED if theirs and not all(map(close, failing)) else OURS
    sizes = all(holds(each) for each in comparisons if each["part"] == "size")
    return REPRODUCED if theirs and sizes and not any(map(close, deciding)) else DIRECTION


def lines(papers: Iterable[str] = PAPERS) -> list[Line]:
    """The lines of the papers' boards, in their order."""
    return [dict(row) for paper in papers for row in table(f"claims-{paper}")]


def comparisons() -> dict[str, list[Line]]:
    """The comparisons of every line, by its id."""
    found: dict[str, list[Line]] = {}
    for row in table("verdicts"):
        found.setdefault(row["id"], []).append(dict(row))
    return found


def main(asked: Sequence[str]) -> int:
    """Prints each line's verdict with its comparisons; 1 if one differs from the board."""
    by_id, given = {line["id"]: line for line in lines()}, comparisons()
    if unknown := [each for each in asked if each not in by_id]:
        sys.exit(f"no line has the id {', '.join(unknown)}; the ids are {', '.join(by_id)}")
    wrong = 0
    for name in asked or by_id:
        line, compared = by_id[name], given.get(name, [])
        found = verdict(line, compared)
        differs = found is not None and found != line["verdict"]
        wrong += differs
        print(f"{name}: {line['verdict']}{f', BUT THE RULES SAY {found}' if differs else ''}: {line['claim']}")
        for each in compared:
            if each["part"] == "no table":
                print(f"    no table: {each['left']}")
            else:
                left, right = (f"{value(each[side]).number:g}" for side in ("left", "right"))
                says = f"{'holds' if holds(each) else 'fails'}{', closely' if close(each) else ''}"
                print(f"    {each['part']} {says}: {left} {each['is']} {right}   {each['left']}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
