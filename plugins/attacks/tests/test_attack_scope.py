"""The section `attack` of a recipe: what it accepts, what it refuses and why, and that it survives a round trip."""

from __future__ import annotations

from typing import Any

import pytest
from attack_toys import attack_catalog, attacks_of
from fedplug.api.errors import RecipeError
from fedplug.recipe.recipe import Recipe
from fedplug_attacks.workshop.scope import AttackScope, scope_problems
from fedplug_attacks.workshop.section import AttackSection
from pydantic import ValidationError
from toy_components import recipe_of


def read(**scope: Any) -> Recipe:
    return Recipe.from_plain(recipe_of(attack=attacks_of("toy.echo", **scope)), attack_catalog())


def section_of(recipe: Recipe) -> AttackSection:
    section = AttackSection.of(recipe)
    assert section is not None
    return section


def problems(**scope: Any) -> str:
    with pytest.raises(RecipeError) as refused:
        read(**scope)
    return str(refused.value)


@pytest.mark.parametrize(
    "names",
    [["server"], ["server", "eavesdropper", "client", "key_server", "released"], ["server+client"],
     ["client:3", "client"], ["server+client:0+key_server"]],
)  # fmt: skip
def test_adversaries_are_roles_joined_by_plus(names: list[str]) -> None:
    assert AttackScope(adversaries=names).adversaries == names


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["servre"], "there is no adversary 'servre'; there is server, eavesdropper, client, key_server, released"),
        (["server+bob"], "there is no adversary 'bob'"), (["server:1"], "there is no adversary 'server:1'"),
        (["client:x"], "there is no adversary 'client:x'"), (["client:-1"], "there is no adversary 'client:-1'"),
        (["server+"], "there is no adversary ''"), ([""], "there is no adversary ''"),
        (["released+server"], "released cannot collude"), (["server", "server"], "an adversary is named twice"),
        ([], "adversaries"),
    ],
)  # fmt: skip
def test_other_adversaries_are_refused(names: list[str], words: str) -> None:
    assert words in problems(adversaries=names)


@pytest.mark.parametrize(
    ("scope", "words"),
    [
        ({"targets": [4]}, "targets names client 4, but there are 4: 0 to 3"),
        ({"targets": [-1]}, "targets"),
        ({"targets": []}, "targets"),
        ({"adversaries": ["client:4"]}, "there is no client 4; there are 4: 0 to 3"),
        ({"rounds": [3]}, "rounds names round 3, but the recipe has 2"),
        ({"rounds": [0]}, "rounds"),
        ({"rounds": [4], "adversaries": ["released"]}, "the recipe has 2, and 3 means the final model"),
        ({"rounds": [4], "probe": {"batch_size": 3}}, "and 3 means the final model"),
        ({"probe": {"batch_size": 0}}, "batch_size"),
        ({"probe": {}}, "batch_size"),
        ({"probe": {"batch_size": 3, "batches": 0}}, "batches"),
        ({"probe": {"batch_size": 3, "classes": 0}}, "classes"),
        ({"candidates": 1}, "candidates"),
        ({"adversary": ["server"]}, "adversary"),
    ],
)
def test_what_does_not_fit_the_recipe_is_refused(scope: dict[str, Any], words: str) -> None:
    assert words in problems(**scope)


def test_the_final_model_can_be_probed_and_released() -> None:
    assert section_of(read(rounds=[3], probe={"batch_size": 2})).scope.rounds == [3]
    assert section_of(read(rounds=[3], adversaries=["released"])).scope.rounds == [3]
    assert "round 3" in problems(rounds=[3])
    assert "round 3" in problems(rounds=[3], adversaries=["released", "server"])


def test_one_client_has_no_other_to_attack_it() -> None:
    found = scope_problems(AttackScope(adversaries=["server+client"]), 2, 1)
    assert found == ["adversary client: with one client there is no other one to attack it"]
    assert scope_problems(AttackScope(), 2, 1) == []


def test_a_plain_list_of_attacks_has_the_defaults() -> None:
    section = section_of(Recipe.from_plain(recipe_of(attack=[{"use": "toy.bare"}]), attack_catalog()))
    assert section.scope == AttackScope()
    assert [use.use for use in section.attacks] == ["toy.bare"]
    assert section.metrics == ()


def test_a_section_without_attacks_is_refused_with_an_example() -> None:
    with pytest.raises(RecipeError, match=r"attack needs 'attacks', a list such as \[\{use: attacks.ilrg\}\]"):
        Recipe.from_plain(recipe_of(attack={"adversaries": ["server"]}), attack_catalog())


def test_the_section_survives_a_round_trip_and_belongs_to_the_digest() -> None:
    recipe = read(adversaries=["server+client:2"], targets=[1], rounds=[2], probe={"batch_size": 9, "classes": 3})
    again = Recipe.from_plain(recipe.to_plain(), attack_catalog())
    assert again == recipe
    assert again.digest == recipe.digest
    assert read(targets=[0]).digest != read(targets=[1]).digest
    assert [use.use for use in section_of(again).metrics] == [use.use for use in section_of(recipe).metrics]


def test_attacks_and_metrics_are_checked_like_every_component() -> None:
    section = attacks_of("toy.echo")
    section["attacks"][0]["gray"] = 1
    with pytest.raises(RecipeError, match="gray"):
        Recipe.from_plain(recipe_of(attack=section), attack_catalog())
    with pytest.raises(RecipeError, match=r"toy\.distanze.*toy\.distance"):
        Recipe.from_plain(recipe_of(attack=attacks_of("toy.echo", metrics=["toy.distanze"])), attack_catalog())


def test_a_scope_cannot_be_changed_once_it_is_read() -> None:
    with pytest.raises(ValidationError):
        AttackScope().candidates = 3  # type: ignore[misc]
