"""Every round of a target: in the view, kept apart, and used together where masks move and noise is drawn anew."""

from __future__ import annotations

import contextlib
import dataclasses
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from attack_toys import Runs, attack_catalog, attacked, finished_run, machinery, reachable
from fedplug import Examples, Facts, Layout
from fedplug.api.data import PublicData
from fedplug.api.errors import ViewError
from fedplug.recipe.catalog import Entry
from fedplug.recipe.composition import Composition
from fedplug_attacks import Attacker, Meaning, ObservedUpdate, View, each_round, of_the_same, stacked
from fedplug_attacks._matching import SeveralRounds
from fedplug_attacks.api.observation import Observation, all_clear
from fedplug_attacks.linear_leak import LinearLeak
from fedplug_attacks.several_rounds import Rounds
from fedplug_attacks.views import rounds as shelves
from fedplug_attacks.views.adversaries import Adversary
from fedplug_attacks.views.rewind import Rewound
from fedplug_attacks.views.rounds import Observations, Shelf
from fedplug_kit.static import check_component
from saved_toys import shield
from sixty_lines import Sixty
from toy_components import recipe_of

MLP = {"use": "std.mlp", "hidden": [16]}
SGD = {"use": "std.sgd", "epochs": 1, "batch_size": 16, "lr": 0.05}
BFV = {"use": "std.bfv", "key_holder": "key_server"}
COALITION = "server+client:1+client:2+client:3"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


def observations(folder: Path, name: str, target: int, round: int, **scope: Any) -> tuple[list[Observation], list[Any]]:
    """What an adversary saw of a target up to a round (from 1), and the true updates of those rounds of the run."""
    with machinery(folder, adversaries=[name], rounds=[round], **scope) as run:
        ((at, names), *_) = run.occasions.rounds()
        (occasion,) = run.occasions.of(at, "released" in names)
        adversary = Adversary.of(name, target, occasion.clients, run.scope.protected_links)
        assert adversary is not None
        known = run._known(occasion, adversary, target)
        found = list(run.stage.shelf.keep(run._observations(occasion, adversary, target, known)))
        truth = [run.rewound.update(each.round, target) for each in found if not scope.get("probe")]
    return found, truth


def test_it_is_what_the_kit_asks_of_attacks() -> None:
    check_component("attacks.rounds")


# -- in the view -------------------------------------------------------------------------------------------------------


def test_every_round_is_there_with_its_update_and_its_model(runs: Runs) -> None:
    folder = runs.of(recipe_of(rounds=3))
    found, truth = observations(folder, "server", 1, 3)
    assert [each.round for each in found] == [0, 1, 2]
    for each, true in zip(found, truth, strict=True):
        assert np.array_equal(each.update.values, true)
        assert each.same_examples  # std.sgd goes through all of them
        assert each.vector is not None
    vectors = [each.vector for each in found]
    assert not np.array_equal(vectors[0], vectors[1])
    earlier, _ = observations(folder, "server", 1, 2)
    assert [each.round for each in earlier] == [0, 1]
    assert observations(folder, "released", 1, 3)[0] == []


def test_the_same_batch_is_asked_about_in_several_rounds(runs: Runs) -> None:
    folder = runs.of(recipe_of(rounds=3))
    found, _ = observations(folder, "server", 1, 3, probe={"batch_size": 4, "rounds": 2})
    assert [(each.round, each.same_examples) for each in found] == [(0, False), (1, False), (1, True), (2, True)]
    alone, _ = observations(folder, "server", 1, 3, probe={"batch_size": 4})
    assert [(each.round, each.same_examples) for each in alone] == [(0, False), (1, False), (2, True)]
    # One example of the linear model: the rows of both rounds are multiples of it.
    one, _ = observations(folder, "server", 1, 3, probe={"batch_size": 1, "rounds": 3})
    gradients = [each.update.values[:640].reshape(10, 64) for each in one if each.same_examples]
    assert len(gradients) == 3
    assert np.linalg.matrix_rank(np.concatenate(gradients), tol=1e-4) == 1
    with pytest.raises(ViewError, match=r"probe\.rounds is 4, and up to round 3 there are 3"):
        observations(folder, "server", 1, 3, probe={"batch_size": 4, "rounds": 4})


def test_what_is_kept_is_copied_and_leads_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    held = [Observation(number, all_clear(number, 0, layout(4, 3), np.ones(20, np.float32), Meaning())) for number in
            range(3)]  # fmt: skip
    monkeypatch.setattr(shelves, "_IN_MEMORY", 1500)  # so that they go to a file
    with contextlib.closing(Shelf()) as shelf:
        kept = shelf.keep(held)
        assert kept._file._rolled  # type: ignore[attr-defined]
        kept[0].update.values[:] = 7
        assert [each.round for each in kept] == [0, 1, 2]
        assert isinstance(kept[1:], Observations)
        assert (kept[0].update.values == 1).all()
        assert (kept[-1].update.values == 1).all()
        assert not [path for path, found in reachable(kept) if isinstance(found, Composition | Rewound)]


# -- used together -----------------------------------------------------------------------------------------------------


def layout(inputs: int, rows: int) -> Any:
    from fedplug.api.blocks import Layout

    return Layout.of([("first.weight", (rows, inputs)), ("first.bias", (rows,)), ("last.weight", (1, 5))])


def by_hand(image: Any, hidden: list[Any], sigma: float = 0.0, rows: int = 32, seed: int = 0) -> View:
    """Rounds of one example behind a first layer, each with other factors and other entries hidden."""
    rng, size = np.random.default_rng(seed), image.size
    where, found = layout(size, rows), []
    meaning = Meaning(lr=1.0, steps=1, batch_size=1, examples=1, epochs=1)
    for number, mask in enumerate(hidden):
        factors = rng.standard_normal(rows)
        gradient = np.zeros(where.size)
        gradient[: rows * size] = np.outer(factors, (image.ravel() - 0.5) / 0.25).ravel()
        gradient[rows * size : rows * size + rows] = factors
        gradient += sigma * rng.standard_normal(len(gradient))
        update = all_clear(number, 0, where, -gradient.astype(np.float32), meaning, mask, sigma)
        found.append(Observation(number, update, None, {}, True))
    return View(
        "server", target=0, round=found[-1].round, update=found[-1].update, observations=tuple(found),
        shape=image.shape, mean=(0.5,), std=(0.25,), num_classes=2, seed=3,
    )  # fmt: skip


def attacker(public: Any = None) -> Attacker:
    return Attacker(facts=Facts(0, 1, Layout(()), (), 1, 1, 0, "", public=public))


def test_a_mask_that_moves_shows_in_the_end_all_of_it() -> None:
    """Every round hides all rows of two other pixels, and the bias: alone none of them is enough."""
    rng = np.random.default_rng(1)
    image = rng.random((1, 4, 4)).astype(np.float32)
    image[0, 0, 0], image[0, 3, 3] = 0, 1
    masks = []
    for number in range(8):
        mask = np.zeros(layout(16, 32).size, bool)
        mask[: 32 * 16].reshape(32, 16)[:, 2 * number : 2 * number + 2] = True
        masks.append(mask)
    view = by_hand(image, masks)
    alone = LinearLeak(LinearLeak.Options()).attack(view, attacker())
    assert alone.metrics["hidden_pixels"] == 2
    report = Rounds(Rounds.Options()).attack(view, attacker())
    assert report.images is not None
    assert report.metrics["hidden_pixels"] == 0
    assert report.metrics["rounds"] == 8
    assert report.metrics["coverage"] == 1
    assert np.abs(report.images[0] - image).max() < 1e-5
    last = Rounds(Rounds.Options(most=1)).attack(view, attacker())
    assert last.metrics["rounds"] == 1
    assert last.metrics["hidden_pixels"] == 2


def test_rounds_of_other_examples_are_left_out() -> None:
    view = by_hand(np.full((1, 2, 2), 0.3, np.float32), [None] * 5)
    others = [dataclasses.replace(view.observations[0], same_examples=False), *view.observations[1:]]
    view = dataclasses.replace(view, observations=tuple(others))
    assert of_the_same(view) == [1, 2, 3, 4]
    assert of_the_same(view, 2) == [1, 4]
    assert of_the_same(view, 1) == [4]
    assert [one.round for one in each_round(view)] == [1, 2, 3, 4]
    wide = stacked(view).update
    assert isinstance(wide, ObservedUpdate)
    assert wide.layout.size == 4 * 32 * 5
    assert len(each_round(dataclasses.replace(view, observations=()))) == 1


def publics(rng: Any) -> PublicData:
    images = np.clip(0.5 + 0.2 * rng.standard_normal((100, 1, 4, 4)), 0, 1).astype(np.float32)
    about: Any = {"classes": ("a", "b"), "mean": (0.5,), "std": (0.25,), "shape": (1, 4, 4)}
    return types.SimpleNamespace(examples=Examples(images, np.zeros(100, np.int64)), **about)  # type: ignore[return-value]


def test_noise_averages_out_over_rounds_and_noise_alone_gives_the_mean_image() -> None:
    rng = np.random.default_rng(5)
    public = publics(rng)
    image = public.examples.inputs[0].copy()
    errors = {}
    for rounds in (1, 16):
        report = Rounds(Rounds.Options()).attack(by_hand(image, [None] * rounds, sigma=2.0), attacker(public))
        assert report.images is not None
        errors[rounds] = float(np.square(report.images[0] - image).mean())
        assert not report.unfit
    assert errors[16] < 0.25 * errors[1]
    assert errors[16] < 2e-3
    lost = Rounds(Rounds.Options()).attack(by_hand(image, [None], sigma=500.0), attacker(public))
    assert lost.metrics["alignment"] == 0
    assert "noise alone" in lost.unfit
    assert lost.images is not None
    assert lost.images[0] == pytest.approx(public.examples.inputs.mean(0), abs=1e-6)


def test_gradients_of_several_rounds_are_matched_at_their_own_models(runs: Runs) -> None:
    """At the true example, and with its label, the joint distance is 0; from each round's own model alone it is not."""
    folder = runs.of(recipe_of(rounds=3, model=MLP, train=SGD))
    with machinery(folder, "attacks.rounds", adversaries=["server"], targets=[0], rounds=[3],
                   probe={"batch_size": 1, "rounds": 3}) as run:  # fmt: skip
        view, truth = view_of(run, "server", 0)
    views = each_round(view)
    assert [one.round for one in views] == [0, 1, 2]
    matcher = SeveralRounds(views, "adaptive", 1, "cpu", double=True)
    true = torch.from_numpy((truth.images[None].astype(np.float64) - view.mean[0]) / view.std[0])
    labels = matcher.one_hot([truth.labels.tolist()])
    gradients = matcher.gradients(true, labels)[0]
    assert gradients.shape == (1, 3 * view.model.layout.size)
    assert float(matcher.squared(gradients)) < 1e-5
    assert float(matcher.cosine(gradients)) < 1e-5
    stale = torch.cat([matcher.parts[0].gradients(true, labels)[0]] * 3, dim=1)
    assert float(matcher.squared(stale)) > 1e-3
    report = Rounds(Rounds.Options(method="search", iterations=5)).attack(view, attacker())
    assert report.gradient_evaluations == 3 * (5 + 1)
    assert report.labels is not None
    assert report.labels.tolist() == truth.labels.tolist()


def view_of(run: Any, name: str, target: int) -> tuple[View, Any]:
    """The view of the only attack of a run, and the truth."""
    from fedplug.api.roles import Attack

    ((at, names), *_) = run.occasions.rounds()
    (occasion,) = run.occasions.of(at, "released" in names)
    adversary = Adversary.of(name, target, occasion.clients, False)
    assert adversary is not None
    known = run._known(occasion, adversary, target)
    kept = run.stage.shelf.keep(run._observations(occasion, adversary, target, known))
    truth = run.truths.of(occasion.round, target, occasion.moment, known.update)
    component = run.composition.part(run.section.attacks[0].name, Attack)
    view = View(name, target=target, round=at, observations=tuple(kept))
    return run.calls.view(view, known, truth, component, None)


# -- a third party -----------------------------------------------------------------------------------------------------


@pytest.fixture
def third_party() -> Iterator[str]:
    attacks = attack_catalog().groups["attack"]
    attacks["third.sixty"] = Entry("third.sixty", "attack", f"{Sixty.__module__}:{Sixty.__qualname__}", "t", "0", Sixty)
    yield "third.sixty"
    del attacks["third.sixty"]


def test_sixty_lines_use_rounds_labels_and_a_coalition(tmp_path: Path, third_party: str) -> None:
    """All is encrypted for the key server, which opens sums alone; the other three clients are on the server's side."""
    plain = recipe_of("encrypted", [BFV], rounds=3, model=MLP, train=SGD, postprocess={"encrypted": ["std.bfv"]})
    folder = finished_run(plain, tmp_path)
    scope: dict[str, Any] = {"targets": [0], "rounds": [3], "probe": {"batch_size": 1, "rounds": 3}}
    names = ("attacks.mse", "attacks.label_accuracy")
    found = attacked(folder, third_party, metrics=names, adversaries=["server", COALITION], **scope)
    by = {result["adversary"]: result["forms"] for key, result in found.items() if key != "summary"}
    assert by["server"]["adaptive"]["status"] == "not_applicable"
    (outcome,) = by[COALITION].values()
    assert outcome["status"] == "success"
    assert outcome["own"]["rounds"] == 3
    assert outcome["own"]["by_subtraction"] == 1
    assert outcome["own"]["colluders_heard"] == 3
    assert outcome["metrics"]["mse"] < 1e-4
    assert len(Path(__file__).with_name("sixty_lines.py").read_text(encoding="utf-8").splitlines()) <= 60


def test_an_early_round_has_its_model_where_that_of_the_attacked_one_is_unknown(tmp_path: Path) -> None:
    """SelectiveShield's server knows the model before round 1, and of later ones the shared parameters alone."""
    folder = finished_run(shield(rounds=3, model=MLP, train=SGD), tmp_path)
    with machinery(folder, "attacks.rounds", adversaries=["server"], targets=[0], rounds=[3],
                   probe={"batch_size": 4, "rounds": 3}) as run:  # fmt: skip
        view, _ = view_of(run, "server", 0)
    assert view.vector is None
    first, *_, last = each_round(view)
    assert last.model is None
    np.testing.assert_array_equal(first.model.get_vector(), view.initial)
    np.testing.assert_array_equal(first.vector, view.initial)


@pytest.mark.parametrize("size", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_selective_shields_moving_mask_is_seen_through(size: int, tmp_path: Path) -> None:
    """The same batch in three rounds of SelectiveShield, without noise: more entries are seen than in one."""
    plain = shield(rounds=3, model=MLP, train=SGD)
    plain["protect"] = plain["protect"] | {"noised": []}
    folder = finished_run(plain, tmp_path)
    scope: dict[str, Any] = {"targets": [0], "rounds": [3], "probe": {"batch_size": size, "rounds": 3}}
    found = attacked(folder, "attacks.rounds", metrics=["attacks.mse"], adversaries=["server"], **scope)
    (result,) = (result for key, result in found.items() if key != "summary")
    own = result["forms"]["adaptive"]["own"]
    assert own["rounds"] == 3
    assert own["coverage"] > result["states"]["clear"]
    assert result["forms"]["adaptive"]["status"] == "success"
    assert result["probe"]["rounds"] == 3
