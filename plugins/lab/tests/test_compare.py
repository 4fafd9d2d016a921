"""`fedplug compare`: which runs it makes and uses, what its numbers mean, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import shutil
import signal
import sys
import threading
import types
from pathlib import Path
from typing import Any

import fedplug
import pytest
from fedplug.api.errors import CheckpointError, RecipeError, SetupError
from fedplug.recipe.catalog import Catalog
from fedplug.round.protocol import Protocol
from fedplug_lab import study
from fedplug_lab.compare import Asked, compare
from fedplug_lab.grid import is_comparison, read_contest, runs_of
from fedplug_lab.records import of_folders
from fedplug_lab.study import Shelf, _undisturbed
from fedplug_runs import yaml_source
from fedplug_runs.execution import Equipment
from fedplug_runs.folder import locked
from fedplug_runs.settings import Settings
from fedplug_std import workers
from fedplug_terminal.main import main
from run_toys import stopped
from toy_components import recipe_of


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(output=tmp_path / "runs", device="cpu")


@pytest.fixture
def recipes(tmp_path: Path) -> list[Path]:
    """Two protocols with a push in place of training."""
    files = []
    for name, scale in (("small", 0.01), ("large", 0.5)):
        files.append(tmp_path / f"{name}.yaml")
        plain = recipe_of(name=name, rounds=2, train={"use": "toy.push", "scale": scale})
        files[-1].write_text(yaml_source.dump(plain), encoding="utf-8")
    return files


def compared_json(settings: Settings, title: str = "small-large") -> dict[str, Any]:
    return dict(json.loads((settings.output / f"compare-{title}/compare.json").read_text()))


# ---- running


def test_it_runs_what_is_missing_and_leaves_a_page_and_tables(
    recipes: list[Path], settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    assert compare(recipes, settings, Asked(seeds=[1, 2]), catalog) == 0
    shown = capsys.readouterr().out
    assert [line.split(":")[0] for line in shown.splitlines()[:4]] == [
        "1/4 small seed=1", "2/4 small seed=2", "3/4 large seed=1", "4/4 large seed=2"
    ]  # fmt: skip
    folder = settings.output / "compare-small-large"
    assert {file.suffix for file in folder.iterdir()} == {".html", ".csv", ".json", ".tex", ".md", ".lock"}
    assert ("peak_memory" in (folder / "compare.csv").read_text()) == (sys.platform == "linux")
    found = compared_json(settings)
    small, large = found["protocols"]
    for each in (small, large):
        accuracies = [run["accuracy"] for run in each["runs"]]
        assert each["numbers"]["accuracy"]["mean"] == pytest.approx(sum(accuracies) / 2)
        (run_dir,) = {Path(run["folder"]) for run in each["runs"] if run["seed"] == 1}
        assert each["runs"][0]["lines"] == json.loads((run_dir / "ledger.json").read_text())["verdict"]["lines"]
    assert found["summary"][0] in " ".join(shown.split())
    assert [shown.index(heading) for heading in ("Accuracy", "Privacy toward", "Traffic", "Time")] == sorted(
        shown.index(heading) for heading in ("Accuracy", "Privacy toward", "Traffic", "Time")
    )  # fmt: skip
    assert "no guarantee: reads the clear zone" in shown
    gaps = [b["accuracy"] - s["accuracy"] for b, s in zip(large["runs"], small["runs"], strict=True)]
    mean, reach = sum(gaps) / 2, 12.7062 * abs(gaps[0] - gaps[1]) / 2
    against = large["numbers"]["difference"]
    assert (against["mean"], against["low"], against["high"], against["n"]) == pytest.approx(
        (mean, mean - reach, mean + reach, 2), rel=1e-4
    )
    # All is there now; nothing is run again, also with another baseline.
    monkeypatch.setattr(Protocol, "round", lambda *_: pytest.fail("a run that is there was run again"))
    assert compare(recipes[::-1], settings, Asked(seeds=[2, 1], baseline="small"), catalog) == 0
    assert "4 of 4 are done already" in capsys.readouterr().out
    assert compared_json(settings, "large-small")["baseline"] == "small"
    assert compare(recipes, settings, Asked(seeds=[1, 2], dry_run=True), catalog) == 0
    shown = capsys.readouterr().out
    assert shown.count("  there: ") == 4
    assert "estimate" not in shown
    monkeypatch.undo()
    assert compare(recipes, settings, Asked(seeds=[1, 2, 3], dry_run=True, jobs=2), catalog) == 0
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("estimate")]
    assert [line.partition(": ")[0] for line in said] == ["estimate of small", "estimate of large", "estimate of all"]
    assert re.fullmatch(r"estimate of small: about .+, .+ sent, .+ of memory, no epsilon", said[0])
    assert said[2].endswith("with 2 runs to make, 2 at a time")


def test_what_cannot_be_measured_here_is_listed_all_the_same(
    settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in ("one", "two"):
        data = {"use": "std.arrays", "file": "nowhere.npz", "clients": 2, "partition": "std.iid"}
        (tmp_path / f"{name}.yaml").write_text(json.dumps(recipe_of(name=name, data=data)))
    recipes = [tmp_path / "one.yaml", tmp_path / "two.yaml"]
    assert compare(recipes, settings, Asked(seeds=[1], dry_run=True), Catalog.discover()) == 0
    shown = capsys.readouterr().out
    assert shown.count("none, a run would fail: there is no file") == 2
    assert "estimate of all: not known, with 2 runs to make" in shown


def test_an_interrupted_comparison_goes_on_in_the_round_where_it_stopped(
    recipes: list[Path], settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    whole, rounds = Protocol.round, list[tuple[str, int]]()

    def watched(protocol: Protocol, round: int) -> None:
        rounds.append((protocol.recipe.name, round))
        whole(protocol, round)

    with stopped(lambda protocol, round: protocol.recipe.name == "large" and round == 1):
        assert compare(recipes, settings, Asked(), catalog) == 130
    assert "Interrupted; 1 of 2 runs are complete. The same command goes on." in capsys.readouterr().out
    (cut_off,) = [path.parent for path in settings.output.glob("large-*/recipe.yaml")]
    digest = json.loads((cut_off / "summary.json").read_text())["digest"]
    assert Shelf(settings.output, [digest]).notes == []  # it goes on, and the display says so
    with locked(cut_off):
        (note,) = Shelf(settings.output, [digest]).notes
    assert note == (
        f"not waited for: {cut_off} is being written by process {os.getpid()}; this study makes its own run"
    )
    assert not (settings.output / "compare-small-large/compare.html").exists()
    monkeypatch.setattr(Protocol, "round", watched)
    assert compare(recipes, settings, Asked(), catalog) == 0
    assert rounds == [("large", 1)]


def test_ctrl_c_waits_for_a_process_that_is_being_started() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs tests in the background ignores it
    try:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 (behind the inner block)
            with _undisturbed():
                signal.pthread_kill(threading.get_ident(), signal.SIGINT)
                inside = True
            pytest.fail("it was forgotten")
    finally:
        signal.signal(signal.SIGINT, before)
    assert inside


@pytest.mark.parametrize("spawned", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_several_jobs_give_the_same_numbers(
    recipes: list[Path], settings: Settings, catalog: Catalog, spawned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not spawned:  # a new interpreter takes seconds to import the libraries
        forking = types.SimpleNamespace(get_context=lambda _: workers._context())
        monkeypatch.setattr(study, "multiprocessing", forking)
        settings = settings.replace({"muted": ("lab.report",)})
    assert compare(recipes, settings, Asked(jobs=2), catalog) == 0
    at_once = compared_json(settings)
    alone = settings.replace({"output": settings.output.with_name("alone")})
    assert compare(recipes, alone, Asked(), catalog) == 0
    for one, other in zip(at_once["protocols"], compared_json(alone)["protocols"], strict=True):
        assert [run["accuracy"] for run in one["runs"]] == [run["accuracy"] for run in other["runs"]]


COUNTED = """
import fedplug
import numpy as np
from fedplug.api.data import Dataset, Examples


class Counted(fedplug.DataSource):
    \"\"\"Forty examples; each load leaves a line.\"\"\"

    def load(self, root):
        with open({file!r}, "a") as log:
            log.write("read\\n")
        rng = np.random.default_rng(int(open({number!r}).read()))
        inputs, labels = rng.normal(size=(40, 1, 2, 2)).astype(np.float32), np.arange(40) % 2
        mean = np.zeros(1, np.float32)
        train, test = Examples(inputs[:30], labels[:30]), Examples(inputs[30:], labels[30:])
        return Dataset(train=train, test=test, classes=("a", "b"), mean=mean, std=mean + 1)
"""


@pytest.fixture
def counted(tmp_path: Path) -> tuple[list[Path], Path]:
    """Two protocols on data of the user's own, and the log of its loads."""
    log, number, files = tmp_path / "log", tmp_path / "number", []
    number.write_text("1")
    (tmp_path / "counted.py").write_text(COUNTED.format(file=str(log), number=str(number)))
    for name, lr in (("slow", 0.01), ("quick", 0.1)):
        plain = recipe_of(name=name, rounds=1, train={"use": "std.sgd", "lr": lr})
        plain["data"] |= {"use": "counted.py:Counted", "clients": 3}
        plain["data"]["partition"] = {"use": "std.iid"}
        plain["model"] = {"use": "std.mlp", "hidden": [4]}
        files.append(tmp_path / f"{name}.yaml")
        files[-1].write_text(yaml_source.dump(plain), encoding="utf-8")
    return files, log


@pytest.mark.parametrize("jobs", [1, 2])
def test_data_are_read_once_and_the_numbers_stay(
    counted: tuple[list[Path], Path], settings: Settings, catalog: Catalog, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two protocols with two seeds each: one load, in this process; also where others make the runs."""
    forking = types.SimpleNamespace(get_context=lambda _: workers._context())
    monkeypatch.setattr(study, "multiprocessing", forking)
    settings, (files, log) = settings.replace({"muted": ("lab.report",), "trust": True}), counted
    assert compare(files, settings, Asked(seeds=[1, 2], jobs=jobs), catalog) == 0
    assert log.read_text().count("read") == 1
    alone = settings.replace({"output": settings.output.with_name("alone")})
    for one in files:
        for seed in (1, 2):
            assert main_of(monkeypatch, "run", one, "--set", f"seed={seed}", "--output", alone.output, "-q") == 0
    models = [{(run.summary.name, run.summary.recipe["seed"]): run.model.state_dict() for run in runs_below(folder)}
              for folder in (settings.output, alone.output)]  # fmt: skip
    assert models[0].keys() == models[1].keys()
    assert len(models[0]) == 4
    for key, theirs in models[1].items():
        assert all(bool((models[0][key][name] == weights).all()) for name, weights in theirs.items())


def runs_below(folder: Path) -> list[Any]:
    return [fedplug.open_run(file.parent, trust=True) for file in sorted(folder.glob("*/recipe.yaml"))]


def main_of(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["fedplug", *map(str, words)])
    return int(main() or 0)


def test_runs_of_other_data_or_other_versions_are_made_again(
    counted: tuple[list[Path], Path], settings: Settings, catalog: Catalog, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    settings, (files, _) = settings.replace({"muted": ("lab.report",), "trust": True}), counted
    assert compare(files, settings, Asked(), catalog) == 0
    capsys.readouterr()
    assert compare(files, settings, Asked(), catalog) == 0
    assert "2 of 2 are done already" in capsys.readouterr().out
    (tmp_path / "number").write_text("2")
    assert compare(files, settings, Asked(), catalog) == 0
    shown = capsys.readouterr().out
    assert shown.count("had other data than there are now; it is run again") == 2
    assert "done already" not in shown
    for file in settings.output.glob("*/summary.json"):
        plain = json.loads(file.read_text())
        file.write_text(json.dumps({**plain, "versions": {**plain["versions"], "numpy": "1.0.0"}}))
    assert compare(files, settings, Asked(), catalog) == 0
    assert "was made with numpy 1.0.0, which is" in " ".join(capsys.readouterr().out.split())
    monkeypatch.setattr(study, "_edited", lambda package: math.inf if package == "fedplug" else 0.0)
    assert compare(files, settings, Asked(), catalog) == 0
    assert "is older than the code of fedplug; it is run again" in " ".join(capsys.readouterr().out.split())


def test_all_cores_are_used_as_far_as_there_is_memory(
    settings: Settings, catalog: Catalog, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    for held, free, engine, threads, expected in (
        (100, 10_000, "local", 1, 8), (100, 10_000, "local", 3, 2), (1_000, 4_000, "local", 1, 3),
        (1_000, 100, "local", 1, 1), (None, None, "local", 1, 8), (100, 10_000, "processes", 1, 1),
    ):  # fmt: skip
        monkeypatch.setattr(study, "memory_now", lambda held=held, free=free: (held, free))
        chosen = settings.replace({"engine": engine, "threads": threads})
        equipment = Equipment(chosen, catalog)
        assert study.room(equipment, chosen) == expected
        capsys.readouterr()
        assert study.at_once(None, 3, equipment, chosen) == min(3, expected)
        said = f"{min(3, expected)} runs at a time; --jobs 1 makes one after the other\n"
        assert capsys.readouterr().out == (said if expected > 1 else "")
        assert study.at_once(2, 3, equipment, chosen) == 2
        assert not capsys.readouterr().out


def test_a_process_that_is_killed_loses_its_run_alone(
    recipes: list[Path], settings: Settings, catalog: Catalog, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """As where memory runs out: the others are made, by another process, and the same command makes this one."""
    forking = types.SimpleNamespace(get_context=lambda _: workers._context())
    monkeypatch.setattr(study, "multiprocessing", forking)
    settings = settings.replace({"muted": ("lab.report",)})
    plain = yaml_source.read_text(recipes[0].read_text(), "small").data
    plain["score_parameters"] = [{"use": "toy.fail", "clients": [1], "rounds": [0], "how": "kill"}]
    recipes[0].write_text(yaml_source.dump(plain), encoding="utf-8")
    with pytest.raises(SetupError, match="there is nothing to compare"):
        compare(recipes, settings, Asked(seeds=[1, 2], jobs=2), catalog)
    printed = capsys.readouterr()
    assert printed.out.count("failed: its process ended with -9; is there enough memory?") == 2
    assert "2 of 4 runs failed" in printed.err
    assert len(list(settings.output.glob("large-*/report.html"))) == 0
    assert len(list(settings.output.glob("large-*/summary.json"))) == 2


def test_a_failed_run_leaves_the_others_and_is_said(
    recipes: list[Path], settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = stopped(lambda protocol, _: protocol.recipe.name == "large", RuntimeError("the toy broke"))
    with broken, pytest.raises(SetupError, match="there is nothing to compare"):
        compare(recipes, settings, Asked(), catalog)
    printed = capsys.readouterr()
    assert "2/2 large seed=7: failed: RuntimeError: the toy broke" in printed.out
    assert "1 of 2 runs failed" in printed.err


def test_a_format_is_all_that_is_printed(
    recipes: list[Path], settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(recipes, settings, Asked(format="csv"), catalog) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["protocol"] for row in rows] == ["small", "large"]
    with pytest.raises(SetupError, match="--format cvs: did you mean csv"):
        compare(recipes, settings, Asked(format="cvs"), catalog)


# ---- runs that are there


def test_runs_are_grouped_by_protocol_and_told_apart_by_what_they_set(
    recipes: list[Path], settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    for sets in ((), ("train.scale=0.2",)):
        assert compare(recipes, settings, Asked(seeds=[1, 2], sets=sets), catalog) == 0
    folders = [file.parent for file in settings.output.glob("*/recipe.yaml")]
    names = {each.name: sorted(each.by_seed) for each in of_folders(folders)}
    assert names == {f"{name} scale={scale}": [1, 2]
                     for name, scale in (("small", 0.01), ("small", 0.2), ("large", 0.5), ("large", 0.2))}  # fmt: skip
    capsys.readouterr()
    assert compare(folders, settings, Asked(baseline="small scale=0.2")) == 0
    assert "against small scale=0.2" in capsys.readouterr().out
    for asked, expected in (
        (Asked(baseline="small"), "the baseline 'small' is not among what is compared"),
        (Asked(seeds=[1]), "--seeds changes nothing about runs that are there"),
    ):
        with pytest.raises(SetupError, match=expected):
            compare(folders, settings, asked)
    with pytest.raises(SetupError, match="compare recipes, or runs, not both"):
        compare([folders[0], recipes[0]], settings, Asked())
    with pytest.raises(SetupError, match="all of these runs are of one protocol"):
        compare(folders[:1], settings, Asked())
    # Damage is said of all folders at once, and a damaged run cannot be used.
    (folders[0] / "metrics.jsonl").write_text("{}\n")
    (folders[1] / "summary.json").unlink()
    with pytest.raises(CheckpointError, match=r"(?s)metrics.jsonl, line 1, is damaged.*summary.json cannot be read"):
        compare(folders, settings, Asked())
    with pytest.raises(CheckpointError, match=r"is not a run folder.*there are runs in it, such as"):
        compare([settings.output], settings, Asked())
    digest = json.loads((folders[0] / "summary.json").read_text())["digest"]
    shelf = Shelf(settings.output, [digest])
    assert not shelf.found
    assert "is damaged" in shelf.notes[0]
    again = shutil.copytree(folders[2], settings.output / "copy-20200101-000000")
    with pytest.raises(CheckpointError, match="are of one recipe and seed; name one of them"):
        of_folders([folders[2], again])


# ---- what is refused


def test_mistakes_of_all_recipes_are_reported_at_once_before_anything_runs(
    recipes: list[Path], settings: Settings, catalog: Catalog
) -> None:
    recipes[0].write_text(recipes[0].read_text().replace("std.mean", "std.mena"))
    recipes[1].write_text(recipes[1].read_text().replace("rounds: 2", "rounds: -2"))
    with pytest.raises(RecipeError) as caught:
        compare([*recipes, recipes[0].with_name("none.yaml")], settings, Asked(seeds=[1, 2]), catalog)
    found = "\n".join(caught.value.problems)
    assert "small.yaml:" in found
    assert "did you mean std.mean?" in found
    assert "large.yaml:" in found
    assert "none.yaml: cannot read the recipe: there is no such file" in found
    assert len(caught.value.problems) == 3
    assert not settings.output.exists()


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (Asked(baseline="smal"), "the baseline 'smal' is not among what is compared; did you mean small?"),
        (Asked(seeds=[1, 1]), "--seeds: a seed is given twice"),
        (Asked(seeds=[1, 2], sets=["seed=9"]), "--set seed=...: the seeds are listed as well (1, 2); keep one of them"),
    ],
)
def test_what_does_not_go_together_is_refused(
    recipes: list[Path], settings: Settings, catalog: Catalog, asked: Asked, expected: str
) -> None:
    with pytest.raises(SetupError, match=re.escape(expected)):
        compare(recipes, settings, asked, catalog)
    assert not settings.output.exists()


def test_names_and_recipes_are_each_there_once(recipes: list[Path], settings: Settings, catalog: Catalog) -> None:
    with pytest.raises(RecipeError, match="both go by the name 'small'; give one of them another name"):
        compare([recipes[0], recipes[0]], settings, Asked(), catalog)
    with pytest.raises(SetupError, match="alone cannot be compared; name two recipes or more"):
        compare(recipes[:1], settings, Asked(), catalog)
    with pytest.raises(RecipeError, match=r"--set train.foo: unknown option 'foo'"):
        compare(recipes, settings, Asked(sets=["train.foo=1"]), catalog)


# ---- comparison files


def comparison(folder: Path, text: str) -> Path:
    file = folder / "question.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_comparison_file_names_recipes_changes_and_seeds(
    tmp_path: Path, recipes: list[Path], settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    file = comparison(tmp_path, (
        "question: Does it push?\nbaseline: b\nseeds: [3]\nset: {rounds: 1, train.scale: 0.1}\n"
        "recipes:\n  - small.yaml\n  - {recipe: small.yaml, name: b, set: {train.scale: 0.2}}\n"
    ))  # fmt: skip
    assert is_comparison(file)
    assert not is_comparison(recipes[0])
    (runs,) = runs_of(read_contest(file), ["min_clients=3"], catalog)
    assert [(one.case, one.recipe.seed, one.recipe.rounds, one.recipe.min_clients) for one in runs] == [
        ("small", 3, 1, 3), ("b", 3, 1, 3)
    ]  # fmt: skip
    assert [one.recipe.train.options.scale for one in runs] == [0.1, 0.2]  # type: ignore[attr-defined]
    assert compare([file], settings, Asked(), catalog) == 0
    assert "Does it push?" in capsys.readouterr().out
    found = compared_json(settings, "question")
    assert (found["question"], found["baseline"]) == ("Does it push?", "b")
    assert found["protocols"][0]["missing"]["difference"].startswith("one seed in common")
    with pytest.raises(SetupError, match="is a whole comparison; give it alone"):
        compare([file, recipes[0]], settings, Asked(), catalog)


def test_each_case_is_a_comparison_of_its_own(
    tmp_path: Path, recipes: list[Path], settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "question: Does it push?\nset: {rounds: 1, train.scale: 0.1}\n"
        "recipes:\n  - small.yaml\n  - {recipe: large.yaml, set: {train.scale: 0.2}}\n"
        "cases:\n  - {name: two}\n  - {name: three, set: {data.clients: 3, train.scale: 0.4}}\n"
    )
    file = comparison(tmp_path, text)
    over = [one.recipe for runs in runs_of(read_contest(file), ["rounds=2", "data.clients=5"], catalog) for one in runs]
    assert {(recipe.rounds, recipe.clients) for recipe in over} == {(2, 5)}  # what is typed holds over the file
    two, three = runs_of(read_contest(file), (), catalog)
    assert [(one.case, one.recipe.clients, one.recipe.train.options.scale) for one in (*two, *three)] == [  # type: ignore[attr-defined]
        ("small", 4, 0.1), ("large", 4, 0.2), ("small", 3, 0.4), ("large", 3, 0.4),
    ]  # fmt: skip
    assert compare([file], settings, Asked(), catalog) == 0
    shown = capsys.readouterr().out
    assert "4/4 three: large seed=" in shown
    assert "two: Does it push?" in shown
    for case, clients in (("two", 4), ("three", 3)):
        found = compared_json(settings, f"question/{case}")
        runs = [run for each in found["protocols"] for run in each["runs"]]
        assert {len(json.loads((Path(run["folder"]) / "metrics.jsonl").read_text().splitlines()[0])["client_accuracy"])
                for run in runs} == {clients}  # fmt: skip
        assert all(each["numbers"]["seconds_cpu"]["mean"] > 0 for each in found["protocols"])
    twice = comparison(tmp_path, text.split("cases")[0] + "cases: [{name: a}, {name: b}]")
    with pytest.raises(RecipeError, match="b: small and a: small are the same recipe"):
        runs_of(read_contest(twice), (), catalog)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{recipes: [small.yaml, large.yaml], cases: iid}", "cases='iid' must be a list, such as [iid]"),
        ("{recipes: [small.yaml, large.yaml], cases: [iid]}", "cases.0='iid' must be a mapping"),
        ("{recipes: [small.yaml, large.yaml], cases: [{name: a, sets: {}}]}", "did you mean set?"),
        ("{recipes: [small.yaml, large.yaml], cases: [{name: a/b}]}", "the case 'a/b' names a folder too"),
        ("{recipes: [small.yaml, large.yaml], cases: [{name: a}, {name: a}]}", "the case 'a' is there already"),
        ("recipes: []", "recipes=[] must be at least 2 long (two or more, such as [fedavg.yaml"),
        ("recipes: [small.yaml]", "must be at least 2 long"),
        ("question: why?", "the comparison needs 'recipes' (two or more"),
        ("{recipes: [a.yaml, small.yaml]}", "question.yaml:1:12: there is no recipe"),
        ("{recipes: [{name: x}, small.yaml]}", "the comparison: recipes.0 needs 'recipe' (a path from here, or a"),
        ("{recipes: [{recipe: small.yaml, nam: x}, small.yaml]}", "unknown option 'nam' of the comparison; did you"),
        ("{recipes: [small.yaml, large.yaml], seed: [1]}", "unknown key 'seed'; did you mean seeds?"),
        ("{recipes: [small.yaml, large.yaml], seeds: [a]}", "seeds.0='a' must be a whole number"),
        ("{recipes: [small.yaml, large.yaml], seeds: [1, 1]}", "seeds=[1, 1]: 1 is given twice"),
        ("{recipes: [small.yaml, large.yaml], set: 5}", "set=5 must be a mapping (values by path"),
        ("{recipes: [small.yaml, large.yaml], set: {seed: 5}}", "the seeds of a comparison are the list `seeds`"),
        ("{recipes: [small.yaml, large.yaml], question: 5}", "question=5 must be text"),
    ],
)
def test_a_comparison_file_that_is_wrong_says_where_and_what(
    tmp_path: Path, recipes: list[Path], text: str, expected: str
) -> None:
    with pytest.raises(RecipeError) as caught:
        read_contest(comparison(tmp_path, text))
    assert [problem for problem in caught.value.problems if expected in problem], caught.value.problems


# ---- the command


def test_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    monkeypatch.delenv("FEDPLUG_DATA", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    for name in ("x", "y"):
        (tmp_path / f"{name}.yaml").write_text(yaml_source.dump(recipe_of(name=name, rounds=1)), encoding="utf-8")

    def fedplug(*words: object) -> int:
        monkeypatch.setattr(sys, "argv", ["fedplug", *map(str, words)])
        return int(main() or 0)

    assert fedplug("compare", "x.yaml", "y.yaml", "--seeds", 1, 2, "--dry-run") == 0
    assert [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()[:4]] == [
        "1/4 x seed=1", "2/4 x seed=2", "3/4 y seed=1", "4/4 y seed=2"
    ]  # fmt: skip
    assert not (tmp_path / "runs").exists(), "a dry run leaves nothing behind"
    assert fedplug("compare", "x.yaml", "y.yaml", "--seeds", "two") == 2
    assert fedplug("compare") == 2
    assert fedplug("compare", "x.yaml", "z.yaml") == 1
    assert "z.yaml: cannot read the recipe: there is no such file" in capsys.readouterr().err
