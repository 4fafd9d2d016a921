"""The report: complete in itself, safe to open, and true to the rows whatever they hold."""

from __future__ import annotations

import dataclasses
import math
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedplug.api.known import Release
from fedplug.api.roles import Reveals
from fedplug_lab.canvas import thinned
from fedplug_lab.figures import charts
from fedplug_lab.glance import CLIENT
from fedplug_lab.records import as_sent
from fedplug_lab.report import epsilon_spent
from fedplug_lab.words import GLOSSARY
from fedplug_ledger.ledger import Ledger
from fedplug_ledger.ledger_record import EncryptionReport
from fedplug_ledger.verdict import Verdict
from fedplug_runs.rows import Row
from report_toys import HOSTILE, LEDGER, NOBODY, Page, a_zone, written
from row_toys import a_ledger, a_line, a_row


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    rows = [a_row(1), a_row(2, clients={"asked": 2, "answered": 1, "dropped": {1: "ValueError: boom"}}), a_row(3)]
    return written(tmp_path_factory.mktemp("run"), rows)


def test_loads_nothing_and_runs_nothing(text: str) -> None:
    assert not re.search(r"https?://|//\w+\.\w+|@import", text)
    page = Page(text)
    for tag, attributes in page.tags:
        assert tag not in {"script", "link", "iframe", "object", "embed", "base", "form"}
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("src", "href", "xlink:href", "data", "srcset", "poster"):
            address = attributes.get(name)
            assert address is None or address.startswith(("#", "data:image/")), f"{tag} {name}={address}"
    for target in re.findall(r"url\(([^)]*)\)", text):
        assert target.startswith("#")
    assert any("default-src 'none'" in str(a.get("content")) for tag, a in page.tags if tag == "meta")


def test_ids_are_unique_and_references_resolve(text: str) -> None:
    page = Page(text)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {a["href"] for _, a in page.tags if a.get("href") and str(a["href"]).startswith("#")}
    targets |= set(re.findall(r"url\((#[^)]*)\)", text))
    assert targets
    assert {str(target)[1:] for target in targets} <= set(ids)


def test_holds_the_numbers_the_verdict_and_the_plan(text: str) -> None:
    shown = Page(text).visible()
    for expected in (
        LEDGER.verdict.headline, "mask is not covered", "demo", "ab" * 8, "paraaegis.vote", "encrypt 25%", "0.1.0",
        "fedplug run recipes/demo.yaml --set rounds=3", "0.503", "25.0%", "0.375", "4.5 MB", "2.4 kB", "6.0 s",
        "0.400–0.900", "ValueError: boom", "std.bfv.saturated", "exact", "rounds: 3", "delta: 1.0e-05", "é <b>",
        "training is 90.0% of the work", "5 of 6", "30 values", "∞", "server, client",
    ):  # fmt: skip
        assert expected in shown, expected
    assert "Partial run" not in shown


def test_the_verdict_comes_before_everything_else_and_its_numbers_follow(text: str) -> None:
    shown = Page(text).visible()
    first = shown.index("Who can learn what about a client")
    for said in (CLIENT, LEDGER.verdict.opening, *(line.who for line in LEDGER.verdict.lines)):
        assert first < shown.index(said) < shown.index("Accuracy\n"), said
    assert re.search(r"<h1[^>]*>.*?</h1>.*?<section class=\"verdict\"", text, re.DOTALL)
    parts = ["status ", "glance", "numbers lead", "parties", "numbers more", "figures"]
    places = [text.index(f'class="{part}') for part in parts]
    assert places == sorted(places)
    spent = shown.index("Epsilon spent\nno limit toward 3 of 4\n")
    assert shown.index("Accuracy\n") < spent < shown.index("Wall clock")
    assert "Privacy verdict" not in shown


def test_epsilon_spent_is_never_the_number_of_some_where_others_have_none() -> None:
    everybody = [a_line("server", "guaranteed", 8.0), a_line("client", "guaranteed", 3.15)]
    assert epsilon_spent(Verdict.of(everybody)) == (
        "8.00", "toward server; 3.15 toward client; replace-one 16.00; delta 1e-05"
    )  # fmt: skip
    some = Verdict.of([*everybody, a_line("released_model", "none")])
    assert epsilon_spent(some) == ("no limit toward 1 of 3", "8.00 toward server; 3.15 toward client")
    record = a_line("server", "guaranteed", unit="record", epsilons=None, stated={"pld": 0.5})
    assert epsilon_spent(Verdict.of([record])) == ("0.50", "for each record toward server; delta 1e-05")
    assert epsilon_spent(Verdict.of([a_line("server", "guaranteed", 0.0)]))[0] == "0"


def test_sites_have_no_common_test_set(tmp_path: Path) -> None:
    rows = [a_row(1), a_row(2)]
    sites = {"rounds": 2, "data": {"at": "sites", "clients": 2}}
    shown = Page(written(tmp_path, rows, recipe=sites)).visible()
    assert "common test set" not in shown
    assert "test data of the sites" in shown
    assert "common test set" in Page(written(tmp_path, rows)).visible()


def test_the_ledger_says_the_verdict_in_detail(text: str) -> None:
    detail = text[text.index("The verdict in detail") :]
    shown = Page(detail[detail.index("<tbody>") : detail.index("</tbody>")] + "</tbody>").visible()
    for line in LEDGER.verdict.lines:
        assert shown.index(f"{line.who}\n{line.guarantee}\n{line.detail}") >= 0
    for said in ("add-or-remove, exact\n1.25\nreplace-one, exact\n2.5", "add-or-remove, exact\n90", "exact\n∞"):
        assert said in shown, said
    assert shown.count("not stated") == 2


def test_is_accessible(text: str) -> None:
    page = Page(text)
    assert page.count("table") == page.count("caption") > 5
    assert all(a.get("scope") for tag, a in page.tags if tag == "th")
    pictures = [a for tag, a in page.tags if tag == "svg" and "aria-hidden" not in a]
    assert len(pictures) == 2 * page.count("figure") == 2 * page.count("figcaption") == 16
    for picture in pictures:
        assert picture["role"] == "img"
        assert len(str(picture["aria-label"])) > 20
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_follows_light_and_dark_and_paper(text: str) -> None:
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text
    assert "fill: var(--ink)" in text
    assert "fill: var(--muted)" in text


@pytest.mark.parametrize("place", ["name", "plan", "ledger", "row", "class", "recipe", "command", "versions", "engine"])
def test_everything_is_escaped(tmp_path: Path, place: str) -> None:
    rows, ledger = [a_row(1)], LEDGER
    changes: dict[str, Any] = {}
    if place == "plan":
        changes = {"plan": [(HOSTILE, HOSTILE, HOSTILE)]}
    elif place == "ledger":
        release = {"mechanism": HOSTILE, "noise_multiplier": 1.0, "clipping_norm": 1.0, "note": HOSTILE}
        an_entry = {
            "round": 1, "charged": "all", "total": 9, "accounts": {HOSTILE: {0: [1.0]}},
            "zones": {HOSTILE: {"size": 1.0, "releases": [release], "freed": [HOSTILE]}},
        }  # fmt: skip
        ledger = a_ledger(
            verdict=Verdict.of([a_line(HOSTILE, "none", reason=HOSTILE, detail=HOSTILE, sees=HOSTILE)]),
            warnings=[HOSTILE], unit=HOSTILE,
            zones={HOSTILE: a_zone(mechanism=[HOSTILE])}, log=[an_entry],
            recipe=HOSTILE,
            encryption={HOSTILE: {"key_holder": HOSTILE, "sums_seen_by_server": True, "parameters": HOSTILE}},
        )  # fmt: skip
    elif place == "row":
        group = {"accuracy": 0.5, "loss": 1.0}
        rows = [a_row(1, zones={HOSTILE: 1.0}, log={HOSTILE: 1.0}, seconds={HOSTILE: 1.0}, figures={HOSTILE: 0.5},
                      clients={"asked": 1, "answered": 0, "dropped": {3: HOSTILE}}, epsilon_prices=HOSTILE,
                      groups={HOSTILE: group, "g1": group}, group_members={HOSTILE: [0], "g1": [1]},
                      bytes={"up": {"total": 9, "zones": {HOSTILE: 9}, "phases": {HOSTILE: 9}}, "down": {},
                             "key_server": {}})]  # fmt: skip
    elif place == "class":
        changes = {"class_distribution": {"classes": [HOSTILE, "$x_1$"], "clients": {0: [1, 2]}}}
    elif place == "recipe":
        changes = {"recipe": {HOSTILE: HOSTILE, "rounds": 3}}
    elif place == "versions":
        changes = {"versions": {HOSTILE: HOSTILE}}
    else:
        changes = {place: HOSTILE}
    text = written(tmp_path, rows, ledger, **changes)
    page = Page(text)
    assert page.count("script") == 0
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert "<script>alert" in page.visible(), "shown as text"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, None, 1e300])
def test_a_diverged_run_is_reported(tmp_path: Path, bad: float | None) -> None:
    known = {} if bad is None else {"x": bad}
    stated = {} if bad is None else {"released_model": bad}
    ruined = a_row(2, loss=bad, train_loss=bad, accuracy=bad, epsilon=bad, mask_churn=bad,
                   view_epsilons=stated, zones={"encrypted": bad},
                   client_accuracy={} if bad is None else {0: bad}, seconds=known, log=known, figures=known,
                   bytes={"up": {}, "down": {}, "key_server": {}})  # fmt: skip
    Page(written(tmp_path, [a_row(1), ruined, a_row(3)]))
    (tmp_path / "report.html").unlink()
    Page(written(tmp_path, [ruined]))


def test_an_interrupted_run_says_so(tmp_path: Path) -> None:
    shown = Page(written(tmp_path, [a_row(1), a_row(2, accuracy=None, loss=None, client_accuracy={})])).visible()
    assert "2 of 3 planned rounds" in shown
    assert "best 0.501 after round 1" in shown


def test_no_round_at_all(tmp_path: Path) -> None:
    recipe = {"rounds": 3}
    text = written(tmp_path, [], a_ledger(), recipe=recipe, class_distribution=NOBODY, plan=[], versions={}, command="")
    assert "No round is complete." in text
    assert Page(text).count("svg") == 0


def test_rows_with_nothing_in_them(tmp_path: Path) -> None:
    nothing: dict[str, Any] = {key: {} for key in ("client_accuracy", "zones", "seconds", "log", "view_epsilons")}
    nothing |= dict.fromkeys(("accuracy", "loss", "train_loss", "epsilon", "mask_churn"))
    nothing["bytes"] = {"up": {}, "down": {}, "key_server": {}}
    assert Page(written(tmp_path, [a_row(1, **nothing), a_row(2, **nothing)])).count("svg") == 1


def test_figures_of_a_task_have_a_chart_and_columns_whatever_they_are_called(tmp_path: Path) -> None:
    rows = [a_row(1), a_row(2, figures={"Dice": 0.25, "hits": 0.5}), a_row(3, figures={"Dice": 0.375, "hits": 0.625})]
    chart = next(chart for chart in charts(rows, None) if chart.key == "task")
    assert chart.alt == "After the last round, over the common test set: Dice 0.375, hits 0.625."
    assert [label for label, _, _ in chart.legend] == ["Dice", "hits"]
    heads = [text for tag, text in Page(written(tmp_path, rows)).texts if tag == "th"]
    assert heads.index("Dice") == heads.index("hits") - 1 == heads.index("clients") - 2
    assert "task" not in {chart.key for chart in charts([a_row(1)], None)}


@pytest.mark.parametrize("rounds", [1, 2, 41, 200])
def test_any_number_of_rounds(tmp_path: Path, rounds: int) -> None:
    text = written(tmp_path, [a_row(i) for i in range(1, rounds + 1)], recipe={"rounds": rounds})
    assert Page(text).count("svg") == (8 if rounds > 1 else 7), "one round has no mask churn"
    assert len(text) < 400_000
    assert f">{rounds}<" in text


def test_a_long_run_is_no_long_page(tmp_path: Path) -> None:
    """First, last and best round stay, and so do peaks; the page says where the others are."""
    rows = [dataclasses.replace(a_row(i), accuracy=0.987 if i == 1234 else 0.5) for i in range(1, 2001)]
    rows[77] = dataclasses.replace(rows[77], accuracy=0.012)
    text = written(tmp_path, rows, recipe={"rounds": 2000})
    assert len(text) < 1_000_000
    assert "Some of 2000 rounds; metrics.jsonl has all." in text
    assert all(f">{number}<" in text for number in (1, 1234, 2000))
    kept = thinned(np.array([row.accuracy for row in rows], np.float64))
    assert len(kept) < 1000
    assert {0, 77, 1233, 1999} <= set(kept.tolist())
    gap = np.ones(5000)
    gap[[100, 2500]] = np.nan
    assert {100, 2500} <= set(thinned(gap).tolist())


def personal_rows() -> list[Row]:
    return [
        a_row(r, personal_accuracy={0: 0.6, 1: 0.6 + r / 10}, personal_public_accuracy={0: 0.5, 1: 0.3})
        for r in (1, 2)
    ]


def test_personal_models_are_shown_beside_the_global_one(tmp_path: Path) -> None:
    accuracy = charts(personal_rows(), None)[0]
    assert accuracy.wide
    labels = [label for label, _, _ in accuracy.legend]
    assert labels == [
        "global model", "personal models, mean over clients", "personal models, lowest to highest",
    ]  # fmt: skip
    assert "own test data 0.700 on average, 0.600 to 0.800; on the common test set 0.400 on average" in accuracy.alt
    assert "test data with each client's own class mix" in accuracy.svg
    shown = Page(written(tmp_path, personal_rows())).visible()
    for expected in ("0.650 (0.600–0.700)", "0.700 (0.600–0.800)", "0.400 (0.300–0.500)",
                     "personal models 0.700 on average", "Personal models: mean over clients"):  # fmt: skip
        assert expected in shown, expected
    without = charts([a_row(1)], None)[0]
    assert not without.wide
    assert "personal" not in str(without.legend)


@pytest.mark.parametrize("bad", [{}, {0: math.nan, 1: math.inf}])
def test_personal_models_that_have_no_accuracy(tmp_path: Path, bad: dict[int, float]) -> None:
    rows = [a_row(1, personal_accuracy=bad), *personal_rows(), a_row(4, personal_public_accuracy=bad)]
    Page(written(tmp_path, rows))
    assert not charts([a_row(1, personal_accuracy=bad)], None)[0].wide


def test_same_rows_same_page(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert written(tmp_path / "a", [a_row(1)]) == written(tmp_path / "b", [a_row(1)])


def test_writes_over_an_older_report(tmp_path: Path) -> None:
    written(tmp_path, [a_row(1)])
    assert "3 of 3" in written(tmp_path, [a_row(1), a_row(2), a_row(3)])


def test_the_words_of_the_verdict_are_explained_beside_it(text: str) -> None:
    shown = Page(text).visible()
    assert shown.index(LEDGER.verdict.opening) < shown.index("What these words mean") < shown.index("Rounds\n3 of 3")
    for word in ("zone", "epsilon, ε", "delta, δ", "without noise", "unit", "add-or-remove, replace-one",
                 "server, key server", "not covered by epsilon"):  # fmt: skip
        assert shown.count(f"\n{word}\n") >= 1, word
        assert len(GLOSSARY[word]) < 300, "short"
    assert shown.count(GLOSSARY["server, key server"]) == 1, "once"


def test_a_zone_to_which_nothing_is_added_is_not_called_noised(tmp_path: Path) -> None:
    rows = [a_row(1, zones={"encrypted": 0.25, "noised": 0.5, "clear": 0.25},
                  bytes={"up": {"total": 9, "zones": {"noised": 5, "clear": 4}}, "down": {}, "key_server": {}})]
    bare = {"rounds": 1, "protect": {"noised": [], "clear": []}}
    (row,) = as_sent(rows, bare)
    assert row.zones == {"encrypted": 0.25, "clear": 0.75}
    assert row.bytes.up.zones == {"clear": 9}
    assert rows[0].zones["noised"] == 0.5
    assert as_sent(rows, {"protect": {"noised": [{"use": "std.gaussian"}]}}) == rows
    shown = Page(written(tmp_path, rows, a_ledger(), recipe=bare)).visible()
    assert "encrypted 25.0%, clear 75.0%" in shown
    assert "The recipe adds nothing to the zone that it calls noised" in shown
    (tmp_path / "report.html").unlink()
    noised = {**bare, "protect": {"noised": [{"use": "std.gaussian"}]}}
    shown = Page(written(tmp_path, rows, a_ledger(), recipe=noised)).visible()
    assert "encrypted 25.0%, noised 50.0%, clear 25.0%" in shown
    assert "adds nothing" not in shown


def test_a_run_without_encryption_does_not_lead_with_it(tmp_path: Path) -> None:
    shown = Page(written(tmp_path, [a_row(1, zones={"encrypted": 0.0, "noised": 1.0})])).visible()
    assert "Noised share\n100.0%" in shown
    assert "Sealed share" not in shown


def test_a_real_ledger_is_shown_whole(tmp_path: Path) -> None:
    ledger = Ledger("demo", 2, 3, 2, 1e-5, encryption={"encrypted": EncryptionReport("clients", False)},
                    reveals=[Reveals("mask", ("server",))])  # fmt: skip
    for round in range(3):
        ledger.record(round, charged=range(2), zone_sizes={"encrypted": 25, "noised": 75}, total=100,
                      releases={"noised": [Release("gaussian", 3.5, 1.0)]}, contributors={"encrypted": 2, "noised": 2},
                      weights={0: 1.0, 1: 1.0})  # fmt: skip
    account = ledger.report()
    page = Page(written(tmp_path, [a_row(1)], account))
    shown = page.visible()
    assert account.verdict.opening in shown
    for line in account.verdict.lines:
        assert line.who in shown
        assert "_" not in line.who
        assert (line.reason or line.terms) in shown
        assert line.detail in shown
    for heading in ("The verdict in detail", "Zones", "Reveals", "Never covered", "Log, 3 entries"):
        assert heading in shown
    assert not page.nested_tables
