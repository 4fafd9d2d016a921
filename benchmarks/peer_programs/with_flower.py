"""Federated averaging with Flower's simulation: its virtual clients over Ray, one at a time on each core."""

from __future__ import annotations

import os

os.environ.update(FLWR_TELEMETRY_ENABLED="0", FLWR_DISABLE_UPDATE_CHECK="1", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0")

from common import Meter
from flower_app import client, server_of
from flower_client import kept
from flwr.simulation import run_simulation


def main() -> None:
    """Runs the work."""
    meter, found = Meter(), [0.0]

    def evaluated(round: int, accuracy: float) -> None:
        found[0] = accuracy
        meter.mark()

    run_simulation(
        server_app=server_of(evaluated), client_app=client, num_supernodes=kept()[0].clients,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )  # fmt: skip
    meter.answer(found[0])


main()
