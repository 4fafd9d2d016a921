"""Plain attributes of a module, which the clients of a process share with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from fedplug_std.attributes import Attributes
from fedplug_std.torch_model import TorchModel


class Keeps(torch.nn.Module):
    """Keep what it has seen, in every way but a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(3, 2)
        self.parts = [self.inner]
        self.count, self.last, self.width = 0, None, 3
        self.mean, self.sums = torch.zeros(3), np.zeros(3)
        self.seen: list[Any] = []
        self.by_name: dict[str, Any] = {"first": torch.ones(2)}

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.count += 1
        self.mean += inputs.mean(0)
        self.sums += inputs.sum(0).numpy()
        self.seen.append(inputs)
        self.by_name["first"].mul_(2)
        found: torch.Tensor = self.inner(inputs)
        self.last = self.answers = found
        return found


def test_what_one_client_leaves_on_a_module_does_not_reach_the_next() -> None:
    module = Keeps()
    model = TorchModel(module)
    parts, weight = module.parts, module.inner.weight
    for _ in range(2):
        module(torch.ones(4, 3))
        model.set_buffers({})
        assert (module.count, module.last, module.seen, module.width) == (0, None, [], 3)
        assert not module.mean.any()
        assert not module.sums.any()
        assert module.by_name["first"].tolist() == [1.0, 1.0]
        assert not hasattr(module, "answers")
        assert module.parts is parts, "modules are no values"
        assert module.inner.weight is weight


def test_what_nobody_has_changed_stays_the_same_object() -> None:
    module = Keeps()
    kept, mean = Attributes(module), module.mean
    kept.begin_anew()
    assert module.mean is mean
    mean += 1
    kept.begin_anew()
    assert module.mean is not mean
