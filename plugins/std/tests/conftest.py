"""Fixtures that the tests of this plugin share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_root() -> str:
    """The folder of real data sets; tests that need it are marked `data` and skipped where there is none."""
    folder = os.environ.get("FEDPLUG_DATA")
    if not folder:
        pytest.skip("FEDPLUG_DATA is not set: it must name the folder of real data sets")
    if not Path(folder).is_dir():
        pytest.skip(f"FEDPLUG_DATA names {folder}, which is not a folder")
    return folder
