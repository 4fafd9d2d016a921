"""Records as plain data: they come back unchanged, and a damaged one is refused by file, line and field."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
from fedplug.api.errors import CheckpointError
from fedplug.api.reports import Reports
from fedplug_runs.compared import Compared
from fedplug_runs.folder import read_rows
from fedplug_runs.rows import GroupResult, Row, Sent, Traffic, Unopened
from row_toys import a_row


def test_every_field_comes_back() -> None:
    row = dataclasses.replace(
        a_row(3), figures={"Dice": 0.5}, epsilon=math.inf, epsilon_prices="noised", level_epsilons={"record": 2.0},
        view_epsilons={"client": 1.5}, unprotected=["server"], cpu_seconds=1.5,
        groups={"a": GroupResult(0.5, 1.0)}, group_members={"a": [0, 1]}, personal_accuracy={0: 0.25, 11: 0.75},
        personal_public_accuracy={0: 1.0}, client_leading={0: 1.0}, personal_leading={0: 1.0},
        personal_public_leading={0: 1.0}, tuned={0: 1.0}, tuned_public={0: 1.0}, clusters={"a": 1.0},
        unopened=[Unopened("noised", "why", [1])], sealed=["encrypted"], added={"x": {"y": [1]}},
        simulated_seconds=1.0, skipped="why", recalls={"a": 0.5}, guess={"accuracy": 0.5},
        compared=Compared(2, {"noised": 5}, {"noised": 1}),
    )  # fmt: skip
    row.clients.dropped[11] = "late"
    empty = [field.name for field in dataclasses.fields(row) if not getattr(row, field.name)]
    assert empty == [], "the example leaves nothing out"
    assert Row.from_json(row.to_json()) == row


def test_a_diverged_round_is_written_as_json_that_every_program_reads() -> None:
    row = a_row(1, loss=math.nan, epsilon=math.inf, log={"x": -math.inf})
    line = row.to_json()
    assert json.loads(line, parse_constant=pytest.fail)["log"] == {"x": "-inf"}
    again = Row.from_json(line)
    assert (again.epsilon, again.log) == (math.inf, {"x": -math.inf})
    assert json.loads(line)["loss"] is None
    assert again.loss is not None
    assert math.isnan(again.loss), "a round with an accuracy has a loss: null means NaN"


def test_what_is_empty_and_has_a_default_is_not_written() -> None:
    plain = a_row(1).to_plain()
    assert {"figures", "groups", "simulated_seconds", "added", "level_epsilons", "unprotected"}.isdisjoint(plain)
    assert plain["mask_churn"] is None, "a field that every round has is written, whatever it holds"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"round": "one"}, "round is 'one': input should be a valid integer"),
        ({"round": -1}, "round is -1: input should be greater than or equal to 0"),
        ({"accuracy": "0.5"}, "accuracy is '0.5': input should be a valid number"),
        ({"accuracy": True}, "accuracy is True: "),
        ({"clients": {"asked": 3}}, r"clients\.answered: field required"),
        ({"clients": {"asked": 3, "answered": 2.5}}, r"clients\.answered is 2\.5: "),
        ({"client_accuracy": {"0": "x"}}, r"client_accuracy\.0 is 'x': "),
        ({"client_accuracy": {"x": 0.5}}, r"client_accuracy\.x\.\[key\] is 'x': "),
        ({"bytes": {"up": 5}}, r"bytes\.up is 5: "),
        ({"acuracy": 0.5}, "acuracy is 0.5: unexpected keyword argument"),
        (None, "it is a list: "),
    ],
)
def test_a_damaged_line_is_named_with_its_field(changes: Any, problem: str, tmp_path: Path) -> None:
    good = a_row(1).to_plain()
    damaged = [] if changes is None else {**good, **changes}
    (tmp_path / "metrics.jsonl").write_text(f"{json.dumps(good)}\n{json.dumps(damaged)}\n")
    with pytest.raises(CheckpointError, match=rf"metrics\.jsonl, line 2, is damaged \({problem}.* fedplug resume"):
        read_rows(tmp_path)


def test_reports_hold_numbers_that_the_server_can_compute_with() -> None:
    whole = Reports(0.5, {"train": 0.25}, {"loss": math.nan}, {"clear": 1.0}, 0.0, {"a.b": 3.0},
                    {"correct": 5.0, "task": {"hits": 2.0}})  # fmt: skip
    again = Reports.from_plain(whole.to_plain())
    assert math.isnan(again.train.pop("loss"))
    del whole.train["loss"]
    assert again == whole
    for plain, problem in (
        ({"train": {"loss": 10**400}}, "train.loss is a whole number of 1329 bits: "),
        ({"opened_before": {"clear": [-1]}}, "opened_before.clear.0 is -1: "),
        ({"surprise": 1}, "surprise is 1: unexpected keyword argument"),
    ):
        with pytest.raises(ValueError, match=problem):
            Reports.from_plain(plain)


def test_bytes_add_up() -> None:
    one, other = (Traffic(Sent(), Sent(), Sent()) for _ in range(2))
    one.up.count(5, "clear", "upload")
    one.up.count(2, "other", "upload")
    other.up.count(3, "clear", "finish")
    other.key_server.count(7, "other", "open")
    both = one + other
    assert both.up == Sent(10, {"clear": 8, "other": 2}, {"upload": 7, "finish": 3})
    assert (both.down.total, both.key_server.total) == (0, 7)
    assert one.up.total == 7, "the sum is new"
