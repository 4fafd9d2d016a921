"""What is said to be shown, round by round; who may publish and release; and what no word of an author can lift."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import (
    Client,
    Clip,
    Cohort,
    Facts,
    Known,
    Noise,
    Operations,
    Plan,
    Plans,
    Reveals,
    Scale,
    Shift,
    WeightedSum,
    at_client,
)
from fedplug.api import grids
from fedplug.api.errors import PluginError
from fedplug.api.operations import Bound, Map
from fedplug.round.world import assignment_problem
from fedplug_ledger.verdict import Line
from mix_toys import install
from toy_base import Toy
from toy_components import recipe_of
from toy_protocol import Outcome, run_protocol

CLIP = {"use": "std.clip", "norm": 1.0}
NOISED = Plans(zones=frozenset({"noised"}))


def noise(multiplier: float) -> dict[str, Any]:
    return {"use": "std.gaussian", "noise_multiplier": multiplier}


def views(outcome: Outcome) -> Mapping[str, Line]:
    return outcome.protocol.ledger.report().views


class Talks(Toy, fedplug.Negotiation):
    """Everything in one zone; what else it does is a test's."""

    plans = NOISED

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        cohort.tell(self.take)

    @at_client
    def take(self, client: Client) -> None:
        client.plan = Plan.of(client.facts, "noised")

    def reveals(self, facts: Facts) -> Sequence[Reveals]:
        return []


def run(monkeypatch: pytest.MonkeyPatch, kind: type, **changes: Any) -> Outcome:
    install(monkeypatch, {"negotiate_mask": {"toy.talks": kind}})
    return run_protocol(
        recipe_of("noised", [CLIP, noise(2.0)], **{"negotiate_mask": {"use": "toy.talks"}, **changes})
    )


# -- statements --------------------------------------------------------------------------------------------------------


class ShowsLater(Talks):
    """Says only of the second round that it shows something."""

    def reveals(self, facts: Facts) -> Sequence[Reveals]:
        return [Reveals("classes", ("server",), voids=True, note="all")] if facts.round == 1 else []


def test_what_is_shown_in_any_round_is_in_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = run(monkeypatch, ShowsLater)
    assert views(outcome)["server"].state == "none"
    assert "classes" in views(outcome)["server"].detail
    assert views(outcome)["client"].state == "guaranteed"


@pytest.mark.parametrize("given", [None, "loss", [("loss", "server")]])
def test_what_is_no_statement_names_the_component(given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Talks, "reveals", lambda self, facts: given)
    with pytest.raises(PluginError, match=r"component toy\.talks, reveals: .*give a list of Reveals"):
        run(monkeypatch, Talks)


class Halves(Talks):
    """Two zones, by a vote of which nothing is said."""

    plans = Plans(zones=frozenset({"noised", "clear"}))
    says: tuple[Reveals, ...] = ()

    def reveals(self, facts: Facts) -> Sequence[Reveals]:
        return self.says


@pytest.mark.parametrize(("what", "speaks"), [("loss", False), ("mask", True), ("masks", True)])
def test_only_a_statement_called_a_mask_speaks_for_plans(
    what: str, speaks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Halves, "says", (Reveals(what, ("server",), note="by the way"),))
    outcome = run(monkeypatch, Halves, protect={"noised": [CLIP, noise(2.0)], "clear": [CLIP, noise(2.0)]})
    assert any(shown.what == "plans of clients" for shown in outcome.protocol.ledger.reveals) is not speaks


@pytest.mark.parametrize(("other", "alike"), [(2.0, True), (3.0, False)])
def test_unlike_noise_shows_which_scalar_is_where(other: float, alike: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = run(monkeypatch, Halves, protect={"noised": [CLIP, noise(2.0)], "clear": [CLIP, noise(other)]})
    assert any(shown.what == "mask" for shown in outcome.protocol.ledger.reveals) is not alike


def test_every_component_of_ones_own_that_may_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = run(monkeypatch, Talks)
    assert "on the word of toy.talks" in views(outcome)["released_model"].rests_on


# -- publishing --------------------------------------------------------------------------------------------------------


class PublishesAs(Talks):
    """Publishes in the name of another, or on nobody's account."""

    whose: Callable[[Any, Facts], Any] = staticmethod(lambda self, facts: facts.component("std.clip"))
    covered_by: Any = "nothing to pay"

    def prepare(self, cohort: Cohort, facts: Facts) -> None:
        cohort.publish(self.whose(self, facts), {"norm": 1.0}, covered_by=self.covered_by)


def test_nobody_publishes_in_the_name_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PluginError, match=r"std\.clip publishes by a cohort that toy\.talks was handed"):
        run(monkeypatch, PublishesAs)


def test_nothing_pays_under_another_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PublishesAs, "whose", staticmethod(lambda self, facts: self))
    monkeypatch.setattr(PublishesAs, "covered_by", "epsilom")
    with pytest.raises(PluginError, match=r"covered_by='epsilom'.*must be None, 'epsilon', 'nothing to pay'"):
        run(monkeypatch, PublishesAs)


# -- ballots -----------------------------------------------------------------------------------------------------------


class Votes(Talks, fedplug.Ballots):
    """Ballots with noise."""

    at: str = "negotiate"

    def ballots(self, facts: Facts) -> Operations:
        return Clip(1.0), Noise.gaussian(9.0)

    def reveals(self, facts: Facts) -> Sequence[Reveals]:
        return [Reveals("votes", ("server",), covered_by="epsilon", asked=("vote",))]

    def setup(self, cohort: Cohort, key_server: Any, facts: Facts) -> None:
        if self.at == "setup":
            cohort.ask(self.vote)

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        if self.at == "negotiate":
            cohort.ask(self.vote)
        super().negotiate_mask(cohort, facts)

    @at_client
    def vote(self, client: Client) -> Any:
        released = client.release(self, np.ones(3, np.float32))
        with pytest.raises(ValueError, match="read-only"):
            released[:] = 1.0
        return released


def test_a_ballot_is_released_once_a_round_and_nobody_writes_into_it(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = run(monkeypatch, Votes)
    assert ["ballots of toy.talks" in entry.zones for entry in outcome.protocol.ledger.log] == [True, False] * 2


def test_no_ballot_is_released_in_the_set_up_for_which_nobody_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Votes, "at", "setup")
    with pytest.raises(fedplug.FedplugError, match=r"releases ballots in the set-up, where nobody pays for them"):
        run(monkeypatch, Votes)


class Counts(Talks, fedplug.Ballots):
    """The server adds the noise."""

    whose: Callable[[list[int]], Any] = staticmethod(lambda ids: dict.fromkeys(ids, 1.0))

    def ballots(self, facts: Facts) -> Operations:
        return Clip(1.0), Noise.gaussian(9.0, trust="central")

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        cohort.server.release(self, self.whose(cohort.client_ids))
        super().negotiate_mask(cohort, facts)


@pytest.mark.parametrize(
    ("whose", "problem"),
    [
        (lambda ids: dict.fromkeys([*ids, 1000], 1.0), r"in round 1, where client 1000 does not pay"),
        (lambda ids: np.ones(3, np.float32), r"the server releases values by client, as a dict"),
    ],
)
def test_the_server_releases_values_of_clients_that_pay(
    whose: Any, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(monkeypatch, Counts)
    monkeypatch.setattr(Counts, "whose", staticmethod(whose))
    with pytest.raises(fedplug.FedplugError, match=problem):
        run(monkeypatch, Counts)


# -- bounds ------------------------------------------------------------------------------------------------------------


def behind(*operations: Any, layers: tuple[int, ...] = (4, 4), **facts: Any) -> Known:
    return Known(zone="noised", link="this", layers=layers, **facts).after(*operations)


@pytest.mark.parametrize("factor", [2.0**61, -(2.0**61), 2.0**-61, math.inf])
def test_a_scale_that_float32_may_not_hold_leaves_no_bound(factor: float) -> None:
    assert behind(Clip(1.0), Scale(factor)).norm() is None
    assert behind(Clip(1.0), Scale(2.0**60)).norm() == 2.0**60
    assert behind(Clip(1.0), Scale(0.0)).norm() == 0.0


def test_no_bound_holds_of_values_that_float32_rounds_to_its_last_steps() -> None:
    """Of 16 values of 0.6 steps each becomes a whole one: the norm doubles almost, and a scale may bring it back."""
    steps = np.full(16, 0.6 * 2.0**-149).astype(np.float32).astype(np.float64)
    assert np.linalg.norm(steps) > 1.6 * np.linalg.norm(np.full(16, 0.6 * 2.0**-149))
    down, up = Scale(2.0**-60), Scale(2.0**60)
    assert behind(Clip(1.0), down, down, up, up).norm() is None
    assert behind(Clip(2.0**-148), up).norm() is None
    assert behind(Clip(1.0), down, up).norm() == 1.0


def test_noise_on_a_sum_is_measured_by_nothing_behind_a_vector() -> None:
    """Next to a model of 1e8 neighbouring sums of norm 1 lie 200 apart in float32."""
    for shift in (Shift(lambda facts: np.zeros(8, np.float32)), Shift.model(1)):
        assert behind(Clip(1.0), WeightedSum(), shift).sensitivity() is None


def test_noise_counts_for_nothing_where_a_client_has_the_sum_and_its_data_in_hand() -> None:
    change = Map(lambda block, party, facts: block)
    summed = behind(Clip(1.0), Noise.gaussian(2.0), WeightedSum())
    assert [len(summed.releases), len(summed.after(change).releases)] == [1, 1]
    at_client = fedplug.Known(**{**vars(summed), "at_client": True})
    assert at_client.after(change).releases == ()


def test_numbers_of_numpy_are_numbers() -> None:
    one = behind(Clip(np.float32(1.0)), Noise.gaussian(np.float32(2.0)))  # type: ignore[arg-type]
    assert one.releases == behind(Clip(1.0), Noise.gaussian(2.0)).releases
    assert type(Clip(np.float32(1.0)).norm) is float  # type: ignore[arg-type]


def test_a_norm_of_each_layer_says_nothing_before_the_layers_are_known() -> None:
    each = Clip(1.0, per="layer")
    assert math.isnan(behind(each, Noise.gaussian(1.0), layers=()).releases[-1].noise_multiplier)
    assert behind(each, Noise.gaussian(1.0)).releases[-1].noise_multiplier == pytest.approx(1 / math.sqrt(2))
    assert behind(Clip((3.0, 4.0), per="layer"), layers=()).norm() == 5.0
    assert behind(each, layers=()).bounds == (Bound(1.0, per="layer"),)


@pytest.mark.parametrize("grid", [math.inf, math.nan, -1.0, 3.0])
def test_a_grid_is_a_power_of_two(grid: float) -> None:
    with pytest.raises(ValueError, match="must be a power of two, such as"):
        grids.power_of_two(grid)


# -- examples ----------------------------------------------------------------------------------------------------------


def rows(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


@pytest.mark.parametrize(
    ("assignment", "problem"),
    [
        ([rows(0, 1), rows(2, 3)], ""),
        ([rows(0, 1), rows(1, 2)], r"example 1 to the clients [0, 1]"),
        ([rows(0, 0), rows(1, 2)], r"example 0 to the clients [0]"),
        ([rows(0), rows(4)], "indices from 0 to 4, and there are 4"),
        ([rows(0)], "must give a list of 2 arrays"),
        ([rows(0), [1]], "it gave client 1 a list"),
    ],
)
def test_an_example_belongs_to_one_client(assignment: Any, problem: str) -> None:
    found = assignment_problem(assignment, 2, 4)
    assert problem in found
    assert bool(found) is bool(problem)


def test_a_partition_that_gives_an_example_twice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Twice(Toy, fedplug.Partition):
        """Everything to everybody."""

        def assign(self, labels: Any, num_clients: int, rng: Any) -> list[Any]:
            return [np.arange(len(labels))] * num_clients

    install(monkeypatch, {"partition": {"toy.twice": Twice}})
    recipe = recipe_of("noised", [CLIP, noise(2.0)])
    data = {**recipe["data"], "partition": {"use": "toy.twice"}}
    with pytest.raises(PluginError, match=r"component toy\.twice, assign: .*it gave example 0 to the clients"):
        run_protocol({**recipe, "data": data})
