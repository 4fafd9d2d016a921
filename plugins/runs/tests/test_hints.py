"""What may have been meant by a name that nobody offers; keys of recipes are in `tests/recipe/test_sections.py`."""

from __future__ import annotations

import pytest
from fedplug.recipe.catalog import Catalog
from fedplug_runs.hints import suggest


@pytest.mark.parametrize(
    ("group", "name", "hint"),
    [
        ("protect", "std.clp", "did you mean std.clip?"),
        ("protect", "clip", "did you mean std.clip?"),
        ("aggregate", "std.clip", "it is a protect component; for aggregate there is std.mean"),
        ("aggregate", "fedre.pda_pam", "install the plugin, by convention fedplug-fedre"),
        ("aggregate", "std.zzzzzz", "for aggregate there is std.mean"),
        ("attack", "std.zzzzzz", "for attack there is nothing installed"),
        (None, "std.gausian", "did you mean std.gaussian?"),
    ],
)
def test_suggestions(fake_catalog: Catalog, group: str | None, name: str, hint: str) -> None:
    assert hint in suggest(fake_catalog, group, name)
