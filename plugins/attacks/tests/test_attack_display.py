"""What a person sees while attacks run: a line a target in logs, a picture in a terminal."""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from display_toys import Clock, look_at_stdout, picture, without_codes
from fedplug_attacks.workshop.display import AttackDisplay, LiveAttackDisplay, make_attack_display
from fedplug_attacks.workshop.words import target_line
from rich.console import Console
from target_toys import NAIVE, a_summary_row, a_target, an_attack_summary, an_outcome

RUN = Path("runs/a b")
COMMAND = "fedplug attack 'runs/a b'"
LINE = ("toy.copy-server-round1-client3-probe8.1: adaptive success, MSE 1.25e-06 (mean image 0.080), 700 ms; "
        "naive failed, MSE 0.212 (mean image 0.080), 500 ms")  # fmt: skip


@pytest.fixture
def live(out: io.StringIO, clock: Clock) -> LiveAttackDisplay:
    return LiveAttackDisplay(Console(file=out, force_terminal=True, width=120, height=30), clock, refresh=0)


def test_plain_prints_one_line_a_finished_target(out: io.StringIO) -> None:
    display = AttackDisplay(out)
    display.start(2, {"run": RUN, "adversaries": "server, client"})
    display.skipped("toy.copy-a")
    for form in ("adaptive", "naive"):
        display.target(a_target().key, form, 2, 2)
        for done in range(1000):
            display.progress(done, 1000, 0.5)
    display.target_done(a_target())
    assert out.getvalue().splitlines() == [
        "2 targets, run runs/a b, adversaries server, client", "toy.copy-a: finished before", f"[2/2] {LINE}",
    ]  # fmt: skip


def test_a_target_that_did_not_apply_says_why() -> None:
    result = a_target(forms={"adaptive": an_outcome("not_applicable", "the bias is encrypted")})
    assert target_line(result).endswith("probe8.1: adaptive not applicable: the bias is encrypted, 0 ms")
    assert target_line(a_target(forms={}, key="one")) == "one: no form was tried"


def test_a_diverged_number_is_no_number() -> None:
    diverged = an_outcome("diverged", "the loss became NaN", metrics={"mse": None})
    line = target_line(a_target(forms={"naive": diverged}))
    assert line.endswith("naive diverged, MSE – (mean image 0.080): the loss became NaN, 0 ms")


def test_the_end_is_a_table_a_conclusion_and_the_paths(out: io.StringIO) -> None:
    AttackDisplay(out).finish(an_attack_summary(), RUN / "attacks", [RUN / "report.html"])
    header, row, conclusion, *paths = out.getvalue().splitlines()
    assert header.split("  ")[0] == "who"
    what = "the images behind one step on 8 examples, round 1"
    assert [cell.strip() for cell in row.split("  ") if cell.strip()] == [
        "the server", what, "4 of 5 targets, MSE 1.50e-06", "MSE 0.080 (mean image)", "succeeded"
    ]  # fmt: skip
    found = "The server found the images behind one step on 8 examples (4 of 5 targets, MSE 1.50e-06)."
    assert conclusion.startswith(found)
    assert paths == ["attacks folder: runs/a b/attacks", "report: runs/a b/report.html"]


def test_forms_that_came_to_the_same_are_told_once() -> None:
    hidden = {form: an_outcome("not_applicable", "all is hidden") for form in ("adaptive", "naive")}
    assert target_line(a_target(forms=hidden)).endswith("adaptive and naive not applicable: all is hidden, 0 ms")


def test_an_interruption_says_what_is_kept_and_how_to_go_on(out: io.StringIO, live: LiveAttackDisplay) -> None:
    for display in (AttackDisplay(out), live):
        display.interrupted(3, 10, RUN / "attacks", COMMAND)
        text = without_codes(out.getvalue())
        assert "Interrupted; 3 of 10 targets are finished and kept in runs/a b/attacks." in text
        assert text.rstrip().endswith(COMMAND)
        out.truncate(0)
        out.seek(0)


def test_quiet_prints_warnings_and_the_end_only(out: io.StringIO) -> None:
    display = AttackDisplay(out, quiet=True)
    display.start(1, {})
    display.skipped("a")
    display.target("a", "naive", 1, 1)
    display.target_done(a_target())
    assert out.getvalue() == ""
    display.note("no picture")
    display.finish(an_attack_summary(), RUN, [RUN / "report.html"])
    assert out.getvalue().startswith("note: no picture\n")
    assert "4 of 5 targets" in out.getvalue()


def test_pipes_get_lines_and_terminals_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of the two it is, is decided as for a run."""
    look_at_stdout(monkeypatch)
    assert isinstance(make_attack_display(quiet=False), LiveAttackDisplay)
    assert not isinstance(make_attack_display(quiet=True), LiveAttackDisplay)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert not isinstance(make_attack_display(quiet=False), LiveAttackDisplay)


def test_live_shows_the_target_the_form_the_step_and_the_loss(live: LiveAttackDisplay) -> None:
    live.start(4, {"adversaries": "server [red]x"})
    live.target("toy.copy-server-round1-client3", "naive", 2, 4)
    assert "naive" in picture(live)
    live.progress(30, 300, 0.12345)
    shown = picture(live)
    assert "toy.copy-server-round1-client3" in shown
    assert "30 of 300 steps, loss 0.123" in shown
    live.progress(2, 2, None)
    assert "2 of 2 steps" in picture(live)
    assert "loss" not in picture(live)
    live.target("toy.copy-server-round1-client3", "adaptive", 2, 4)
    assert "adaptive" in picture(live)
    assert "steps" not in picture(live)
    live.close()


def test_live_expects_the_end_from_finished_targets(live: LiveAttackDisplay, clock: Clock) -> None:
    live.start(4, {})
    live.skipped("a")
    assert live.pace.left() is None
    live.target("b", "naive", 2, 4)
    clock.now += 6
    live.progress(1, 2, 0.5)
    assert live.pace.left() == pytest.approx(6 + 2 * 12)  # half of the second of four targets took six seconds
    clock.now += 4
    live.target_done(a_target(key="b"))
    live.target("c", "naive", 3, 4)
    shown = picture(live)
    assert "target 3 of 4" in shown
    assert "0:10 so far, about 0:20 left" in shown
    live.close()


def test_live_leaves_a_line_for_each_target_and_ends_with_summary_and_paths(
    live: LiveAttackDisplay, out: io.StringIO
) -> None:
    live.start(1, {})
    live.target(a_target().key, "naive", 1, 1)
    live.note("a picture [x] is left out")
    live.target_done(a_target(key="toy [bold]"))
    long = RUN / ("x" * 200) / "report.html"
    live.finish(an_attack_summary(a_summary_row(), a_summary_row(**NAIVE)), RUN / "attacks", [long])
    live.close()
    text = without_codes(out.getvalue())
    assert "a picture [x] is left out" in text
    assert "■ toy [bold]: adaptive success, MSE 1.25e-06" in text
    assert "succeeded" in text
    assert "4 of 5 targets" in " ".join(text.split())
    assert f"report: {long}\n" in text


def test_progress_thousands_of_times_a_second_draws_nothing(live: LiveAttackDisplay, out: io.StringIO) -> None:
    live.start(1, {})
    live.target("a", "naive", 1, 1)
    drawn, began = len(out.getvalue()), time.process_time()
    for done in range(20_000):
        live.progress(done, 20_000, 1.0)
    assert time.process_time() - began < 1
    assert len(out.getvalue()) == drawn
    live.close()


@pytest.mark.parametrize("width", [30, 40, 61, 68, 200])
def test_live_fits_terminals_of_any_width(width: int, live: LiveAttackDisplay, clock: Clock) -> None:
    small: Any = LiveAttackDisplay(Console(file=io.StringIO(), force_terminal=True, width=width), clock, refresh=0)
    small.start(3, {})
    small.target("k" * 100, "adaptive", 1, 3)
    small.progress(5, 10, 1.0)
    clock.now += 5
    assert all(len(line) <= width for line in picture(small, width).splitlines())
    assert "target" in picture(small, width)
    small.close()
