"""Faults that a hostile reading of the attacks found: who colludes, what numbers mean, what counts as success."""

from __future__ import annotations

import dataclasses
import types
from typing import Any

import numpy as np
import pytest
import torch
from attack_toys import CountError, Runs, attacked, machinery, seen
from fedplug.api.blocks import Layout
from fedplug.api.data import Examples, PublicData
from fedplug_attacks.api.needs import Needs
from fedplug_attacks.api.observation import Meaning, all_clear
from fedplug_attacks.api.truth import Truth
from fedplug_attacks.api.view import View
from fedplug_attacks.views.rewind import Rewound
from fedplug_attacks.workshop.scope import AttackScope
from fedplug_attacks.workshop.scorer import Scorer
from fedplug_attacks.workshop.target_truth import Truths
from pydantic import ValidationError
from toy_components import recipe_of

LAYOUT = Layout.of([("a", (3,))])
CLIP = {"use": "std.clip", "norm": 1e-3}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


# -- who attacks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        ({"adversaries": ["server+client:1+client:1"]}, "names client:1 twice; name other clients by number"),
        ({"adversaries": ["client+client"]}, "names client twice; name other clients by number"),
        ({"adversaries": ["server+server"]}, "names server twice"),
        ({"adversaries": ["server+client", "client+server"]}, "an adversary is named twice"),
        ({"targets": [0, 1, 0]}, "0 is named twice"),
        ({"rounds": [2, 2]}, "2 is named twice"),
    ],
)
def test_what_is_named_twice_is_refused_and_not_dropped(section: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        AttackScope(**section)


def test_several_kinds_may_collude() -> None:
    scope = AttackScope(adversaries=["server+client:1+key_server", "server+client:2"], targets=[1, 0], rounds=[2, 1])
    assert len(scope.adversaries) == 2


# -- what the numbers mean ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("steps", "momentum"), [(1, 0.0), (7, 0.0), (1, 0.9), (2, 0.5), (7, 0.9)])
def test_reach_is_how_far_sgd_goes_along_a_gradient_that_stays(steps: int, momentum: float) -> None:
    parameter = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    gradient = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    optimiser = torch.optim.SGD([parameter], 0.1, momentum=momentum)
    for _ in range(steps):
        parameter.grad = gradient.clone()
        optimiser.step()
    moved = parameter.detach().numpy().astype(np.float32)
    update = all_clear(0, 0, LAYOUT, moved, Meaning(lr=0.1, steps=steps, momentum=momentum))
    assert update.as_gradient().values == pytest.approx(gradient.numpy(), rel=1e-6)


def test_weight_decay_is_taken_off_where_the_model_is_known() -> None:
    vector, gradient = np.array([1, -2, 4], np.float32), np.array([0.5, 0.25, -1], np.float32)
    update = all_clear(
        0, 0, LAYOUT, -np.float32(0.1) * (gradient + np.float32(0.5) * vector),
        Meaning(lr=0.1, steps=1, weight_decay=0.5), hidden=np.array([False, True, False]),
    )  # fmt: skip
    assert update.as_gradient(vector).values == pytest.approx(gradient[[0, 2]], rel=1e-6)
    assert update.as_gradient().values == pytest.approx((gradient + 0.5 * vector)[[0, 2]], rel=1e-6)
    assert update.as_gradient(vector).as_gradient(vector).values == pytest.approx(gradient[[0, 2]], rel=1e-6)


@pytest.mark.parametrize(("norm", "told"), [(1e-3, True), (1e6, False)])
def test_a_clip_counts_only_where_it_may_have_acted(runs: Runs, norm: float, told: bool) -> None:
    folder = runs.of(recipe_of("noised", [CLIP | {"norm": norm}], rounds=1))
    with machinery(folder, adversaries=["server"]) as run:
        known, _ = seen(run, "server", 0)
    assert known.update is not None
    assert known.update.meaning.clip_norm == (norm if told else None)


def test_class_weights_are_another_loss(runs: Runs) -> None:
    """A gradient of a weighted loss matches no candidate under the plain one: attacks must not fail at it silently."""
    train = {"use": "std.sgd", "lr": 0.05, "class_weights": [1.0] * 9 + [5.0]}
    with machinery(runs.of(recipe_of(rounds=1, train=train)), adversaries=["server"]) as run:
        meaning = run.stage.observer.meaning(run.stage.observer.facts(0), 10, None)
        assert meaning.loss == "cross_entropy"
        assert meaning.class_weights == (1.0,) * 9 + (5.0,)
        unmet = Needs(model=False).unmet(
            View("server", update=all_clear(0, 0, LAYOUT, np.zeros(3, np.float32), meaning))
        )
    assert unmet == "the update descends weighted cross_entropy, but the attack is for cross_entropy"


# -- released models ---------------------------------------------------------------------------------------------------


def test_a_released_model_has_the_batch_norm_statistics_that_it_was_released_with(runs: Runs) -> None:
    plain = recipe_of(rounds=1, model={"use": "std.cnn", "hidden": 4}, buffers="mean")
    with machinery(runs.of(plain), adversaries=["released"]) as run:
        known, _ = seen(run, "released", 0)
        mean = run.rewound.client(0).remembered.buffers
        initial = run.stage.buffers
    assert known.buffers.keys() == initial.keys() == mean.keys()
    assert all(np.array_equal(known.buffers[name], mean[name]) for name in mean)
    assert any(not np.array_equal(known.buffers[name], initial[name]) for name in mean)


# -- the challenge -----------------------------------------------------------------------------------------------------


def test_the_seed_that_an_attack_is_told_does_not_give_the_members_away() -> None:
    """Same labels, same seed, other inputs: members are at other places, so seed and labels do not reveal them."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 20)

    def members(number: int) -> Any:
        inputs = np.random.default_rng(number).random((80, 1, 2, 2)).astype(np.float32)
        test = Examples(rng.random((80, 1, 2, 2)).astype(np.float32), labels)
        data = types.SimpleNamespace(train=Examples(inputs, labels), shared_test=test)
        rewound: Any = types.SimpleNamespace(client=lambda _: types.SimpleNamespace(data=data))
        candidates, found = Truths(rewound, True, False, print).challenge(0, seed=5, size=80)
        own = {row.tobytes() for row in inputs}
        assert [row.tobytes() in own for row in candidates.inputs] == found.tolist()
        assert found.sum() == 40
        return found

    assert np.array_equal(members(1), members(1))
    assert not np.array_equal(members(1), members(2))


# -- what counts as success --------------------------------------------------------------------------------------------


def test_the_guesses_for_labels_include_the_strongest_that_look_at_nothing() -> None:
    labels = np.repeat([0, 1], [9, 3])
    inputs = np.zeros((12, 1, 2, 2), np.float32)
    public = PublicData(Examples(inputs, labels), classes=("a", "b"), mean=(0.5,), std=(0.5,))
    truth = Truth(inputs[:4], labels[[0, 1, 2, 11]], 2)
    found = Scorer({"toy.count_error": CountError({})}, public, (0.5,), 7).baselines(frozenset({"labels"}), truth)
    assert found["public class mix"] == {"toy_count_error": 0.0}  # 3 and 1: equal counts are 2 off
    assert found["all classes equally"] == {"toy_count_error": 2.0}
    assert "no class" not in found
    one = Truth(inputs[:1], labels[:1], 10)
    found = Scorer({"toy.count_error": CountError({})}, public, (0.5,), 7).baselines(frozenset({"labels"}), one)
    assert found["no class"] == {"toy_count_error": 1.0}
    assert found["all classes equally"] == {"toy_count_error": 9.0}
    assert "public class mix" not in found  # of other classes


def test_a_grey_image_within_the_threshold_is_no_success_where_the_mean_image_is_nearer(runs: Runs) -> None:
    found = attacked(runs.of(recipe_of(rounds=2)), "toy.echo", targets=[0], rounds=[1])
    (result,) = (value for key, value in found.items() if key != "summary")
    far, form = result["baselines"]["mean image"]["toy_distance"], result["forms"]["adaptive"]
    assert far < form["metrics"]["toy_distance"] <= 0.3
    assert form["status"] == "inconclusive"  # and it does not explain the first layer
    assert "unexplained" in form["reason"]


# -- speed -------------------------------------------------------------------------------------------------------------


def test_a_client_trains_again_once_for_all_attacks_and_adversaries(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[int, int]] = []
    train = Rewound.update

    def counted(self: Rewound, round: int, client_id: int) -> Any:
        calls.append((round, client_id))
        return train(self, round, client_id)

    monkeypatch.setattr(Rewound, "update", counted)
    folder = runs.of(recipe_of(rounds=2))
    found = attacked(
        folder, "toy.echo", "toy.bare", adversaries=["server", "eavesdropper"], targets=[0, 1], rounds=[1, 2]
    )
    assert calls == [(0, 0), (0, 1), (1, 0), (1, 1)]
    gaps = [
        form["metrics"]["toy_agreement"]
        for key, value in found.items() if key != "summary" for form in value["forms"].values()
    ]  # fmt: skip
    assert len(gaps) == 16
    assert gaps == [0.0] * 16


def test_meaning_has_no_reach_where_something_is_unknown() -> None:
    known = Meaning(lr=0.1, steps=3)
    assert known.reach == pytest.approx(0.3)
    assert dataclasses.replace(known, lr=None).reach is None
    assert dataclasses.replace(known, steps=None).reach is None
