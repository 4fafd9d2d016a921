"""The engine for parties that run as separate programs, over any carrier of messages.

Each request names its run, round and program. So the engine drops replies that come twice, late or out of order. A
party that was killed and restarted first goes back to the last complete checkpoint and loses the round it was in. Every
party keeps its own checkpoints. The server's checkpoint lists their names, and becomes visible with them:

    RUN/parties.run                          the run's identity, drawn when it begins; a resumed run keeps it
    RUN/checkpoint/round-0007/parties.state  for each party, the names of its last two checkpoints
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from fedplug.api import codec
from fedplug.api.errors import CheckpointError, ClientError, PartyLost, SetupError, describe, log_error
from fedplug.api.parties import KEY_SERVER, client_address
from fedplug.api.records import one_line
from fedplug.engines.base import Job
from fedplug_runs.checkpoint import ELSEWHERE, Checkpoints, HeldElsewhere, holding, read_file, write_file
from fedplug_runs.files import read_text, write_text
from fedplug_runs.onward import engine_of, resume_command, run_command

from fedplug_party.frames import Command, Reply, Request, checkpoint_name, round_of

_RUN = "parties.run"
PATIENCE = 20.0
"""Seconds that a server waits for parties at its start, and later for the key server to come back. It waits as long for
a client that was silent before the round continues without it."""


class Transport(Protocol):
    """Carries requests to parties and returns their replies. It reads neither.

    Addresses are those of `fedplug.wire`: `client:3`, `key_server`.
    """

    def exchange(self, requests: Mapping[str, bytes], seconds: float) -> Iterator[tuple[str, bytes | PartyLost]]:
        """Delivers each request and yields replies as they arrive, in any order.

        A party that is not there, or that has not answered after `seconds` (`inf`: no limit), yields `PartyLost` with
        the reason. A reply may arrive twice or answer an earlier request: the engine drops such replies. Once every
        party has answered, the engine reads no further.
        """

    def close(self) -> None:
        """Ends the transport. Requests under way may be dropped."""


class PartyEngine:
    """Runs a protocol with parties that run elsewhere.

    Args:
        job: of the run. The parties have their own recipes, data and settings.
        transport: carries the requests.
        patience: seconds, see `PATIENCE`; more if a message to a party takes long.

    Attributes:
        framing: bytes of requests and replies so far, without the messages of the protocol in them.

    Raises:
        SetupError: a party refuses to join, with its reason, or no party is there.
    """

    in_process = False

    leave_seconds = 5.0
    """How long a server that ends waits until parties know about it. Parties whose run is over then end as well."""

    def __init__(self, job: Job, transport: Transport, patience: float = PATIENCE) -> None:
        self._transport, self._timeout, self._patience = transport, job.timeout or math.inf, patience
        recipe, _ = job.build()
        self._digest = recipe.digest
        clients = [client_address(client_id) for client_id in range(recipe.data.clients)]
        self._addresses = [*clients, KEY_SERVER] if job.key_server else clients
        self._session, self._number = secrets.token_hex(8), 0
        self._run, self._run_dir = run_of(job.run_dir), job.run_dir
        self._joined: dict[str, Reply] = {}  # by address, the parties that know this session
        self._kept: dict[str, Collection[str]] = {}  # by address, the checkpoints in the party's folder as it joined
        self._told: set[str] = set()  # those of them that hold the state of the current round
        self._silent: set[str] = set()  # parties that did not answer the last request
        self._saved: dict[str, list[str]] = {}  # for each party, its last checkpoints that this server knows
        self._complete: dict[str, list[str]] | None = None  # the same, in the server's last complete checkpoint
        self.framing = 0
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    # -- the interface of an engine ------------------------------------------------------------------------------------

    def exchange(self, messages: dict[str, bytes]) -> Iterator[tuple[str, bytes | Exception]]:
        """Delivers each message and yields replies as they arrive."""
        waiting: Mapping[str, bytes] = messages
        for _ in range(2):  # the second pass is for parties that were restarted
            problems = self._up_to_date(waiting)
            yield from problems.items()
            again: dict[str, bytes] = {}
            for address, reply in self._ask("deliver", {a: data for a, data in waiting.items() if a not in problems}):
                if isinstance(reply, Reply) and reply.outcome == "restarted":
                    self._forget(address)
                    again[address] = waiting[address]
                elif isinstance(reply, Reply) and reply.outcome == "done":
                    yield address, reply.message
                else:
                    yield address, _problem(address, reply)
            waiting = again
        for address in waiting:
            yield address, PartyLost(f"{address} restarts again and again; read the output of its program")

    def save(self, folder: Path) -> None:
        """Makes every party that is there write its state at its own site.

        A party that is not there, or a client that cannot save, later continues from an earlier checkpoint and catches
        up. No party may miss the first checkpoint, because it holds the keys.

        Raises:
            SetupError: the key server, or any party before round 1, could not save; gives its reason.
        """
        name = checkpoint_name(round_in(folder), secrets.token_hex(4))
        there = [a for a in self._addresses if a not in self._silent or not round_of(name)]
        for address, reply in self._ask("save", dict.fromkeys(there, b""), checkpoint=name):
            if isinstance(reply, Reply) and reply.outcome == "done":
                self._saved[address] = [*self._saved.get(address, []), name][-2:]
                self._joined[address] = reply
            elif isinstance(reply, Reply) and reply.outcome == "refused":
                failed = SetupError(f"{address} could not save its state: {one_line(reply.reason, 1000)}")
                if round_of(name) == 0 or address == KEY_SERVER:
                    raise failed
                log_error(self._run_dir, f"{address}, save", failed)
                self._forget(address)
            elif round_of(name) == 0:
                raise SetupError(f"{_problem(address, reply)}; every party must save what was agreed before round 1")
            else:
                self._forget(address)
        write_names(folder, self._saved)

    def saved(self, folder: Path) -> None:
        """The server's part of the checkpoint is complete too: parties that come back continue from here."""
        self._complete = {address: [*names] for address, names in self._saved.items()}

    def load(self, folder: Path) -> None:
        """Takes every party that is there back to its own checkpoint, and each other party when it comes back.

        Raises:
            CheckpointError: no client can go back to it, or the key server cannot, or the run had no parties.
        """
        run_dir = folder.parent.parent
        if not (folder / ELSEWHERE).is_file() and any(folder.glob("clients-*.state")):
            raise HeldElsewhere(
                f"{folder} holds the states of all parties, which ran with the engine {engine_of(run_dir) or 'local'}, "
                f"and these parties have none of this run; continue it with that engine: {resume_command(run_dir)}"
            )
        self._saved = read_names(folder)
        self.saved(folder)
        self._told.clear()
        problems = self._up_to_date(self._addresses)
        clients = [address for address in self._addresses if address != KEY_SERVER]
        if KEY_SERVER in problems or all(address in problems for address in clients):
            why = "; ".join(dict.fromkeys(map(str, problems.values())))
            others = [round for round in Checkpoints(run_dir).rounds() if round != round_in(folder)]
            usable = [round for round in others if self._all_have(Checkpoints(run_dir).path(round))]
            onward = f"run the recipe again, with new state folders: {run_command(run_dir)}"
            if self._silent:
                onward = f"start those again, then continue: {resume_command(run_dir)}"
            elif usable:
                had = f"all parties have their states after round {usable[-1]}"
                onward = f"{had}: {resume_command(run_dir, usable[-1])}"
            raise HeldElsewhere(f"{why}; {onward}")

    def _all_have(self, folder: Path) -> bool:
        """Whether every party that is there has its checkpoint of this one of the server."""
        try:
            names = read_names(folder)
        except CheckpointError:
            return False
        return all(names.get(address, [""])[-1] in kept for address, kept in self._kept.items())

    def overhead(self) -> dict[str, int]:
        """Bytes that travelled in addition to the messages, by source."""
        return {"requests to parties": self.framing}

    def close(self) -> None:
        """Tells the parties that the session ends, and releases them. Their programs continue."""
        there = {address: b"" for address in self._addresses if address in self._told - self._silent}
        for _ in self._ask("leave", there, seconds=self.leave_seconds):
            pass
        self._joined.clear()
        self._told.clear()
        self._transport.close()

    # -- bringing parties up to date -----------------------------------------------------------------------------------

    def _start(self) -> None:
        """Joins every party. It waits for parties that are still starting."""
        missing = self._awaited(self._addresses, self._addresses)
        if refusals := [str(why) for why in missing.values() if not isinstance(why, PartyLost)]:
            raise SetupError("\n".join(refusals))
        if KEY_SERVER in missing or len(missing) == len(self._addresses):
            address = KEY_SERVER if KEY_SERVER in missing else self._addresses[0]
            raise SetupError(f"{address} did not join: {missing[address]}")

    def _awaited(self, addresses: Iterable[str], needed: Collection[str]) -> dict[str, Exception]:
        """Joins parties, waits for those that are needed, and returns the reason for each party that failed."""
        until = time.monotonic() + self._patience
        failed = self._join(addresses)
        while time.monotonic() < until:
            away = [a for a, why in failed.items() if a in needed and isinstance(why, PartyLost)]
            if not away:
                break
            time.sleep(0.2)
            failed = {a: why for a, why in failed.items() if a not in away} | self._join(away)
        return failed

    def _join(self, addresses: Iterable[str]) -> dict[str, Exception]:
        """Joins parties and returns the reason for each party that failed."""
        failed: dict[str, Exception] = {}
        seconds = min(self._patience, self._timeout)
        for address, reply in self._ask("join", dict.fromkeys(addresses, b""), seconds=seconds):
            if isinstance(reply, PartyLost) or reply.outcome != "done":
                failed[address] = _problem(address, reply)
                continue
            before = self._joined.get(address)
            if before is None or before.incarnation != reply.incarnation:
                self._told.discard(address)
            self._joined[address] = reply
            self._kept[address] = reply.kept
        return failed

    def _up_to_date(self, addresses: Iterable[str]) -> dict[str, Exception]:
        """Makes parties begin or load the last complete checkpoint if they have not; returns those that failed."""
        asked = [address for address in addresses if address not in self._joined or address in self._silent]
        found = self._awaited(asked, (KEY_SERVER,))  # the run would end without the key server
        behind = [address for address in addresses if address not in self._told and address not in found]
        by_name: dict[str, list[str]] = {}
        for address in behind:
            try:
                by_name.setdefault(self._from(address), []).append(address)
            except PartyLost as old:
                found[address] = old
                self._forget(address)  # the party may come back with another state
        for name, there in by_name.items():
            command: Command = "load" if name else "begin"
            for address, reply in self._ask(command, dict.fromkeys(there, b""), checkpoint=name):
                if isinstance(reply, Reply) and reply.outcome == "done":
                    self._told.add(address)
                else:
                    found[address] = _problem(address, reply)
                    self._forget(address)
        return found

    def _from(self, address: str) -> str:
        """The checkpoint from which a party must continue; empty: from the beginning.

        It is the party's last checkpoint that the server's checkpoint lists. It is an earlier one if the party was away
        when the others saved. The server then sends the party everything that it missed.
        """
        if self._complete is None:
            return ""
        known = self._complete.get(address, [])
        kept = self._joined[address].kept
        if not known or known[-1] not in kept:
            wanted = f"must continue from {known[-1]}" if known else "has saved nothing of this run"
            raise PartyLost(
                f"{address} {wanted}, but its folder has {one_line(', '.join(kept)) or 'no checkpoint'}; if the folder "
                "was restored from an older copy, restore the copy from when the party last ran"
            )
        return known[-1]

    def _forget(self, address: str) -> None:
        self._joined.pop(address, None)
        self._told.discard(address)

    # -- questions and answers -----------------------------------------------------------------------------------------

    def _ask(
        self, command: Command, messages: Mapping[str, bytes], *, checkpoint: str = "", seconds: float | None = None
    ) -> Iterator[tuple[str, Reply | PartyLost]]:
        """Asks several parties and yields one answer from each, as they arrive. It drops answers to other questions."""
        self._number += 1
        requests = {}
        for address, message in messages.items():
            joined, needed = self._joined.get(address), (self._complete or {}).get(address, [""])[-1]
            requests[address] = Request(
                address, self._digest, self._run, self._session, self._number,
                "" if command == "join" or joined is None else joined.incarnation,
                command, checkpoint, needed, message,
            ).to_bytes()  # fmt: skip
            self.framing += len(requests[address]) - len(message)
        number, waiting = self._number, set(requests)
        if not requests:
            return
        for address, answer in self._transport.exchange(requests, self._timeout if seconds is None else seconds):
            if address not in waiting:
                continue
            reply = self._read(answer, number)
            if reply is None:
                continue
            waiting.discard(address)
            (self._silent.add if isinstance(reply, PartyLost) else self._silent.discard)(address)
            yield address, reply
            if not waiting:
                return
        self._silent |= waiting
        for address in sorted(waiting):
            yield address, PartyLost(f"{address} gave no answer to this question")

    def _read(self, answer: bytes | PartyLost, number: int) -> Reply | PartyLost | None:
        """An answer; None if it answers another question."""
        if isinstance(answer, PartyLost):
            return answer
        try:
            reply = Reply.read(answer)
        except Exception as error:  # a bad reply must affect only the party that sent it
            return PartyLost(f"a reply that cannot be read: {describe(error)}")
        self.framing += len(answer) - len(reply.message)
        return reply if (reply.session, reply.number) == (self._session, number) else None


def _problem(address: str, reply: Reply | Exception) -> Exception:
    if isinstance(reply, Exception):
        return reply
    if reply.outcome == "restarted":
        return PartyLost(f"{address} was restarted in the meantime")
    return ClientError(f"{address} refuses: {one_line(reply.reason, 1000)}")


# -- what a checkpoint of the server says of parties ------------------------------------------------------------------


def run_of(run_dir: Path | None) -> str:
    """The identity by which the parties know the run of this folder; a new one without a folder."""
    file = run_dir and run_dir / _RUN
    if file and file.is_file():
        return read_text(file).strip()
    run = secrets.token_hex(8)
    if file:
        write_text(file, run)
    return run


def round_in(folder: Path) -> int:
    """The number of rounds in the name of a server's checkpoint folder: 7 for `round-0007` and `round-0007.tmp`.

    Raises:
        SetupError: it is not such a folder.
    """
    number = folder.name.removeprefix("round-").removesuffix(".tmp")
    if not number.isascii() or not number.isdigit():
        raise SetupError(f"{folder} is not the checkpoint folder of a round, such as round-0007, which parties need")
    return int(number)


def write_names(folder: Path, names: Mapping[str, list[str]]) -> None:
    """Writes the names of each party's checkpoints, ascending, into a checkpoint of the server."""
    write_file(folder / ELSEWHERE, codec.encode(dict(names)))


def read_names(folder: Path) -> dict[str, list[str]]:
    """Inverse of `write_names`.

    Raises:
        CheckpointError: the file is missing or damaged, for instance because the run used another engine.
    """
    file = folder / ELSEWHERE
    data = codec.decode_saved(read_file(file))
    with holding(file, "names of the parties' checkpoints"):
        return {address: [str(name) for name in names] for address, names in data.items()}
