"""What a person sees of a sweep: where the run is in a terminal, and a line a run in a log."""

from __future__ import annotations

import io

from fedplug_lab.study import SweepWatch


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_where_the_run_is() -> None:
    out = Terminal()
    watch = SweepWatch(out, "1/2 tau=1", 10, quiet=False)
    watch.phase(3, "train", 1, 20)
    watch.note("client 3 dropped out")
    watch.result("accuracy 0.5")
    assert "1/2 tau=1  round 3 of 10, train" in out.getvalue()
    assert "\r\x1b[K1/2 tau=1  note: client 3 dropped out\n" in out.getvalue()
    assert out.getvalue().endswith("\r\x1b[K1/2 tau=1: accuracy 0.5\n")


def test_a_log_has_a_line_a_run_and_quiet_shows_notes_and_failures_only() -> None:
    out = io.StringIO()
    watch = SweepWatch(out, "1/2 tau=1", 10, quiet=False)
    for _ in range(100):
        watch.phase(3, "train", 1, 20)
    watch.note("a note")
    watch.result("accuracy 0.5")
    assert out.getvalue() == "1/2 tau=1\n  note: a note\n1/2 tau=1: accuracy 0.5\n"
    quiet = io.StringIO()
    watch = SweepWatch(quiet, "2/2 tau=2", 10, quiet=True)
    watch.result("accuracy 0.5")
    watch.note("a note")
    watch.result("failed: boom", always=True)
    assert quiet.getvalue() == "2/2 tau=2  note: a note\n2/2 tau=2: failed: boom\n"
