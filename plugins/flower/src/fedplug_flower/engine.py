"""The engine `flower`: parties behind the nodes of a Flower federation. It runs only inside Flower's ServerApp."""

from __future__ import annotations

import shlex
from pathlib import Path

from fedplug.api.parties import KEY_SERVER, client_address
from fedplug.engines.base import Job
from fedplug_party.engine import PartyEngine
from fedplug_party.within import Serving
from flwr.serverapp import Grid

from fedplug_flower.nodes import Nodes
from fedplug_flower.transport import FlowerTransport

serving: Serving[Grid] = Serving("flower")
"""A ServerApp gives its grid."""


class FlowerEngine(PartyEngine):
    """Parties as separate programs behind the nodes of a Flower federation.

    Raises:
        SetupError: this process is not a ServerApp, or no party is there.
    """

    @staticmethod
    def continued_by(run_dir: Path, round: int | None) -> str:
        """The command that continues a run, for the app and the SuperLink that it began with."""
        config = f'resume="{run_dir.absolute()}"' + ("" if round is None else f" round={round}")
        return f"flwr run APP SUPERLINK --run-config {shlex.quote(config)}"

    leave_seconds = 20.0  # nodes ask for messages every three seconds

    def __init__(self, job: Job) -> None:
        grid, patience = serving.given(
            "--engine flower works only inside a Flower federation: fedplug federation-app writes the app that "
            "flwr run starts there, and fedplug federation-try starts a federation on this machine; a run that "
            f"began there continues there: {self.continued_by(job.run_dir or Path('RUN'), None)}"
        )
        clients = [client_address(number) for number in range(int(job.recipe["data"]["clients"]))]
        nodes = Nodes(grid, job.run_dir)
        nodes.wait_for([*clients, KEY_SERVER] if job.key_server else clients, patience, print)
        self._flower = FlowerTransport(grid, nodes)
        super().__init__(job, self._flower)

    def overhead(self) -> dict[str, int]:
        """The bytes that the requests to parties and Flower's message format add to the messages."""
        return {**super().overhead(), "Flower": self._flower.framing}
