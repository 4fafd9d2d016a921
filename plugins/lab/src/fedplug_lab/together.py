"""What several runs on the same private data have released together."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedplug.api.errors import CheckpointError
from fedplug_ledger.ledger_record import LedgerReport
from fedplug_runs import units
from fedplug_runs.files import read_bytes
from fedplug_runs.folder import read_ledger, read_rows
from fedplug_runs.rows import Row

from fedplug_lab.records import Compared


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
    prices = next((row.epsilon_prices for row in reversed(rows) if row.epsilon_prices), "")
    return Spent(ledger.epsilon, ledger.delta, prices)


_OF_CLIENTS = ("name", "clients", "partition", "public", "at")
"""Keys of `data` that say who has which of the same examples."""


def _same(data: Mapping[str, Any]) -> str:
    """Equal for sections `data` that may share examples: numbers and switches say which part of them is taken."""
    parts = (bool, int, float, type(None))
    kept = {key: value for key, value in data.items() if key not in _OF_CLIENTS and not isinstance(value, parts)}
    return f"{data['use']} {kept!r}"


def looked_at(everyone: Sequence[Compared]) -> list[str]:
    """What it costs that somebody looks at several runs on one data set, a sentence for each data set."""
    by_data: dict[str, list[Spent]] = {}
    for run in (run for each in everyone for run in each.runs):
        if run.ledger.rounds.actual:
            seed_is_known = any(noise.source == "reproducible" for noise in run.ledger.noise)
            spent = Spent(None) if seed_is_known else _stated(run.ledger, run.rows)
            by_data.setdefault(_same(run.summary.recipe["data"]), []).append(spent)
    found = []
    for key, runs in by_data.items():
        price, who = price_of(runs), f"The {len(runs)} runs on {key.partition(' ')[0]} together"
        if len(runs) < 2:
            continue
        if price.without or price.epsilon is None:
            none = f"{units.many(price.without, 'run')} {'has' if price.without == 1 else 'have'} no epsilon that holds"
            found.append(f"{who} promise nothing to anybody who sees them or the choice among them: {none}.")
        else:
            part = ", for what they price" if price.partial else ""
            found.append(
                f"{who} have epsilon {price.epsilon:.2f} at delta {price.delta:.3g} at most{part}, their sum; so has "
                "a choice among them."
            )
    return found
