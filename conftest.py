"""What the tests of the project and of its plugins share."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
from collections.abc import Generator
from pathlib import Path

import one_thread  # isort: skip  # noqa: F401  # first

import examples
import pytest
from cli_calls import GOOD
from hypothesis import HealthCheck, settings

# The time of an example depends on how busy the machine is, not on the code.
settings.register_profile("fedplug", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fedplug")

pytest_plugins = ["display_toys", "fake_components"]  # fixtures

# A process of several has all folders of tests twice here, and what looks for what is installed looks into each.
sys.path[:] = dict.fromkeys(sys.path)


def pytest_configure(config: pytest.Config) -> None:
    """Property tests try all of their examples where slow tests run too."""
    examples.ALL = config.option.markexpr != "not slow"
    settings.register_profile("fedplug", parent=settings.get_profile("fedplug"), max_examples=examples.examples(100))
    settings.load_profile("fedplug")


# -- real data sets ----------------------------------------------------------------------------------------------------

DATA = "FEDPLUG_DATA"


def without_data() -> str:
    """Why there are no real data sets; empty where there are."""
    folder = os.environ.get(DATA)
    if not folder:
        return f"{DATA} is not set: it must name the folder of real data sets"
    return "" if Path(folder).is_dir() else f"{DATA} names {folder}, which is not a folder"


def pytest_collection_finish() -> None:
    """What is there by now stays until the end: nobody goes through it in search of garbage, nor often through all
    that is made later, which is much in a process of many tests.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(700, 10, 50)


WAITING = {"test_federation.py", "test_std_workers.py"}
"""Files whose tests mostly wait for other programs: first, while others compute, rather than last and alone."""


@pytest.hookimpl(tryfirst=True)  # before `-m data` is asked
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `data` are skipped where there are no real data sets. No test decides that by itself."""
    items.sort(key=lambda item: item.path.name not in WAITING)
    reason = without_data()
    for item in items:
        if "data_root" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.data)
        if reason and item.get_closest_marker("data"):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Tests not marked `data` do not see the variable, so that they cannot need the data sets unnoticed."""
    folder = None if item.get_closest_marker("data") else os.environ.pop(DATA, None)
    try:
        return (yield)
    finally:
        if folder is not None:
            os.environ[DATA] = folder


@pytest.fixture(scope="session")
def data_root() -> str:
    """The folder of real data sets. A test that asks for it is marked `data`."""
    return os.environ[DATA]


# -- what this user ran before -----------------------------------------------------------------------------------------


@pytest.fixture(scope="session", autouse=True)
def _own_record(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    """Tests note the user files that they run in a separate record, not in that of the person who runs the tests."""
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
    yield
    if before is None:
        del os.environ["XDG_STATE_HOME"]
    else:
        os.environ["XDG_STATE_HOME"] = before


# -- disks -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session", autouse=True)
def _no_power_failures() -> Generator[None]:
    """Nothing waits for the disk, which takes a fifth of a small run: what is written is there for other processes.

    Tests of what is on the disk before what replace `os.fsync` themselves, and processes that tests start wait for it.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # which also refuses what is no open file
        yield


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """After each file the C library gives back what was freed: pieces of thousands of runs were gigabytes."""
    if nextitem is None or nextitem.path != item.path:
        with contextlib.suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)


# -- reports -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def reports() -> None:
    """Runs of this test draw their reports."""


@pytest.fixture(autouse=True)
def _no_reports(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes most of a small run, is the same for all, and has separate tests, which ask for `reports`."""
    if "reports" not in request.fixturenames:
        monkeypatch.setattr("fedplug_lab.listener.rewrite_report", lambda run_dir: None)


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """A recipe file that is right."""
    path = tmp_path / "good.yaml"
    path.write_text(GOOD)
    return path
