"""One party, between its host and the carrier of requests: which requests it obeys, refuses and records.

The party obeys one server process at a time, and only ever one run. It runs nothing for a server with another recipe,
nothing twice, and nothing out of order. It repeats rounds only as often as its site allows. It saves its state between
rounds: a save ends the rounds that it has been in, and one that says otherwise is refused.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from fedplug.api import codec
from fedplug.api.codec import Message
from fedplug.api.errors import MessageError, describe, log_error
from fedplug.api.parties import KEY_SERVER
from fedplug.wire.calls import Reply as Answer
from fedplug.wire.calls import read_call, read_reply

from fedplug_party.frames import Outcome, Reply, Request, round_of
from fedplug_party.kept import Kept
from fedplug_party.state import State

LAST = "fedplug.fingerprint"
"""The question that ends a run: which model a client has at the end."""
FAILURES = 10
"""A party may fail at this number of questions in a run, times one plus the repeats that its site allows. Whether an
answer fails may depend on the data, so each such reply can tell a server about one bit."""


class Host(Protocol):
    """A host of `fedplug.round.parties` that holds only this party."""

    def deliver(self, address: str, data: Message) -> Message:
        """Runs a message at the party and returns its reply."""

    def save(self, folder: Path) -> None:
        """Writes the party's state."""

    def load(self, folder: Path) -> None:
        """Reads the state that `save` wrote."""


class Guard(Protocol):
    """A site's policy for one study: it raises a MessageError where the party must not go on."""

    def reached(self, engine: str) -> None:
        """Before the party obeys a request that this engine carries."""

    def asked(self, run: str, round: int, attempt: int, question: str) -> None:
        """Before the party answers a question of a round, from 0, in a run; `attempt` counts how often it was sent back
        to before the round.
        """

    def noticed(self, odd: str) -> None:
        """After a model that no training explains."""


class Party:
    """One party as its program runs it.

    Args:
        address: of this party.
        digest: of its recipe.
        rounds: of the recipe.
        state: its folder.
        build: makes a host in which the run has not begun.
        repeats: how many repeated rounds its site allows, over the whole run.
        paid: how often a question may be answered in a round, as charged in the ledger; None: the ledger charges
            nothing for it.
        said: receives log lines for people.

    Attributes:
        host: made by the last `begin` or `load`.
        over: whether the run has ended and the server has left.
        finished: called with the host when the run is over.
        noticed: called with the host after each question; returns sentences on anything odd about its model.
        kept: keeps rounds for an attack at home; None: nothing is kept.
        guard: the site's policy; None: it has none.
    """

    def __init__(
        self, address: str, digest: str, rounds: int, state: State, build: Callable[[], Host], repeats: int,
        paid: Callable[[int, str], int | None], said: Callable[[str], None] = lambda _: None,
    ) -> None:  # fmt: skip
        self.address, self.digest, self.rounds, self.state = address, digest, rounds, state
        self._build, self._repeats, self._paid, self._said = build, repeats, paid, said
        self.incarnation = secrets.token_hex(8)
        self.host: Host | None = None
        self.over = False
        self.finished: Callable[[Host], None] = lambda _: None
        self.noticed: Callable[[Host], list[str]] = lambda _: []
        self.kept: Kept | None = None
        self.guard: Guard | None = None
        self._asked_last = False
        self._round = -1  # the latest one in which this host was asked anything, from 0
        self._session, self._former = "", set[str]()
        self._number, self._last, self._reply = -1, ("", -1), b""

    def answer(self, data: bytes, engine: str) -> bytes:
        """The reply to a request that an engine carries.

        A repeated request gets the same bytes again and is not run again.
        """
        try:
            request = Request.read(data)
        except Exception as error:  # the program continues, whatever arrives
            return Reply("", -1, self.incarnation, "refused", f"this is not a request: {describe(error)}").to_bytes()
        try:
            if (request.session, request.number) == self._last:
                return self._reply
            if problem := self._problem(request):
                return self._replying(request, *problem)
            if self.guard is not None:
                self.guard.reached(engine)
            self.state.require_run(request.run)
            self._number = request.number
            message = getattr(self, f"_{request.command}")(request)
            reply = self._replying(request, "done", message=message or b"")
        except Exception as error:  # the program continues, even after the error of a plugin
            log_error(self.state.folder, f"{self.address}, {request.command}", error)
            reply = self._replying(request, "refused", describe(error))
        self._last, self._reply = (request.session, request.number), reply
        return reply

    def _problem(self, request: Request) -> tuple[Outcome, str] | None:
        """Why the party does not obey a request; None if it does."""
        if request.address != self.address:
            return "refused", (
                f"this is {self.address}, but the request is for {request.address}; check the addresses of the parties"
            )
        if request.digest != self.digest:
            return "refused", (
                f"it was started with recipe {self.digest[:12]}, but the server has recipe {request.digest[:12]}; "
                "start all parties with the same recipe"
            )
        if request.session in self._former:
            return "refused", "the request is from an earlier server process; another one has replaced it"
        if request.session == self._session and request.number < self._number:
            return "refused", f"request {request.number} came after request {self._number}, too late to be run"
        if request.command == "join":
            return None
        if request.session != self._session or request.incarnation != self.incarnation:
            return "restarted", ""
        if self.host is None and request.command in ("deliver", "save"):
            return "restarted", ""
        return None

    def _replying(self, request: Request, outcome: Outcome, reason: str = "", message: bytes = b"") -> bytes:
        kept = self.state.kept() if request.command != "deliver" and outcome != "refused" else []
        return Reply(request.session, request.number, self.incarnation, outcome, reason, kept, message).to_bytes()

    def status(self) -> dict[str, Any]:
        """The status of the party, for its site's administrator. It may be called while the party answers."""
        notes, belongs = self.state.notes, self.state.belongs
        last = next((line for line in reversed(notes.lines) if "answered" in line), None)
        return {
            "party": self.address,
            "recipe": self.digest[:12],
            "run": (belongs and belongs.run) or "none so far",
            "server": "connected" if self._session else "not connected",
            "checkpoint": notes.current or "none",
            "last answer": f"{last['answered']}, {self._when(last['round'])}, {last['time']}" if last else "none",
            "repeats": f"{notes.repeats} of {self._repeats}",
        }

    # -- commands ------------------------------------------------------------------------------------------------------

    def _join(self, request: Request) -> None:
        if request.session != self._session:
            self._former |= {self._session} - {""}
            self._session, self.host = request.session, None
            self._said("a server has connected")

    def _begin(self, request: Request) -> None:
        bound, kept = self.state.belongs, self.state.kept()
        if bound is not None and bound.run and kept:  # only a server that wants keys and state deleted asks for this
            raise MessageError(
                "round 1 of this run has begun and there is a checkpoint, so the run cannot start again from the "
                f"beginning; continue from {kept[-1]}"
            )
        self.state.go_back("")
        self.host, self._round = self._build(), -1

    def _load(self, request: Request) -> None:
        folder = self.state.path(request.checkpoint)
        self.state.go_back(request.checkpoint)
        self.host = None  # never keep a half loaded host
        host = self._build()
        host.load(folder)
        self.host, self._round = host, -1
        self._keep(request.checkpoint)

    def _save(self, request: Request) -> None:
        assert self.host is not None
        if (done := round_of(request.checkpoint)) <= self._round:
            raise MessageError(
                f"it was asked to save its state after {done} rounds, in the middle of round {self._round + 1}; it is "
                "saved between rounds alone, since a state with the secrets of a round could be used twice"
            )
        self.state.save(request.checkpoint, self.host.save, request.needed)
        if self.kept is not None:
            self.kept.end()
        self._keep(request.checkpoint)

    def _keep(self, checkpoint: str) -> None:
        if self.kept is not None:
            self.kept.begin(round_of(checkpoint), self.state.path(checkpoint))

    def _leave(self, request: Request) -> None:
        self._former.add(self._session)
        self._session, self.over = "", self._asked_last
        if self.over and self.host is not None:
            self.finished(self.host)
        if self.over and self.kept is not None:
            self.kept.end()
        self.host = None
        self._said("the run is over" if self.over else "the server has disconnected; this party waits for it")

    def _deliver(self, request: Request) -> bytes:
        assert self.host is not None
        round, question = _question(request.message)
        asked_in, self._round = round, max(self._round, round)
        paid = self._paid(round, question) if self.address != KEY_SERVER else None
        if paid is not None:
            round = max(round, 0)  # the ledger charges the set-up with round 1
        if round >= 0:  # a server that fails before its first round may begin another run
            self.state.bind(request.run)
        self._require_allowed(round, question, paid)
        if self.guard is not None:
            self.guard.asked(request.run, round, self.state.notes.attempt, question)
        started = time.perf_counter()
        try:
            reply = self.host.deliver(self.address, request.message)
            data = _bare(reply if isinstance(reply, bytes) else reply.to_bytes())
        except Exception:
            self._failed(round, question)
            raise
        if read_reply(data)[0].error is not None:
            self._failed(round, question)
        if self.kept is not None:
            self.kept.add(asked_in, request.message, data)
        for odd in self.noticed(self.host):
            self._said(
                f"{self._when(round + 1)}: warning: the server sent an unusual model ({odd}); training does not cause "
                "this, so the server may have manipulated the model"
            )
            if self.guard is not None:
                self.guard.noticed(odd)
        if self.address != KEY_SERVER and _is_answer(data, 0 <= round < self.rounds):
            self.state.notes.answered(round, question, len(data))
            took = time.perf_counter() - started
            self._said(f"{self._when(round + 1)}: answered {question} with {len(data):,} bytes after {took:.1f} s")
        self._asked_last = question == LAST or (self.address == KEY_SERVER and round == self.rounds - 1)
        return data

    def _when(self, number: int) -> str:
        """A round, counted from 1, for people."""
        if number < 1:
            return "during set-up"
        return f"round {number}" if number <= self.rounds else "at the end"

    def _within(self, round: int) -> str:
        return f"in round {round + 1}" if 0 <= round < self.rounds else self._when(round + 1)

    def _failed(self, round: int, question: str) -> None:
        if self.address != KEY_SERVER:
            self.state.notes.failed(round, question)

    def _require_allowed(self, round: int, question: str, paid: int | None) -> None:
        """Refuses an answer that would be one repeat too many, or one ballot more than the ledger charges (`paid`).

        After too many failures it refuses every answer.

        Raises:
            MessageError: the party must not answer.
        """
        notes, failures = self.state.notes, FAILURES * (1 + self._repeats)
        if notes.failures >= failures:
            raise MessageError(
                f"it has failed at {failures} questions, the limit of a run: whether an answer fails may depend on its "
                "data, so failures are limited; its owner can read errors.log and restart it with a higher --repeats"
            )
        if paid is not None and notes.answers(round, question) >= paid:
            raise MessageError(
                f"{question} has reached its limit of answers {self._within(round)} ({paid}), which follows from the "
                "noise that the recipe states; another answer would carry different noise over the same values"
            )
        if notes.would_repeat(round) and notes.repeats >= self._repeats:
            raise MessageError(
                f"it has answered {self._within(round)} before, and its site's limit of repeated rounds in a run "
                f"({self._repeats}) is reached; to allow more, its owner can restart it with a higher --repeats"
            )


def _question(message: bytes) -> tuple[int, str]:
    """The round, from 0, and the name of a message's last call. The reply holds the answer to that call.

    Raises:
        MessageError: it does not end with a question.
    """
    plain = codec.decode(codec.unframe(message))
    calls = plain.get("calls") if isinstance(plain, dict) else None
    if not isinstance(calls, list) or not calls:
        raise MessageError("a message without calls")
    sequence, round, component, method, _ = read_call(calls[-1])
    if sequence:  # a call that was run before is skipped, so the reply would hold the answer to an earlier call
        raise MessageError("a message that does not end with a question")
    return round, f"{component}.{method}"


def _bare(reply: bytes) -> bytes:
    """A reply as it may leave: an error leaves alone, because the party records and limits only the failure.

    Otherwise the reply would also carry the reports of earlier calls in the message, such as an evaluation.
    """
    found, _ = read_reply(reply)
    if found.error is None:
        return reply
    return codec.frame(codec.encode(Answer(found.done, found.saved, error=found.error).to_plain()))


def _is_answer(reply: bytes, in_round: bool) -> bool:
    """Whether a reply discloses anything. An error does not, nor does a reply that the party must catch up first.

    After the last round, only an evaluation of the delivered model does.
    """
    found, _ = read_reply(reply)
    return found.error is None and not found.behind and (in_round or bool(found.reports.evaluation))
