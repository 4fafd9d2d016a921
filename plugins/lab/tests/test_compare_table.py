"""What a comparison says of runs that are there: epsilons, leakage, what does not compare; in every format."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fedplug.api.verdict import Verdict
from fedplug_lab.comparable import warnings
from fedplug_lab.compare_figures import charts, front_of
from fedplug_lab.compare_formats import to_csv, to_json, to_latex, to_markdown
from fedplug_lab.compare_page import write_compare_page
from fedplug_lab.compare_table import columns, reasons
from fedplug_lab.compared import Compared, OneRun
from fedplug_lab.leakage import leakage_table, worst_of
from fedplug_lab.records import result_of
from row_toys import a_ledger, a_line, a_row, a_summary, a_verdict

SAID = a_verdict(aggregator=a_line("aggregator", "none", reason="reads <b>all</b> of it | each of_them"))
VERDICT = str(SAID)


def a_run(folder: Path, name: str, seed: int, rounds: int = 3, attacks: Any = None, **changes: Any) -> OneRun:
    """A run as its folder might have it."""
    folder = folder / f"{name}-{seed}"
    folder.mkdir(parents=True)
    recipe = {
        "name": name, "seed": seed, "rounds": rounds, "data": {"use": "std.digits", "clients": 2, "partition": None},
        "model": {"use": "std.mlp"}, "train": {"use": "std.sgd", "epochs": 5}, **changes.pop("recipe", {}),
    }  # fmt: skip
    ledger = a_ledger(**{"verdict": SAID, "unit": "client", **changes.pop("ledger", {})})
    summary = a_summary(name=name, recipe=recipe, digest=f"{name}-{seed}", **changes.pop("summary", {}))
    rows = [a_row(r, **{"accuracy": 0.5 + seed / 10, **changes}) for r in range(1, 4)]
    (folder / "recipe.yaml").touch()
    (folder / "metrics.jsonl").write_text("".join(row.to_json() + "\n" for row in rows))
    (folder / "ledger.json").write_text(ledger.to_json())
    (folder / "summary.json").write_text(summary.to_json())
    for file in folder.iterdir():
        os.utime(file, (1.0, 1.0))
    found = OneRun(folder, rows, ledger, summary, result_of(folder))
    found.result.added = {"attacks": attacks} if attacks else {}
    return found


def of(aggregator: float) -> Verdict:
    """With this epsilon toward the server alone."""
    bare = a_line("released_model", "none", reason="bare")
    return a_verdict(aggregator=a_line("aggregator", "guaranteed", aggregator), released_model=bare)


def texts(everyone: Sequence[Compared], key: str) -> list[str]:
    return [cell.text for column in columns(everyone, everyone[0]) if column.key == key for cell in column.cells]


def test_epsilons_are_the_largest_of_the_ledgers_and_gaps_have_their_reason(tmp_path: Path) -> None:
    one = Compared("one", [
        a_run(tmp_path, "one", 1, ledger={"verdict": of(3.0)}, epsilon=2.0, epsilon_prices="noised"),
        a_run(tmp_path, "one", 2, ledger={"verdict": of(4.0)}, epsilon=1.0),
    ])  # fmt: skip
    empty = {"verdict": Verdict("nothing_run")}
    two = Compared("two", [
        a_run(tmp_path, "two", 1, ledger=empty, epsilon=None), a_run(tmp_path, "two", 2, ledger=empty, epsilon=math.nan)
    ])  # fmt: skip
    everyone = [one, two]
    assert texts(everyone, "epsilon") == ["2.000 (noised)", "–"]
    assert texts(everyone, "epsilon_aggregator") == ["4.000", "–"]
    assert texts(everyone, "epsilon_released_model") == ["–", "–"]
    assert texts(everyone, "verdict") == [f"{of(3.0)} / {of(4.0)}", "Nothing to judge."]
    assert texts(everyone, "difference") == ["baseline", "+0.000 n=2"]
    said = reasons(columns(everyone, one))
    assert "epsilon, two: its ledger prices nothing, since no zone has noise that counts" in said
    assert "ε model, one: bare" in said
    assert "ε model, two: its ledger says nothing of this view" in said


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"recipe": {"data": {"use": "std.images", "clients": 2, "partition": None}}}, "data: std.digits in a; std.im"),
        ({"recipe": {"data": {"use": "std.digits", "clients": 9, "partition": None}}}, "clients and their data: 2 cli"),
        ({"recipe": {"train": {"use": "std.sgd", "epochs": 1}}}, "local work: 3 rounds x 5 epochs in a; 3 rounds x 1"),
        ({"recipe": {"train": {"use": "toy"}}}, "3 rounds of toy, which counts no epochs in b"),
        ({"recipe": {"model": {"use": "std.cnn"}}}, "model: std.mlp in a; std.cnn in b"),
        ({"recipe": {"rounds": 9}}, "b, seed 1: 3 of 9 rounds; fedplug resume"),
        ({"ledger": {"unit": "record"}}, "unit of epsilon: client in a; record in b. Epsilons are not of one kind."),
        ({"ledger": {"adjacency": "add"}}, "adjacency: nothing stated in a; add in b"),
        ({"ledger": {"delta": 1e-3}}, "delta: 1e-05 in a; 0.001 in b. Epsilons do not compare."),
        ({"ledger": {"trust": "central"}}, "who is trusted: nothing stated in a; central in b"),
        ({"summary": {"device": "cuda:0"}}, "machine: engine local on cpu in a; engine local on cuda:0 in b. Seconds"),
        ({"summary": {"versions": {"fedplug": "9"}}}, "versions: fedplug 0.1.0 and 9"),
        ({"summary": {"versions": {"fedplug": "9"}}}, "versions: runs were made with fedplug 9 (installed: "),
        ({"skipped": "too few"}, "b, seed 1: 3 of 3 rounds fell short and moved no model. Accuracies, bytes and"),
    ],
)
def test_it_says_what_does_not_compare(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    a, b = (Compared(name, [a_run(tmp_path, name, 1, **own)]) for name, own in (("a", {}), ("b", changes)))
    assert warnings([a, a]) == []
    assert [warning for warning in warnings([a, b]) if expected in warning], warnings([a, b])


def test_where_groups_have_models_all_are_compared_on_data_like_each_clients_own(tmp_path: Path) -> None:
    groups = {"client_accuracy": {0: 0.875, 1: 0.625}, "group_members": {"a": [0], "b": [1]}}
    one_model = {"client_accuracy": {0: 0.5, 1: 0.25}}
    everyone = [
        Compared("plain", [a_run(tmp_path, "plain", 1, **one_model)]),
        Compared("grouped", [a_run(tmp_path, "grouped", 1, **groups)]),
        Compared("unknown", [a_run(tmp_path, "unknown", 1, client_accuracy={})]),
    ]
    assert texts(everyone, "client_accuracy") == ["0.375", "0.750", "–"]
    assert "client_accuracy" not in [column.key for column in columns(everyone[:1], everyone[0])]


def test_it_says_that_seeds_differ_and_that_runs_shared_the_machine(tmp_path: Path) -> None:
    a = Compared("a", [a_run(tmp_path, "a", seed) for seed in (1, 2)])
    b = Compared("b", [a_run(tmp_path, "b", 1)])
    (seeds,) = warnings([a, b])
    assert seeds == "seeds: a has 1, 2; b has 1. Differences are over the seeds that both have, means over all."
    for run, (began, ended) in zip([*a.runs, *b.runs], [(100, 200), (200, 300), (250, 400)], strict=True):
        os.utime(run.folder / "recipe.yaml", (began, began))
        os.utime(run.folder / "metrics.jsonl", (ended, ended))
    assert "machine: some of the runs went on at the same time. Seconds do not compare." in warnings([a, b])


def leaked(mse: float, share: float | None) -> dict[str, Any]:
    return {"toy.copy server": {
        "ranking": {"metric": "mse", "better": "low"}, "stronger": "naive",
        "guesses": {"mean image": {"mse": 0.08}, "random guess": {"mse": 0.12}},
        "forms": {
            "naive": {"metrics": {"mse": mse}, "succeeded": share, "targets": 4, "applicable": 4, "seconds": 1.0},
            "adaptive": {"metrics": {"mse": 9.0}, "succeeded": 0.0, "targets": 4, "applicable": 4, "seconds": 1.0},
        },
    }}  # fmt: skip


def test_leakage_is_the_stronger_form_beside_the_best_trivial_guess(tmp_path: Path) -> None:
    found = ((1, 0.2, 0.25), (2, 0.001, 1.0))
    one = Compared("one", [a_run(tmp_path, "one", seed, attacks=leaked(mse, share)) for seed, mse, share in found])
    two, three = Compared("two", [a_run(tmp_path, "two", 1)]), Compared("three", [
        a_run(tmp_path, "three", 1, attacks=leaked(0.1, None))])  # fmt: skip
    worst = worst_of(one)
    assert worst is not None
    assert (worst.value, worst.guess, worst.guessed_by, worst.succeeded) == (0.001, 0.08, "mean image", 1)
    assert texts([one, two, three], "leakage") == ["100.0% by toy.copy server", "–", "–"]
    assert texts([one, two, three], "leaked") == ["MSE 0.001 (mean image 0.08)", "–", "–"]
    shown = leakage_table([one, two, three])
    for part in ("mean image 0.08", "smaller is worse", "0.101", "not tried"):
        assert part in shown
    assert "attacks: not the same ones were made (1 on one, 0 on two)" in " ".join(warnings([one, two]))


def test_the_front_is_who_nobody_beats_in_both() -> None:
    points = {"cheap": (1.0, 0.5), "good": (9.0, 0.9), "bad": (9.0, 0.4), "same": (1.0, 0.5), "none": (math.inf, 0.9)}
    assert front_of(points) == ["cheap", "same", "good"]


def test_every_output_holds_what_the_runs_said_and_escapes_it(tmp_path: Path) -> None:
    everyone = [Compared(name, [a_run(tmp_path, name, seed, attacks=leaked(0.1, 0.5)) for seed in (1, 2)])
                for name in ("a_b & <i>", "b|c")]  # fmt: skip
    table = columns(everyone, everyone[0])
    about = {"title": "x", "question": "Why <b>?", "baseline": "a_b & <i>", "warnings": ["w & w"], "command": "fedplug"}
    page = write_compare_page(tmp_path / "compare.html", everyone, table, about).read_text()
    assert "<i>" not in page
    assert "<b>" not in page
    assert "reads &lt;b&gt;all&lt;/b&gt; of it | each of_them" in page
    assert [chart.key for chart in charts(everyone)] == ["front", "curves", "accuracy-bytes", "bytes", "seconds"]
    for chart in charts(everyone):
        assert chart.svg in page
    rows = list(csv.DictReader(io.StringIO(to_csv(table, everyone, about))))
    assert [(row["protocol"], row["verdict"]) for row in rows] == [("a_b & <i>", VERDICT), ("b|c", VERDICT)]
    assert [float(row["accuracy_mean"]) for row in rows] == pytest.approx([0.65, 0.65])
    plain = json.loads(to_json(table, everyone, about))
    assert [run["leaks"][0]["attack"] for run in plain["protocols"][0]["runs"]] == ["toy.copy server"] * 2
    markdown, latex = to_markdown(table, everyone, about), to_latex(table, everyone, about)
    assert "| b\\|c | 1, 2 |" in markdown
    assert "* b\\|c: Protected from some, not from everybody. The server: no guarantee: reads &lt;b>all" in markdown
    assert r"a\_b \& $<$i$>$ & 1, 2" in latex
    assert len({line.count(" & ") for line in latex.splitlines() if line.endswith(r"\\") and "a\\_b" not in line}) == 1
