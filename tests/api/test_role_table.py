"""Which role each entry-point group offers."""

from __future__ import annotations

from fedplug.api.roles import ROLES
from fedplug.recipe.catalog import Catalog


def test_every_group_of_components_has_the_role_that_has_its_method() -> None:
    assert set(Catalog.discover().groups) - set(ROLES) == {"engine"}
    assert len(set(ROLES.values())) == len(ROLES)
    for group in ("score_parameters", "negotiate_mask", "protect", "aggregate", "postprocess", "attack"):
        assert callable(vars(ROLES[group])[group]), "a hook is a method of its role"
