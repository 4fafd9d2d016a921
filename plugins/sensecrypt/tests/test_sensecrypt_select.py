"""The negotiation: budgets go out, each client chooses for itself, and recipes that cannot work are refused."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import FixedPoint, Layout, Plan, Plans, Reads, Reveals, Seal, Server
from fedplug.api.blocks import BASE_ZONES
from fedplug.api.errors import ProtectionError
from fedplug_kit.static import check_component
from fedplug_sensecrypt.devices import Profile
from fedplug_sensecrypt.profiles import ProfileSection
from fedplug_sensecrypt.select import Select, device_problem
from pydantic import ValidationError

LAYOUT = Layout.of([("w", (10,))])
BANDWIDTH, CPUS = [50, 45, 40, 35, 30], [24, 16, 12, 10, 8]


@dataclasses.dataclass
class FakeClient:
    """The parts of a client that the component needs."""

    scores_by = fedplug.Client.scores_by

    client_id: int
    scores: dict[str, np.ndarray]
    local: np.ndarray
    said: dict[str, Any] = dataclasses.field(default_factory=dict)
    plan: Plan | None = None
    log: dict[str, float] = dataclasses.field(default_factory=dict)
    facts: Any = dataclasses.field(default_factory=lambda: SimpleNamespace(layout=LAYOUT, zones=BASE_ZONES, round=0))

    @contextlib.contextmanager
    def operation(self, name: str, count: float) -> Iterator[None]:
        yield


class FakeCohort:
    """Runs asks and tells at once."""

    def __init__(self, clients: list[FakeClient], groups: dict[str, list[int]] | None = None) -> None:
        self.clients, self.server, self.dropped = {c.client_id: c for c in clients}, Server(), {}  # type: ignore[var-annotated]
        self.groups = groups or {"all": list(self.clients)}
        self.told: dict[int, Any] = {}

    @property
    def client_ids(self) -> list[int]:
        return sorted(self.clients)

    def only(self, ids: Iterable[int]) -> FakeCohort:
        part = FakeCohort([self.clients[k] for k in ids], self.groups)
        part.server, part.told, part.dropped = self.server, self.told, self.dropped
        return part

    def ask(self, method: Any, *payload: Any) -> dict[int, Any]:
        return {k: method(client, *payload) for k, client in self.clients.items()}

    def tell_now(self, method: Any, *payload: Any) -> None:
        for k, client in self.clients.items():
            self.told[k] = payload
            method(client, *payload)

    def drop(self, client_id: int, reason: str) -> None:
        self.dropped[client_id] = reason


def clients_of(count: int, seed: int = 0) -> list[FakeClient]:
    """Clients with the paper's devices, five by five."""
    rng = np.random.default_rng(seed)
    return [
        FakeClient(
            k, {"s": rng.random(10).astype(np.float32) ** 4}, rng.standard_normal(10).astype(np.float32),
            {"profiles": Profile(of=(k,), cpus=CPUS[k % 5], bandwidth=BANDWIDTH[k % 5])},
        )
        for k in range(count)
    ]  # fmt: skip


def negotiated(cohort: FakeCohort, **options: Any) -> tuple[Select, dict[str, float]]:
    """Runs set-up and one negotiation for each group."""
    component = Select(Select.Options(**options))
    component.name = "sensecrypt.select"
    facts = SimpleNamespace(round=0)
    component.setup(cohort, None, facts)  # type: ignore[arg-type]
    for ids in cohort.groups.values():
        component.negotiate_mask(cohort.only(ids), facts)  # type: ignore[arg-type]
    return component, cohort.server.log


def test_conforms() -> None:
    check_component("sensecrypt.select")
    check_component("sensecrypt.sensitivity")


def test_budgets_reach_the_clients() -> None:
    """Sec. 3.2 with the devices of Sec. 4.1, and the floor of Eq. 7 for each client in the log."""
    cohort = FakeCohort(clients_of(5))
    component, log = negotiated(cohort, B=1.3, C=0.7)
    assert component.plans.own == {"encrypted", "clear"}  # masks differ between clients
    np.testing.assert_allclose([cohort.told[k][0] for k in range(5)], [1, 2 / 3, 0.5, 10 / 24, 1 / 3])
    floors = [log[f"sensecrypt.select.security_level.client_{k}"] for k in range(5)]
    np.testing.assert_allclose(floors, 1 - 0.7 * np.exp(-1.3 * np.array([1, 2 / 3, 0.5, 10 / 24, 1 / 3])))
    for k, client in cohort.clients.items():
        assert client.plan is not None
        assert client.plan.sizes()["encrypted"] <= np.floor(cohort.told[k][0] * 10)
        assert client.plan.sizes()["encrypted"] + client.plan.sizes()["clear"] == 10
        assert client.log["sensecrypt.select.alpha"] == pytest.approx(cohort.told[k][0])
        assert 0 <= client.log["sensecrypt.select.sensitivity_covered"] <= 1
        assert client.log["sensecrypt.select.mutual_information"] >= 0


def test_budgets_are_relative_to_the_group() -> None:
    """Sec. 3.2: over the cluster; Alg. 3 (as published): over all clients."""
    groups = {"fast": [0, 1, 2], "slow": [3, 4]}
    cohort = FakeCohort(clients_of(5), groups)
    negotiated(cohort)
    assert [cohort.told[k][0] for k in (0, 3)] == [1, 1]
    assert cohort.told[4][0] == pytest.approx(min(30 / 35, 8 / 10))
    cohort = FakeCohort(clients_of(5), groups)
    negotiated(cohort, global_budget=True)
    np.testing.assert_allclose([cohort.told[k][0] for k in (0, 3, 4)], [1, 10 / 24, 1 / 3])


def test_absent_members_count_for_the_budgets() -> None:
    """A client that is not in this round still belongs to its cluster."""
    cohort = FakeCohort(clients_of(5))
    component, _ = negotiated(cohort)
    present = cohort.only([1, 4])
    component.negotiate_mask(present, SimpleNamespace(round=1))  # type: ignore[arg-type]
    assert cohort.told[1][0] == pytest.approx(2 / 3)


def test_one_budget_for_all_needs_no_profiles() -> None:
    clients = clients_of(3)
    for client in clients:
        client.said = {}
    cohort = FakeCohort(clients)
    _, log = negotiated(cohort, budget=0.3, C=0, B=0)
    assert {cohort.told[k][0] for k in range(3)} == {0.3}
    assert all(client.plan and client.plan.sizes()["encrypted"] == 3 for client in clients)
    assert all(client.log["sensecrypt.select.security_constraint_violated"] == 1 for client in clients)
    assert "devices" not in cohort.server.memory(SimpleNamespace(name="sensecrypt.select"))
    assert log["sensecrypt.select.security_level.client_0"] == 1


def test_a_client_without_a_profile_says_so() -> None:
    client = clients_of(1)[0]
    client.said = {}
    component = Select(Select.Options())
    with pytest.raises(ProtectionError, match="client 0 has no profile; add it to profiles, or set budget"):
        component.device(client)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "device", [None, [1.0], [1.0, 0], [1.0, float("nan")], [True, 2], ["50", 2], [1.0, -3.0], [10**400, 2]]
)
def test_devices_that_cannot_be_are_refused(device: Any) -> None:
    assert "finite and > 0" in device_problem(device)
    assert device_problem([50.0, 8]) == ""


def test_a_client_with_such_a_device_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    cohort = FakeCohort(clients_of(3))
    component = Select(Select.Options())
    component.name = "sensecrypt.select"
    monkeypatch.setattr(cohort, "ask", lambda method: {0: [50, 8], 1: [0, 8], 2: [40, 4]})
    component.setup(cohort, None, SimpleNamespace())  # type: ignore[arg-type]
    assert list(cohort.dropped) == [1]
    assert cohort.server.memory(component)["devices"] == {0: [50, 8], 2: [40, 4]}


def test_scores_of_layers_are_refused() -> None:
    client = FakeClient(0, {"layers": np.ones(1, np.float32)}, np.zeros(10, np.float32))
    component = Select(Select.Options())
    component.name = "sensecrypt.select"
    with pytest.raises(ProtectionError, match="1 sensitivities for 10 scalars"):
        component.choose(client, 0.5)  # type: ignore[arg-type]


def test_masks_can_be_empty_all_ones_and_disjoint() -> None:
    component = Select(Select.Options(B=0, C=1))
    component.name = "sensecrypt.select"
    flat = FakeClient(0, {"s": np.ones(10, np.float32)}, np.ones(10, np.float32))
    component.choose(flat, 1.0)  # type: ignore[arg-type]
    assert flat.plan is not None
    assert flat.plan.sizes()["encrypted"] == 0  # level 0, and no scalar exceeds the price of 1/N
    everything = Select(Select.Options(B=0, C=0))
    everything.name = "sensecrypt.select"
    everything.choose(flat, 1.0)  # type: ignore[arg-type]
    assert flat.plan.sizes()["encrypted"] == 10
    halves = []
    for part in (slice(0, 5), slice(5, 10)):
        gamma = np.zeros(10, np.float32)
        gamma[part] = 1
        client = FakeClient(1, {"s": gamma}, np.ones(10, np.float32))
        component.choose(client, 1.0)  # type: ignore[arg-type]
        assert client.plan is not None
        halves.append(set(client.plan.positions("encrypted").tolist()))
    assert halves == [set(range(5)), set(range(5, 10))]


def shown(position_block: int, **options: Any) -> dict[str, Reveals]:
    """The visible quantities where that many scalars share a ciphertext."""
    seal = Seal(scheme="a test", opened_by="key_server", numbers=FixedPoint(1.0, 0.1), position_block=position_block)
    step = SimpleNamespace(operations=(seal,), link=SimpleNamespace(name="seal"))
    facts: Any = SimpleNamespace(steps=lambda zone: (step,))
    return {channel.what: channel for channel in Select(Select.Options(**options)).reveals(facts)}


def test_what_is_visible() -> None:
    channels = shown(4096)
    assert channels["masks"].to == ("server",)
    assert channels["masks"].covered_by is None
    assert channels["bandwidth and CPUs"].asked == ("device",)
    assert len(shown(4096, budget=0.5)) == 2
    assert (channels["masks"].voids, shown(1)["masks"].voids) == (False, True)  # of single scalars: they tell classes


def test_what_it_plans_and_reads() -> None:
    component = Select(Select.Options(by="s", other_zone="noised"))
    assert component.plans == Plans(zones=frozenset({"encrypted", "noised"}), own=frozenset({"encrypted", "noised"}))
    assert component.reads == Reads(by="s", per="scalar")


def recipe(**changes: Any) -> Any:
    profiles = ProfileSection("profiles", items=(Profile(of=(0, 1, "server"), cpus=8, bandwidth=30),))
    plain = {"score_parameters": [SimpleNamespace(name="s")], "clients": 2, "sections": {"profiles": profiles}}
    return SimpleNamespace(**{**plain, **changes})


def test_recipes_that_cannot_work_are_refused() -> None:
    def problems(options: dict[str, Any] | None = None, **changes: Any) -> list[str]:
        return Select(Select.Options(**(options or {}))).check(recipe(**changes))

    assert problems() == []
    assert problems({"budget": 0.5}, sections={}) == []
    assert "add profiles" in problems(sections={})[0]
    assert "or set budget for all" in problems(sections={})[0]
    assert "add score_parameters" in problems(score_parameters=[])[0]
    assert "'x' is not a scorer" in problems({"by": "x"})[0]
    assert "leave one out" in problems({"budget": 0.5, "global_budget": True})[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 0}, "greater than 0"),
        ({"budget": 1.1}, "less than or equal to 1"),
        ({"C": 1.5}, "less than or equal to 1"),
        ({"B": -1}, "greater than or equal to 0"),
        ({"beta1": 0}, "greater than 0"),
        ({"objectives": "scaled"}, "'normalised' or 'raw'"),
        ({"other_zone": "encrypted"}, "other_zone=encrypted must be a zone that is sent and not encrypted"),
    ],
)
def test_options_have_bounds(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Select.Options(**options)
