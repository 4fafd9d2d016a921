"""The section `availability` of a recipe: absent clients by round, to simulate devices that come and go.

A real federation does not need it: a client that does not reply before `--timeout` is absent.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedplug import Around, Section
from fedplug.api.component import Options
from fedplug.api.errors import PartyLost
from fedplug.api.parties import client_address
from fedplug.api.streams import stream
from pydantic import Field, model_validator

if TYPE_CHECKING:
    from fedplug import KeyPath
    from fedplug.api.events import Subject

HEAD = ["round", "client"]


class AvailabilityOptions(Options):
    """Absent clients: those of `drop_out` and those of `trace` together."""

    drop_out: float = Field(0.0, ge=0, lt=1, description="chance that a client is away in a round, drawn independently")
    when: Literal["round", "upload", "opening"] = Field(
        "round",
        description="start of the absence: the beginning of the round, the request for the update, or the request for "
        "shares of a sum; its update is then in the sum, but it does not help to open it",
    )
    trace: str | None = Field(
        None, min_length=1, description="CSV file with columns round (from 1) and client: the absent clients by round"
    )
    sha256: str | None = Field(None, description="digest of the trace; written by fedplug to refuse a changed trace")

    @model_validator(mode="after")
    def _is_the_trace(self) -> AvailabilityOptions:
        """Puts the content of the trace, in addition to its name, into the digest of a recipe."""
        if self.trace is None:
            if self.sha256 is not None:
                raise ValueError("sha256 belongs to a trace; name the file as trace, or leave sha256 out")
            return self
        try:
            found = hashlib.sha256(Path(self.trace).read_bytes()).hexdigest()
        except OSError as error:
            raise ValueError(f"trace {self.trace} cannot be read ({error.strerror}); its path is relative to "
                             f"{Path.cwd()}") from error  # fmt: skip
        if self.sha256 not in (None, found):
            raise ValueError(
                f"trace {self.trace} has changed: its sha256 is {found}, the recipe says {self.sha256}; put the file "
                "back, or leave sha256 out"
            )
        object.__setattr__(self, "sha256", found)
        list(read_trace(self.trace))
        return self


def read_trace(file: str) -> Iterator[tuple[int, int]]:
    """Round, from 1, and client of each line.

    Raises:
        ValueError: a line is not of two whole numbers, or the first one does not name the columns.
    """
    with Path(file).open(newline="", encoding="utf-8") as lines:
        for number, cells in enumerate(csv.reader(lines), 1):
            if number == 1:
                if [cell.strip() for cell in cells] != HEAD:
                    raise ValueError(f"trace {file}, line 1: the columns must be round,client, not {','.join(cells)}")
                continue
            try:
                round, client = map(int, cells)
                if round < 1 or client < 0:
                    raise ValueError
            except ValueError:
                raise ValueError(
                    f"trace {file}, line {number}: {','.join(cells)!r} must be a round from 1 and a client from 0"
                ) from None
            yield round, client


class AvailabilitySection(Section):
    """Simulate absent clients: they drop out of some rounds and are back in others."""

    Options = AvailabilityOptions

    def check(self, around: Around) -> Iterator[tuple[KeyPath, str]]:
        """The trace is of this recipe's clients and rounds."""
        if self.options.trace is None or around.clients is None:
            return
        lines = list(read_trace(self.options.trace))
        if beyond := sorted({client for _, client in lines if client >= around.clients}):
            yield ("trace",), (
                f"{self.options.trace} names client {beyond[0]}, but data.clients={around.clients}: 0 to "
                f"{around.clients - 1}; remove such lines, or split the data among more"
            )
        if around.recipe is not None and (late := [round for round, _ in lines if round > around.recipe.rounds]):
            rounds = around.recipe.rounds
            yield ("trace",), (
                f"{self.options.trace} goes to round {max(late)}, but rounds={rounds}; remove such lines, or run longer"
            )

    @property
    def presence(self) -> float:
        """Unknown for a trace."""
        if self.options.when == "opening":  # its update is in the sum
            return 1.0
        return 0.0 if self.options.trace else 1.0 - self.options.drop_out

    def attach(self, protocol: Subject) -> None:
        """Messages to a client that is away do not arrive."""
        away = Away(self.options, protocol.recipe.seed)
        protocol.office.transport = Reached(protocol, away)

    def describe(self) -> str:
        """One line for the plan of the run."""
        ways = [f"each client with chance {self.options.drop_out:g}"] if self.options.drop_out else []
        ways += [f"as {self.options.trace} says"] if self.options.trace else []
        since = {
            "round": "of a round", "upload": "of what a round uploads", "opening": "in opening what a round uploads"
        }[self.options.when]  # fmt: skip
        return f"clients are away {' and '.join(ways)}: no part {since}"


class Away:
    """The absent clients, reproducibly: the same in every process and after every resume.

    Args:
        options: of the section.
        seed: of the recipe.
    """

    def __init__(self, options: AvailabilityOptions, seed: int) -> None:
        self.when, self._chance, self._seed = options.when, options.drop_out, seed
        self._traced = set(read_trace(options.trace)) if options.trace else set()

    def is_away(self, client_id: int, round: int) -> bool:
        """Whether the client is away in a round, from 0."""
        drawn = self._chance and stream(self._seed, "availability", round, client_id).random() < self._chance
        return bool(drawn) or (round + 1, client_id) in self._traced


class Reached:
    """An engine that cannot reach the absent clients.

    Args:
        protocol: knows the round and its phase, and hands its messages to the engine.
        away: the absent clients.
    """

    def __init__(self, protocol: Subject, away: Away) -> None:
        self._office, self._transport, self._away = protocol.office, protocol.office.transport, away
        self._clients = {client_address(client_id): client_id for client_id in protocol.client_ids}
        self.in_process = self._transport.in_process

    def exchange(self, messages: dict[str, Any]) -> Iterable[tuple[str, Any]]:
        """Delivers the other messages; absent clients count as lost in this round."""
        lost = [address for address in messages if self._is_lost(address)]
        for address in lost:
            yield address, PartyLost("is away in this round, by availability")
        yield from self._transport.exchange({a: message for a, message in messages.items() if a not in lost})

    def _is_lost(self, address: str) -> bool:
        office = self._office
        begun = office.round >= 0 and office.phase != "finish"  # all are present for the set-up and the last model
        client_id = self._clients.get(address)  # None for the key server, which is always present
        phases = {"upload": ("upload", "open"), "opening": ("open",)}.get(self._away.when)
        if client_id is None or not begun or (phases is not None and office.phase not in phases):
            return False
        return self._away.is_away(client_id, office.round)
