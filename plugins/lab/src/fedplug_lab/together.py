"""What several runs on the same private data have released together."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedplug.api.errors import CheckpointError
from fedplug_ledger.composing import Cost, composed
from fedplug_ledger.grades import quoted
from fedplug_ledger.ledger_record import LedgerReport
from fedplug_ledger.verdict import Line
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
        cost: of the same releases, where these compose with those of other runs.
    """

    epsilon: float | None
    delta: float = 0.0
    prices: str = ""
    cost: Cost | None = None


@dataclasses.dataclass(frozen=True)
class Price:
    """All runs together.

    Attributes:
        runs: that released something.
        epsilon: of those that state one, composed from their noise where it is known, and added up otherwise; None
            where none states one.
        delta: the sum of theirs.
        without: how many state none.
        partial: the zones that some epsilons price, where that is not everything.
        added: whether epsilon is the plain sum of theirs.
    """

    runs: int
    epsilon: float | None
    delta: float
    without: int
    partial: tuple[str, ...]
    added: bool

    @property
    def how(self) -> str:
        """How epsilon follows from those of the runs."""
        return "the sum of theirs" if self.added else "composed from their noise"


def price_of(spent: Iterable[Spent]) -> Price:
    """Composes, each run with its own delta, as if the noise of each had been chosen before any of them."""
    runs = list(spent)
    stated = [run for run in runs if run.epsilon is not None and not math.isnan(run.epsilon)]
    partial = sorted({run.prices for run in stated if run.prices})
    delta, added = (math.fsum(getattr(run, of) for run in stated) for of in ("delta", "epsilon"))
    known = [(run.cost, run.delta) for run in stated if run.cost is not None]
    rest = [run for run in stated if run.cost is None]
    left = delta - math.fsum(run.delta for run in rest)
    epsilon = added
    if len(known) > 1:
        epsilon = min(added, math.fsum(float(run.epsilon or 0.0) for run in rest) + composed(known, left))
    return Price(
        len(runs), epsilon if stated else None, delta, len(runs) - len(stated), tuple(partial), epsilon == added
    )


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
    costs = (line.costs for line in ledger.verdict.lines if line.epsilons and line.epsilon == ledger.epsilon)
    return Spent(ledger.epsilon, ledger.delta, prices, next(costs, {}).get("zero_out"))


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
    price = price_of(_for_each(unit, line) for line in lines)
    assert price.epsilon is not None
    why = ", since who has it differs between them" if unit == "example" else ""
    choice = (
        "; figures of examples that sites hold out, and so a choice by these, are not covered" if at_sites
        else "; so has a choice among them"
    )  # fmt: skip
    return (
        f"{who} have epsilon {price.epsilon:.2f} at delta {price.delta:.3g} at most for each {unit}{why}, "
        f"{price.how}, toward anybody who gets their models{choice}."
    )


def _for_each(unit: str, line: Line) -> Spent:
    """What a run has spent toward a party for each client, example, or unit of a level."""
    if line.epsilons and unit not in (line.unit, "client"):
        # Another example of a client moves its contribution anywhere, and not to zero.
        return Spent(quoted(line.epsilons.replace_one), line.delta, cost=line.costs.get("replace_one"))
    return Spent(line.value, line.delta, cost=line.costs.get("zero_out"))
