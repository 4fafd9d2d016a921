"""The simulated clock: the cost of an operation, and the time of a round on the devices of the profiles."""

from __future__ import annotations

import statistics
import time

import pytest
from clock_toys import device, profiles
from fedplug.api.parties import Client
from fedplug_sensecrypt.devices import UNLIMITED, by_party
from fedplug_sensecrypt.simulated_clock import (
    MEASURED,
    OTHER,
    Party,
    round_seconds,
    unit_costs,
    without_left_out,
)
from hypothesis import given
from hypothesis import strategies as st

# -- a round -----------------------------------------------------------------------------------------------------------


def test_a_round_worked_out_by_hand() -> None:
    """Client 0: (100 x 10 ms + 20 x 50 ms) / 4 CPUs = 0.5 s, 3 MB + 1 MB at 8 MB/s = 0.5 s. Client 1: 0.3 s + 0.2 s."""
    found = round_seconds(
        operations={
            0: {"train": 100, "encrypt": 20}, 1: {"train": 60},
            "server": {"add": 10, MEASURED: 0.3}, "key_server": {"decrypt": 4},
        },
        traffic={0: (3e6, 1e6), 1: (1e6, 1e6), "server": (4e6, 2e6), "key_server": (1e6, 0)},
        profiles=profiles({0: device(4, 8), 1: device(2, 10)}, server=device(2, 60), key_server=UNLIMITED),
        costs={"train": 0.01, "encrypt": 0.05, "add": 0.07, "decrypt": 0.1},
    )  # fmt: skip
    assert (found.clients[0].compute, found.clients[0].transfer) == pytest.approx((0.5, 0.5))
    assert (found.clients[1].compute, found.clients[1].transfer) == pytest.approx((0.3, 0.2))
    assert found.slowest == 0
    assert (found.server.compute, found.server.transfer) == pytest.approx((0.5, 0.1))  # (0.7 + 0.3) / 2, 6 MB
    assert (found.key_server.compute, found.key_server.transfer) == pytest.approx((0.4, 0))
    assert found.seconds == pytest.approx(1.0 + 0.6 + 0.4)
    row = found.to_row()
    assert row.clients == pytest.approx({0: 1.0, 1: 0.5})
    assert (row.compute, row.transfer) == pytest.approx((0.5, 0.5))


def test_the_slower_client_dominates() -> None:
    work: dict[Party, dict[str, float]] = {0: {"encrypt": 100}, 1: {"encrypt": 100}, 2: {"encrypt": 100}}
    devices = {0: device(8), 1: device(1), 2: device(4)}
    found = round_seconds(work, {}, profiles(devices), {"encrypt": 0.02})
    assert found.slowest == 1
    assert found.seconds == found.clients[1].total == pytest.approx(2.0)
    # A tenth of the work for the slow client, as with a budget: now the round waits for the next one.
    eased = round_seconds({**work, 1: {"encrypt": 10}}, {}, profiles(devices), {"encrypt": 0.02})
    assert eased.slowest == 2
    assert eased.seconds == pytest.approx(0.5)


def test_equal_profiles_and_work_give_equal_times_and_the_first_client() -> None:
    work: dict[Party, dict[str, float]] = {client_id: {"train": 7} for client_id in (5, 3, 4)}
    sent: dict[Party, tuple[float, float]] = dict.fromkeys(work, (10.0, 20.0))
    found = round_seconds(work, sent, profiles(dict.fromkeys((3, 4, 5), device(2, 1))), {"train": 1.0})
    assert {one.total for one in found.clients.values()} == {3.5 + 30 / 1e6}
    assert found.slowest == 3


def test_a_round_without_clients_takes_the_servers_time_only() -> None:
    found = round_seconds({"server": {MEASURED: 2.0}}, {}, by_party([]), {})
    assert (found.slowest, found.seconds) == (None, 2.0)
    assert found.to_row().clients == {}


@given(
    counts=st.lists(st.integers(0, 10**6), min_size=1, max_size=6),
    cost=st.floats(1e-6, 10),
    cpus=st.floats(0.1, 128),
    factor=st.integers(1, 64),
)
def test_more_cpus_divide_the_compute_time(counts: list[int], cost: float, cpus: float, factor: int) -> None:
    work: dict[Party, dict[str, float]] = {c: {"encrypt": count} for c, count in enumerate(counts)}
    sent: dict[Party, tuple[float, float]] = {c: (count, 2 * count) for c, count in enumerate(counts)}
    few, many = (
        round_seconds(work, sent, profiles(dict.fromkeys(range(len(counts)), device(n, 10))), {"encrypt": cost})
        for n in (cpus, cpus * factor)
    )
    for client_id, one in few.clients.items():
        assert one.compute == pytest.approx(factor * many.clients[client_id].compute)
        assert one.transfer == many.clients[client_id].transfer == pytest.approx(3 * counts[client_id] / 1e7)
        assert few.seconds >= one.total


def test_what_cannot_be_priced_is_refused() -> None:
    with pytest.raises(ValueError, match="'encrypt' of party 0 has no cost; costs are \\['train'\\]"):
        round_seconds({0: {"encrypt": 1}}, {}, profiles({0: device(1)}), {"train": 1})
    with pytest.raises(ValueError, match="party 7 has no profile; there are profiles of"):
        round_seconds({}, {7: (1, 1)}, by_party([]), {})


def test_what_no_sum_holds_is_priced_by_its_encryptions() -> None:
    """4 and 10 ciphertexts of 0.5 s on one CPU. Half of all are in vain: 2.5 s of the slower client's 7."""
    seal = "toy.seal.encrypt"
    operations: dict[Party, dict[str, float]] = {0: {seal: 4.0}, 1: {seal: 10.0, OTHER: 1.0}}
    useful = without_left_out(operations, {seal: {0: 0.5, 1: 0.5, 9: 1.0}})
    assert useful == {0: {seal: 2.0}, 1: {seal: 5.0, OTHER: 1.0}}
    assert operations[1][seal] == 10.0
    costs, devices = {seal: 0.5, OTHER: 2.0}, profiles({0: device(1), 1: device(1)})
    seconds = [round_seconds(each, {}, devices, costs).seconds for each in (operations, useful)]
    assert seconds == pytest.approx([7.0, 4.5])


# -- what an operation costs -------------------------------------------------------------------------------------------


def test_costs_worked_out_by_hand() -> None:
    """Ratios 1, 2 and 9 with weights 1, 2 and 1: half of the weight is reached within the second."""
    assert unit_costs({"a": [(1, 1), (2, 4), (1, 9)], "b": [(4, 2)]}) == {"a": 2, "b": 0.5}
    assert unit_costs({"a": [(1, 1), (1, 3)]}) == {"a": 2}  # exactly half: midway
    assert unit_costs({"a": [(0, 5), (2, 2)], "never": [(0, 5)], "none": []}) == {"a": 1}


def test_what_one_party_pays_once_does_not_change_the_cost() -> None:
    warm = [(100, 1.0)] * 9
    assert unit_costs({"encrypt": [(100, 60.0), *warm]}) == unit_costs({"encrypt": warm}) == {"encrypt": 0.01}


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 10**6)), min_size=1, max_size=12))
def test_the_cost_is_the_median_over_single_operations(pairs: list[tuple[int, int]]) -> None:
    """A weighted median of ratios is the plain median if each operation of a sample took the same time."""
    single = [seconds / count for count, seconds in pairs for _ in range(count)]
    assert unit_costs({"a": pairs})["a"] == pytest.approx(statistics.median(single))


def test_an_operation_inside_another_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    party, now = Client(), iter([0.0, 1.0, 5.0, 7.0, 8.0, 8.5])
    with monkeypatch.context() as patch:
        patch.setattr(time, "perf_counter", lambda: next(now))
        with party.operation("outer", 2):
            with party.operation("inner", 3):
                pass
            with pytest.raises(KeyError), party.operation("inner", 4):
                raise KeyError
    assert party.operations == {"inner": [7, 5.0], "outer": [2, 3.5]}
