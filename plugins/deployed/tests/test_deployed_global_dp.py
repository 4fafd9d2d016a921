"""FedML's central noise: its clip of models, its size, and no guarantee unless something else gives one."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deployed_toys import passed
from fedplug import Layout, gaussian_epsilon
from fedplug.api.errors import RecipeError
from fedplug_deployed.global_dp import FedmlGlobalDp
from fedplug_deployed.output_perturbation import FedmlLocalDp
from toy_components import recipe_of
from toy_protocol import run_protocol

NAME = "deployed.fedml_global_dp"
LAYOUT = Layout.of([("a", (3, 4)), ("b", (7,)), ("c", (5,))])
CASES = json.loads(Path(__file__).with_name("fedml_references.json").read_text())["clipped"]
"""Made by benchmarks/peer_programs/fedml_references.py, which names the version."""
GIVEN = {"epsilon": 0.5, "delta": 1e-5, "source": "reproducible"}
UNIFORM = {"use": "std.mean", "weighting": "uniform"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['max_grad_norm']:g}")
def test_models_are_clipped_and_noised_as_the_original_does(case: dict[str, Any]) -> None:
    options = FedmlGlobalDp.Options(max_grad_norm=case["max_grad_norm"], sensitivity=0.2, **GIVEN)
    component = FedmlGlobalDp(options)
    assert component.scale == pytest.approx(case["scale"], rel=1e-12)
    model, start = np.array(case["model"], np.float32), np.full(LAYOUT.size, 0.25, np.float32)
    sent = passed(LAYOUT, "noised", model - start, component, model=start)
    # FedML's norm is torch's and ours NumPy's, and the model crosses the wire as a difference: float32's last bits.
    np.testing.assert_allclose(sent + start, case["clipped"], rtol=1e-5, atol=1e-6)


def epsilon(chain: list[Any], aggregate: Any = UNIFORM) -> float | None:
    """What the ledger states after three rounds."""
    plain = recipe_of("noised", chain, aggregate=aggregate, postprocess={"noised": [NAME]}, rounds=3)
    return run_protocol(plain).protocol.ledger.epsilon()


def test_only_a_clip_of_the_update_and_equal_weights_give_it_a_price() -> None:
    use, clip = {"use": NAME, **GIVEN}, {"use": "std.clip", "norm": 0.5}
    assert epsilon([use]) in (None, math.inf)
    assert epsilon([use | {"max_grad_norm": 0.5}]) in (None, math.inf)
    assert epsilon([clip, use], {"use": "std.mean"}) in (None, math.inf)
    # The noise of the mean, times the four clients, over the clip; three rounds.
    multiplier = 4 * FedmlLocalDp(FedmlLocalDp.Options(**GIVEN)).scale / 0.5
    assert epsilon([clip, use]) == pytest.approx(gaussian_epsilon(multiplier / math.sqrt(3), 1e-5), rel=1e-6)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_weighted_by_examples_the_noise_of_the_mean_has_fedmls_size(mechanism: str) -> None:
    use = {"use": NAME, **GIVEN, "mechanism_type": mechanism, "sensitivity": 100.0}
    noised = recipe_of("noised", [use], postprocess={"noised": [NAME]}, rounds=1)
    silent = recipe_of("noised", rounds=1)
    difference = run_protocol(noised).vector - run_protocol(silent).vector
    scale = FedmlLocalDp(FedmlLocalDp.Options(**{k: v for k, v in use.items() if k != "use"})).scale
    std = scale * (math.sqrt(2) if mechanism == "laplace" else 1)
    assert np.std(difference) == pytest.approx(std, rel=0.18)  # 650 values, 4 standard errors of Laplace's


def test_it_is_in_both_places() -> None:
    only = recipe_of("noised", [{"use": NAME, **GIVEN}])
    with pytest.raises(RecipeError, match=f"write {NAME} in postprocess too"):
        run_protocol(only)
