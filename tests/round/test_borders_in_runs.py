"""In a chain and in a whole run, the component that spoils values is named, and the model stays finite."""

from __future__ import annotations

from typing import Any, ClassVar

import fedplug
import numpy as np
import pytest
import toy_components
from border_toys import Deed, as_it_is, spoilt
from fedplug import (
    Block,
    Client,
    Cohort,
    Combine,
    Facts,
    Known,
    Layout,
    Map,
    Operations,
    Plan,
    Plans,
    Reveals,
    at_client,
)
from fedplug.api.errors import FedplugError, ProtectionError
from fedplug.mechanisms.execution import execute
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.base import facts_of
from toy_components import recipe_of
from toy_protocol import Outcome, run_protocol

# -- a chain -----------------------------------------------------------------------------------------------------------


def chained(plain: dict[str, Any], classes: dict[str, dict[str, type]], values: Any, **zones: list[Any]) -> Block:
    """The result of the first zone's links at a client on values."""
    ((zone, chain), *_) = zones.items()
    post = {zone: ["std.ckks"]} if "std.ckks" in chain else {}
    catalog = Catalog.of(classes)
    changed = plain | {"protect": {"encrypted": [], "noised": [], zone: chain}, "postprocess": post}
    recipe = Recipe.from_plain(changed, catalog)
    composition = Composition(recipe)
    client = Client(client_id=0, plan=None)
    client.facts = facts_of(composition, Layout.of([("w", (len(values),))]), 0)
    block = Block(zone, len(values), np.asarray(values, np.float32))
    for step in client.facts.steps(zone):
        if step.link.hook == "protect":
            block = execute(step, block, client, client.facts)
    return block


CLIP, NOISE = {"use": "std.clip", "norm": 3}, {"use": "std.gaussian", "epsilon": 8}


def test_a_chain_hands_the_block_on_in_order(plain_recipe: dict[str, Any], fake_classes: Any) -> None:
    clipped = chained(plain_recipe, fake_classes, [4.0], noised=[CLIP])
    assert clipped.plain() == pytest.approx([3.0], rel=1e-6)
    noised = chained(plain_recipe, fake_classes, np.full(10_000, 4.0), noised=[CLIP, NOISE])
    assert noised.plain().std() == pytest.approx(3.0, rel=0.1)  # scaled to the bound, and not clipped after the noise
    sealed = chained(plain_recipe, fake_classes, [4.0], encrypted=[CLIP, "std.ckks"])
    assert (sealed.values, sealed.sealed_by) == (None, "std.ckks")
    assert np.frombuffer(sealed.ciphertexts[0]) == pytest.approx([-3.0], rel=1e-6)
    assert chained(plain_recipe, fake_classes, [4.0], noised=[]).plain().tolist() == [4.0]


# -- whole runs --------------------------------------------------------------------------------------------------------


class Odd(fedplug.Protector):
    """Spoil the update of client 1 in the last round."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Map(self.spoil),)

    def spoil(self, block: Block, client: Client, facts: Facts) -> Block:
        return spoilt(block) if client.client_id == 1 and facts.round == facts.rounds - 1 else block


class OddSum(fedplug.Aggregator):
    """Spoil the sum of the last round."""

    deed: ClassVar[Deed] = staticmethod(as_it_is)

    def aggregate(self, known: Known, facts: Facts) -> Operations:
        return (Combine(self.add),)

    def add(self, blocks: dict[int, Block], weights: dict[int, float], facts: Facts) -> Any:
        mean = np.mean([blocks[c].plain() * np.float32(weights[c]) for c in sorted(blocks)], axis=0)
        total = blocks[min(blocks)].replace(values=mean, divisor=1.0, contributors=len(blocks))
        return type(self).deed(total) if facts.round == facts.rounds - 1 else total


class OddOpener(fedplug.Opener):
    """Spoil the sum of the last round, where its option says."""

    class Options(fedplug.Options):
        """Where."""

        at: str = "server"

    @property
    def site(self) -> Any:
        return self.options.at

    def postprocess(self, known: Known, facts: Facts) -> Operations:
        return (Map(lambda block, party, facts: spoilt(block) if facts.round == facts.rounds - 1 else block),)


class OddPlan(fedplug.Negotiation):
    """Set a plan of another length."""

    plans = Plans(zones=frozenset({"clear"}))
    chosen: ClassVar[Any] = None

    def reveals(self, facts: Facts) -> list[Reveals]:
        return []

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        cohort.tell(self.choose)

    @at_client
    def choose(self, client: Client) -> None:
        client.plan = type(self).chosen(client.facts)


class OddScores(fedplug.Scorer):
    """Score half of the model."""

    def score_parameters(self, client: Client, facts: Facts) -> Any:
        return np.zeros(facts.layout.size // 2, np.float32)


PUSH = {"use": "toy.push", "scale": 0.01}


@pytest.fixture(autouse=True)
def _odd(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = {"protect": Odd, "aggregate": OddSum, "postprocess": OddOpener, "negotiate_mask": OddPlan,
            "score_parameters": OddScores}  # fmt: skip
    for group, found in mine.items():
        monkeypatch.setitem(toy_components.TOYS, group, {**toy_components.TOYS.get(group, {}), "toy.odd": found})


def ran(**changes: Any) -> Outcome:
    return run_protocol(recipe_of(train=PUSH, **changes))


def test_a_link_that_spoils_an_upload_costs_its_client_the_round() -> None:
    outcome = ran(chain=[{"use": "toy.odd"}])
    assert [row.clients.answered for row in outcome.rows] == [4, 3]
    reason = outcome.rows[1].clients.dropped[1]
    said = "component toy.odd, hook protect, zone clear, Map: it made 650 finite values of 650 NaN or infinite"
    assert reason.startswith(f"fedplug.protect: {said}")
    assert np.isfinite(outcome.vector).all()


def test_an_aggregate_that_is_not_finite_in_the_last_round_ends_the_run_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(OddSum, "deed", staticmethod(spoilt))
    with pytest.raises(ProtectionError) as caught:
        ran(aggregate={"use": "toy.odd"})
    said = "it made 650 of 650 values NaN or infinite of uploads that are finite"
    assert str(caught.value) == f"component toy.odd, hook aggregate, zone clear, Combine: {said}"


def test_a_mean_that_is_not_finite_moves_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every value of the sum is a number, but not after a division by almost 0."""
    monkeypatch.setattr(OddSum, "deed", staticmethod(lambda total: total.replace(divisor=1e-44)))
    outcome = ran(aggregate={"use": "toy.odd"})
    (note,) = outcome.notes
    assert note.startswith("round 2: zone clear is skipped: the mean of zone clear behind toy.odd (aggregate) has ")
    assert "of 650 values NaN or infinite" in note
    assert np.isfinite(outcome.vector).all()


@pytest.mark.parametrize("at", ["server", "client"])
def test_an_opener_that_spoils_the_last_sum_moves_no_model(at: str) -> None:
    outcome = ran(postprocess={"clear": [{"use": "toy.odd", "at": at}]})
    (note,) = outcome.notes
    said = "component toy.odd, hook postprocess, zone clear, Map: it made 650 finite values of 650 NaN or infinite"
    assert said in note
    assert note.startswith({
        "server": "round 2: zone clear is skipped: ", "client": "client 0, 1, 2, 3 cannot open zone clear in round 2: ",
    }[at])  # fmt: skip
    assert np.isfinite(outcome.vector).all()


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (lambda facts: Plan.single("clear", facts.layout.size - 1, facts.zones), "its plan labels 649 scalars, but"),
        (lambda facts: Plan.single("clear", facts.layout.size, ("clear",)), "its plan knows the zones clear; it must"),
        (lambda facts: {"clear": facts.layout.size}, "it set a dict as the client's plan; it must be a fedplug.Plan"),
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


def test_plans_that_are_said_to_be_fixed_and_move_stop_every_client_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OddPlan, "plans", Plans(zones=frozenset({"clear", "retained"}), fixed=True))

    def moving(facts: Facts) -> Plan:
        retained = np.arange(facts.layout.size) < facts.round
        return Plan.of(facts, "clear", retained=retained)

    monkeypatch.setattr(OddPlan, "chosen", staticmethod(moving))
    with pytest.raises(FedplugError) as caught:
        ran(negotiate_mask={"use": "toy.odd"})
    assert "component toy.odd, hook negotiate_mask: it moved 1 scalars of client 0 to another zone" in str(caught.value)


def test_scores_of_another_length_stop_every_client_by_name() -> None:
    with pytest.raises(FedplugError) as caught:
        ran(score_parameters=[{"use": "toy.odd"}])
    said = "it gave float32[325]; it must give floats [650], one score a scalar"
    assert f"component toy.odd, hook score_parameters: {said}" in str(caught.value)
