"""A client and the key server as a host runs them: with timings, reports, and a model shared within the process."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedplug.api import codec
from fedplug.api.context import Client, KeyServer, Server
from fedplug.api.errors import OpenedBefore, PluginError, describe
from fedplug.api.handed import NotHanded
from fedplug.api.reports import Reports, drawn
from fedplug.api.types import Plan
from fedplug.mechanisms.execution import release

if TYPE_CHECKING:
    from fedplug.api.model import Model
    from fedplug.round.parties import ClientHost


class HostedClient(Client):
    """A client with its timings, and with the model that it shares with the other clients of its process.

    Attributes:
        tells_classes: whether the server may be told how many examples of each class it has.
    """

    def __init__(self, client_id: int, host: ClientHost) -> None:
        super().__init__(client_id=client_id)
        self._host = host
        self.reports = Reports()
        self.previous_plan: Plan | None = None
        self.tells_classes = False
        self._released: NDArray[np.float32] | None = None

    @property
    def model(self) -> Model:
        """The process' one model, loaded with this client's local state if another client used it last."""
        update: Any = self.update
        if isinstance(update, NotHanded):  # the local model follows from it
            update.refuse()
        return self._host.model if self._host.model_user is self else self.loaded(self.local)

    @model.setter
    def model(self, model: Any) -> None:
        """The dataclass assigns its default here; the host owns the model."""

    def loaded(self, vector: NDArray[np.float32]) -> Model:
        """The process' one model, with this vector and this client's batch-norm statistics."""
        model = self._host.model
        self._host.model_user = self
        model.set_vector(vector)
        model.set_buffers(self.remembered.buffers)
        return model

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
        reports.pictures, reports.unpictured = drawn(self.figures)
        if self._host.counts:
            reports.operations = self.operations
        self.operations = {}
        return reports

    def release(self, component: Any, what: str, values: Any) -> NDArray[np.float32]:
        """See `Party.release`."""
        ballots = component.ballots(self.ctx.round, self.ctx)
        self._released = release(component, ballots, what, values, self, self.ctx)
        return self._released

    def has_released(self, answer: Any) -> bool:
        """Whether an answer is what was released last, and nothing else."""
        return answer is self._released

    def report_unopened(self, zone: str, error: Exception) -> None:
        """Adds to the next reply that a zone's sum does not open here, and why."""
        reports, round = self.reports, self.ctx.round
        reports.unopened[zone] = f"cannot open zone {zone} in round {round + 1}: {describe(error)}"
        if isinstance(error, PluginError):
            reports.failed[zone] = str(error)
        if isinstance(error, OpenedBefore):
            reports.opened_before.setdefault(zone, []).append(round)

    def take_vector(self, vector: NDArray[np.float32]) -> None:
        """Adopts a global model; clients of one process that hold equal models share one array."""
        self.vector, self.update = self._host.shared(vector), None

    def save(self, share: Callable[[NDArray[Any]], str]) -> bytes:
        """Everything this client needs to go on after a restart; `share` stores an array that others may store too."""
        plan = self.plan and {
            "labels": share(self.plan.labels), "zones": list(self.plan.zones), "shared": sorted(self.plan.shared)
        }  # fmt: skip
        personal = None if self.personal is None else share(self.personal)
        own = {"vector": share(self.vector), "personal": personal, "plan": plan}
        return codec.encode({**self.to_plain(), **own})

    def load(self, data: bytes, fetch: Callable[[str], NDArray[Any]]) -> None:
        saved = codec.decode(data)
        self.restore(saved)
        plan = saved["plan"]
        self.take_vector(fetch(saved["vector"]))
        self.personal = None if saved["personal"] is None else fetch(saved["personal"])
        self.plan = plan and Plan(fetch(plan["labels"]), tuple(plan["zones"]), frozenset(plan["shared"]))
        self.scores, self.cache = {}, {}


class HostedServer(Server):
    """The aggregation server of a run.

    Attributes:
        released: rounds and components whose ballots it has added noise to.
    """

    def __init__(self) -> None:
        super().__init__()
        self.released: set[tuple[int, str]] = set()

    def release(self, component: Any, what: str, values: Any) -> NDArray[np.float32]:
        """See `Party.release`."""
        self.released = {(round, name) for round, name in self.released if round == self.ctx.round}
        self.released.add((self.ctx.round, component.name))
        return release(component, component.ballots(self.ctx.round, self.ctx), what, values, self, self.ctx)


class HostedKeyServer(KeyServer):
    """The key server, as a host runs it; `counts` says whether it reports its operations."""

    def __init__(self, counts: bool) -> None:
        super().__init__()
        self._counts = counts

    def collect_reports(self) -> Reports:
        operations, self.operations = self.operations, {}
        return Reports(operations=operations) if self._counts else Reports()
