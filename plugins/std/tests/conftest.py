"""Fixtures that the tests of this plugin share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from he_toys import SCHEMES, Parties, make


@pytest.fixture(scope="session")
def data_root() -> str:
    """The folder of real data sets; tests that need it are marked `data` and skipped where there is none."""
    folder = os.environ.get("FEDPLUG_DATA")
    if not folder:
        pytest.skip("FEDPLUG_DATA is not set: it must name the folder of real data sets")
    if not Path(folder).is_dir():
        pytest.skip(f"FEDPLUG_DATA names {folder}, which is not a folder")
    return folder


@pytest.fixture(scope="session", params=SCHEMES)
def parties(request: pytest.FixtureRequest) -> Parties:
    """Five clients with keys of BFV or CKKS, for tests that add and open."""
    kind, key_holder = request.param
    return Parties(make(kind, key_holder=key_holder), 5, min_clients=3).setup()
