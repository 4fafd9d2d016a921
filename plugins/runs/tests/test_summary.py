"""The summary of a run: versions, machine, key holders, assessments that no party could make; written and read back."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fedplug.api.events import Events, Note
from fedplug.api.parties import Server
from fedplug.api.roles import GroundTruth, Groups, Partition
from fedplug.recipe.catalog import Entry
from fedplug.recipe.recipe import Recipe
from fedplug_runs import execution
from fedplug_runs.folder import Distribution, Summary, assessments, carried, class_distribution, versions
from fedplug_runs.settings import Settings
from fedplug_runs.wire_record import Wire
from row_toys import a_summary
from site_toys import CLASSES, at_sites, write_sites
from toy_components import recipe_of, toy_catalog


def test_a_summary_comes_back_from_json_with_clients_by_number() -> None:
    figures = [{"name": "RMSE", "better": "lower", "unit": "m"}]
    given = a_summary(assessments={"acme.groups": {"purity": 0.75}}, resumed=True, figures=figures)
    again = Summary.from_json(given.to_json(indent=2))
    assert again == given
    assert again.class_distribution.clients == {0: [5, 7], 1: [0, 9]}
    assert again.plan[0] == ("negotiate_mask", "paraaegis.vote", "encrypt 25%")
    assert "assessments" not in json.loads(a_summary().to_json())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"parameters": -1}, "parameters is -1"),
        ({"figures": [{"name": "RMSE", "better": "less"}]}, r"figures\.0\.better is 'less'"),
        ({"resumed": "maybe"}, "resumed is 'maybe'"),
        ({"plan": [("a", "b")]}, r"plan\.0"),
        ({"class_distribution": {"classes": ["a"], "clients": {"x": [1]}}}, r"class_distribution\.clients\.x"),
        ({"class_distribution": {"classes": ["a"], "clients": {0: [-1]}}}, r"class_distribution\.clients\.0\.0 is -1"),
        ({"versions": {"numpy": 2}}, r"versions\.numpy is 2"),
    ],
)
def test_a_field_that_cannot_be_is_refused_by_its_name(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        a_summary(**changes)


def test_versions_are_of_what_the_recipe_uses() -> None:
    catalog = toy_catalog()
    local, far = (Entry(name, "engine", "x:X", who, "2") for name, who in (("local", "fedplug"), ("far", "acme-far")))
    found = versions(Recipe.from_plain(recipe_of(), catalog), catalog, local)
    assert found["python"] == sys.version.split()[0]
    assert found["numpy"] == np.__version__
    assert set(found) == {"python", "numpy", "fedplug", "fedplug-std"}
    assert list(found) == sorted(found)
    toy = versions(Recipe.from_plain(recipe_of(train={"use": "toy.push"}), catalog), catalog, far)
    assert (toy["toys"], toy["acme-far"]) == ("0", "2")


def test_the_distribution_counts_each_clients_examples_of_every_class() -> None:
    labels = np.array([0, 2, 2, 0, 2])
    data = SimpleNamespace(train=SimpleNamespace(labels=labels), label_names=("cat", "dog", "owl"))
    world: Any = SimpleNamespace(data=data, assignment=[np.array([0, 1, 2]), np.array([3, 4])])
    assert class_distribution(world, {}) == Distribution(["cat", "dog", "owl"], {0: [1, 0, 2], 1: [1, 0, 1]})


def test_of_data_at_sites_it_is_what_was_told() -> None:
    world: Any = SimpleNamespace(data=None, label_names=("cat", "dog"))
    assert class_distribution(world, {}) == Distribution(["cat", "dog"], {})
    assert class_distribution(world, {2: [4, 0]}) == Distribution(["cat", "dog"], {2: [4, 0]})


def test_bytes_are_those_of_the_messages_and_what_the_engine_says_was_added() -> None:
    wire = Wire()
    for round in (-1, 0, 1):
        wire.record("server", "client:0", round, "upload", b"12345", {"clear": 3})
    silent: Any = SimpleNamespace(overhead=dict)
    telling: Any = SimpleNamespace(overhead=lambda: {"frames": 7})
    assert carried(wire, silent) == {"messages": 15}
    assert carried(wire, telling) == {"messages": 15, "frames": 7}


class Judge:
    """Compares with the truth, or fails to."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self.facts = facts

    def assess(self, server: Server, truth: GroundTruth) -> dict[str, Any]:
        if "fails" in self.facts:
            raise ValueError("no clusters")
        right = sum(a == b for a, b in zip(self.facts.get("found", ()), truth.categories or (), strict=False))
        return {"right": right, "classes": len(truth.classes)} if self.facts else {}


@pytest.mark.parametrize("categories", [[0, 1, 1], None])
def test_the_former_of_groups_is_asked_and_left_out_with_a_note_where_that_fails(categories: list[int] | None) -> None:
    events, notes = Events(), []
    events.subscribe(Note, lambda event: notes.append(event.text))
    split = SimpleNamespace(categories=lambda clients: categories)

    def assessed(name: str | None, facts: dict[str, Any]) -> dict[str, dict[str, float]]:
        parts = {("acme.split", Partition): split, (name, Groups): Judge(facts)}
        protocol: Any = SimpleNamespace(
            composition=SimpleNamespace(part=lambda *asked: parts[asked]), events=events, server=Server(),
            recipe=SimpleNamespace(
                data=SimpleNamespace(partition=SimpleNamespace(name="acme.split")),
                groups=SimpleNamespace(name=name) if name else None,
            ),
        )  # fmt: skip
        return assessments(protocol, Distribution(["a", "b"], {0: [1, 1], 1: [1, 0], 2: [0, 1]}))

    right = {"right": 2.0 if categories else 0.0, "classes": 2.0}
    assert assessed("acme.groups", {"found": [0, 1, 0]}) == {"acme.groups": right}
    assert assessed("acme.none", {}) == assessed(None, {}) == assessed("acme.bad", {"fails": True}) == {}
    (note,) = notes
    assert note.startswith("the assessment of acme.bad is left out: ")
    assert "no clusters" in note


def test_a_run_says_of_its_sites_what_they_let_be_told_also_after_it_went_on(tmp_path: Path) -> None:
    sites, catalog = write_sites(tmp_path / "sites"), toy_catalog()
    (sites / "client-2" / "site.toml").write_text('tell = ["classes"]')
    settings = Settings(output=tmp_path / "runs", data=sites, quiet=True, device="cpu")
    recipe = Recipe.from_plain(at_sites(), catalog)
    _, folder = execution.start(recipe, settings, catalog)
    (sites / "client-2" / "site.toml").unlink()
    for again in (False, True):
        assert not again or execution.resume(folder, settings, 1, catalog) == 0
        summary, ledger = (json.loads((folder / f"{name}.json").read_text()) for name in ("summary", "ledger"))
        assert summary["class_distribution"] == {"classes": CLASSES, "clients": {"2": [9, 9]}}
        assert [shown["what"] for shown in ledger["reveals"]].count("class counts") == 1
