"""What components show besides the metrics: pictures, the server's log, assessments; from the party to the report."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedplug.recipe.catalog import Catalog, Entry
from fedplug.recipe.recipe import Recipe
from fedplug_lab import pictures
from fedplug_lab.pictures import Pictures, checked, read_pictures
from fedplug_runs import execution
from fedplug_runs.folder import read_rows, read_summary
from fedplug_runs.rows import Attendance
from fedplug_runs.settings import Settings
from picture_toys import Draws, Judges, Known
from run_toys import stopped
from toy_components import recipe_of, toy_catalog

pytestmark = pytest.mark.usefixtures("reports")


def a_histogram(**changes: Any) -> dict[str, Any]:
    panel = {"title": "fc1", "edges": np.array([0.0, 0.5, 1.0]), "counts": np.array([3, 1]), "mark": np.float32(0.25)}
    return {"kind": "histogram", "title": "scores", "x_label": "score", "panels": [panel], **changes}


def a_box(**changes: Any) -> dict[str, Any]:
    panel = {"title": "raw", "labels": ["fc1", "fc2"], "boxes": np.array([[0, 1, 2, 3, 4], [1, 1, 1, 1, 1]])}
    return {"kind": "box", "title": "scores by layer", "y_label": "score", "panels": [panel], **changes}


# ---- the format


def test_numpy_arrays_become_plain_data_with_every_default() -> None:
    plain = checked("x", a_histogram(log_y=True))
    assert json.loads(json.dumps(plain)) == plain == {
        "kind": "histogram", "title": "scores", "note": "", "x_label": "score", "mark_label": "mark", "log_y": True,
        "panels": [{"title": "fc1", "edges": [0.0, 0.5, 1.0], "counts": [3.0, 1.0], "mark": 0.25}],
    }  # fmt: skip
    boxes = checked("x", a_box())["panels"][0]
    assert (boxes["boxes"], boxes["log_y"]) == ([[0, 1, 2, 3, 4], [1, 1, 1, 1, 1]], False)
    assert checked("x", plain) == plain


def panel_of(picture: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return picture | {"panels": [{**picture["panels"][0], **changes}]}


@pytest.mark.parametrize(
    ("picture", "expected"),
    [
        (5, "dictionary"),
        ({"kind": "pie"}, "histogram"),
        (a_histogram(colour="red"), "colour: Extra inputs"),
        (a_histogram(panels=[]), "panels: List should have at least 1"),
        (a_histogram(panels=[a_histogram()["panels"][0]] * 65), "at most 64"),
        (a_histogram(title="x" * 201), "title: String should have at most 200"),
        (panel_of(a_histogram(), edges=[0.0, 1.0]), "2 edges for 2 counts; there is one edge more"),
        (panel_of(a_histogram(), edges=[0.0, 0.0, 1.0]), "the edges must ascend"),
        (panel_of(a_histogram(), edges=[0.0, math.nan, 1.0]), "panels.0.edges.1: Input should be a finite number"),
        (panel_of(a_histogram(), counts=[1, math.inf]), "panels.0.counts.1: Input should be a finite number"),
        (panel_of(a_histogram(), counts=[1, -1]), "greater than or equal to 0"),
        (panel_of(a_histogram(), counts=[1, 1e16]), "less than or equal to"),
        (panel_of(a_histogram(), mark=1e101), "less than or equal to"),
        (panel_of(a_histogram(), mark=math.nan), "panels.0.mark: Input should be a finite number"),
        (panel_of(a_histogram(), edges=range(402), counts=range(401)), "at most 401"),
        (panel_of(a_box(), labels=["fc1"]), "1 labels for 2 boxes"),
        (panel_of(a_box(), boxes=[[0, 1, 2, 3, 4], [0, 2, 1, 3, 4]]), "ascending order"),
        (panel_of(a_box(), boxes=[[0, 1, 2, 3], [0, 2, 1, 3]]), "at least 5"),
        (panel_of(a_box(), boxes=[[0, 1, 2, 3, math.inf]] * 2), "finite"),
    ],
)
def test_what_is_no_picture_is_refused_wherever_it_comes_from(picture: Any, expected: str) -> None:
    with pytest.raises(ValueError, match=expected.replace(".", r"\.")):
        checked("x", picture)
    notes: list[str] = []
    kept = Pictures(notes.append)
    kept.add("x", picture, "client 3", 1)
    assert not kept.kept
    assert notes[0].startswith("the picture 'x' of client 3 is left out: ")
    assert expected in notes[0]


# ---- which are kept


def test_later_rounds_replace_and_the_server_goes_before_clients() -> None:
    kept = Pictures(lambda note: pytest.fail(note))
    for client_id, round in ((3, 1), (1, 1), (2, 1)):
        kept.add("x", a_box(note=f"{client_id}"), f"client {client_id}", round)
    assert (kept.kept["x"]["party"], kept.kept["x"]["note"], kept.kept["x"]["round"]) == ("client 1", "1", 1)
    kept.add("x", a_box(note="s"), "the server", 1)
    kept.add("x", a_box(), "client 0", 1)
    assert (kept.kept["x"]["party"], kept.kept["x"]["note"]) == ("the server", "s")
    kept.add("x", a_box(), "client 7", 2)
    assert (kept.kept["x"]["party"], kept.kept["x"]["round"]) == ("client 7", 2)


def test_a_run_keeps_so_many_names_and_says_so_once_each(tmp_path: Path) -> None:
    notes: list[str] = []
    kept = Pictures(notes.append)
    for round in range(2):
        for i in range(pictures.MOST_A_RUN + 2):
            kept.add(f"p{i}", a_box(), "client 0", round)
    assert len(kept.kept) == pictures.MOST_A_RUN
    assert {entry["round"] for entry in kept.kept.values()} == {1}
    assert len(notes) == 2
    assert "'p100' of client 0 is left out: a run keeps 100;" in notes[0]


def test_the_file_reads_back_and_of_a_damaged_one_what_can_be_used(tmp_path: Path) -> None:
    notes: list[str] = []
    kept = Pictures(notes.append)
    kept.add("x", a_histogram(), "client 3", 2)
    kept.add("y", a_box(), "the server", 1)
    file = tmp_path / "figures.json"
    file.write_text(kept.to_json())
    again = Pictures(notes.append)
    again.load(file)
    again.load(tmp_path / "none.json")
    assert again.kept == kept.kept
    assert not notes
    broken = json.loads(file.read_text())
    broken["x"]["panels"][0]["counts"] = [1]
    broken["z"] = 5
    file.write_text(json.dumps(broken))
    partly = Pictures(notes.append)
    partly.load(file)
    assert list(partly.kept) == list(read_pictures(tmp_path)) == ["y"]
    assert len(notes) == 2
    for damaged in ("{", "[1, 2]"):
        file.write_text(damaged)
        partly.load(file)
    assert "is damaged" in notes[-1]


# ---- through a run


@pytest.fixture
def catalog() -> Catalog:
    found = toy_catalog()
    offered = (("negotiate_mask", Draws), ("score_parameters", Draws), ("partition", Known), ("groups", Judges))
    for group, one in offered:
        name = f"toy.{one.__name__.lower()}"
        found.groups[group][name] = Entry(name, group, f"picture_toys:{one.__name__}", "toys", "0", one)
    return found


def drawing(
    catalog: Catalog, rounds: int = 2, how: str = "well", partition: str = "std.iid", fails: bool = False
) -> Recipe:
    plain = recipe_of(
        rounds=rounds, train={"use": "toy.push"}, score_parameters=["toy.draws"],
        negotiate_mask={"use": "toy.draws", "how": how}, groups={"use": "toy.judges", "fails": fails},
        data={"use": "std.digits", "clients": 4, "train_size": 400, "partition": {"use": partition}},
    )  # fmt: skip
    return Recipe.from_plain(plain, catalog)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(output=tmp_path, device="cpu", quiet=True)


def test_pictures_logs_and_assessments_reach_the_run_folder(
    catalog: Catalog, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    code, run_dir = execution.start(drawing(catalog), settings, catalog)
    assert code == 0
    figures = json.loads((run_dir / "figures.json").read_text())
    assert {name: (entry["party"], entry["round"]) for name, entry in figures.items()} == {
        "draws.update": ("client 1", 2), "draws.box": ("client 1", 1), "draws.server": ("the server", 2)
    }  # fmt: skip
    report = (run_dir / "report.html").read_text()
    for expected in ("Pictures of components", "From client 1, in round 2.", "From the server, in round 2."):
        assert expected in report
    first, second = (row.log for row in read_rows(run_dir))
    assert first == {"draws.client": 1.5, "draws.both": 1.0, "draws.server": 4.0, "server.draws.both": 2.0}
    assert second == {"draws.client": 1.5, "draws.both": 1.0}, "the server's log is of one round"
    summary = json.loads((run_dir / "summary.json").read_text())
    assert summary["assessments"] == {"toy.judges": {
        "classes": 10.0, "examples": 400.0, "clients": 4.0, "first": 0.0, "categories": -1.0, "remembered": 1.0,
    }}  # fmt: skip
    assert "made after the run with knowledge that no party" in report
    assert "left out" not in capsys.readouterr().out
    channels = json.loads((run_dir / "ledger.json").read_text())["reveals"]
    assert [channel for channel in channels if "component logs and pictures" in str(channel)]


def test_the_true_categories_come_from_the_partition(catalog: Catalog, settings: Settings) -> None:
    _, run_dir = execution.start(drawing(catalog, 1, partition="toy.known"), settings, catalog)
    assert json.loads((run_dir / "summary.json").read_text())["assessments"]["toy.judges"]["categories"] == 2


def test_a_picture_that_cannot_be_used_costs_no_client_its_round(
    catalog: Catalog, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    code, run_dir = execution.start(drawing(catalog, 1, how="nan"), settings, catalog)
    assert code == 0
    (row,) = read_rows(run_dir)
    assert row.clients == Attendance(4, 4)
    assert set(json.loads((run_dir / "figures.json").read_text())) == {"draws.update", "draws.server"}
    shown = capsys.readouterr().out
    assert shown.count("the picture 'draws.box' of client") == 1
    assert "panels.0.boxes.0.0: Input should be a finite number" in shown


def test_an_assessment_that_fails_costs_nothing_else(
    catalog: Catalog, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    code, run_dir = execution.start(drawing(catalog, 1, fails=True), settings, catalog)
    assert code == 0
    assert read_summary(run_dir).assessments == {}
    assert "the assessment of toy.judges is left out: ZeroDivisionError: by the toy" in capsys.readouterr().out


def test_pictures_outlive_ctrl_c_and_resume(catalog: Catalog, settings: Settings) -> None:
    with stopped(lambda _, round: round == 1):
        code, run_dir = execution.start(drawing(catalog), settings, catalog)
    assert code == 130
    before = json.loads((run_dir / "figures.json").read_text())
    assert before["draws.box"]["round"] == before["draws.update"]["round"] == 1
    assert "Pictures of components" in (run_dir / "report.html").read_text()
    assert execution.resume(run_dir, settings, None, catalog) == 0
    after = json.loads((run_dir / "figures.json").read_text())
    assert after["draws.box"] == before["draws.box"], "made in the first round only, and kept"
    assert after["draws.update"]["round"] == 2
    assert json.loads((run_dir / "summary.json").read_text())["assessments"]["toy.judges"]["clients"] == 4


@pytest.mark.slow
def test_both_engines_show_the_same(catalog: Catalog, settings: Settings) -> None:
    found = []
    for engine in ("local", "processes"):
        settings = settings.replace({"engine": engine, "workers": 2})
        _, run_dir = execution.start(drawing(catalog, 1), settings, catalog)
        found.append(json.loads((run_dir / "figures.json").read_text()))
    assert found[0] == found[1]
