"""Federated averaging as an app of Flower, as in its own examples: for its simulation and for a SuperLink."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from common import right
from flower_client import Trains, arrays, kept, load
from flwr.client import ClientApp
from flwr.common import Facts, ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg


def server_of(evaluated: Callable[[int, float], None]) -> ServerApp:
    """The server's side.

    Args:
        evaluated: gets the accuracy on the test set, before round 1 (as round 0) and at the end of each.
    """

    def evaluate(round: int, parameters: list[np.ndarray], config: dict[str, Any]) -> tuple[float, dict[str, float]]:
        work, module = kept()
        load(module, parameters)
        accuracy = right(module, torch.from_numpy(work.test_inputs), torch.from_numpy(work.test_labels))
        evaluated(round, accuracy)
        return 0.0, {"accuracy": accuracy}

    def parts(context: Facts) -> ServerAppComponents:
        work, module = kept()
        strategy = FedAvg(
            fraction_fit=1.0, fraction_evaluate=0.0, min_fit_clients=work.clients,
            min_available_clients=work.clients, evaluate_fn=evaluate,
            initial_parameters=ndarrays_to_parameters(arrays(module)),
        )  # fmt: skip
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=work.rounds))

    return ServerApp(server_fn=parts)


def _client(context: Facts) -> Any:
    return Trains(int(context.node_config["partition-id"])).to_client()


client = ClientApp(client_fn=_client)
server = server_of(lambda round, accuracy: print(f"round {round} accuracy {accuracy:.3f}", flush=True))
