"""One round of a target compared with all its rounds that an adversary saw: moving masks, noise, sums less the others.

    python benchmarks/attack_rounds.py [--csv docs/numbers/attack-rounds.csv] [--only TEXT] [--targets 10]

Digits, 10 clients, 20 rounds, a perceptron, 200 public examples; SelectiveShield and ParaAegis as in recipes/, with or
without their noise. Each client is asked in every round about the same batch, like one that trains on little data.
Attacked are round 1, whose model is not trained, round 20, alone and with the 19 before it (`attacks.rounds`, `most: 1`
and `most: 20`), and of another batch rounds 11 to 20, all of trained models, and round 20 alone. In ParaAegis the
adversary is the server with one client, which tells it the positions of values.

The last rows are of one round in which all is encrypted, and the key server opens the sum: by the server with all other
clients but one, and with all. Images recovered: nearer than the mean image and strangers. Median PSNR.
Data: none to fetch. About eight minutes of processor time; batches are of a quarter of the targets.
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
import yaml
from fedplug_attacks.workshop.records import TargetResult
from fedplug_attacks.workshop.results import results

ROUNDS, LATE = 20, 10
# By name: the attacked round, the number of rounds with the same batch, and the number used.
PROBES: list[tuple[int, int, dict[str, int]]] = [
    (1, 1, {"1": 1}), (ROUNDS, ROUNDS, {"20": 1, "1 to 20": ROUNDS}),
    (ROUNDS, LATE, {"20, another batch": 1, "11 to 20, that batch": ROUNDS}),
]  # fmt: skip
RECIPES = Path(__file__).resolve().parents[1] / "recipes"
ALL_BUT_ONE = "+".join(["server", *(f"client:{number}" for number in range(1, 10))])
ALL_BUT_TWO = "+".join(["server", *(f"client:{number}" for number in range(1, 9))])
NO_NOISE: dict[str, Any] = {"protect": {"noised": []}}


def noised(component: str, multiplier: float) -> dict[str, Any]:
    """The recipe's clip, and noise of that multiple of its norm."""
    noise = {"use": component, "epsilon": None, "delta": None, "noise_multiplier": multiplier}
    return {"protect": {"noised": [{"use": "std.clip", "norm": 0.01}, noise]}}


# Label, recipe, changes, adversary, examples.
MOVING: list[tuple[str, str, dict[str, Any], str, int]] = [
    ("SelectiveShield, no noise", "selectiveshield", NO_NOISE, "server", 8),
    ("ParaAegis, no noise", "paraaegis-key-server", NO_NOISE, "server+client", 8),
    ("SelectiveShield, noise as large as the gradient", "selectiveshield",
     noised("selectiveshield.noise", 0.005), "server", 1),
    ("ParaAegis, noise as large as the gradient", "paraaegis-key-server",
     noised("std.gaussian", 0.005), "server+client", 1),
    ("ParaAegis, its noise (epsilon 8)", "paraaegis-key-server", {}, "server+client", 1),
]  # fmt: skip
SUMS = "FedAvg, all encrypted (BFV, key server)"
HEADER = [
    "what hides", "who attacks", "examples", "rounds", "seen together", "images recovered", "PSNR, dB", "CPU s a target"
]  # fmt: skip


def recipe_file(folder: Path, extends: str, changes: dict[str, Any]) -> Path:
    """A recipe that extends one of recipes/."""
    plain = {"extends": str(RECIPES / f"{extends}.yaml"), "name": "rounds", "data": {"public": 200}, "rounds": ROUNDS}
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(plain | changes), encoding="utf-8")
    return path


def attacked(
    run: fedplug.Run, adversary: str, targets: int, round: int, probe: dict[str, int], *uses: dict[str, Any]
) -> list[TargetResult]:
    """The results of attacks on a finished run."""
    from fedplug_attacks.workshop.command import attack
    from fedplug_runs.settings import Settings

    scope = {
        "adversaries": [adversary], "targets": list(range(targets)), "rounds": [round], "probe": probe,
        "compare_forms": False,
    }  # fmt: skip
    sets = [f"attack.attacks={[*uses]!r}"]
    with contextlib.redirect_stdout(sys.stderr):
        attack(run.folder, Settings(quiet=True), ["attacks.rounds"], ("attacks.mse", "attacks.psnr"), scope, sets, None)
    # Those of other rounds or adversaries are there too.
    found = results(run.folder / "attacks")
    return [each for each in found if (each.round, each.adversary) == (round, adversary)]


def row(what: str, who: str, examples: int, rounds: str, found: list[TargetResult]) -> list[Any]:
    """One line of the table."""
    outcomes = [outcome for result in found for outcome in result.forms.values()]
    done = [outcome for outcome in outcomes if "psnr" in outcome.metrics]
    images = sum(len(outcome.recovered) for outcome in outcomes)
    seen = statistics.mean([outcome.own["coverage"] for outcome in done]) if done else 0.0
    psnr = f"{statistics.median([outcome.metrics['psnr'] for outcome in done]):.1f}" if done else "not applicable"
    seconds = statistics.mean([outcome.seconds for outcome in outcomes])
    return [
        what, who, examples, rounds, f"{seen:.0%}", f"{images} of {examples * len(found)}", psnr, f"{seconds:.1f}"
    ]  # fmt: skip


def main() -> None:
    """Runs all, and prints or writes the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--csv", type=Path, help="write the table here, in place of printing it")
    parser.add_argument("--only", default="", help="settings whose name or adversary holds this")
    parser.add_argument("--targets", type=int, default=10, help="clients that are attacked")
    chosen = parser.parse_args()
    rows: list[list[Any]] = []
    runs: dict[str, fedplug.Run] = {}
    with tempfile.TemporaryDirectory() as folder:

        def run_of(extends: str, changes: dict[str, Any]) -> fedplug.Run:
            key = f"{extends} {changes}"
            if key not in runs:
                where = Path(folder) / str(len(runs))
                where.mkdir()
                file = recipe_file(where, extends, changes)
                runs[key] = fedplug.run(file, output=where, quiet=True, muted=["lab.report"], record_wire=True)
            return runs[key]

        for what, extends, changes, who, examples in MOVING:
            if chosen.only not in f"{what} {who}":
                continue
            run = run_of(extends, changes)
            for at, times, names in PROBES if examples > 1 else PROBES[:2]:
                probe = {"batch_size": examples, "rounds": times}
                uses = [{"use": "attacks.rounds", "name": f"most-{most}", "most": most} for most in names.values()]
                # A search for a batch takes up to a minute.
                targets = chosen.targets if examples == 1 else -(-chosen.targets // 4)
                found = attacked(run, who, targets, at, probe, *uses)
                for name, most in names.items():
                    these = [each for each in found if each.attack == f"most-{most}"]
                    rows.append(row(what, who, examples, name, these))
                    print("ROW", *rows[-1], sep=", ", file=sys.stderr, flush=True)
        for who in (ALL_BUT_TWO, ALL_BUT_ONE) if chosen.only in SUMS else ():
            run = run_of("bfv-fedavg", {"rounds": 1})
            shown = f"server and {who.count('client')} of 9 other clients"
            found = attacked(run, who, 1, 1, {"batch_size": 8}, {"use": "attacks.rounds", "name": "most-1", "most": 1})
            rows.append(row(SUMS, shown, 8, "1", found))
            print("ROW", *rows[-1], sep=", ", file=sys.stderr, flush=True)
    with chosen.csv.open("w", encoding="utf-8", newline="") if chosen.csv else contextlib.nullcontext(sys.stdout) as to:
        writer = csv.writer(to, lineterminator="\n")
        writer.writerow(HEADER)
        writer.writerows(rows)


if __name__ == "__main__":
    main()
