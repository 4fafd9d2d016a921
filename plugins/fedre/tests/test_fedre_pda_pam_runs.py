"""PDA-PAM in recipes and runs: what is refused, and the models that are scored."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import fedplug_fedre.pda_pam
import numpy as np
import pytest
from fedplug import Clip, FixedPoint, Known, Look, Noise, Seal, WeightedSum
from fedplug.api.data import PublicData
from fedplug.api.errors import DataError, RecipeError
from fedplug.recipe.recipe import Recipe
from fedplug_fedre.jacobian import psi_scores
from fedplug_fedre.pda_pam import layer_weights
from fedplug_kit.static import check_component
from pda_pam_toys import PUBLIC, pda_pam, public_with, server_at
from toy_components import recipe_of
from toy_protocol import initial_vector, run_protocol


def test_conforms() -> None:
    check_component("fedre.pda_pam")


OURS = {"use": "fedre.pda_pam", "preference": {"box": [2, 2, 6, 6]}, "samples": 2}
NOISE = {"use": "fedre.layer_budgets", "epsilon": 100, "delta": 1e-5, "norm": 0.3, "source": "reproducible"}
GAUSSIAN = {"use": "std.gaussian", "noise_multiplier": 0.1, "source": "reproducible"}
PSI = {"use": "fedre.psi", "preference": {"box": [2, 2, 6, 6]}, "samples": 2}


def recipe(aggregate: Any = OURS, public: int = 16, **changes: Any) -> dict[str, Any]:
    plain = recipe_of("noised", [], aggregate=aggregate, model={"use": "std.mlp", "hidden": [8]})
    plain["data"] = {**plain["data"], "public": public}
    return plain | changes


@pytest.mark.parametrize(
    ("public", "options", "problem"),
    [
        (public_with(labels=np.full(4, -1)), {}, "4 labels of the public examples are none of 0 to 1, such as -1"),
        (public_with(labels=np.array([0, 1, 2, 0])), {}, "1 labels of the public examples are none .* such as 2"),
        (PUBLIC, {"preference": {"fields": ["date"]}}, "fields"),
        (PUBLIC, {"preference": {"box": [0, 0, 3, 3]}}, "lies outside"),
        (public_with(regions=np.zeros((4, 2, 2), np.uint8)), {}, "marks no pixel in any of 4 examples"),
    ],
)  # fmt: skip
def test_public_examples_that_cannot_be_scored_are_refused_before_training(
    public: PublicData, options: Any, problem: str
) -> None:
    server, facts = server_at(public)
    with pytest.raises(DataError, match=problem):
        pda_pam(**options).setup(SimpleNamespace(server=server), None, facts)  # type: ignore[arg-type]


def test_noise_at_the_server_is_refused() -> None:
    central = {"use": "std.central_gaussian", "norm": 1.0, "noise_multiplier": 1.0}
    plain = recipe(protect={"noised": [{"use": "std.clip", "norm": 1.0}]}, postprocess={"noised": [central]})
    with pytest.raises(RecipeError) as error:
        Recipe.from_plain(plain)
    assert (
        "std.central_gaussian needs a bound of the L2 norm earlier in the chain of zone noised; the weights of "
        "fedre.pda_pam follow from single clients' values; add the noise at the clients"
    ) in str(error.value)


def test_what_is_known_of_a_sum_by_scores() -> None:
    """Only local noise remains, and no bound. Zones that arrive encrypted are plain sums."""
    facts = server_at()[1]
    clipped = Known(zone="noised").after(Clip(1.0))
    noised = clipped.after(Noise.gaussian(2.0))
    behind = noised.after(*pda_pam().aggregate(noised, facts))
    (release,) = behind.releases
    assert release.noise_multiplier == 2.0
    assert "one client's noise may be almost all that a sum has" in release.uncredited
    assert clipped.after(*pda_pam().aggregate(clipped, facts)).sensitivity() is None
    seal = Seal(scheme="BFV", opened_by="clients", numbers=FixedPoint(1.0, 0.1))
    sealed = Known(zone="encrypted", closed=seal, closer="std.bfv")
    plain, looks = pda_pam().aggregate(sealed, facts)
    assert plain == WeightedSum()
    assert isinstance(looks, Look)


def test_a_preference_in_a_file_is_refused() -> None:
    with pytest.raises(RecipeError, match="preference: mask names a file in a client's folder, which the"):
        Recipe.from_plain(recipe(OURS | {"preference": {"mask": "mask.png"}}))


def test_a_run_scores_the_models_of_the_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of FedRE: scores, layer budgets, PDA-PAM. The weights are those of the vectors that the server must see."""
    calls: list[tuple[Any, Any]] = []

    def watched(model: Any, *args: Any, **options: Any) -> Any:
        calls.append((options["vector"], psi_scores(model, *args, **options)))
        return calls[-1][1]

    monkeypatch.setattr(fedplug_fedre.pda_pam, "psi_scores", watched)
    plain = recipe(score_parameters=[PSI], protect={"noised": [NOISE]}, rounds=1)
    outcome = run_protocol(plain)
    assert len(calls) == 4
    factors, _ = layer_weights(np.array([one.mean for _, one in calls]), np.ones((4, 2), np.bool_))
    log, layer = outcome.rows[0].log, np.repeat([0, 1], [64 * 8 + 8, 8 * 10 + 10])
    assert log["fedre.pda_pam.weight_min"] == pytest.approx(factors.min())
    assert log["fedre.pda_pam.weight_max"] == pytest.approx(factors.max()) != 1
    start = initial_vector(plain)
    expected = start + sum(factors[k][layer] / 4 * (vector - start) for k, (vector, _) in enumerate(calls))
    assert outcome.vector == pytest.approx(expected, abs=1e-5)
    assert outcome.protocol.ledger.epsilon() == pytest.approx(100)


def test_both_engines_give_the_same_model() -> None:
    plain = recipe(protect={"noised": [{"use": "std.clip", "norm": 0.3}, GAUSSIAN]}, rounds=1)
    outcome, other = run_protocol(plain), run_protocol(plain, "processes")
    assert np.array_equal(outcome.vector, other.vector)
    assert outcome.rows[0].log == other.rows[0].log


def test_nothing_to_score_gives_the_uniform_mean() -> None:
    mean = {"use": "std.mean", "weighting": "uniform"}
    assert np.array_equal(run_protocol(recipe(public=0)).vector, run_protocol(recipe(mean, public=0)).vector)
    sealed = {
        "negotiate_mask": {"use": "std.single_zone", "zone": "encrypted"},
        "protect": {"encrypted": [{"use": "std.bfv"}]}, "postprocess": {"encrypted": ["std.bfv"]},
    }  # fmt: skip
    outcome = run_protocol(recipe(**sealed))
    assert outcome.rows[0].log["fedre.pda_pam.scored_layers"] == 0
    assert outcome.vector == pytest.approx(run_protocol(recipe(mean)).vector, abs=1e-3)
