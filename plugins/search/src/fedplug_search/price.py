"""The price of a search to the clients, whose data every run has seen: read from the folders of its runs.

Every run in the folder of a search counts, whatever became of its trial: one that failed, was cut off or was never
finished has released something too.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from pathlib import Path

from fedplug.api.errors import CheckpointError
from fedplug_runs.files import read_bytes
from fedplug_runs.folder import read_ledger, read_rows


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
    """The releases of the runs in the folder of a search; runs that released nothing are left out."""
    runs = sorted({file.parent for pattern in ("*/recipe.yaml", "*/*/recipe.yaml") for file in folder.glob(pattern)})
    return [found for run in runs if (found := _spent(run)) is not None]


def _spent(run_dir: Path) -> Spent | None:
    charges = run_dir / "charging.jsonl"
    asked = read_bytes(charges).count(b"\n") if charges.is_file() else 0
    try:
        ledger, rows = read_ledger(run_dir), read_rows(run_dir)
    except CheckpointError:  # killed before it could write one, or damaged
        return Spent(None) if asked else None
    if asked > len(ledger.log):  # killed after it went on: the ledger is that of the time before
        return Spent(None)
    prices = next((row.epsilon_prices for row in reversed(rows) if row.epsilon_prices), "")
    return Spent(ledger.epsilon, ledger.delta, prices) if ledger.rounds.actual else None
