"""Federated averaging as a person writes it for speed: one loop, no framework. The floor that others stand on."""

from __future__ import annotations

import torch
from common import Meter, Work


def forward(parameters: list[torch.Tensor], inputs: torch.Tensor) -> torch.Tensor:
    """The logits of a multilayer perceptron."""
    for index in range(0, len(parameters) - 2, 2):
        inputs = torch.relu(torch.nn.functional.linear(inputs, parameters[index], parameters[index + 1]))
    return torch.nn.functional.linear(inputs, parameters[-2], parameters[-1])


def main() -> None:
    """Runs the work."""
    work, meter = Work.given(), Meter()
    model = [parameter.detach() for parameter in work.module().parameters()]
    inputs, labels = torch.from_numpy(work.inputs), torch.from_numpy(work.labels)
    test_inputs, test_labels = torch.from_numpy(work.test_inputs), torch.from_numpy(work.test_labels)
    accuracy = 0.0
    meter.mark()
    for _ in range(work.rounds):
        total = [torch.zeros_like(tensor) for tensor in model]
        for client in range(work.clients):
            mine, own = inputs[work.share(client)], labels[work.share(client)]
            local = [tensor.clone().requires_grad_() for tensor in model]
            for _ in range(work.epochs):
                order = torch.randperm(len(own))
                for start in range(0, len(own), work.batch_size):
                    batch = order[start : start + work.batch_size]
                    loss = torch.nn.functional.cross_entropy(forward(local, mine[batch]), own[batch])
                    gradients = torch.autograd.grad(loss, local)
                    with torch.no_grad():
                        torch._foreach_add_(local, gradients, alpha=-work.lr)
            with torch.no_grad():
                torch._foreach_add_(total, local)
        model = [tensor / work.clients for tensor in total]
        with torch.no_grad():
            accuracy = float((forward(model, test_inputs).argmax(1) == test_labels).float().mean())
        meter.mark()
    meter.answer(accuracy)


main()
