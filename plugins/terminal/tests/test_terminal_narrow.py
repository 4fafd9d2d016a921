"""What commands print in a narrow terminal: no line ends inside a word."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from cli_calls import GOOD, call
from fedplug.api.errors import RecipeError
from fedplug.recipe.composition import Composition
from fedplug_lab.live import LiveDisplay
from fedplug_runs.overlay import load_recipe
from fedplug_runs.plan import plan_of
from rich.console import Console
from row_toys import a_verdict
from shown_toys import a_row
from whole_words import Terminal, require_whole_words

ROOT = Path(__file__).parents[3]
RECIPES = ("fedavg", "secagg-digits", "bfv-fedavg", "paraaegis-dynamic", "fas", "selectiveshield")
WIDTHS = (60, 80)


def _shown(monkeypatch: pytest.MonkeyPatch, capsys: Any, columns: int, *words: str) -> tuple[str, str]:
    """What a command prints in a terminal of so many columns, and into a pipe."""
    call(monkeypatch, *words)
    source = capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    call(monkeypatch, *words)
    return capsys.readouterr().out, source


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("words", [
    ("list",), ("list", "protect"), ("show", "std.gaussian"), ("show", "std.dirichlet"), ("show", "paraaegis.vote"),
    ("show", "std.ckks"), ("show", "secagg.bonawitz"),
])  # fmt: skip
def test_list_and_show(monkeypatch: pytest.MonkeyPatch, capsys: Any, columns: int, words: tuple[str, ...]) -> None:
    shown, source = _shown(monkeypatch, capsys, columns, *words)
    assert source
    if words[0] == "list":  # which leaves out plugins and versions
        source = " ".join(" ".join(line.split()[4:]) for line in source.splitlines()[1:])
    # Where rows are lines, the titles are gone or become names.
    source = "\n".join(line for line in source.splitlines() if not line.startswith("option "))
    require_whole_words(shown, source, columns)


@pytest.mark.parametrize("columns", WIDTHS)
def test_check(monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path, columns: int) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(GOOD.replace("epsilon: 8", "epsilon: 0").replace("std.mean", "std.maen") + "x: [y]\n")
    files = [str(ROOT / "recipes" / f"{name}.yaml") for name in RECIPES]
    shown, source = _shown(monkeypatch, capsys, columns, "check", *files, str(bad))
    assert "to switch the noise off" in source
    require_whole_words(shown, source, columns)


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("name", RECIPES)
def test_the_plan_and_the_tables_at_the_end_of_a_run(name: str, columns: int) -> None:
    recipe = load_recipe(ROOT / "recipes" / f"{name}.yaml")
    plan = plan_of(recipe, Composition(recipe))
    facts = {"recipe": recipe.name, "rounds": recipe.rounds, "folder": "/srv/federation/" + "x" * 70}
    verdict, rows = a_verdict(), [a_row(round) for round in (1, 2)]
    out = Terminal()
    display = LiveDisplay(Console(file=out, width=columns, height=30, color_system=None), refresh=0)
    display.start(plan, facts)
    display.close()
    planned = out.getvalue().partition("round 1 of")[0]
    require_whole_words(planned, " ".join([facts["folder"], *(word for line in plan for word in line)]), columns)
    begun = len(out.getvalue())
    display.note("client 3 did not answer within 1800 seconds, so the round goes on without it: " + "y" * 90)
    display.finish(rows, verdict, [], Path("runs/a"))
    texts = " ".join(f"{line.who} {line.guarantee} {line.rest} {line.sees}" for line in verdict.lines)
    require_whole_words(out.getvalue()[begun:], f"{verdict.headline} {texts} {'y' * 90}", columns)


def test_errors_of_other_commands(monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(GOOD.replace("std.mean", "std.maen"))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    assert call(monkeypatch, "run", str(bad)) == 1
    with pytest.raises(RecipeError) as found:
        load_recipe(bad)
    require_whole_words(capsys.readouterr().err, str(found.value), 60)
