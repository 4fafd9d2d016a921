"""Commands of plugins: listed with a line of help without importing them, loaded when they are called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli_calls import call
from fedplug.cli import commands

ENTRY = "[fedplug.command]\ngreet = greeter.words:greet\nbroken = greeter.absent:gone\n"
WORDS = '''
def greet(name: str) -> None:
    """Greet somebody."""
    print(f"hello {name}")
'''


@pytest.fixture
def greeter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    info, package = tmp_path / "greeter-1.dist-info", tmp_path / "greeter"
    info.mkdir()
    package.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: greeter\nVersion: 1\n")
    (info / "entry_points.txt").write_text(ENTRY)
    (package / "__init__.py").write_text("")
    (package / "words.py").write_text(WORDS)
    monkeypatch.syspath_prepend(str(tmp_path))
    commands.found.cache_clear()
    yield
    commands.found.cache_clear()


@pytest.mark.usefixtures("greeter")
def test_a_command_of_a_plugin_is_listed_and_called(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    assert call(monkeypatch, "--help") == 0
    assert "Greet somebody." in capsys.readouterr().out
    assert call(monkeypatch, "greet", "you") == 0
    assert capsys.readouterr().out == "hello you\n"


@pytest.mark.usefixtures("greeter")
def test_a_command_that_cannot_be_imported_names_its_plugin(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    assert call(monkeypatch, "broken") == 1
    assert "plugin greeter: the command broken cannot be imported: ModuleNotFoundError" in capsys.readouterr().err
