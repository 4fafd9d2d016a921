"""The runs below a folder, as a person or a program looks for one: what ran, how far it came, what it promises."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from fedplug.api.errors import CheckpointError
from fedplug_ledger.verdict_words import number

from fedplug_runs import units
from fedplug_runs.files import read_text
from fedplug_runs.folder import read_ledger, writer_of
from fedplug_runs.onward import engine_of, resume_command
from fedplug_runs.rows import Row

State = Literal["complete", "stopped", "running", "damaged"]
_DATE = re.compile(r"(\d{4})(\d{2})(\d{2})-(\d{2})(\d{2})(\d{2})(?:-\d+)?$")


@dataclasses.dataclass(frozen=True)
class Listed:
    """One run.

    Attributes:
        folder: its path.
        date: when it began, `2026-01-31 12:00:00`; empty where its name does not tell.
        recipe: the name of its recipe.
        rounds, planned: how many rounds are done, of how many; `planned` is None where the recipe cannot be read.
        figure, value: the figure that leads, and its last number; None where there is none.
        epsilon: the largest that is stated for a party; None where none is.
        verdict: in a few words; empty of a run that wrote none.
        status: of the verdict, in the word of the ledger; empty likewise.
        state: `complete`, `stopped`, `running`, or `damaged`, which `problem` explains.
        engine: that it had last; empty where nobody noted it.
        resume: the command that continues it; empty where there is nothing to continue.
        problem: what is wrong with its files.
    """

    folder: str
    date: str
    recipe: str
    rounds: int
    planned: int | None
    figure: str
    value: float | None
    epsilon: float | None
    verdict: str
    status: str
    state: State
    engine: str
    resume: str
    problem: str = ""

    @property
    def done(self) -> str:
        """`7/10`."""
        return f"{self.rounds}/{'?' if self.planned is None else self.planned}"

    @property
    def judged(self) -> str:
        """`accuracy 0.931`, or a dash."""
        return units.NOTHING if self.value is None else f"{self.figure} {units.number(self.value)}"


def runs_below(folder: Path) -> list[Listed]:
    """The run in a folder, or those in it and in folders in it, such as sweeps; the last to begin comes last."""
    inside = [folder] if _is_run(folder) else [*_runs_in(folder)]
    return sorted(map(look_at, inside), key=lambda run: (run.date, run.folder))


def _runs_in(folder: Path) -> Iterator[Path]:
    for pattern in ("*/recipe.yaml", "*/*/recipe.yaml"):
        yield from (file.parent for file in folder.glob(pattern) if _is_run(file.parent))


def _is_run(folder: Path) -> bool:
    """An app of a federation has a recipe too, and no lock."""
    return (folder / "recipe.yaml").is_file() and any(
        (folder / name).exists() for name in ("run.lock", "checkpoint", "metrics.jsonl", "summary.json")
    )


def look_at(run_dir: Path) -> Listed:
    """One run, by its files; what is damaged there is said, and not raised."""
    found: dict[str, Any] = {"recipe": run_dir.name, "planned": None, "figure": "", "value": None}
    ledger: dict[str, Any] = {"verdict": "", "status": "", "epsilon": None}
    problem, rounds = "", 0
    try:
        text = read_text(run_dir / "recipe.yaml")
        found["recipe"] = _key(text, "name") or run_dir.name
        found["planned"] = int(_key(text, "rounds") or 0) or None
        if (row := _last_row(run_dir)) is not None:
            rounds, found["figure"], found["value"] = row.round, row.leads.name, row.leading
        if (run_dir / "ledger.json").is_file():
            verdict = read_ledger(run_dir).verdict
            stated = [line.value for line in verdict.lines if line.value is not None and line.state != "none"]
            ledger = {"verdict": verdict.opening, "status": verdict.status, "epsilon": max(stated, default=None)}
            if ledger["epsilon"] is not None:
                ledger["verdict"] += f", epsilon up to {number(ledger['epsilon'])}"
    except (OSError, ValueError, CheckpointError) as error:
        problem = str(error)
    whole = found["planned"] is not None and rounds >= found["planned"] and bool(ledger["status"])
    state: State = "damaged" if problem else "running" if writer_of(run_dir) else "complete" if whole else "stopped"
    return Listed(
        folder=str(run_dir), date=_date(run_dir.name), rounds=rounds, state=state, engine=engine_of(run_dir),
        resume=resume_command(run_dir) if state == "stopped" else "", problem=problem, **found, **ledger,
    )  # fmt: skip


def _key(text: str, key: str) -> str:
    """A key of a recipe as a run writes it: at the beginning of a line, on one line."""
    found = re.search(rf"^{key}: *(.*?) *$", text, re.MULTILINE)
    return found[1].strip("'\"") if found else ""


def _last_row(run_dir: Path) -> Row | None:
    file = run_dir / "metrics.jsonl"
    lines = read_text(file).splitlines() if file.is_file() else []
    try:
        return Row.from_json(lines[-1]) if lines else None
    except ValueError as error:
        raise CheckpointError(f"{file}, line {len(lines)}, is damaged ({error})") from error


def _date(name: str) -> str:
    found = _DATE.search(name)
    return "{}-{}-{} {}:{}:{}".format(*found.groups()) if found else ""
