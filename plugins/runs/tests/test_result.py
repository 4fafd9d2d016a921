"""A run in Python: the contents of its folder, and its display."""

from __future__ import annotations

import html
import json
import re
import sys
import types
from pathlib import Path
from typing import Any, ClassVar

import fedplug
import pytest
from fedplug import Field, Options, Section
from fedplug.api.errors import CheckpointError, SetupError
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.recipe import Recipe
from fedplug_runs.execution import start
from fedplug_runs.folder import read_rows
from fedplug_runs.installing import install
from fedplug_runs.settings import Settings
from row_toys import a_ledger, a_line, a_verdict
from toy_components import TOYS, recipe_of, toy_catalog


def test_a_run_says_what_it_came_to(done: fedplug.Run) -> None:
    assert done.complete
    assert done.exit_code == 0
    assert done.recipe.rounds == 3
    assert done.recipe.protect["noised"][0].options.model_dump()["norm"] == 0.2
    assert [row.round for row in done.metrics] == [1, 2, 3]
    last, line = done.metrics[-1], json.loads((done.folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert last == read_rows(done.folder)[-1]
    assert last.accuracy == line["accuracy"]
    assert last.bytes.up.total == line["bytes"]["up"]["total"]
    assert last.bytes.down.total == line["bytes"]["down"]["total"]
    assert last.wall_seconds == line["wall_seconds"]
    assert last.zones["encrypted"] == pytest.approx(0.2, abs=0.01)
    assert last.clients.answered == 4
    assert last.epsilon == done.ledger.epsilon == pytest.approx(8)
    assert done.ledger.verdict.status == "no_meaningful_guarantee"
    assert [line.state for line in done.ledger.verdict.lines] == ["beyond", "absent", "none", "none", "none"]
    assert done.ledger.delta == 1e-5
    assert done.ledger.views["released_model"].epsilon is None
    assert done.ledger.to_json(indent=2) == (done.folder / "ledger.json").read_text()
    assert repr(done.ledger) == f"<Ledger: {done.ledger.verdict}>"
    assert done.summary.digest == done.recipe.digest
    assert done.summary.command == ""  # no command was typed
    assert [row.round for row in done.metrics[1:]] == [2, 3]


def test_a_ledger_without_noise_has_no_epsilon() -> None:
    assert a_ledger().epsilon is None


def test_a_run_can_be_opened_again(done: fedplug.Run) -> None:
    again = fedplug.open_run(str(done.folder))
    assert again.metrics[0] == done.metrics[0]
    assert repr(again) == repr(done)
    assert "\n  ".join(done.ledger.verdict.text()) in repr(done)


def test_a_notebook_shows_it_escaped(done: fedplug.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = done._repr_html_()
    assert done.recipe.digest[:12] in shown
    assert html.escape(done.ledger.verdict.headline) in shown
    assert all(html.escape(line.rest) in shown for line in done.ledger.verdict.lines)
    assert shown.count("<tr>") == 5 + 5 + 1 + 3  # parties, facts, the head, rounds
    assert "personal mean" not in shown  # no column that is empty
    again = fedplug.open_run(done.folder)
    again.ledger.verdict = a_verdict(server=a_line("server", "none", reason="<script>alert(1)</script>"))
    assert "<script>" not in again._repr_html_()
    assert "&lt;script&gt;alert(1)" in again._repr_html_()


def test_a_run_that_was_killed_can_still_be_shown(done: fedplug.Run, tmp_path: Path) -> None:
    for name in ("recipe.yaml", "metrics.jsonl"):
        (tmp_path / name).write_bytes((done.folder / name).read_bytes())
    killed = fedplug.open_run(tmp_path)
    assert "the run was killed; resume it" in repr(killed)
    assert "the run was killed; resume it" in killed._repr_html_()
    with pytest.raises(CheckpointError, match="has no checkpoint, and so no model"):
        _ = killed.model


def test_pandas_is_asked_for_only_where_it_is_used(done: fedplug.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(SetupError, match="pip install pandas"):
        done.metrics.to_pandas()
    pandas: Any = types.ModuleType("pandas")
    pandas.json_normalize = lambda rows: rows
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    assert done.metrics.to_pandas() == [row.to_plain() for row in done.metrics]


@pytest.mark.usefixtures("reports")
def test_a_plugin_draws_the_report(done: fedplug.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert done.report() == done.folder / "report.html"
    monkeypatch.setattr("fedplug.recipe.catalog.installed", lambda group: {})
    with pytest.raises(SetupError, match=re.escape(install("fedplug-lab"))):
        done.report()


HANDED: list[fedplug.Run] = []


class Audit(Section):
    """Look a run over when it is finished."""

    class Options(Options):
        code: int = Field(1, description="the exit code")

    lists: ClassVar[dict[str, str]] = {}

    def after_run(self, run: fedplug.Run) -> int:
        """Remembers it."""
        HANDED.append(run)
        return int(self.options.code)


@pytest.mark.parametrize("code", [0, 3])
def test_a_section_is_handed_a_run_that_is_whole_and_its_code_is_the_runs(code: int, tmp_path: Path) -> None:
    HANDED.clear()
    used = {"dataset", "partition", "model", "trainer", "negotiate_mask", "aggregate"}
    installed = toy_catalog()
    classes = {
        group: {name: entry.load() for name, entry in installed.groups[group].items() if name.startswith("std.")}
        for group in used
    }
    catalog = Catalog.of({**TOYS, **classes}, {"audit": Audit})
    recipe = Recipe.from_plain(recipe_of(rounds=1, audit={"code": code}), catalog)
    settings = Settings(output=tmp_path, quiet=True, device="cpu")
    found, folder = start(recipe, settings, catalog)
    (handed,) = HANDED
    assert found == code
    assert (handed.recipe, handed.folder, handed.settings, handed.catalog) == (recipe, folder, settings, catalog)
    assert handed.world is not None
    assert len(read_rows(handed.folder)) == 1, "everything is written before"
    assert len(handed.world.assignment) == recipe.data.clients
