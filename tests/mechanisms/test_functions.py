"""Functions of plugins: what they are called with, and what they give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fedplug import (
    Block,
    Client,
    Facts,
    Look,
    Map,
    Noise,
    Post,
    Public,
    Scale,
    Shift,
)
from fedplug.api.errors import PluginError, ProtectionError
from fedplug.mechanisms.execution import execute
from operation_toys import (
    LAYOUT,
    SEAL,
    VALUES,
    Part,
    broken,
    context,
    done,
    party,
    steps,
)


def test_a_map_has_the_party_in_hand_and_of_a_block_its_values_are_taken() -> None:
    def own(block: Block, client: Client, facts: Facts) -> Any:
        assert (block.zone, facts.round, client.num_examples) == ("noised", 0, 3)
        return block.replace(values=block.plain() + client.client_id, meta={"told": 1.0}, divisor=9.0)

    who = party(2)
    part = Part(Map(own))
    facts = context(who, part)
    found = execute(steps(part, facts=facts)[0], Block("noised", 10, VALUES, divisor=0.5), who, facts)
    assert np.array_equal(found.plain(), VALUES + 2)
    assert (dict(found.meta), found.divisor) == ({}, 0.5)


def test_where_an_account_of_records_is_kept_a_function_has_no_examples_unless_it_asks() -> None:
    def counts(block: Block, client: Client, facts: Facts) -> Any:
        return block.plain() * np.float32(len(client.data.train))

    def scores(block: Block, client: Client, facts: Facts) -> Any:
        assert client.num_examples == 3  # which is public
        return block.plain() * np.float32(len(client.scores))

    who = party()
    who.scores = {"size": np.ones(10, np.float32)}
    for function, there in ((counts, 3), (scores, 1)):
        for records, examples, times in ((False, False, there), (True, False, 0), (True, True, there)):
            part = Part(Map(function, examples=examples))
            facts = context(who, part)
            (step,) = steps(part, facts=facts)
            found = execute(step, Block("noised", 10, VALUES), who, facts, records=records)
            assert np.array_equal(found.plain(), VALUES * times)
    assert who.data.train.labels.tolist() == [1, 2, 3]


def test_a_post_gets_values_public_facts_and_its_own_memory() -> None:
    def momentum(values: Any, public: Public) -> Any:
        before = public.memory.get("before", np.zeros_like(values))
        public.memory["before"] = values + np.float32(0.5) * before
        assert (public.zone, public.round, public.rounds, public.layout) == ("noised", 0, 5, LAYOUT)
        assert public.positions is not None
        assert np.array_equal(public.start, np.arange(10, dtype=np.float32))
        return public.memory["before"]

    who = party()
    assert np.array_equal(done(Post(momentum), who=who), VALUES)
    assert np.array_equal(done(Post(momentum), who=who), VALUES * np.float32(1.5))
    assert np.array_equal(done(Post(momentum), who=party(1)), VALUES)
    draws = [done(Post(lambda values, public: public.stream.random(10))) for _ in range(2)]
    assert np.array_equal(*draws)


def test_a_look_sees_the_values_and_changes_nothing() -> None:
    seen: list[Any] = []

    def look(block: Block, client: Client, facts: Facts) -> None:
        seen.append((block.plain().copy(), client.client_id))
        with pytest.raises(ValueError, match="read-only"):
            block.plain()[0] = 99.0

    assert np.array_equal(done(Look(look), Scale(2.0)), VALUES * 2)
    ((values, client_id),) = seen
    assert np.array_equal(values, VALUES)
    assert client_id == 0
    sealed = done(SEAL, Look(lambda *_: None))
    assert sealed.sealed_by == "odd"


WRONG: dict[str, tuple[Any, str]] = {
    "short": (VALUES[:4], r"it gave float32\[4\]; its function must give floats \[10\]"),
    "a column": (VALUES[:, None], r"it gave float32\[10, 1\]; its"),
    "whole numbers": (VALUES.astype(np.int64), r"it gave int64\[10\]; its"),
    "a list": (VALUES.tolist(), "it gave list; its"),
    "nothing": (None, "it gave NoneType; its"),
    "no numbers": (VALUES * np.float32(np.nan), "it made 10 finite values of 10 NaN or infinite, which cannot be used"),
    "too large": (np.full(10, 1e300), "it made 10 finite values of 10 NaN or infinite"),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("Map", lambda given: Map(lambda block, client, facts: given)),
        ("Post", lambda given: Post(lambda values, public: given)),
        ("Shift", lambda given: Shift(lambda public: given)),
        ("Noise", lambda given: Noise.own("odd", lambda v, p, s: given, multiplier=1.0, source="secure", order=2)),
    ],
)  # fmt: skip
def test_what_a_function_must_not_give_names_component_hook_zone_and_operation(
    kind: str, make: Callable[[Any], Any], case: str
) -> None:
    given, said = WRONG[case]
    with pytest.raises(ProtectionError, match=f"^component odd, hook protect, zone noised, {kind}: {said}"):
        done(make(given))


def test_values_that_diverged_before_are_not_laid_at_a_functions_door() -> None:
    diverged = VALUES * np.float32(np.nan)
    assert np.isnan(done(Map(lambda block, client, facts: block), values=diverged)).all()


def leaves(*_: Any) -> Any:
    raise SystemExit(3)


@pytest.mark.parametrize(
    "operation", [Map(broken), Post(broken), Look(broken), Shift(broken),
                  Noise.own("odd", broken, multiplier=1.0, source="secure", order=2)],
    ids=lambda operation: type(operation).__name__,
)  # fmt: skip
def test_a_function_that_fails_names_component_hook_zone_and_operation(operation: Any) -> None:
    kind = type(operation).__name__
    said = rf"^component odd, hook protect, zone noised, {kind}: KeyError: 'nowhere' \(operation_toys\.py:\d+\)$"
    with pytest.raises(PluginError, match=said):
        done(operation)
    with pytest.raises(PluginError, match=r"Map: SystemExit: 3 \(test_functions"):
        done(Map(leaves))


def test_an_error_of_fedplugs_own_says_what_it_says() -> None:
    def refuses(*_: Any) -> Any:
        raise ProtectionError("not with these values; take others")

    with pytest.raises(ProtectionError, match=r"^not with these values; take others$"):
        done(Map(refuses))




