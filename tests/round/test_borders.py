"""Between two links: what a component gave is compared with what it stated, before anybody uses it."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import fedplug
import numpy as np
import pytest
from border_toys import BLOCK, LAYOUT, SEALED, VALUES, Deed, as_it_is, spoilt, with_values
from fedplug import (
    Adds,
    Block,
    Bound,
    Changes,
    Client,
    Context,
    CoversSupport,
    Effects,
    Known,
    Noise,
    Opens,
    Plan,
    Rounding,
    Scales,
    Seal,
    Server,
    hookimpl,
)
from fedplug.api.errors import TooFewClients
from fedplug.api.links import Link, Step
from fedplug.round.borders import block_problem
from toy_components import TOYS, recipe_of
from toy_protocol import run_protocol


def passed(said: Effects | None, deed: Deed, before: Known | None = None, block: Block = BLOCK) -> str:
    """What is wrong with that deed under that statement, at a client whose zone is its whole model."""
    known = before or Known(zone="noised", link="odd", layers=(6, 4))
    link = Link("noised", "protect", "odd", None, "client")
    after = known.voided(at_client=True) if said is None else known.after(said)
    client = Client(client_id=0, plan=Plan.single("noised", 10, ("noised", "clear")))
    ctx = Context(0, 1, LAYOUT, ("noised", "clear"), 4, 2, 7, "", client)
    return block_problem(deed(block), block, Step(link, known, said, after), ctx)


ROW = np.ones((10, 1), np.float32)
SEAL = Seal(scheme="a test", opened_by="clients", range=math.inf, step=0.0)


@pytest.mark.parametrize(
    ("deed", "problem"),
    [
        (lambda b: b.values, "it gave an array float32[10]; it must give a Block (block.replace(values=...) makes"),
        (lambda b: "odd", "it gave str; it must give a Block"),
        (lambda b: b.replace(zone="clear"), "it gave a block of zone clear; a link gives the zone that it is handed"),
        (with_values(ROW), "its values are float32[10, 1], which must be float32[10]: one for each scalar"),
        (with_values(VALUES.astype(np.float64)), "its values are float64[10], which must be float32[10]"),
        (with_values(VALUES.tolist()), "its values are a list, which must be float32[10]"),
        (with_values(VALUES[:4]), "its values are float32[4], which must be float32[10]"),
        (lambda b: b.replace(values=VALUES[:4], size=4), "it gave 4 scalars of 10; a protector keeps the scalars of"),
        (lambda b: b.replace(positions=np.arange(4)), "its positions are int64[4], which must be uint32[10]"),
        (with_values(None), "it gave a block without values that nobody has closed"),
    ],
)
@pytest.mark.parametrize("said", [(), None, (Changes(),)], ids=["nothing", "unknown", "changes"])
def test_what_is_no_block_of_the_zone_is_refused_whatever_was_said(said: Any, deed: Deed, problem: str) -> None:
    assert passed(said, deed).startswith(problem)


@pytest.mark.parametrize("said", [None, (Changes(),)], ids=["unknown", "changes"])
def test_who_made_values_that_are_no_numbers_is_named_whatever_was_said(said: Any) -> None:
    """Else the sum would refuse them, and blame the client's training."""
    assert passed(said, spoilt).startswith("it made 10 finite values of 10 NaN or infinite")
    some = np.where(VALUES > 3, np.inf, VALUES).astype(np.float32)
    assert passed(said, with_values(some)).startswith("it made 1 finite values of 10 NaN or infinite")
    assert not passed(said, as_it_is, block=spoilt(BLOCK))


@pytest.mark.parametrize(
    ("said", "values", "problem"),
    [
        ((), VALUES * 2, "it states no change of the values, and changed them; state what it does in its effects"),
        ((Bound(4.9),), VALUES, "it states an L2 norm of at most 4.9, and gave values of norm 5"),
        ((Bound(6.9, order=1),), VALUES, "it states an L1 norm of at most 6.9, and gave values of norm 7"),
        ((Bound(3.9, per="scalar"),), VALUES, "it states an L2 norm per scalar of at most 3.9, and gave values of"),
        ((Bound((5.0, 0.5), per="layer"),), VALUES[::-1].copy(), "it states an L2 norm per layer of at most 1, and"),
        ((Rounding(0.5),), VALUES + np.float32(0.25), "it states multiples of 0.5, and 10 of 10 values are not"),
        ((Noise(mechanism="gaussian", scale=1.0, grid=0.5),), VALUES + np.float32(0.1), "it states multiples of 0.5"),
        ((SEAL,), VALUES, "it states that it leaves them closed by odd, and gave plain values"),
    ],
)
def test_a_statement_that_does_not_hold_is_refused(said: Effects, values: Any, problem: str) -> None:
    values = np.asarray(values, np.float32)
    assert passed(said, with_values(values)).startswith(problem)
    assert passed(None, with_values(values)) == ""  # who says nothing has promised nothing


@pytest.mark.parametrize(
    ("said", "change", "problem"),
    [
        ((), SEALED, "it states that it leaves values plain, and gave a block closed by odd"),
        ((SEAL,), {**SEALED, "sealed_by": "another"}, "it states that it leaves them closed by odd, and gave a block"),
    ],
)
def test_who_closes_says_so(said: Effects, change: dict[str, Any], problem: str) -> None:
    assert passed(said, lambda block: block.replace(**change)).startswith(problem)


@pytest.mark.parametrize(
    ("said", "deed"),
    [
        ((), as_it_is),
        ((Bound(5.0),), as_it_is),
        ((Bound((5.0, 0.5), per="layer"),), as_it_is),
        ((Rounding(0.5),), as_it_is),
        ((Changes(),), with_values(VALUES + np.float32(0.1))),
        ((SEAL,), lambda block: block.replace(**SEALED)),
        ((CoversSupport(),), lambda b: b.replace(size=12, values=np.append(VALUES, VALUES[:2]))),
    ],
)
def test_a_statement_that_holds_passes(said: Effects, deed: Deed) -> None:
    assert passed(said, deed) == ""


def test_bounds_from_before_hold_behind_a_link_that_keeps_them() -> None:
    """A liar that says that norms are kept is found out by the clip before it."""
    clipped = Known(zone="noised", link="odd", layers=(6, 4)).after((Bound(5.0),))
    problem = passed((Changes("kept"),), with_values(VALUES * 100), clipped)
    assert problem == "it states an L2 norm of at most 5, and gave values of norm 500"


def test_values_that_diverged_before_are_not_laid_at_a_links_door() -> None:
    diverged = BLOCK.replace(values=VALUES * np.nan)
    assert passed((), as_it_is, block=diverged) == ""
    assert passed((Changes(),), as_it_is, block=diverged) == ""


def test_an_opened_sum_has_finite_values() -> None:
    sealed = BLOCK.replace(**SEALED)
    before = Known(zone="noised", link="odd", layers=(6, 4)).after((SEAL, Adds()))
    step = Step(Link("noised", "postprocess", "odd", None, "server"), before, (Opens(),), before.after((Opens(),)))
    ctx = Context(0, 1, LAYOUT, ("noised",), 4, 2, 7, "", Server())
    bad = sealed.replace(values=np.where(VALUES > 3, np.nan, VALUES), ciphertexts=(), sealed_by=None)
    said = "it made 1 of 10 values that it opened NaN or infinite"
    assert block_problem(bad, sealed, step, ctx).startswith(said)
    assert block_problem(bad.replace(values=VALUES), sealed, step, ctx) == ""
    assert "leaves values plain, and gave a block closed by odd" in block_problem(sealed, sealed, step, ctx)


@pytest.mark.parametrize(
    ("said", "values", "problem"),
    [
        ((Scales(2.0),), VALUES * 2, ""),
        ((Scales(2.0),), VALUES / 5, "it states Scales alone, and 2 of 10 values went elsewhere"),
        ((Scales(1.0), Rounding(2.0)), VALUES + np.float32([1, 0, 0, 0, 0, 0, 0, 0, 0, 0]), ""),
        ((Rounding(0.5),), VALUES + 1, "it states Rounding alone, and 10 of 10 values went elsewhere"),
        ((Rounding(2.0), Scales(0.5)), VALUES, "it states Rounding and Scales alone, and 2 of 10 values went"),
    ],
)
@pytest.mark.parametrize("after_sum", [False, True], ids=["upload", "sum"])
def test_values_are_scaled_and_rounded_as_is_said(said: Effects, values: Any, problem: str, after_sum: bool) -> None:
    """A factor that follows from the values, behind noise or on a sum before it, would tell of them."""
    known = Known(zone="noised", link="odd", layers=(6, 4)).after((Bound(5.0), Adds()) if after_sum else ())
    found = passed(said, with_values(np.asarray(values, np.float32)), known)
    assert found.startswith(problem)
    assert bool(found) == bool(problem)


TWICE = BLOCK.replace(values=VALUES * 2, divisor=2.0, contributors=2)


@pytest.mark.parametrize(
    "said", [(), (Noise(mechanism="gaussian", scale=1.0, trust="central"),)], ids=["none", "noise"]
)
def test_a_link_behind_the_sum_leaves_its_divisor(said: Effects) -> None:
    before = Known(zone="noised", link="odd", layers=(6, 4)).after((Bound(5.0), Adds()))
    step = Step(Link("noised", "postprocess", "odd", None, "server"), before, said, before.after(said))
    ctx = Context(0, 1, LAYOUT, ("noised",), 4, 2, 7, "", Server())
    normed = TWICE.replace(divisor=float(np.linalg.norm(VALUES)))
    assert block_problem(normed, TWICE, step, ctx).startswith("it changed the sum's divisor, which no noise hides")
    assert block_problem(TWICE.replace(contributors=9), TWICE, step, ctx).startswith(
        "it changed the sum's contributors"
    )
    assert block_problem(TWICE, TWICE, step, ctx) == ""


@pytest.mark.parametrize("grid", [0.5, 2.0**-16, 4.0, 2.0**-140, 0.1])
@pytest.mark.parametrize("values", [[0], [1e30, 3], [1e-45], [0.25, 1.0], [0.4999999, 2**-17], [7 * 2**-16, 0.3]])
def test_multiples_of_a_grid_are_those_that_float64_finds(grid: float, values: list[float]) -> None:
    """Whether or not there is a faster way to see them."""
    given = np.resize(np.array(values, np.float32), 10)
    steps = given.astype(np.float64) / grid
    wrong = int((np.abs(steps - np.rint(steps)) > 1e-6 * np.maximum(1, np.abs(steps))).sum())
    said = passed((Rounding(grid),), as_it_is, block=BLOCK.replace(values=given))
    assert said == (f"it states multiples of {grid:g}, and {wrong} of 10 values are not" if wrong else "")


def at_the_sum(said: Effects, **changes: Any) -> str:
    """What is wrong with a sum that a server's link gave."""
    total = BLOCK.replace(contributors=3, meta={"key": 1})
    before = Known(zone="noised", link="odd", layers=(6, 4)).after((Bound(5.0), Adds()))
    step = Step(Link("noised", "postprocess", "odd", None, "server"), before, said, before.after(said))
    ctx = Context(0, 1, LAYOUT, ("noised",), 4, 2, 7, "", Server())
    return block_problem(total.replace(**changes), total, step, ctx)


def test_what_a_link_states_of_a_sum_is_compared() -> None:
    """Central noise is measured by it."""
    assert at_the_sum((Bound(4.9),)).startswith("it states an L2 norm of at most 4.9, and gave values of norm 5")
    assert at_the_sum((Bound(3.4, per="layer"),)).startswith("it states an L2 norm per layer of at most 4.80833, and")
    assert at_the_sum((Bound(5.0),)) == at_the_sum((Bound(3.6, per="layer"),)) == ""
    assert at_the_sum((Rounding(0.3),), values=VALUES * np.float32(1.01)).startswith("it states multiples of 0.3")


def test_a_sum_takes_nothing_along_that_no_noise_hides() -> None:
    """What was in meta reached the clients behind the noise."""
    for said in ((), (Bound(5.0),)):
        assert at_the_sum(said, meta={"norm": 5.0}).startswith("it changed the sum's meta, which no noise hides")
        assert at_the_sum(said, meta={}) == at_the_sum(said) == ""
    # A clip behind it would let noise count again.
    assert "the sum's meta" in at_the_sum((Changes(),), meta={"norm": 5.0})
    assert "the sum's divisor" in at_the_sum((Changes(),), divisor=5.0)


def test_noise_is_added_to_nothing_that_carries_more_than_values() -> None:
    """Whoever states nothing may put what it likes into meta, and a clip and noise behind it count."""
    noise = (Noise(mechanism="gaussian", scale=1.0),)
    assert "put meta beside the values" in passed(noise, as_it_is, block=BLOCK.replace(meta={"raw": 1.0}))
    assert passed(noise, as_it_is) == ""


def at_once(block: Block) -> Block:
    block.plain()[0] = 99.0
    return block


def beside(block: Block) -> Block:
    block.meta["values"] = [99.0]  # type: ignore[index]
    return block


class Alters(fedplug.Protector):
    """Change what it was handed, and give that back."""

    deed: ClassVar[Deed]
    said: ClassVar[Effects]

    def effects(self, known: Known, ctx: Any) -> Effects:
        return self.said

    @hookimpl
    def protect(self, block: Block, client: Any, ctx: Any) -> Block:
        return type(self).deed(block)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("said", "deed", "problem"),
    [
        ((), at_once, "it states no change of the values, and changed them"),
        ((Scales(1.0),), at_once, "it states Scales alone, and 1 of "),
        ((), beside, "it changed the block's meta, which travel in the clear"),
        ((), lambda block: block.replace(values=-block.plain() * 0), "it states no change of the values, and changed"),
    ],
)
def test_what_a_link_changes_in_place_is_compared_as_well(
    monkeypatch: pytest.MonkeyPatch, said: Effects, deed: Deed, problem: str
) -> None:
    """What it was handed had changed with what it gave, so that behind noise raw values passed under DP."""
    monkeypatch.setitem(TOYS.setdefault("protect", {}), "toy.alters", Alters)
    monkeypatch.setattr(Alters, "deed", staticmethod(deed), raising=False)
    monkeypatch.setattr(Alters, "said", said, raising=False)
    chain = [{"use": "std.clip", "norm": 1.0}, {"use": "std.gaussian", "noise_multiplier": 1.0}, {"use": "toy.alters"}]
    with pytest.raises(TooFewClients, match=f"component toy.alters, hook protect, zone noised: {problem}"):
        run_protocol(recipe_of("noised", chain, rounds=1))
