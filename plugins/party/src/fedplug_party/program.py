"""The program of one party. It shows what will leave the site, asks whether to join, and answers until the run ends."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fedplug.api.blocks import Layout
from fedplug.api.data import ClientData, Examples
from fedplug.api.errors import PartyLost, RecipeError, SetupError
from fedplug.api.links import ballots_of
from fedplug.api.parties import KEY_SERVER, client_address
from fedplug.api.roles import Ballots, stated_reveals
from fedplug.recipe.catalog import Catalog, service
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.base import facts_of
from fedplug.round.hosted import HostedClient
from fedplug.round.parties import ClientHost, KeyServerHost
from fedplug.round.steps import needs_key_server
from fedplug.round.world import World
from fedplug_runs.checkpoint import Checkpoints, StateFiles
from fedplug_runs.execution import INTERRUPTED
from fedplug_runs.files import open_private
from fedplug_runs.installing import install
from fedplug_runs.machine import resolve_device, terminated_like_interrupted
from fedplug_runs.overlay import load_recipe, read_extended
from fedplug_runs.own_files import named_in, with_files
from fedplug_runs.settings import Settings
from fedplug_runs.trust import RUNS, Consent
from fedplug_std.handed import alarms, signs
from fedplug_std.letters import Correspondent, read_signing_key
from fedplug_std.pool import draw_apart
from fedplug_terminal.lines import tell

from fedplug_party.agreement import agreement, preview
from fedplug_party.kept import KEPT, Kept, pattern_of
from fedplug_party.line import Listening, ask
from fedplug_party.owned import open_own
from fedplug_party.party import Guard, Host, Party
from fedplug_party.state import Belongs, State

STATUS = b"status"
"""The request for a party's status. No server sends it."""
_STATUS_SECONDS = 5.0


class Site:
    """The parts of one party: its recipe, its data, and the hosts that hold it.

    Args:
        recipe: this party's copy.
        address: `client:3`, or `key_server`.
        folder: of its state. A key server records its openings there.
        data_root: its folder of data, or None.
        device: torch device name.
        catalog: the available components.
        signing_key: this client's private signing key, 32 bytes; None: it has none.

    Attributes:
        layout: of the model.
        world: the recipe's data and model, as this party has them.

    Raises:
        SetupError: the recipe has no such party, or lists another signing key for this client.
        DataError: the data are missing or do not fit.
    """

    def __init__(
        self,
        recipe: Recipe,
        address: str,
        folder: Path,
        data_root: str | None,
        device: str,
        catalog: Catalog,
        signing_key: bytes | None = None,
    ) -> None:
        self.recipe, self.address, self._folder, self._catalog = recipe, address, folder, catalog
        self._data_root, self._device, self._signing_key = data_root, resolve_device(device), signing_key
        self.composition = Composition(recipe)
        clients = [client_address(client_id) for client_id in range(recipe.data.clients)]
        if address == KEY_SERVER and not needs_key_server(self.composition):
            raise SetupError(f"recipe {recipe.name} has no key server: nothing in it says key_holder: key_server")
        if address not in (*clients, KEY_SERVER):
            raise SetupError(f"recipe {recipe.name} has no {address}; it has {clients[0]} to {clients[-1]}")
        self._client_id = None if address == KEY_SERVER else int(address.partition(":")[2])
        for component in self.composition.components.values():
            if self._client_id is None or not isinstance(component, Correspondent):
                continue
            if problem := component.signing_problem(self._client_id, signing_key):
                raise SetupError(f"{component.name}: {problem}")
        self.world = World(recipe, self.composition, data_root, self._client_id)
        self.layout: Layout = self.world.model("cpu").layout

    def host(self) -> Host:
        """A new host of this party, before the run."""
        composition = Composition(self.recipe)
        if self._client_id is None:
            return KeyServerHost(self.recipe, composition, self.layout, StateFiles(self._folder))
        host = ClientHost(
            self.recipe, composition, [self._client_id], self._data_root, self._device,
            StateFiles(self._folder), self.world,
        )
        for client in host.clients.values():
            client.signing_key = self._signing_key
        return host

    def paid(self, round: int, question: str) -> int | None:
        """How often a question may be answered in a round, from 0, as the ledger charges it.

        The ledger charges ballots: once in each round for which noise is stated, and never in the set-up.
        What a ballot is made of that the server itself noises is asked as often. None: the ledger charges for nothing
        that the question is for.
        """
        name, _, method = question.rpartition(".")
        if not isinstance(self.composition.components.get(name), Ballots):
            return None
        facts = facts_of(self.composition, self.layout, max(round, 0))
        named = [shown for shown in stated_reveals(facts.component(name), facts) if method in shown.asked]
        noised = bool(ballots_of(name, facts))
        if not named or not (noised or any(shown.covered_by == "epsilon" for shown in named)):
            return None
        return int(0 <= round < self.recipe.rounds and noised)

    def pattern(self, round: int) -> str | None:
        """What this client sends in a round; see `kept.pattern_of`."""
        assert self._client_id is not None
        return pattern_of(self.recipe, self.composition, self.layout, self._client_id, round)

    @property
    def doubts(self) -> list[str]:
        """Oddities of the client's loaded data. Only this site learns about them."""
        return self.world.doubts

    def client(self) -> HostedClient | None:
        """The client, with its data, before the run; None for the key server."""
        host = self.host()
        return host.clients[self.address] if isinstance(host, ClientHost) else None


class Noticing:
    """Compares each model that arrives with the one before it.

    Args:
        layout: of the model.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._last: np.ndarray[Any, Any] | None = None

    def __call__(self, host: object) -> list[str]:
        """A sentence on each sign that no training leaves in a model. Each model is checked once."""
        said: list[str] = []
        for client in host.clients.values() if isinstance(host, ClientHost) else ():
            now, before, self._last = client.vector, self._last, client.vector
            if now is not None and before is not None and now is not before:
                said += alarms(signs(now, before, self._layout))
        return said


def be_party(
    file: Path,
    sets: Sequence[str] | None,
    address: str,
    folder: Path,
    settings: Settings,
    repeats: int,
    yes: bool,
    signing_key: Path | None = None,
    attack: bool = False,
    policy: Path | None = None,
) -> int:
    """The body of `fedplug party`; returns the exit code.

    Args:
        file, sets: the recipe, and changes to it.
        address: of the party.
        folder: of its state.
        settings: of this machine: the data folder, the device, files whose components count as installed, and whether
            code may run that has not run here before.
        repeats: how many repeated rounds the site allows, over the whole run.
        yes: join without asking; this is no yes to code that has not run here before.
        signing_key: file of the client's private signing key. Needed if the recipe lists its public key.
        attack: attack this client's uploads of an earlier run, in place of joining one.
        policy: file of the site's policy; None: it has none.
    """
    if attack and not (folder / "party.json").is_file():  # before anything is made there
        raise SetupError(f"{folder} holds no state of a run; name the --state folder that {address} used")
    recipe, catalog = _read(file, sets or (), settings), Catalog.discover()
    if recipe is None:
        tell("did not attack" if attack else "did not join")
        return 1

    def agreed(text: str) -> bool:
        tell(text)
        return yes or _asked("join", "--yes")

    with contextlib.closing(State(folder)) as state:
        data = str(settings.data) if settings.data else None
        key = None if signing_key is None else read_signing_key(_secret(signing_key), str(signing_key))
        site = Site(recipe, address, folder, data, settings.device, catalog, key)
        if attack:
            return attack_at_home(site, state, settings, signing_key)
        guard = None if policy is None else _guard(policy, site, state.belongs, data, repeats)
        try:
            return run_party(site, state, repeats, agreed, _with_time, guard)
        except KeyboardInterrupt:
            _with_time("stopped; the state is saved, and the same command continues from it")
            return INTERRUPTED


def _guard(policy: Path, site: Site, before: Belongs | None, data: str | None, repeats: int) -> Guard | None:
    """The site's policy for this study, which may go on in a run; None for the key server, which has no data.

    Raises:
        SetupError: the policy refuses the study, with all reasons; or fedplug-policy is missing.
    """
    make, client = service("site_policy"), site.client()
    if make is None:
        raise SetupError(f"--policy needs fedplug-policy: {install('fedplug-policy')}")
    if client is None:
        raise SetupError("--policy is about a client's data, and the key server has none; leave it out")
    rows, run = data_digest(client.data), before.run if before is not None else ""
    guard: Guard = make(policy).study(site.recipe, site.layout, client, data, rows, repeats, run)
    return guard


def attack_at_home(site: Site, state: State, settings: Settings, signing_key: Path | None) -> int:
    """The body of `fedplug party --attack`; returns the exit code.

    The attacks are those of the service `attacks_at_home`. The service `site_report` signs their results.

    Args:
        site: the client.
        state: its folder, after a run.
        settings: of this machine.
        signing_key: file of the Ed25519 key that signs the results; None: the user's key for evidence.

    Raises:
        SetupError: the folder belongs to something else or holds no round to attack, or a plugin is missing.
    """
    make, report = service("attacks_at_home"), service("site_report")
    needed = {"fedplug-attacks": make, "fedplug-evidence": report}
    if lacks := [name for name, there in needed.items() if there is None]:
        raise SetupError(f"--attack needs {' and '.join(lacks)}: {'; '.join(map(install, lacks))}")
    client, belongs, kept = site.client(), state.belongs, state.folder / KEPT
    if client is None or belongs is None:
        raise SetupError("--attack attacks the uploads of a client, and the key server sends none; name --client N")
    state.require(Belongs(site.address, site.recipe.digest, data_digest(client.data)))
    if not Checkpoints(kept).rounds():
        raise SetupError(
            f"{state.folder} holds no round to attack: no round in which {site.address} sent an update has ended "
            f"since its party keeps rounds in {kept}; run --attack after round 1 of a run"
        )
    found = make(site.recipe, client.client_id, kept, state.folder, site.world, settings)
    if found is None:
        return INTERRUPTED
    report(state.folder, site.recipe, belongs.run, client.client_id, found, signing_key, tell)
    return 0


def _read(file: Path, sets: Sequence[str], settings: Settings) -> Recipe | None:
    """The recipe; None: it brings code that has not run here before, and the owner of the site does not want it to.

    Raises:
        SetupError: there is no terminal to ask.
        RecipeError: something else is wrong with the recipe.
    """
    catalog = with_files(None, settings.plugins, Consent(settings.trust))
    try:
        return load_recipe(file, sets, catalog)
    except RecipeError as error:
        if not error.not_run or len(error.problems) > len(error.not_run):
            raise
    source = read_extended(file, sets)
    files = {own.sha256: own for own in (*named_in(source), *catalog.not_run.values())}
    tell(preview(source, catalog, files.values()))
    if not _asked("run this code", "--trust"):
        return None
    RUNS.covers(files.values(), str(file))  # those that were shown, and no others
    return load_recipe(file, sets, with_files(None, settings.plugins))


def _secret(file: Path) -> bytes:
    """The contents of a file that only this user can read.

    Raises:
        SetupError: the file cannot be read, or others can read it.
    """
    try:
        remedy = "name a file that belongs to you and that nobody else can read (chmod 600)"
        with open(open_own(file, os.O_RDONLY, secret=True, remedy=remedy), "rb") as opened:
            return opened.read(1 << 16)
    except OSError as error:
        raise SetupError(f"{file} cannot be read ({error.strerror or error})") from error


def _asked(what: str, flag: str) -> bool:
    """Asks at the terminal whether to do something; `flag` does it without a terminal.

    Raises:
        SetupError: there is no terminal.
    """
    if not sys.stdin.isatty():
        remedy = f"read the text above, then add {flag} to {what}"
        raise SetupError(f"there is no terminal to ask whether to {what}; {remedy}")
    return input(f"{what.capitalize()}? [y/N] ").strip().lower() in ("y", "yes")


def _with_time(text: str) -> None:
    tell(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {text}")
    sys.stdout.flush()


def run_party(
    site: Site, state: State, repeats: int, agreed: Callable[[str], bool], said: Callable[[str], None] = print,
    guard: Guard | None = None,
) -> int:  # fmt: skip
    """Runs the party until the run is over; returns the exit code.

    Args:
        site: the party's recipe and data.
        state: its folder.
        repeats: how many repeated rounds the site allows, over the whole run.
        agreed: called with the text on what will leave the site; returns whether the party may join.
        said: receives log lines.
        guard: the site's policy; None: it has none.

    Raises:
        SetupError: the folder belongs to another party, recipe or data set.
        KeyboardInterrupt: somebody stopped the program.
    """
    recipe, client = site.recipe, site.client()
    for doubt in site.doubts:
        said(f"warning: {doubt}")
    belongs = Belongs(site.address, recipe.digest, "" if client is None else data_digest(client.data))
    state.require(belongs)
    if not agreed(agreement(recipe, site.composition, site.layout, client, repeats)):
        said("did not join")
        return 1
    state.claim(belongs)
    draw_apart()
    party = Party(site.address, recipe.digest, recipe.rounds, state, site.host, repeats, site.paid, said)
    party.finished = lambda host: write_models(host, state.folder)
    party.noticed, party.guard = Noticing(site.layout), guard
    if client is not None:
        party.kept = Kept(state.folder, site.address, site.pattern, said)
    with _line(state.folder, party) as requests:
        said(
            f"{site.address} of recipe {recipe.name} listens in {state.folder}; after a crash, run the same command "
            "again to continue"
        )
        while not party.over:
            data, engine, reply = requests.get()
            reply.put(party.answer(data, engine))
    return 0


@contextlib.contextmanager
def _line(folder: Path, party: Party) -> Iterator[queue.SimpleQueue[tuple[bytes, str, queue.SimpleQueue[bytes]]]]:
    """Yields a queue of requests, each with the engine that carries it and a queue for its reply.

    The party answers on the thread that holds it.
    """
    requests: queue.SimpleQueue[tuple[bytes, str, queue.SimpleQueue[bytes]]] = queue.SimpleQueue()

    def answer(data: bytes, engine: str) -> bytes:
        if data == STATUS:
            return json.dumps(party.status()).encode()
        reply: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        requests.put((data, engine, reply))
        return reply.get()

    listening = Listening(folder, answer)
    try:
        with terminated_like_interrupted():
            yield requests
    finally:
        listening.close()


def show_status(folder: Path) -> int:
    """The body of `fedplug party --status`; returns the exit code."""
    try:
        found: dict[str, Any] = json.loads(ask(folder, STATUS, _STATUS_SECONDS, ""))
    except PartyLost as lost:
        tell(str(lost))
        return 1
    for name, value in found.items():
        tell(f"{name + ':':<14}{value}")
    return 0


def write_models(host: Host, folder: Path) -> None:
    """Writes the client's model at the end: `model.npz`, and `personal.npz` if it has a personal model.

    Args:
        host: of the client. For the key server, which has no model, nothing is written.
        folder: where to write.
    """
    for client in host.clients.values() if isinstance(host, ClientHost) else ():
        vectors = {"model": client.vector, "personal": client.personal}
        for name, vector in vectors.items():
            if vector is None:
                continue
            named = {each.name: vector[each.slice].reshape(each.shape) for each in client.facts.layout.parameters}
            file = folder / f"{name}.npz"
            with open_private(file, "wb") as opened:
                np.savez(opened, **{**client.remembered.buffers, **named})


def data_digest(data: ClientData) -> str:
    """SHA-256 over a client's examples, including its own test examples."""
    digest = hashlib.sha256()
    for examples in (data.train, data.own_test):
        for array in _arrays(examples):
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _arrays(examples: Examples) -> Iterator[np.ndarray[Any, Any]]:
    for value in vars(examples).values():
        if isinstance(value, np.ndarray):
            yield value
