"""Finds the node of each party in the federation: the node that is registered under the party's address.

    flwr supernode register client-3.pub --name client:3

The operator of the SuperLink registers a node's public key. The SuperLink admits only nodes with the private key, so a
name is bound to a key. A run records the keys at its beginning, and later leaves out a node that has the name but
another key. A node's own claims are never used. The party behind it answers only for one address.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from fedplug.api.errors import CheckpointError, PartyLost, SetupError
from fedplug_runs.files import read_text, write_text
from flwr.serverapp import Grid

NODES = "nodes.json"
"""In the run folder: for each party, the digest of its node's public key."""


class Nodes:
    """Finds the node of a party.

    Args:
        grid: of the ServerApp.
        run_dir: the folder that records the keys at the beginning of the run, or None.

    Raises:
        CheckpointError: the recorded keys cannot be read.
    """

    def __init__(self, grid: Grid, run_dir: Path | None) -> None:
        self._grid, self._file = grid, run_dir and run_dir / NODES
        self._keys: dict[str, str] = {}
        if self._file and self._file.is_file():
            try:
                self._keys = {str(name): str(key) for name, key in json.loads(read_text(self._file)).items()}
            except (OSError, ValueError, AttributeError) as error:
                raise CheckpointError(
                    f"{self._file} does not contain addresses and keys ({error}); delete it to trust the keys "
                    "that are registered now"
                ) from error

    def of(self, addresses: Iterable[str]) -> dict[str, int | PartyLost]:
        """The connected node of each of these parties, or the reason why none can be used."""
        connected: dict[str, list[Any]] = {}
        for node in self._grid.get_nodes():
            connected.setdefault(node.name, []).append(node)
        found: dict[str, int | PartyLost] = {}
        new = False
        for address in addresses:
            nodes = connected.get(address, [])
            if len(nodes) != 1:
                found[address] = PartyLost(_not_one(address, len(nodes)))
                continue
            (node,) = nodes
            key = hashlib.sha256(node.public_key).hexdigest()
            new |= address not in self._keys
            if self._keys.setdefault(address, key) == key:
                found[address] = node.node_id
            else:
                found[address] = PartyLost(
                    f"the node registered as {address} has a different key from the one when this run began; if its "
                    f"site confirms that the key is new, delete {address} from {self._file}"
                )
        if new and self._file:
            write_text(self._file, json.dumps(self._keys, indent=2))
        return found

    def wait_for(self, addresses: Iterable[str], seconds: float, say: Callable[[str], None]) -> None:
        """Waits until all of these are connected or the time is over, and says which ones it waits for.

        Raises:
            SetupError: none of them is connected.
        """
        until, missing, told = time.monotonic() + seconds, list(addresses), ""
        while True:
            found = self.of(missing)
            away = [address for address, node in found.items() if isinstance(node, PartyLost)]
            if not away or time.monotonic() >= until:
                break
            if (words := ", ".join(away)) != told:
                say(f"waiting for the nodes registered as {words}")
                told = words
            time.sleep(0.5)
        if len(away) == len(missing):
            raise SetupError(f"no node has connected after {seconds:g} seconds: {found[away[0]]}")


def _not_one(address: str, number: int) -> str:
    if number:
        return f"{number} nodes are registered as {address}; unregister all but one: flwr supernode unregister ID"
    return (
        f"no node registered as {address} is connected; the operator of the SuperLink must register its key: "
        f"flwr supernode register KEY.pub --name {address}"
    )
