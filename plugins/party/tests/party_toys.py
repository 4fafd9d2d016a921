"""Parties as real processes with toy components. Tests kill them, restart them and ask them."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedplug.api.errors import PartyLost
from fedplug.engines.base import Job
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.steps import needs_key_server
from fedplug.round.sums import Arrivals
from fedplug_party.engine import PartyEngine
from fedplug_party.frames import Request
from fedplug_party.kept import Kept
from fedplug_party.line import SOCKET
from fedplug_party.party import Party
from fedplug_party.program import Site, data_digest, run_party
from fedplug_party.sockets import SocketTransport, folder_name
from fedplug_party.state import Belongs, State
from run_toys import start
from toy_components import toy_catalog

_LIBRARIES = ["fedplug.round.parties", "fedplug_std.torch_model", "torch", "tenseal", "sklearn.datasets", __name__]


SECONDS = 120.0
"""Seconds that tests wait for programs on a busy machine."""


def be(plain: Mapping[str, Any], address: str, folder: Path, repeats: int) -> None:
    """The life of one party."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    catalog = toy_catalog()
    recipe = Recipe.from_plain(plain, catalog)
    state = State(folder)
    with open(folder / "said.txt", "a", encoding="utf-8", buffering=1) as said:
        site = Site(recipe, address, folder, None, "cpu", catalog)
        run_party(site, state, repeats, lambda text: bool(said.write(text)), lambda text: print(text, file=said))


class Beside:
    """A transport to parties in this process, one after the other, for tests that need no other process.

    Args:
        folder: contains the state of each party.
        plain: the recipe.
        repeats: the number that every site allows.
        sites: with data at sites, the folder of the data.
    """

    def __init__(
        self, folder: Path, plain: Mapping[str, Any], repeats: int = 3, sites: Path | None = None
    ) -> None:  # fmt: skip
        self.folder, self.plain, self.repeats, self._sites = folder, plain, repeats, sites
        self._catalog = toy_catalog()
        self.recipe = self.read(plain)
        self.parties: dict[str, Party] = {}
        self.places: dict[str, Site] = {}
        self.asked: list[Request] = []
        self.closed = False
        self.said: list[str] = []
        for address in addresses(self.recipe):
            self.start(address)

    @staticmethod
    def read(plain: Mapping[str, Any]) -> Recipe:
        """A recipe over the toys."""
        return Recipe.from_plain(plain, toy_catalog())

    def start(self, address: str) -> None:
        """Starts a party, or restarts it after a kill. Its state comes from its folder."""
        self.kill(address)
        folder = self.folder / address.replace(":", "-")
        data = self._sites and str(self._sites / address.replace(":", "-"))
        site = Site(self.recipe, address, folder, data, "cpu", self._catalog)
        client, state = site.client(), State(folder)
        belongs = Belongs(address, self.recipe.digest, "" if client is None else data_digest(client.data))
        state.require(belongs)
        state.claim(belongs)
        recipe, self.places[address] = self.recipe, site
        party = Party(address, recipe.digest, recipe.rounds, state, site.host, self.repeats, site.paid)
        if client is not None:
            party.kept = Kept(folder, address, site.pattern, self.said.append)
        self.parties[address] = party

    def kill(self, address: str) -> None:
        """Stops answering under this address."""
        if (party := self.parties.pop(address, None)) is not None:
            party.state.close()

    def exchange(self, requests: Mapping[str, bytes], seconds: float) -> Iterator[tuple[str, bytes | PartyLost]]:
        """Asks the parties one after the other."""
        for address, data in requests.items():
            self.asked.append(Request.read(data))
            if address in self.parties:
                yield address, self.parties[address].answer(data, "parties")
            else:
                yield address, PartyLost(f"{address} is not there")

    def close(self) -> None:
        """Records that it was closed."""
        self.closed = True

    def engine(self, job: Job) -> PartyEngine:
        """The engine over these parties."""
        return PartyEngine(job, self)


def addresses(recipe: Recipe) -> list[str]:
    """Of all parties of a recipe."""
    found = [f"client:{number}" for number in range(recipe.data.clients)]
    return [*found, "key_server"] if needs_key_server(Composition(recipe)) else found


class Parties:
    """All parties of a recipe, each in a separate process.

    Args:
        folder: contains the state of each party.
        plain: the recipe.
        repeats: the number that every site allows.
    """

    def __init__(self, folder: Path, plain: Mapping[str, Any], repeats: int = 3) -> None:
        self.folder, self.plain, self.repeats = folder, plain, repeats
        self.addresses = addresses(Recipe.from_plain(plain, toy_catalog()))
        self.processes: dict[str, Any] = {}
        self._starts: Counter[str] = Counter()
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(_LIBRARIES)
        for address in self.addresses:
            self.start(address)

    def start(self, address: str, plain: Mapping[str, Any] | None = None) -> None:
        """Starts the program of a party, perhaps with another recipe."""
        arguments = (plain or self.plain, address, self.state(address), self.repeats)
        self.processes[address] = self._context.Process(target=be, args=arguments, daemon=True)
        self.processes[address].start()
        self._starts[address] += 1

    def kill(self, address: str) -> None:
        """Kills the program as `kill -9` does."""
        os.kill(self.processes[address].pid, signal.SIGKILL)
        self.processes[address].join()

    def state(self, address: str) -> Path:
        """The folder of a party."""
        return self.folder / folder_name(address)

    def said(self, address: str) -> str:
        """The output of its program."""
        return (self.state(address) / "said.txt").read_text(encoding="utf-8")

    def listening(self, *which: str) -> None:
        """Waits until started parties can be called, even on a busy machine. Default: all of them."""
        for address in which or self.addresses:
            until = time.monotonic() + SECONDS
            while not self._listens(address):
                if time.monotonic() > until:
                    raise TimeoutError(f"{address} does not listen")
                time.sleep(0.02)

    def _listens(self, address: str) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return self.said(address).count(" listens in ") >= self._starts[address]
        return False

    def engine(self, job: Job) -> PartyEngine:
        """The engine over these parties."""
        return PartyEngine(job, SocketTransport(self.folder))

    def end(self) -> None:
        """Ends all remaining parties."""
        for process in self.processes.values():
            process.kill()
            process.join()


@contextlib.contextmanager
def parties(folder: Path, plain: Mapping[str, Any], repeats: int = 3) -> Iterator[Parties]:
    """Runs the parties of a recipe while the context is open."""
    all_of_them = Parties(folder, plain, repeats)
    try:
        yield all_of_them
    finally:
        all_of_them.end()


def serve(folder: Path, plain: dict[str, Any], where: Path, dies: bool) -> None:
    """A server in a separate process. It may die after it has the uploads of round 2, before it adds them up."""
    close = Arrivals.close

    def die(self: Arrivals, group: str) -> Any:
        if dies and self.facts[group].round == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return close(self, group)

    Arrivals.close = die  # type: ignore[method-assign]
    start(folder, plain, engine="parties", engine_options={"parties": str(where)})


SILENT = """
import socket, sys
held = []
for _ in range(int(sys.argv[2])):
    held.append(socket.socket(socket.AF_UNIX))
    held[-1].connect(sys.argv[1])
print("ready", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def silent(folder: Path, count: int) -> Iterator[None]:
    """Another process that holds this number of connections to a party, and says nothing."""
    command = [sys.executable, "-c", SILENT, str(folder / SOCKET), str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "ready\n"
            yield
        finally:
            other.kill()
