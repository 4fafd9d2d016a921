"""The epsilons that docs/claims.md compares: a client's uploads alone, and the server's view, by one yardstick for all.

    python benchmarks/claim_accounts.py [--csv docs/numbers/epsilon-accounts.csv]

It computes and trains nothing. delta is 1e-5, the unit a client, and all rounds count. Each row is one form of noise:

* `a client's uploads` is the noised zone of what one client sends, if its values are replaced by zeros;
* `replaced` is the same, if they are replaced by any others of the same norm (Definition 3.1 of FedRE);
* `the server's view` adds the other clients' uploads. Where a zone is opened without noise, each later upload of K
  clients depends on every client through the model, and can move by twice the clipping norm. With T rounds the
  multiplier of the client alone is divided by sqrt(1 + 4 (K - 1)(T - 1) / T), which is how the ledger charges it.
  Where everything is noised, later uploads follow from noised values and cost nothing more.

Epsilon is a worst case over what clients train: a trainer exists that reaches each of these numbers.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from pathlib import Path

import numpy as np
from fedplug_fedre.budgets import budgets
from fedplug_ledger.accounting import gaussian_epsilon, gaussian_noise_multiplier
from fedplug_selectiveshield.noise import lemma_2_multiplier

DELTA = 1e-5
Row = dict[str, str]


def row(name: str, claimed: float, alone: float, clients: int, rounds: int, opened: bool = True) -> Row:
    """One line of the table.

    Args:
        name: of the form of noise.
        claimed: the epsilon that the paper gives it.
        alone: the noise multiplier of a client's uploads in all rounds together.
        clients, rounds: K and T.
        opened: whether another zone is opened without noise.
    """
    everybody = alone / math.sqrt(1 + 4 * (clients - 1) * (rounds - 1) / rounds) if opened else alone
    return {
        "noise": name,
        "epsilon claimed": f"{claimed:g}",
        "a client's uploads": shown(gaussian_epsilon(alone, DELTA)),
        "replaced": shown(gaussian_epsilon(alone / 2, DELTA)),
        "the server's view": shown(gaussian_epsilon(everybody, DELTA)),
    }


def shown(epsilon: float) -> str:
    """Two decimals below 1,000, none above."""
    return f"{epsilon:.2f}" if epsilon < 1000 else f"{epsilon:.0f}"


def remark_1(claimed: float, examples: int) -> float:
    """The multiplier of ParaAegis' Remark 1 over all rounds (q = 1), at the client with most examples."""
    return 2 / examples * math.sqrt(2 * math.log(1 / DELTA)) / claimed


def by_eq_9(scores: list[float], claimed: float) -> float:
    """The multiplier of FedRE's eq. 9 over ten rounds and all layers, if its delta is divided evenly among them."""
    found = budgets(np.array(scores), claimed, DELTA, 10, "as_published", layers=len(scores))
    return found.multiplier / math.sqrt(10)


def rows() -> list[Row]:
    """All lines."""
    exact = gaussian_noise_multiplier
    eq_21 = lemma_2_multiplier(1, DELTA) * math.sqrt(20)  # the variance of eq. 21 is K times that of eq. 22
    uneven, even = [0.01, *[1.0] * 7], [1.0] * 8
    return [
        row("ParaAegis, calibrated (`paraaegis-key-server`: 10 clients, 20 rounds)", 8, exact(8, DELTA), 10, 20),
        row("the same noise on everything (`dp-fedavg`)", 8, exact(8, DELTA), 10, 20, opened=False),
        row("ParaAegis, Remark 1 (digits: at most 245 examples a client)", 8, remark_1(8, 245), 10, 20),
        row("SelectiveShield, eq. 21 and Lemma 2 (`literal.yaml`: 20 clients, 10 rounds)", 1, eq_21, 20, 10),
        row("the same noise on everything (tau 1)", 1, eq_21, 20, 10, opened=False),
        row("SelectiveShield, calibrated (`mnist.yaml`: 20 clients, 10 rounds)", 1, exact(1, DELTA), 20, 10),
        *(
            row(f"FedRE, eq. 9, {name}", claimed, by_eq_9(scores, claimed), 10, 10, opened=False)
            for name, scores in (("8 layers with equal scores", even), ("scores 0.01 and seven times 1", uneven))
            for claimed in (10, 50)
        ),
    ]


def main() -> int:
    """Prints the table, or writes it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, help="write the rows here")
    options = parser.parse_args()
    found = rows()
    try:
        with options.csv.open("w", encoding="utf-8", newline="") if options.csv else sys.stdout as file:
            writer = csv.DictWriter(file, list(found[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(found)
    except OSError as error:
        sys.exit(f"{options.csv} cannot be written: {error.strerror}; give --csv a file in a folder that exists")
    return 0


if __name__ == "__main__":
    sys.exit(main())
