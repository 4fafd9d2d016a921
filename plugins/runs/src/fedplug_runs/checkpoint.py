"""Checkpoints: one complete folder a round, made visible by a rename: a kill at any moment loses a round at most.

    RUN/checkpoint/round-0007/   server.state, clients-0.state, ..., key_server.state, framed with checksums

Each party writes its own state, those of a process into one file: neither model nor keys of a client pass through the
server. The last two checkpoints are kept, and one of each other kind of round (`fedplug_runs.patterns`), so that
attacks can go back to it. A damaged one is reported together with the round to continue from.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import os
import re
import shutil
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api import codec
from fedplug.api.errors import CheckpointError, MessageError
from fedplug.api.parties import KEY_SERVER, Openings, file_name
from fedplug.engines.base import Engine

from fedplug_runs.compared import Comparison
from fedplug_runs.files import open_plain, open_private, private_folder
from fedplug_runs.onward import resume_command, run_command
from fedplug_runs.openings import Answer, Notes
from fedplug_runs.residents import Residents

if TYPE_CHECKING:
    from fedplug.round.hosted import HostedClient, HostedKeyServer
    from numpy.typing import NDArray

_CLIENTS = "clients-"
_NAMED = re.compile(r"round-([0-9]{4}|[1-9][0-9]{4,8})")


def write_file(path: Path, body: bytes) -> None:
    """Writes a file of one frame."""
    _write(path, [body])


def write_states(folder: Path, states: Mapping[str, Callable[[], bytes]]) -> None:
    """Writes a file with the states of some clients, one at least.

    Args:
        folder: where; other clients may have a file there too.
        states: by address, what makes the state; it is called in turn, so that one at a time is in memory.
    """
    addresses = list(states)
    path = folder / f"{_CLIENTS}{addresses[0].rpartition(':')[2]}.state"
    _write(path, itertools.chain([codec.encode(addresses)], (make() for make in states.values())))


def _write(path: Path, bodies: Iterable[bytes]) -> None:
    """Not forced to disk: a killed process loses nothing that it has written, and after a power failure the checksum
    tells a half-written file, with the checkpoint before it to go back to.
    """
    with open_private(path, "wb") as file:
        file.writelines(map(codec.frame, bodies))


def read_file(path: Path) -> bytes:
    """Reads what `write_file` wrote.

    Raises:
        CheckpointError: the file is missing, cannot be read, was cut off or has changed since it was written.
    """
    bodies = list(_frames(path))
    if len(bodies) != 1:
        raise _damaged(path)
    return bodies[0]


def read_states(folder: Path, addresses: Iterable[str]) -> Iterator[tuple[str, Path, bytes]]:
    """The states of some parties, whichever files they lie in: address, file, state.

    Raises:
        CheckpointError: as `read_file`; or no file has one of them.
    """
    parties = set(addresses)
    clients = {address for address in parties if address.startswith("client:")}
    for address in parties - clients:
        yield address, folder / file_name(address), read_file(folder / file_name(address))
    for path in sorted(folder.glob(f"{_CLIENTS}*.state")):
        for address, state in states_in(path):
            if address in clients:
                clients.discard(address)
                yield address, path, state
    if clients:
        raise CheckpointError(f"the state of {min(clients)} is missing from the checkpoint {folder}")


def states_in(path: Path) -> Iterator[tuple[str, bytes]]:
    """Every client in a file of `write_states`, with its state.

    Raises:
        CheckpointError: as `read_file`.
    """
    frames = _frames(path)
    addresses = next(frames, None)
    if addresses is None:
        raise _damaged(path)
    with holding(path, "states of clients"):
        named = [str(address) for address in codec.decode_saved(addresses)]
    for address in named:
        state = next(frames, None)
        if state is None:  # cut off between two
            raise _damaged(path)
        yield address, state
    if next(frames, None) is not None:
        raise _damaged(path)


def is_whole(path: Path) -> bool:
    """Whether a file of either kind can be read to its end."""
    try:
        if path.name.startswith(_CLIENTS):
            for _ in states_in(path):
                pass
        else:
            read_file(path)
    except CheckpointError:
        return False
    return True


def _frames(path: Path) -> Iterator[bytes]:
    """What is in the frames of a file, one after the other."""
    try:
        with open_plain(path) as file:
            left = os.fstat(file.fileno()).st_size
            while left:
                frame = file.read(codec.FRAME_SIZE)
                frame += file.read(max(0, min(codec.framed_size(frame), left) - len(frame)))
                left -= len(frame)
                yield codec.unframe(frame)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing from the checkpoint") from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror or error})") from error
    except MessageError as error:
        raise _damaged(path) from error


def _damaged(path: Path) -> CheckpointError:
    size = path.stat().st_size
    return CheckpointError(
        f"{path} is damaged: its {size} bytes are not those that were written (length or checksum differ)"
    )


@contextlib.contextmanager
def holding(path: Path, what: str) -> Iterator[None]:
    """Inside, what a state file holds is taken apart; whatever is wrong with it names the file.

    Args:
        path: of the file.
        what: it should hold, such as `client's state`.

    Raises:
        CheckpointError: it holds something else.
    """
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(f"{path} holds no {what} ({type(error).__name__}: {error})") from error


KEPT, SPARED = 2, 3
"""How many of the last checkpoints are kept, and how many earlier ones at most, each for its kind of round."""


@dataclasses.dataclass(frozen=True)
class StateFiles:
    """The files of the parties of a process, as a `Store`.

    Attributes:
        folder: of the run, where parties note what they open; None: they forget it with their process.
        max_clients_in_memory: of all clients; None: all of them.
        notes: of these parties.
    """

    folder: Path | None = None
    max_clients_in_memory: int | None = None
    notes: Notes = dataclasses.field(default_factory=Notes, compare=False, repr=False)

    def absolute(self) -> StateFiles:
        """See `Store.absolute`."""
        return StateFiles(self.folder and self.folder.absolute(), self.max_clients_in_memory)

    def openings(self, addresses: Iterable[str]) -> dict[str, Openings]:
        """See `Store.openings`."""
        if self.folder is None:
            return {address: Openings() for address in addresses}
        known = dict.fromkeys(addresses, 0)
        checkpoints = Checkpoints(self.folder)
        for round in checkpoints.rounds()[-KEPT:]:
            with contextlib.suppress(Exception):  # damaged; resuming from it says so
                for address, _, state in read_states(checkpoints.path(round), known):
                    known[address] = max(known[address], codec.decode_saved(state)["remembered"]["opened"])
        return self.notes.openings(self.folder / "openings", known)

    def noted(self, answers: Iterable[Answer]) -> Iterator[Answer]:
        """See `Store.noted`."""
        return self.notes.before(answers)

    def save_clients(self, folder: Path, clients: Mapping[str, HostedClient]) -> None:
        """Writes a file for all clients of a process, and one for each array that they hold."""
        self.notes.write()  # those of an exchange that broke off: a resumed run would look for them
        stored: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        seen: dict[int, str] = {}  # those that clients hold together need no digest each
        first = file_name(next(iter(clients)))[:-6]

        def share(array: NDArray[Any]) -> str:
            if id(array) not in seen:
                digest = hashlib.blake2b(np.ascontiguousarray(array).data).digest()
                name = f"{first}-array-{len(stored)}.state"
                seen[id(array)] = stored.setdefault((array.dtype.str, array.shape, digest), name)
                if seen[id(array)] == name:
                    write_file(folder / name, codec.encode(array))
            return seen[id(array)]

        write_states(folder, {address: functools.partial(client.save, share) for address, client in clients.items()})

    def load_clients(self, folder: Path, clients: Mapping[str, HostedClient]) -> Iterator[HostedClient]:
        """See `Store.load_clients`."""
        fetched: dict[str, NDArray[Any]] = {}

        def fetch(name: str) -> NDArray[Any]:
            if name not in fetched:
                fetched[name] = codec.decode_saved(read_file(folder / name))
            return fetched[name]

        for address, path, state in read_states(folder, clients):
            with holding(path, "client's state"):
                clients[address].load(state, fetch)
            yield clients[address]

    def save_key_server(self, folder: Path, party: HostedKeyServer) -> None:
        """See `Store.save_key_server`."""
        self.notes.write()
        write_file(folder / file_name(KEY_SERVER), codec.encode(party.to_plain()))

    def load_key_server(self, folder: Path, party: HostedKeyServer) -> None:
        """See `Store.load_key_server`."""
        path = folder / file_name(KEY_SERVER)
        data = read_file(path)
        with holding(path, "key server's state"):
            party.restore(codec.decode_saved(data))

    def residents(self, share: float) -> Residents | None:
        """See `Store.residents`."""
        most = self.max_clients_in_memory
        return None if most is None else Residents(max(1, int(most * share)), self.folder)

    def comparison(self) -> Comparison:
        """See `Store.comparison`."""
        return Comparison()


class Checkpoints:
    """The checkpoints of one run folder.

    Args:
        run_dir: the run folder.
        kept: how many of the last ones are kept; None: all, for attacks on earlier rounds.
    """

    def __init__(self, run_dir: Path, kept: int | None = KEPT) -> None:
        self.folder, self.kept = run_dir / "checkpoint", kept

    def rounds(self) -> list[int]:
        """Rounds that have a complete checkpoint, ascending: 7 means that 7 rounds are done.

        Raises:
            CheckpointError: the folder is there and cannot be read: a run must not begin anew because of that.
        """
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise CheckpointError(
                f"{self.folder} cannot be read ({error.strerror or error}); nothing in it was touched: make it "
                f"readable, and continue: {resume_command(self.folder.parent)}"
            ) from error
        return sorted(int(found[1]) for name in names if (found := _NAMED.fullmatch(name)))

    def path(self, round: int) -> Path:
        return self.folder / f"round-{round:04d}"

    def write(
        self, round: int, server_state: dict[str, Any], engine: Engine, kind: Callable[[int], Hashable] | None = None
    ) -> Path:
        """Writes the checkpoint after `round` rounds and forgets those that are not kept.

        Args:
            round: how many rounds are done.
            server_state: plain data.
            engine: has the other parties.
            kind: what a finished round (0-based) sent, so that one round of each kind is kept; None: the last alone.
        """
        final = self.path(round)
        draft = final.with_suffix(".tmp")
        shutil.rmtree(draft, ignore_errors=True)
        private_folder(draft)
        engine.save(draft)
        write_file(draft / "server.state", codec.encode(server_state))
        if final.exists():
            self._forget(round)
        os.replace(draft, final)
        engine.saved(final)
        if self.kept:
            last = self.rounds()[-self.kept :]
            # Parties that keep their own states have those of the last rounds alone.
            spared = self._others(last, kind) if kind and not (final / ELSEWHERE).is_file() else set()
            for old in set(self.rounds()) - spared - {*last}:
                shutil.rmtree(self.path(old), ignore_errors=True)
        return final

    def _others(self, last: list[int], kind: Callable[[int], Hashable]) -> set[int]:
        """Earlier rounds with a checkpoint that are of another kind than all later ones."""
        found, seen = set[int](), {kind(round) for round in last[:-1]}
        for round in sorted(set(self.rounds()) - {*last}, reverse=True):
            if len(found) < SPARED and kind(round) not in seen:
                seen.add(kind(round))
                found.add(round)
        return found

    def forget_after(self, round: int) -> None:
        """Forgets the checkpoints of later rounds, the latest first: a run continues from this one."""
        for later in reversed(self.rounds()):
            if later > round:
                self._forget(later)

    def _forget(self, round: int) -> None:
        final = self.path(round)
        stale = final.with_suffix(".old.tmp")  # so that a kill leaves no half of it behind
        shutil.rmtree(stale, ignore_errors=True)
        os.replace(final, stale)
        shutil.rmtree(stale)

    def read(self, round: int | None = None) -> tuple[int, dict[str, Any], Path] | None:
        """A checkpoint (the last one by default): its round, the server's state, its folder. None if there is none.

        Raises:
            CheckpointError: it is damaged, or there is none of that round.
        """
        rounds = self.rounds()
        if round is None:
            if not rounds:
                return None
            round = rounds[-1]
        if round not in rounds:
            raise CheckpointError(f"{self.folder} has no checkpoint of round {round}; it has {rounds or 'none'}")
        file = self.path(round) / "server.state"
        try:
            state = codec.decode_saved(read_file(file))
        except CheckpointError as error:
            raise CheckpointError(f"{error}; {self.remedy(round)}") from error
        except Exception as error:
            raise CheckpointError(f"{file} holds no server's state; {self.remedy(round)}") from error
        return round, state, self.path(round)

    def remedy(self, damaged: int, usable: Callable[[int], bool] | None = None) -> str:
        """What to do about a checkpoint that cannot be used: go back, or forward, to one that can.

        Args:
            damaged: the round of it.
            usable: whether the one of another round can be used; by default, whether its files are whole.
        """
        usable = usable or self._is_whole
        whole = [round for round in self.rounds() if round != damaged and usable(round)]
        run = self.folder.parent
        later = [round for round in whole if round > damaged]
        if earlier := [round for round in whole if round < damaged]:
            onward = f", or go on from a later one: {resume_command(run, later[-1])}" if later else ""
            return f"go back one: {resume_command(run, earlier[-1])}{onward}"
        if later:
            return f"there is no earlier one that is whole; go on from a later one: {resume_command(run, later[-1])}"
        none = "there is no earlier one" if len(self.rounds()) < 2 else "no other one is whole"
        return f"{none}; run the recipe again: {run_command(run)}"

    def _is_whole(self, round: int) -> bool:
        files = list(self.path(round).glob("*.state"))
        return "server.state" in {path.name for path in files} and all(map(is_whole, files))


ELSEWHERE = "parties.state"
"""The file that an engine writes into a checkpoint whose parties keep their own states: the names of those."""


class HeldElsewhere(CheckpointError):
    """Parties that keep their own states cannot go back to a checkpoint; the message says what to do."""
