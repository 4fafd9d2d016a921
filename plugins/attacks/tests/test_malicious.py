"""A malicious server: planted models give images away through sums too, and noise of the clients holds against them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug.api.errors import RecipeError
from fedplug_attacks.workshop.default_set import DEFAULT_SET
from fedplug_attacks.workshop.results import results
from fedplug_kit.static import check_component
from fedplug_std.handed import alarms, signs
from hypothesis import given
from hypothesis import strategies as st

CLEAR = {"negotiate_mask": {"use": "std.single_zone", "zone": "clear"}, "protect": {"clear": []}}


def masked(*chain: Any) -> dict[str, Any]:
    """Under masks, so that sums alone are seen."""
    return {
        "negotiate_mask": {"use": "std.single_zone", "zone": "encrypted"}, "min_clients": 5,
        "protect": {"encrypted": [*chain, {"use": "secagg.bonawitz", "range": 1} if not chain else "secagg.bonawitz"]},
        "postprocess": {"encrypted": ["secagg.bonawitz"]},
    }  # fmt: skip


def attacked(folder: Path, use: dict[str, Any], protocol: dict[str, Any], **scope: Any) -> list[Any]:
    """The outcome for each target, and of each attack in `attacks` by name."""
    recipe = {
        "name": "planted", "seed": 7, "rounds": 1, "min_clients": 3,
        "data": {"use": "std.digits", "clients": 6, "public": 200, "partition": "std.iid"}, "model": "std.mlp",
        "train": {"use": "std.sgd", "epochs": 1, "lr": 0.1}, "aggregate": {"use": "std.mean", "weighting": "uniform"},
        "attack": {
            "adversaries": ["malicious_server"], "targets": [0], "probe": {"batch_size": 8}, "attacks": [use]
        } | scope,
    }  # fmt: skip
    run = fedplug.run(recipe | protocol, output=folder, quiet=True, muted=["lab.report"])
    return [next(iter(result.forms.values())) for result in results(run.folder / "attacks")]


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    """What `sums` makes once for all tests."""
    return {}


@pytest.fixture
def sums(made: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    """The outcomes of attacks on one client behind masks, all in one run."""
    target = {"handed": "target"}
    uses = [
        {"use": "attacks.imprint", "name": "all"}, {"use": "attacks.imprint", "name": "imprint", **target},
        {"use": "attacks.fishing", "name": "fishing", "label": 4, **target},
        {"use": "attacks.imprint", "name": "split", "handed": "split"},
    ]  # fmt: skip
    if not made:
        names = sorted(use["name"] for use in uses)  # the order of the files of results
        made |= zip(names, attacked(tmp_path, {}, masked(), attacks=uses), strict=True)
    return made


@pytest.mark.parametrize("name", ["attacks.imprint", "attacks.fishing"])
def test_conforms(name: str) -> None:
    check_component(name)


def test_an_imprint_gives_every_image_of_a_batch_exactly(tmp_path: Path) -> None:
    for outcome in attacked(tmp_path, {"use": "attacks.imprint"}, CLEAR, targets=[0, 1]):
        assert outcome.status == "success"
        assert outcome.metrics["mse"] < 1e-9
        assert len(outcome.recovered) == 8
        assert outcome.metrics["noticed_parallel_rows"] == 1.0  # what a client can notice without data
        assert outcome.metrics["noticed_change"] > 0.5
    page = re.sub("<[^>]*>", "", next(tmp_path.glob("*/attacks.html")).read_text())
    assert "noticed parallel rows 1.000" in page
    assert "noticed by party 1.000" in page  # at both


@pytest.mark.slow
def test_masks_do_not_hinder_it_and_shared_noise_does(tmp_path: Path, sums: dict[str, Any]) -> None:
    assert len(sums["all"].recovered) >= 5  # of 8; of 48 in the sum some share a bin
    noise = ({"use": "std.clip", "norm": 1.0}, {"use": "std.distributed_gaussian", "epsilon": 8, "delta": 1e-5})
    (held,) = attacked(tmp_path, {"use": "attacks.imprint"}, masked(*noise))
    assert len(held.recovered) == 0


def test_central_noise_is_added_too_late(tmp_path: Path) -> None:
    central = {
        "negotiate_mask": {"use": "std.single_zone", "zone": "noised"},
        "protect": {"noised": [{"use": "std.clip", "norm": 1.0}]},
        "postprocess": {"noised": [{"use": "std.central_gaussian", "norm": 1.0, "noise_multiplier": 1.0}]},
    }
    (outcome,) = attacked(tmp_path, {"use": "attacks.imprint"}, central)
    assert len(outcome.recovered) == 8


def test_fishing_takes_the_one_example_of_a_class(tmp_path: Path) -> None:
    (outcome,) = attacked(tmp_path, {"use": "attacks.fishing", "label": 4}, CLEAR)
    assert outcome.metrics["mse"] < 1e-9


def test_an_attack_that_plants_nothing_sees_what_the_server_sees(tmp_path: Path) -> None:
    (outcome,) = attacked(tmp_path, {"use": "attacks.linear_leak"}, CLEAR, probe={"batch_size": 1})
    assert outcome.status == "success"


def test_it_is_never_among_the_default_attacks() -> None:
    assert not any("malicious" in who for question in DEFAULT_SET for who in question.who)


def test_without_a_probe_there_is_nothing_to_plant(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="plants a model in a probe, but there is none"):
        attacked(tmp_path, {"use": "attacks.imprint"}, CLEAR, probe=None)
    with pytest.raises(RecipeError, match="there is one server"):
        attacked(tmp_path, {"use": "attacks.imprint"}, CLEAR, adversaries=["server+malicious_server"])


def test_where_others_are_handed_zeros_a_sum_is_the_targets_update(sums: dict[str, Any]) -> None:
    """Model inconsistency (Pasquini et al. 2022): masks hide the target's update behind nothing."""
    assert len(sums["imprint"].recovered) >= 7
    assert sums["imprint"].own["bins_filled"] <= 8
    assert sums["fishing"].metrics["mse"] < 1e-3


def test_bins_split_between_clients_tell_whose_image_it_is(sums: dict[str, Any]) -> None:
    outcome = sums["split"]
    assert outcome.own["bins"] in (42, 43)
    assert outcome.own["bins_filled"] <= 8
    assert len(outcome.recovered) >= 4
    assert outcome.metrics["noticed_emptied_rows"] > 0.8


@pytest.mark.slow
def test_a_mask_that_goes_by_scores_is_led_elsewhere(tmp_path: Path) -> None:
    """Entries with large gradients are encrypted: those of the next layer, once the planted model makes them so."""
    selective = {
        "score_parameters": [{"use": "selectiveshield.fisher", "figure_client": 0}],
        "negotiate_mask": {"use": "selectiveshield.consensus", "tau": 0.05, "rho": 0.3},
        "protect": {
            "encrypted": [{"use": "std.ckks", "key_holder": "key_server", "sums_visible_to": "clients"}], "noised": [],
        },
        "aggregate": {"use": "selectiveshield.two_server"},
        "postprocess": {"encrypted": ["std.ckks"], "retained": ["selectiveshield.merge"]},
    }
    (outcome,) = attacked(tmp_path, {"use": "attacks.imprint", "gain": 100}, selective)
    assert len(outcome.recovered) >= 3


@pytest.mark.slow
def test_behind_convolutions_features_are_imprinted_and_inverted(tmp_path: Path) -> None:
    cnn = CLEAR | {"model": {"use": "std.cnn", "norm": "group"}}
    (outcome,) = attacked(tmp_path, {"use": "attacks.imprint", "iterations": 200}, cnn)
    assert outcome.own["bins_filled"] <= 8
    assert len(outcome.recovered) >= 2


def test_a_model_in_which_nothing_can_be_planted_is_said_so(tmp_path: Path) -> None:
    flat = CLEAR | {"model": "std.logistic"}
    (outcome,) = attacked(tmp_path, {"use": "attacks.imprint"}, flat)
    assert outcome.status == "not_applicable"
    assert "with another behind it" in outcome.reason


LAYOUT = fedplug.Layout.of([("fc1.weight", (8, 6)), ("fc1.bias", (8,)), ("fc2.weight", (4, 8)), ("fc2.bias", (4,))])


@given(seed=st.integers(0, 1000), scale=st.floats(0.001, 10))
def test_training_from_random_weights_leaves_no_sign(seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    before = rng.standard_normal(LAYOUT.size).astype(np.float32)
    after = before + np.float32(scale) * rng.standard_normal(LAYOUT.size).astype(np.float32)
    found = signs(after, before, LAYOUT)
    assert not alarms(found)
    assert found["parallel_rows"] == found["emptied_rows"] == 0
    assert found["change"] == pytest.approx(np.linalg.norm(after - before) / np.linalg.norm(before), rel=1e-3)


def test_signs_of_planted_rows() -> None:
    rng = np.random.default_rng(0)
    before = rng.standard_normal(LAYOUT.size).astype(np.float32)
    parallel, emptied = before.copy(), before.copy()
    parallel[:48].reshape(8, 6)[:6] = np.outer([1, -2, 3, 0.5, 1, 1], before[:6])
    found = signs(parallel, before, LAYOUT, np.zeros(LAYOUT.size, np.float32))
    assert found["parallel_rows"] == 0.75
    assert found["silent_rows"] == 1.0
    assert alarms(found) == ["75% of the rows of a layer are multiples of each other"]
    emptied[56:88].reshape(4, 8)[1:] = 0
    assert alarms(signs(emptied, before, LAYOUT)) == ["75% of the rows of a layer became zeros"]
    assert not alarms(signs(emptied, emptied, LAYOUT))  # as it was before: nothing new
