"""The overhead of a round besides training, compared with a textbook training loop: MNIST, 20 clients.

    FEDPLUG_DATA=... python benchmarks/round.py [--rounds 6] [--csv FILE]

Runs the recipe below in one process, and with each of its rounds the loop of `idiomatic` on as many examples. Prints,
for a round, the CPU seconds of each phase in the process: work that the clients of a process share, such as an opened
sum, counts once. The first round is left out because it builds what the others use, the last because it
holds the end of the run. The targets: everything that is not training takes at most 4% of the loop's time, and at most
3% without evaluation.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import csv
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: CPU seconds of idle threads count too

import fedplug
import torch
from fedplug.round.hosted import HostedClient
from fedplug_runs.shown import LinesDisplay

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedplug_runs.rows import Row

CLIENTS, EPOCHS, BATCH, LR = 20, 5, 32, 0.01
EXAMPLES = 3000
HIDDEN = [256, 128]
RECIPE: dict[str, Any] = {
    "name": "benchmark-round",
    "seed": 1,
    "data": {"use": "std.mnist", "clients": CLIENTS, "partition": {"use": "std.dirichlet", "alpha": 0.5}},
    "model": {"use": "std.mlp", "hidden": HIDDEN},
    "train": {"use": "std.sgd", "epochs": EPOCHS, "batch_size": BATCH, "lr": LR},
    "score_parameters": [{"use": "paraaegis.magnitude"}],
    "negotiate_mask": {"use": "paraaegis.vote", "ratio": 0.1},
    "protect": {
        "encrypted": [{"use": "std.bfv", "key_holder": "clients"}],
        "noised": [{"use": "std.clip", "norm": 0.1}, {"use": "std.gaussian", "epsilon": 1, "delta": 1e-5}],
    },
    "aggregate": {"use": "std.mean"},
    "postprocess": {"encrypted": ["std.bfv"]},
}
TARGETS = {"everything but training": 0.04, "without evaluation": 0.03}


def idiomatic(inputs: torch.Tensor, labels: torch.Tensor) -> float:
    """CPU seconds in which one client trains with a textbook loop: a module, its loss, an optimizer.

    Args:
        inputs, labels: float32 (EXAMPLES, 784), int64 (EXAMPLES,).
    """
    layers: list[torch.nn.Module] = []
    for width, outputs in zip([784, *HIDDEN], [*HIDDEN, 10], strict=True):
        layers += [torch.nn.Linear(width, outputs), torch.nn.ReLU()]
    module = torch.nn.Sequential(*layers[:-1])
    optimizer = torch.optim.SGD(module.parameters(), lr=LR)
    began = time.process_time()
    for _ in range(EPOCHS):
        order = torch.randperm(len(labels))
        for start in range(0, len(labels), BATCH):
            batch = order[start : start + BATCH]
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(module(inputs[batch]), labels[batch]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return time.process_time() - began


class Stopwatch(LinesDisplay):
    """CPU seconds of this process between two rows, and in the phases of its clients.

    Attributes:
        periods: of each: `all`, a name for each phase, and `loop`, the time of the textbook loop for all clients.
    """

    def __init__(self) -> None:
        super().__init__(sys.stdout, quiet=True)
        self.periods: list[dict[str, float]] = []
        self._phases: collections.defaultdict[str, float] = collections.defaultdict(float)
        self._inputs, self._labels = torch.rand(EXAMPLES, 784), torch.randint(0, 10, (EXAMPLES,))
        self._since = time.process_time()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Counts the clients' work by phase while this is open."""
        timed, phases = HostedClient.timed, self._phases

        @contextlib.contextmanager
        def counted(client: HostedClient, phase: str) -> Iterator[None]:
            began = time.process_time()
            with timed(client, phase):
                yield
            phases[phase] += time.process_time() - began

        with mock.patch.object(HostedClient, "timed", counted):
            yield

    def round_done(self, row: Row) -> None:
        """Then the loop, under the same load: on a few clients' examples, scaled to all."""
        took = {"all": time.process_time() - self._since, **self._phases}
        self.periods.append(took | {"loop": CLIENTS * statistics.mean(self._loop() for _ in range(4))})
        self._phases.clear()
        self._since = time.process_time()

    def _loop(self) -> float:
        return idiomatic(self._inputs, self._labels)


def measure(rounds: int) -> dict[str, float]:
    """Mean CPU seconds of each phase over the rounds between the first and the last, of all and of the loop."""
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder, watch.watching():
        fedplug.run(RECIPE, rounds=rounds, engine="local", output=folder, display=watch)
    steady = watch.periods[1:-1]
    return {name: statistics.mean(period.get(name, 0.0) for period in steady) for name in steady[0]}


def main() -> int:
    """Prints the split; exit code 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--csv", type=Path, help="write the table of docs/costs.md there")
    options = parser.parse_args()
    seconds = measure(options.rounds)
    loop, whole = seconds.pop("loop"), seconds.pop("all")
    rest = whole - seconds["train"]
    rows = dict(sorted(seconds.items(), key=lambda item: -item[1]))
    rows["server, messages, bookkeeping"] = whole - sum(seconds.values())
    judged = {"everything but training": rest, "without evaluation": rest - seconds["evaluate"]}
    lines = [("the textbook's loop", loop, ""), *((name, value, "") for name, value in rows.items())]
    for name, value in judged.items():
        verdict = "met" if value <= TARGETS[name] * loop else "missed"
        lines.append((name, value, f"{TARGETS[name]:.0%}: {verdict}"))
    table = [(name, f"{value:.3f}", f"{value / loop:.1%}", target) for name, value, target in lines]
    for name, taken, share, target in table:
        print(f"{name:32} {taken:>8} s {share:>8} of the loop  {target}")
    if options.csv:
        with options.csv.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("phase", "CPU seconds a round", "of the loop", "target"), *table])
    return 0 if all(value <= TARGETS[name] * loop for name, value in judged.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
