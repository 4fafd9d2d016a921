"""A model that kept something of a client is told from one that did not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from fedplug.api.data import ClientData, Examples
from fedplug_std.torch_model import TorchModel


class Config:
    def __init__(self) -> None:
        self.sizes = [4, 3]


class Net(torch.nn.Module):
    """Has what users' modules have: layers of torch, buffers of both kinds, constants, settings, a frozen part."""

    def __init__(self) -> None:
        super().__init__()
        self.config, self.names, self._scale, self.rate = Config(), {"in": ("a", "b")}, [1.0], 0.5
        self.reads = torch.nn.GRU(2, 4, batch_first=True)
        self.normed = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.1))
        self.frozen = torch.nn.Linear(4, 4).requires_grad_(requires_grad=False)
        self.register_buffer("mask", torch.ones(4), persistent=False)
        self.steps = 0
        self.answers = torch.nn.Linear(4, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        found: torch.Tensor = self.answers(self.frozen(self.normed(self.reads(inputs)[0][:, -1])) * self.mask)
        return found


@pytest.fixture
def made() -> TorchModel:
    return copy.deepcopy(TorchModel(Net()))


def use(model: TorchModel) -> None:
    """What a client does with it."""
    model.set_vector(model.get_vector() + np.float32(1))
    inputs = np.random.default_rng(1).random((6, 3, 2), np.float32)
    module = model.module.train()
    gradients = torch.autograd.grad(module(torch.from_numpy(inputs)).sum(), model.parameters)
    with torch.no_grad():
        torch._foreach_add_(model.parameters, gradients)
    examples = Examples(inputs, np.zeros(6, np.int64))
    model.evaluate(examples, ClientData(examples, examples, examples, classes=("0", "1", "2"), mean=(), std=()))


def test_what_every_client_does_leaves_nothing(made: TorchModel) -> None:
    buffers = made.get_buffers()
    for _ in range(3):
        use(made)
        assert made.is_untouched()
        made.set_buffers(buffers)
        assert made.is_untouched()
    assert made.module.steps == 0


def _kept(net: Any) -> None:
    net._kept = 1


def _on_torchs_own(net: Any) -> None:
    net.reads.kept = 1


def _in_a_list(net: Any) -> None:
    net._scale[0] = 2.0


def _in_an_object(net: Any) -> None:
    net.config.sizes.append(1)


def _in_a_frozen_part(net: Any) -> None:
    net.frozen.weight.data += 1  # no counter of torch's sees that


def _in_a_constant(net: Any) -> None:
    net.mask.numpy()[0] = 2


def _on_a_tensor(net: Any) -> None:
    net.answers.weight.kept = 1


def _in_a_gradient(net: Any) -> None:
    net.answers.weight.sum().backward()


def _in_a_hook(net: Any) -> None:
    net.answers.register_forward_hook(lambda *_: None)


def _in_a_hook_of_a_tensor(net: Any) -> None:
    net.answers.weight.register_hook(lambda gradient: gradient)


def _in_another_part(net: Any) -> None:
    net.answers = torch.nn.Linear(4, 3)


def _in_a_mode(net: Any) -> None:
    net.normed[0].eval()


def _in_what_is_hidden(net: Any) -> None:
    del net.names["in"]
    net._modules["_hidden"] = None


@pytest.mark.parametrize("keep", [
    _kept, _on_torchs_own, _in_a_list, _in_an_object, _in_a_frozen_part, _in_a_constant, _on_a_tensor, _in_a_gradient,
    _in_a_hook, _in_a_hook_of_a_tensor, _in_another_part, _in_a_mode, _in_what_is_hidden,
])  # fmt: skip
def test_what_is_kept_is_found(keep: Callable[[Any], None], made: TorchModel) -> None:
    assert made.is_untouched()
    keep(made._module)
    assert not made.is_untouched()


def test_what_nobody_can_look_through_is_never_trusted(made: TorchModel) -> None:
    assert not TorchModel(Net()).is_untouched(), "it is no copy, so nobody knows what it was"
    for held in (np.random.default_rng(1), np.ones(2), iter([1]), [np.ones(1)], torch.sparse_coo_tensor(size=(1, 1))):
        module = Net()
        module._held = held
        assert not copy.deepcopy(TorchModel(module)).is_untouched(), held

    class Own(TorchModel):
        """Somebody else's, who may keep more on the model itself."""

    assert not copy.deepcopy(Own(Net())).is_untouched()
    made._module = Net()
    assert not made.is_untouched()


def test_a_constant_that_was_changed_begins_anew(made: TorchModel) -> None:
    made._module.mask.numpy()[0] = 2
    made.set_buffers({})
    assert made._module.mask.tolist() == [1, 1, 1, 1]
    made._module.mask = torch.zeros(4)
    made.set_buffers({})
    assert made._module.mask.tolist() == [1, 1, 1, 1]
