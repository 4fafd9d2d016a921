"""Roles: the requirements of a class, and its default statements."""

from __future__ import annotations

from typing import Any

import fedplug
import pytest
from fedplug import Client, Cohort, Facts, Plans
from role_toys import made, method, protecting


def test_names_of_a_components_own_are_free() -> None:
    """Even those of a base class that is not a role, which its author has named for all subclasses."""

    class Base(fedplug.Negotiation):
        """A plugin's own base class."""

        plans = Plans(zones=frozenset({"clear"}))
        strength: float = 1.0

        def weigh(self, client: Client, by: str) -> float:
            return self.strength

    class Votes(Base):
        """A component."""

        def weigh(self, client: Client, by: str) -> float:
            return 2.0

        def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
            """Nothing."""

    assert Votes(None).weigh(None, "") == 2.0  # type: ignore[arg-type]


def test_everyday_names_of_other_roles_are_free() -> None:
    for name in ("score", "train", "load", "form"):
        made(fedplug.Negotiation, **{name: method("client")})


def test_a_base_component_without_a_role_is_looked_at_again_with_the_role() -> None:
    base = made(fedplug.Component, protects=method("known", "facts"))  # no protect to misspell yet
    with pytest.raises(TypeError, match=r"protects of Odd is not a member of a Protector; did you mean protect\?"):
        type("Odd", (base, fedplug.Protector), {"__module__": "acme.odd", "__qualname__": "Odder"})


# -- through a recipe --------------------------------------------------------------------------------------------------


def test_a_class_of_another_role_is_named_with_the_remedy(
    plain_recipe: dict[str, Any], fake_classes: dict[str, dict[str, type]]
) -> None:
    expected = "recipe.protect.encrypted.0: component odd is not a Protector; write class Mean(fedplug.Protector)"
    assert protecting(fake_classes, plain_recipe, fake_classes["aggregate"]["std.mean"]) == [expected]
