"""The command line for tests: a recipe, and calls in this process and in another."""

from __future__ import annotations

import subprocess
import sys
import types
from typing import Any

import pytest
from fedplug_runs.settings import Settings
from fedplug_terminal import main as cli

GOOD = """\
name: a
seed: 1
rounds: 2
data: {use: std.digits, clients: 4, partition: std.iid}
model: std.mlp
train: std.sgd
negotiate_mask: {use: std.single_zone, zone: noised}
protect: {noised: [{use: std.clip, norm: 1.0}, {use: std.gaussian, epsilon: 8, delta: 1e-5}]}
aggregate: std.mean
"""


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["fedplug", *arguments])
    return cli.main()


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


MAIN = "import sys; from fedplug_terminal.main import main; code = main()\n"


LIGHT = "heavy = {'torch', 'torchvision', 'tenseal', 'opacus', 'sklearn'} & set(sys.modules); assert not heavy, heavy\n"


def fake_runs(monkeypatch: pytest.MonkeyPatch, outcome: Any) -> list[Any]:
    """Replaces the functions that run things by a fake. Returns the list of its calls."""
    calls: list[Any] = []

    def act(*arguments: Any, settings: Settings, display: str) -> Any:
        assert display == "terminal"
        calls.append((*arguments, settings))
        if isinstance(outcome, BaseException):
            raise outcome
        return types.SimpleNamespace(exit_code=outcome)

    monkeypatch.setattr("fedplug_runs.functions.run", act)
    monkeypatch.setattr("fedplug_runs.functions.resume", act)
    return calls
