"""Commands of plugins: listed with a line of help without importing them, loaded when they are called."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from cli_calls import call
from fedplug_runs.installing import install
from fedplug_terminal import commands

ENTRY = (
    "[fedplug.command]\ngreet = greeter.words:greet\nbroken = greeter.absent:gone\nwave = greeter.words:wave\n"
    "bow = greeter.words:bow\n"
)
WORDS = '''
from fedplug_terminal.options import command
@command(group="Compare", epilog="Example: fedplug wave")
def wave() -> None:
    """Wave at everybody."""
@command(group="Manners")
def bow() -> None:
    """Bow to everybody."""
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
    commands.offered.cache_clear()
    yield
    commands.offered.cache_clear()


@pytest.mark.usefixtures("greeter")
def test_a_command_of_a_plugin_is_listed_and_called(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    assert call(monkeypatch, "--help") == 0
    assert "Greet somebody." in capsys.readouterr().out
    assert call(monkeypatch, "greet", "you") == 0
    assert capsys.readouterr().out == "hello you\n"


def _groups(shown: str) -> dict[str, list[str]]:
    """The commands of each panel of `fedplug --help`."""
    groups: dict[str, list[str]] = {}
    for line in shown.splitlines():
        if title := re.match(r"╭─ (.+?) ─+╮$", line):
            names = groups.setdefault(title[1], [])
        elif name := re.match(r"│ ([a-z][\w-]*) ", line):
            names.append(name[1])
    return groups


@pytest.mark.usefixtures("greeter")
def test_help_groups_commands(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    assert call(monkeypatch, "--help") == 0
    groups = _groups(capsys.readouterr().out)
    assert list(groups) == ["Options", *commands.PANELS, "Manners", commands.OTHER]
    assert groups["Run"] == ["run", "resume", "recipes", "check", "ask"]
    assert {"list", "show", "report", "attack"} <= {*groups["Inspect"]}
    assert {"compare", "sweep", "wave"} <= {*groups["Compare"]}
    assert {"party", "sites"} <= {*groups["Federate"]}
    assert {"new", "schema"} <= {*groups["Develop"]}
    assert groups["Manners"] == ["bow"]
    # A plugin that names no group, and one whose source cannot be read.
    assert groups[commands.OTHER] == ["broken", "greet"]
    assert call(monkeypatch, "wave", "--help") == 0
    assert "Example: fedplug wave" in capsys.readouterr().out


def test_every_command_of_this_project_names_its_group() -> None:
    for name, entry in commands.offered().items():
        assert entry.distribution not in commands.OFFERED or commands.panel(entry) in commands.PANELS, name


def test_help_of_a_command_with_many_options_groups_them(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    assert call(monkeypatch, "run", "--help") == 0
    titles = [*_groups(capsys.readouterr().out)]
    assert titles == ["Arguments", "Options", "Extensions", "Execution", "Input and output"]
    assert call(monkeypatch, "list", "--help") == 0
    assert [*_groups(capsys.readouterr().out)] == ["Arguments", "Options"]


@pytest.mark.usefixtures("greeter")
def test_a_command_that_cannot_be_imported_names_its_plugin(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    assert call(monkeypatch, "broken") == 1
    complaint = "plugin greeter 1: command broken (greeter.absent:gone) cannot be imported: ModuleNotFoundError"
    assert complaint in capsys.readouterr().err


def test_a_command_of_an_absent_plugin_names_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(commands, "offered", dict)
    for name, distribution in (("search", "fedplug-search"), ("report", "fedplug-lab")):
        assert call(monkeypatch, name, "x") == 2
        said = " ".join(capsys.readouterr().err.replace("│", " ").split())
        assert f"No such command '{name}'; it comes with {distribution}, which is not installed" in said
        assert install(distribution) in said
    assert call(monkeypatch, "serch") == 2
    assert "did you mean search?" in capsys.readouterr().err
    assert call(monkeypatch, "chek") == 2
    assert "did you mean check?" in capsys.readouterr().err


def test_the_commands_to_install_are_those_that_the_plugins_offer() -> None:
    offered = {}
    for file in (Path(__file__).parents[3] / "plugins").glob("*/pyproject.toml"):
        project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
        if names := project.get("entry-points", {}).get("fedplug.command"):
            offered[project["name"]] = tuple(sorted(names))
    assert offered == commands.OFFERED
