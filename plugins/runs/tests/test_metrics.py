"""The rows of a run, made from the clients' reports and the messages."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from fedplug.api.events import ReplyArrived
from fedplug.api.reports import Reports
from fedplug_runs.compared import Compared
from fedplug_runs.events import RowComplete
from fedplug_runs.metrics import means_by_name, too_large
from fedplug_runs.rows import Row
from run_toys import resume, rows_of, start
from site_toys import at_sites, write_sites
from toy_components import recipe_of, toy_catalog
from toy_protocol import build


def test_a_loss_of_nan_is_null_in_the_metrics_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = recipe_of(rounds=2)
    entry = toy_catalog().get("trainer", plain["train"]["use"])
    assert entry is not None
    trainer = entry.load()
    train = trainer.train
    monkeypatch.setattr(trainer, "train", lambda *given: {**train(*given), "loss": math.nan})
    folder = start(tmp_path, plain)
    text = (folder / "metrics.jsonl").read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    assert [row["train_loss"] for row in rows_of(folder)] == [None, None]
    assert resume(folder, 1) == 0
    assert (folder / "metrics.jsonl").read_text().count("null") == text.count("null")


def test_means_are_over_those_that_gave_a_number_in_the_order_of_names() -> None:
    found = means_by_name([{"b": 1.0, "a": 2.0}, {}, {"b": 4.0}])
    assert list(found.items()) == [("a", 2.0), ("b", 2.5)]
    assert means_by_name([]) == {}


@pytest.mark.parametrize(
    ("counts", "found"),
    [
        ([36, 36, 37, 36], []), ([0, 1, 0, 1, 0], []), ([1, 2, 2, 1], []), ([4096, 8192, 4096], []), ([5, 2**52], []),
        ([36, 36, 1e15, 36], [2]), ([36, 36, 80, 37], [2]), ([0, 1, 1e15, 1, 0], [2]), ([1, 1e15, 1], [1]), ([], []),
    ],
)  # fmt: skip
def test_a_share_of_the_test_set_that_cannot_be_one_is_found(counts: list[float], found: list[int]) -> None:
    assert too_large(dict(enumerate(counts))) == found


def test_a_client_that_claims_the_whole_test_set_does_not_count_in_the_accuracy() -> None:
    rows = []
    for lies in (False, True):
        protocol, engine, _ = build(recipe_of(rounds=1))
        metrics, notes = protocol.books.metrics, []
        protocol.events.note = notes.append  # type: ignore[method-assign]

        def lying(event: ReplyArrived, lies: bool = lies) -> None:
            if event.client_id == 1 and event.reports.evaluation and lies:
                event.reports.evaluation |= {"correct": 1e15, "count": 1e15}
                del event.reports.evaluation["by_class"]

        protocol.events.subscribe(ReplyArrived, lying, first=True)
        try:
            protocol.setup()
            protocol.run()
        finally:
            engine.close()
        rows += metrics.rows
    assert any("client 1 says that its share of the common test set has 1e+15 answers" in note for note in notes)
    assert rows[1].accuracy == pytest.approx(rows[0].accuracy, abs=0.2)
    assert rows[1].accuracy < 0.99


def test_a_row_is_made_of_what_clients_counted_and_what_the_server_logged() -> None:
    protocol, engine, _ = build(recipe_of(rounds=1))
    metrics, told = protocol.books.metrics, []
    protocol.events.subscribe(RowComplete, lambda event: told.append(event.row))
    try:
        protocol.setup()
        protocol.server.log["toy.share"] = 0.5
        protocol.run()
    finally:
        engine.close()
    (row,) = metrics.rows
    assert told == [row]
    assert metrics.awaiting is None
    assert (row.round, row.clients.asked, row.clients.answered, row.zones["clear"]) == (1, 4, 4, 1.0)
    assert row.log["toy.share"] == 0.5
    assert protocol.server.log == {}
    # Each client counts on its share of the common test set: the accuracy is a fraction of all 360 examples.
    assert row.accuracy is not None
    assert row.accuracy * 360 == pytest.approx(round(row.accuracy * 360), abs=1e-6)
    assert set(row.client_accuracy) == {0, 1, 2, 3}


def test_a_client_that_lies_of_sums_it_could_not_open_writes_no_warning() -> None:
    """No round was repeated, no zone is sealed, and there is no zone of the other name."""
    protocol, engine, _ = build(recipe_of(rounds=2))
    lie = Reports(unopened={"forged": "is a [red]lie[/]"}, opened_before={"clear": [0, 1], "forged": [0]})
    protocol.events.subscribe(RowComplete, lambda event: seen.append(event.row))
    seen: list[Row] = []
    honest = protocol.round

    def lying(round: int) -> None:
        protocol.events.tell(ReplyArrived(round, "upload", 1, lie, 1, 4))
        honest(round)

    protocol.round = lying  # type: ignore[method-assign]
    try:
        protocol.setup()
        protocol.run()
    finally:
        engine.close()
    assert not any(row.unopened for row in seen)
    assert protocol.ledger.unopened == []
    assert not any("repeated" in warning for warning in protocol.ledger.report().warnings)


def test_an_evaluation_that_cannot_be_costs_its_client_the_figures_and_nothing_else() -> None:
    protocol, engine, _ = build(recipe_of(rounds=1))
    notes: list[str] = []
    protocol.events.note = notes.append  # type: ignore[method-assign]

    def lying(event: ReplyArrived) -> None:
        if event.client_id == 1 and (found := event.reports.evaluation):
            found |= {"correct": found["count"] + 1}

    protocol.events.subscribe(ReplyArrived, lying, first=True)
    try:
        protocol.setup()
        protocol.run()
    finally:
        engine.close()
    (row,) = protocol.books.metrics.rows
    assert 1 not in row.client_accuracy
    assert row.client_accuracy, "of the others"
    assert [note for note in notes if note.startswith("client 1 reports what cannot be, and it does not count: ")]


def test_an_evaluation_that_cannot_be_hides_no_comparison() -> None:
    compared = Compared(1, {"noised": 4}, {"noised": 4})
    protocol, engine, _ = build(recipe_of(rounds=1))
    notes: list[str] = []
    protocol.events.note = notes.append  # type: ignore[method-assign]
    engine.close()
    report = Reports(evaluation={"count": "many"}, compared=compared.to_plain())
    protocol.events.tell(ReplyArrived(0, "upload", 1, report, 1, 4))
    assert notes
    assert protocol.books.metrics._looked == [compared]


def test_a_site_cannot_make_itself_count_for_more(tmp_path: Path) -> None:
    rows = []
    for lies in (False, True):
        protocol, engine, _ = build(at_sites(rounds=1), data_root=str(write_sites(tmp_path)))

        def lying(event: ReplyArrived, lies: bool = lies) -> None:
            if event.client_id == 1 and (found := event.reports.evaluation) and lies:
                found |= {"correct": found["correct"] * 1e9, "count": 1e9, "loss": found["loss"] * 1e9}

        protocol.events.subscribe(ReplyArrived, lying, first=True)
        try:
            protocol.setup()
            protocol.run()
        finally:
            engine.close()
        rows += protocol.books.metrics.rows
    assert rows[1].accuracy == pytest.approx(rows[0].accuracy)
    assert rows[1].loss == pytest.approx(rows[0].loss)
