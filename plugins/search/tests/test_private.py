"""A private choice: what is drawn, kept and refused, and what it costs toward whom."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from dp_accounting.dp_event import GaussianDpEvent, RepeatAndSelectDpEvent, SelfComposedDpEvent
from dp_accounting.rdp import RdpAccountant
from fedplug import gaussian_epsilon, gaussian_noise_multiplier
from fedplug.api.errors import RecipeError
from fedplug.recipe.catalog import Catalog
from fedplug_ledger.accounting import ORDERS
from fedplug_runs.archive import Charges
from fedplug_runs.settings import Settings
from fedplug_search import searching
from fedplug_search.laws import Law
from fedplug_search.private import FILE, Choice, made_again
from fedplug_search.question import Asked, read_question

OVER = ["train.lr=[0.01, 0.1]"]
NOISY = """
name: noisy
seed: 3
rounds: 1
data: {use: std.digits, clients: 4, partition: {use: std.iid}}
model: {use: std.logistic}
train: {use: std.sgd, epochs: 1, batch_size: 32, lr: 0.1}
negotiate_mask: {use: std.single_zone, zone: noised}
protect: {noised: [{use: std.clip, norm: 0.3}, {use: std.gaussian, epsilon: 2, delta: 1.0e-5}]}
aggregate: {use: std.mean, weighting: uniform}
"""


@pytest.fixture
def noisy(tmp_path: Path) -> Path:
    file = tmp_path / "noisy.yaml"
    file.write_text(NOISY)
    return file


def found(recipe: Path, settings: Settings, catalog: Catalog, monkeypatch: Any, **more: Any) -> Any:
    """The answer where three trials are drawn, of two settings, so that one comes twice at least."""
    monkeypatch.setattr(Law, "draw", lambda law: 3)
    return searching.find(recipe, settings, Asked(OVER, private="geometric", trials=10, **more), catalog)


def test_the_best_of_what_was_drawn_and_what_it_costs(
    noisy: Path, settings: Settings, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = found(noisy, settings, catalog, monkeypatch)
    assert [trial.runs[0].parent.name for trial in answer.trials] == ["trial-1", "trial-2", "trial-3"]
    assert answer.found[0].numbers["accuracy"] == max(trial.numbers["accuracy"] for trial in answer.trials)
    chosen, *of_trials = answer.privacy()
    noise = GaussianDpEvent(gaussian_noise_multiplier(2, 1e-5))
    costs = [
        RdpAccountant([float(order) for order in ORDERS if 1.001 < order < 500]).compose(event).get_epsilon(1e-5)
        for event in (RepeatAndSelectDpEvent(noise, 10, 1), SelfComposedDpEvent(noise, 3))
    ]
    stated = (re.search(r"epsilon (\S+) for each client at delta 1e-05", line) for line in answer.privacy()[:2])
    said = [float(each[1]) for each in stated if each]
    assert said == pytest.approx(costs, abs=0.01)
    assert "A run costs up to 2.00; their number was drawn: geometric, 10 on average" in chosen
    assert of_trials[0].startswith("All 3 trials, toward the server: ")
    drawn = json.loads((settings.output / FILE).read_text())
    again = found(noisy, settings, catalog, monkeypatch)
    assert json.loads((settings.output / FILE).read_text()) == drawn
    assert len(again.trials) == 3


def test_settings_in_which_clients_have_other_examples_are_refused(noisy: Path, catalog: Catalog) -> None:
    """Epsilon of a client who holds a quarter of the data is none of one who holds half."""
    split = "data.partition=[{use: std.iid}, {use: std.dirichlet, alpha: 0.5}]"
    for over in ("data.clients=[2, 4]", split, "data.train_size=[200, 400]"):
        question = read_question(noisy, Asked([over], private="geometric", trials=10), catalog)
        assert question.private is not None
        with pytest.raises(RecipeError, match=r"--private: with .* clients have other examples"):
            Choice.of(question, question.private, catalog, None)
    features = read_question(noisy, Asked(["data.features=[null, oriented_gradients]"], private="geometric"), catalog)
    assert features.private is not None
    assert "epsilon" in Choice.of(features, features.private, catalog, None).sentences(1)[0]


def test_rounds_that_were_made_again_are_paid(noisy: Path, catalog: Catalog, tmp_path: Path) -> None:
    """A run that was killed asks for a second upload of the round, under other noise."""
    question = read_question(noisy, Asked(OVER, private="geometric", trials=10), catalog)
    assert question.private is not None
    charges = tmp_path / "trial-2" / "run"
    charges.mkdir(parents=True)
    assert made_again(tmp_path) == 0
    notes = Charges(charges)
    for round, charged in ((0, [0, 1]), (0, [2, 3]), (1, [0, 1, 2]), (1, [1, 3])):
        notes.note(round, charged)
    assert made_again(tmp_path) == 1  # client 1 in round 2
    two = Choice.of(question, question.private, catalog, None, repeats=1).toward["server"]
    assert not isinstance(two, str)
    assert two.epsilon == pytest.approx(gaussian_epsilon(gaussian_noise_multiplier(2, 1e-5) / 2**0.5, 1e-5), rel=1e-6)


def test_trials_that_fail_alike_end_no_private_search_and_none_may_be_drawn(
    noisy: Path, settings: Settings, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a trial fails may follow from data, and their number may not."""
    monkeypatch.setattr(Law, "draw", lambda law: 5)
    fails = "score_parameters=[{use: toy.fail, clients: [0, 1, 2, 3]}]"
    asked = Asked(OVER, private="geometric", trials=10, sets=[fails])
    answer = searching.find(noisy, settings, asked, catalog)
    assert [trial.status for trial in answer.trials] == ["failed"] * 5
    monkeypatch.setattr(Law, "draw", lambda law: 0)
    none = searching.find(noisy, settings.replace({"output": settings.output / "none"}), Asked(OVER, private="poisson"),
                          catalog)  # fmt: skip
    assert (none.trials, none.complete) == ([], True)


def test_without_noise_nobody_is_promised_anything(
    recipe: Path, settings: Settings, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen, *of_trials = found(recipe, settings, catalog, monkeypatch).privacy()
    assert "no guarantee: a run has none: sees sums over clients of the clear zone" in chosen
    assert "toward the server: no guarantee: reads the clear zone" in of_trials[0]


NOISE = "{use: std.gaussian, epsilon: 2, delta: 1.0e-5%s}"


@pytest.mark.parametrize("noised_first", [True, False])
def test_a_setting_without_noise_takes_the_promise_of_all(noisy: Path, catalog: Catalog, noised_first: bool) -> None:
    clip = "{use: std.clip, norm: 0.3}"
    lists = [f"[{clip}, {NOISE % ''}]", f"[{clip}]"]
    over = f"protect.noised=[{', '.join(lists if noised_first else lists[::-1])}]"
    question = read_question(noisy, Asked([over], private="geometric", trials=10), catalog)
    assert question.private is not None
    said = Choice.of(question, question.private, catalog, None).sentences(3)
    assert len(said) == 4
    assert all("no guarantee: " in line for line in said)


def test_noise_of_a_seed_that_trials_share_promises_nothing(noisy: Path, catalog: Catalog) -> None:
    """The theorem takes independent runs."""
    noisy.write_text(NOISY.replace(NOISE % "", NOISE % ", source: reproducible"))
    question = read_question(noisy, Asked(OVER, private="geometric", trials=10), catalog)
    assert question.private is not None
    said = Choice.of(question, question.private, catalog, None).sentences(3)
    assert len(said) == 4
    assert all("no guarantee: " in line and "the noise follows from a seed" in line for line in said)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (Asked(["train.lr=0.01..0.1"], private="geometric"), "a range that can be counted"),
        (Asked(OVER, objectives=["bytes=min"], private="geometric"), "one objective, accuracy"),
        (Asked(OVER, most=["bytes=1MB"], private="geometric"), "no constraint but on accuracy"),
        (Asked(OVER, seeds=[1, 2], private="geometric"), "one seed"),
        (Asked(OVER, timeout=5.0, private="geometric"), "no --timeout"),
        (Asked(OVER, search_seed=1, private="geometric"), "no --search-seed"),
        (Asked(OVER, private="cosy"), "'cosy' is no law; write geometric"),
        (Asked(["train.lr=1..9:step=1", "seed=1..2"], private="geometric"), "a seed is not searched"),
    ],
)
def test_what_would_tell_of_trials_is_refused(
    asked: Asked, says: str, noisy: Path, settings: Settings, catalog: Catalog
) -> None:
    with pytest.raises(RecipeError, match=says):
        searching.find(noisy, settings, asked, catalog)
