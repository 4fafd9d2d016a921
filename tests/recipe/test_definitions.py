"""The values at the places of a recipe: names, references, and classes that do not fit there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from fedplug import Aggregator, Field, Options, WeightedSum
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.recipe import Recipe
from recipe_texts import changed


def test_names_are_automatic_unique_and_independent_of_the_order_of_zones(
    plain_recipe: dict[str, Any], fake_catalog: Catalog
) -> None:
    chain = [{"use": "std.clip", "norm": 1.0}, {"use": "std.gaussian", "epsilon": 8}]
    sealed = [{"use": "std.clip", "norm": 2.0}, {"use": "std.ckks"}]
    one = Recipe.from_plain(plain_recipe | {"protect": {"noised": chain, "encrypted": sealed}}, fake_catalog)
    two = Recipe.from_plain(plain_recipe | {"protect": {"encrypted": sealed, "noised": chain}}, fake_catalog)
    assert one.digest == two.digest
    assert [use.name for use in one.protect["encrypted"]] == ["std.clip", "std.ckks"]
    assert [use.name for use in one.protect["noised"]] == ["std.clip@noised", "std.gaussian"]
    # A written name has precedence, wherever it appears.
    chain[0]["name"] = "std.clip"
    named = Recipe.from_plain(plain_recipe | {"protect": {"encrypted": sealed, "noised": chain}}, fake_catalog)
    assert [named.protect[zone][0].name for zone in ("encrypted", "noised")] == ["std.clip@encrypted", "std.clip"]
    same_zone = [{"use": "std.clip", "norm": 1.0}, *({"use": "std.clip", "norm": n} for n in (2.0, 3.0))]
    (problem,) = changed(plain_recipe, fake_catalog, protect=plain_recipe["protect"] | {"noised": same_zone})
    assert (
        problem == "recipe.protect.noised.2: another component is named std.clip@noised already; add name: to this one"
    )


def with_component(classes: dict[str, dict[str, type]], group: str, name: str, found: type) -> Catalog:
    classes[group][name] = found
    return Catalog.of(classes)


class Odd(Aggregator):
    """A component with a fault that a subclass adds."""

    def aggregate(self, known: Any, facts: Any) -> Any:
        return (WeightedSum(),)


class GivesNothing(Aggregator):
    """Forgot to return something."""

    def aggregate(self, known: Any, facts: Any) -> Any: ...


class OtherArguments(Aggregator):
    """Takes what nobody hands it."""

    def aggregate(self, blocks: Any) -> Any: ...


class Unfinished(Aggregator):
    """Forgot the method."""


class RoleMissing:
    """Inherits from nothing."""

    class Options(Options):
        """No options."""


class Raises(Odd):
    """Cannot be built."""

    def __init__(self, options: Any) -> None:
        raise RuntimeError("no luck")


class Complains(Odd):
    """Checks the whole recipe."""

    def check(self, recipe: Recipe) -> list[str]:
        return [f"{recipe.clients} clients are too few"]


class CheckFails(Complains):
    """Its check is broken."""

    def check(self, recipe: Recipe) -> list[str]:
        raise KeyError("x")


class NoOptions(Odd):
    """Has options of another kind."""

    Options = dict  # type: ignore[assignment]


class TakenWord(Odd):
    """Has an option that recipes reserve."""

    class Options(Options):
        name: str = Field("x", description="x")


class TakenInner(Odd):
    """Calls an inner component by a word that recipes reserve."""

    inner: ClassVar[Mapping[str, str]] = {"name": "aggregate"}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (GivesNothing, "component odd, hook aggregate: it gave None; give a tuple of operations (Clip, "),
        (OtherArguments, "component odd has aggregate(blocks), which an Aggregator has as aggregate(known, facts)"),
        (Unfinished, "component odd has no aggregate(known, facts), which an Aggregator must have"),
        (RoleMissing, "plugin test: odd is not a component; its class must inherit from its role, such as "
                      "fedplug.Aggregator"),
        (Raises, "component odd (odd) cannot be built: RuntimeError: no luck"),
        (Complains, "odd: 4 clients are too few"),
        (CheckFails, "component odd: its check fails: KeyError: 'x'"),
        (NoOptions, "plugin test: odd has no nested class Options(fedplug.Options)"),
        (TakenWord, "plugin test: odd has an option named name, which recipes reserve"),
        (TakenInner, "plugin test: odd has an option named name, which recipes reserve"),
    ],
)
def test_faulty_components_are_named(
    plain_recipe: dict[str, Any], fake_classes: dict[str, dict[str, type]], found: type, expected: str
) -> None:
    catalog = with_component(fake_classes, "aggregate", "odd", found)
    problem = changed(plain_recipe, catalog, aggregate="odd")[0]
    assert problem.partition(": ")[2].startswith(expected)


@pytest.mark.parametrize("name", [{"a": "b"}, ["x"], 5, True, ""])
def test_a_name_that_is_no_text_is_reported_with_every_other_mistake(
    plain_recipe: dict[str, Any], fake_catalog: Catalog, name: object
) -> None:
    problems = changed(plain_recipe, fake_catalog, model=plain_recipe["model"] | {"name": name}, rounds=-1)
    assert len(problems) == 2
    assert any(problem.startswith(f"recipe.model.name: name={name!r} must be letters") for problem in problems)


def test_more_clients_than_any_run_has_are_refused_before_anything_counts_them(
    plain_recipe: dict[str, Any], fake_catalog: Catalog
) -> None:
    (problem,) = changed(plain_recipe, fake_catalog, data=plain_recipe["data"] | {"clients": 2**60})
    assert "clients" in problem
    assert "1000000" in problem
