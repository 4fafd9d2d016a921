"""Which role each entry-point group offers."""

from __future__ import annotations

from fedplug.api.roles import ROLES
from fedplug.recipe.catalog import Catalog
from role_toys import made


def test_the_members_of_each_role_are_unlike_the_words_that_are_refused() -> None:
    """Every role can be subclassed directly, and a class that overrides a member with its signature passes."""
    import inspect

    from fedplug.api.roles import members

    for role in ROLES.values():
        made(role)
        same = {name: value for name, value in members(role).items() if inspect.isfunction(value)}
        made(role, **same)


def test_every_group_of_components_has_the_role_that_has_its_method() -> None:
    assert set(Catalog.discover().groups) - set(ROLES) == {"engine"}
    assert len(set(ROLES.values())) == len(ROLES)
    for group in ("score_parameters", "negotiate_mask", "protect", "aggregate", "postprocess", "attack"):
        assert callable(vars(ROLES[group])[group]), "a hook is a method of its role"
