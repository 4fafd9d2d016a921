"""The kit's parts describe themselves."""

from __future__ import annotations

import pytest
from fedplug_kit.parts import PARTS
from fedplug_kit.static import check_component

ALL = [(group, found) for group, parts in PARTS.items() for found in parts.values()]


@pytest.mark.parametrize(("group", "found"), ALL, ids=[found.__name__ for _, found in ALL])
def test_a_part_has_its_role(group: str, found: type) -> None:
    from fedplug.recipe.composition import hook_problems

    assert hook_problems(found, group) == ()


def test_the_kit_asks_more_of_components_than_of_its_parts() -> None:
    """Its options have no descriptions, since nobody lists them."""
    with pytest.raises(AssertionError, match="option scale needs a description"):
        check_component(PARTS["trainer"]["kit.push"])
