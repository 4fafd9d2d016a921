"""What a person sees during a run: plain lines, and what every display says of a row.

A `Display` hears the events of a run. One that draws in a terminal comes from a plugin (`fedplug.runs.shown`).
"""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TextIO, TypeVar

from fedplug.api import units
from fedplug.api.data import ACCURACY, Figure
from fedplug.api.events import Event, Events, Note, ReplyArrived, RowComplete, RunFinished, RunStarted, RunStopped
from fedplug.api.rows import Row
from fedplug.api.verdict import Verdict
from fedplug.api.verdict_words import BRIEF, number
from fedplug.console.lines import folded

T = TypeVar("T")
_FEW_GROUPS = 6


def grouped_title(row: Row) -> str:
    """Title of the mean over groups of the figure that leads, on test data like their clients' own."""
    return f"{row.leads.name} in groups"


class Display(Protocol):
    """Receives the progress of a protocol. Every round number is 1-based."""

    def start(self, plan: Sequence[tuple[str, str, str]], facts: Mapping[str, Any]) -> None:
        """Before anything runs: the plan as (hook, component, what it does here), and facts about the run.

        All facts are shown; `rounds`, how many are planned, is also what the expected end is reckoned from.
        """

    def phase(self, round: int, phase: str, done: int, total: int) -> None:
        """`done` of `total` parties have finished this phase. Cheap; may be called thousands of times a second."""

    def round_done(self, row: Row) -> None:
        """The complete metrics of a round; may come after the next round's first phases."""

    def note(self, text: str) -> None:
        """A warning that should stay visible, such as a client that dropped out."""

    def finish(self, rows: Sequence[Row], verdict: Verdict, pages: Sequence[Path], run_dir: Path) -> None:
        """The run is complete; `pages` show it."""

    def interrupted(self, round: int, run_dir: Path) -> None:
        """The run was stopped; says how to continue. `round` is the last round in the checkpoint, 0 if none is."""

    def close(self) -> None:
        """Gives the terminal back. May be called more than once, also after an error."""


def show(display: Display, events: Events) -> None:
    """Has a display show what happens from here on."""
    rounds = 0

    def hear(event: Event) -> None:
        nonlocal rounds
        match event:
            case RunStarted(plan=plan, facts=facts):
                rounds = int(facts["rounds"])
                display.start(plan, facts)
            case ReplyArrived():  # what comes behind the last round counts as of it
                display.phase(min(event.round + 1, rounds), event.phase, event.answered, event.asked)
            case RowComplete(row=row):
                display.round_done(row)
            case Note(text=text):
                display.note(text)
            case RunStopped(error=None):
                display.interrupted(event.round, event.folder)
            case RunFinished():
                display.finish(event.rows, event.verdict, sorted(event.folder.glob("*.html")), event.folder)

    for kind in (RunStarted, ReplyArrived, RowComplete, Note, RunStopped, RunFinished):
        events.subscribe(kind, hear)


class PlainDisplay:
    """One line a round, flushed at once: for logs, pipes and continuous integration."""

    def __init__(self, stream: TextIO, quiet: bool = False) -> None:
        self._stream = stream
        self._quiet = quiet
        self._rounds: Any = None

    def start(self, plan: Sequence[tuple[str, str, str]], facts: Mapping[str, Any]) -> None:
        self._rounds = facts.get("rounds")
        if self._quiet:
            return
        self._print(", ".join(f"{key} {value}" for key, value in facts.items()))
        widths = [max((len(step[i]) for step in plan), default=0) for i in (0, 1)]
        for hook, component, text in plan:
            self._print(f"  {hook:<{widths[0]}}  {component:<{widths[1]}}  {text}".rstrip())

    def phase(self, round: int, phase: str, done: int, total: int) -> None:
        """A log needs no line for this."""

    def round_done(self, row: Row) -> None:
        if not self._quiet:
            of = f"/{self._rounds}" if self._rounds else ""
            self._print("  ".join([f"round {row.round}{of}", *filled(row)]))

    def note(self, text: str) -> None:
        self._print(f"note: {text}")

    def finish(self, rows: Sequence[Row], verdict: Verdict, pages: Sequence[Path], run_dir: Path) -> None:
        for label, value in totals(rows).items():
            self._print(f"{label}: {value}")
        for line in verdict.text():
            self._print(folded(line, self._stream))
        self._print(f"run folder: {run_dir}")
        for page in pages:
            self._print(f"{page.stem}: {page}")

    def interrupted(self, round: int, run_dir: Path) -> None:
        self._print(f"{interruption(round)} To continue: {resume_command(run_dir)}")

    def close(self) -> None:
        self._stream.flush()

    def _print(self, line: str) -> None:
        say(self._stream, line)


class LinesDisplay(PlainDisplay):
    """For scripts and notebooks: a line for the run, one a round; where it is quiet, only warnings."""

    def start(self, plan: Sequence[tuple[str, str, str]], facts: Mapping[str, Any]) -> None:
        self._rounds = facts.get("rounds")
        if not self._quiet:
            self._print(", ".join(f"{key} {value}" for key, value in facts.items()))

    def finish(self, rows: Sequence[Row], verdict: Verdict, pages: Sequence[Path], run_dir: Path) -> None:
        """The returned run has the results."""

    def interrupted(self, round: int, run_dir: Path) -> None:
        self._print(f"{interruption(round)} To continue: fedplug.resume({str(run_dir)!r})")


def say(stream: TextIO, text: str, end: str = "\n") -> None:
    """Prints at once. A log in another encoding than UTF-8 must not end a run at a sign that it cannot hold.

    Nor must a reader such as `head` that has seen enough: later output is discarded.
    """
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        print(text.encode(encoding, "replace").decode(encoding), end=end, file=stream, flush=True)
    except BrokenPipeError:
        with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())
            unread = "nobody reads the standard output any more; the run continues, and its folder has everything"
            print(f"note: {unread}", file=sys.stderr)


def columns(row: Row) -> dict[str, str]:
    """Title and text of each column of a row; a dash where the row has no number."""
    attended = row.clients
    personal, tuned, groups = units.spread(row.of_personal), units.spread(row.tuned), row.of_groups
    return {
        # Where groups have a model each, what counts is how each does on what its clients have.
        **({grouped_title(row): units.number(math.fsum(groups.values()) / len(groups))} if groups else {}),
        **{
            _on_all(row) if groups and title == row.leads.name else title: units.number(value)
            for title, value in row.judged.items()
        },
        "personal mean": units.number(personal[1] if personal else None),
        "fine-tuned mean": units.number(tuned[1] if tuned else None),
        "loss": units.number(row.loss),
        "HE": units.percent(row.sealed_share),
        "up": units.size(row.bytes.up.total),
        "down": units.size(row.bytes.down.total),
        "epsilon": epsilon_of(row),
        "clients": f"{attended.answered}/{attended.asked}",
        "time": units.duration(row.wall_seconds),
        "simulated": units.duration(row.simulated_seconds),
    }


def _on_all(row: Row) -> str:
    return "on all classes" if row.leads == ACCURACY else f"{row.leads.name} on all"


def _title_on_all(row: Row) -> str:
    return "accuracy on all classes" if row.leads == ACCURACY else _on_all(row)


def _of_personal(row: Row) -> dict[int, float]:
    return row.of_personal


def _tuned(row: Row) -> dict[int, float]:
    return row.tuned


def spread_words(known: tuple[float, float, float], leads: Figure) -> str:
    """Mean over clients, and from the worst of them to the best: `0.700 (0.500 to 0.900)`; the largest RMSE first."""
    low, mean, high = map(units.number, known)
    worst, best = (low, high) if leads.better == "higher" else (high, low)
    return f"{mean} ({worst} to {best})"


def epsilon_of(row: Row) -> str:
    """The largest epsilon that is stated for anybody so far, and for how many nothing is: `8.00 (server; none for 3)`.

    `2.00 (each record)` where a component's account of another unit says more. A dash where nothing was released.
    """
    stated = {BRIEF.get(party, party): value for party, value in row.view_epsilons.items()}
    levels = {} if any(stated.values()) else {f"each {level}": value for level, value in row.level_epsilons.items()}
    stated |= levels
    if not stated:
        return "no guarantee" if row.unprotected else units.NOTHING
    who, most = max(stated.items(), key=lambda one: one[1])
    # Toward all parties alike, only what is no epsilon of a client has to be named.
    named = [who] if row.unprotected or who in levels else []
    without = [f"none for {len(row.unprotected)}"] if row.unprotected else []
    return number(most) + (f" ({'; '.join([*named, *without])})" if named else "")


def filled(row: Row) -> list[str]:
    """Title and text of each column in which a row has a number."""
    return [f"{title} {text}" for title, text in columns(row).items() if text != units.NOTHING]


def cells(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Title -> a text for each row, in the order of the columns; a dash where a row has no number."""
    given = [columns(row) for row in rows]
    # A round that nobody evaluated has no figures; their columns are where other rounds have them.
    titles = dict.fromkeys(title for named in sorted(given, key=len, reverse=True) for title in named)
    return {title: [named.get(title, units.NOTHING) for named in given] for title in titles}


def thin_out(rows: Sequence[T], most: int, always: int | None = None) -> list[T]:
    """At most `most` rows, evenly spread, with the first and the last among them; and that at the index `always`."""
    if len(rows) <= most:
        return list(rows)
    kept = {round(i * (len(rows) - 1) / (most - 1)) for i in range(most)}
    return [rows[i] for i in sorted(kept | ({always} if always is not None else set()))]


def totals(rows: Sequence[Row]) -> dict[str, str]:
    """The results of a whole run: accuracy, bytes, time. Its privacy is in the verdict."""
    result = {"rounds": str(len(rows))}
    if grouped := [row for row in rows if row.of_groups]:
        result[grouped_title(grouped[-1])] = in_groups(grouped[-1])
    if measured := [row for row in rows if row.leading is not None and not math.isnan(row.leading)]:
        best, last = best_of(measured), measured[-1]
        title = _title_on_all(last) if grouped else last.leads.name
        final = units.number(last.leading) + (f" {last.leads.unit}" if last.leads.unit else "")
        result[title] = f"{final} (best {units.number(best.leading)} after round {best.round})"
    for name, value in next((row.judged for row in reversed(rows) if row.figures), {}).items():
        if name != rows[-1].leads.name:
            result[name] = units.number(value)
    for title, read in (("personal mean", _of_personal), ("fine-tuned mean", _tuned)):
        if known := [found for row in rows if (found := units.spread(read(row)))]:
            result[title] = spread_words(known[-1], rows[-1].leads)
    if clusters := next((row.clusters for row in reversed(rows) if row.clusters), {}):
        each = ", ".join(f"{name} {units.number(value)}" for name, value in clusters.items())
        result[f"{rows[-1].leads.name} by cluster"] = each
    result["bytes"] = sent(rows)
    result["time"] = units.duration(units.total(row.wall_seconds for row in rows))
    if simulated := [row.simulated_seconds for row in rows if row.simulated_seconds is not None]:
        result["simulated time"] = f"{units.duration(units.total(simulated))} on the devices that the recipe describes"
    return result


def best_of(rows: Sequence[Row]) -> Row:
    """The row whose leading figure is the best; of several the first."""

    def worth(row: Row) -> float:
        known = row.leading
        if known is None or math.isnan(known):
            return -math.inf
        return known if row.leads.better == "higher" else -known

    return max(rows, key=worth)


def in_groups(row: Row) -> str:
    """How each group's model does on test data like its clients' own; of many groups the ends."""
    means = row.of_groups
    low, mean, high = map(units.number, units.spread(dict(enumerate(means.values()))) or (None,) * 3)
    each = ", ".join(f"{group} {units.number(value)}" for group, value in means.items())
    return f"{mean} on average ({each if len(means) <= _FEW_GROUPS else f'{len(means)} groups, {low} to {high}'})"


def sent(rows: Sequence[Row]) -> str:
    """Bytes of all rounds, up and down."""
    up, down = sum(row.bytes.up.total for row in rows), sum(row.bytes.down.total for row in rows)
    return f"{units.size(up)} up, {units.size(down)} down"


def interruption(round: int) -> str:
    """The cost of an interruption, given the last round in the checkpoint."""
    return f"Interrupted; everything up to round {round} is saved." if round else "Interrupted in the first round."


def resume_command(run_dir: Path) -> str:
    """The command that continues the run, ready to paste into a shell."""
    return f"fedplug resume {shlex.quote(str(run_dir))}"
