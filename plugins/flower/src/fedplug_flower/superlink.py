"""The trial's requests to its SuperLink: register nodes, start a run, read its output, and ask how it ended.

Flower's commands (`flwr supernode register`, `flwr run --stream`) do the same in processes that take seconds each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from fedplug.api.errors import SetupError
from flwr.cli.build import build_fab_from_disk
from flwr.common.serde import fab_to_proto
from flwr.proto.control_pb2 import ListRunsRequest, RegisterNodeRequest, StartRunRequest, StreamLogsRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

COMPLETED = "completed"


class SuperLink:
    """A SuperLink on this machine.

    Args:
        port: of its HTTP API.
        root: the root certificate that signed the SuperLink's certificate, PEM.
    """

    def __init__(self, port: int, root: bytes) -> None:
        self._client = ControlHttpClient.from_server_address(
            server_address=f"127.0.0.1:{port}",
            insecure=False,
            root_certificates=root,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
        )

    def register(self, public_key: bytes, name: str) -> None:
        """Admits a node with this key, under this name."""
        key = load_ssh_public_key(public_key)
        assert isinstance(key, ec.EllipticCurvePublicKey)
        try:
            self._client.RegisterNode(RegisterNodeRequest(public_key=public_key_to_bytes(key), name=name))
        except httpx.HTTPError as error:
            raise SetupError(f"the SuperLink refuses to register {name}: {error}") from error

    def start(self, app: Path) -> int:
        """Starts a run of an app folder; returns its number."""
        data = build_fab_from_disk(app)
        fab = Fab(hashlib.sha256(data).hexdigest(), data, {})
        try:
            return int(self._client.StartRun(StartRunRequest(fab=fab_to_proto(fab))).run_id)
        except httpx.HTTPError as error:
            raise SetupError(f"the SuperLink refuses to start the run: {error}") from error

    def lines(self, run: int) -> Iterator[str]:
        """The lines that the ServerApp prints, until it ends."""
        rest = ""
        try:
            for piece in self._client.StreamLogs(StreamLogsRequest(run_id=run, after_timestamp=0.0)):
                *whole, rest = (rest + piece.log_output).split("\n")
                yield from whole
        except httpx.HTTPError as error:
            raise SetupError(f"the SuperLink is gone: {error}") from error
        if rest:
            yield rest

    def outcome(self, run: int) -> tuple[str, str]:
        """The status with which a run ended, such as `completed`, and its details."""
        status = self._client.ListRuns(ListRunsRequest(run_id=run)).run_dict[run].status
        return str(status.sub_status), str(status.details)

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()
