"""What a model answers for the examples of one set, each computed once, whichever client asks for it first.

Clients of a process that hold the same model are judged on a few examples of one common set each. What a model gives
for an example may differ in its last bits with the size of its batch and with its place in it, but not with what
else is there (`Answers.suits` tries that). So all batches have one size, and an example has the same place in every
batch: its number modulo that size. Places that nobody wants are filled with examples that somebody may ask for later.
Each process then computes the same numbers, whichever clients it holds, and one that holds all clients passes every
example once.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from fedplug.api.data import Evaluation, Examples

if TYPE_CHECKING:
    from numpy.typing import NDArray

BATCH = 64
"""Examples that pass a model at once on a CPU: convolutions are slower in larger batches, and others hardly faster."""
MOST_OUTPUTS = 1 << 26
"""Outputs for examples of one class each are kept where they take at most this many numbers: 256 MiB."""
_MOST_JUDGED = 1 << 24
"""The same of outputs that a task counts, which is done for each client anew: 64 MiB."""

Forward = Callable[[Examples], torch.Tensor]
"""The outputs for some examples, (n, ...)."""
Judged = Callable[[torch.Tensor, torch.Tensor], Evaluation]
"""The counts of outputs and answers."""


class Answers:
    """The outputs of one model for the examples of one set.

    Args:
        of: the set; at least one example.
        batch: how many examples pass the model at once; fewer where there are fewer.
        key: what the model was, for whoever looks for its answers.
        judged: counts outputs and answers; None: right answers and cross entropy are added up by example.
    """

    def __init__(self, of: Examples, batch: int, key: Any, judged: Judged | None) -> None:
        self.of, self.key, self._judged = of, key, judged
        self._batch = min(batch, len(of))
        self._known = np.ones((-(-len(of) // self._batch), self._batch), bool)
        self._known.reshape(-1)[: len(of)] = False
        self._right, self._loss = np.zeros(len(of), np.int64), np.zeros(len(of))
        self._outputs: NDArray[np.float32] | None = None
        self._seconds, self._passed = 0.0, 0

    def suits(self, forward: Forward) -> bool:
        """Whether the model can be asked so.

        Its output for an example must stay the same, bit for bit, where others in its batch change; and where all
        outputs are needed, they must be few enough to be kept.
        """
        places = np.arange(self._batch)
        changed = (places % 2 == 1) & (places + self._batch < len(self.of))
        some = forward(self.of.take(places))
        if self._judged is not None and len(self.of) * math.prod(some.shape[1:]) > _MOST_JUDGED:
            return False
        if not changed.any():  # there is one batch only
            return True
        other = forward(self.of.take(np.where(changed, places + self._batch, places)))
        same, too = (each.detach().to("cpu", torch.float32).numpy()[~changed] for each in (some, other))
        return bool(same.shape == too.shape and same.tobytes() == too.tobytes())

    @property
    def size(self) -> int:
        """How many numbers it keeps."""
        return 0 if self._outputs is None else self._outputs.size

    def lacks(self, places: NDArray[np.int64]) -> bool:
        """Whether one of these examples has not passed the model."""
        return not bool(self._known.reshape(-1)[places].all())

    def ask(self, places: NDArray[np.int64], forward: Forward) -> None:
        """Passes these examples to the model, as far as they have not been."""
        wanted = np.zeros_like(self._known)
        wanted.reshape(-1)[places] = True
        while (missing := wanted & ~self._known).any():
            started = time.perf_counter()
            rows = np.where(missing.any(0), missing.argmax(0), self._known.argmin(0))
            batch = rows * self._batch + np.arange(self._batch)
            self._take(batch, forward)
            self._seconds, self._passed = self._seconds + time.perf_counter() - started, self._passed + 1

    def _take(self, batch: NDArray[np.int64], forward: Forward) -> None:
        examples = self.of.take(batch)
        outputs = forward(examples).detach()
        self._known.reshape(-1)[batch] = True
        if self._judged is None:
            answers = torch.from_numpy(examples.answers).to(outputs.device)
            loss = torch.nn.functional.cross_entropy(outputs, answers, reduction="none")
            self._right[batch] = (outputs.argmax(1) == answers).reshape(len(batch), -1).sum(1).cpu().numpy()
            self._loss[batch] = loss.reshape(len(batch), -1).double().sum(1).cpu().numpy()
            if outputs.ndim != 2 or outputs.shape[1] * len(self.of) > MOST_OUTPUTS:
                return
        if self._outputs is None:
            self._outputs = np.empty((len(self.of), *outputs.shape[1:]), np.float32)
        self._outputs[batch] = outputs.to("cpu", torch.float32).numpy()

    def of_part(self, places: NDArray[np.int64], examples: Examples) -> Evaluation:
        """The counts for some examples, all of which have passed the model.

        Args:
            places: of the examples in the set.
            examples: these.
        """
        outputs = None if self._outputs is None or not len(places) else self._outputs[places]
        if self._judged is not None and outputs is not None:
            answers = examples.answers
            found = self._judged(torch.from_numpy(outputs), torch.from_numpy(np.array(answers)))
            one_class = outputs.ndim == 2 and answers.ndim == 1 and answers.dtype.kind in "iu"
            return dataclasses.replace(found, outputs=outputs if one_class else None)
        right, loss = int(self._right[places].sum()), float(self._loss[places].sum())
        return Evaluation(right, examples.answers.size, loss, outputs=outputs)

    def seconds(self, places: NDArray[np.int64]) -> float:
        """What it would take a process that asks for these examples alone."""
        if not len(places) or not self._passed:
            return 0.0
        return int(np.bincount(places % self._batch).max()) * self._seconds / self._passed
