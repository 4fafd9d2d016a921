"""The marker `data` alone decides which tests need the real data sets, and which see where these are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from doc_pages import ROOT

TESTS = """\
import os
import pytest

@pytest.mark.data
def test_marked(data_root):
    assert os.environ["FEDPLUG_DATA"] == data_root

def test_not_marked():
    assert "FEDPLUG_DATA" not in os.environ

def test_forgot_the_marker(data_root):
    pass
"""


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (None, "1 passed, 1 skipped, 1 error"),
        ("none", "1 passed, 1 skipped, 1 error"),
        (".", "3 passed"),
    ],
    ids=["not set", "no such folder", "there"],
)
def test_the_marker_decides(tmp_path: Path, data: str | None, expected: str) -> None:
    path = tmp_path / "test_some.py"
    path.write_text(TESTS, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    environment.pop("FEDPLUG_DATA", None)
    if data is not None:
        environment["FEDPLUG_DATA"] = str(tmp_path / data)
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-p", "conftest", "-rs", str(path)]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider"], capture_output=True, text=True, check=False, env=environment, cwd=tmp_path
    )
    assert expected in done.stdout, done.stdout + done.stderr
    assert ("SKIPPED" in done.stdout) == ("skipped" in expected)
