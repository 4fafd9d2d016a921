"""The recordings and histories in a run folder, which no interruption changes."""

from __future__ import annotations

import json
import math
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedplug.api.errors import CheckpointError, SetupError
from fedplug.wire.post_office import PostOffice
from fedplug_runs.archive import Archive, Bookkeeping, Charges, Lines, Recording
from fedplug_runs.checkpoint import Checkpoints
from fedplug_runs.rows import Row
from fedplug_runs.wire_record import read_wire
from run_toys import ROUNDS, resume, rows_of, start
from toy_components import recipe_of


class Killed(BaseException):
    """Represents a kill inside the process."""


def kill_at(monkeypatch: pytest.MonkeyPatch, owner: type, method: str, call: int, before: bool = True) -> None:
    """Ends the run at a call of a method, before or after it is done."""
    run, calls = getattr(owner, method), []

    def counted(self: Any, *arguments: Any, **named: Any) -> Any:
        calls.append(1)
        if before and len(calls) == call:
            raise Killed
        found = run(self, *arguments, **named)
        if len(calls) == call:
            raise Killed
        return found

    monkeypatch.setattr(owner, method, counted)


def histories(folder: Path) -> list[Any]:
    """The parts of a run folder that must not depend on interruptions. Rows are without their times."""
    # A client that was asked twice is noted twice, and pays once where the noise is the same.
    charges = list(dict.fromkeys((folder / "charging.jsonl").read_text().splitlines()))
    return [rows_of(folder), charges, (folder / "checkpoint/ledger.jsonl").read_bytes()]


@pytest.mark.parametrize(
    ("owner", "method", "call", "before"),
    [
        (Charges, "note", 3, False),  # in the middle of a round
        (Lines, "append", 5, False),  # the row is there, the entry of the ledger is not
        (Recording, "end_of_round", 3, False),  # messages are there, the checkpoint is not
        (Checkpoints, "write", 4, True),
        (Checkpoints, "write", 3, False),
    ],
)
def test_a_recorded_run_resumes_as_one_with_the_same_histories(
    owner: type, method: str, call: int, before: bool, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        kill_at(patch, owner, method, call, before)
        with pytest.raises(Killed):
            start(tmp_path, record_wire=True)
    (folder,) = tmp_path.iterdir()
    for round in Checkpoints(folder).rounds():  # never one without the other
        assert (folder / "wire" / f"round-{round:04d}.wire").is_file()
    assert resume(folder) == 0
    assert histories(folder) == histories(whole)
    assert Checkpoints(folder).rounds() == list(range(ROUNDS + 1))
    files = [sorted(path.name for path in (run / "wire").iterdir()) for run in (folder, whole)]
    assert files[0] == files[1] == [f"round-{round:04d}.wire" for round in range(ROUNDS + 2)]
    for name in files[0]:
        ours, theirs = ([(m.sender, m.receiver, m.round, m.phase) for m in read_wire(run / "wire" / name)]
                        for run in (folder, whole))  # fmt: skip
        assert ours == theirs


def test_going_back_cuts_the_histories_and_a_kill_after_that_goes_on_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = start(tmp_path, recipe_of(rounds=ROUNDS), record_wire=True)
    rows, log = rows_of(folder), (folder / "checkpoint/ledger.jsonl").read_bytes()
    with monkeypatch.context() as patch:
        kill_at(patch, Recording, "end_of_round", 1)
        with pytest.raises(Killed):
            resume(folder, 2)
    assert Checkpoints(folder).rounds() == [0, 1, 2]
    assert not (folder / "wire" / "round-0003.wire").exists()
    assert resume(folder) == 0
    assert rows_of(folder) == rows
    kept = (folder / "checkpoint/ledger.jsonl").read_text().splitlines()
    assert kept[:2] == log.decode().splitlines()[:2]
    asked = [json.loads(line)["round"] for line in (folder / "charging.jsonl").read_text().splitlines()]
    assert asked == [0, 1, 2, 3, 2, 2, 3]  # every request to a client is noted


def test_a_checkpoint_holds_no_history(tmp_path: Path) -> None:
    folder = start(tmp_path, recipe_of(rounds=12), record_wire=True)
    sizes = [(Checkpoints(folder).path(round) / "server.state").stat().st_size for round in (2, 12)]
    assert abs(sizes[1] - sizes[0]) < 60  # numbers with another digit


@pytest.mark.parametrize("name", ["rows.jsonl", "ledger.jsonl"])
def test_a_history_that_was_altered_is_refused_with_what_to_do(name: str, whole: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(whole, tmp_path / "run")
    file = folder / "checkpoint" / name
    data = file.read_bytes()
    for damaged in (data[:-9], data.replace(b"1", b"2", 1)):
        file.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=f"{name} is damaged.*go back one: fedplug resume") as caught:
            resume(folder)
        assert str(file) in str(caught.value)
    file.unlink()
    with pytest.raises(CheckpointError, match=name):
        resume(folder)
    assert file.parent.stat().st_mode & 0o077 == 0
    assert (whole / "checkpoint" / name).stat().st_mode & 0o777 == 0o600


def test_a_loss_that_diverged_is_one_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None would mean that no client evaluated, or that the trainer has no loss."""
    honest, seen = Archive.add_row, []

    def diverged(self: Archive, row: Row) -> None:
        row.loss = row.train_loss = math.nan
        row.log["infinite"] = math.inf
        honest(self, row)

    with monkeypatch.context() as patch:
        patch.setattr(Archive, "add_row", diverged)
        kill_at(patch, Checkpoints, "write", 4)
        with pytest.raises(Killed):
            start(tmp_path)
    monkeypatch.setattr(Bookkeeping, "restore", lambda books, state, rows, log: seen.extend(rows) or stop())
    (folder,) = tmp_path.iterdir()
    with pytest.raises(Killed):
        resume(folder)
    assert seen
    assert all(math.isnan(row.loss) and math.isnan(row.train_loss) for row in seen)
    assert all(row.log["infinite"] == math.inf for row in seen)


def stop() -> None:
    raise Killed


def test_rows_that_were_deleted_come_back(whole: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(whole, tmp_path / "run")
    (folder / "metrics.jsonl").unlink()
    assert resume(folder) == 0
    assert rows_of(folder) == rows_of(whole)


def test_checkpoints_that_cannot_be_read_do_not_begin_the_run_anew(whole: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(whole, tmp_path / "run")
    rows = rows_of(folder)
    shutil.move(folder / "checkpoint", tmp_path / "elsewhere")
    (folder / "checkpoint").write_text("a file, so that nothing can be listed")
    with pytest.raises(CheckpointError, match=r"cannot be read.*nothing in it was touched") as caught:
        resume(folder)
    assert f"{folder / 'checkpoint'}" in str(caught.value)
    assert f"fedplug resume {folder}" in str(caught.value)
    assert rows_of(folder) == rows


def test_a_state_file_that_cannot_be_read_is_named_with_a_remedy(whole: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(whole, tmp_path / "run")
    file = Checkpoints(folder).path(ROUNDS) / "clients-0.state"
    file.unlink()
    file.mkdir()
    with pytest.raises(CheckpointError, match=r"cannot be read.*go back one") as caught:
        resume(folder)
    assert f"fedplug resume {folder} --round {ROUNDS - 1}" in str(caught.value)


def test_a_request_is_on_the_disk_before_anybody_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the order of the calls: written and synced, line by line, and then the messages that ask for uploads."""
    happened: list[str] = []
    exchange, sync = PostOffice._exchange, os.fsync

    def syncs(handle: int) -> None:
        sync(handle)
        if (path := Path(os.readlink(f"/proc/self/fd/{handle}"))).name == "charging.jsonl":
            happened.append(f"synced {len(path.read_text().splitlines())}")

    def asks(office: PostOffice, *arguments: Any) -> Any:
        if office.phase == "upload":
            happened.append(f"asked for round {office.round + 1}")
        return exchange(office, *arguments)

    monkeypatch.setattr(os, "fsync", syncs)
    monkeypatch.setattr(PostOffice, "_exchange", asks)
    folder = start(tmp_path)
    assert len((folder / "charging.jsonl").read_text().splitlines()) == ROUNDS
    assert happened[:2] == ["synced 1", "asked for round 1"]
    seen = 0
    for what, number in (line.rsplit(" ", 1) for line in happened):
        if what == "synced":
            seen = int(number)
        else:
            assert seen >= int(number), happened
    assert seen == ROUNDS


def test_nobody_is_asked_where_a_request_cannot_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    exchange = PostOffice._exchange

    def asks(office: PostOffice, *arguments: Any) -> Any:
        asked.append(office.phase == "upload")
        return exchange(office, *arguments)

    def fails(handle: int) -> None:
        if Path(os.readlink(f"/proc/self/fd/{handle}")).name == "charging.jsonl":  # and not where ballots are noted
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(PostOffice, "_exchange", asks)
    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(SetupError, match="Input/output error"):
        start(tmp_path)
    assert not any(asked)


def test_a_file_of_data_that_has_changed_is_no_reason_to_go_on(tmp_path: Path) -> None:
    """Its rows in another order would give one client's examples to another."""
    rng = np.random.default_rng(0)
    inputs, labels = rng.random((60, 1, 4, 4), np.float32), np.arange(60) % 2
    test = {"test_inputs": inputs[:20], "test_labels": labels[:20]}
    np.savez(tmp_path / "d.npz", train_inputs=inputs, train_labels=labels, **test)
    data = {"use": "std.arrays", "file": "d.npz", "classes": ["a", "b"], "clients": 2, "partition": "std.iid"}
    folder = start(tmp_path / "runs", recipe_of(rounds=1, data=data), data=tmp_path)
    assert resume(folder, 0, data=tmp_path) == 0
    np.savez(tmp_path / "d.npz", train_inputs=inputs[::-1], train_labels=labels[::-1], **test)
    with pytest.raises(CheckpointError, match="with other training examples, or another split, than"):
        resume(folder, 0, data=tmp_path)
