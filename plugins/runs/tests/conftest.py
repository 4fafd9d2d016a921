"""Runs that several modules of this folder read. None of them writes into one."""

from __future__ import annotations

from pathlib import Path

import fedplug
import pytest
from fedplug import Settings
from python_toys import PLAIN
from run_toys import start


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No data folder and no user config in sight."""
    monkeypatch.delenv("FEDPLUG_DATA", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded run that nothing interrupted."""
    return start(tmp_path_factory.mktemp("whole"), record_wire=True)


@pytest.fixture(scope="session")
def done(tmp_path_factory: pytest.TempPathFactory) -> fedplug.Run:
    """A run that most tests look at."""
    settings = Settings(device="cpu", output=tmp_path_factory.mktemp("runs"), quiet=True)
    return fedplug.run(PLAIN, {"protect.noised.0.norm": 0.2}, settings=settings, rounds=3)
