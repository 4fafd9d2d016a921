"""An actor as the process that runs the protocol sees it: how to start it, ask it, wait for it and end it.

Nobody waits for an actor for ever. It has `Job.timeout` seconds for the answer of one party. The engine ends an actor
that is silent for longer, and treats it as dead. So a late answer can never be taken for the answer to another
question.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import ray
from fedplug.api.errors import FedplugError, PartyLost, SetupError, describe
from fedplug_std import pool
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from fedplug_ray.actor import Actor, Start

_ROUND_TRIP = 2.0
"""Seconds in which an idle actor must reply to a ping."""


class Member(pool.Member):
    """One actor.

    Args:
        number, timeout: as of `pool.Member`.
        resources: what Ray must reserve for it: `num_cpus`, `num_gpus`.

    Attributes:
        alive: whether it can be asked, as far as this process knows.
        answer: the reference of the answer, until it is taken.
    """

    alive = False

    def __init__(self, number: int, resources: dict[str, float], timeout: int) -> None:
        super().__init__(number, timeout)
        self._resources, self._why = resources, ""

    def begin(self, start: Start) -> None:
        """Makes Ray start a process for it. The process then begins to build its parties."""
        self._actor: Any = ray.remote(Actor).options(**self._resources).remote()
        self.alive = True
        self._call("start", start)

    def ask(self, command: str, argument: str, message: Any = b"") -> None:
        """See `pool.Member.ask`; the message may be a reference of Ray's store."""
        if not self.alive:
            raise self.end()
        self._call(command, argument, *([message] if command == "deliver" else []))

    def ping(self) -> Any:
        """The reference of an answer that an idle actor gives at once."""
        self._call("process")
        return self.answer

    def _call(self, method: str, *arguments: Any) -> None:
        self._begins(method)
        self.answer: Any = getattr(self._actor, method).remote(*arguments)

    def take(self) -> Any:
        """See `pool.Member.take`."""
        left = None if self.until == math.inf else max(_ROUND_TRIP, self.until - time.monotonic())
        # Drop the reference to an answer that was taken: Ray keeps the answer as long as there is a reference.
        answer, self.answer = self.answer, None
        if self.over() and not ray.wait([answer], timeout=0, fetch_local=False)[0]:
            if self.command != "start":
                raise self.end(self._was_silent())
            after = f"did not start within {self._seconds('start'):g} seconds"
            raise SetupError(str(self.end(f"{after}; the cluster has no room for it, or is too slow")))
        try:
            return ray.get(answer, timeout=left)  # it may still have to arrive from another machine
        except GetTimeoutError:
            raise self.end(self._was_silent()) from None
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


def answering(members: Sequence[Member]) -> list[Member]:
    """Waits until some of these have answered, have ended, or have run out of time; returns them."""
    asked = {member.answer: member for member in members}
    everything = list(asked)
    left = min(member.until for member in members) - time.monotonic()
    # First take the answers that are there: time in which nobody looked does not count as silence.
    ready, _ = ray.wait(everything, num_returns=len(everything), timeout=0, fetch_local=False)
    if not ready:
        seconds = None if left == math.inf else max(0.0, left)
        ready, _ = ray.wait(everything, num_returns=1, timeout=seconds, fetch_local=False)
    return [asked[answer] for answer in ready] or [member for member in members if member.over()]


def find_dead(members: list[Member]) -> None:
    """Records which of these idle actors have ended since they were last asked. Silent ones do not count."""
    pings = {member.ping(): member for member in members}
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
