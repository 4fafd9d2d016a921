"""Runs of statistics: the same answers under every protection and engine, with noise as it was stated."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import ClientData, RecipeError
from fedplug_analytics.answering import Answers, total
from fedplug_analytics.report import ANSWERS
from fedplug_analytics.statistics import Statistics
from fedplug_std.datasets import Diabetes
from fedplug_terminal.app import app
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from typer.testing import CliRunner

OF: list[dict[str, Any]] = [
    {"statistic": "count"},
    {"statistic": "mean", "column": "bmi", "bounds": [15, 45]},
    {"statistic": "histogram", "column": "age", "edges": [15, 35, 55, 85]},
]
BASE: dict[str, Any] = {
    "name": "asked", "seed": 7, "rounds": 1,
    "data": {"use": "std.diabetes", "clients": 5, "partition": "std.iid"},
    "model": {"use": "analytics.statistics", "of": OF},
    "task": "analytics.statistics", "train": "analytics.statistics",
    "negotiate_mask": {"use": "std.single_zone", "zone": "clear"},
    "protect": {"clear": []}, "aggregate": {"use": "std.mean", "weighting": "uniform"}, "answers": {},
}  # fmt: skip
SEALS: dict[str, tuple[dict[str, Any], float]] = {
    "std.bfv": ({"key_holder": "key_server", "range": 128}, 128 / (2**17 - 1)),
    "secagg.bonawitz": ({"range": 128}, 0.0),
    "threshold.bfv": ({"range": 128}, 0.0),
    "std.paillier": ({"key_holder": "key_server", "range": 128}, 2.0**-13),
}  # fmt: skip
"""Their options, and the step of their grid; 0 where whole numbers lie on it."""


def in_zone(zone: str, *links: Any, **changes: Any) -> dict[str, Any]:
    """The recipe with all sums in this zone, behind these links; the last undoes itself where it seals."""
    seal = [links[-1]["use"]] if links and links[-1]["use"] in SEALS else []
    planned = {"use": "std.single_zone", "zone": zone}
    return {**BASE, "negotiate_mask": planned, "protect": {zone: [*links]}, "postprocess": {zone: seal}, **changes}


def run(recipe: dict[str, Any], folder: Path, **settings: Any) -> Any:
    return fedplug.run(recipe, output=folder, muted=["lab.report"], quiet=True, **settings)


def found(ran: Any) -> dict[str, Any]:
    """The numbers of a run by name."""
    answers = Answers.among(ran.metrics)
    assert answers is not None
    assert not answers.problem
    return {each.name: each for answer in answers.answers for each in answer.estimates}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run(BASE, tmp_path_factory.mktemp("plain"))


def test_answers_are_those_of_all_records_in_one_place(plain: Any) -> None:
    train = Diabetes(Diabetes.Options()).load(None).train
    bmi, age = train.inputs[:, 2].astype(np.float64), train.inputs[:, 0]
    numbers = found(plain)
    assert numbers["records"].value == len(train)
    low, high = stats.t.interval(0.95, len(bmi) - 1, bmi.mean(), stats.sem(bmi))
    mean = numbers["mean of bmi"]
    assert (mean.value, mean.low, mean.high) == pytest.approx((bmi.mean(), low, high), rel=1e-5)
    counts = np.histogram(age, [15, 35, 55, 85])[0]
    assert [numbers[name].value for name in ("15 to 35", "35 to 55", "55 to 85")] == counts.tolist()


@pytest.mark.parametrize("seal", SEALS)
def test_sealed_sums_are_the_plain_ones(seal: str, plain: Any, tmp_path: Path) -> None:
    """Counts to half a step of the seal's grid at each of the five clients."""
    options, step = SEALS[seal]
    sealed = found(run(in_zone("encrypted", {"use": seal, **options}, min_clients=4), tmp_path))
    for name, one in found(plain).items():
        counted = one.low == one.high
        assert abs(sealed[name].value - one.value) <= (5 * step / 2 if counted else 1e-4 * one.value), name
        assert not counted or sealed[name].low <= one.value <= sealed[name].high, name


def test_engines_give_equal_answers(plain: Any, tmp_path: Path) -> None:
    apart = run(BASE, tmp_path, engine="processes", workers=2)
    assert Answers.among(apart.metrics) == Answers.among(plain.metrics)


EMPTY = {"statistic": "histogram", "column": "age", "edges": list(range(100, 1101))}
"""A thousand cells, all but the first of which are empty: the released sums are the noise."""
CLIP = {"use": "analytics.clip", "records": 2}
NOISE: dict[str, tuple[dict[str, Any], float | None]] = {
    "local": (in_zone("noised", CLIP, {"use": "std.gaussian", "noise_multiplier": 3}), 6),
    "laplace": (in_zone("noised", {**CLIP, "order": 1}, {"use": "std.laplace", "noise_multiplier": 3}), 6 * 2**0.5),
    "distributed": (
        in_zone("encrypted", CLIP, {"use": "std.distributed_gaussian", "noise_multiplier": 3},
                {"use": "secagg.bonawitz", "range": 128}, min_clients=4), 6 / 3**0.5,
    ),
    "central": (
        {**BASE, "protect": {"clear": [CLIP]},
         "postprocess": {"clear": [{"use": "std.central_gaussian", "noise_multiplier": 3, "norm": 2.001}]}},
        6 / 5**0.5,
    ),
    "whole numbers": (
        in_zone("encrypted", CLIP, {"use": "std.distributed_skellam", "noise_multiplier": 3, "grid": 0.25},
                {"use": "secagg.bonawitz"}, min_clients=4), None,
    ),
    "record": ({**BASE, "train": {"use": "analytics.noised", "noise_multiplier": 4}}, 4),
}  # fmt: skip


@pytest.mark.parametrize("kind", NOISE)
def test_the_noise_of_intervals_is_that_of_the_sums(kind: str, tmp_path: Path) -> None:
    """By the spread over many cells: stated is what is executed. All five clients add theirs.

    None: whole numbers have the norm that rounding leaves, so that the spread alone is compared.
    """
    recipe, std = NOISE[kind]
    ran = run({**recipe, "model": {"use": "analytics.statistics", "of": [EMPTY]}}, tmp_path)
    answers = Answers.among(ran.metrics)
    assert answers is not None
    cells = [each for each in answers.answers[0].estimates if not each.name.startswith("share")][1:]
    values = np.array([each.value for each in cells], np.float64)
    stated = {(each.high - each.value) / stats.norm.ppf(0.975) for each in cells if each.high}
    assert max(stated) == pytest.approx(min(stated))
    assert std is None or max(stated) == pytest.approx(5**0.5 * std, rel=1e-3)
    assert values.std() == pytest.approx(max(stated), rel=0.12)  # five standard errors of a thousand
    assert abs(values.mean()) < 5 * max(stated) / len(values) ** 0.5


def test_noise_at_the_clients_protects_records_at_the_epsilon_that_it_is_calibrated_for(tmp_path: Path) -> None:
    ran = run({**BASE, "delta": 1e-4, "train": {"use": "analytics.noised", "epsilon": 2, "delta": 1e-4}}, tmp_path)
    assert ran.metrics[-1].level_epsilons["record"] == pytest.approx(2, rel=1e-6)
    assert all(line.unit == "record" for line in ran.ledger.verdict.lines if line.state == "guaranteed")


def test_what_a_client_adds_at_most_is_what_the_ledger_prices(tmp_path: Path) -> None:
    """The clip to a hundred records leaves the sums of seventy unchanged, and the noise is scaled to it."""
    links = {"use": "analytics.clip", "records": 100}, {"use": "std.gaussian", "epsilon": 4, "delta": 1e-5}
    ran = run(in_zone("noised", *links), tmp_path)
    assert ran.metrics[-1].epsilon == pytest.approx(4, rel=1e-3)
    clipped = run(in_zone("clear", {"use": "analytics.clip", "records": 71}), tmp_path)
    assert found(clipped)["records"].value == 353
    answers = Answers.among(clipped.metrics)
    assert answers is not None
    assert answers.notes == [
        "analytics.clip scales the sums of a client down that has more than it allows: it then counts less"
    ]
    assert answers.notes[0] in ANSWERS.html(clipped.folder)


def test_answers_of_sums_that_a_seal_cut_off_are_withheld(tmp_path: Path) -> None:
    ran = run(in_zone("encrypted", {"use": "std.bfv", "key_holder": "key_server", "range": 8}), tmp_path)
    answers = Answers.among(ran.metrics)
    assert answers is not None
    assert "std.bfv cut values of clients off at its range" in answers.problem
    assert not any(answer.estimates for answer in answers.answers)
    assert "No answers" in ANSWERS.html(ran.folder)


@given(st.lists(st.integers(0, 2**16), min_size=1, max_size=60))
def test_a_total_is_exact_for_counts(counts: list[int]) -> None:
    mean = np.array([sum(counts)], np.float64) / len(counts)
    assert total(mean.astype(np.float32), len(counts))[0] == sum(counts)


def test_a_statistic_in_a_zone_with_noise_has_noise_and_another_none(tmp_path: Path) -> None:
    """The layers of the model are the statistics, in their order."""
    zones = {"noised": ["2_histogram.*"]}
    recipe = {
        **BASE, "negotiate_mask": {"use": "std.by_name", "zones": zones},
        "protect": {"clear": [], "noised": [CLIP, {"use": "std.gaussian", "noise_multiplier": 3}]},
    }  # fmt: skip
    numbers = found(run(recipe, tmp_path))
    assert numbers["records"].low == numbers["records"].high == 353
    share = numbers["35 to 55"]
    # The clip is to two records of all statistics together: 1 + 3 + 1 is the square of one's norm.
    assert share.high - share.value == pytest.approx(stats.norm.ppf(0.975) * 5**0.5 * 3 * 2 * 5**0.5, rel=1e-3)


def test_answers_are_of_the_clients_that_were_there(tmp_path: Path) -> None:
    trace = tmp_path / "away.csv"
    trace.write_text("round,client\n1,2\n", encoding="utf-8")
    ran = run({**BASE, "availability": {"trace": str(trace)}}, tmp_path)
    answers = Answers.among(ran.metrics)
    assert answers is not None
    assert (answers.clients, answers.of) == (4, 5)
    assert found(ran)["records"].value == 353 - 71


def test_at_sites_records_are_all_that_a_site_has(tmp_path: Path) -> None:
    """Columns are numbers there, and what a site holds out is counted too, since no other has it."""
    rng, every = np.random.default_rng(0), []
    for client, count in enumerate((20, 30, 25)):
        folder = tmp_path / "sites" / f"client-{client}"
        folder.mkdir(parents=True)
        rows = rng.normal(0, 1, (count, 2)).astype(np.float32)
        labels = np.arange(count) % 2
        parts = {"train_inputs": rows[5:], "train_labels": labels[5:], "test_inputs": rows[:5]}
        np.savez(folder / "data.npz", classes=["no", "yes"], test_labels=labels[:5], **parts)
        every.append(rows[:, 1])
    agreed = {"shape": [2], "classes": ["no", "yes"], "mean": [], "std": []}
    of = [{"statistic": "count"}, {"statistic": "mean", "column": 1, "bounds": [-5, 5]}]
    recipe = {
        **BASE, "data": {"use": "std.arrays", "at": "sites", "clients": 3, "agreed": agreed},
        "model": {"use": "analytics.statistics", "of": of},
    }  # fmt: skip
    ran = run(recipe, tmp_path, data=tmp_path / "sites")
    numbers, column = found(ran), np.concatenate(every).astype(np.float64)
    assert numbers["records"].value == len(column) == 75
    assert numbers["mean of 1"].value == pytest.approx(column.mean(), abs=1e-6)
    assert ran.metrics[-1].figures["mean of 1"] == pytest.approx(column.mean(), abs=1e-6)


def test_a_probe_of_a_client_takes_the_sums_of_its_batch() -> None:
    data = Diabetes(Diabetes.Options()).load(None)
    part = Statistics(Statistics.Options(of=OF))
    part.name = "analytics.statistics"
    batch = data.train.take(slice(8))
    held = ClientData(batch, batch, batch, np.arange(8), **data.about)
    step = part.one_batch(None, None, 8)
    assert step is not None
    assert step.local_sums(held)[0] == 8
    assert np.linalg.norm(step.local_sums(held)) <= 8 * part.record_norm(2)


def test_small_cells_are_hidden_everywhere(tmp_path: Path) -> None:
    """Also in the figures of the metrics, which compare and search show."""
    model = {"use": "analytics.statistics", "of": [{**OF[2], "edges": [15, 20, 21, 55, 85]}], "small_cells": 5}
    ran = run({**BASE, "model": model}, tmp_path)
    numbers = found(ran)
    assert numbers["20 to 21"].value is None
    assert numbers["21 to 55"].value > 100
    assert ran.metrics[-1].figures == {"numbers found": 0.0}


# -- the report, tables of runs, and the command -----------------------------------------------------------------------


def test_the_report_and_tables_of_runs_have_the_answers(plain: Any) -> None:
    page = ANSWERS.html(plain.folder)
    assert "mean of bmi" in page
    assert "Of the records of 5 of 5 clients" in page
    record = ANSWERS.record(plain.folder)
    assert record["answers"][0]["estimates"][0]["value"] == 353
    chart = ANSWERS.chart(plain.metrics)
    assert chart is not None
    assert chart.alt == "Estimates with intervals of 0.95: records by age."
    assert ">15 to 35</text>" in chart.svg
    result = fedplug_result(plain.folder)
    columns = {title: number(result) for title, number, _ in ANSWERS.columns([result])}
    mean = found(plain)["mean of bmi"]
    assert columns["± mean of bmi"] == pytest.approx((mean.high - mean.low) / 2)
    assert plain.metrics[-1].figures["mean of bmi"] == pytest.approx(mean.value, rel=1e-5)


def fedplug_result(folder: Path) -> Any:
    from fedplug_lab.records import result_of

    return result_of(folder)


def test_ask_prints_answers_and_their_cost(tmp_path: Path) -> None:
    file = tmp_path / "asked.yaml"
    file.write_text(json.dumps(BASE), encoding="utf-8")
    said = CliRunner().invoke(app, ["ask", str(file), "--output", str(tmp_path)])
    assert said.exit_code == 0
    assert "records    353  353 to 353" in said.stdout
    assert "No protection by any guarantee" in said.stdout
    said = CliRunner().invoke(app, ["ask", str(file), "--output", str(tmp_path), "--json"])
    answered = json.loads(said.stdout)
    assert (answered["schema"], answered["ok"], answered["clients"]) == ("fedplug/ask/1", True, 5)
    refused = CliRunner().invoke(app, ["ask", "fedavg", "--output", str(tmp_path)])
    assert refused.exit_code != 0
    assert "has no section answers" in str(refused.exception)


# -- wrong recipes -----------------------------------------------------------------------------------------------------


def problems(recipe: dict[str, Any]) -> str:
    with pytest.raises(RecipeError) as caught:
        fedplug.check(recipe)
    return str(caught.value)


def test_recipes_whose_sums_answer_nothing_are_refused() -> None:
    hidden = in_zone("encrypted", {"use": "std.bfv", "key_holder": "key_server", "sums_visible_to": "clients"})
    said = problems({**hidden, "aggregate": "std.mean"})
    assert "only clients read the sums that std.bfv opens" in said
    assert "it weights clients, and sums count all alike" in said
    assert "nobody makes answers of its sums" in problems({key: BASE[key] for key in BASE if key != "answers"})
    moving = {"use": "std.fedopt", "optimiser": "momentum", "beta1": 0.6, "lr": 1.5}
    moving = {**BASE, "postprocess": {"clear": [moving]}}
    assert "changes the values (Post), so that their sum answers nothing" in problems(moving)
    assert "write rounds: 1" in problems({**BASE, "rounds": 2})
    assert "the recipe asks no statistics" in problems(
        {**BASE, "model": "std.logistic", "task": "std.regression", "train": {"use": "std.sgd", "lr": 0.1}}
    )


def test_a_clip_of_what_clients_have_noised_is_refused() -> None:
    """It would shrink the sums with their noise, which intervals take for whole."""
    train = {"use": "analytics.noised", "noise_multiplier": 4}
    said = problems({**BASE, "protect": {"clear": [CLIP]}, "train": train})
    assert "analytics.clip clips behind the noise of analytics.noised, which changes its size" in said


def test_statistics_that_cannot_be_are_refused_with_their_place() -> None:
    wrong = [
        {"statistic": "mode"}, {"statistic": "mean", "column": "bmi", "bounds": [45, 15]},
        {"statistic": "histogram", "column": "age"},
        {"statistic": "t_test", "column": "bmi", "bounds": [1, 2], "groups": {"column": "sex", "values": [1]}},
    ]
    said = problems({**BASE, "model": {"use": "analytics.statistics", "of": wrong}})
    assert "each names its kind as statistic: contingency, count, " in said
    assert "[45.0, 15.0] must rise" in said
    assert "needs either edges or values" in said
    assert "groups has 1 cells, and a t test compares 2" in said
    many = {"column": "age", "edges": list(range(10_000))}
    of = [{"statistic": "kaplan_meier", "time": "age", "event": "sex", "times": [1, 2, 3, 4, 5, 6], "groups": many}]
    assert "these statistics have 129,987 sums, at most 100,000" in problems(
        {**BASE, "model": {"use": "analytics.statistics", "of": of}}
    )


def test_a_column_that_no_record_has_is_named_before_anybody_is_asked(tmp_path: Path) -> None:
    of = [{"statistic": "mean", "column": "weight", "bounds": [0, 1]}, {**OF[2], "column": "aeg"}]
    with pytest.raises(fedplug.FedplugError, match=r"no column 'weight'; the columns are age.*no column 'aeg'"):
        run({**BASE, "model": {"use": "analytics.statistics", "of": of}}, tmp_path)


def test_parts_for_sums_are_refused_where_there_are_none() -> None:
    model = {"model": "std.mlp", "task": "std.regression", "protect": {"clear": [CLIP]}}
    train = {"use": "analytics.noised", "noise_multiplier": 1}
    said = problems({key: value for key, value in {**BASE, **model, "train": train}.items() if key != "answers"})
    assert "analytics.noised is for sums of statistics" in said
    assert "analytics.clip is for sums of statistics" in said


@pytest.mark.slow
def test_sites_as_separate_programs_give_the_same_answers(tmp_path: Path) -> None:
    """Faster: `test_engines_give_equal_answers`, and `test_at_sites_records_are_all_that_a_site_has`."""
    file, program = tmp_path / "asked.yaml", [sys.executable, "-m", "fedplug"]
    file.write_text(json.dumps({**BASE, "data": {**BASE["data"], "clients": 2}}), encoding="utf-8")
    states = [tmp_path / f"srv/client-{client}" for client in range(2)]
    parties = [
        subprocess.Popen(
            [*program, "party", str(file), "--client", str(client), "--state", str(state), "--yes"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ) for client, state in enumerate(states)
    ]  # fmt: skip
    try:
        engine = ["--engine", "parties", "--parties", str(tmp_path / "srv")]
        for _ in range(20):
            time.sleep(4)
            asked = [*program, "ask", str(file), *engine, "--output", str(tmp_path / "runs"), "--json"]
            done = subprocess.run(asked, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                break
        answered = json.loads(done.stdout)
        assert answered["answers"][0]["estimates"][0]["value"] == 353
        assert answered["clients"] == 2
    finally:
        for party in parties:
            party.kill()
            party.wait()


def test_a_trainer_of_ones_own_is_named_where_intervals_rest_on_its_word(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from fedplug_analytics.local import LocalSums\n\n\n"
        "class Half(LocalSums):\n"
        '    """Send half of each sum."""\n\n'
        "    def made(self, sums, client, facts):\n"
        '        """Half."""\n'
        "        return sums / 2\n"
    )
    ran = run(BASE | {"train": f"{tmp_path / 'own.py'}:Half"}, tmp_path / "runs", trust=True)
    answers = Answers.among(ran.metrics)
    assert answers is not None
    assert answers.notes[0].endswith("and intervals go by the noise that it states")
