"""Federated averaging with Apple's pfl-research, simulated in one process as its own benchmarks do."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
from common import Meter, Work, loss
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel


class Network(torch.nn.Module):
    """The work's module, with the two functions that pfl requires of a module."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The logits."""
        return self.module(inputs)

    def loss(self, inputs: torch.Tensor, labels: torch.Tensor, **_: Any) -> torch.Tensor:
        """The mean cross entropy of a batch."""
        self.train()
        return loss(self(inputs), labels)

    @torch.no_grad()
    def metrics(self, inputs: torch.Tensor, labels: torch.Tensor, **_: Any) -> dict[str, Any]:
        """The accuracy on a batch."""
        self.eval()
        return {"accuracy": Weighted(int((self(inputs).argmax(-1) == labels).sum()), labels.numel())}


class Clock(TrainingProcessCallback):
    """Notes the end of every round, and the accuracy then."""

    def __init__(self, meter: Meter) -> None:
        self.meter, self.accuracy = meter, 0.0

    def after_central_iteration(self, aggregate_metrics: Any, model: Any, *, central_iteration: int) -> Any:
        """pfl calls this after each round."""
        found = [value for name, value in aggregate_metrics.to_simple_dict().items() if "accuracy" in str(name)]
        self.accuracy = found[-1] if found else self.accuracy
        self.meter.mark()
        return False, type(aggregate_metrics)()


def main() -> None:
    """Runs the work."""
    work, meter = Work.given(), Meter()
    np.random.seed(1)
    inputs, labels = torch.from_numpy(work.inputs), torch.from_numpy(work.labels)
    data = {client: [inputs[work.share(client)], labels[work.share(client)]] for client in range(work.clients)}
    # All clients take part in every round, in turn. pfl's own samplers were not measured.
    federated = FederatedDataset.from_slices(data, itertools.cycle(data).__next__)
    module = Network(work.module())
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    backend = SimulatedBackend(training_data=federated, val_data=None)
    params = NNAlgorithmParams(
        central_num_iterations=work.rounds, evaluation_frequency=work.rounds + 1, train_cohort_size=work.clients,
        val_cohort_size=0,
    )  # fmt: skip
    training = NNTrainHyperParams(
        local_num_epochs=work.epochs, local_learning_rate=work.lr, local_batch_size=work.batch_size
    )
    test = Dataset([torch.from_numpy(work.test_inputs), torch.from_numpy(work.test_labels)])
    clock = Clock(meter)
    evaluation = CentralEvaluationCallback(test, NNEvalHyperParams(local_batch_size=1024))
    meter.mark()
    FederatedAveraging().run(
        algorithm_params=params, backend=backend, model=model, model_train_params=training,
        model_eval_params=NNEvalHyperParams(local_batch_size=1024), callbacks=[evaluation, clock],
    )  # fmt: skip
    meter.answer(clock.accuracy)


main()
