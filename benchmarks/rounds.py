"""Whether a round costs the same after any number of rounds: CPU time of the first and the last rounds of long runs.

    python benchmarks/rounds.py [--rounds 1000] [--only plain,pld] [--json]

Each recipe below has 10 clients with a small model on the bundled digits and writes a whole run folder: rows, charging,
checkpoints, and messages where they are recorded. Prints the median CPU milliseconds of the first and of the last tenth
of the rounds; the very first round is left out, since it builds what the others use. Exit code 1 where the last tenth
takes more than 1.05 times the first. That is CPU time of the process, which varies by a fifth where others work; so
Python's calls in twenty rounds after the first tenth and before the last are counted too, which do not vary.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import fedplug
from fedplug.api.events import RoundClosed
from fedplug_runs.archive import Bookkeeping

CLIENTS = 10
PLAIN: dict[str, Any] = {
    "name": "rounds",
    "seed": 1,
    "data": {"use": "std.digits", "clients": CLIENTS, "partition": {"use": "std.iid"}},
    "model": {"use": "std.mlp", "hidden": [16]},
    "train": {"use": "std.sgd", "epochs": 1, "batch_size": 64, "lr": 0.05},
    "negotiate_mask": {"use": "std.single_zone", "zone": "noised"},
    "protect": {"noised": [{"use": "std.clip", "norm": 1.0}, {"use": "std.gaussian", "noise_multiplier": 2.0}]},
    "aggregate": {"use": "std.mean"},
}
CENTRAL = {
    "sampling": {"scheme": "poisson", "rate": 0.8},
    "protect": {"noised": [{"use": "std.clip", "norm": 1.0}]},
    "postprocess": {"noised": [{"use": "std.central_gaussian", "norm": 1.0, "noise_multiplier": 4.0}]},
    "accountant": {"use": "std.pld"},
}
VOTE = {
    "score_parameters": [{"use": "paraaegis.magnitude"}],
    "negotiate_mask": {"use": "paraaegis.vote", "ratio": 0.1},
}
LAPLACE = [{"use": "std.clip_l1", "norm": 1.0}, {"use": "std.laplace", "noise_multiplier": 500.0}]
RECIPES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "plain": ("Gaussian noise at the clients, exact accounting", {}),
    "recorded": ("the same, with every message recorded", {}),
    "pld": ("Poisson sampling and central noise, std.pld", CENTRAL),
    "laplace": (
        "Laplace noise, std.pld and Renyi DP", {"protect": {"noised": LAPLACE}, "accountant": {"use": "std.pld"}},
    ),
    "dp-sgd": (
        "DP-SGD: single records by loss distributions and Renyi DP",
        {
            "train": {
                "use": "baselines.dp_sgd", "batch_size": 32, "noise_multiplier": 4.0, "clipping_norm": 1.0,
                "source": "secure",
            },
            "negotiate_mask": {"use": "std.single_zone", "zone": "clear"}, "protect": {"clear": []},
        },
    ),
    "bfv": (
        "vote and BFV, the key server opens",
        {
            **VOTE, "protect": {**PLAIN["protect"], "encrypted": [{"use": "std.bfv", "key_holder": "key_server"}]},
            "postprocess": {"encrypted": ["std.bfv"]},
        },
    ),
    "masks": (
        "vote and masks",
        {
            **VOTE, "min_clients": 7,
            "protect": {**PLAIN["protect"], "encrypted": [{"use": "secagg.bonawitz", "range": 1.0, "threshold": 6}]},
            "postprocess": {"encrypted": ["secagg.bonawitz"]},
        },
    ),
    "ballots": (
        "ballots of indices on Fisher information and CKKS, noise at the clients",
        {
            "score_parameters": [{"use": "selectiveshield.fisher"}],
            "negotiate_mask": {"use": "selectiveshield.consensus", "tau": 0.05, "rho": 0.3},
            "protect": {
                **PLAIN["protect"],
                "encrypted": [{"use": "std.ckks", "key_holder": "key_server", "sums_visible_to": "clients"}],
            },
            "aggregate": {"use": "selectiveshield.two_server"},
            "postprocess": {"encrypted": ["std.ckks"], "retained": ["selectiveshield.merge"]},
        },
    ),
    "ftrl": (
        "DP-FTRL: noise that follows from earlier rounds'",
        {
            "protect": {"noised": [{"use": "std.clip", "norm": 1.0}]},
            "postprocess": {"noised": [{"use": "std.correlated_gaussian", "norm": 1.0, "noise_multiplier": 4.0}]},
        },
    ),
}  # fmt: skip
TARGET, SPAN = 1.05, 20


def measure(name: str, rounds: int) -> tuple[list[float], list[int]]:
    """CPU milliseconds of each round but the first, from the end of the round before; calls in two spans of rounds."""
    moments: list[float] = []
    calls = [0, 0]
    spans = [range(rounds // 10, rounds // 10 + SPAN), range(rounds - rounds // 10 - SPAN, rounds - rounds // 10)]
    attach = Bookkeeping.__init__

    def closed(event: RoundClosed) -> None:
        moments.append(time.process_time())
        inside = [place for place, span in enumerate(spans) if len(moments) in span]

        def count(frame: Any, what: str, argument: Any) -> None:
            calls[inside[0]] += what == "call"

        sys.setprofile(count if inside else None)

    def watched(self: Bookkeeping, *arguments: Any) -> None:
        attach(self, *arguments)
        self.protocol.events.subscribe(RoundClosed, closed)

    Bookkeeping.__init__ = watched  # type: ignore[method-assign,assignment]
    try:
        with tempfile.TemporaryDirectory() as folder:
            fedplug.run(
                {**PLAIN, **RECIPES[name][1]}, rounds=rounds, output=Path(folder), quiet=True,
                record_wire=name == "recorded", muted=("lab.report",),
            )  # fmt: skip
    finally:
        sys.setprofile(None)
        Bookkeeping.__init__ = attach  # type: ignore[method-assign]
    return [1000 * (later - earlier) for earlier, later in itertools.pairwise(moments)], calls


def ends(times: Sequence[float]) -> tuple[float, float]:
    """Medians of the first and of the last tenth."""
    tenth = max(1, len(times) // 10)
    return statistics.median(times[:tenth]), statistics.median(times[-tenth:])


def main() -> int:
    """Prints a line per recipe; exit code 1 if the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--only", default=",".join(RECIPES), help="names of recipes, separated by commas")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    options = parser.parse_args()
    names = options.only.split(",")
    if unknown := set(names) - set(RECIPES):
        parser.error(f"recipes are {', '.join(RECIPES)}, got {', '.join(unknown)}")
    if options.rounds < 5 * SPAN:
        parser.error(f"--rounds must be at least {5 * SPAN}")
    found = {}
    for name in names:
        times, calls = measure(name, options.rounds)
        first, last = ends(times)
        found[name] = {"first_ms": first, "last_ms": last, "ratio": last / first, "calls_ratio": calls[1] / calls[0]}
        if not options.json:
            met = "met" if last <= TARGET * first else "MISSED"
            line = f"{name:9} first {first:7.1f} ms  last {last:7.1f} ms  x{last / first:.2f} ({met})"
            line += f"  calls x{calls[1] / calls[0]:.3f}"
            print(f"{line}  {RECIPES[name][0]}", flush=True)
    if options.json:
        print(json.dumps({"rounds": options.rounds, "clients": CLIENTS, "target": TARGET, "recipes": found}))
    return 0 if all(line["ratio"] <= TARGET for line in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
