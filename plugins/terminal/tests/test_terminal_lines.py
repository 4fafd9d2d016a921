"""Lines that end between words."""

from __future__ import annotations

import io

import pytest
from fedplug_terminal.lines import aligned, documented, folded, wrapped
from whole_words import Terminal, require_whole_words

DOCUMENT = """Adds noise to every scalar of the update, so that nobody can tell whether one client took part.

Longer sentences follow, of which each continues
on another line.

    rate = clients / registered_clients

Args:
    scale: standard deviation, in units of the update, per coordinate
        and per round.
    seed: of the noise.

* one thing
* another thing that is longer than the first"""


def test_a_terminal_gets_lines_that_end_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    verdict = "✓ the server  epsilon 8.00 for each client; delta 1e-05, add-or-remove one client; replace-one: ε 81.76."
    assert folded(verdict, io.StringIO()) == verdict
    lines = folded(verdict, Terminal()).splitlines()
    assert len(lines) > 2
    assert all(len(line) <= 40 for line in lines)
    assert " ".join(line.strip() for line in lines) == verdict
    assert folded(f"{'x' * 60} y", Terminal()) == f"{'x' * 60}\n  y", "a long word stays in one piece"


def test_a_line_goes_on_further_in() -> None:
    assert wrapped("  one two three", 11) == "  one two\n    three"
    assert wrapped("one two three", 8, "") == "one two\nthree"


def test_documentation_is_filled_anew_and_keeps_its_shape() -> None:
    assert documented(DOCUMENT, None) == documented(DOCUMENT, 200) == DOCUMENT
    narrow = documented(DOCUMENT, 50)
    require_whole_words(narrow, DOCUMENT, 50)
    assert "Longer sentences follow, of which each continues\non another line." in narrow
    assert "\n    rate = clients / registered_clients\n" in narrow
    assert "\n    scale: standard deviation, in units of the\n      update, per coordinate and per round.\n" in narrow
    assert "\n    seed: of the noise.\n\n* one thing\n* another thing that is longer than the first" in narrow


def test_a_table_without_room_becomes_lines() -> None:
    titles, rows = ("option", "type", "meaning"), [("rate", "float", "the share of clients that take part"),
                                                   ("keep", "", "which are kept")]  # fmt: skip
    assert list(aligned(titles, rows, None))[1] == "rate    float  the share of clients that take part"
    assert list(aligned(titles, rows, 42))[1:3] == [
        "rate    float  the share of clients that",
        "               take part",
    ]
    assert "\n".join(aligned(titles, rows, 30)).split("\n") == [
        "rate", "  type: float", "  meaning: the share of", "    clients that take part", "keep",
        "  meaning: which are kept",
    ]  # fmt: skip
