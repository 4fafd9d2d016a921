"""Which role each entry-point group offers."""

from __future__ import annotations

from fedplug.api.role_table import ROLES
from role_toys import made


def test_the_members_of_each_role_are_unlike_the_words_that_are_refused() -> None:
    """Every role can be subclassed as it stands, and whoever overrides a member with its own signature passes."""
    import inspect

    from fedplug.api.members import members

    for role in ROLES.values():
        made(role)
        same = {name: value for name, value in members(role).items() if inspect.isfunction(value)}
        made(role, **same)
