"""The parties as a process holds them: with their timings and reports, and with a model that clients share."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedplug.api import codec
from fedplug.api.blocks import Plan, unchangeable
from fedplug.api.data import Model
from fedplug.api.errors import OpenedBefore, PluginError, ProtectionError, describe
from fedplug.api.links import ballots_of
from fedplug.api.parties import Client, KeyServer, Server
from fedplug.api.reports import Reports
from fedplug.mechanisms.execution import release
from fedplug.recipe.catalog import service


class Host(Protocol):
    """What clients of one process have in common.

    Attributes:
        model, model_user: the one model, and the client that it is loaded for.
        buffers: batch-norm statistics of the initial model.
        counts: whether clients report their operations.
    """

    model: Model
    model_user: HostedClient | None
    buffers: dict[str, NDArray[Any]]
    counts: bool

    def model_for(self, client: HostedClient) -> Model:
        """The one model, for a client to fill in with its own state."""

    def shared(self, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        """The array with these values that clients here hold, or this one."""

    def hear(self, client: HostedClient, name: str, values: Mapping[str, Any]) -> None:
        """A client was told what a component publishes."""


class Looks(Protocol):
    """What looks for a client's plain values in its messages."""

    def hold(
        self, round: int, update: NDArray[np.float32], zones: Mapping[str, NDArray[np.integer]],
        between: Mapping[str, Sequence[NDArray[np.float32]]],
    ) -> None:  # fmt: skip
        """Takes the plain values of a round, by zone the positions of those that it protects, and what they were
        between links.
        """

    def look(self, round: int, data: bytes) -> dict[str, Any]:
        """Looks through a message that is about to leave; gives what there is to say since the last time."""


class HostedClient(Client):
    """A client with its timings, and with the model that it shares with the other clients of its process.

    Attributes:
        trained: float32 (P,), the update as training made it, which is what is protected; nobody can change it.
        tells_classes: whether the server may be told how many examples of each class it has.
        comparison: of its messages with its plain values; None where the run is not recorded.
    """

    def __init__(self, client_id: int, host: Host) -> None:
        super().__init__(client_id=client_id)
        self._host = host
        self.reports = Reports()
        self.trained: NDArray[np.float32] | None = None
        self.previous_plan: Plan | None = None
        self.tells_classes = False
        self.comparison: Looks | None = None
        self._released: NDArray[np.float32] | None = None
        self._balloted: set[tuple[int, str]] = set()  # rounds and components

    @property
    def model(self) -> Model:
        """The process' one model, loaded with this client's local state if another client used it last."""
        return self._host.model if self._host.model_user is self else self.loaded(self.local)

    @model.setter
    def model(self, model: Any) -> None:
        """The dataclass assigns its default here; the host owns the model."""

    def loaded(self, vector: NDArray[np.float32]) -> Model:
        """The process' one model, with this vector and this client's batch-norm statistics."""
        model = self._host.model_for(self)
        model.set_vector(vector)
        model.set_buffers(self.remembered.buffers)
        return model

    def without_past(self) -> HostedClient:
        """The same client for training that reads no private data: with no examples nor their number, no personal
        model, and only what such training remembers.
        """
        other = self.without_examples()
        other.personal, other.update, other.cache, other._examples = None, None, {}, None
        other.remembered = dataclasses.replace(
            self.remembered, retained=None, buffers=self._host.buffers, weight=1.0, accounts={}
        )
        other.state = self.state.setdefault("without examples", {})
        return other

    def forget_model(self) -> None:
        """The global model changed: the process' model must be loaded again before this client uses it."""
        if self._host.model_user is self:
            self._host.model_user = None

    @contextlib.contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Adds the seconds of a phase to the next reply."""
        started = time.perf_counter() + self._saved
        try:
            yield
        finally:
            self.took(phase, time.perf_counter() + self._saved - started)

    def took(self, phase: str, seconds: float, spent: float | None = None) -> None:
        """Adds to the next reply what a phase takes one client.

        Args:
            phase: its name.
            seconds: that it takes a client alone.
            spent: seconds that were spent on it here and now; fewer where another client of this process has done it
                for both. None: just as many.
        """
        reports = self.reports
        reports.seconds[phase] = reports.seconds.get(phase, 0.0) + seconds
        if spent is not None:
            self.saved(seconds - spent)

    def saved(self, seconds: float) -> None:
        """Adds to the next reply what another client of this process has done for this one too."""
        super().saved(seconds)
        self.reports.seconds_total += seconds

    def collect_reports(self) -> Reports:
        reports, self.reports = self.reports, Reports()
        if self.figures and (drawn := service("drawn")):
            reports.pictures, reports.unpictured = drawn(self.figures)
        self.figures.clear()
        if self._host.counts:
            reports.operations = self.operations
        self.operations = {}
        return reports

    def release(self, component: Any, values: Any) -> NDArray[np.float32]:
        """See `Party.release`."""
        facts = self.facts
        if facts.round < 0:
            raise _no_ballot(component.name, "the set-up", "nobody pays")
        if facts.round != self.remembered.trained:
            raise _no_ballot(component.name, f"round {facts.round + 1}", "a client that has not trained in it pays not")
        if (facts.round, component.name) in self._balloted:
            raise _second_ballot(component.name, facts.round)
        given = release(component, ballots_of(component.name, facts), values, self, facts)
        self._released = unchangeable(given)  # what is answered must be what has the noise
        self._balloted = {(facts.round, component.name), *(last for last in self._balloted if last[0] == facts.round)}
        return self._released

    def has_released(self, answer: Any) -> bool:
        """Whether an answer is what was released last, and nothing else."""
        return answer is self._released

    def report_unopened(self, zone: str, error: Exception) -> None:
        """Adds to the next reply that a zone's sum does not open here, and why."""
        reports, round = self.reports, self.facts.round
        reports.unopened[zone] = f"cannot open zone {zone} in round {round + 1}: {describe(error)}"
        if isinstance(error, PluginError):
            reports.failed[zone] = str(error)
        if isinstance(error, OpenedBefore):
            reports.opened_before.setdefault(zone, []).append(round)

    def hear(self, name: str, values: Mapping[str, Any]) -> None:
        """Takes what a component publishes for a public fact."""
        self._host.hear(self, name, values)

    def take_vector(self, vector: NDArray[np.float32]) -> None:
        """Adopts a global model; clients of one process that hold equal models share one array."""
        self.vector, self.update = self._host.shared(vector), None

    def save(self, share: Callable[[NDArray[Any]], str]) -> bytes:
        """Everything this client needs after a restart; `share` stores an array that others may store too."""
        plan = self.plan and {
            "labels": share(self.plan.labels), "zones": list(self.plan.zones), "whole": self.plan.whole
        }  # fmt: skip
        personal = None if self.personal is None else share(self.personal)
        own = {"vector": share(self.vector), "personal": personal, "plan": plan}
        return codec.encode({**self.to_plain(), **own})

    def load(self, data: bytes, fetch: Callable[[str], NDArray[Any]]) -> None:
        saved = codec.decode_saved(data)
        self.restore(saved)
        plan = saved["plan"]
        self.take_vector(fetch(saved["vector"]))
        self.personal = None if saved["personal"] is None else fetch(saved["personal"])
        self.plan = plan and Plan(fetch(plan["labels"]), tuple(plan["zones"]), plan["whole"])
        self.scores, self.cache, self._balloted = {}, {}, set()


class HostedServer(Server):
    """The aggregation server of a run.

    Attributes:
        released: by round and component, the clients whose ballots are in a sum to which it has added noise.
        balloting: the clients that pay for ballots now.
    """

    def __init__(self) -> None:
        super().__init__()
        self.released: dict[tuple[int, str], set[int]] = {}
        self.balloting: frozenset[int] = frozenset()

    def release(self, component: Any, values: Any) -> NDArray[np.float32]:
        """See `Party.release`."""
        if not isinstance(values, Mapping):
            raise ProtectionError(f"component {component.name}: the server releases values by client, as a dict")
        round, clients = self.facts.round, {*values}
        if strange := clients - self.balloting:
            who = f"client {next(iter(strange))!r:.20} does not pay" if self.balloting else "nobody pays"
            raise _no_ballot(component.name, f"round {round + 1}" if round >= 0 else "the set-up", who)
        self.released = {place: whose for place, whose in self.released.items() if place[0] == round}
        before = self.released.setdefault((round, component.name), set())
        if before & clients:
            raise _second_ballot(component.name, round)
        released = release(component, ballots_of(component.name, self.facts), values, self, self.facts)
        before |= clients
        return released


class HostedKeyServer(KeyServer):
    """The key server, as a host runs it; `counts` says whether it reports its operations."""

    def __init__(self, counts: bool) -> None:
        super().__init__()
        self._counts = counts

    def collect_reports(self) -> Reports:
        operations, self.operations = self.operations, {}
        return Reports(operations=operations) if self._counts else Reports()


def _no_ballot(component: str, when: str, who: str) -> ProtectionError:
    return ProtectionError(
        f"component {component}: it releases ballots in {when}, where {who} for them; release those of the clients "
        "of a round, once, in form_groups, negotiate_mask or prepare"
    )


def _second_ballot(component: str, round: int) -> ProtectionError:
    return ProtectionError(
        f"component {component}: a second release of ballots in round {round + 1}, and a round is charged for one; put "
        "all values of a client into one array"
    )
