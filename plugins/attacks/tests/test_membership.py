"""Membership inference: what is attacked and compared with what, the statistics, and what the view keeps."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import fedplug
import numpy as np
import pytest
import torch
from fedplug import Examples, Facts, Learns
from fedplug.api.blocks import BASE_ZONES
from fedplug.api.data import PublicData
from fedplug_attacks import membership
from fedplug_attacks.api.observation import Meaning, all_clear
from fedplug_attacks.api.report import AttackReport
from fedplug_attacks.api.truth import Truth
from fedplug_attacks.api.view import Attacker, View
from fedplug_attacks.membership import Membership, above_non_members, gaussian_scores, local_model, ratios
from fedplug_attacks.membership_metrics import MembershipRoc
from fedplug_attacks.workshop.results import results
from fedplug_kit.static import check_component
from fedplug_std.datasets import Digits
from fedplug_std.torch_model import TorchModel, seeded, to_tensor
from numpy.typing import NDArray
from pydantic import ValidationError
from sklearn.metrics import roc_auc_score
from torch import nn

MEMBERS, OTHERS = 120, 400
MEAN, STD = (0.3,), (0.4,)


@dataclasses.dataclass(frozen=True, eq=False)
class Game:
    """Digits, of which a target trained on the first `MEMBERS` candidates, from a model that others had trained."""

    candidates: Examples
    public: PublicData
    start: NDArray[np.float32]
    trained: NDArray[np.float32]

    def view(self, **changes: Any) -> View:
        model = network()
        model.set_vector(self.start)
        update = all_clear(0, 0, model.layout, self.trained - self.start, Meaning())
        facts: dict[str, Any] = {"update": update, "vector": self.start, "candidates": self.candidates} | changes
        facts.setdefault("model", model)
        return View("server", target=0, num_classes=10, shape=(1, 8, 8), mean=MEAN, std=STD, seed=3, **facts)


def network() -> TorchModel:
    with seeded(0):
        return TorchModel(nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))


def train(model: TorchModel, examples: Examples, steps: int) -> NDArray[np.float32]:
    inputs, labels = to_tensor(examples.inputs, MEAN, STD), torch.from_numpy(examples.labels)
    optimiser = torch.optim.SGD(model.parameters, 0.2)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model.module(inputs), labels).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return model.get_vector()


@pytest.fixture(scope="module")
def game() -> Game:
    digits = Digits(Digits.Options()).load(None).train
    order = np.random.default_rng(1).permutation(len(digits))
    candidates = digits.take(order[: MEMBERS + OTHERS])
    public = digits.take(order[MEMBERS + OTHERS : MEMBERS + OTHERS + 200])
    model = network()
    start = train(model, digits.take(order[-500:]), 200)
    trained = train(model, candidates.take(slice(0, MEMBERS)), 400)
    return Game(candidates, PublicData(public, classes=tuple("0123456789"), mean=MEAN, std=STD), start, trained)


def attack(view: View, public: PublicData | None = None, party: Attacker | None = None, **options: Any) -> AttackReport:
    component = Membership(Membership.Options(**options))
    party = party or Attacker()
    party.facts = Facts(0, 1, view.model.layout, BASE_ZONES, 4, 2, 7, "digest", public=public)
    return component.attack(view, party)


def scores_of(report: AttackReport) -> NDArray[np.float64]:
    assert report.status == "finished", report.reason
    assert report.members is not None
    return report.members


def found(report: AttackReport) -> dict[str, Any]:
    assert report.status == "finished", report.reason
    truth = Truth(np.zeros((1, 1, 8, 8), np.float32), np.zeros(1, np.int64), 10,
                  members=np.arange(MEMBERS + OTHERS) < MEMBERS)  # fmt: skip
    return MembershipRoc(MembershipRoc.Options()).score(report, truth)


def test_conforms() -> None:
    check_component("attacks.membership")


def test_the_released_model_that_never_saw_the_members_tells_nothing(game: Game) -> None:
    assert found(attack(game.view(), method="loss", model="released"))["membership_auc"] == pytest.approx(0.5, abs=0.07)


def test_the_model_before_training_is_a_strong_reference(game: Game) -> None:
    loss = found(attack(game.view(), method="loss", model="local"))
    ratio = found(attack(game.view(), model="local", reference="released"))
    assert ratio["membership_auc"] > loss["membership_auc"] + 0.05
    assert ratio["membership_auc"] > 0.62
    assert ratio["tpr_at_1_fpr"] > loss["tpr_at_1_fpr"]


def test_hidden_entries_protect_only_as_far_as_they_are_hidden(game: Game) -> None:
    layout, update = network().layout, game.trained - game.start
    shuffled = np.random.default_rng(5).permutation(layout.size)
    areas = []
    for share in (0.0, 0.5, 0.98):
        hidden = np.isin(np.arange(layout.size), shuffled[: int(share * layout.size)])
        report = attack(game.view(update=all_clear(0, 0, layout, update, Meaning(), hidden)), model="local")
        assert report.metrics["visible_share"] == pytest.approx(1 - share, abs=1e-3)
        areas.append(found(report)["membership_auc"])
    assert areas[0] > 0.62
    assert areas[1] > 0.55
    assert areas[2] < areas[0] - 0.05


def test_the_closest_model_is_attacked(game: Game) -> None:
    nothing = all_clear(0, 0, network().layout, game.trained, Meaning(), np.ones(network().layout.size, np.bool_))
    of_two = dataclasses.replace(game.view().update, contributors=(0, 1))  # type: ignore[type-var]
    cases = {
        "loss_under_personal": game.view(personal=game.trained),
        "loss_under_local": game.view(),
        "loss_under_released": game.view(update=None),
    }
    for name, view in cases.items():
        for report in (attack(view, method="loss"), attack(view, game.public, reference="public")):
            assert set(report.metrics) - {"visible_share", "public_examples"} == {name}
    for update in (nothing, of_two):
        assert "loss_under_released" in attack(game.view(update=update), method="loss").metrics
    local, personal = attack(game.view()), attack(game.view(personal=game.trained, update=None))
    np.testing.assert_allclose(scores_of(local), scores_of(personal), rtol=1e-3, atol=1e-3)


def test_loss_and_log_odds_are_those_of_the_probabilities(game: Game) -> None:
    view = game.view(update=None)
    with torch.no_grad():
        logits = view.model.module(to_tensor(game.candidates.inputs, MEAN, STD)).double().numpy()
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    right = p[np.arange(len(p)), game.candidates.labels]
    others = p.sum(1) - right
    losses = scores_of(attack(view, method="loss", model="released"))
    np.testing.assert_allclose(losses, np.log(right), atol=1e-6)
    single = PublicData(game.public.examples.take(slice(0, 1)), classes=game.public.classes, mean=MEAN, std=STD)
    # With a single public example all class means are the same, and the statistic is only moved.
    ratio = scores_of(attack(view, single, model="released", reference="public"))
    expected = np.log(right) - np.log(others)
    np.testing.assert_allclose(ratio - ratio[0], expected - expected[0], atol=1e-5)


def test_certain_answers_keep_their_order(game: Game) -> None:
    view = game.view(update=None)
    view.model.set_vector(game.start * 1000)
    scores = scores_of(attack(dataclasses.replace(view, vector=game.start * 1000), game.public, model="released"))
    assert len(np.unique(scores)) > 0.99 * len(scores)


def test_a_class_with_few_public_examples_leans_on_the_mean_of_all() -> None:
    public = np.array([1.0, 3.0, 1.0, 3.0, 10.0])
    classes = np.array([0, 0, 0, 0, 1])
    mean = 3.6
    means = np.array([(8 + 4 * mean) / 8, (10 + 4 * mean) / 5, mean])
    spread = np.std(public - means[classes])
    scores = above_non_members(np.array([5.0, 5.0, 5.0]), np.array([0, 1, 2]), public, classes, 3)
    np.testing.assert_allclose(scores, (5.0 - means) / spread)


def test_a_local_model_follows_the_sign_of_what_was_sent(game: Game) -> None:
    layout, move = network().layout, np.full(network().layout.size, 0.5, np.float32)
    hidden = np.arange(layout.size) % 2 == 0
    local = local_model(game.start, all_clear(0, 0, layout, move, Meaning(), hidden))
    np.testing.assert_array_equal(local[hidden], game.start[hidden])
    np.testing.assert_allclose(local[~hidden], game.start[~hidden] + 0.5)
    against = local_model(game.start, all_clear(0, 0, layout, move, Meaning(sign=1)))
    np.testing.assert_allclose(against, game.start - 0.5)


def test_the_model_is_in_evaluation_mode_and_left_as_it_was(game: Game) -> None:
    model = TorchModel(nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.BatchNorm1d(64), nn.Linear(64, 10)))
    model.module.train()
    vector, buffers = model.get_vector(), model.get_buffers()
    view = game.view(model=model, vector=vector, personal=vector + 0.1, update=None)
    first, second = attack(view, game.public), attack(view, game.public)
    np.testing.assert_array_equal(scores_of(first), scores_of(second))
    attack(view, game.public, reference="public")
    assert model.module.training
    np.testing.assert_array_equal(model.get_vector(), vector)
    for name, values in model.get_buffers().items():
        np.testing.assert_array_equal(values, buffers[name])


def test_batches_change_nothing_but_the_progress(game: Game, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = attack(game.view(), game.public)
    told: list[tuple[int, int, float | None]] = []
    monkeypatch.setattr(membership, "_BATCH", 37)
    parts = attack(game.view(), game.public, Attacker(progress=lambda *now: told.append(now)))
    np.testing.assert_allclose(scores_of(whole), scores_of(parts), rtol=1e-4, atol=1e-4)
    total = 2 * (MEMBERS + OTHERS + 200)
    assert told[-1][:2] == (total, total)
    assert [done for done, _, _ in told] == sorted(done for done, _, _ in told)
    assert all(loss is not None and np.isfinite(loss) for _, _, loss in told)


def test_a_loss_that_is_not_a_number_is_told(game: Game) -> None:
    broken = game.start.copy()
    broken[0] = np.nan
    report = attack(game.view(update=None, personal=broken), method="loss")
    assert report.status == "diverged"
    assert report.members is None
    assert "520 examples under the personal model" in report.reason


def test_what_is_missing_is_named(game: Game) -> None:
    assert "personal model of the target" in attack(game.view(), model="personal").reason
    itself = attack(game.view(update=None), game.public, reference="released")
    assert itself.status == "not_applicable"
    assert "cannot be its own reference" in itself.reason


def test_without_any_reference_the_confidence_alone_ranks(game: Game) -> None:
    view = game.view(update=None, vector=game.trained)
    ratio, loss = attack(view), attack(view, method="loss")
    assert ratio.metrics["public_examples"] == 0
    assert attack(view, game.public).metrics["public_examples"] == 200
    assert found(ratio)["membership_auc"] == pytest.approx(found(loss)["membership_auc"], abs=1e-3)


def test_needs_follow_from_the_options(game: Game) -> None:
    def unmet(view: View, public: PublicData | None = None, **options: Any) -> str:
        return Membership(Membership.Options(**options)).finds.needs.unmet(view, public)

    assert not unmet(game.view(update=None))
    assert "challenge" in unmet(game.view(candidates=None))
    assert "model at that time" in unmet(game.view(vector=None))
    assert "sees no update" in unmet(game.view(update=None), model="local")
    assert "public examples" in unmet(game.view(), reference="public")
    assert not unmet(game.view(), reference="public", method="loss")
    assert not unmet(game.view(), game.public, reference="both", model="local")
    with pytest.raises(ValidationError, match="cannot be compared with itself"):
        Membership.Options(model="released", reference="both")
    Membership.Options(model="released", reference="both", method="loss")


def test_the_plan_says_what_is_attacked() -> None:
    ratio = Membership(Membership.Options(method="likelihood_ratio")).describe()
    assert ratio.endswith("closest model to the target's, reference: auto")
    assert "16 shadow models" in Membership(Membership.Options()).describe()
    loss = Membership(Membership.Options(method="loss", model="released")).describe()
    assert loss == "membership by the loss under the released model"


# -- shadow models -----------------------------------------------------------------------------------------------------


def test_the_gaussian_score_of_a_worked_example() -> None:
    """Means 2 and 0; variances 2 and 0, each halfway to their mean of 1: 1.5 and 0.5."""
    out = np.array([[1.0, 0.0], [3.0, 0.0]])
    np.testing.assert_allclose(gaussian_scores(np.array([5.0, 1.0]), out), [3 / 1.5**0.5, 1 / 0.5**0.5])
    np.testing.assert_allclose(gaussian_scores(np.array([5.0, 1.0]), out * 0), [5.0, 1.0])


def test_the_ratio_of_a_worked_example() -> None:
    """Under the average model 0.3 and 1: p(y) is (1 + 0.3) / 2 and 1."""
    target, out = np.log([0.9, 0.5]), np.log([[0.2, 1.0], [0.4, 1.0]])
    np.testing.assert_allclose(ratios(target, out), np.log([0.9 / 0.65, 0.5]))


def test_the_online_scores_of_a_worked_example() -> None:
    """Log odds -1 and 1 without the example, 3 and 5 with it: means 0 and 4, variances 2, and the log ratio 2 (t - 2).

    Probabilities of 0.2 without it and 0.6 with it: their mean is 0.4, however many models saw it.
    """
    held = np.array([[False], [True], [False], [True]])
    shadows = np.array([[-1.0], [3.0], [1.0], [5.0]])
    for target in (2.0, 3.0):
        np.testing.assert_allclose(gaussian_scores(np.array([target]), shadows, held), [2 * (target - 2)], atol=1e-12)
    likely = np.log([[0.2], [0.6], [0.2], [0.2]])
    one = np.array([[False], [True], [False], [False]])
    np.testing.assert_allclose(ratios(np.log([0.8]), likely, one), np.log([2.0]))


@dataclasses.dataclass(frozen=True, eq=False)
class Released:
    """A model that has learnt `MEMBERS` noisy digits by heart, and what everybody knows of how it was made."""

    view: View
    public: PublicData
    members: NDArray[np.bool_]

    def score(self, cache: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
        report = attack(self.view, self.public, Attacker(cache={} if cache is None else cache), **options)
        members = scores_of(report)
        truth = Truth(np.zeros((1, 1, 8, 8), np.float32), np.zeros(1, np.int64), 10, members=self.members)
        return MembershipRoc(MembershipRoc.Options()).score(AttackReport("finished", members=members), truth)


def released(by_members: bool, rounds: int) -> Released:
    digits = Digits(Digits.Options()).load(None).train
    rng = np.random.default_rng(2)
    noisy = np.clip(digits.inputs.astype(np.int64) + rng.integers(-150, 150, digits.inputs.shape), 0, 255)
    digits = Examples(noisy.astype(np.uint8), digits.labels)
    order = rng.permutation(len(digits))
    mine, others, public, elsewhere, _ = (digits.take(part) for part in np.split(order, [250, 650, 1050, 1300]))
    model = network()
    start = model.get_vector()
    train(model, mine if by_members else elsewhere, 10 * rounds)
    both = Examples(np.concatenate([mine.inputs, others.inputs]), np.concatenate([mine.labels, others.labels]))
    learns = Learns(lr=0.2, batch_size=250, epochs=10)
    view = View(
        "released", target=0, round=rounds, vector=model.get_vector(), model=model, num_classes=10, shape=(1, 8, 8),
        mean=MEAN, std=STD, candidates=both, seed=3, initial=start, learns=(learns,) * rounds,
    )  # fmt: skip
    return Released(view, PublicData(public, classes=tuple("0123456789"), mean=MEAN, std=STD), np.arange(650) < 250)


@pytest.mark.slow
def test_shadow_models_find_members_of_an_overfit_model_that_the_loss_does_not() -> None:
    overfit, cache = released(by_members=True, rounds=40), dict[str, Any]()
    methods = ({"method": "loss"}, {"method": "rmia", "shadow_models": 8}, {"method": "lira", "shadow_models": 8})
    loss, rmia, lira = (overfit.score(cache, **method) for method in methods)
    assert rmia["tpr_at_1_fpr_low"] > loss["tpr_at_1_fpr_high"]
    # Weaker than the ratio with 8 shadow models, and yet more than false alarms, which the loss does not beat.
    assert lira["tpr_at_1_fpr_low"] > 0.01 > loss["tpr_at_1_fpr_low"]


def test_shadow_models_find_nobody_where_the_model_learnt_from_others() -> None:
    """It sees candidates and public examples, and must make nothing of what tells these apart from each other."""
    unrelated, cache = released(by_members=False, rounds=20), dict[str, Any]()
    for method in ("rmia", "lira"):
        found = unrelated.score(cache, method=method, shadow_models=8)
        assert found["tpr_at_1_fpr_low"] <= 0.01
        assert found["membership_auc"] == pytest.approx(0.5, abs=0.09)


def test_every_candidate_is_in_half_of_the_online_shadow_models_and_these_find_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    overfit, cache, rows = released(by_members=True, rounds=20), dict[str, Any](), list[NDArray[np.int64]]()
    train_one = membership.trained
    monkeypatch.setattr(membership, "trained", lambda *args: [rows.append(args[3]), train_one(*args)])
    offline = overfit.score(cache, method="rmia", shadow_models=6)
    assert max(map(max, rows)) < 400
    del rows[:]
    online = overfit.score(cache, method="rmia", shadow_models=6, online=True)
    there = np.stack([np.isin(np.arange(650), chosen - 400) for chosen in rows])
    assert there.sum(0).tolist() == [3] * 650
    assert online["membership_auc"] > offline["membership_auc"]
    assert online["tpr_at_1_fpr"] > offline["tpr_at_1_fpr"]


def test_online_is_for_shadow_models() -> None:
    for options, told in (
        ({"method": "loss"}, "write method: rmia"), ({"reference": "public"}, "no reference"),
        ({"shadow_models": 3}, "write 4 or more"),
    ):
        with pytest.raises(ValueError, match=told):
            Membership.Options(online=True, **options)
    told = Membership(Membership.Options(online=True)).describe()
    assert "a stronger adversary, who knows them before" in told


def test_gradients_name_the_members_of_one_step_on_a_batch(game: Game) -> None:
    """The gradient of 100 digits that all are candidates; also half hidden, and where a clip made it shorter."""
    start = network()
    inputs, labels = to_tensor(game.candidates.inputs[:100], MEAN, STD), torch.from_numpy(game.candidates.labels[:100])
    nn.functional.cross_entropy(start.module(inputs), labels).backward()  # type: ignore[no-untyped-call]
    gradient = np.concatenate([p.grad.numpy().reshape(-1) for p in start.module.parameters() if p.grad is not None])
    meaning = Meaning(lr=0.1, steps=1, epochs=1, batch_size=100, examples=100)

    def area(
        method: str, share: float = 1.0, hidden: NDArray[np.bool_] | None = None, first: int = 0, **facts: Any
    ) -> float:
        sent = np.float32(-0.1 * share) * gradient
        update = all_clear(0, 0, start.layout, sent, dataclasses.replace(meaning, **facts), hidden)
        candidates = game.candidates.take(slice(first, first + 300))
        view = game.view(vector=start.get_vector(), update=update, candidates=candidates)
        return float(roc_auc_score(np.arange(300) < 100, scores_of(attack(view, game.public, method=method))))

    assert area("auto") > 0.99
    assert area("auto") > area("rmia") + 0.2
    assert area("gradient", hidden=np.arange(start.layout.size) % 2 == 0) > 0.95
    assert area("gradient", share=0.01, clip_norm=1e-3) > 0.9
    assert area("gradient", first=100) == pytest.approx(0.5, abs=0.1)  # nobody of the batch is a candidate


def test_targets_of_a_run_share_their_shadow_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = []
    train_one = membership.trained
    monkeypatch.setattr(membership, "trained", lambda *args: [trained.append(args[4]), train_one(*args)])
    section = {
        "adversaries": ["released"], "targets": [0, 1], "attacks": [{"use": "attacks.membership", "shadow_models": 5}]
    }  # fmt: skip
    run = fedplug.run(
        {
            "name": "members", "seed": 3, "rounds": 3, "min_clients": 2, "attack": section,
            "data": {"use": "std.digits", "clients": 2, "public": 300, "partition": {"use": "std.iid"}},
            "model": {"use": "std.mlp", "hidden": [32]}, "train": {"use": "std.sgd", "epochs": 5, "lr": 0.1},
            "negotiate_mask": {"use": "std.single_zone", "zone": "clear"}, "protect": {"clear": []},
            "aggregate": {"use": "std.mean"},
        },
        output=tmp_path, quiet=True,
    )  # fmt: skip
    found = [result.forms["adaptive"] for result in results(run.folder / "attacks")]
    assert [outcome.own["shadow_models"] for outcome in found] == [5, 5]
    assert all(0 < one.shared < one.std for outcome in found for one in outcome.evidence), "and some test examples"
    assert all(0 <= outcome.metrics["tpr_at_1_fpr"] <= 1 for outcome in found)
    assert trained == [0, 1, 2, 3, 4]
