"""Federated averaging with Flower's simulation: its virtual clients over Ray, one at a time on each core."""

from __future__ import annotations

import os

os.environ.update(FLWR_TELEMETRY_ENABLED="0", FLWR_DISABLE_UPDATE_CHECK="1", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0")

from typing import Any

import numpy as np
import torch
from common import Meter
from flower_client import Trains, arrays, kept, load
from flwr.client import ClientApp
from flwr.common import Context, ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.simulation import run_simulation


def main() -> None:
    """Runs the work."""
    work, module = kept()
    meter, found = Meter(), [0.0]

    def evaluate(round: int, parameters: list[np.ndarray], config: dict[str, Any]) -> tuple[float, dict[str, float]]:
        load(module, parameters)
        with torch.no_grad():
            right = module(torch.from_numpy(work.test_inputs)).argmax(1) == torch.from_numpy(work.test_labels)
        found[0] = float(right.float().mean())
        meter.mark()  # before round 1 once, and at the end of each
        return 0.0, {"accuracy": found[0]}

    def server(context: Context) -> ServerAppComponents:
        strategy = FedAvg(
            fraction_fit=1.0, fraction_evaluate=0.0, min_available_clients=work.clients, evaluate_fn=evaluate,
            initial_parameters=ndarrays_to_parameters(arrays(module)),
        )  # fmt: skip
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=work.rounds))

    def client(context: Context) -> Any:
        return Trains(int(context.node_config["partition-id"])).to_client()

    run_simulation(
        server_app=ServerApp(server_fn=server), client_app=ClientApp(client_fn=client), num_supernodes=work.clients,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )  # fmt: skip
    meter.answer(found[0])


main()
