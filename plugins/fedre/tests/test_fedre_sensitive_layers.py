"""Layers chosen by PSI scores: the choice, invalid ballots, and a hybrid run in which they are encrypted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from fedplug import Client, Facts, Layout
from fedplug.api.blocks import BASE_ZONES
from fedplug.api.errors import ProtectionError, RecipeError
from fedplug.recipe.recipe import Recipe
from fedplug_attacks.api.view import View
from fedplug_fedre.sensitive_layers import SensitiveLayers, ballot_problem, choose, layer_sizes, mean_scores
from fedplug_kit.static import check_component
from hypothesis import given
from hypothesis import strategies as st
from toy_components import recipe_of
from toy_protocol import run_protocol

LAYOUT = Layout.of([("a.weight", (4, 5)), ("b.weight", (30,)), ("a.bias", (5,)), ("c.weight", (45,))])
SIZES = np.array([25, 30, 45])


def component(**options: Any) -> SensitiveLayers:
    made = SensitiveLayers(SensitiveLayers.Options.model_validate(options))
    made.name = "fedre.sensitive_layers"
    return made


def client_with(**scores: Any) -> Client:
    client = Client(client_id=0, scores={name: np.array(values, np.float32) for name, values in scores.items()})
    client.facts = Facts(0, 2, LAYOUT, BASE_ZONES, 3, 2, 7, "")
    return client


def test_conforms() -> None:
    check_component("fedre.sensitive_layers")


# -- the choice --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "ratio", "layers", "chosen"),
    [
        ([1, 3, 2], 0.3, None, [1]),  # 30 of 100 scalars, exactly
        ([1, 3, 2], 0.31, None, [1, 2]),
        ([1, 3, 2], 0.76, None, [1, 2, 0]),
        ([1, 3, 2], 1.0, None, [1, 2, 0]),
        ([2, 2, 2], 0.2, None, [0]),  # of equal scores the first
        ([1, 3, 2], None, 2, [1, 2]),
        ([1, 3, 2], None, 9, [1, 2, 0]),
    ],
)
def test_worked_choices(scores: list[float], ratio: float | None, layers: int | None, chosen: list[int]) -> None:
    assert choose(np.array(scores, float), SIZES, ratio, layers).tolist() == chosen


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9), st.floats(1e-3, 1), st.randoms())
def test_the_share_is_reached_by_no_more_layers_than_it_takes(scores: Any, ratio: float, random: Any) -> None:
    sizes = np.array([random.randint(1, 1000) for _ in scores])
    chosen = choose(np.array(scores), sizes, ratio, None)
    total = sizes.sum()
    assert sizes[chosen].sum() >= ratio * total * (1 - 1e-9)
    assert sizes[chosen[:-1]].sum() < ratio * total
    left_out = np.setdiff1d(np.arange(len(scores)), chosen)
    assert min(np.array(scores)[chosen]) >= max(np.array(scores)[left_out], default=0)


def test_each_client_has_one_vote_to_divide() -> None:
    """A client whose scores are a thousand times larger does not decide alone."""
    ballots = [np.array([1, 2, 1], np.float32), np.array([1, 2, 1], np.float32), np.array([9000, 500, 500], np.float32)]
    assert mean_scores(ballots, 3).tolist() == pytest.approx([1.4 / 3, 1.05 / 3, 0.55 / 3])
    assert mean_scores(ballots, 3).sum() == pytest.approx(1)
    assert mean_scores([], 2).tolist() == [0, 0]


def test_sizes_of_layers() -> None:
    assert layer_sizes(LAYOUT).tolist() == SIZES.tolist()


# -- at the client -----------------------------------------------------------------------------------------------------


def test_the_plan_holds_whole_layers() -> None:
    client = client_with(psi=[1, 3, 2])
    component(ratio=0.3).adopt(client, np.array([0]))
    assert client.plan is not None
    assert client.plan.sizes() == {"encrypted": 25, "noised": 75, "retained": 0, "clear": 0}
    assert client.plan.positions("encrypted").tolist() == [*range(20), *range(50, 55)]
    component(layers=1, other_zone="clear").adopt(client, np.array([1]))
    assert client.plan.sizes()["clear"] == 70


def test_the_ballot_is_what_the_scorer_says() -> None:
    client = client_with(first=[1, 3, 2], other=[5, 0, 1])
    assert component(layers=1).score(client).tolist() == [1, 3, 2]
    assert component(layers=1, by="other").score(client).tolist() == [5, 0, 1]
    with pytest.raises(ProtectionError, match="gives 100 scores where one for each of 3 layers is needed"):
        component(layers=1).score(client_with(magnitude=np.ones(100)))


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ballot", "problem"),
    [
        ([1.0, 2.0, 3.0], "is not one score for each of 3 layers"),
        (np.ones(4), "is not one score for each of 3 layers"),
        (np.ones(3, np.int64), "is not one score for each of 3 layers"),
        (np.array([1.0, math.nan, 1]), "are not finite, or negative, or all 0"),
        (np.array([1.0, -1, 1]), "are not finite, or negative, or all 0"),
        (np.zeros(3), "are not finite, or negative, or all 0"),
    ],
)
def test_ballots_that_cannot_be(ballot: Any, problem: str) -> None:
    assert problem in ballot_problem(ballot, 3)
    assert ballot_problem(np.array([0, 1, 2], np.float32), 3) == ""


PSI = {"use": "fedre.psi", "preference": {"box": [2, 2, 6, 6]}, "samples": 2}
BUDGETS = {"use": "fedre.layer_budgets", "epsilon": 50, "delta": 1e-5, "norm": 0.2, "source": "reproducible"}


def recipe(chosen: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """The layers that FedRE finds most sensitive encrypted, the others noised by budget, PDA-PAM at the server."""
    plain = recipe_of(
        model={"use": "std.mlp", "hidden": [8, 6]}, score_parameters=[PSI],
        negotiate_mask={"use": "fedre.sensitive_layers", **(chosen or {"layers": 1})},
        protect={"encrypted": [{"use": "std.bfv"}], "noised": [BUDGETS]},
        aggregate={"use": "fedre.pda_pam", "preference": PSI["preference"], "samples": 2},
        postprocess={"encrypted": ["std.bfv"]},
    )  # fmt: skip
    plain["data"] = {**plain["data"], "public": 16}
    return plain | changes


@pytest.mark.parametrize(
    ("chosen", "changes", "problem"),
    [
        ({"ratio": 0.0}, {}, "ratio=0.0 must be > 0"),
        ({"ratio": 1.1}, {}, "ratio=1.1 must be <= 1"),
        ({"layers": 0}, {}, "layers=0 must be >= 1"),
        ({"layers": 1, "ratio": 0.5}, {}, "both of ratio and layers given; write ratio: 0.3, or layers: 2"),
        ({"other_zone": "noised"}, {}, "neither of ratio and layers given"),
        ({"layers": 1, "other_zone": "retained"}, {"protect": {"encrypted": [{"use": "std.bfv"}]}},
         "other_zone: retained must be a zone that is sent and not encrypted"),
        ({"layers": 1, "by": "nobody"}, {}, "'nobody' is not a scorer of this recipe"),
        ({"layers": 1}, {"score_parameters": []}, "the choice of layers needs scores"),
    ],
)  # fmt: skip
def test_a_recipe_that_cannot_hold_is_refused(chosen: dict[str, Any], changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(RecipeError) as error:
        Recipe.from_plain(recipe(chosen, **changes))
    assert problem in str(error.value)


# -- in a run ----------------------------------------------------------------------------------------------------------


def test_the_most_sensitive_layer_travels_encrypted_and_the_others_are_weighed() -> None:
    outcome = run_protocol(recipe(rounds=1))
    row = outcome.rows[0]
    uploads = [upload for _, _, upload in _uploads(outcome)]
    assert len(uploads) == 4
    sealed = {upload["encrypted"].size for upload in uploads}
    assert sealed <= {64 * 8 + 8, 8 * 6 + 6, 6 * 10 + 10}  # a whole layer
    for upload in uploads:
        assert upload["encrypted"].values is None
        assert upload["encrypted"].positions is None
        noised = upload["noised"]
        assert noised.size + upload["encrypted"].size == 520 + 54 + 70
        assert len(noised.positions) == noised.size  # the server must know which layers it weighs
    assert row.log["fedre.sensitive_layers.layers"] == 1
    assert row.log["fedre.pda_pam.scored_layers"] == pytest.approx(2 / 3)
    assert outcome.protocol.ledger.costs["noised"].own[0] > 0
    again = run_protocol(recipe(rounds=1))
    assert np.array_equal(again.vector, outcome.vector)


def test_a_faulty_ballot_costs_its_client_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = SensitiveLayers.score

    def faulty(self: SensitiveLayers, client: Client) -> Any:
        return np.full(3, np.nan, np.float32) if client.client_id == 2 else whole(self, client)

    faulty.__fedplug_site__ = "client"  # type: ignore[attr-defined]
    faulty.__name__ = "score"
    monkeypatch.setattr(SensitiveLayers, "score", faulty)
    outcome = run_protocol(recipe(rounds=1))
    dropped = outcome.rows[0].clients.dropped
    assert list(dropped) == [2]
    assert "its scores are not finite" in str(dropped)


def _uploads(outcome: Any) -> list[Any]:
    """(round, client id, blocks by zone) of every upload, as the server saw it."""
    return list(View("server", tuple(outcome.wire.messages)).uploads())
