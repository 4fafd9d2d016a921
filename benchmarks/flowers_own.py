"""Flower's own federated averaging in a deployment on this machine, which `engines.py` compares with fedplug on Flower.

A SuperLink with TLS that admits only registered nodes, and a SuperNode for each client, as Flower's commands start
them; each SuperNode starts Flower's ClientApp process for a message (`--isolation subprocess`, its default).
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from fedplug.api.errors import SetupError
from fedplug_flower.certificates import make_certificates, make_node_key
from fedplug_flower.programs import free_ports, programs
from fedplug_flower.superlink import COMPLETED, SuperLink
from fedplug_flower.trial import ENVIRONMENT, start_superlink

APP = Path(__file__).resolve().parent / "peer_programs"
_PROJECT = """[project]
name = "flowers-own"
version = "1.0.0"
description = "Federated averaging as Flower's examples write it."
license = "Apache-2.0"
dependencies = []

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.flwr.app]
publisher = "fedplug"

[tool.flwr.app.components]
serverapp = "flower_app:server"
clientapp = "flower_app:client"
"""
_WAIT = 120.0


def deployed(work: Path, clients: int, folder: Path, say: Callable[[str], None]) -> None:
    """Runs the app of `peer_programs` once.

    Args:
        work: the file of `peers.write_work`.
        clients: number of nodes.
        folder: an empty one, for keys and logs.
        say: gets each line that the ServerApp prints.

    Raises:
        SetupError: the run failed.
    """
    make_certificates(folder)
    app = folder / "app"
    app.mkdir()
    (app / "pyproject.toml").write_text(_PROJECT, encoding="utf-8")
    for name in ("common.py", "flower_client.py", "flower_app.py"):
        shutil.copy(APP / name, app)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environ = {**ENVIRONMENT, "FLWR_HOME": str(folder / "flwr"), "PATH": path, "FEDPLUG_WORK": str(work)}
    port, *ports = free_ports(1 + clients)
    with programs(folder, environ) as started:
        start_superlink(started, folder, port)
        started.await_port("superlink", port, _WAIT)
        superlink = SuperLink(port, (folder / "ca.crt").read_bytes())
        try:
            for number, own in enumerate(ports):
                key, public = make_node_key(folder, f"node-{number}.key")
                superlink.register(public, f"client:{number}")
                started.start(
                    f"node-{number}", "flower-supernode", "--superlink", f"127.0.0.1:{port}",
                    "--root-certificates", str(folder / "ca.crt"), "--auth-supernode-private-key", str(key),
                    "--host", "127.0.0.1", "--port", str(own),
                    "--node-config", f"partition-id={number} num-partitions={clients}",
                )  # fmt: skip
            run = superlink.start(app)
            for line in superlink.lines(run):
                say(line)
            status, details = superlink.outcome(run)
        finally:
            superlink.close()
    if status != COMPLETED:
        raise SetupError(f"the run {status or 'was lost'}: {details}")
