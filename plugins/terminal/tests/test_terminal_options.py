"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fedplug
import pytest
from cli_calls import call, fake_runs
from fedplug.recipe.catalog import Catalog


def test_options_that_would_change_nothing_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    calls = fake_runs(monkeypatch, 0)
    assert call(monkeypatch, "run", "r.yaml", "--workers", "2") == 1
    assert "workers=2 changes nothing with the engine local" in capsys.readouterr().err
    assert call(monkeypatch, "run", "r.yaml", "--timeout", "60") == 1
    assert "timeout=60 changes nothing with the engine local; take engine processes" in capsys.readouterr().err
    assert call(monkeypatch, "resume", "runs/x", "--output", "o") == 2
    assert not calls


def test_a_key_of_the_recipe_as_an_option_says_how_it_is_set(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "run", "r.yaml", "--rounds=3") == 1
    assert capsys.readouterr().err == "error: --rounds is a value of the recipe; write --set rounds=3\n"
    assert call(monkeypatch, "run", "r.yaml", "--seed", "3") == 1
    assert "--set seed=VALUE" in capsys.readouterr().err
    assert call(monkeypatch, "run", "r.yaml", "--colour") == 2


@pytest.mark.parametrize("words", [("--resident", "3"), ("--resident=3",)])
def test_an_option_of_an_earlier_version_says_what_it_is_called_now(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert call(monkeypatch, "run", "r.yaml", *words) == 1
    assert capsys.readouterr().err.startswith(
        "error: --resident is now called --max-clients-in-memory: write --max-clients-in-memory "
    )
    assert call(monkeypatch, "show", "std.sgd", *words) == 2, "a command that never had it"


def test_a_change_of_the_recipe_without_set_says_how_it_is_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, said in (
        (("run", "r.yaml", "rounds=3"), "rounds=3 is a value of the recipe; write --set rounds=3"),
        (("run", "r.yaml", "--set", "rounds=3", "data.clients=2"), "write --set data.clients=2"),
        (("resume", "runs/x", "rounds=3"), "rounds=3 would change the recipe, and a run continues with its own"),
        (("run", "r.yaml", "more.yaml"), "Got unexpected extra argument (more.yaml)"),
    ):
        assert call(monkeypatch, *words) == 2
        assert said in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_a_set_without_its_value_says_how_it_is_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("run", "check"):
        assert call(monkeypatch, command, "r.yaml", "--set", "rounds", "3") == 2
        said = " ".join(capsys.readouterr().err.replace("│", " ").split())
        assert "'rounds' is not PATH=VALUE; write --set rounds=VALUE" in said


class Far:
    """An engine elsewhere."""

    class Options(fedplug.Options):
        """Where."""

        host: str = fedplug.Field("here", description="which machine")
        most_cores: float = fedplug.Field(1, gt=0, description="how much of it")


def test_the_options_of_an_engine_are_among_those_of_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    catalog = Catalog.of({"engine": {"far": Far}})
    monkeypatch.setattr(Catalog, "discover", lambda: catalog)
    calls = fake_runs(monkeypatch, 0)
    for words in (
        ("--engine", "far", "--host", "h:1", "--most-cores=0.5", "r.yaml"),
        ("r.yaml", "--host=h:1", "--engine={use: far, most_cores: 0.5}"),
        ("r.yaml", "--engine", "{use: far, host: 'h:1', most_cores: 0.5}", "--workers", "2"),
    ):
        assert call(monkeypatch, "run", *words) == 0
        settings = calls.pop()[-1]
        assert (settings.engine, settings.engine_options["host"]) == ("far", "h:1")
        assert float(settings.engine_options["most_cores"]) == 0.5
    (tmp_path / "fedplug").mkdir()
    (tmp_path / "fedplug/config.toml").write_text('engine = {use = "far", host = "there"}')
    assert call(monkeypatch, "resume", "runs/x", "--most-cores", "2") == 0
    assert calls.pop()[-1].engine_options == {"host": "there", "most_cores": "2"}
    for words, complaint in (
        (("--hots", "x"), "neither the command nor engine far has an option --hots; did you mean --host?"),
        (("--work", "2"), "neither the command nor engine far has an option --work; did you mean --workers?"),
        (("--host",), "--host needs a value; fedplug show far says which"),
    ):
        assert call(monkeypatch, "run", "r.yaml", *words) == 1
        assert complaint in capsys.readouterr().err
    assert not calls
