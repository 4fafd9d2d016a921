"""Clients that are away: who, in which rounds, what becomes of the round, and what a recipe may not say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import fedplug
import numpy as np
import pytest
import torch
from fedplug.api.errors import RecipeError
from fedplug.recipe.recipe import Recipe
from fedplug_runs.result import Run
from fedplug_std.availability import AvailabilityOptions, Away
from toy_components import paraaegis, recipe_of


def away_in(found: Run) -> list[list[int]]:
    return [sorted(row.clients.dropped) for row in found.metrics]


def test_each_client_is_away_as_often_as_the_chance_says_and_always_in_the_same_rounds() -> None:
    options = AvailabilityOptions(drop_out=0.1)
    away = np.array([[Away(options, 3).is_away(c, r) for r in range(200)] for c in range(20)])
    assert abs(away.mean() - 0.1) < 4 * np.sqrt(0.09 / away.size)
    assert away.any(1).all()  # it is not the same clients every time
    assert abs(np.corrcoef(away)[~np.eye(20, dtype=bool)]).max() < 0.35  # over 200 rounds: each by itself
    again = [[Away(options, 3).is_away(c, r) for r in range(50)] for c in range(3)]
    assert np.array_equal(away[:3, :50], again)


@pytest.mark.parametrize("engine", ["local", "processes"])
def test_a_trace_says_who_is_away_and_they_come_back(tmp_path: Path, engine: str) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("round,client\n1,2\n3,0\n3,1\n")
    plain = recipe_of(rounds=3, availability={"trace": str(trace)})
    found = fedplug.run(plain, output=tmp_path, quiet=True, engine=engine)
    assert away_in(found) == [[2], [], [0, 1]]
    assert set(found.metrics[0].clients.dropped.values()) == {"is away in this round, by availability"}
    assert [row.clients.answered for row in found.metrics] == [3, 4, 2]
    models = [torch.cat([p.flatten() for p in found.client_model(c).parameters()]) for c in range(4)]
    assert all(torch.equal(models[0], model) for model in models)  # including those that were away in the last round


@pytest.mark.parametrize("when", ["round", "upload"])
def test_the_key_server_is_always_there(tmp_path: Path, when: str) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("round,client\n1,2\n2,0\n")
    seal = {"use": "std.bfv", "key_holder": "key_server"}
    plain = recipe_of("encrypted", [seal], rounds=2, availability={"trace": str(trace), "when": when})
    found = fedplug.run(plain, output=tmp_path, quiet=True)
    assert away_in(found) == [[2], [0]]
    assert [row.bytes.key_server.total > 0 for row in found.metrics] == [True, True]
    assert not any(row.skipped for row in found.metrics)


def test_who_is_away_stays_so_after_a_resume(tmp_path: Path) -> None:
    plain = recipe_of(rounds=4, availability={"drop_out": 0.3})
    found = fedplug.run(plain, output=tmp_path, quiet=True)
    whole = away_in(found)
    assert 0 < sum(map(len, whole)) < 16
    again = fedplug.resume(found.folder, 3, quiet=True)
    assert away_in(again) == whole


@pytest.mark.parametrize(("when", "pays"), [("round", [0, 1, 3]), ("upload", [0, 1, 2, 3])])
def test_whoever_goes_when_its_upload_is_asked_for_pays_for_it(tmp_path: Path, when: str, pays: list[int]) -> None:
    """The server cannot know that nothing was released."""
    trace = tmp_path / "trace.csv"
    trace.write_text("round,client\n1,2\n")
    plain = paraaegis(0.5, rounds=1, availability={"trace": str(trace), "when": when})
    found = fedplug.run(plain, output=tmp_path, quiet=True)
    assert away_in(found) == [[2]]
    charges = [json.loads(line) for line in (found.folder / "charging.jsonl").read_text().splitlines()]
    assert [charge["charged"] for charge in charges if charge["what"] == "upload"] == [pays]


@pytest.mark.parametrize(
    ("text", "section", "expected"),
    [
        ("round,client\n1,9\n", {}, "names client 9, but data.clients=4: 0 to 3"),
        ("round,client\n7,1\n", {}, "goes to round 7, but rounds=2"),
        ("client,round\n1,1\n", {}, "line 1: the columns must be round,client"),
        ("round,client\n0,1\n", {}, "line 2: '0,1' must be a round from 1 and a client from 0"),
        ("round,client\n1,1\n", {"sha256": "0" * 64}, "has changed: its sha256 is"),
        (None, {}, "cannot be read"),
    ],
)
def test_a_trace_that_does_not_fit_is_refused(
    tmp_path: Path, text: str | None, section: dict[str, Any], expected: str
) -> None:
    trace = tmp_path / "trace.csv"
    if text is not None:
        trace.write_text(text)
    with pytest.raises(RecipeError, match=re.escape(expected)):
        Recipe.from_plain(recipe_of(availability={"trace": str(trace), **section}))


def test_the_digest_is_of_what_the_trace_holds(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"

    def digest(text: str) -> str:
        trace.write_text(text)
        return Recipe.from_plain(recipe_of(availability={"trace": str(trace)})).digest

    first = digest("round,client\n1,1\n")
    assert first == digest("round,client\n1,1\n") != digest("round,client\n1,2\n")
    assert Recipe.from_plain(recipe_of(availability={})).digest == Recipe.from_plain(recipe_of()).digest


def test_the_chance_of_being_there_is_stated_and_of_a_trace_none(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("round,client\n1,1\n")
    for said, presence in (({"drop_out": 0.25}, 0.75), ({"trace": str(trace)}, 0.0)):
        (section,) = Recipe.from_plain(recipe_of(availability=said)).sections.values()
        assert section.presence == presence
