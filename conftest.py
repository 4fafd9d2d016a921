"""What the tests of the project and of its plugins share."""

from __future__ import annotations

import examples
import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says how busy the machine is, and nothing about the code.
settings.register_profile("fedplug", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fedplug")

pytest_plugins = ["display_toys"]  # fixtures


def pytest_configure(config: pytest.Config) -> None:
    """Property tests try all of their examples where slow tests run too."""
    examples.ALL = config.option.markexpr != "not slow"


@pytest.fixture
def reports() -> None:
    """Runs of this test draw their reports."""


@pytest.fixture(autouse=True)
def _no_reports(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes most of a small run, is the same for all, and has tests of its own: those ask for `reports`."""
    if "reports" not in request.fixturenames:
        monkeypatch.setattr("fedplug_lab.listener.rewrite_report", lambda run_dir: None)
