"""Layouts, plans and blocks keep themselves consistent."""

from __future__ import annotations

import numpy as np
import pytest
from fedplug.api.blocks import BASE_ZONES, CLEAR, ENCRYPTED, NOISED, RETAINED, Block, Layout, Parameter, Plan
from fedplug.api.facts import Facts
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp


def facts_of(size: int) -> Facts:
    layout = Layout.of([("w", (size,))]) if size else Layout(())
    return Facts(0, 1, layout, BASE_ZONES, 4, 2, 7, "")


LABELS = hnp.arrays(np.uint8, st.integers(0, 60), elements=st.integers(0, 3))


def test_a_layout_lays_shapes_end_to_end() -> None:
    layout = Layout.of([("fc1.weight", (3, 2)), ("fc1.bias", (3,)), ("scale", ()), ("bn.running.weight", (4,))])
    assert [p.slice for p in layout.parameters] == [slice(0, 6), slice(6, 9), slice(9, 10), slice(10, 14)]
    assert layout.size == 14
    assert layout.layers == ("fc1", "scale", "bn.running")
    assert layout.layer_slices() == {
        "fc1": [slice(0, 6), slice(6, 9)], "scale": [slice(9, 10)], "bn.running": [slice(10, 14)]
    }  # fmt: skip
    assert Layout(()).size == 0


def test_a_layout_with_a_gap_is_refused() -> None:
    with pytest.raises(ValueError, match="b starts at 5, expected 4"):
        Layout((Parameter("a", (4,), 0, "a"), Parameter("b", (2,), 5, "b")))


@given(LABELS)
def test_zones_are_disjoint_and_complete(labels: np.ndarray) -> None:
    plan = Plan(labels, BASE_ZONES)
    positions = [plan.positions(zone) for zone in BASE_ZONES]
    assert sorted(np.concatenate(positions).tolist()) == list(range(len(labels)))
    assert all((where[1:] > where[:-1]).all() and where.dtype == np.uint32 for where in positions)
    assert plan.sizes() == {zone: len(where) for zone, where in zip(BASE_ZONES, positions, strict=True)}


@given(st.sets(st.integers(0, 29)), st.sets(st.integers(0, 29)))
def test_a_plan_is_the_rest_with_zones_on_top(encrypted: set[int], retained: set[int]) -> None:
    mask = np.isin(np.arange(30), list(retained))
    where = np.array(sorted(encrypted), np.int64)
    plan = Plan.of(facts_of(30), NOISED, encrypted=where, retained=mask)
    assert set(plan.positions(RETAINED)) == retained
    assert set(plan.positions(ENCRYPTED)) == encrypted - retained  # later zones win
    assert plan.sizes()[CLEAR] == 0
    assert {zone: plan.may_hold(zone) for zone in BASE_ZONES} == {zone: n > 0 for zone, n in plan.sizes().items()}


def test_a_single_zone_holds_everything_before_a_model_is_known_too() -> None:
    for size in (5, 0):
        plan = Plan.single(NOISED, size, BASE_ZONES)
        assert plan.sizes() == {ENCRYPTED: 0, NOISED: size, RETAINED: 0, CLEAR: 0}
        assert [zone for zone in BASE_ZONES if plan.may_hold(zone)] == [NOISED]
    # Of another plan nobody knows before a model is known.
    assert all(Plan.of(facts_of(0), NOISED, encrypted=np.zeros(0, int)).may_hold(zone) for zone in BASE_ZONES)


def test_wrong_labels_are_refused() -> None:
    with pytest.raises(ValueError, match="label 4 refers to no zone"):
        Plan(np.array([0, 4], np.uint8), BASE_ZONES)
    for labels in (np.zeros(3, np.int64), np.zeros((2, 2), np.uint8)):
        with pytest.raises(ValueError, match=r"must be uint8\[P\]"):
            Plan(labels, BASE_ZONES)  # type: ignore[arg-type]
    said = r"zone 'nowhere' is none of encrypted, noised, retained, clear; .* facts\.zones"
    with pytest.raises(ValueError, match=said):
        Plan.of(facts_of(3), "nowhere")


def test_the_mean_divides_each_position_by_its_own_weight() -> None:
    total = np.array([3, 8, 0], np.float32)
    assert Block(CLEAR, 3, total, divisor=2.0).mean().tolist() == [1.5, 4, 0]
    block = Block(CLEAR, 3, total, divisor=np.array([3.0, 0.5, 0.0]))
    assert block.mean().tolist() == [1, 16, 0]  # no client contributed to the last
    assert block.mean().dtype == np.float32
    assert Block(CLEAR, 3, total).mean().tolist() == total.tolist()


def test_an_encrypted_block_shows_nothing() -> None:
    sealed = Block(ENCRYPTED, 3, ciphertexts=(b"?",), sealed_by="std.bfv")
    for read in (sealed.plain, sealed.mean):
        with pytest.raises(ValueError, match=r"encrypted by std\.bfv"):
            read()
