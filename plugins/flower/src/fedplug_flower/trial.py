"""A whole federation on this machine, for one run. Each part is a separate program, as in a real federation.

It starts a SuperLink with TLS that admits only registered nodes. For each client and for the key server, it starts a
party program, a SuperNode with its own key, and the relay between the two. Then it does the run and stops everything.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from fedplug.api.errors import SetupError
from fedplug.api.parties import KEY_SERVER, client_address
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.steps import needs_key_server
from fedplug_party.line import SOCKET
from fedplug_party.sockets import folder_name
from fedplug_party.within import require_empty, write_recipe
from fedplug_runs.files import private_folder, write_bytes
from fedplug_runs.machine import terminated_like_interrupted
from fedplug_runs.sites import site_folders

from fedplug_flower.app_folder import write_app
from fedplug_flower.certificates import make_certificates, make_node_key
from fedplug_flower.programs import Programs, free_ports, programs
from fedplug_flower.superlink import COMPLETED, SuperLink

ENVIRONMENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
}
"""For every program: send no telemetry to Flower, and start the run at once."""
_START_SECONDS = 120.0


class Federation:
    """The parts of a running federation.

    Attributes:
        folder: contains certificates, keys, logs, and a folder for each party: `client-3`, `key-server`.
        port: of the SuperLink.
        ports: by party, the port that connects its node and its relay.
        programs: the running programs.
        superlink: starts runs.
    """

    def __init__(self, recipe: Recipe, folder: Path, started: Programs, port: int) -> None:
        self.recipe, self.folder, self.programs, self.port = recipe, folder, started, port
        self.ports: dict[str, int] = {}
        self.superlink = SuperLink(port, (folder / "ca.crt").read_bytes())

    def run(self, config: dict[str, str | int | bool], say: Callable[[str], None]) -> None:
        """Runs the recipe and passes on the output of the ServerApp.

        Raises:
            SetupError: the run failed. The output has the reason.
        """
        app = write_app(self.recipe, self.folder / f"app-{secrets.token_hex(4)}", config)
        run = self.superlink.start(app)
        for line in _ours(self.superlink.lines(run)):
            say(line)
        status, details = self.superlink.outcome(run)
        if status != COMPLETED:
            raise SetupError(f"the run {status or 'was lost'}: {details}")


@contextlib.contextmanager
def federation(recipe: Recipe, folder: Path, data: Path | None, say: Callable[[str], None]) -> Iterator[Federation]:
    """Runs a federation for this recipe on this machine while the context is open.

    Args:
        recipe: gives the clients, and says whether there is a key server.
        folder: an empty folder.
        data: the data folder of all parties. With data at sites, it contains one for each: `client-0`, `client-1`, ...
        say: receives lines about the progress.
    """
    clients = list(range(recipe.data.clients))
    own_data: dict[int, Path] = {}
    if recipe.data.at == "sites":
        own_data = site_folders(str(data) if data else None, clients)
    elif data:
        own_data = dict.fromkeys(clients, data)
    parties = [client_address(number) for number in clients]
    if needs_key_server(Composition(recipe)):
        parties.append(KEY_SERVER)
    make_certificates(folder)
    write_bytes(folder / "relay.secret", secrets.token_bytes(32))
    write_recipe(recipe, folder)
    # Flower starts its programs by name. This path makes it find those of this environment.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environ = {**ENVIRONMENT, "FLWR_HOME": str(folder / "flwr"), "PATH": path}
    port, *ports = free_ports(1 + len(parties))
    with programs(folder, environ) as started:
        say("starting the SuperLink (TLS, registered nodes only)")
        start_superlink(started, folder, port)
        say(f"starting {len(parties)} parties: {', '.join(parties)}")
        for number, address in enumerate(parties):
            _start_party(started, folder, address, own_data.get(number))
        started.await_port("superlink", port, _START_SECONDS)
        running = Federation(recipe, folder, started, port)
        try:
            say("registering a key for each node, then starting each party's node and relay")
            for address, own in zip(parties, ports, strict=True):
                key, public = make_node_key(folder, f"{folder_name(address)}.key")
                running.superlink.register(public, address)
                running.ports[address] = own
                start_node(started, folder, address, key, port, own)
                _start_relay(started, folder, address, own)
            for name in map(folder_name, parties):
                started.await_file(f"party-{name}", folder / name / SOCKET, _START_SECONDS)
            yield running
        finally:
            running.superlink.close()


def start_superlink(started: Programs, folder: Path, port: int) -> None:
    """Starts a SuperLink with the certificates in this folder. It admits only registered nodes."""
    started.start(
        "superlink", "flower-superlink", "--host", "127.0.0.1", "--port", str(port),
        "--ssl-ca-certfile", str(folder / "ca.crt"), "--ssl-certfile", str(folder / "server.pem"),
        "--ssl-keyfile", str(folder / "server.key"), "--enable-supernode-auth",
        "--disable-runtime-dependency-installation",
    )  # fmt: skip


def _start_party(started: Programs, folder: Path, address: str, data: Path | None) -> None:
    which = ["--key-server"] if address == KEY_SERVER else ["--client", address.partition(":")[2]]
    where = ["--data", str(data)] if data else []
    started.start(
        f"party-{folder_name(address)}", "fedplug", "party", str(folder / "recipe.yaml"), *which, *where,
        "--state", str(folder / folder_name(address)), "--yes", "--trust",
    )  # fmt: skip


def start_node(started: Programs, folder: Path, address: str, key: Path, port: int, own: int) -> None:
    """Starts a party's SuperNode.

    Args:
        started: the programs of the federation.
        folder: of the federation.
        address: of the party.
        key: the file of the node's private key.
        port: of the SuperLink.
        own: the port at which the relay reaches the node.
    """
    started.start(
        f"node-{folder_name(address)}", "flower-supernode", "--superlink", f"127.0.0.1:{port}",
        "--root-certificates", str(folder / "ca.crt"), "--auth-supernode-private-key", str(key),
        "--host", "127.0.0.1", "--port", str(own), "--isolation", "process",
        "--superexec-auth-secret-file", str(folder / "relay.secret"),
    )  # fmt: skip


def _start_relay(started: Programs, folder: Path, address: str, own: int) -> None:
    started.start(
        f"relay-{folder_name(address)}", "fedplug", "federation-relay", "--port", str(own),
        "--secret", str(folder / "relay.secret"), "--state", str(folder / folder_name(address)),
    )  # fmt: skip


@contextlib.contextmanager
def workplace(folder: Path | None) -> Iterator[Path]:
    """A folder for a trial: the given one, which is kept, or a temporary one.

    Raises:
        SetupError: the given folder is not empty.
    """
    if folder is None:
        made = Path(tempfile.mkdtemp(prefix="fedplug-"))
        try:
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)
        return
    require_empty(folder)
    private_folder(folder)
    yield folder.resolve()


def try_federation(
    recipe: Recipe, config: dict[str, str | int | bool], data: Path | None, folder: Path | None,
    say: Callable[[str], None],
) -> None:  # fmt: skip
    """Starts a federation, runs the recipe in it, then stops everything.

    Args:
        recipe: the recipe to run.
        config: of the run, as in `fedplug_flower.server.CONFIG`.
        data: the data folder. With data at sites, the folder that contains the sites' folders.
        folder: a folder to keep, for keys, logs and the parties' states; None: a temporary one.
        say: receives lines about the progress.

    Raises:
        SetupError: a program ended, or the run failed.
        KeyboardInterrupt: on Ctrl-C or SIGTERM, after everything is stopped.
    """
    started = time.monotonic()
    with terminated_like_interrupted(), workplace(folder) as place:
        try:
            with federation(recipe, place, data, say) as running:
                say(f"the federation is ready after {time.monotonic() - started:.0f} seconds; starting the run")
                running.run(config, say)
        finally:
            say("everything has stopped" + (f"; logs are in {place}" if folder else ""))


def _ours(lines: Iterator[str]) -> Iterator[str]:
    """fedplug's lines in the output of the ServerApp. Flower's own lines are coloured, and a traceback comes last."""
    over = False
    for line in lines:
        over = over or line.startswith("Traceback")
        if not over and not line.startswith(("\x1b[", "Successfully installed ")):
            yield line
