"""The effect of each operation on values, against plain numpy, and the arguments of its functions."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import (
    Block,
    Client,
    ClientData,
    Clip,
    Combine,
    Examples,
    Facts,
    FixedPoint,
    Layout,
    Look,
    Map,
    Misplaced,
    Noise,
    Open,
    Opened,
    Operations,
    Plan,
    Post,
    Public,
    Rotate,
    Round,
    Scale,
    Seal,
    Sealed,
    Shift,
    Total,
    WeightedSum,
    Widen,
    Words,
)
from fedplug.api.errors import PluginError, ProtectionError
from fedplug.api.grids import finest
from fedplug.api.links import Hook, Link, Step, fold
from fedplug.api.parties import Server
from fedplug.api.roles import Site
from fedplug.mechanisms.execution import add_up, execute, release
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

LAYOUT = Layout.of([("a.w", (6,)), ("b.w", (4,))])
ZONES = ("encrypted", "noised", "clear", "retained")
VALUES = np.array([3, 0, 4, 0, 0, 0, 0, 0, 0, 12], np.float32)
FLOATS = arrays(np.float32, 10, elements=st.floats(-1e6, 1e6, width=32))
ADD = WeightedSum()


class Part(fedplug.Sealer):
    """Returns the operations that it was made with. Seals words as their bytes."""

    def __init__(self, *given: Any, name: str = "odd") -> None:
        self.name, self.given = name, given

    def protect(self, known: Any, facts: Facts) -> Operations:
        return self.given

    aggregate = postprocess = protect

    def reveals(self, facts: Facts) -> tuple[()]:
        return ()

    def seal(self, words: Words, client: Client, facts: Facts) -> Sealed:
        return Sealed((words.values.tobytes(),))

    def add(self, uploads: Sequence[Total], server: Any, facts: Facts) -> tuple[bytes, ...]:
        return (np.sum([np.frombuffer(each.parts[0], np.int64) for each in uploads], 0).tobytes(),)

    def open(self, total: Total, party: Any, facts: Facts) -> Opened:
        return Opened(np.frombuffer(total.parts[0], np.int64))


def party(client_id: int = 0, plan: Plan | None = None) -> Client:
    """A client whose whole model is noised."""
    client = Client(client_id=client_id, plan=plan or Plan.single("noised", 10, ZONES))
    client.vector = np.arange(10, dtype=np.float32)
    client.weight = 0.5
    examples = Examples(np.zeros((3, 1, 1, 1), np.uint8), np.array([1, 2, 3]))
    client.data = ClientData(examples, examples, examples, classes=("0", "1"), mean=(0.0,), std=(1.0,))
    return client


def context(who: Any, *parts: Part, round: int = 0) -> Facts:
    components = {part.name: part for part in parts}
    who.facts = Facts(round, 5, LAYOUT, ZONES, 4, 2, 7, "", components)
    return who.facts  # type: ignore[no-any-return]


def steps(*parts: Part, hook: Hook = "protect", site: Site = "client", facts: Facts | None = None) -> list[Step]:
    """The links of a zone; for a sum, after a plain link."""
    before = [] if hook == "protect" else [Link("noised", "aggregate", "sum", Part(ADD, name="sum"), "server")]
    links = [*before, *(Link("noised", hook, part.name, part, site) for part in parts)]
    return list(fold(links, facts or context(Server())))[len(before) :]


def done(*operations: Any, values: Any = VALUES, who: Client | None = None, round: int = 0, **block: Any) -> Any:
    """The result of a client's link on values."""
    who = who or party()
    part = Part(*operations)
    facts = context(who, part, round=round)
    values = np.asarray(values, np.float32)
    before = values.copy()
    (step,) = steps(part, facts=facts)
    found = execute(step, Block("noised", len(values), values, **block), who, facts)
    assert np.array_equal(values, before, equal_nan=True)  # its input is unchanged
    return found.values if found.values is not None else found


# -- clips -------------------------------------------------------------------------------------------------------------


def norm_of(values: Any, order: float) -> float:
    return float(np.linalg.norm(np.asarray(values, np.float64), order))


@given(FLOATS, st.floats(1e-6, 1e7), st.sampled_from([1, 2, math.inf]))
def test_a_clip_never_exceeds_its_norm_and_leaves_what_is_within_bit_for_bit(
    values: Any, norm: float, order: float
) -> None:
    clipped = done(Clip(norm, order=order), values=values)
    assert clipped.dtype == np.float32
    before = norm_of(values, order)
    assert norm_of(clipped, order) <= norm * (1 + (1e-14 if before <= norm * (1 + 1e-14) else 0))
    if before <= norm * (1 - 1e-14):
        assert clipped.tobytes() == values.tobytes()
    elif order != math.inf:  # and removes no more than it must, in the same direction
        assert norm_of(clipped, order) >= norm * (1 - 1e-6)
        assert np.allclose(clipped.astype(np.float64) * before, values.astype(np.float64) * norm, rtol=1e-5, atol=1e-30)


@given(FLOATS, st.floats(1e-3, 1e6), st.floats(1e-3, 1e6), st.sampled_from([1, 2]))
def test_a_clip_of_layers_clips_each_of_them(values: Any, first: float, second: float, order: int) -> None:
    clipped = done(Clip((first, second), order=order, per="layer"), values=values)
    for part, norm in ((slice(0, 6), first), (slice(6, 10), second)):
        alone = done(Clip(norm, order=order), values=np.concatenate([values[part], np.zeros(10)])[:10])
        assert norm_of(clipped[part], order) <= norm * (1 + 1e-12)
        assert clipped[part] == pytest.approx(alone[: len(clipped[part])], rel=1e-6)
        if norm_of(values[part], order) <= norm * (1 - 1e-12):
            assert clipped[part].tobytes() == values[part].tobytes()


@given(FLOATS, st.floats(1e-3, 1e6))
def test_a_clip_of_scalars_cuts_each_off(values: Any, most: float) -> None:
    clipped = done(Clip(most, per="scalar"), values=values)
    assert clipped.dtype == np.float32
    assert (np.abs(clipped.astype(np.float64)) <= most).all()
    assert np.allclose(clipped, np.clip(values, -most, most), rtol=2e-7, atol=0)
    within = np.abs(values) < most
    assert clipped[within].tobytes() == values[within].tobytes()
    of_layers = done(Clip((most, 2 * most), order=math.inf, per="layer"), values=values)
    assert np.array_equal(of_layers[:6], clipped[:6])
    assert np.allclose(of_layers[6:], np.clip(values[6:], -2 * most, 2 * most), rtol=2e-7, atol=0)


def test_clips_at_the_edges() -> None:
    with np.errstate(all="raise"):
        assert done(Clip(0.0)).tolist() == [0] * 10
        assert done(Clip((0.0, math.inf), per="layer"), values=np.append(np.zeros(6), VALUES[6:])).tolist()[-1] == 12
        assert np.array_equal(done(Clip(math.inf)), VALUES)
        assert np.array_equal(done(Clip(math.inf, per="scalar")), VALUES)
    assert norm_of(done(Clip(1.0), values=[3e38, -3e38]), 2) <= 1  # squares beyond float32
    for norm in (1e-6, 1e-30, 2.0**-100):
        assert norm_of(done(Clip(norm), values=np.full(10, 3e38)), 2) <= norm


@pytest.mark.parametrize("clip", [Clip(1.0), Clip(1.0, order=1), Clip(1.0, per="layer"), Clip(1.0, per="scalar")])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_diverged_is_named_with_its_client(clip: Clip, bad: float) -> None:
    values = VALUES.copy()
    values[:2] = bad
    said = r"client 3: the update of zone noised holds 2 NaN or infinite values, which odd cannot clip; .*lower lr"
    with pytest.raises(ProtectionError, match=said):
        done(clip, values=values, who=party(3))


def test_whether_it_clipped_is_logged() -> None:
    for norm, clipped in ((100.0, 0.0), (1.0, 1.0)):
        who = party()
        done(Clip(norm), who=who)
        assert who.log == {"odd.clipped": clipped}


def test_layers_of_a_zone_are_found_by_its_positions() -> None:
    plan = Plan.of(context(Server()), "clear", noised=np.array([0, 5, 6, 9]))
    values = np.array([3, 4, 3, 4], np.float32)
    expected = done(Clip((5.0, 1.0), per="layer"), values=values, who=party(plan=plan))
    assert expected == pytest.approx([3, 4, 0.6, 0.8], rel=1e-6)
    where = np.array([0, 1, 8, 9], np.uint32)
    assert done(Clip((1.0, 5.0), per="layer"), values=values, positions=where) == pytest.approx([0.6, 0.8, 3, 4])
    with pytest.raises(ProtectionError, match="odd works layer by layer, and where the noised values lie is not known"):
        done(Clip((1.0, 5.0), per="layer"), values=values)


# -- arithmetic --------------------------------------------------------------------------------------------------------


@given(FLOATS, st.floats(-100, 100))
def test_a_scale_multiplies(values: Any, factor: float) -> None:
    expected = (values.astype(np.float64) * factor).astype(np.float32)
    assert done(Scale(factor), values=values).tobytes() == expected.tobytes()


@given(FLOATS, st.floats(1e-3, 1e3))
def test_a_rounding_goes_to_the_nearest_multiple_or_toward_zero(values: Any, step: float) -> None:
    nearest, shorter = done(Round(step), values=values), done(Round(step, toward_zero=True), values=values)
    exact = values.astype(np.float64)
    assert np.allclose(nearest, np.rint(exact / step) * step, rtol=1e-6, atol=0)
    assert (np.abs(nearest - exact) <= step / 2 + np.abs(exact) * 1e-6).all()
    assert (np.abs(shorter) <= np.abs(values) * np.float32(1 + 1e-6)).all()
    assert (np.abs(shorter - exact) <= step + np.abs(exact) * 1e-6).all()


def test_a_shift_adds_what_follows_from_public_facts() -> None:
    assert np.array_equal(done(Shift(lambda public: -public.start)), VALUES - np.arange(10, dtype=np.float32))
    with pytest.raises(ProtectionError, match=r"zone noised, Shift: it gave float32\[3\]; its function must"):
        done(Shift(lambda public: np.zeros(3, np.float32)))


def test_widening_puts_zeros_where_a_client_keeps_values() -> None:
    plan = Plan.of(context(Server()), "noised", retained=np.array([2, 3]), clear=np.array([9]))
    who = party(plan=plan)
    part = Part(Widen())
    facts = context(who, part)
    values = np.arange(1, 8, dtype=np.float32)
    widened = execute(steps(part, facts=facts)[0], Block("noised", 7, values), who, facts)
    assert widened.positions is not None
    assert widened.positions.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert widened.plain().tolist() == [1, 2, 0, 0, 3, 4, 5, 6, 7]
    assert widened.size == 9


# -- noise -------------------------------------------------------------------------------------------------------------

SIZE = 20_000
WIDE = Layout.of([("a.w", (SIZE // 2,)), ("b.w", (SIZE // 2,))])


def noised(*operations: Any, values: Any = None, who: Client | None = None, round: int = 0) -> Any:
    """The same of a larger model."""
    who = who or party(plan=Plan.single("noised", SIZE, ZONES))
    part = Part(*operations)
    facts = dataclasses.replace(context(who, part, round=round), layout=WIDE)
    who.facts = facts
    given = np.zeros(SIZE, np.float32) if values is None else values
    who.vector = np.zeros(SIZE, np.float32)
    return execute(steps(part, facts=facts)[0], Block("noised", SIZE, given), who, facts).plain()


@pytest.mark.parametrize("source", ["secure", "reproducible"])
@pytest.mark.parametrize(
    ("noise", "deviation", "norm"),
    [(Noise.gaussian(3.0), 3.0, 2), (Noise.laplace(3.0), 3.0 * math.sqrt(2), 1)], ids=["gaussian", "laplace"],
)  # fmt: skip
def test_noise_has_its_deviation_and_lies_on_its_grid(noise: Noise, deviation: float, norm: int, source: Any) -> None:
    noise = dataclasses.replace(noise, source=source)
    drawn = noised(Clip(2.0, order=norm), noise)
    # A right sampler fails with probability below 1e-8; a Laplace sample's square varies more.
    assert drawn.std() == pytest.approx(deviation, rel=6 * math.sqrt(5 / 4 / SIZE))
    assert abs(drawn.mean()) < 6 * deviation / math.sqrt(SIZE)
    grid = finest(2.0, 3.0, noise.mechanism)
    steps_away = drawn.astype(np.float64) / grid
    assert np.array_equal(steps_away, np.rint(steps_away))
    assert len(np.unique(drawn)) > 0.9 * SIZE
    coarse = noised(Clip(2.0, order=norm), dataclasses.replace(noise, grid=0.5))
    assert np.array_equal(coarse * 2, np.rint(coarse * 2))


def test_exact_noise_is_discrete_and_on_its_grid() -> None:
    drawn = done(Clip(2.0), Noise.gaussian(3.0, source="exact"))
    grid = finest(2.0, 3.0)
    assert np.array_equal(drawn / grid, np.rint(drawn / grid))
    assert 0 < np.abs(drawn).max() < 12 * 3.0


def test_reproducible_noise_repeats_and_others_noise_does_not() -> None:
    """Noise of another client, round, component or zone, or from a cryptographic source."""
    link = (Clip(2.0), Noise.gaussian(3.0, source="reproducible"))
    first = noised(*link)
    assert first.tobytes() == noised(*link).tobytes()
    who = party()
    reference = fedplug.stream(7, 0, 0, "odd", "noised").standard_normal(SIZE) * 3.0
    assert first == pytest.approx(reference, abs=finest(2.0, 3.0))
    others = [noised(*link, round=1), noised(*link, who=party(1, Plan.single("noised", SIZE, ZONES)))]
    secret = [noised(Clip(2.0), Noise.gaussian(3.0)) for _ in range(2)]
    correlation = np.corrcoef([first, *others, *secret]) - np.eye(5)
    assert np.abs(correlation).max() < 6 / math.sqrt(SIZE)
    assert who.state == {}


def test_noise_of_each_layer_has_that_layers_size_and_grid() -> None:
    values = np.concatenate([np.full(SIZE // 2, 1e-3), np.full(SIZE // 2, 1e-4)]).astype(np.float32)
    link = (Clip((2.0, 0.5), per="layer"), Noise.gaussian((8.0, 0.25), source="reproducible"))
    drawn = noised(*link, values=values) - values
    for part, std, norm in ((drawn[: SIZE // 2], 8.0, 2.0), (drawn[SIZE // 2 :], 0.25, 0.5)):
        assert part.std() == pytest.approx(std, rel=6 / math.sqrt(SIZE))
        steps_away = (noised(*link)[: SIZE // 2] if std == 8.0 else noised(*link)[SIZE // 2 :]) / finest(norm, std)
        assert np.array_equal(steps_away, np.rint(steps_away))
    silent = noised(link[0], Noise.gaussian((0.0, 0.25)), values=values)
    assert np.array_equal(silent[:9], values[:9])


def test_noise_without_a_size_or_without_a_price_is_executed_or_refused() -> None:
    assert np.array_equal(done(Clip(100.0), Noise.gaussian(0.0)), VALUES)
    unbounded = noised(Noise.gaussian(3.0))  # it promises nothing, but is still added
    assert unbounded.std() == pytest.approx(3.0, rel=6 / math.sqrt(SIZE))
    with pytest.raises(ProtectionError, match="zone noised, Noise: it gives no std here, where the noise is to"):
        done(Clip(1.0), Noise(mechanism="gaussian", at_least=1.0))
    with pytest.raises(ProtectionError, match="it gives no noise to layer 1, which has values here"):
        done(Clip(1.0, per="layer"), Noise.gaussian((1.0, math.inf)))


def test_a_links_own_mechanism_gives_new_values() -> None:
    def flips(values: Any, public: Public, stream: np.random.Generator) -> Any:
        return np.where(stream.random(len(values)) < 0.5, values, -values)

    own = Noise.own("pure", flips, multiplier=1.0, source="reproducible", order=1)
    drawn = done(Clip(100.0, order=1), own)
    assert np.array_equal(np.abs(drawn), VALUES)
    assert np.array_equal(drawn, done(Clip(100.0, order=1), own))
    assert not np.array_equal(noised(own, values=np.ones(SIZE, np.float32)), np.ones(SIZE))


# -- functions ---------------------------------------------------------------------------------------------------------


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


def broken(*_: Any) -> Any:
    return {}["nowhere"]


def leaves(*_: Any) -> Any:
    raise SystemExit(3)


@pytest.mark.parametrize(
    "operation", [Map(broken), Post(broken), Look(broken), Shift(broken),
                  Noise.own("odd", broken, multiplier=1.0, source="secure", order=2)],
    ids=lambda operation: type(operation).__name__,
)  # fmt: skip
def test_a_function_that_fails_names_component_hook_zone_and_operation(operation: Any) -> None:
    kind = type(operation).__name__
    said = rf"^component odd, hook protect, zone noised, {kind}: KeyError: 'nowhere' \(test_execution\.py:\d+\)$"
    with pytest.raises(PluginError, match=said):
        done(operation)
    with pytest.raises(PluginError, match=r"Map: SystemExit: 3 \(test_execution"):
        done(Map(leaves))


def test_an_error_of_fedplugs_own_says_what_it_says() -> None:
    def refuses(*_: Any) -> Any:
        raise ProtectionError("not with these values; take others")

    with pytest.raises(ProtectionError, match=r"^not with these values; take others$"):
        done(Map(refuses))


# -- closing and opening: see test_closing.py --------------------------------------------------------------------------

SEAL = Seal(scheme="bytes", opened_by="clients", numbers=FixedPoint(100.0, 2.0**-10))


def test_a_seal_is_handed_words_of_weighted_values() -> None:
    sealed = done(SEAL)
    assert (sealed.sealed_by, sealed.weighted, sealed.divisor) == ("odd", True, 0.5)
    assert np.array_equal(np.frombuffer(sealed.ciphertexts[0], np.int64), VALUES * 2**9)


def test_who_opens_a_sum_gives_it_open() -> None:
    server = Server()
    part, opener = Part(SEAL), Part(Open())
    facts = context(server)
    links = [Link("noised", "protect", "odd", part, "client"), Link("noised", "aggregate", "sum", Part(ADD), "server"),
             Link("noised", "postprocess", "odd", opener, "client")]  # fmt: skip
    step = fold(links, facts)[-1]
    closed = Block("noised", 10, None, ciphertexts=((VALUES * 2**10).astype(np.int64).tobytes(),), sealed_by="odd",
                   contributors=2)  # fmt: skip
    assert np.array_equal(execute(step, closed, server, facts, senders=[0, 1]).plain(), VALUES)


# -- sums --------------------------------------------------------------------------------------------------------------


def summed(*operations: Any, blocks: dict[int, Block], weights: dict[int, float] | None = None) -> Block:
    """The sum that an aggregator gives of uploads."""
    part = Part(*operations)
    server = Server()
    facts = context(server, part)
    (step,) = fold([Link("noised", "aggregate", "odd", part, "server")], facts)
    return add_up(step, blocks, weights or dict.fromkeys(blocks, 1.0), server, facts)


def uploads(*values: Any, **more: Any) -> dict[int, Block]:
    return {i: Block("noised", len(v), np.asarray(v, np.float32), **more) for i, v in enumerate(values)}


@given(st.lists(FLOATS, min_size=1, max_size=5), st.data())
def test_a_weighted_sum_is_that_of_numpy(values: list[Any], data: Any) -> None:
    weights = {i: data.draw(st.floats(0.1, 1.0)) for i in range(len(values))}
    total = summed(ADD, blocks=uploads(*values), weights=weights)
    expected = sum(weights[i] * value.astype(np.float64) for i, value in enumerate(values))
    assert np.allclose(total.plain(), expected, rtol=1e-6, atol=1e-30)
    assert (total.divisor, total.contributors) == (pytest.approx(sum(weights.values())), len(values))
    assert np.allclose(total.mean(), expected / sum(weights.values()), rtol=1e-5, atol=1e-30)


def test_positions_are_divided_by_those_who_sent_them_or_by_all() -> None:
    blocks = {0: Block("noised", 2, np.array([3, 5], np.float32), np.array([1, 4], np.uint32)),
              1: Block("noised", 2, np.array([7, 9], np.float32), np.array([4, 8], np.uint32))}  # fmt: skip
    weights = {0: 1.0, 1: 0.5}
    sent = summed(ADD, blocks=blocks, weights=weights)
    assert sent.positions is not None
    assert sent.positions.tolist() == [1, 4, 8]
    assert sent.plain().tolist() == [3.0, 5 + 3.5, 4.5]
    assert np.asarray(sent.divisor).tolist() == [1.0, 1.5, 0.5]
    everybody = summed(WeightedSum(divided_by="all"), blocks=blocks, weights=weights)
    assert everybody.divisor == 1.5
    assert everybody.mean() == pytest.approx(np.array([3.0, 8.5, 4.5]) / 1.5)


@pytest.mark.parametrize("divided_by", ["sent", "all"])
def test_a_rate_multiplies_the_mean(divided_by: Any) -> None:
    one = summed(WeightedSum(divided_by=divided_by), blocks=uploads(VALUES, VALUES))
    slower = summed(WeightedSum(divided_by=divided_by, rate=0.25), blocks=uploads(VALUES, VALUES))
    assert slower.mean() == pytest.approx(one.mean() / 4)
    assert np.array_equal(slower.plain(), one.plain())


def test_layers_are_weighed_one_by_one() -> None:
    where = np.arange(10, dtype=np.uint32)
    blocks = uploads(VALUES, VALUES * 2, positions=where)
    factors = {0: (np.array([1.0, 0.5]), np.array([1.0, 0.5])), 1: (np.array([0.25, 0.0]), np.array([0.25, 0.0]))}
    total = summed(WeightedSum(by=lambda blocks, server, facts: factors), blocks=blocks, weights={0: 0.1, 1: 0.9})
    layer = np.repeat([0, 1], [6, 4])
    expected = factors[0][0][layer] * VALUES + factors[1][0][layer] * VALUES * 2
    assert total.plain() == pytest.approx(expected)
    assert np.asarray(total.divisor) == pytest.approx(np.array([1.25, 0.5])[layer])


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ({}, "its function must give for client 0 two arrays of finite floats [2]"),
        (None, "its function must give for client 0 two"), ({0: np.ones(2)}, "for client 0 two arrays"),
        ({0: (np.ones(2), np.ones(2)), 1: (np.ones(3), np.ones(2))}, "for client 1 two arrays"),
        ({0: (np.full(2, np.nan), np.ones(2))}, "for client 0 two arrays of finite"),
        ({0: (np.ones(2), np.array([1.0, -1.0]))}, "it adds less than 0 to the divisor for client 0"),
    ],
)  # fmt: skip
def test_weights_of_layers_are_two_arrays_a_client(shares: Any, said: str) -> None:
    blocks = uploads(VALUES, VALUES, positions=np.arange(10, dtype=np.uint32))
    with pytest.raises(ProtectionError) as caught:
        summed(WeightedSum(by=lambda blocks, server, facts: shares), blocks=blocks)
    assert str(caught.value).startswith("component odd, hook aggregate, zone noised, WeightedSum: ")
    assert said in str(caught.value)
    right = {c: (np.ones(2), np.ones(2)) for c in (0, 1)}
    with pytest.raises(ProtectionError, match=r"came without positions.*ask for Wants\(positions=True\)"):
        summed(WeightedSum(by=lambda blocks, server, facts: right), blocks=uploads(VALUES, VALUES))


def test_what_follows_the_sum_is_done_to_it() -> None:
    total = summed(ADD, Scale(0.5), Clip(1.0), blocks=uploads(VALUES, VALUES))
    assert norm_of(total.plain(), 2) == pytest.approx(1.0, rel=1e-6)
    assert total.divisor == 2.0


def test_a_combination_gives_a_block() -> None:
    def middle(blocks: dict[int, Block], weights: dict[int, float], facts: Facts) -> Block:
        assert weights == {0: 1.0, 1: 1.0, 2: 1.0}
        values = np.median([block.plain() for block in blocks.values()], 0).astype(np.float32)
        return blocks[0].replace(values=values, divisor=1.0, contributors=3)

    total = summed(Combine(middle), blocks=uploads(VALUES, VALUES * 9, -VALUES))
    assert np.array_equal(total.plain(), VALUES)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda first: VALUES, r"it gave an array float32\[10\]; it must give a Block"),
        (lambda first: first.replace(zone="clear"), "it gave a block of zone clear"),
        (lambda first: first.replace(values=VALUES.astype(np.float64)), r"its values are float64\[10\]"),
        (lambda first: first.replace(divisor=math.nan), "its divisor is nan, which must be a number >= 0"),
        (lambda first: first.replace(contributors=-1), "its contributors is -1, which must be a whole number >= 0"),
        (lambda first: first.replace(values=np.full(10, np.inf, np.float32)), "it made 10 of 10 values NaN or infin"),
    ],
)  # fmt: skip
def test_a_combination_that_cannot_be_is_the_aggregators_fault(given: Any, said: str) -> None:
    with pytest.raises(ProtectionError, match=f"^component odd, hook aggregate, zone noised, Combine: {said}"):
        summed(Combine(lambda blocks, weights, facts: given(blocks[0])), blocks=uploads(VALUES))
    with pytest.raises(PluginError, match="component odd, hook aggregate, zone noised, Combine: KeyError"):
        summed(Combine(broken), blocks=uploads(VALUES))


@pytest.mark.parametrize("operation", [ADD, Combine(lambda b, w, c: b[1].replace(values=b[0].plain() + b[1].plain()))])
def test_a_sum_that_an_upload_spoilt_is_its_clients_fault(operation: Any) -> None:
    with pytest.raises(ProtectionError, match=r"client 1 sent .*NaN or infinite") as caught:
        summed(operation, blocks=uploads(VALUES, VALUES * np.float32(np.nan)))
    assert caught.value.client_id == 1


def test_a_post_on_a_sum_sees_the_mean() -> None:
    seen: list[Any] = []

    def post(values: Any, public: Public) -> Any:
        seen.append(values.copy())
        return values * np.float32(2)

    server = Server()
    part = Part(Post(post))
    facts = context(server, part)
    (step,) = steps(part, hook="postprocess", site="server", facts=facts)
    total = Block("noised", 10, VALUES, divisor=4.0, contributors=4)
    found = execute(step, total, server, facts)
    assert np.array_equal(seen[0], VALUES / 4)
    assert np.array_equal(found.mean(), VALUES / 2)
    assert found.contributors == 4
    # With positions the divisor may be shared with other zones, and stays.
    where = np.arange(10, dtype=np.uint32)
    scattered = total.replace(positions=where, divisor=np.full(10, 4.0))
    found = execute(step, scattered, server, facts)
    assert np.array_equal(np.asarray(found.divisor), np.full(10, 4.0))
    assert np.array_equal(found.mean(), VALUES / 2)


# -- ballots -----------------------------------------------------------------------------------------------------------


def ballot(who: Any, values: Any, *operations: Any) -> Any:
    part = Part(name="votes")
    return release(part, operations, values, who, context(who, part))


def test_a_ballot_is_clipped_and_noised_at_the_client() -> None:
    clip, noise = Clip(1.0), Noise.gaussian(2.0, source="reproducible")
    found = ballot(party(3), [3.0, 4.0], clip, noise)
    drawn = fedplug.stream(7, 3, 0, "votes", "count").standard_normal(2) * 2.0
    assert found == pytest.approx(np.array([0.6, 0.8]) + drawn, abs=1e-6)
    assert found.dtype == np.float32
    assert not np.array_equal(ballot(party(3), [3.0, 4.0], clip, Noise.gaussian(2.0)), found)
    assert party(3).log == {}


def test_the_server_clips_each_ballot_and_noises_their_sum() -> None:
    clip, noise = Clip(1.0), Noise.gaussian(2.0, source="reproducible", trust="central")
    found = ballot(Server(), {4: [3.0, 4.0], 1: [0.5, 0.0]}, clip, noise, Post(lambda values, public: values * 2))
    drawn = fedplug.stream(7, "server", 0, "votes", "count").standard_normal(2) * 2.0
    assert found == pytest.approx(2 * (np.array([1.1, 0.8]) + drawn), abs=1e-5)


def test_ballots_are_not_released_without_the_noise_of_that_party() -> None:
    said = r"component votes: its ballots of round 1 have no noise that is added {}; give it in ballots\(\)"
    for who, operations, where in (
        (party(), (), "at the client"),
        (party(), (Clip(1.0),), "at the client"),
        (party(), (Clip(1.0), Noise.gaussian(1.0, trust="central")), "at the client"),
        (Server(), (Clip(1.0), Noise.gaussian(1.0)), "to the sum, at the server"),
    ):
        with pytest.raises(ProtectionError, match=said.format(where)):
            ballot(who, {0: [1.0]} if isinstance(who, Server) else [1.0], *operations)
    with pytest.raises(Misplaced, match="the ballots of votes give Map"):
        ballot(party(), [1.0], Map(lambda *_: None), Noise.gaussian(1.0))
    with pytest.raises(ProtectionError, match="nothing can be released outside a run"):
        Client().release(Part(name="votes"), os.urandom(1))


@settings(deadline=None, max_examples=30)
@given(FLOATS, FLOATS, st.floats(1e-3, 1e3), st.sampled_from(["update", "layer", "scalar"]), st.floats(1e-2, 1e2))
def test_what_the_fold_says_of_values_is_true_of_what_is_executed(
    values: Any, other: Any, norm: float, per: Any, step: float
) -> None:
    chain = (Clip(norm, per=per), Scale(0.5), Round(step))
    part = Part(*chain)
    (folded,) = steps(part, facts=context(party(), part))
    most = folded.after.norm()
    assert most is not None
    for each in (values, other):
        assert norm_of(done(*chain, values=each), 2) <= most * (1 + 1e-6)


# -- rounding at random, rotation, noise in whole numbers --------------------------------------------------------------


@given(FLOATS, st.floats(0.01, 100), st.integers(-8, 4), st.floats(0.01, 0.99))
def test_rounding_at_random_never_exceeds_the_norm_that_the_fold_states(
    values: Any, norm: float, power: int, beta: float
) -> None:
    step = 2.0**power
    chain = (Clip(norm), Round(step, beta=beta))
    known = steps(Part(*chain))[0].after
    rounded = done(*chain, values=values)
    assert norm_of(rounded, 2) <= known.norm() * (1 + 1e-15)
    assert np.array_equal(rounded / step, np.rint(rounded / step))
    assert np.abs(rounded - done(Clip(norm), values=values)).max() <= step


def test_rounding_at_random_keeps_the_mean_where_no_draw_fails() -> None:
    values = np.linspace(-1, 1, 10)
    drawn = [done(Round(0.5, beta=0.5), values=values, round=number) for number in range(2000)]
    assert np.abs(np.mean(drawn, 0) - values).max() < 0.03
    assert np.array_equal(done(Round(0.5, beta=0.5), values=VALUES), VALUES), "what lies on the grid stays"


def test_draws_that_exceed_the_norm_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten values of 0.316 are rounded to as many as three ones where the norm may be sqrt(3.4)."""
    values = np.full(10, 0.1**0.5, np.float32)
    chain = (Clip(1.0), Round(1.0, beta=0.99))
    limit = steps(Part(*chain))[0].after.norm()
    assert limit < 3.5**0.5 + 1
    lengths = [norm_of(done(*chain, values=values, round=number), 2) for number in range(200)]
    assert max(lengths) <= limit
    monkeypatch.setattr("fedplug.mechanisms.execution._MOST_DRAWS", 0)
    assert not done(*chain, values=values).any(), "toward zero at last"


@given(FLOATS, st.integers(0, 4))
def test_a_rotation_lifts_no_norm_and_a_sum_of_rotated_values_turns_back(values: Any, round: int) -> None:
    turned = done(Rotate(), values=values, round=round)
    assert norm_of(turned, 2) <= norm_of(values, 2)
    server = Server()
    facts = context(server, round=round)
    links = [Link("noised", "protect", "odd", Part(Rotate()), "client"),
             Link("noised", "aggregate", "sum", Part(ADD, name="sum"), "server"),
             Link("noised", "postprocess", "odd", Part(Rotate(back=True)), "server")]  # fmt: skip
    *_, step = fold(links, facts)
    total = Block("noised", 10, 2 * turned, divisor=2.0)
    back = execute(step, total, server, facts).plain()
    assert np.allclose(back, 2 * values, rtol=0, atol=3e-6 * max(1e-30, norm_of(values, 2)))


def test_a_rotation_has_other_signs_in_each_round() -> None:
    """One rotated number says little about the signs; ten do."""
    values = np.arange(1, 11, dtype=np.float32)
    turned = {done(Rotate(), values=values, round=round).tobytes() for round in range(8)}
    assert len(turned) == 8


def test_a_rotation_needs_values_that_lie_alike_at_all_clients() -> None:
    with pytest.raises(ProtectionError, match="zone noised has positions of a client's own, and odd turns all values"):
        done(Rotate(), positions=np.arange(10, dtype=np.uint32))
    with pytest.raises(Misplaced, match="odd turns the noised values back, but nothing has turned them"):
        steps(Part(Rotate(back=True)), hook="postprocess", site="server")
    with pytest.raises(Misplaced, match=r"Rotate turns uploads; give it in the hook protect, and Rotate\(back=True\)"):
        steps(Part(Rotate()), hook="postprocess", site="server")


@pytest.mark.parametrize("mechanism", ["skellam_sum", "discrete_gaussian_sum"])
def test_noise_in_whole_numbers_is_added_on_its_grid(mechanism: Any) -> None:
    chain = (Clip(20.0), Round(0.25, beta=0.5), Noise.integer(mechanism, 2.0, grid=0.25, source="reproducible"))
    noised = done(*chain)
    assert np.array_equal(noised * 4, np.rint(noised * 4))
    assert not np.array_equal(noised, VALUES)
    assert np.array_equal(done(*chain[:2], Noise.integer(mechanism, 0.0, grid=0.25)), VALUES), "no noise"


@pytest.mark.parametrize(("chain", "said"), [
    ((Clip(1.0), Noise.integer("skellam_sum", 1.0, grid=0.25)),
     "the noised values before it do not lie on that grid; give Round\\(0.25, beta=...\\) before it"),
    ((Clip(1.0), Round(0.25), Noise.integer("skellam_sum", 1.0, grid=0.3)), "odd: grid=0.3 must be a power of two"),
    ((Clip(1.0), Round(0.25), Noise.integer("skellam_sum", 0.1, grid=0.25)), "grid=0.25 must be between std / 4096"),
    ((Clip(1.0), Round(2.0**-20), Noise.integer("skellam_sum", 1.0, grid=2.0**-20)), "must be between std / 4096"),
    ((Clip(1.0), Round(0.25), Noise.integer("skellam_sum", 1.0, grid=0.25, source="exact")), "write source: secure"),
    ((Clip(1.0), Noise.own("skellam_sum", lambda v, p, s: v, multiplier=1.0, source="secure", order=2)),
     "calls its own sampler skellam_sum, a name of the core; rename it"),
])  # fmt: skip
def test_noise_in_whole_numbers_that_has_no_price_is_refused(chain: Any, said: str) -> None:
    with pytest.raises((Misplaced, ProtectionError), match=said):
        steps(Part(*chain))
    with pytest.raises(Misplaced, match="odd adds skellam_sum noise to a sum; clients share it out"):
        steps(Part(Noise.integer("skellam_sum", 1.0, grid=0.25)), hook="postprocess", site="server")
