"""fedplug next to its alternatives: pfl-research, Flower's simulation, and a loop written by hand.

    FEDPLUG_DATA=... python benchmarks/peers.py [--rows 20 conv-200 gpt-20] [--without flower] [--csv FILE]

Every system trains the same model on the same examples, and evaluates the global model on the whole test set after each
round: a perceptron, LeNet-5, a recurrent net or separable convolutions with batch norm on MNIST, or a small transformer
on text of random words. For fedplug the recurrent and the separable net are in a file of the user's own. The systems
take turns, a round each, in processes that wait for each other, so that a busy machine slows them alike; Flower runs
alone after them, since Ray works while it waits. The output is CPU seconds of a round, median, without the first, over
every process that a system starts. Ratios are medians over the pairs of rounds that ran one after the other. Memory is
the peak of resident memory of all processes of a system, with Python, torch and the data. fedplug's evaluation also
counts on each client's own test examples, and it writes a checkpoint each round, unlike the others.

pfl and Flower get separate environments in the cache folder, which are made the first time. They get the first of the
versions below that can be installed, which is printed, or else the reason. `--csv` writes milliseconds of a
client and round in the columns of `docs/numbers/peers.csv`. Targets, as ratios of one run in the clear: 20 and 200
clients at most 1.05 x the loop by hand, 1000 small clients at most 1.15 x, and never above pfl; full protection (vote,
BFV, noise) at most 3 x the clear run. Exit code 1 if one is missed.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
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
_PERCEPTRON, _CONV = {"use": "std.mlp"}, {"use": "std.lenet5"}
_GPT = {"use": "std.gpt", "width": 64, "layers": 2, "heads": 2}
_OWN = HERE / "peer_programs" / "nets.py"
_GRU, _SEPARABLE = {"use": f"{_OWN}:Gru"}, {"use": f"{_OWN}:Separable"}
ROWS: dict[str, dict[str, Any]] = {
    "20": {"clients": 20, "examples": 60_000, "hidden": [256, 128], "epochs": 5, "batch_size": 32, "rounds": 3},
    "200": {"clients": 200, "examples": 12_000, "hidden": [256, 128], "epochs": 1, "batch_size": 20, "rounds": 8},
    "1000": {"clients": 1000, "examples": 60_000, "hidden": [32], "epochs": 1, "batch_size": 20, "rounds": 5},
    "conv-20": {"clients": 20, "examples": 12_000, "model": _CONV, "epochs": 5, "batch_size": 32, "rounds": 4},
    "conv-200": {"clients": 200, "examples": 12_000, "model": _CONV, "epochs": 1, "batch_size": 20, "rounds": 8},
    "conv-1000": {"clients": 1000, "examples": 60_000, "model": _CONV, "epochs": 1, "batch_size": 20, "rounds": 5},
    "gpt-20": {"clients": 20, "examples": 2_000, "model": _GPT, "epochs": 2, "batch_size": 16, "rounds": 4},
    "gpt-200": {"clients": 200, "examples": 4_000, "model": _GPT, "epochs": 1, "batch_size": 10, "rounds": 6},
    "gru-20": {"clients": 20, "examples": 6_000, "model": _GRU, "epochs": 1, "batch_size": 20, "rounds": 6},
    "gru-200": {"clients": 200, "examples": 20_000, "model": _GRU, "epochs": 1, "batch_size": 20, "rounds": 4},
    "gru-1000": {"clients": 1000, "examples": 60_000, "model": _GRU, "epochs": 1, "batch_size": 20, "rounds": 3},
    "separable-20": {"clients": 20, "examples": 6_000, "model": _SEPARABLE, "epochs": 1, "batch_size": 20, "rounds": 4},
    "separable-200": {
        "clients": 200, "examples": 20_000, "model": _SEPARABLE, "epochs": 1, "batch_size": 20, "rounds": 3,
    },
}
"""Sizes of the rows. Without a model, it is a perceptron with these hidden layers."""
BY_HAND = {20: 1.05, 200: 1.05, 1000: 1.15}
"""By number of clients: the largest ratio to the CPU time of the loop by hand."""
PFL = 1.0
"""The largest ratio to pfl."""
FULL = 3.0
"""Full protection, where a row has it: the largest ratio to the clear run."""
PEERS = {"pfl": ("pfl==0.6.0",), "flower": ("flwr[simulation]==1.42.0", "flwr[simulation]==1.41.0")}
LIMIT = 1800
CONTEXT = 64
"""Tokens of a piece of text."""


def write_work(row: dict[str, Any], folder: Path) -> Path:
    """The row's data and settings as the programs read them."""
    from fedplug_std.datasets import Mnist, TextFile

    model = row.get("model") or {**_PERCEPTRON, "hidden": row["hidden"]}
    if model["use"] == "std.gpt":
        text = write_text(folder / "text.txt", row["examples"])
        chosen = {"file": str(text), "context": CONTEXT, "train_size": row["examples"]}
        data, spec = TextFile(TextFile.Options(**chosen)).load(None), {"use": "std.text", **chosen}
    else:
        chosen = {"train_size": row["examples"]}
        data, spec = Mnist(Mnist.Options(**chosen)).load(None), {"use": "std.mnist", **chosen}

    def entering(inputs: np.ndarray) -> np.ndarray:
        if not data.mean:
            return inputs
        shaped = inputs.reshape(len(inputs), -1) if model["use"] == "std.mlp" else inputs
        return (shaped.astype(np.float32) / 255 - np.float32(data.mean[0])) / np.float32(data.std[0])

    order = np.random.default_rng(1).permutation(len(data.train))
    settings = {**{key: row[key] for key in ("clients", "epochs", "batch_size", "rounds")}, "lr": 0.05, "model": model}
    path = folder / "work.npz"
    np.savez(
        path, inputs=entering(data.train.inputs[order]), labels=data.train.answers[order],
        test_inputs=entering(data.test.inputs), test_labels=data.test.answers, settings=json.dumps(settings),
    )  # fmt: skip
    Path(f"{path}.json").write_text(json.dumps({**settings, "data": spec}))
    return path


def write_text(path: Path, pieces: int) -> Path:
    """Words of random letters, by Zipf's law: that number of training pieces, and a ninth of it for testing."""
    rng = np.random.default_rng(1)
    words = ["".join(map(chr, rng.integers(97, 123, rng.integers(2, 9)))) for _ in range(300)]
    size = CONTEXT * (pieces * 10 // 9 + 40)
    shares = 1 / np.arange(1, len(words) + 1)
    path.write_text(" ".join(words[k] for k in rng.choice(len(words), size // 2, p=shares / shares.sum()))[:size])
    return path


def environment(name: str, cache: Path) -> tuple[Path | None, str]:
    """The Python of a peer's environment, made if missing, and the installed version; or None and the reason."""
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


@dataclasses.dataclass
class Measured:
    """Costs of one system: CPU seconds of each round but the first, peak MiB, and the accuracy of its last model."""

    rounds: list[float]
    peak: float
    accuracy: float

    @property
    def seconds(self) -> float:
        """CPU seconds of a round, median."""
        return statistics.median(self.rounds)


class Program:
    """A program that runs and, if it takes turns, waits for its turn at the end of every round."""

    def __init__(self, python: Path, program: str, work: Path, full: bool = False, turns: bool = False) -> None:
        environ = {
            **os.environ, "FEDPLUG_WORK": str(work), "FEDPLUG_FULL": str(int(full)),
            "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
        }  # fmt: skip
        ours = os.environ.get("PYTHONPATH", "") if python == Path(sys.executable) else ""
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE / "peer_programs"), ours]))
        theirs: tuple[int, ...] = ()
        if turns:
            read, self._go = os.pipe()
            self._done, write = os.pipe()
            theirs = read, write
            environ["FEDPLUG_TURN"] = f"{read},{write}"
        self._said, self._erred = (tempfile.TemporaryFile("w+") for _ in range(2))  # noqa: SIM115, read by `answer`
        command = [str(python), str(HERE / "peer_programs" / program)]
        self._process = subprocess.Popen(
            command, env=environ, stdout=self._said, stderr=self._erred, text=True, pass_fds=theirs
        )
        for each in theirs:
            os.close(each)
        self.runs = not turns or self._arrived()

    def turn(self) -> None:
        """Lets it compute its next round, and waits for the end of that."""
        os.write(self._go, b".")
        self.runs = self._arrived()

    def _arrived(self) -> bool:
        return os.read(self._done, 1) != b""

    def answer(self) -> dict[str, Any]:
        """Its answer; see `peer_programs/common.py`.

        Raises:
            RuntimeError: it has no answer; includes its last line of output.
        """
        try:
            self._process.wait(LIMIT)
        except subprocess.TimeoutExpired as error:
            self._process.kill()
            raise RuntimeError(f"it took more than {LIMIT} s") from error
        for file in (self._said, self._erred):
            file.seek(0)
        said, erred = self._said.read(), self._erred.read()
        try:
            found: dict[str, Any] = json.loads(said.strip().splitlines()[-1])
        except (ValueError, IndexError) as error:
            last = (erred.strip().splitlines() or [f"it ended with code {self._process.returncode}"])[-1]
            raise RuntimeError(last) from error
        return found


def run_program(python: Path, program: str, work: Path, full: bool = False) -> dict[str, Any]:
    """The answer of a program that runs alone, as `Program.answer`."""
    return Program(python, program, work, full).answer()


def in_turns(programs: dict[str, tuple[Path, str]], work: Path) -> dict[str, Measured | str]:
    """Runs programs round by round in turn. Returns the costs of each, or why it did not run."""
    running = {name: Program(*what, work, "full" in name, turns=True) for name, what in programs.items()}
    while any(each.runs for each in running.values()):
        for each in running.values():
            if each.runs:
                each.turn()
    return {name: measured(each) for name, each in running.items()}


def measured(program: Program) -> Measured | str:
    """The costs of a program, or why it did not run."""
    try:
        answer = program.answer()
    except RuntimeError as error:
        return str(error)
    return Measured(answer["rounds"][1:], answer["peak"], answer["accuracy"])


def compare(name: str, without: list[str], cache: Path) -> tuple[bool, dict[str, str]]:
    """Runs everything on one row and prints it; whether the targets were met, and the row for `--csv`."""
    row, ours = ROWS[name], Path(sys.executable)
    print(f"{described(row)}, batches of {row['batch_size']}: CPU seconds a round, milliseconds a client, peak MiB")
    programs: dict[str, tuple[Path, str]] = {"by hand": (ours, "bare.py"), "fedplug": (ours, "with_fedplug.py")}
    not_run: dict[str, str] = {}
    for peer in PEERS:
        python, what = (None, "left out") if peer in without else environment(peer, cache)
        if python:
            print(f"  {peer} is {what}")
            programs[peer] = python, f"with_{peer}.py"
        else:
            not_run[peer] = what
    if "model" not in row and "full" not in without:
        programs["fedplug, full"] = ours, "with_fedplug.py"
    alone = programs.pop("flower", None)
    with tempfile.TemporaryDirectory() as folder:
        work = write_work(row, Path(folder))
        answers = in_turns(programs, work)
        if alone:
            answers["flower"] = measured(Program(*alone, work))
    found = {system: answer for system, answer in answers.items() if isinstance(answer, Measured)}
    not_run |= {system: answer for system, answer in answers.items() if isinstance(answer, str)}
    for system, took in found.items():
        each = 1000 * took.seconds / row["clients"]
        spread = f"{min(took.rounds):.2f} to {max(took.rounds):.2f}"
        print(
            f"  {system:14} {took.seconds:8.3f} s {each:8.2f} ms {took.peak:6.0f} MiB  accuracy {took.accuracy:.3f}  "
            f"rounds {spread}"
        )
    for system, why in not_run.items():
        print(f"  {system:14} not run: {why}")
    met, judged = True, []
    for system, base, most in (
        ("fedplug", "by hand", BY_HAND[row["clients"]]), ("fedplug", "pfl", PFL), ("fedplug, full", "fedplug", FULL),
    ):  # fmt: skip
        value = ratio(found, system, base)
        if value is not None:
            said = "met" if value <= most else "missed"
            met &= said == "met"
            judged.append(f"{most:g}, {said}")
            print(f"  {system} is {value:.3f} x {base}; target {most:g}: {said}", flush=True)
    return met, table_row(row, found, judged)


def ratio(found: dict[str, Measured], system: str, base: str) -> float | None:
    """Of two systems, the median over their pairs of rounds; None where one did not run."""
    if not {system, base} <= found.keys():
        return None
    return statistics.median(a / b for a, b in zip(found[system].rounds, found[base].rounds, strict=False))


def described(row: dict[str, Any]) -> str:
    """The model and data of a row."""
    kind = row["model"]["use"] if "model" in row else "std.mlp"
    widths = [784, *row.get("hidden", []), 10]
    parameters = sum((before + 1) * after for before, after in itertools.pairwise(widths))
    what = {
        "std.mlp": f"perceptron, {parameters:,} parameters", "std.lenet5": "LeNet-5, 61,706 parameters",
        "std.gpt": f"transformer, 137,152 parameters, {CONTEXT} tokens an example",
        _GRU["use"]: "recurrent net, 99,278 parameters", _SEPARABLE["use"]: "separable net, 153,354 parameters",
    }[kind]  # fmt: skip
    epochs = f", {row['epochs']} epochs" if row["epochs"] > 1 else ""
    return f"{what}: {row['clients']} clients x {row['examples'] // row['clients']:,} examples{epochs}"


def table_row(row: dict[str, Any], found: dict[str, Measured], judged: list[str]) -> dict[str, str]:
    """A row of the table in the documentation: milliseconds of a client and round; empty where nothing ran."""
    clients = row["clients"]

    def of(system: str) -> str:
        if system not in found:
            return "" if system == "fedplug, full" else "not run"
        return f"{1000 * found[system].seconds / clients:.{0 if clients < 100 else 1}f}"

    def times(system: str, base: str) -> str:
        value = ratio(found, system, base)
        return "" if value is None else f"{value:.2f}"

    memory = [f"{found[name].peak:.0f}" if name in found else "-" for name in ("by hand", "fedplug", "pfl", "flower")]
    return {
        "work": described(row), **{name: of(name) for name in ("by hand", "fedplug")}, "pfl 0.6": of("pfl"),
        "Flower, Ray": of("flower"), "fedplug, full protection": of("fedplug, full"),
        "fedplug / by hand": times("fedplug", "by hand"), "fedplug / pfl": times("fedplug", "pfl"),
        "full / clear": times("fedplug, full", "fedplug"), "targets": "; ".join(judged),
        "peak MiB: by hand, fedplug, pfl, Flower": ", ".join(memory),
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
