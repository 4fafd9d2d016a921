"""What the tests of the project and of its plugins share."""

from __future__ import annotations

import pytest


@pytest.fixture
def reports() -> None:
    """Runs of this test draw their reports."""


@pytest.fixture(autouse=True)
def _no_reports(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes most of a small run, is the same for all, and has tests of its own: those ask for `reports`."""
    if "reports" not in request.fixturenames:
        monkeypatch.setattr("fedplug_lab.listener.rewrite_report", lambda run_dir: None)
