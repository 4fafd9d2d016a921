"""Noise of APPFL, FedML and Fed-BioMed: of their size, and without a guarantee that no clip gives."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deployed_toys import facts_of, passed, steps
from fedplug import Layout, gaussian_epsilon
from fedplug_deployed.output_perturbation import AppflOutputPerturbation, FedbiomedCentralDp, FedmlLocalDp
from fedplug_std.clip import Clip
from pydantic import ValidationError
from toy_components import recipe_of
from toy_protocol import run_protocol

LAYOUT = Layout.of([("w", (4000,))])
CASES = json.loads(Path(__file__).with_name("perturbation_references.json").read_text())
"""Made by benchmarks/peer_programs/perturbation_references.py, which names the versions."""
KINDS: dict[str, Any] = {"appfl": AppflOutputPerturbation, "fedml": FedmlLocalDp}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['of']}-{case['scale']:.3g}")
def test_the_noise_has_the_size_that_the_original_gives_it(case: dict[str, Any]) -> None:
    kind = KINDS[case["of"]]
    component = kind(kind.Options(**case["options"], source="reproducible"))
    assert component.scale == pytest.approx(case["scale"], rel=1e-6)  # APPFL computes in float32
    drawn = passed(LAYOUT, "noised", np.zeros(4000), component)
    std = case["scale"] * (math.sqrt(2) if component.mechanism == "laplace" else 1)
    assert np.std(drawn) == pytest.approx(std, rel=0.12)  # 4 standard errors of 4,000 samples, Laplace


@pytest.mark.parametrize(
    ("use", "says"),
    [
        ({"use": "deployed.appfl_output_perturbation", "epsilon": 0.1}, "by the sensitivity of one step"),
        ({"use": "deployed.fedml_local_dp", "epsilon": 0.1, "delta": 1e-5}, "that it does not enforce"),
        ({"use": "deployed.fedbiomed_central_dp", "sigma": 10, "clip": 1}, "by the clip of one gradient"),
    ],
)
def test_without_a_clip_there_is_no_guarantee_and_with_one_its_price(use: dict[str, Any], says: str) -> None:
    bare = run_protocol(recipe_of("noised", [use])).protocol.ledger
    assert bare.epsilon() in (None, math.inf)
    assert says in next(iter(bare.log[0].zones.values())).releases[0].note
    order = "std.clip_l1" if use["use"] == "deployed.appfl_output_perturbation" else "std.clip"
    clipped = run_protocol(recipe_of("noised", [{"use": order, "norm": 0.1}, use])).protocol.ledger.epsilon()
    assert clipped is not None
    assert math.isfinite(clipped)


def test_the_price_of_a_clip_before_it() -> None:
    component = FedbiomedCentralDp(FedbiomedCentralDp.Options(sigma=2.0, clip=0.5))
    clip = Clip(Clip.Options(norm=0.25))
    (*_, step) = steps(facts_of(LAYOUT), "noised", clip, component)
    (release,) = step.after.releases
    assert release.noise_multiplier == pytest.approx(4.0)
    plain = [{"use": "std.clip", "norm": 0.25}, {"use": "deployed.fedbiomed_central_dp", "sigma": 2.0, "clip": 0.5}]
    epsilon = run_protocol(recipe_of("noised", plain)).protocol.ledger.epsilon()
    assert epsilon == pytest.approx(gaussian_epsilon(4 / math.sqrt(2), 1e-5), rel=1e-6)


@pytest.mark.parametrize("wrong", [{"epsilon": 2.0, "delta": 1e-5}, {"epsilon": 0.5, "delta": 0.0}])
def test_what_fedml_refuses_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match="FedML refuses Gaussian noise"):
        FedmlLocalDp.Options(**wrong)
    assert FedmlLocalDp.Options(mechanism_type="laplace", **wrong)
