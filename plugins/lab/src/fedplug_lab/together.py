"""What several runs on the same private data have released together."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedplug.api.errors import CheckpointError
from fedplug_ledger.grades import quoted
from fedplug_ledger.ledger_record import LedgerReport
from fedplug_runs import units
from fedplug_runs.files import read_bytes
from fedplug_runs.folder import read_ledger, read_rows
from fedplug_runs.rows import Row

from fedplug_lab.records import Compared, OneRun


@dataclasses.dataclass(frozen=True)
class Spent:
    """The release of one run.

    Attributes:
        epsilon: None where its ledger states none, or is behind what the clients were asked for.
        delta: at which epsilon is stated.
        prices: the zones that epsilon prices, where that is not everything.
    """

    epsilon: float | None
    delta: float = 0.0
    prices: str = ""


@dataclasses.dataclass(frozen=True)
class Price:
    """All runs together, by naive composition.

    Attributes:
        runs: that released something.
        epsilon: the sum over those that state one; None where none does.
        delta: the sum of theirs.
        without: how many state none.
        partial: the zones that some epsilons price, where that is not everything.
    """

    runs: int
    epsilon: float | None
    delta: float
    without: int
    partial: tuple[str, ...]


def price_of(spent: Iterable[Spent]) -> Price:
    """Adds up, each run with its own delta."""
    runs = list(spent)
    stated = [(run.epsilon, run.delta) for run in runs if run.epsilon is not None and not math.isnan(run.epsilon)]
    partial = sorted({run.prices for run in runs if run.epsilon is not None and run.prices})
    epsilon = math.fsum(epsilon for epsilon, _ in stated) if stated else None
    delta = math.fsum(delta for _, delta in stated)
    return Price(len(runs), epsilon, delta, len(runs) - len(stated), tuple(partial))


def spent_in(folder: Path) -> list[Spent]:
    """The releases of the runs in a folder, and in the folders in it; runs that released nothing are left out.

    Every run counts: one that failed or was cut off has released something too.
    """
    runs = sorted({file.parent for pattern in ("*/recipe.yaml", "*/*/recipe.yaml") for file in folder.glob(pattern)})
    return [found for run in runs if (found := spent_by(run)) is not None]


def spent_by(run_dir: Path) -> Spent | None:
    """The release of the run in a folder; None where it released nothing."""
    charges = run_dir / "charging.jsonl"
    asked = read_bytes(charges).count(b"\n") if charges.is_file() else 0
    try:
        ledger, rows = read_ledger(run_dir), read_rows(run_dir)
    except CheckpointError:  # killed before it could write one, or damaged
        return Spent(None) if asked else None
    if asked > len(ledger.log):  # killed after it went on: the ledger is that of the time before
        return Spent(None)
    return _stated(ledger, rows) if ledger.rounds.actual else None


def _stated(ledger: LedgerReport, rows: Sequence[Row]) -> Spent:
    """What a ledger says of the whole run."""
    voided = any(each.voids and "released_model" in each.to for each in ledger.reveals)
    if voided or any(each.source == "reproducible" for each in ledger.noise):  # whatever its size
        return Spent(None, ledger.delta)
    prices = next((row.epsilon_prices for row in reversed(rows) if row.epsilon_prices), "")
    return Spent(ledger.epsilon, ledger.delta, prices)


_PLACES = ("path", "file", "folder", "dataset")
"""Options of a data source that say where it lies; all others say what a model sees of it."""


def _source(data: Mapping[str, Any]) -> str:
    """Equal for sections `data` that may share examples; features are of the data that they are made `of`."""
    while isinstance(inner := data.get("of"), Mapping):
        data = inner
    return " ".join([str(data["use"]), *(f"{key}={data[key]}" for key in _PLACES if data.get(key) is not None)])


def looked_at(everyone: Sequence[Compared]) -> list[str]:
    """What it costs that somebody looks at several runs on one data set, a sentence for each data set."""
    by_source: dict[str, list[OneRun]] = {}
    for run in (run for each in everyone for run in each.runs if run.ledger.rounds.actual):
        by_source.setdefault(_source(run.summary.recipe["data"]), []).append(run)
    return [_together(source, runs) for source, runs in by_source.items() if len(runs) > 1]


def _together(source: str, runs: Sequence[OneRun]) -> str:
    """A sentence on several runs, toward somebody who gets what everybody gets of them: their models."""
    who = f"The {len(runs)} runs on {source} together"
    lines = [run.ledger.verdict.toward("released_model") for run in runs]
    without = sum(line.state not in ("guaranteed", "beyond") for line in lines)
    levels = sorted({line.unit for line in lines} - {"client"})
    if without:
        none = f"{units.many(without, 'run')} {'has' if without == 1 else 'have'} no epsilon that holds"
        return f"{who} promise nothing to anybody who sees them or the choice among them: {none}."
    if len(levels) > 1:
        return f"{who} have no epsilon that is known: theirs are for each {' and for each '.join(levels)}."
    sections = [run.summary.recipe["data"] for run in runs]
    at_sites = any(data.get("at") == "sites" for data in sections)
    alike = all(data == sections[0] for data in sections) and (at_sites or len({run.seed for run in runs}) == 1)
    unit = levels[0] if levels else "client" if alike else "example"
    # Another example of a client moves its contribution anywhere, and not to zero.
    each = [
        quoted(line.epsilons.replace_one) if line.epsilons and unit not in (line.unit, "client") else line.value
        for line in lines
    ]
    price = price_of(Spent(epsilon, line.delta) for epsilon, line in zip(each, lines, strict=True))
    assert price.epsilon is not None
    why = ", since who has it differs between them" if unit == "example" else ""
    choice = (
        "; figures of examples that sites hold out, and so a choice by these, are not covered" if at_sites
        else "; so has a choice among them"
    )  # fmt: skip
    return (
        f"{who} have epsilon {price.epsilon:.2f} at delta {price.delta:.3g} at most for each {unit}{why}, the sum of "
        f"theirs toward anybody who gets their models{choice}."
    )
