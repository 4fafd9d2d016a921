"""A client of Flower. In a separate module, so that Ray sends its name to the workers and not the data."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from common import Work, loss
from flwr.client import NumPyClient

_KEPT: dict[str, Any] = {}


def kept() -> tuple[Work, torch.nn.Module]:
    """The work and a module, loaded once per worker."""
    if not _KEPT:
        work = Work.given()
        _KEPT.update(work=work, module=work.module())
    return _KEPT["work"], _KEPT["module"]


def arrays(module: torch.nn.Module) -> list[np.ndarray]:
    """The module's parameters."""
    return [tensor.detach().numpy().copy() for tensor in module.parameters()]


def load(module: torch.nn.Module, values: list[np.ndarray]) -> None:
    """Overwrites the module's parameters."""
    with torch.no_grad():
        for tensor, value in zip(module.parameters(), values, strict=True):
            tensor.copy_(torch.from_numpy(value))


class Trains(NumPyClient):
    """A client as in Flower's own examples."""

    def __init__(self, client: int) -> None:
        self.client = client

    def fit(self, parameters: list[np.ndarray], config: dict[str, Any]) -> tuple[list[np.ndarray], int, dict[str, Any]]:
        """Trains on the client's share."""
        work, module = kept()
        load(module, parameters)
        share = work.share(self.client)
        inputs, labels = torch.from_numpy(work.inputs[share]), torch.from_numpy(work.labels[share])
        optimiser = torch.optim.SGD(module.parameters(), lr=work.lr)
        for _ in range(work.epochs):
            order = torch.randperm(len(labels))
            for start in range(0, len(labels), work.batch_size):
                batch = order[start : start + work.batch_size]
                optimiser.zero_grad()
                loss(module(inputs[batch]), labels[batch]).backward()
                optimiser.step()
        return arrays(module), len(labels), {}
