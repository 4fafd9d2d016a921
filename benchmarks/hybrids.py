"""The hybrids beside the protocols they are made of, on digits: the table of docs/papers/hybrids.md.

    python benchmarks/hybrids.py --seeds 1 2 3 --output hybrids.jsonl

Every recipe runs as it stands, with its own epsilon, once a seed. One line of JSON a run is appended to the output, so
that an interrupted study goes on where it stopped; the table is printed from all lines.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import fedplug
from fedplug_lab.records import Result, result_of

RECIPES = Path(__file__).resolve().parent.parent / "recipes"
FAMILIES: dict[str, tuple[str, ...]] = {
    "hybrids/paraaegis-vote-fedre-budgets": ("paraaegis-dynamic", "fedre-digits"),
    "hybrids/selectiveshield-consensus-fas-scrambling": ("selectiveshield", "fas"),
    "hybrids/sensecrypt-groups-paraaegis-vote": ("sensecrypt", "paraaegis-dynamic"),
    "hybrids/fedre-scores-encrypt-layers": ("fedre-digits", "ckks-fedavg"),
    "hybrids/maskcrypt-distributed-dp": ("baselines/maskcrypt", "serial-dp-he"),
}
"""Each hybrid, and the recipes it takes its parts from."""


def main() -> None:
    """Runs what the output lacks, and prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--output", type=Path, default=Path("hybrids.jsonl"))
    chosen = parser.parse_args()
    lines = [json.loads(line) for line in chosen.output.read_text().splitlines()] if chosen.output.is_file() else []
    names = list(dict.fromkeys(name for hybrid, parents in FAMILIES.items() for name in (hybrid, *parents)))
    done = {(line["recipe"], line["seed"]) for line in lines}
    for name in names:
        for seed in chosen.seeds:
            if (name, seed) not in done:
                lines.append({"recipe": name, "seed": seed, "result": run(name, seed).to_plain()})
                with chosen.output.open("a") as file:
                    file.write(json.dumps(lines[-1]) + "\n")
    print(table(lines))


def run(name: str, seed: int) -> Result:
    """One run of a recipe, in a folder that is thrown away."""
    with tempfile.TemporaryDirectory() as folder:
        return result_of(fedplug.run(RECIPES / f"{name}.yaml", seed=seed, output=folder, quiet=True).folder)


def table(lines: list[dict[str, Any]]) -> str:
    """Markdown: each hybrid, then its parents; mean and standard deviation over seeds."""
    head = ["protocol", "accuracy", "own models", "encrypted", "seconds", "MB up", "MB down", "epsilon"]
    rows = [head, ["---"] * len(head)]
    for hybrid, parents in FAMILIES.items():
        for name in (hybrid, *parents):
            runs = [Result.from_plain(line["result"]) for line in lines if line["recipe"] == name]
            if runs:
                label = f"**{name.partition('/')[2]}**" if name == hybrid else name
                rows.append([label, *cells(runs)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def cells(runs: list[Result]) -> list[str]:
    """One row: means over runs, with the standard deviation of accuracies."""

    def mean(values: list[float]) -> float:
        return statistics.fmean(values)

    def spread(values: list[float]) -> str:
        return f"{mean(values):.3f} ± {statistics.stdev(values) if len(values) > 1 else 0:.3f}"

    personal = [run.personal_accuracy.mean for run in runs if run.personal_accuracy]
    epsilons = [run.epsilon for run in runs if run.epsilon is not None]
    return [
        spread([run.accuracy or 0.0 for run in runs]),
        spread(personal) if personal else "–",
        f"{mean([run.zones.get('encrypted', 0.0) for run in runs]):.0%}",
        f"{mean([run.wall_seconds for run in runs]):.1f}",
        f"{mean([run.bytes.up for run in runs]) / 1e6:.1f}",
        f"{mean([run.bytes.down for run in runs]) / 1e6:.1f}",
        f"{max(epsilons):.2f}" if epsilons else "none",
    ]


if __name__ == "__main__":
    main()
