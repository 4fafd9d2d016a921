"""The numbers of one protocol as a comparison states them, by name: one meaning of a name in all commands."""

from __future__ import annotations

from typing import NamedTuple

from fedplug_lab.compare_table import Column, columns
from fedplug_lab.compared import Compared
from fedplug_lab.words import VIEWS

BYTES = ("bytes_up", "bytes_down", "bytes_key_server")
"""What `bytes` is the sum of: all messages, all ways."""
EPSILONS = {f"epsilon_{view}": title for view, title in VIEWS.items()}
"""The names of the epsilons of single views, and whose view each is."""


class Stated(NamedTuple):
    """A number of a protocol: over its runs, as in the table of a comparison.

    Attributes:
        value: None where its runs state none.
        why: in that case, why not.
        prices: of an epsilon, the zones that it prices where that is not everything.
    """

    value: float | None
    why: str = ""
    prices: str = ""


def numbers_of(each: Compared) -> dict[str, Stated]:
    """Every number of the table of a comparison, by the name of its column in `compare.csv`; and `bytes`, their sum.

    Means are over the runs; of epsilons and of memory it is the largest. Where one run states none, there is none: a
    mean over the others would leave out those that failed.
    """
    found = {column.key: _stated(column, len(each.runs)) for column in columns([each], each) if not column.text}
    found.pop("difference", None)
    found["bytes"] = Stated(sum(found[way].value or 0.0 for way in BYTES if way in found))
    return found


def _stated(column: Column, runs: int) -> Stated:
    (cell,) = column.cells
    if cell.values.get("n", runs) < runs:
        return Stated(None, f"{runs - cell.values['n']} of its {runs} runs states none")
    value = cell.values.get("mean", cell.values.get(""))
    return Stated(value, "" if value is not None else cell.why or cell.note, str(cell.values.get("prices", "")))
