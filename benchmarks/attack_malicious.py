"""What a malicious server takes by planted models, through each kind of protection, and what clients could notice.

    python benchmarks/attack_malicious.py [--seeds 1 2 3 4 5] [--csv docs/numbers/attack-malicious.csv]

Digits, six clients (20 where noise is shared), a perceptron of 256 and 128 units, a probe of one step on 8 images, two
targets a seed. `imprint` asks for all images, `fishing` for the one of a class; `honest` is `attacks.exact_batch` of a
server that plants nothing. About two minutes of processor time.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import fedplug
from fedplug_attacks.api.truth import wilson
from fedplug_attacks.workshop.results import results

CLIP, LOCAL = {"use": "std.clip", "norm": 1.0}, {"use": "std.gaussian", "epsilon": 8, "delta": 1e-5}
SHARED = {"use": "std.distributed_gaussian", "epsilon": 8, "delta": 1e-5}
CENTRAL = {"use": "std.central_gaussian", "norm": 1.0, "noise_multiplier": 1.0}
BFV = {"use": "std.bfv", "key_holder": "key_server"}
PROTOCOLS: dict[str, tuple[str, list[Any], list[Any], int]] = {
    "in the clear": ("clear", [], [], 6),
    "central noise": ("noised", [CLIP], [CENTRAL], 6),
    "local noise, epsilon 8": ("noised", [CLIP, LOCAL], [], 6),
    "BFV, key server": ("encrypted", [BFV], ["std.bfv"], 6),
    "BFV, sums opened at clients": ("encrypted", [BFV | {"answer": "clients"}], ["std.bfv"], 6),
    "SecAgg": ("encrypted", [{"use": "secagg.bonawitz", "range": 1}], ["secagg.bonawitz"], 6),
    "SecAgg, shared noise, epsilon 8": ("encrypted", [CLIP, SHARED, "secagg.bonawitz"], ["secagg.bonawitz"], 20),
}
"""Zone, links at the client, links behind the sum, clients."""
ATTACKS = {
    "honest": ("server", {"use": "attacks.exact_batch"}),
    "imprint": ("malicious_server", {"use": "attacks.imprint"}),
    "fishing": ("malicious_server", {"use": "attacks.fishing", "label": 3}),
}


def recipe(protocol: str, attack: str, seed: int) -> dict[str, Any]:
    """A run of one round that is attacked in one way."""
    zone, chain, behind, clients = PROTOCOLS[protocol]
    adversary, use = ATTACKS[attack]
    return {
        "name": "malicious", "seed": seed, "rounds": 1, "min_clients": clients - 1,
        "data": {"use": "std.digits", "clients": clients, "public": 200, "partition": "std.iid"}, "model": "std.mlp",
        "train": {"use": "std.sgd", "epochs": 1, "lr": 0.1}, "aggregate": {"use": "std.mean", "weighting": "uniform"},
        "negotiate_mask": {"use": "std.single_zone", "zone": zone}, "protect": {zone: chain},
        "postprocess": {zone: behind} if behind else {},
        "attack": {"adversaries": [adversary], "targets": [0, 1], "probe": {"batch_size": 8}, "attacks": [use]},
    }  # fmt: skip


def main() -> None:
    """Runs all, and prints or writes the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--csv", type=Path, help="write the table here, in place of printing it")
    chosen = parser.parse_args()
    rows = []
    for protocol in PROTOCOLS:
        for attack in ATTACKS:
            outcomes = []
            for seed in chosen.seeds:
                with tempfile.TemporaryDirectory() as folder:
                    run = fedplug.run(recipe(protocol, attack, seed), output=folder, quiet=True, muted=["lab.report"])
                    outcomes += [next(iter(each.forms.values())) for each in results(run.folder / "attacks")]
            rows.append([protocol, attack, *summed(attack, outcomes)])
    with chosen.csv.open("w", encoding="utf-8", newline="") if chosen.csv else contextlib.nullcontext(sys.stdout) as to:
        writer = csv.writer(to, lineterminator="\n")
        writer.writerow(["protection", "attack", "targets", "images recovered", "95%", "norm of the change", "seconds"])
        writer.writerows(rows)


def summed(attack: str, outcomes: list[Any]) -> list[str]:
    """Targets, recovered images with their interval, what shows of the planted model, and seconds."""
    # Of fishing one image a target is wanted; a target without exactly one of the class has none to give.
    asked = len(outcomes) * (1 if attack == "fishing" else 8)
    found = sum(len(each.recovered) for each in outcomes)
    low, high = wilson(min(found, asked), asked)
    changes = [each.own["noticed_change"] for each in outcomes if "planted_change" in each.own]
    return [
        str(len(outcomes)), f"{found} of {asked}", f"{low:.0%} to {high:.0%}",
        f"{statistics.median(changes):.1f}" if changes else "", f"{statistics.mean(e.seconds for e in outcomes):.2f}",
    ]  # fmt: skip


if __name__ == "__main__":
    main()
