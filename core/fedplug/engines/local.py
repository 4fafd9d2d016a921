"""Every party in this process, one after the other: the simplest engine, and the reference for all others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fedplug.api.codec import Message
from fedplug.api.parties import KEY_SERVER
from fedplug.engines.base import Job
from fedplug.round.parties import ClientHost, KeyServerHost


class LocalEngine:
    """All parties in one process; messages are read as if they were bytes, and become bytes where they are recorded."""

    in_process = True

    def __init__(self, job: Job) -> None:
        self._hosts: dict[str, ClientHost | KeyServerHost] = {}
        recipe, composition = job.build()
        everyone = list(range(recipe.data.clients))
        self.clients = clients = ClientHost(
            recipe, composition, everyone, job.data_root, job.device, job.store, job.world, job.max_clients_in_memory
        )
        self.hosts: list[ClientHost | KeyServerHost] = [clients]
        for address in clients.addresses:
            self._hosts[address] = clients
        if job.key_server:
            # Its own copy of the components, so that nothing the key server caches is in reach of the others.
            key_server = KeyServerHost(*job.build(), clients.model.layout, job.store)
            self._hosts[KEY_SERVER] = key_server
            self.hosts.append(key_server)

    def exchange(self, messages: dict[str, Message]) -> Iterator[tuple[str, Message | Exception]]:
        """Delivers each message in turn."""
        for address, data in messages.items():
            yield address, self._hosts[address].deliver(address, data)

    def save(self, folder: Path) -> None:
        """Every party writes its own state into the folder."""
        for host in self.hosts:
            host.save(folder)

    def saved(self, folder: Path) -> None:
        """Nothing to remember: the parties live and die with this process."""

    def load(self, folder: Path) -> None:
        """Every party reads its own state from the folder."""
        for host in self.hosts:
            host.load(folder)

    def overhead(self) -> dict[str, int]:
        """None."""
        return {}

    def close(self) -> None:
        """Nothing to stop."""
        self._hosts.clear()
