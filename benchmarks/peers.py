"""fedplug beside what people would pick instead: pfl-research, Flower's simulation, and a loop written by hand.

    FEDPLUG_DATA=... python benchmarks/peers.py [--rows 20 200 1000] [--without flower] [--cache FOLDER] [--csv FILE]

Every system trains the same perceptron on the same examples of MNIST, evaluates the global model on the whole test set
after each round, and runs its rounds one system after the other on this machine. What is printed are CPU seconds of a
round, median, without the first; those of every process that a system starts count. fedplug's evaluation also counts on
each client's own test examples, and it writes a checkpoint a round; nobody else does.

pfl and Flower get environments of their own below the cache folder, which is made the first time: the first of the
versions below that can be installed there, which is printed, or else the reason. `--csv` writes milliseconds of a
client and round in the columns of `docs/numbers/peers.csv`. Targets, as ratios of one run: 20 clients at most 0.75 x
pfl, 200 and 1000 small clients at most 1.0 x pfl in the clear, full protection (vote, BFV, noise) at most 3 x the clear
run. Exit code 1 if one is missed.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
ROWS: dict[str, dict[str, Any]] = {
    "20": {"clients": 20, "examples": 60_000, "hidden": [256, 128], "epochs": 5, "batch_size": 32, "rounds": 3},
    "200": {"clients": 200, "examples": 12_000, "hidden": [256, 128], "epochs": 1, "batch_size": 20, "rounds": 5},
    "1000": {"clients": 1000, "examples": 60_000, "hidden": [32], "epochs": 1, "batch_size": 20, "rounds": 4},
}
CLEAR = {"20": 0.75, "200": 1.0, "1000": 1.0}
"""At most so many times the CPU time of pfl."""
FULL = 3.0
"""Full protection: at most so many times the clear run."""
PEERS = {"pfl": ("pfl==0.6.0",), "flower": ("flwr[simulation]==1.42.0", "flwr[simulation]==1.41.0")}
LIMIT = 1800


def write_work(row: dict[str, Any], folder: Path) -> Path:
    """The row's data and settings as the programs read them."""
    from fedplug_std.datasets import Mnist

    data = Mnist(Mnist.Options(train_size=row["examples"])).load(None)

    def standardised(inputs: np.ndarray) -> np.ndarray:
        flat = inputs.reshape(len(inputs), -1).astype(np.float32)
        return (flat / 255 - np.float32(data.mean[0])) / np.float32(data.std[0])

    order = np.random.default_rng(1).permutation(len(data.train))
    settings = {**{key: row[key] for key in ("clients", "epochs", "batch_size", "rounds", "hidden")}, "lr": 0.05}
    path = folder / "work.npz"
    np.savez(
        path, inputs=standardised(data.train.inputs[order]), labels=data.train.labels[order],
        test_inputs=standardised(data.test.inputs), test_labels=data.test.labels, settings=json.dumps(settings),
    )  # fmt: skip
    Path(f"{path}.json").write_text(json.dumps({**settings, "examples": row["examples"]}))
    return path


def environment(name: str, cache: Path) -> tuple[Path | None, str]:
    """The Python of a peer's environment, made if it is not there, and what is installed; or None and the reason."""
    folder = cache / name
    python = folder / "bin" / "python"
    done = folder / "installed"
    if done.is_file() and done.read_text() in PEERS[name]:
        return python, done.read_text()
    why = ""
    for version in PEERS[name]:
        if not (why := install(version, folder)):
            done.write_text(version)
            return python, version
    return None, why


def install(version: str, folder: Path) -> str:
    """Makes an environment with this version; empty, or the reason why it cannot be."""
    constraints = ["--constraint", str(HERE.parent / "constraints.txt")]
    python = str(folder / "bin" / "python")
    print(f"installing {version} into {folder} ...", file=sys.stderr)
    for step in (
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [python, "-m", "pip", "install", "--quiet", *constraints, "torch", version],
    ):
        try:
            made = subprocess.run(step, capture_output=True, text=True, timeout=LIMIT)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        if made.returncode:
            return (made.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
    return ""


def run(python: Path, program: str, work: Path, full: bool = False) -> tuple[float | None, str]:
    """CPU seconds of a round, and the accuracy in words; or None and what went wrong."""
    try:
        answer = run_program(python, program, work, full)
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    return statistics.median(answer["rounds"][1:]), f"accuracy {answer['accuracy']:.3f}"


def run_program(python: Path, program: str, work: Path, full: bool = False) -> dict[str, Any]:
    """What a program answers, see `peer_programs/common.py`.

    Raises:
        RuntimeError: it gives none; with the last line of what it said.
    """
    environ = {
        **os.environ, "FEDPLUG_WORK": str(work), "FEDPLUG_FULL": str(int(full)),
        "PYTHONPATH": str(HERE / "peer_programs"), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
    }  # fmt: skip
    command = [str(python), str(HERE / "peer_programs" / program)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=LIMIT)
    try:
        answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError) as error:
        last = (done.stderr.strip().splitlines() or [f"it ended with code {done.returncode}"])[-1]
        raise RuntimeError(last) from error
    return answer


def compare(name: str, without: list[str], cache: Path) -> tuple[bool, dict[str, str]]:
    """Runs everything on one row and prints it; whether the targets were met, and the row for `--csv`."""
    row, ours = ROWS[name], Path(sys.executable)
    print(
        f"{row['clients']} clients, {row['examples']} examples, hidden {row['hidden']}, {row['epochs']} epochs of "
        f"batches of {row['batch_size']}: CPU seconds a round, milliseconds a client"
    )
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        work = write_work(row, Path(folder))
        programs: dict[str, tuple[Path | None, str, str]] = {
            "by hand": (ours, "bare.py", ""), "fedplug": (ours, "with_fedplug.py", ""),
        }  # fmt: skip
        for peer in PEERS:
            python, what = (None, "left out") if peer in without else environment(peer, cache)
            programs[peer] = python, f"with_{peer}.py", "" if python else what
            if python:
                print(f"  {peer} is {what}")
        programs["fedplug, full"] = ours, "with_fedplug.py", "left out" if "full" in without else ""
        for system, (python, program, why) in programs.items():
            seconds, said = (None, why) if python is None or why else run(python, program, work, "full" in system)
            if seconds is None:
                print(f"  {system:14} not run: {said}")
                continue
            found[system] = seconds
            share = f"x{seconds / found['pfl']:.2f} of pfl" if "pfl" in found else ""
            each = 1000 * seconds / row["clients"]
            print(f"  {system:14} {seconds:8.3f} s {each:8.2f} ms  {said}  {share}", flush=True)
    checks = (("fedplug", "pfl", CLEAR[name]), ("fedplug, full", "fedplug", FULL))
    met = True
    for system, base, most in checks:
        if system in found and base in found:
            ratio = found[system] / found[base]
            met &= ratio <= most
            print(f"  {system} is {ratio:.2f} x {base}; target {most:g}: {'met' if ratio <= most else 'MISSED'}")
        else:
            print(f"  {system} against {base}: not compared")
    return met, table_row(row, found, CLEAR[name])


def table_row(row: dict[str, Any], found: dict[str, float], target: float) -> dict[str, str]:
    """A row of the table in the documentation: milliseconds of a client and round; empty where nothing ran."""
    widths = [784, *row["hidden"], 10]
    parameters = sum((before + 1) * after for before, after in itertools.pairwise(widths))
    epochs = f", {row['epochs']} epochs" if row["epochs"] > 1 else ""
    clients, each = row["clients"], row["examples"] // row["clients"]

    def of(system: str) -> str:
        return f"{1000 * found[system] / clients:.{0 if clients < 100 else 1}f}" if system in found else ""

    def ratio(system: str, base: str) -> float | None:
        return found[system] / found[base] if {system, base} <= found.keys() else None

    clear, full = ratio("fedplug", "pfl"), ratio("fedplug, full", "fedplug")
    return {
        "work": f"{clients} clients x {each:,} examples{epochs}, {parameters:,} parameters",
        **{name: of(name) for name in ("by hand", "fedplug")}, "pfl 0.6": of("pfl"), "Flower, Ray": of("flower"),
        "fedplug, full protection": of("fedplug, full"),
        "fedplug / pfl": "" if clear is None else f"{clear:.2f}",
        "full / clear": "" if full is None else f"{full:.2f}",
        "targets": "; ".join(
            f"{most:g}, {'met' if is_now <= most else 'missed'}"
            for is_now, most in ((clear, target), (full, FULL)) if is_now is not None
        ),
    }  # fmt: skip


def main() -> int:
    """Prints the tables; exit code 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--without", nargs="+", choices=[*PEERS, "full"], default=[])
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "fedplug-peers")
    parser.add_argument("--csv", type=Path, help="where to write the table")
    options = parser.parse_args()
    found = [compare(name, options.without, options.cache) for name in options.rows]
    if options.csv is not None:
        with options.csv.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(found[0][1]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(row for _, row in found)
    return 0 if all(met for met, _ in found) else 1


if __name__ == "__main__":
    sys.exit(main())
