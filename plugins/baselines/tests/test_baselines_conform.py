"""Every component of this plugin is what a component must be."""

from __future__ import annotations

import pytest
from fedplug.testing import check_component

NAMES = ["batchcrypt", "ckks", "fedml_he", "fedml_he_sensitivity", "maskcrypt", "maskcrypt_priority", "random_mask"]


@pytest.mark.parametrize("name", NAMES)
def test_conforms(name: str) -> None:
    check_component(f"baselines.{name}")
