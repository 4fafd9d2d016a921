"""Budgets of layers: what is refused, and the cost of a run."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fedplug
import numpy as np
import pytest
from attack_toys import Runs, observed
from budget_toys import DELTA, LAYOUT, SCORES, client_with, layer_budgets, protect
from fedplug import Client, Clip, Facts, Field, Known, Misplaced, Noise, Scoring, gaussian_epsilon
from fedplug.api.errors import ProtectionError, RecipeError, TooFewClients
from fedplug.mechanisms.execution import _Execution
from fedplug.recipe.recipe import Recipe
from fedplug_fedre.budgets import budgets, floored, released_multiplier
from fedplug_ledger.ledger import Ledger
from fedplug_std.gaussian import CentralGaussian
from toy_components import TOYS, recipe_of
from toy_protocol import run_protocol

# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "problem"),
    [
        (np.ones(LAYOUT.size), "psi gives 10000 scores where one for each of 3 layers is needed; add {use: fedre.psi}"),
        ([1, math.nan, 2], "1 of 3 layer scores are NaN"),
        ([0, 0, 0], "all 3 layer scores are 0"),
    ],
)
def test_scores_that_are_none_of_layers(scores: Any, problem: str) -> None:
    with pytest.raises(ProtectionError, match=problem):
        protect(layer_budgets(), client_with(scores), np.zeros(LAYOUT.size))


def test_an_update_that_is_not_finite_is_not_sent() -> None:
    values = np.zeros(LAYOUT.size)
    values[:2] = math.nan, math.inf
    with pytest.raises(ProtectionError, match=r"holds 2 NaN or infinite values.*lower lr in train"):
        protect(layer_budgets(), client_with(), values)


def test_the_scorer_can_be_named() -> None:
    client = client_with(np.ones(LAYOUT.size), other=SCORES)
    found = protect(layer_budgets(by="other"), client, np.zeros(LAYOUT.size)).plain()
    assert np.array_equal(found, protect(layer_budgets(), client_with(), np.zeros(LAYOUT.size)).plain())


@pytest.mark.parametrize(
    ("norm", "problem"),
    [
        ({"a": 1, "b": 1, "c": 1, "d": 1}, "names no layer: d; the model has the layers a, b, c"),
        ({"a": 1, "c": 1}, "leaves out: b; .* or some and others"),
    ],
)
def test_norms_that_do_not_fit_the_model(norm: Any, problem: str) -> None:
    with pytest.raises(ProtectionError, match=problem):
        layer_budgets(norm=norm).setup(None, None, client_with().facts)  # type: ignore[arg-type]
    layer_budgets(norm={"b": 2, "others": 1}).setup(None, None, client_with().facts)  # type: ignore[arg-type]


PSI = {"use": "fedre.psi", "preference": {"box": [2, 2, 6, 6]}, "samples": 2}
OURS = {"use": "fedre.layer_budgets", "epsilon": 10, "delta": DELTA, "norm": 0.1, "source": "reproducible"}


def recipe(chain: list[Any], **changes: Any) -> dict[str, Any]:
    plain = recipe_of("noised", chain, score_parameters=[PSI])
    plain["data"] = {**plain["data"], "public": 16}
    plain["model"] = {"use": "std.mlp", "hidden": [8]}
    return plain | changes


@pytest.mark.parametrize(
    ("chain", "changes", "problem"),
    [
        ([OURS], {"score_parameters": []}, "layer budgets need scores; add score_parameters: [{use: fedre.psi}]"),
        ([OURS | {"by": "nobody"}], {}, "'nobody' is not a scorer of this recipe"),
        ([OURS | {"figure_client": 4}], {}, "figure_client=4 must be < data.clients=4"),
        ([OURS | {"epsilon": 1e13, "source": "exact"}], {}, "must be at most std / 2^15"),
        ([OURS | {"epsilon": 0}], {}, "epsilon=0 must be > 0; to switch the noise off, write noised: []"),
        ([OURS | {"delta": 1}], {}, "delta=1 must be < 1"),
        ([OURS | {"norm": 0}], {}, "norm=0 must be > 0"),
        ([OURS | {"norm": {"fc1": -1}}], {}, "norm.fc1=-1 must be > 0"),
        ([OURS | {"norm": {}}], {}, "at least 1"),
        ([{"use": "std.clip", "norm": 1}, OURS], {}, "clips each layer itself; leave std.clip out and write norm"),
        ([{"use": "fedre.layer_budgets", "name": "once"} | OURS, OURS], {}, "has noise already"),
        ([{"use": "std.bfv"}, OURS], {}, "must not come after encryption in the chain of zone noised"),
    ],
)  # fmt: skip
def test_a_recipe_that_cannot_hold_is_refused(chain: list[Any], changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(RecipeError) as error:
        Recipe.from_plain(recipe(chain, **changes))
    assert problem in str(error.value)


def test_norms_of_layers_are_not_the_norm_of_the_update() -> None:
    """Noise on the sum, scaled to the norm of one of nine layers, would be a third of what all of them need."""
    layers, per_layer = (10,) * 9, Clip((0.1,) * 9, per="layer")
    central = CentralGaussian(CentralGaussian.Options(norm=0.1, noise_multiplier=1.0))
    central.name = "std.central_gaussian"
    for clip in (per_layer, Clip(0.1, per="layer")):
        known = Known(zone="noised", link=central.name, layers=layers).after(clip)
        assert known.norm() == pytest.approx(0.3)
        with pytest.raises(Misplaced, match=r"is clipped to 0\.3, but its noise is scaled to norm=0\.1"):
            central.postprocess(known, client_with().facts)


# -- in a run ----------------------------------------------------------------------------------------------------------


def test_central_noise_is_scaled_to_the_norm_of_all_layers_together() -> None:
    """Two layers of norm 0.1 each. The run stops before round 1 and names the norm to write. With that norm it runs."""
    noise = {"use": "std.central_gaussian", "noise_multiplier": 1, "source": "reproducible"}
    with pytest.raises(Misplaced) as stopped:
        run_protocol(recipe([OURS], postprocess={"noised": [noise | {"norm": 0.1}]}))
    assert "is clipped to 0.141421, but its noise is scaled to norm=0.1" in str(stopped.value)
    norm = re.search(r"write norm: ([\d.]+) here, or let fedre.layer_budgets", str(stopped.value))
    assert norm
    outcome = run_protocol(recipe([OURS], postprocess={"noised": [noise | {"norm": float(norm[1])}]}))
    assert [release.link for release in outcome.protocol.ledger.log[0].zones["noised"].releases] == [
        "fedre.layer_budgets",
        "std.central_gaussian",
    ]


def test_a_run_costs_epsilon_whatever_the_scores_are() -> None:
    outcome = run_protocol(recipe([OURS]))
    assert outcome.protocol.ledger.epsilon() == pytest.approx(10)
    assert outcome.rows[0].log["fedre.layer_budgets.snr_min"] > 0


def multipliers(ledger: Ledger) -> list[float]:
    return [release.noise_multiplier for entry in ledger.log for release in entry.zones["noised"].releases]


@pytest.mark.parametrize("allocation", ["sum", "as_published"])
def test_the_ledger_states_what_the_layers_of_a_run_cost_together(allocation: str) -> None:
    """The server computes the public scores of each round. The cost is that of the noise that clients added."""
    seen: list[tuple[int, float]] = []
    with watched_scores() as scores:
        outcome = run_protocol(recipe([OURS | {"allocation": allocation}]))
    for round, one in scores:
        seen.append((round, budgets(one, 10, DELTA, 2, allocation, 2).multiplier))  # type: ignore[arg-type]
    found, bound = multipliers(outcome.protocol.ledger), released_multiplier(10, DELTA, 2, allocation, 2)  # type: ignore[arg-type]
    assert len(found) == 2
    assert len(seen) == 2 * 4
    for round, true in seen:
        assert found[round] == pytest.approx(true * (1 - 1e-3), rel=1e-9)
        assert found[round] > 1.01 * bound
    rates = [1 / multiplier**2 for multiplier in found]
    assert outcome.protocol.ledger.epsilon() == pytest.approx(gaussian_epsilon(sum(rates) ** -0.5, DELTA))


@pytest.mark.parametrize("round", [1, 2])
def test_a_party_that_reads_uploads_knows_the_noise_of_each_layer(tmp_path: Path, round: int) -> None:
    """The noise follows from public scores of the model that the round started from. So do the norms of the clips."""
    plain = recipe([OURS])
    known, _ = observed(Runs(tmp_path).of(plain), "server", 1, round)
    assert known.update is not None
    assert known.vector is not None
    with watched_scores() as scores:
        run_protocol(plain)
    share = budgets(next(one for at, one in scores if at == round - 1), 10, DELTA, 2, "exact", 2)
    for sigma, layer in zip((0.1 * share.sigmas).tolist(), known.update.layout.layer_slices().values(), strict=True):
        for part in layer:
            assert known.update.sigma[part] == pytest.approx(sigma, rel=1e-5)


class TwoFaced(fedplug.Scorer):
    """States that all layers count alike, and scores them so by default."""

    scoring = Scoring(per="layer", public=True)

    class Options(fedplug.Options):
        """The scores of the clients."""

        first: float = Field(1.0, description="the first layer's score at the clients")

    def score_parameters(self, client: Client, facts: Facts) -> Any:
        scores = np.ones(len(facts.layout.layers), np.float32)
        scores[0] = self.options.first
        return scores

    def public_scores(self, model: Any, vector: Any, facts: Facts) -> dict[int, Any]:
        return dict.fromkeys(range(facts.num_clients), np.ones(len(facts.layout.layers), np.float32))


def test_clients_refuse_to_upload_under_other_scores_than_the_ledger_goes_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOYS.setdefault("score_parameters", {}), "toy.two_faced", TwoFaced)

    def run(first: float, allocation: str) -> float:
        chain = [{"use": "fedre.layer_budgets", "epsilon": 8, "delta": DELTA, "norm": 1.0, "allocation": allocation}]
        scorers = [{"use": "toy.two_faced", "first": first}]
        model = {"use": "std.mlp", "hidden": [8]}
        plain = recipe_of("noised", chain, score_parameters=scorers, rounds=1, model=model)
        epsilon = run_protocol(plain).protocol.ledger.epsilon()
        assert epsilon is not None
        return epsilon

    bound = run(1e-6, "exact")  # which holds for any scores
    assert run(1.0, "sum") < bound
    with pytest.raises(TooFewClients, match=r"component toy\.two_faced, hook score_parameters: it gave client 0 other"):
        run(1e-6, "sum")


def test_private_scores_leave_the_bound() -> None:
    plain = recipe([OURS | {"allocation": "sum"}], score_parameters=[PSI | {"at": "local"}])
    found = multipliers(run_protocol(plain).protocol.ledger)
    assert found == [released_multiplier(10, DELTA, 2, "sum", 2)] * 2


def test_scores_of_a_model_that_the_server_cannot_follow_leave_the_bound() -> None:
    sealed = recipe([OURS | {"allocation": "sum"}, {"use": "std.bfv", "key_holder": "clients"}])
    found = multipliers(run_protocol(sealed | {"postprocess": {"noised": ["std.bfv"]}}).protocol.ledger)
    assert found == [released_multiplier(10, DELTA, 2, "sum", 2)] * 2


@contextlib.contextmanager
def watched_scores() -> Iterator[list[tuple[int, np.ndarray]]]:
    """Round and scores of every client that works its noise out inside."""
    seen: list[tuple[int, np.ndarray]] = []
    whole = _Execution._sized

    def watched(self: _Execution, *given: Any) -> Noise:
        assert isinstance(self.party, Client)
        seen.append((self.facts.round, floored(self.party.scores_by(None))))
        return whole(self, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Execution, "_sized", watched)
        yield seen


def test_what_is_released_is_a_bound_for_what_a_run_really_adds() -> None:
    """The scores that the clients had, and the noise that follows from them."""
    with watched_scores() as seen:
        run_protocol(recipe([OURS | {"allocation": "as_published"}]))
    assert len(seen) == 2 * 4
    released = released_multiplier(10, DELTA, 2, "as_published", 2)
    for _, scores in seen:
        assert len(scores) == 2
        assert scores[0] != scores[1]
        assert budgets(scores, 10, DELTA, 2, "as_published", 2).multiplier > 1.01 * released
