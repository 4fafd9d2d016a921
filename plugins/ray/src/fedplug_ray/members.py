"""An actor as the process that runs the protocol sees it: how to start it, ask it, wait for it and end it.

Nobody waits for an actor for ever. It has `Job.timeout` seconds for the answer of one party. The engine ends an actor
that is silent for longer, and treats it as dead. So a late answer can never be taken for the answer to another
question.
"""

from __future__ import annotations

import math
import time
from typing import Any

import ray
from fedplug.api.errors import FedplugError, PartyLost, SetupError, describe
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from fedplug_ray.actor import Actor, Start

KEY_SERVER_MEMBER = -1
_LEAST = 600.0
"""The minimum of seconds that an actor has for work on all of its parties together: start, save, load."""
_ROUND_TRIP = 2.0
"""Seconds in which an idle actor must reply to a ping."""


class Member:
    """One actor.

    Args:
        number: of the worker; `KEY_SERVER_MEMBER`.
        client_ids: its clients; None: it is the key server.
        resources: what Ray must reserve for it: `num_cpus`, `num_gpus`.
        timeout: seconds for the answer of one party; 0: no limit.

    Attributes:
        alive: whether it can be asked, as far as this process knows.
        method: the last method that it was asked to run.
        answer: the reference of the answer, until it is taken.
    """

    def __init__(self, number: int, client_ids: list[int] | None, resources: dict[str, float], timeout: int) -> None:
        self.name = "key-server" if client_ids is None else f"worker-{number}"
        self.number, self.client_ids, self.alive = number, client_ids, False
        self._resources, self._timeout, self._why = resources, timeout, ""

    def begin(self, start: Start) -> None:
        """Makes Ray start a process for it. The process then begins to build its parties."""
        self._actor: Any = ray.remote(Actor).options(**self._resources).remote()
        self.alive, self._why = True, ""
        self.ask("start", start)

    def ask(self, method: str, *arguments: Any) -> Any:
        """Sends a question and starts the time for its answer. Returns the reference of the answer."""
        self.method, self.until = method, time.monotonic() + self._seconds(method)
        self.answer: Any = getattr(self._actor, method).remote(*arguments)
        return self.answer

    def take(self) -> Any:
        """The answer. Call this when it is there or its time is over.

        Raises:
            PartyLost: the actor has ended, or must be ended.
            SetupError: Ray found no room for it, or it cannot continue for a reason outside its parties.
        """
        left = None if self.until == math.inf else max(_ROUND_TRIP, self.until - time.monotonic())
        # Drop the reference to an answer that was taken: Ray keeps the answer as long as there is a reference.
        answer, self.answer = self.answer, None
        if self.over() and not ray.wait([answer], timeout=0, fetch_local=False)[0]:
            if self.method != "start":
                raise self.end(self._silent())
            after = f"did not start within {self._seconds('start'):g} seconds"
            raise SetupError(str(self.end(f"{after}; the cluster has no room for it, or is too slow")))
        try:
            return ray.get(answer, timeout=left)  # it may still have to arrive from another machine
        except GetTimeoutError:
            raise self.end(self._silent()) from None
        except RayTaskError as error:
            if isinstance(error.cause, FedplugError | OSError):
                raise SetupError(f"{self.name}: {describe(error.cause)}") from error
            # Its parties may be in any state.
            raise self.end(f"failed: {error.cause}") from error
        except RayError as error:
            raise self.end(f"ended: {_brief(error)}") from error

    def end(self, why: str = "is no longer needed") -> PartyLost:
        """Ends the actor if it is alive. Returns the error that says why there will be no answer."""
        if self.alive:
            self.alive, self._why = False, why
            ray.kill(self._actor)
        return PartyLost(f"{self.name} {self._why}")

    def over(self) -> bool:
        """Whether the time for its answer is over."""
        return self.until <= time.monotonic()

    def _silent(self) -> str:
        return (
            f"was silent for longer than --timeout {self._timeout} allows, so the run ended it; if a client needs more "
            "time, use a larger --timeout (seconds; 0: no limit)"
        )

    def _seconds(self, method: str) -> float:
        if not self._timeout:
            return math.inf
        return self._timeout if method == "deliver" else max(self._timeout, _LEAST)


def answering(members: dict[Any, Member]) -> list[Any]:
    """Waits until some of these have answered, have ended, or have run out of time.

    Args:
        members: those that were asked, by the reference of the answer.

    Returns:
        The references of those members.
    """
    everything = list(members)
    left = min(member.until for member in members.values()) - time.monotonic()
    # First take the answers that are there: time in which nobody looked does not count as silence.
    ready, _ = ray.wait(everything, num_returns=len(everything), timeout=0, fetch_local=False)
    if not ready:
        seconds = None if left == math.inf else max(0.0, left)
        ready, _ = ray.wait(everything, num_returns=1, timeout=seconds, fetch_local=False)
    return ready or [answer for answer, member in members.items() if member.over()]


def find_dead(members: list[Member]) -> None:
    """Records which of these idle actors have ended since they were last asked. Silent ones do not count."""
    for member in members:
        member.ask("process")
    pings = {member.answer: member for member in members}
    ready, _ = ray.wait(list(pings), num_returns=len(pings), timeout=_ROUND_TRIP)
    for answer in ready:
        try:
            ray.get(answer)
        except RayError as error:
            pings[answer].end(f"ended: {_brief(error)}")


def _brief(error: RayError) -> str:
    """Ray's message about the end of an actor, without its table of numbers."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__
