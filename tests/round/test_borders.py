"""Between two links: what a component gave is compared with what it said, before anybody uses it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import fedplug
import numpy as np
import pytest
import toy_components
from fedplug import (
    Adds,
    Block,
    Bound,
    Changes,
    Client,
    Cohort,
    Context,
    CoversSupport,
    Effects,
    Known,
    Layout,
    Noise,
    Opens,
    Plan,
    Plans,
    Rounding,
    Scales,
    Seal,
    Server,
    at_client,
    hookimpl,
)
from fedplug.api.errors import FedplugError, ProtectionError
from fedplug.api.links import Link, Step
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.base import make_context
from fedplug.round.borders import block_problem, plan_problem, run, scores_problem, sum_problem
from toy_components import recipe_of
from toy_protocol import Outcome, run_protocol

LAYOUT = Layout.of([("a.w", (6,)), ("b.w", (4,))])
VALUES = np.array([3, 0, 4, 0, 0, 0, 0, 0, 0, 0], np.float32)
BLOCK = Block("noised", 10, VALUES)
Deed = Callable[[Block], Any]


def as_it_is(block: Block) -> Block:
    return block


def passed(said: Effects | None, deed: Deed, before: Known | None = None, block: Block = BLOCK) -> str:
    """What is wrong with that deed under that statement, at a client whose zone is its whole model."""
    known = before or Known(zone="noised", link="odd", layers=(6, 4))
    link = Link("noised", "protect", "odd", None, "client")
    after = known.voided(at_client=True) if said is None else known.after(said)
    client = Client(client_id=0, plan=Plan.single("noised", 10, ("noised", "clear")))
    ctx = Context(0, 1, LAYOUT, ("noised", "clear"), 4, 2, 7, "", client)
    return block_problem(deed(block), block, Step(link, known, said, after), ctx)


def with_values(values: Any) -> Deed:
    return lambda block: block.replace(values=values)


def spoilt(block: Block) -> Block:
    return block.replace(values=block.plain() * np.float32(np.nan))


# -- one link ----------------------------------------------------------------------------------------------------------

ROW = np.ones((10, 1), np.float32)
SEALED = {"values": None, "ciphertexts": (b"x",), "sealed_by": "odd"}
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


# -- sums, scores, plans -----------------------------------------------------------------------------------------------


def summed(total: Any, *values: Any) -> tuple[str, int | None]:
    known = Known(zone="noised", link="odd", layers=(6, 4))
    step = Step(Link("noised", "aggregate", "sum", None, "server"), known, (Adds(),), known.after((Adds(),)))
    blocks = {3 + i: BLOCK.replace(values=np.asarray(part, np.float32)) for i, part in enumerate(values or (VALUES,))}
    return sum_problem(total, blocks, dict.fromkeys(blocks, 1.0), step)


@pytest.mark.parametrize(
    ("total", "problem"),
    [
        (VALUES, "it gave an array float32[10]; it must give a Block"),
        (BLOCK.replace(zone="clear"), "it gave a block of zone clear"),
        (BLOCK.replace(values=VALUES.astype(np.float64)), "its values are float64[10]"),
        (BLOCK.replace(divisor="x"), "its divisor is 'x', which must be a number >= 0"),
        (BLOCK.replace(divisor=math.nan), "its divisor is nan, which must be a number >= 0"),
        (BLOCK.replace(contributors=-1), "its contributors is -1, which must be a whole number >= 0"),
        (BLOCK.replace(meta={"x": object()}), "its meta holds a object"),
        (BLOCK.replace(**SEALED), "it states that it leaves values plain, and gave a block closed by odd"),
        (BLOCK.replace(values=np.full(10, np.inf, np.float32)), "it made 10 of 10 values NaN or infinite of uploads"),
    ],
)
def test_a_sum_that_cannot_be_is_the_aggregators_fault(total: Any, problem: str) -> None:
    found, client_id = summed(total)
    assert found.startswith(problem)
    assert client_id is None


def test_a_sum_that_an_upload_spoilt_is_its_clients_fault() -> None:
    assert summed(spoilt(BLOCK), VALUES, VALUES * np.nan) == (
        "client 4 sent values that are NaN or infinite, which no sum survives", 4
    )  # fmt: skip
    assert summed(BLOCK.replace(values=VALUES * 2, divisor=2.0), VALUES, VALUES) == ("", None)


def test_a_sum_that_is_none_is_the_aggregators_fault() -> None:
    found, client_id = summed(BLOCK.replace(values=VALUES * 20), VALUES, VALUES)
    assert found.startswith("it states that it adds the weighted uploads up, and gave values up to ")
    assert client_id is None


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


@pytest.mark.parametrize(
    ("scores", "per", "problem"),
    [
        (np.zeros(9, np.float32), "scalar", "it gave float32[9]; it must give floats [10], one score a scalar"),
        (np.zeros(10, np.float32), "layer", "it gave float32[10]; it must give floats [2], one score a layer"),
        (np.zeros((10, 1)), "scalar", "it gave float64[10, 1]; it must give floats [10]"),
        (np.zeros(10, np.int64), "scalar", "it gave int64[10]; it must give floats [10]"),
        ([0.0] * 10, "scalar", "it gave list; it must give floats [10]"),
        (np.zeros(10), "scalar", ""),
        (np.zeros(2), "layer", ""),
    ],
)
def test_scores_are_one_a_scalar_or_one_a_layer(scores: Any, per: str, problem: str) -> None:
    assert scores_problem(scores, LAYOUT, per).startswith(problem)
    assert bool(scores_problem(scores, LAYOUT, per)) == bool(problem)


ZONES = ("encrypted", "noised", "clear", "retained")


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        ({"noised": 10}, "it set a dict as the client's plan; it must be a fedplug.Plan"),
        (Plan.single("noised", 9, ZONES), "its plan labels 9 scalars, but the model has 10"),
        (Plan.single("noised", 10, ("noised",)), "its plan knows the zones noised; it must be made with ctx.zones:"),
        (Plan.single("clear", 10, ZONES), "its plan puts scalars into zone clear, which its `plans` do not"),
        (Plan.single("retained", 10, ZONES), "its plan puts scalars into zone retained, which its `plans` do not name"),
        (Plan.of("noised", 10, ZONES), "its plan does not share zone noised, and its `plans` do not say so"),
        (Plan.single("noised", 10, ZONES), ""),
    ],
    ids=range(7),
)
def test_a_plan_is_of_the_model_and_its_zones_are_stated(plan: Any, problem: str) -> None:
    found = plan_problem(plan, LAYOUT, ZONES, Plans(zones=frozenset({"noised"})))
    assert found.startswith(problem)
    assert bool(found) == bool(problem)


# -- a chain -----------------------------------------------------------------------------------------------------------


def chained(plain: dict[str, Any], classes: dict[str, dict[str, type]], values: Any, **zones: list[Any]) -> Block:
    """What the first zone's links at a client make of values."""
    ((zone, chain), *_) = zones.items()
    post = {zone: ["std.ckks"]} if "std.ckks" in chain else {}
    catalog = Catalog.of(classes)
    changed = plain | {"protect": {"encrypted": [], "noised": [], zone: chain}, "postprocess": post}
    recipe = Recipe.from_plain(changed, catalog)
    composition = Composition(recipe)
    client = Client(client_id=0, plan=None)
    client.ctx = make_context(recipe, composition, Layout.of([("w", (len(values),))]), 0, client)
    block = Block(zone, len(values), np.asarray(values, np.float32))
    for step in client.ctx.steps(zone):
        if step.link.hook == "protect":
            block = run(composition, step, block, client.ctx, client=client)
    return block


CLIP, NOISE = {"use": "std.clip", "norm": 3}, {"use": "std.gaussian", "epsilon": 8}


def test_a_chain_hands_the_block_on_in_order(plain_recipe: dict[str, Any], fake_classes: Any) -> None:
    noised = chained(plain_recipe, fake_classes, [4.0], noised=[CLIP, NOISE])
    assert noised.plain().tolist() == [3.0]  # 4 / 2 + 1, and not (4 + 1) / 2
    sealed = chained(plain_recipe, fake_classes, [4.0], encrypted=[CLIP, "std.ckks"])
    assert (sealed.values, sealed.sealed_by) == (None, "std.ckks")
    assert np.frombuffer(sealed.ciphertexts[0], np.float32).tolist() == [-2.0]
    assert chained(plain_recipe, fake_classes, [4.0], noised=[]).plain().tolist() == [4.0]


class Doubles(fedplug.Protector):
    """Double, and say nothing of it."""

    def effects(self, known: Known, ctx: Context) -> Effects:
        return ()

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        return block.replace(values=block.plain() * 2)


def test_the_first_link_that_breaks_its_word_is_named(plain_recipe: dict[str, Any], fake_classes: Any) -> None:
    fake_classes["protect"]["acme.doubles"] = Doubles
    said = r"^component acme\.doubles, hook protect, zone noised: it states no change of the values, and changed them"
    with pytest.raises(ProtectionError, match=said):
        chained(plain_recipe, fake_classes, [4.0], noised=[CLIP, "acme.doubles", NOISE])


# -- whole runs --------------------------------------------------------------------------------------------------------


class Odd(fedplug.Protector):
    """Spoil the update of client 1 in the last round."""

    deed: ClassVar[Deed] = staticmethod(as_it_is)
    said: ClassVar[Effects | None] = ()

    def effects(self, known: Known, ctx: Context) -> Effects | None:
        return self.said

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Any:
        return type(self).deed(block) if client.client_id == 1 and ctx.round == ctx.rounds - 1 else block


class OddSum(fedplug.Aggregator):
    """Spoil the sum of the last round."""

    deed: ClassVar[Deed] = staticmethod(as_it_is)
    said: ClassVar[Effects] = (Adds(),)

    def sums(self, known: Known, ctx: Context) -> Effects:
        return self.said

    @hookimpl
    def aggregate(self, blocks: dict[int, Block], weights: dict[int, float], ctx: Context) -> Any:
        total = fedplug.add_blocks(blocks, weights, ctx)
        return type(self).deed(total) if ctx.round == ctx.rounds - 1 else total


class OddOpener(fedplug.Opener):
    """Spoil the sum of the last round, where its option says."""

    class Options(fedplug.Options):
        """Where."""

        at: str = "server"

    @property
    def site(self) -> Any:
        return self.options.at

    def opens(self, known: Known, ctx: Context) -> Effects:
        return (Changes(),)

    @hookimpl
    def postprocess(self, block: Block, ctx: Context) -> Block:
        return spoilt(block) if ctx.round == ctx.rounds - 1 else block


class OddPlan(fedplug.Negotiation):
    """Set a plan of another length."""

    plans = Plans(zones=frozenset({"clear"}))
    chosen: ClassVar[Any] = None

    @hookimpl
    def negotiate_mask(self, cohort: Cohort, ctx: Context) -> None:
        cohort.tell(self.choose)

    @at_client
    def choose(self, client: Client) -> None:
        client.plan = type(self).chosen(client.ctx)


class OddScores(fedplug.Scorer):
    """Score half of the model."""

    @hookimpl
    def score_parameters(self, client: Client, ctx: Context) -> Any:
        return np.zeros(ctx.layout.size // 2, np.float32)


PUSH = {"use": "toy.push", "scale": 0.01}


@pytest.fixture(autouse=True)
def _odd(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = {"protect": Odd, "aggregate": OddSum, "postprocess": OddOpener, "negotiate_mask": OddPlan,
            "score_parameters": OddScores}  # fmt: skip
    for group, found in mine.items():
        monkeypatch.setitem(toy_components.TOYS, group, {**toy_components.TOYS.get(group, {}), "toy.odd": found})


def ran(**changes: Any) -> Outcome:
    return run_protocol(recipe_of(train=PUSH, **changes))


def test_a_link_that_spoils_an_upload_costs_its_client_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Odd, "deed", staticmethod(spoilt))
    monkeypatch.setattr(Odd, "said", (Changes(),))
    outcome = ran(chain=[{"use": "toy.odd"}])
    assert [row.clients.answered for row in outcome.rows] == [4, 3]
    reason = outcome.rows[1].clients.dropped[1]
    said = "component toy.odd, hook protect, zone clear: it made 650 finite values of 650 NaN or infinite"
    assert reason.startswith(f"fedplug.protect: {said}")
    assert np.isfinite(outcome.vector).all()


def test_an_aggregate_that_is_not_finite_in_the_last_round_ends_the_run_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(OddSum, "deed", staticmethod(spoilt))
    with pytest.raises(ProtectionError) as caught:
        ran(aggregate={"use": "toy.odd"})
    said = "it made 650 of 650 values NaN or infinite of uploads that are finite"
    assert str(caught.value) == f"component toy.odd, hook aggregate, zone clear: {said}"


def test_a_mean_that_is_not_finite_moves_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every value of the sum is a number, and divided by next to nothing it is none."""
    monkeypatch.setattr(OddSum, "deed", staticmethod(lambda total: total.replace(divisor=1e-44)))
    monkeypatch.setattr(OddSum, "said", (Changes(), Adds()))
    outcome = ran(aggregate={"use": "toy.odd"})
    (note,) = outcome.notes
    assert note.startswith("round 2: zone clear is skipped: the mean of zone clear behind toy.odd (aggregate) has ")
    assert "of 650 values NaN or infinite" in note
    assert np.isfinite(outcome.vector).all()


@pytest.mark.parametrize("at", ["server", "client"])
def test_an_opener_that_spoils_the_last_sum_moves_no_model(at: str) -> None:
    outcome = ran(postprocess={"clear": [{"use": "toy.odd", "at": at}]})
    (note,) = outcome.notes
    said = "component toy.odd, hook postprocess, zone clear: it made 650 finite values of 650 NaN or infinite"
    assert said in note
    assert note.startswith({
        "server": "round 2: zone clear is skipped: ", "client": "client 0, 1, 2, 3 cannot open zone clear in round 2: ",
    }[at])  # fmt: skip
    assert np.isfinite(outcome.vector).all()


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (lambda ctx: Plan.single("clear", ctx.layout.size - 1, ctx.zones), "its plan labels 649 scalars, but the"),
        (lambda ctx: Plan.single("clear", ctx.layout.size, ("clear",)), "its plan knows the zones clear; it must be"),
        (lambda ctx: {"clear": ctx.layout.size}, "it set a dict as the client's plan; it must be a fedplug.Plan"),
    ],
    ids=["length", "zones", "type"],
)
def test_a_plan_that_cannot_be_stops_every_client_by_name(
    plan: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OddPlan, "chosen", staticmethod(plan))
    with pytest.raises(FedplugError) as caught:
        ran(negotiate_mask={"use": "toy.odd"})
    assert f"component toy.odd, hook negotiate_mask: {said}" in str(caught.value)


def test_scores_of_another_length_stop_every_client_by_name() -> None:
    with pytest.raises(FedplugError) as caught:
        ran(score_parameters=[{"use": "toy.odd"}])
    said = "it gave float32[325]; it must give floats [650], one score a scalar"
    assert f"component toy.odd, hook score_parameters: {said}" in str(caught.value)


@pytest.mark.parametrize("grid", [0.5, 2.0**-16, 4.0, 2.0**-140, 0.1])
@pytest.mark.parametrize("values", [[0], [1e30, 3], [1e-45], [0.25, 1.0], [0.4999999, 2**-17], [7 * 2**-16, 0.3]])
def test_multiples_of_a_grid_are_those_that_float64_finds(grid: float, values: list[float]) -> None:
    """Whether or not there is a faster way to see them."""
    given = np.resize(np.array(values, np.float32), 10)
    steps = given.astype(np.float64) / grid
    wrong = int((np.abs(steps - np.rint(steps)) > 1e-6 * np.maximum(1, np.abs(steps))).sum())
    said = passed((Rounding(grid),), as_it_is, block=BLOCK.replace(values=given))
    assert said == (f"it states multiples of {grid:g}, and {wrong} of 10 values are not" if wrong else "")
