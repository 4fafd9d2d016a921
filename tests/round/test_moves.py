"""Moves: clients of a process are moved once, exactly as each would be alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fedplug.api import codec
from fedplug.api.blocks import Block, Plan
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.hosted import HostedClient
from fedplug.round.parties import ClientHost
from fedplug.round.steps import Moves, moved
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_components import recipe_of, toy_catalog

CATALOG = toy_catalog()
RECIPE = Recipe.from_plain(recipe_of(model={"use": "std.mlp", "hidden": [64]}), CATALOG)  # sums of over 4096 bytes
HOST = ClientHost(RECIPE, Composition(RECIPE), [0, 1, 2], None, "cpu")
SIZE = HOST.model.layout.size


def sums(seed: int, zones: list[str], scattered: bool) -> dict[str, Block]:
    """A sum for each zone, as a client reads it from a message."""
    rng = np.random.default_rng(seed)
    found = {}
    for zone in zones:
        where = np.sort(rng.permutation(SIZE)[: SIZE // 2]).astype(np.uint32) if scattered else None
        count = SIZE // 2 if scattered else SIZE
        values = rng.normal(size=count).astype(np.float32)
        values[0] = np.nan if seed % 3 == 0 else 1
        found[zone] = Block(zone, count, values, where, divisor=float(1 + seed % 4))
    return found


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 99), st.sampled_from([["clear"], ["clear", "noised"]]), st.booleans())
def test_clients_are_moved_as_each_alone(seed: int, zones: list[str], scattered: bool) -> None:
    """Bit for bit, and the same zones are unchanged. Clients that hold the same arrays get the same array."""
    moves, packed, vectors = Moves(), codec.pack(sums(seed, zones[: 1 + scattered], scattered)), []
    for client in HOST.clients.values():
        plan = None if scattered else Plan.single(zones[0], SIZE, client.facts.zones)
        opened = {zone: (plan, block) for zone, block in codec.decode(packed).items()}
        (vector, problems), move = moved(client, opened), moves.of(client, opened)
        np.testing.assert_array_equal(move.vector, vector)
        assert list(map(str, move.problems.values())) == list(map(str, problems.values()))
        assert move.problems.keys() == (opened.keys() if seed % 3 == 0 else set())
        vectors.append(move.vector)
    assert scattered or all(vector is vectors[0] for vector in vectors)


def client_and_values() -> tuple[HostedClient, Any]:
    return next(iter(HOST.clients.values())), np.ones(SIZE, np.float32)


def test_an_array_that_is_changed_in_place_moves_the_next_client_by_what_it_holds_then() -> None:
    """As from a component that opens every sum into one buffer, marked read-only or not."""
    client, values = client_and_values()
    plan, moves = Plan.single("clear", SIZE, client.facts.zones), Moves()
    shown = values.view()
    shown.flags.writeable = False
    for array in (values, shown):
        for number in (1.0, 2.0):
            values[:] = number
            move = moves.of(client, {"clear": (plan, Block("clear", SIZE, array))})
            np.testing.assert_array_equal(move.vector, client.vector + np.float32(number))


def test_equal_separate_arrays_are_moved_once_and_different_ones_are_not() -> None:
    """As where each client decrypts for itself."""
    client, values = client_and_values()
    plan, moves = Plan.single("clear", SIZE, client.facts.zones), Moves()
    given = [values, values.copy(), 0 * values, -0.0 * values]
    first, second, zeros, negative = (moves.of(client, {"clear": (plan, Block("clear", SIZE, one))}) for one in given)
    assert first is second
    assert zeros is not negative


def test_nobody_can_change_what_all_were_moved_to() -> None:
    client, values = client_and_values()
    move = Moves().of(client, {"clear": (Plan.single("clear", SIZE, client.facts.zones), Block("clear", SIZE, values))})
    before = client.vector
    client.take_vector(move.vector)
    assert client.vector is move.vector
    client.take_vector(before)
    for array in (move.vector, move.vector.base):
        if isinstance(array, np.ndarray):
            with pytest.raises(ValueError, match="WRITEABLE"):
                array.flags.writeable = True


def test_each_client_reports_the_seconds_that_a_move_takes() -> None:
    moves, packed, totals = Moves(), codec.pack(sums(1, ["clear"], False)), []
    for client in HOST.clients.values():
        client.collect_reports()
        plan = Plan.single("clear", SIZE, client.facts.zones)
        move = moves.of(client, {"clear": (plan, codec.decode(packed)["clear"])})
        reports = client.collect_reports()
        assert reports.seconds["open"] == move.seconds > 0
        totals.append(reports.seconds_total)
    assert totals == [0.0, move.seconds, move.seconds]  # work done for the others counts as theirs
