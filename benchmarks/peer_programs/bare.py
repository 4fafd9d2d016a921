"""Federated averaging written by hand for speed: one loop, no framework. The baseline for the others."""

from __future__ import annotations

import torch
from common import Meter, Work, loss, right


def main() -> None:
    """Runs the work."""
    work, meter = Work.given(), Meter()
    module = work.module()
    local = list(module.parameters())
    model = [parameter.detach().clone() for parameter in local]
    statistics = [buffer for buffer in module.buffers() if buffer.is_floating_point()]  # of batch norm, averaged too
    local += statistics
    model += [buffer.clone() for buffer in statistics]
    trained = local[: len(local) - len(statistics)]
    inputs, labels = torch.from_numpy(work.inputs), torch.from_numpy(work.labels)
    test_inputs, test_labels = torch.from_numpy(work.test_inputs), torch.from_numpy(work.test_labels)
    accuracy = 0.0
    meter.mark()
    for _ in range(work.rounds):
        total = [torch.zeros_like(tensor) for tensor in model]
        for client in range(work.clients):
            mine, own = inputs[work.share(client)], labels[work.share(client)]
            with torch.no_grad():
                torch._foreach_copy_(local, model)
            for _ in range(work.epochs):
                order = torch.randperm(len(own))
                for start in range(0, len(own), work.batch_size):
                    batch = order[start : start + work.batch_size]
                    gradients = torch.autograd.grad(loss(module(mine[batch]), own[batch]), trained)
                    with torch.no_grad():
                        torch._foreach_add_(trained, gradients, alpha=-work.lr)
            with torch.no_grad():
                torch._foreach_add_(total, local)
        model = [tensor / work.clients for tensor in total]
        with torch.no_grad():
            torch._foreach_copy_(local, model)
        accuracy = right(module.eval(), test_inputs, test_labels)
        module.train()
        meter.mark()
    meter.answer(accuracy)


main()
