"""A malicious server: planted models give images away through sums too, and noise of the clients holds against them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug.api.errors import RecipeError
from fedplug_attacks.api.planting import signs
from fedplug_attacks.workshop.default_set import DEFAULT_SET
from fedplug_attacks.workshop.results import results
from fedplug_kit.static import check_component

CLEAR = {"negotiate_mask": {"use": "std.single_zone", "zone": "clear"}, "protect": {"clear": []}}


def masked(*chain: Any) -> dict[str, Any]:
    """Under masks, so that sums alone are seen."""
    return {
        "negotiate_mask": {"use": "std.single_zone", "zone": "encrypted"}, "min_clients": 5,
        "protect": {"encrypted": [*chain, {"use": "secagg.bonawitz", "range": 1} if not chain else "secagg.bonawitz"]},
        "postprocess": {"encrypted": ["secagg.bonawitz"]},
    }  # fmt: skip


def attacked(folder: Path, use: dict[str, Any], protocol: dict[str, Any], **scope: Any) -> list[Any]:
    """The outcome for each target."""
    recipe = {
        "name": "planted", "seed": 7, "rounds": 1, "min_clients": 3,
        "data": {"use": "std.digits", "clients": 6, "public": 200, "partition": "std.iid"}, "model": "std.mlp",
        "train": {"use": "std.sgd", "epochs": 1, "lr": 0.1}, "aggregate": {"use": "std.mean", "weighting": "uniform"},
        "attack": {
            "adversaries": ["malicious_server"], "targets": [0, 1], "probe": {"batch_size": 8}, "attacks": [use], **scope
        },
    }  # fmt: skip
    run = fedplug.run(recipe | protocol, output=folder, quiet=True, muted=["lab.report"])
    return [next(iter(result.forms.values())) for result in results(run.folder / "attacks")]


@pytest.mark.parametrize("name", ["attacks.imprint", "attacks.fishing"])
def test_conforms(name: str) -> None:
    check_component(name)


def test_an_imprint_gives_every_image_of_a_batch_exactly(tmp_path: Path) -> None:
    for outcome in attacked(tmp_path, {"use": "attacks.imprint"}, CLEAR):
        assert outcome.status == "success"
        assert outcome.metrics["mse"] < 1e-9
        assert len(outcome.recovered) == 8
        assert outcome.own["planted_equal_rows"] == 1.0  # what a client can notice without data
        assert outcome.own["planted_change"] > 0.5


def test_masks_do_not_hinder_it_and_shared_noise_does(tmp_path: Path) -> None:
    through = attacked(tmp_path / "masks", {"use": "attacks.imprint"}, masked())
    assert sum(len(outcome.recovered) for outcome in through) >= 10  # of 16; of 48 in the sum some share a bin
    noise = ({"use": "std.clip", "norm": 1.0}, {"use": "std.distributed_gaussian", "epsilon": 8, "delta": 1e-5})
    held = attacked(tmp_path / "noise", {"use": "attacks.imprint"}, masked(*noise))
    assert [len(outcome.recovered) for outcome in held] == [0, 0]


def test_central_noise_is_added_too_late(tmp_path: Path) -> None:
    central = {
        "negotiate_mask": {"use": "std.single_zone", "zone": "noised"},
        "protect": {"noised": [{"use": "std.clip", "norm": 1.0}]},
        "postprocess": {"noised": [{"use": "std.central_gaussian", "norm": 1.0, "noise_multiplier": 1.0}]},
    }
    assert all(len(outcome.recovered) == 8 for outcome in attacked(tmp_path, {"use": "attacks.imprint"}, central))


def test_fishing_takes_the_one_example_of_a_class(tmp_path: Path) -> None:
    found = [
        outcome.metrics["mse"]
        for label in (3, 4)
        for outcome in attacked(tmp_path / str(label), {"use": "attacks.fishing", "label": label}, CLEAR)
    ]
    assert min(found) < 1e-9


def test_an_attack_that_plants_nothing_sees_what_the_server_sees(tmp_path: Path) -> None:
    (outcome, _) = attacked(tmp_path, {"use": "attacks.linear_leak"}, CLEAR, probe={"batch_size": 1})
    assert outcome.status == "success"


def test_it_is_never_among_the_default_attacks() -> None:
    assert not any("malicious" in who for question in DEFAULT_SET for who in question.who)


def test_without_a_probe_there_is_nothing_to_plant(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="plants a model in a probe, and there is none"):
        attacked(tmp_path, {"use": "attacks.imprint"}, CLEAR, probe=None)
    with pytest.raises(RecipeError, match="there is one server"):
        attacked(tmp_path, {"use": "attacks.imprint"}, CLEAR, adversaries=["server+malicious_server"])


def test_signs_of_an_honest_round_are_small() -> None:
    layout = fedplug.Layout.of([("fc1.weight", (6, 4)), ("fc1.bias", (6,))])
    rng = np.random.default_rng(0)
    honest = rng.standard_normal(30).astype(np.float32)
    found = signs(honest + np.float32(0.01) * rng.standard_normal(30).astype(np.float32), honest, layout)
    assert found["planted_change"] < 0.05
    assert found["planted_equal_rows"] == 0.0
