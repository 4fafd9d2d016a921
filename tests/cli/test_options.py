"""Options that several commands share, and where settings come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli_calls import call, fake_runs
from fedplug.api.errors import SetupError
from fedplug.runs.settings import Settings


def test_settings_come_from_the_config_file_then_the_environment_then_the_command_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("FEDPLUG_DATA", raising=False)
    assert Settings.load() == Settings()
    (tmp_path / "fedplug").mkdir()
    config = tmp_path / "fedplug" / "config.toml"
    config.write_text('device = "cpu"\nworkers = 3\noutput = "~/r"\ndata = "/a"\nrecord_wire = true\n')
    loaded = Settings.load()
    assert loaded == Settings("local", 3, "cpu", Path.home() / "r", Path("/a"), True)
    monkeypatch.setenv("FEDPLUG_DATA", "/b")
    assert Settings.load().data == Path("/b")
    assert Settings.load().replace({"data": Path("/c"), "device": None}).data == Path("/c")
    for text, complaint in (
        ("divice = 'x'", "unknown key 'divice'; did you mean device?"),
        ("workers = 'x'", "workers='x' must be a whole number"),
        ("workers = true", "workers=True must be a whole number"),
        ("workers = 0", "workers=0 must be >= 1"),
        ("= 1", "cannot be read"),
    ):
        config.write_text(text)
        with pytest.raises(SetupError, match=complaint.replace("?", r"\?")):
            Settings.load()
    with pytest.raises(SetupError, match="cannot be read"):
        Settings.load(tmp_path / "absent.toml")


def test_options_that_would_change_nothing_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    calls = fake_runs(monkeypatch, 0)
    assert call(monkeypatch, "run", "r.yaml", "--workers", "2") == 1
    assert "--workers 2 changes nothing with --engine local" in capsys.readouterr().err
    assert call(monkeypatch, "resume", "runs/x", "--output", "o") == 2
    assert not calls
