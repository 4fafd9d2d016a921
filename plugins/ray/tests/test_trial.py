"""`make cluster`, on a machine where no Ray has run before."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_two_nodes_give_the_model_of_one_process() -> None:
    command = [sys.executable, "-m", "fedplug_ray.trial", "recipes/bfv-fedavg.yaml", "--set", "rounds=1"]
    with tempfile.TemporaryDirectory(prefix="r") as folder:  # short, since a socket's path has at most 107 characters
        environ = {**os.environ, "TMPDIR": folder}
        done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "the two models are equal, bit for bit" in done.stdout
        assert list(Path(folder).iterdir()) == [], "the trial must leave nothing behind"
