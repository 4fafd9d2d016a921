"""What trainers tell attacks of their updates, and what attacks are refused or told for it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from fedplug.api.blocks import Layout
from fedplug.api.errors import RecipeError
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug_attacks.api.needs import Needs
from fedplug_attacks.api.observation import Meaning, all_clear
from fedplug_attacks.api.view import View
from fedplug_attacks.views.observer import Observer
from fedplug_attacks.workshop.records import TrueClasses
from fedplug_attacks.workshop.report_section import ATTACKS
from fedplug_runs.overlay import load_recipe
from target_toys import a_target, an_outcome

RECIPES = Path(__file__).parents[3] / "recipes"
LAYOUT = Layout.of([("a", (3,))])


def meaning_of(recipe: Recipe, examples: int) -> Meaning:
    observer = Observer(recipe, Composition(recipe), LAYOUT, np.zeros(3, np.float32), None)
    return observer.meaning(observer.facts(0), examples, None)


def test_adam_is_no_sum_of_gradients_and_attacks_say_so() -> None:
    meaning = meaning_of(load_recipe(RECIPES / "baselines/feddpa.yaml"), 40)
    view = View("server", update=all_clear(0, 0, LAYOUT, np.zeros(3, np.float32), meaning))
    assert "by Adam" in Needs(model=False).unmet(view)
    plain = dataclasses.replace(view, update=all_clear(0, 0, LAYOUT, np.zeros(3, np.float32), Meaning()))
    assert not Needs(model=False).unmet(plain)


def test_one_gradient_a_round_is_one_step_on_a_batch_in_evaluation_mode() -> None:
    recipe = load_recipe(RECIPES / "baselines/ppsgd.yaml", ["train.batch_size=10"])
    meaning = meaning_of(recipe, 40)
    assert (meaning.steps, meaning.examples, meaning.training_mode) == (1, 10, False)
    assert meaning_of(load_recipe(RECIPES / "baselines/ppsgd.yaml"), 40).examples == 40  # batch_size: null


def test_sgd_makes_a_step_for_each_batch_of_each_epoch() -> None:
    recipe = load_recipe(RECIPES / "fedavg.yaml", ["train.epochs=3", "train.batch_size=16"])
    meaning = meaning_of(recipe, 40)
    assert (meaning.steps, meaning.examples, meaning.training_mode) == (9, 40, True)


def test_a_key_server_that_is_not_there_attacks_nobody() -> None:
    with pytest.raises(RecipeError, match="this protocol has no key server"):
        load_recipe(RECIPES / "fedavg.yaml", ["attack={adversaries: [server+key_server], attacks: [attacks.ilrg]}"])
    load_recipe(RECIPES / "bfv-fedavg.yaml", ["attack={adversaries: [server+key_server], attacks: [attacks.ilrg]}"])


def test_a_client_does_not_attack_itself() -> None:
    text = "attack={adversaries: ['client:1'], targets: [1], attacks: [attacks.ilrg]}"
    with pytest.raises(RecipeError, match="client:1 is the only target itself"):
        load_recipe(RECIPES / "fedavg.yaml", [text])
    load_recipe(RECIPES / "fedavg.yaml", [text.replace("[1]", "[1, 2]")])


def test_the_top_of_the_report_names_what_took_most(tmp_path: Path) -> None:
    from fedplug_attacks.workshop import results as attack_results

    assert ATTACKS.headline(tmp_path) is None
    folder = tmp_path / "attacks"
    for number, (attack, status) in enumerate([("a.one", "failed"), ("a.two", "success"), ("a.two", "failed")]):
        forms = {"adaptive": an_outcome(status, metrics={"mse": 1.0}, recovered=[0] if status == "success" else [])}
        truth = TrueClasses([], [7], [f"person {number}"])
        attack_results.write_result(folder, a_target(attack=attack, forms=forms, key=f"{attack}-{number}", truth=truth))
    attack_results.write_summary(folder, {})
    said = "The image of 1 of 3 examples was recovered: by the server 1."
    assert ATTACKS.headline(tmp_path) == ("Attacks", f"{said} All questions, each of one adversary: 1 succeeded.")
