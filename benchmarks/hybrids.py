"""The hybrids compared with the protocols they are made of, on digits: the table of docs/papers/hybrids.md.

    python benchmarks/hybrids.py --seeds 1 2 3 --output hybrids.jsonl [--csv docs/numbers/hybrids.csv]
    python benchmarks/hybrids.py --masks --csv docs/numbers/hybrids-secagg.csv

The second compares the papers' protocols with themselves over secure aggregation.

Every recipe runs unchanged, with its own epsilon, once per seed. One line of JSON per run is appended to the output, so
that an interrupted study continues where it stopped. The table is made from all lines. Seconds are processor time of
the rounds, all parties together.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fedplug
from fedplug_lab.records import result_of
from fedplug_lab.sections import Result

RECIPES = Path(__file__).resolve().parent.parent / "recipes"
FAMILIES: dict[str, tuple[str, ...]] = {
    "hybrids/paraaegis-vote-fedre-budgets": ("paraaegis-dynamic", "fedre-digits"),
    "hybrids/selectiveshield-consensus-fas-scrambling": ("selectiveshield", "fas"),
    "hybrids/sensecrypt-groups-paraaegis-vote": ("sensecrypt", "paraaegis-dynamic"),
    "hybrids/fedre-scores-encrypt-layers": ("fedre-digits", "ckks-fedavg"),
    "hybrids/maskcrypt-distributed-dp": ("baselines/maskcrypt", "serial-dp-he"),
}
"""Each hybrid, and the recipes it takes its parts from."""
MASKS: dict[str, tuple[str, ...]] = {
    "paraaegis-secagg": ("paraaegis-dynamic",), "selectiveshield-secagg": ("selectiveshield",),
    "sensecrypt-secagg": ("sensecrypt",), "fas-secagg": ("fas",),
}  # fmt: skip
"""Each paper's protocol over secure aggregation, and with the paper's encryption."""


def main() -> None:
    """Runs the rows that the output lacks, and prints or writes the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--output", type=Path, default=Path("hybrids.jsonl"))
    parser.add_argument("--csv", type=Path, help="write the table here, in place of printing it")
    parser.add_argument("--masks", action="store_true", help="the papers' protocols over secure aggregation")
    chosen = parser.parse_args()
    families = MASKS if chosen.masks else FAMILIES
    lines = [json.loads(line) for line in chosen.output.read_text().splitlines()] if chosen.output.is_file() else []
    names = list(dict.fromkeys(name for hybrid, parents in families.items() for name in (hybrid, *parents)))
    done = {(line["recipe"], line["seed"]) for line in lines}
    for name in names:
        for seed in chosen.seeds:
            if (name, seed) not in done:
                lines.append({"recipe": name, "seed": seed, "result": run(name, seed).to_plain()})
                with chosen.output.open("a") as file:
                    file.write(json.dumps(lines[-1]) + "\n")
    rows = list(table(lines, families))
    with chosen.csv.open("w", encoding="utf-8", newline="") if chosen.csv else contextlib.nullcontext(sys.stdout) as to:
        writer = csv.DictWriter(to, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def run(name: str, seed: int) -> Result:
    """One run of a recipe, in a folder that is deleted."""
    with tempfile.TemporaryDirectory() as folder:
        return result_of(fedplug.run(RECIPES / f"{name}.yaml", seed=seed, output=folder, quiet=True).folder)


def table(lines: list[dict[str, Any]], families: dict[str, tuple[str, ...]]) -> Iterator[dict[str, str]]:
    """Each hybrid, then its parents; means over seeds, and the standard deviations of accuracies."""
    for hybrid, parents in families.items():
        for name in (hybrid, *parents):
            runs = [Result.from_plain(line["result"]) for line in lines if line["recipe"] == name]
            if runs:
                label = name.removeprefix("hybrids/")
                yield {"hybrid": hybrid.removeprefix("hybrids/"), "protocol": label, **cells(runs)}


def cells(runs: list[Result]) -> dict[str, str]:
    """The results of the runs of one recipe."""
    personal = [run.personal_accuracy.mean for run in runs if run.personal_accuracy]
    epsilons = [run.epsilon for run in runs if run.epsilon is not None]
    return {
        **spread("accuracy", [run.accuracy or 0.0 for run in runs]),
        **spread("own models", personal),
        "encrypted": f"{statistics.fmean(run.zones.get('encrypted', 0.0) for run in runs):.0%}",
        "CPU s": f"{statistics.fmean(float(run.cpu_seconds or 0) for run in runs):.1f}",
        "MB up": f"{statistics.fmean(run.bytes.up for run in runs) / 1e6:.1f}",
        "MB down": f"{statistics.fmean(run.bytes.down for run in runs) / 1e6:.1f}",
        "epsilon": f"{max(epsilons):.2f}" if epsilons else "none",
    }


def spread(title: str, values: list[float]) -> dict[str, str]:
    """A mean, and its standard deviation where there are several values."""
    if not values:
        return {title: "–", f"{title} sd": ""}
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return {title: f"{statistics.fmean(values):.3f}", f"{title} sd": f"{deviation:.3f}"}


if __name__ == "__main__":
    main()
