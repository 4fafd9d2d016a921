"""The common parts of the programs of `peers.py`: their work, the clock, the answer. Imports nothing of fedplug.

Each program runs in the environment of its system and prints one line of JSON: CPU seconds of every round, the
accuracy of the last model, and the peak of memory. The variable FEDPLUG_WORK names a file with the work: inputs as they
enter the model, in the order of the clients, all of one size. FEDPLUG_TURN, if set, names two file
descriptors: at the end of a round the program writes a byte to the second, and waits for one from the first.

LeNet-5 and the transformer are those of fedplug, read from their files, which need only torch, as `nets.py` does.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

_TICK = os.sysconf("SC_CLK_TCK")
_NETWORKS = Path(__file__).resolve().parents[2] / "plugins" / "std" / "src" / "fedplug_std"


@dataclasses.dataclass(eq=False)
class Work:
    """A task: train a model by federated averaging.

    Attributes:
        inputs, labels: those of client 0 first. Images: float32 (n, 784) for `std.mlp`, else (n, 1, 28, 28), and int64
            (n,); text: int64 (n, positions), both.
        test_inputs, test_labels: on which the model is evaluated after every round.
        clients, epochs, batch_size, rounds, lr: as in a recipe.
        model: `use`, and its options, as in a recipe.
    """

    inputs: Any
    labels: Any
    test_inputs: Any
    test_labels: Any
    clients: int
    epochs: int
    batch_size: int
    rounds: int
    model: dict[str, Any]
    lr: float

    @classmethod
    def given(cls) -> Work:
        """The work in the file that FEDPLUG_WORK names."""
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
        options = dict(self.model)
        kind = options.pop("use")
        if (own := kind.rpartition(":")[0]) and own.endswith("nets.py"):
            return getattr(_networks("nets", Path(own)), kind.rpartition(":")[2])(self.inputs.shape[1:], 10)
        if kind == "std.gpt":
            return _networks("_gpt").Gpt(256, self.inputs.shape[1], **options)
        if kind == "std.lenet5":
            return _networks("_networks").lenet5(self.inputs.shape[1:], 10, "relu")
        widths = [self.inputs.shape[1], *options["hidden"]]
        layers: list[Any] = []
        for before, after in itertools.pairwise(widths):
            layers += [torch.nn.Linear(before, after), torch.nn.ReLU()]
        return torch.nn.Sequential(*layers, torch.nn.Linear(widths[-1], 10))


def _networks(name: str, file: Path | None = None) -> Any:
    spec = importlib.util.spec_from_file_location(name, file or _NETWORKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def loss(outputs: Any, labels: Any) -> Any:
    """The mean cross entropy of a batch: of its examples, or of all their tokens."""
    import torch

    return torch.nn.functional.cross_entropy(outputs.flatten(0, -2), labels.flatten())


def right(module: Any, inputs: Any, labels: Any) -> float:
    """The share of right answers, in batches that fit into memory."""
    import torch

    with torch.no_grad():
        parts = zip(torch.split(inputs, 1024), torch.split(labels, 1024), strict=True)
        return float(sum((module(some).argmax(-1) == answers).sum() for some, answers in parts)) / labels.numel()


class Meter:
    """Wall-clock seconds, and CPU seconds of this process and its descendants, at the end of every round.

    Made when the program begins.
    """

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.marks: list[float] = []
        self.times: list[float] = []
        self.peak = 0.0

    def mark(self) -> None:
        """A round ends here, or the first begins."""
        self.marks.append(cpu_seconds(os.getpid()))
        self.times.append(time.monotonic())
        self.peak = max(self.peak, peak_memory(os.getpid()))
        if turn := os.environ.get("FEDPLUG_TURN"):
            mine, other = map(int, turn.split(","))
            os.write(other, b".")
            os.read(mine, 1)

    def answer(self, accuracy: float) -> None:
        """Prints the line that `peers.py` and `engines.py` read."""
        rounds = [after - before for before, after in itertools.pairwise(self.marks)]
        seconds = [after - before for before, after in itertools.pairwise(self.times)]
        start = self.times[0] - self.began
        answer = {"rounds": rounds, "seconds": seconds, "start": start, "accuracy": float(accuracy), "peak": self.peak}
        print(json.dumps(answer))


def cpu_seconds(root: int) -> float:
    """User and system time of a process, of its living descendants, and of those of them that were waited for."""
    return sum(sum(map(int, fields[11:15])) for fields in _family(root).values()) / _TICK


def peak_memory(root: int) -> float:
    """Peak resident MiB of a process and of each of its living descendants, summed: shared pages count in each."""
    total = 0
    for process in _family(root):
        try:
            with open(f"/proc/{process}/status") as file:
                total += sum(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
        except OSError:  # it has ended meanwhile
            continue
    return total / 1024


def _family(root: int) -> dict[int, list[str]]:
    """A process and its living descendants, each with the fields of `stat` after its name."""
    found: dict[int, list[str]] = {}
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            with open(f"/proc/{name}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        found[int(name)] = fields
        children.setdefault(int(fields[1]), []).append(int(name))
    family, waiting = {}, [root]
    while waiting:
        process = waiting.pop()
        if process in found:
            family[process] = found[process]
        waiting += children.get(process, [])
    return family
