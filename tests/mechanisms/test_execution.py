"""The effect of each operation on values, against plain numpy, and the arguments of its functions."""

from __future__ import annotations

import dataclasses
import math
import os
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import (
    Block,
    Client,
    Clip,
    Layout,
    Map,
    Misplaced,
    Noise,
    Open,
    Plan,
    Post,
    Public,
    Rotate,
    Round,
    Scale,
    Shift,
    Widen,
)
from fedplug.api.errors import ProtectionError
from fedplug.api.grids import finest
from fedplug.api.links import Link, fold
from fedplug.api.parties import Server
from fedplug.mechanisms.execution import execute, release
from hypothesis import given, settings
from hypothesis import strategies as st
from operation_toys import (
    ADD,
    FLOATS,
    SEAL,
    VALUES,
    ZONES,
    Part,
    context,
    done,
    norm_of,
    party,
    steps,
)

# -- clips -------------------------------------------------------------------------------------------------------------


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


# -- closing and opening: see test_closing.py --------------------------------------------------------------------------


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
