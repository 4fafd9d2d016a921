"""What the programs of `peers.py` share: the work they are given, the clock, the answer. Imports nothing of fedplug.

Each program runs in the environment of its system and prints one line of JSON: CPU seconds of every round, and the
accuracy of the last model. The variable FEDPLUG_WORK names a file with the work: inputs that are standardised already,
float32, in the order of the clients, all of one size.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import time
from typing import Any

import numpy as np

_TICK = os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass(eq=False)
class Work:
    """A task: train an MLP on MNIST by federated averaging.

    Attributes:
        inputs, labels: float32 (n, 784), int64 (n,): those of client 0 first.
        test_inputs, test_labels: on which the model is evaluated after every round.
        clients, epochs, batch_size, rounds, hidden, lr: as in a recipe.
    """

    inputs: Any
    labels: Any
    test_inputs: Any
    test_labels: Any
    clients: int
    epochs: int
    batch_size: int
    rounds: int
    hidden: list[int]
    lr: float

    @classmethod
    def given(cls) -> Work:
        """That of the file which FEDPLUG_WORK names."""
        with np.load(os.environ["FEDPLUG_WORK"]) as file:
            arrays = {name: file[name] for name in ("inputs", "labels", "test_inputs", "test_labels")}
            return cls(**arrays, **json.loads(str(file["settings"])))

    def share(self, client: int) -> slice:
        """Which examples a client has."""
        size = len(self.inputs) // self.clients
        return slice(client * size, (client + 1) * size)

    def module(self) -> Any:
        """The model, as a torch module."""
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(1)
        widths = [self.inputs.shape[1], *self.hidden]
        layers: list[Any] = []
        for before, after in itertools.pairwise(widths):
            layers += [torch.nn.Linear(before, after), torch.nn.ReLU()]
        return torch.nn.Sequential(*layers, torch.nn.Linear(widths[-1], 10))


class Meter:
    """Seconds by the clock, and CPU seconds of this process and of all that it has started, at the end of every round.

    Made when the program begins.
    """

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.marks: list[float] = []
        self.times: list[float] = []

    def mark(self) -> None:
        """A round ends here, or the first begins."""
        self.marks.append(cpu_seconds(os.getpid()))
        self.times.append(time.monotonic())

    def answer(self, accuracy: float) -> None:
        """Prints what `peers.py` and `engines.py` read."""
        rounds = [after - before for before, after in itertools.pairwise(self.marks)]
        seconds = [after - before for before, after in itertools.pairwise(self.times)]
        start = self.times[0] - self.began
        print(json.dumps({"rounds": rounds, "seconds": seconds, "start": start, "accuracy": float(accuracy)}))


def cpu_seconds(root: int) -> float:
    """User and system time of a process, of its living descendants, and of those of them that were waited for."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            with open(f"/proc/{name}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        parents[int(name)] = int(fields[1])
        used[int(name)] = sum(map(int, fields[11:15])) / _TICK
    children: dict[int, list[int]] = {}
    for child, parent in parents.items():
        children.setdefault(parent, []).append(child)
    total, waiting = 0.0, [root]
    while waiting:
        process = waiting.pop()
        total += used.get(process, 0.0)
        waiting += children.get(process, [])
    return total
