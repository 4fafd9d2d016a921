"""The content of a message to a client or to the key server: a list of calls, and how the receiver runs them.

A call names a component, one of its methods marked for that site, and a payload. The receiver builds its components
from its own copy of the recipe; a message made under another recipe is refused, so a server cannot quietly switch off
a protection. A call with a sequence number is run once, however often it arrives; one without is refused once a later
round has begun, or once the receiver was saved in that round or after it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from fedplug.api import codec
from fedplug.api.codec import Message, Packed
from fedplug.api.component import named, remote_method
from fedplug.api.errors import FedplugError, MessageError, OpenedBefore, describe, log_error
from fedplug.api.parties import CalledMemory
from fedplug.api.records import Count, Record, is_count, shown
from fedplug.api.reports import Reason, Reports
from fedplug.api.roles import place_of

MOST_CALLS = 2**40
"""Numbers of calls and of rounds are smaller: no run comes near."""


@dataclasses.dataclass(frozen=True, eq=False)
class Call:
    """One call, encoded once and shared by the messages of all receivers.

    Attributes:
        body: [sequence, round, component, method, payload], encoded or packed.
        zones: bytes of each zone's blocks in `body`.
        sequence: number that grows with every lasting call; 0 for a call of this round only.
    """

    body: bytes | Packed
    zones: Counter[str]
    sequence: int

    @classmethod
    def of(cls, method: Callable[..., Any], payload: tuple[Any, ...], site: str, round: int, sequence: int = 0) -> Call:
        """Encodes the call of a bound method.

        Raises:
            MessageError: the method is not marked for that site, or the payload may not travel.
        """
        component, name = named(method)
        if component is None or remote_method(component, name, site) is None:
            raise MessageError(f"{name} cannot run at a {site}; mark it @at_{site} and pass it as self.{name}")
        try:
            body = codec.pack([sequence, round, component.name, name, list(payload)])
        except MessageError as error:
            raise MessageError(f"{place_of(component, name)}its payload: {error}") from error
        return cls(body, body.zones, sequence)


def request(
    digest: str, calls: Sequence[Call], known: int = 0, stays: bool = False, recorded: bool = False
) -> tuple[Message, Counter[str]]:
    """A message of several calls, and its bytes per zone.

    Args:
        digest: of the recipe.
        calls: in the order in which they are to run.
        known: see below.
        stays: whether the receiver lives in this process, so that a message need not be bytes.
        recorded: whether the run is recorded, so that a client is to look through its answers.

    `known` is the last lasting call that the sender believes done. A receiver that was restored from a checkpoint and
    has done less answers how far it is, and runs nothing.
    """
    zones: Counter[str] = Counter()
    for call in calls:
        zones.update(call.zones)
    body: dict[str, Any] = {"digest": digest, "known": known, "calls": [call.body for call in calls]}
    if recorded:
        body["recorded"] = True
    return _framed(body, stays), zones


def _framed(body: Any, stays: bool) -> Message:
    return codec.pack(body).in_frame() if stays else codec.frame(codec.encode(body))


class Failure(Record, frozen=True):
    """What went wrong at a party.

    Attributes:
        call: that failed, `component.method`.
        message: for people.
        kind: the type of the error.
    """

    call: Reason
    message: Reason
    kind: Reason = ""


class Reply(Record, frozen=True, eq=False):
    """The answer to a message.

    Attributes:
        done: the last lasting call that the party has run.
        saved: the last one it had run when it was last saved.
        value: what the last call of the message gave; None where it gave nothing, failed or was not run.
        error: what failed; None if nothing did.
        behind: whether the party has done less than the sender believed, and so ran nothing.
        reports: what it reports with its answer.
    """

    done: Count
    saved: Count
    value: Any = None
    error: Failure | None = None
    behind: bool = False
    reports: Reports = dataclasses.field(default_factory=Reports)

    def to_plain(self, for_json: bool = False) -> dict[str, Any]:
        """As it travels."""
        answer: dict[str, Any] = {"value": self.value}
        if self.behind:
            answer = {"behind": True}
        elif self.error is not None:
            answer = {"error": self.error.to_plain()}
        return {**answer, "done": self.done, "saved": self.saved, "reports": self.reports.to_plain()}


def read_reply(data: Message) -> tuple[Reply, Counter[str]]:
    """A reply that arrived, and its bytes per zone.

    Raises:
        MessageError: the bytes are not a reply.
    """
    zones: Counter[str] = Counter()
    plain = codec.decode(codec.unframe(data), zones)
    try:
        return Reply.from_plain(plain), zones
    except ValueError as problem:
        raise MessageError(f"a reply that cannot be: {problem}") from problem


def compared_in(answer: Message | Exception) -> dict[str, Any]:
    """What a party found of its plain values in an answer, whatever else is wrong with it; empty: it says nothing."""
    with contextlib.suppress(MessageError, TypeError, KeyError):
        found = {} if isinstance(answer, Exception) else codec.decode(codec.unframe(answer))["reports"]["compared"]
        return found if isinstance(found, dict) else {}
    return {}


def _seconds(seconds: float) -> float:
    """Seconds in whole microseconds. The digits of a short time on a binary clock fit into a float32, and so its bytes
    may be those of a plain value; of a decimal fraction they are not.
    """
    return round(seconds, 6)


class Receiver:
    """Runs the calls of one message at one party.

    Args:
        site: `client` or `key_server`.
        components: this party's own components by name.
        digest: of this party's own recipe.
        run_dir: the run folder, where tracebacks are kept, or None.
        handing: what goes around each call, as `Section.around` gives it, the outermost first.
        watching: of a party of a run that is recorded, what looks through its replies, given the round and the bytes.
    """

    def __init__(
        self, site: str, components: dict[str, Any], digest: str, run_dir: Path | None = None,
        handing: Sequence[Callable[[str, str, Any], AbstractContextManager[Callable[[Any], Any]]]] = (),
        watching: Callable[[Any], Callable[[int, bytes], dict[str, Any]] | None] | None = None,
    ) -> None:  # fmt: skip
        self.site, self.components, self.digest, self.run_dir = site, components, digest, run_dir
        self.handing, self.watching = handing, watching

    def handle(self, data: Message, party: Any, at_round: Callable[[int], None]) -> Message:
        """Runs a message at a party and gives the reply, packed if the message was.

        An error in any call ends the message: the reply says which call, what happened and where, and the calls before
        it stay done. A call before the last that refuses to open another sum than before is done, and reported.

        Args:
            data: the framed message.
            party: passed to each method; it remembers which calls it has run (`CalledMemory`).
            at_round: called before each call with the round it belongs to.
        """
        memory: CalledMemory = party.remembered
        stays = isinstance(data, Packed)
        value, failure, look = None, None, None
        running, asked = "the message", None
        started = time.perf_counter()
        try:
            message = self._open(data)
            if memory.done < message["known"]:
                return _framed(Reply(memory.done, memory.saved, behind=True).to_plain(), stays)
            if self.watching is not None and message.get("recorded"):
                look = self.watching(party)
            *_, question = message["calls"] or [None]
            for body in message["calls"]:
                sequence, round, component, name, payload = read_call(body)
                running = f"{component}.{name}"
                if sequence and sequence <= memory.done:
                    continue
                asked, called = None, self.components.get(component)
                method = remote_method(called, name, self.site)
                if method is None:
                    raise MessageError(f"{running} is not a method that may be called at a {self.site}")
                if not sequence and round < memory.round:
                    # Otherwise the holder of an old message could have an upload made again, with other noise.
                    raise MessageError(
                        f"{running} belongs to {when(round)}, but this {self.site} has been in "
                        f"{when(memory.round)} already; an old message does not run again"
                    )
                if not sequence and round < memory.next:
                    raise MessageError(
                        f"{running} belongs to {when(round)}, and this {self.site} was saved in the middle of it, "
                        "which ended it: what was saved could be used twice. Parties are saved between rounds"
                    )
                asked = called, name
                memory.round = max(memory.round, round)
                at_round(round)
                try:
                    with contextlib.ExitStack() as around:
                        looks = [around.enter_context(each(component, name, party)) for each in self.handing]
                        value = method(party, *payload)
                        for answered in reversed(looks):
                            value = answered(value)
                except OpenedBefore as error:
                    if body is question:
                        raise
                    # It would refuse the next time too: what was told is done, and the round continues without.
                    log_error(self.run_dir, f"{self.site}, {running}", error)
                    party.report_unopened(error.zone, error)
                memory.done = sequence or memory.done
        except Exception as error:
            log_error(self.run_dir, f"{self.site}, {running}", error)
            said = describe(error)
            if asked is not None and not isinstance(error, FedplugError):
                said = place_of(*asked) + said
            failure = Failure(running, said, type(error).__name__)
        reports: Reports = party.collect_reports()  # with seconds of work that other parties of this process did for it
        reports.seconds_total = max(0.0, _seconds(reports.seconds_total + time.perf_counter() - started))
        reports.seconds = {phase: _seconds(seconds) for phase, seconds in reports.seconds.items()}
        reports.operations = {what: [count, _seconds(seconds)] for what, (count, seconds) in reports.operations.items()}
        reply = Reply(memory.done, memory.saved, value, failure, reports=reports)
        try:
            leaving = _framed(reply.to_plain(), stays)
        except MessageError as error:
            place = "" if asked is None else place_of(*asked)
            failure = Failure(running, f"{place}its answer: {error}", "MessageError")
            reply = Reply(memory.done, memory.saved, error=failure)
            leaving = _framed(reply.to_plain(), stays)
        if look is None:
            return leaving
        # What it says of itself is all that is added to the bytes that were looked through.
        reports.compared = look(memory.round, leaving if isinstance(leaving, bytes) else leaving.to_bytes())
        return _framed(dataclasses.replace(reply, reports=reports).to_plain(), stays)

    def _open(self, data: Message) -> dict[str, Any]:
        message = codec.decode(codec.unframe(data))
        if not isinstance(message, dict) or message.get("digest") != self.digest:
            theirs = str(message.get("digest"))[:12] if isinstance(message, dict) else "none"
            raise MessageError(
                f"refused a message made under recipe {theirs}, mine is {self.digest[:12]}; start all parties with the "
                "same recipe"
            )
        if not is_count(message.get("known")) or not isinstance(message.get("calls"), list):
            raise MessageError("a message without the fields of one: digest, known and calls")
        return message


def read_call(body: Any) -> tuple[int, int, str, str, list[Any]]:
    """What `Call.of` wrote.

    Raises:
        MessageError: it is no call.
    """
    row = codec.decode(body) if isinstance(body, bytes | Packed) else None
    if not isinstance(row, list) or [*map(type, row)] != [int, int, str, str, list]:
        raise MessageError(f"a call that is {shown(row)}, not a sequence, a round, a component, a method and a payload")
    if not (0 <= row[0] <= MOST_CALLS and -1 <= row[1] <= MOST_CALLS):
        raise MessageError(f"a call of sequence {shown(row[0])} and round {shown(row[1])}, which cannot be")
    return row[0], row[1], row[2], row[3], row[4]


def when(round: int) -> str:
    """A round as people count it, from 1; -1 is the set-up."""
    return f"round {round + 1}" if round >= 0 else "the set-up"
