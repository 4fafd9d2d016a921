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
from fedplug import Figure
from fedplug_lab.canvas import front_of
from fedplug_lab.comparable import Unlike, unlike, warnings
from fedplug_lab.compare import (
    grouped,
    leakage_table,
    side_by_side,
    to_csv,
    to_json,
    to_latex,
    to_markdown,
    words,
    write_compare_page,
)
from fedplug_lab.compare_figures import charts
from fedplug_lab.compare_table import columns, leaders, reasons, summary_of
from fedplug_lab.records import Compared, OneRun, result_of, worst_of
from fedplug_lab.study import _in_words
from fedplug_ledger.grades import PARTIES, Grade
from fedplug_ledger.verdict import Line
from report_toys import Page
from row_toys import a_ledger, a_line, a_row, a_summary, a_verdict


def a_run(folder: Path, name: str, seed: int, rounds: int = 3, attacks: Any = None, **changes: Any) -> OneRun:
    """A run as its folder might have it."""
    folder = folder / f"{name}-{seed}"
    folder.mkdir(parents=True)
    recipe = {
        "name": name, "seed": seed, "rounds": rounds, "data": {"use": "std.digits", "clients": 2, "partition": None},
        "model": {"use": "std.mlp"}, "train": {"use": "std.sgd", "epochs": 5}, **changes.pop("recipe", {}),
    }  # fmt: skip
    ledger = a_ledger(**{**verdict(), "unit": "client", **changes.pop("ledger", {})})
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


def texts(everyone: Sequence[Compared], key: str) -> list[str]:
    return [words(cell) for column in columns(everyone, everyone[0]) if column.key == key for cell in column.cells]


def best(everyone: Sequence[Compared], key: str, spoiled: Sequence[str] = ()) -> list[bool]:
    return [cell.best for column in columns(everyone, everyone[0], spoiled) if column.key == key
            for cell in column.cells]  # fmt: skip


def verdict(**lines: Line) -> dict[str, Any]:
    return {"verdict": a_verdict(**lines).to_plain()}


def test_each_party_has_the_guarantee_of_the_run_that_promises_least_or_none_and_why(tmp_path: Path) -> None:
    one = Compared("one", [
        a_run(tmp_path, "one", 1, ledger=verdict(server=a_line("server", "guaranteed", 3.0)), epsilon=2.0,
              epsilon_prices="noised"),
        a_run(tmp_path, "one", 2, ledger=verdict(server=a_line("server", "guaranteed", 4.0)), epsilon=1.0),
    ])  # fmt: skip
    sealed = a_line("server", "guaranteed", 0.0, rests_on=["as long as the encryption holds"])
    two = Compared("two", [a_run(tmp_path, "two", 1, ledger=verdict(server=sealed), epsilon=None),
                           a_run(tmp_path, "two", 2, ledger=verdict(), epsilon=math.nan)])  # fmt: skip
    everyone = [one, two]
    assert texts(everyone, "epsilon") == ["2.000 (noised)", "–"]
    given, lacking = texts(everyone, "epsilon_server")
    assert (given, lacking) == ("epsilon 4.00 for each client, delta 1e-05", "no guarantee: reads it")
    assert texts(everyone[1:], "epsilon_key_holder") == ["no such party: there is none"]
    assert texts(everyone, "epsilon_client") == ["no guarantee: it is above 20"] * 2
    assert texts(everyone, "epsilon_released_model") == ["epsilon 1.25 for each client, delta 1e-05"] * 2
    assert texts(everyone, "difference") == ["baseline", "+0.000 n=2"]
    whole = columns(everyone, one)
    assert {column.key: column.group for column in whole if column.key.startswith("epsilon_")}.keys() == {
        f"epsilon_{party}" for party in PARTIES}  # fmt: skip
    said = reasons(whole)
    assert "epsilon of what is priced, two: its ledger prices nothing, since no zone has noise that counts" in said
    assert "no guarantee toward the server, two: reads it" in said
    assert not [line for line in said if "key server" in line], "nobody misses a party that is not there"
    assert best(everyone, "epsilon_server") == [True, False]
    (last,) = [run for run in two.runs if run.seed == 1]
    assert texts([Compared("x", [last])], "epsilon_server") == [
        "learns nothing of the updates (epsilon 0), as long as the encryption holds"
    ]  # fmt: skip


def test_the_best_is_marked_with_all_that_the_seeds_do_not_tell_from_it(tmp_path: Path) -> None:
    def of(name: str, *accuracies: float, **more: Any) -> Compared:
        runs = [a_run(tmp_path, name, seed, accuracy=accuracy, **more) for seed, accuracy in enumerate(accuracies, 1)]
        return Compared(name, runs)

    good, close, bad = of("good", 0.8, 0.9, 0.85), of("close", 0.85, 0.84, 0.83), of("bad", 0.1, 0.2, 0.15)
    assert best([good, close, bad], "accuracy") == [True, True, False]
    assert best([good, close, bad], "accuracy", ["accuracy"]) == [False] * 3, "they are not of one task"
    assert best([good, close], "accuracy") == [False, False], "what all share is no distinction"
    alone = [Compared(each.name, each.runs[:1]) for each in (good, close, bad)]
    assert best(alone, "accuracy") == [False, True, False]
    assert leaders([{1: 3.0}, {1: 2.0}, {1: None}], "lower") == {1}
    assert leaders([{1: None}], "lower") == set()


def test_a_figure_is_marked_in_the_direction_that_its_task_declares(tmp_path: Path) -> None:
    def of(name: str, error: float, declared: Sequence[dict[str, str]]) -> Compared:
        return Compared(name, [a_run(tmp_path, name, 1, figures={"RMSE": error}, accuracy=None, loss=None,
                                     summary={"figures": declared})])  # fmt: skip

    declared = [{"name": "RMSE", "better": "lower", "unit": "m"}]
    everyone = [of("a", 2.0, declared), of("b", 1.0, declared)]
    assert best(everyone, "figure_RMSE") == [False, True]
    assert [column.title for column in columns(everyone, everyone[0]) if column.key == "figure_RMSE"] == ["RMSE (m)"]
    assert summary_of(everyone, ())[0].startswith("b is the best in RMSE (1.000); with one seed each,")
    (front,) = [chart for chart in charts(everyone) if chart.key == "front"]
    assert front.title == "What RMSE costs"
    assert "Left and down is better." in front.note
    unsure = [*everyone, of("c", 0.5, [])]
    assert best(unsure, "figure_RMSE") == [False] * 3, "c does not say which way is better"


def test_a_protocol_that_is_no_better_than_a_guess_is_named_and_is_the_best_of_nothing(tmp_path: Path) -> None:
    gets = {"accuracy": 0.983, "balanced accuracy": 0.5, "AUC": 0.5}
    declared = [{"name": name, "better": "higher"} for name in ("balanced accuracy", "AUC")]

    def of(name: str, accuracy: float, balanced: float, auc: float) -> Compared:
        leads = Figure("balanced accuracy", better="higher")
        figures = {"balanced accuracy": balanced, "AUC": auc}
        return Compared(name, [a_run(tmp_path, name, 1, accuracy=accuracy, figures=figures, guess=gets, leads=leads,
                                     summary={"figures": declared})])  # fmt: skip

    blind, finds, ranks = of("blind", 0.983, 0.5, 0.5), of("finds", 0.95, 0.7, 0.8), of("ranks", 0.983, 0.5, 0.9)
    everyone = [blind, finds, ranks]
    key = "figure_balanced accuracy"
    assert texts(everyone, key) == ["0.500: no better than a guess", "0.700", "0.500: no better than a guess"]
    assert texts(everyone, "guess") == ["0.500"] * 3
    assert best(everyone, key) == best(everyone, "accuracy") == [False, True, False]
    assert best(everyone, "figure_AUC") == [False, False, True], "its scores are better than a guess's"
    first, second = summary_of(everyone, ())[:2]
    assert first == "blind and ranks are no better than a guess (balanced accuracy 0.500; a guess 0.500)."
    assert second == "finds is the best in balanced accuracy (0.700)."
    assert summary_of([blind, finds], ("accuracy",))[0].startswith("blind and finds protect"), "not of one task"
    assert summary_of([blind, ranks], ())[0] == first
    # Where no class is rare, accuracy leads: the larger one is the guess's.

    def plain(name: str, accuracy: float) -> Compared:
        return Compared(name, [a_run(tmp_path, name, 1, accuracy=accuracy, guess={"accuracy": 0.85})])

    lazy, honest = plain("lazy", 0.85), plain("honest", 0.86)
    assert best([lazy, honest, plain("worse", 0.8)], "accuracy") == [False, True, False]
    assert summary_of([lazy, honest], ())[:2] == [
        "lazy is no better than a guess (accuracy 0.850; a guess 0.850).", "honest is the most accurate (0.860).",
    ]  # fmt: skip


def test_the_sentences_are_honest_about_seeds_and_about_what_does_not_compare(tmp_path: Path) -> None:
    safe = verdict(**{party: a_line(party, "guaranteed", 2.0) for party in PARTIES if party != "key_holder"})

    def of(name: str, *accuracies: float, **more: Any) -> Compared:
        runs = [a_run(tmp_path, name, seed, accuracy=accuracy, **more) for seed, accuracy in enumerate(accuracies, 1)]
        return Compared(name, runs)

    plain = of("plain", 0.8, 0.9, 0.85, ledger=verdict(released_model=a_line("released_model", "none")))
    noised, part = of("noised", 0.1, 0.2, 0.15, ledger=safe), of("part", 0.84, 0.85, 0.83, ledger=verdict())
    first, second, *_ = summary_of([plain, noised, part], ())
    assert first.startswith("plain is the most accurate (0.850 ± 0.050), ")
    assert first.endswith("but the spread over 3 seeds does not tell part from it.")
    assert second == ("noised protects a client from everybody (epsilon 2.00 at most); part from anybody who gets the "
                      "model alone (epsilon 1.25 at most); plain from nobody.")  # fmt: skip
    assert summary_of([plain, noised], ())[0].endswith("by more than the spread over 3 seeds explains.")
    assert summary_of([plain, plain], ())[0] == "All are equally accurate (0.850 ± 0.050)."
    *_, last = summary_of([plain, noised], ["accuracy", "time"])
    assert last == "The figures and seconds of these runs do not compare: what differs is listed with the warnings."
    cheap = of("cheap", 0.85, bytes={"up": {"total": 10}, "down": {"total": 5}, "key_server": {"total": 0}})
    assert "sends most" in summary_of([plain, cheap], ["time"])[2]
    assert summary_of([plain, cheap], ["time"])[2].endswith("times as much as cheap, which sends least.")


def test_a_weak_guarantee_is_worse_than_another_and_shown_so(tmp_path: Path) -> None:
    def of(name: str, *grades: Grade) -> Compared:
        everywhere = [{party: a_line(party, grade) for party in PARTIES} for grade in grades]
        return Compared(name, [a_run(tmp_path, name, seed, ledger=verdict(**lines))
                               for seed, lines in enumerate(everywhere, 1)])  # fmt: skip

    sure, mixed = of("sure", "guaranteed", "guaranteed"), of("mixed", "guaranteed", "weak")
    (said,) = [said for said in summary_of([mixed, sure], ()) if "protect" in said]
    assert said == ("sure protects a client from everybody (epsilon 1.25 at most); mixed weakly from everybody "
                    "(epsilon 11.00 at most).")  # fmt: skip
    (toward,) = [column for column in columns([sure, mixed], sure) if column.title == "another client"]
    assert [cell.values["state"] for cell in toward.cells] == ["guaranteed", "weak"]
    assert [cell.best for cell in toward.cells] == [True, False]
    assert words(toward.cells[1]).startswith("weak guarantee: epsilon 11.00 for each client, delta")


def test_a_guarantee_for_records_is_never_taken_for_one_of_clients(tmp_path: Path) -> None:
    """The table, the sentences and the line of a study say the same of it, and none shows it in green."""
    records = {party: a_line(party, "guaranteed", unit="record", stated={"pld": 0.5}) for party in PARTIES}
    noised = Compared("noised", [a_run(tmp_path, "noised", 1, ledger=verdict(
        **{party: a_line(party, "guaranteed", 2.0) for party in PARTIES}))])  # fmt: skip
    sgd = Compared("sgd", [a_run(tmp_path, "sgd", 1, ledger=verdict(**records))])
    plain = Compared("plain", [a_run(tmp_path, "plain", 1, ledger=verdict(
        **{party: a_line(party, "none") for party in PARTIES}))])  # fmt: skip
    (said,) = [said for said in summary_of([plain, sgd, noised], ()) if "protect" in said]
    assert said == (
        "noised protects a client from everybody (epsilon 2.00 at most); sgd protects each record, and no client as a "
        "whole, from everybody (epsilon 0.50 at most); plain protects a client from nobody."
    )
    (toward,) = [column for column in columns([plain, sgd], plain) if column.title == "the server"]
    assert [(cell.tier, cell.best) for cell in toward.cells] == [("none", False), ("part", False)]
    assert "from 0 of 5 parties; each record from 5 of 5 parties, epsilon up to 0.50" in _in_words(sgd.one.result, 1.0)
    about = {"title": "x", "question": "", "baseline": "sgd", "summary": [said], "warnings": [], "command": ""}
    page = write_compare_page(tmp_path / "compare.html", [sgd], columns([sgd], sgd), about).read_text()
    rows = page.partition("<main>")[2]
    assert rows.count('<li class="part">') == 5
    assert Page(page).visible().count("ε 0.50 a record") == 5
    for green in ('class="nothing"', 'class="strict"', 'class="moderate"', "tier strict", "status strict"):
        assert green not in rows, green


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"recipe": {"data": {"use": "std.images", "clients": 2, "partition": None}}}, "data: std.digits in a; std.im"),
        ({"recipe": {"data": {"use": "std.digits", "clients": 9, "partition": None}}}, "clients and their data: 2 cli"),
        ({"recipe": {"train": {"use": "std.sgd", "epochs": 1}}}, "local work: 3 rounds x 5 epochs in a; 3 rounds x 1"),
        ({"recipe": {"train": {"use": "toy"}}}, "3 rounds of toy, which counts no epochs in b"),
        ({"recipe": {"train": "toy"}}, "3 rounds of toy, which counts no epochs in b"),  # a task defines it
        ({"recipe": {"model": {"use": "std.cnn"}}}, "model: std.mlp in a; std.cnn in b"),
        ({"recipe": {"rounds": 9}}, "b, seed 1: 3 of 9 rounds; fedplug resume"),
        ({"ledger": {"unit": "record"}}, "unit of epsilon: client in a; record in b. Epsilons are not of one kind."),
        ({"ledger": {"adjacency": "add"}}, "adjacency: nothing stated in a; add in b"),
        ({"ledger": {"delta": 1e-3}}, "delta: 1e-05 in a; 0.001 in b. Epsilons do not compare."),
        ({"summary": {"device": "cuda:0"}}, "machine: engine local on cpu in a; engine local on cuda:0 in b. Seconds"),
        ({"summary": {"versions": {"fedplug": "9"}}}, "versions: fedplug 0.1.0 and 9"),
        ({"summary": {"versions": {"fedplug": "9"}}}, "versions: runs were made with fedplug 9 (installed: "),
        ({"skipped": "too few"}, "b, seed 1: 3 of 3 rounds fell short and moved no model. Figures, bytes and"),
    ],
)
def test_it_says_what_does_not_compare(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    a, b = (Compared(name, [a_run(tmp_path, name, 1, **own)]) for name, own in (("a", {}), ("b", changes)))
    assert warnings([a, a]) == []
    assert [warning for warning in warnings([a, b]) if expected in warning.text], warnings([a, b])


def test_a_search_is_told_too_of_what_the_one_epsilon_is_that_a_run_leads_with(tmp_path: Path) -> None:
    a, b = (Compared(name, [a_run(tmp_path, name, 1, ledger={"trust": trust})])
            for name, trust in (("a", ""), ("b", "x")))  # fmt: skip
    assert unlike([a, b], ["epsilon"]) == [
        "who is trusted: nothing stated in a; x in b. These epsilons hold toward different parties: compare party by "
        "party."
    ]  # fmt: skip
    assert not warnings([a, b])


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
    assert not seeds.spoils
    assert seeds.text == "seeds: a has 1, 2; b has 1. Differences are over the seeds that both have, means over all."
    for run, (began, ended) in zip([*a.runs, *b.runs], [(100, 200), (200, 300), (250, 400)], strict=True):
        os.utime(run.folder / "recipe.yaml", (began, began))
        os.utime(run.folder / "metrics.jsonl", (ended, ended))
    shared = "machine: some of the runs went on at the same time. Seconds do not compare."
    assert Unlike(shared, frozenset({"time"})) in warnings([a, b])


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
    said = " ".join(found.text for found in warnings([one, two]))
    assert "attacks: not the same ones were made (1 on one, 0 on two)" in said


def by_adversary(**seen: tuple[dict[str, float], float | None]) -> dict[str, Any]:
    """Of each adversary, `_` for `+`: the states that it sees, and its share of successes on four people."""
    return {
        f"toy.copy {name}": {
            "ranking": {"metric": "mse", "better": "low"}, "stronger": "naive", "guesses": {},
            "adversary": name.replace("_", "+client:"),
            "forms": {"naive": {
                "metrics": {}, "succeeded": share, "targets": 4, "applicable": 0 if share is None else 4,
                "seconds": 1.0, "states": states, "people": 0 if share is None else 4,
                "recovered": int(4 * (share or 0)),
            }},
        }
        for name, (states, share) in seen.items()
    }  # fmt: skip


def test_each_adversary_has_a_row_that_says_what_it_sees_and_took(tmp_path: Path) -> None:
    hidden, noised = {"encrypted": 1.0}, {"noised": 1.0}
    attacks = [
        by_adversary(server_2_3=({"clear": 1.0}, 1.0), server=(hidden, None), server_2=({}, None)),
        by_adversary(server=(hidden, None), server_2=({"clear": 0.25, "encrypted": 0.75}, 0.5)),
        by_adversary(server_2=(noised, 0.0)),
    ]
    everyone = [Compared(name, [a_run(tmp_path, name, 1, attacks=found)])
                for name, found in zip("abc", attacks, strict=True)]  # fmt: skip
    rows = {column.title: column for column in columns(everyone, everyone[0]) if "seen by" in column.title}
    assert {title: [cell.text for cell in row.cells] for title, row in rows.items()} == {
        "updates seen by the server": ["hidden", "hidden", "–"],
        "updates seen by the server with client 2": [
            "sees no update", "25% opened, 75% hidden; 2 of 4 examples", "opened, with noise; 0 of 4 examples",
        ],
        "updates seen by the server with clients 2, 3": ["opened; 4 of 4 examples", "–", "–"],
    }  # fmt: skip
    assert rows["updates seen by the server"].cells[2].why == "there is no such party, or it was not tried"
    alone = [Compared(name, [a_run(tmp_path, name, 2, attacks=by_adversary(server=(hidden, None)))]) for name in "de"]
    assert not [column for column in columns(alone, alone[0]) if "seen by" in column.title]


def test_the_front_is_who_nobody_beats_in_both() -> None:
    points = {"cheap": (1.0, 0.5), "good": (9.0, 0.9), "bad": (9.0, 0.4), "same": (1.0, 0.5)}
    assert front_of(points, ("lower", "higher")) == ["cheap", "same", "good"]
    assert front_of(points, ("lower", "lower")) == ["cheap", "same", "bad"]
    assert front_of(points, ("higher", "lower")) == ["bad"]


def test_a_front_has_axes_with_numbers_and_a_strip_for_those_without_a_guarantee(tmp_path: Path) -> None:
    def line(epsilon: float | None) -> dict[str, Any]:
        return verdict(server=a_line("server", "guaranteed" if epsilon else "none", epsilon or 0.0))

    everyone = [Compared(name, [a_run(tmp_path, name, 1, ledger=line(epsilon), accuracy=accuracy)])
                for name, epsilon, accuracy in (("a", 1.0, 0.3), ("b", 16.0, 0.7), ("open", None, 0.9))]  # fmt: skip
    front = charts(everyone)[0]
    said = "By epsilon toward the server, no protocol beats a and b; no guarantee: open."
    assert said in front.alt
    for text in (">no guarantee<", ">epsilon toward the server, log scale<", ">10<", ">open<", ">accuracy (share of"):
        assert text in front.svg, text
    assert "inf" not in front.svg
    assert "nan" not in front.svg


def test_every_output_holds_what_the_runs_said_and_escapes_it(tmp_path: Path) -> None:
    hostile = verdict(server=a_line("server", "none", reason="reads <u>it</u> | all", detail="x_y <u>"))
    everyone = [Compared(name, [a_run(tmp_path, name, seed, attacks=leaked(0.1, 0.5), ledger=hostile)
                                for seed in (1, 2)]) for name in ("a_b & <i>", "b|c")]  # fmt: skip
    table = columns(everyone, everyone[0])
    about = {"title": "x", "question": "Why <q>?", "baseline": "a_b & <i>", "summary": summary_of(everyone, ()),
             "warnings": ["w & w"], "command": "fedplug"}  # fmt: skip
    page = write_compare_page(tmp_path / "compare.html", everyone, table, about).read_text()
    for tag in ("<i>", "<u>", "<q>"):
        assert tag not in page
    why = '<span class="note">reads &lt;u&gt;it&lt;/u&gt; | all'
    assert f'class="tier none"><b>no guarantee</b></span><br>{why}' in page
    assert [chart.key for chart in charts(everyone)] == ["front", "curves", "accuracy-bytes", "bytes", "seconds"]
    for chart in charts(everyone):
        assert chart.svg in page
    said = "Protected from some, not from everybody. Each client's data are protected from anybody who gets the model, "
    rows = list(csv.DictReader(io.StringIO(to_csv(table, everyone, about))))
    assert [(row["protocol"], row["verdict"].startswith(said)) for row in rows] == [("a_b & <i>", True), ("b|c", True)]
    assert [float(row["accuracy_mean"]) for row in rows] == pytest.approx([0.65, 0.65])
    assert [(row["epsilon_released_model"], row["epsilon_server_state"]) for row in rows] == [("1.25", "none")] * 2
    plain = json.loads(to_json(table, everyone, about))
    assert [run["leaks"][0]["attack"] for run in plain["protocols"][0]["runs"]] == ["toy.copy server"] * 2
    assert [line["state"] for line in plain["protocols"][0]["runs"][0]["lines"]][:2] == ["none", "absent"]
    markdown, latex = to_markdown(table, everyone, about), to_latex(table, everyone, about)
    assert "|  | a_b & &lt;i> | b\\|c |\n| --- | --- | --- |" in markdown
    assert "| **Privacy toward** |  |  |" in markdown
    assert "| the server | no guarantee: reads &lt;u>it&lt;/u> \\| all |" in markdown
    assert f"* b\\|c: {said}" in markdown
    assert r" & a\_b \& $<$i$>$ & b|c \\" in latex
    assert r"accuracy & 0.650 $\pm$ 0.071 & " in latex
    rows_of_two = [line for line in latex.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
    assert {line.replace(r"\&", "").count(" & ") for line in rows_of_two} == {2}
    for text in (markdown, latex, page):
        for word in ("Accuracy", "Privacy", "Traffic", "Time"):
            assert word in text


def test_many_protocols_make_several_tables_and_nothing_scrolls(tmp_path: Path) -> None:
    everyone = [Compared(f"p{place}", [a_run(tmp_path, f"p{place}", 1)]) for place in range(7)]
    table = columns(everyone, everyone[0])
    assert [[cell.text for cell in piece[0].cells] for piece in side_by_side(table)] == [
        ["p0", "p1", "p2", "p3"], ["p4", "p5", "p6"]
    ]  # fmt: skip
    about = {"title": "x", "question": "", "baseline": "p0", "summary": [], "warnings": [], "command": ""}
    page = write_compare_page(tmp_path / "compare.html", everyone, table, about).read_text()
    numbers = page[page.index('<section id="numbers">') : page.index('<section id="figures">')]
    assert numbers.count("<table") == numbers.count('<table class="sides">') == 4, "two, and two folded away"
    assert "scroll" not in numbers
    assert to_markdown(table, everyone, about).count("| --- ") == 9


def test_a_task_without_accuracy_is_compared_by_what_leads_it_in_its_direction(tmp_path: Path) -> None:
    leads = {"name": "RMSE", "better": "lower", "unit": "m"}
    common = {"accuracy": None, "client_accuracy": {}, "leads": leads, "summary": {"figures": [leads]}}
    near = {"figures": {"RMSE": 1.0}, "client_leading": {0: 1.0, 1: 3.0}, "tuned": {0: 0.5, 1: 0.5},
            "personal_leading": {0: 1.0, 1: 2.0}, "clusters": {"north": 1.0}}  # fmt: skip
    far = {"figures": {"RMSE": 2.0}, "client_leading": {0: 4.0, 1: 6.0}, "clusters": {"north": 2.0}}
    everyone = [Compared(name, [a_run(tmp_path, name, 1, **common, **own)]) for name, own in (("a", near), ("b", far))]
    table = columns(everyone, everyone[0])
    assert [(column.key, [cell.best for cell in column.cells]) for column in table if "RMSE" in column.key] == [
        ("figure_RMSE", [True, False]), ("client_RMSE", [True, False]), ("personal_RMSE", [True, False]),
        ("tuned_RMSE", [True, False]),
    ]  # fmt: skip
    assert texts(everyone, "client_RMSE") == ["2.000", "5.000"]
    assert texts(everyone, "cluster_north") == ["1.000", "2.000"]
    assert [heading for heading, _ in grouped(table)][:2] == ["", "RMSE (m)"]
    assert not [column for column in table if "ccuracy" in column.title]
