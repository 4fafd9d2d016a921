"""Tables in a terminal that break no word."""

from __future__ import annotations

import io
import sys

import pytest
from display_toys import without_codes
from fedplug_lab.compare import print_table
from fedplug_lab.compare_table import Cell, Column
from fedplug_lab.terminal import Rows, Whole
from rich.console import Console
from rich.text import Text
from whole_words import require_whole_words

TITLES = ("trial", "accuracy", "epsilon_aggregator", "negotiate_mask.ratio", "protect.noised.1.noise_multiplier")
ROWS = [("3", "0.911", "4.2", "0.35", "1.0625"), ("17", "0.874", "2.9", "", "2.125")]


def _drawn(rows: Rows, width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(rows, crop=False)
    return out.getvalue()


@pytest.mark.parametrize("width", [30, 60, 80, 120])
def test_no_width_breaks_a_word(width: int) -> None:
    shown = _drawn(Rows(TITLES, [[*map(Text, row)] for row in ROWS], right=range(5)), width)
    require_whole_words(shown.replace(":", ""), " ".join([*TITLES, *(cell for row in ROWS for cell in row)]), width)
    if width == 120:
        assert len(shown.splitlines()) == 3
    if width == 60:
        assert shown.startswith("trial: 3\n  accuracy: 0.911\n  epsilon_aggregator: 4.2\n  negotiate_mask.ratio: 0")
        assert shown.count("negotiate_mask.ratio") == 1, "an empty cell has no line"


def test_columns_are_as_wide_as_words_need_and_there_is_room_for() -> None:
    rows = Rows(("a", "b"), [[Text("x"), Text("a sentence of several words that is long")]])
    assert rows.widths(100) == [1, 40]
    assert rows.widths(24) == [1, 21]
    assert rows.widths(10) is None
    assert Rows(("a", "b"), rows.rows, most=15).widths(100) == [1, 15]
    drawn = _drawn(rows, 24).splitlines()
    assert drawn[1].rstrip() == "x  a sentence of several"
    assert all(len(line) <= 24 for line in drawn)


def test_a_long_word_stays_in_one_piece() -> None:
    out = io.StringIO()
    Console(file=out, width=20).print(Whole(Text(f"page: {'x' * 40} and so on"), "  "), crop=False)
    assert out.getvalue().split("\n") == ["page:", f"  {'x' * 40}", "  and so on", ""]


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_a_comparison(width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    names = ["paraaegis-dynamic", "bfv-threshold-of-seven-clients", "secagg"]
    table = [
        Column("name", "protocol", [Cell(name, {}) for name in names]),
        Column("epsilon", "toward the server", [Cell(text, {}) for text in ("no guarantee", "ε 8", "ε 3")], "privacy"),
    ]
    print_table(table)
    source = " ".join([*names, "toward the server no guarantee 8 3"])
    require_whole_words(without_codes(capsys.readouterr().out), source, width)
