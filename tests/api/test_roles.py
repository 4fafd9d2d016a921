"""Roles: the requirements of a class, and its default statements."""

from __future__ import annotations

from typing import Any

import fedplug
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

        def reveals(self, facts: Facts) -> tuple[()]:
            return ()

    assert Votes(None).weigh(None, "") == 2.0  # type: ignore[arg-type]


def test_everyday_names_of_other_roles_are_free() -> None:
    for name in ("score", "train", "load", "form", "zone", "plan", "read", "ballot", "reveal", "releases"):
        made(fedplug.Negotiation, **{name: method("client")})


# -- through a recipe --------------------------------------------------------------------------------------------------


def test_a_class_of_another_role_is_named_with_the_remedy(
    plain_recipe: dict[str, Any], fake_classes: dict[str, dict[str, type]]
) -> None:
    expected = "recipe.protect.encrypted.0: component odd is not a Protector; write class Mean(fedplug.Protector)"
    assert protecting(fake_classes, plain_recipe, fake_classes["aggregate"]["std.mean"]) == [expected]
