"""Only the marker `data` decides which tests need the real data sets, and which see their folder."""

from __future__ import annotations

import os
import shutil
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

def test_not_marked_either(data_root):
    assert os.environ["FEDPLUG_DATA"] == data_root
"""


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (None, "1 passed, 2 skipped"), pytest.param("none", "1 passed, 2 skipped", marks=pytest.mark.slow),
        (".", "3 passed"),
    ],
)  # fmt: skip
def test_the_marker_decides(tmp_path: Path, data: str | None, expected: str) -> None:
    (tmp_path / "test_some.py").write_text(TESTS, encoding="utf-8")
    shutil.copy(ROOT / "conftest.py", tmp_path)
    environment = {name: value for name, value in os.environ.items() if name != "FEDPLUG_DATA"}
    if data is not None:
        environment["FEDPLUG_DATA"] = str(tmp_path / data)
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-p", "no:cacheprovider", "-rs", "."]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
    assert expected in done.stdout, done.stdout + done.stderr
    assert ("SKIPPED" in done.stdout) == ("skipped" in expected)
