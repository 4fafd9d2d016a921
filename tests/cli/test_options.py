"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli_calls import call, fake_runs


def test_options_that_would_change_nothing_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    calls = fake_runs(monkeypatch, 0)
    assert call(monkeypatch, "run", "r.yaml", "--workers", "2") == 1
    assert "--workers 2 changes nothing with --engine local" in capsys.readouterr().err
    assert call(monkeypatch, "run", "r.yaml", "--timeout", "60") == 1
    assert "--timeout 60 changes nothing with --engine local; add --engine processes" in capsys.readouterr().err
    assert call(monkeypatch, "resume", "runs/x", "--output", "o") == 2
    assert not calls
