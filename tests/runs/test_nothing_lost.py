"""What a run has done is not lost: recordings, histories, full disks, folders that cannot be read, words of others."""

from __future__ import annotations

import errno
import json
import math
import os
import resource
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from fedplug.api.codec import encode, frame
from fedplug.api.errors import CheckpointError, SetupError
from fedplug.api.plain import json_ready, one_line
from fedplug.recipe.recipe import Recipe
from fedplug.round.checkpoint import Checkpoints
from fedplug.round.state_files import file_name
from fedplug.runs import run as run_command
from fedplug.runs.execution import Execution
from fedplug.runs.lines import START, Lines
from fedplug.runs.recording import Recording
from fedplug.runs.settings import Settings
from fedplug.wire.calls import read_reply
from fedplug.wire.record import Message, read_wire
from toy_components import UNANIMOUS, paraaegis, recipe_of, toy_catalog

ROUNDS = 4
TIMES = ("seconds", "bytes")


class Killed(BaseException):
    """What a kill looks like from inside."""


def start(folder: Path, plain: dict[str, Any] | None = None, **settings: Any) -> Path:
    catalog = toy_catalog()
    recipe = Recipe.from_plain(plain or paraaegis(rounds=ROUNDS, score_parameters=[UNANIMOUS]), catalog)
    return run_command.start(recipe, Settings(output=folder, quiet=True, **settings), catalog)[1]


def resume(folder: Path, round: int | None = None) -> int:
    return run_command.resume(folder, Settings(output=folder.parent, quiet=True), round, toy_catalog())


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


def rows_of(folder: Path, *, times: bool = False) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return rows if times else [{key: value for key, value in row.items() if key not in TIMES} for row in rows]


def histories(folder: Path) -> list[Any]:
    """What of a run folder must not depend on interruptions; rows without their times."""
    # Whoever was asked twice is noted twice, and pays once where the noise is the same.
    charges = list(dict.fromkeys((folder / "charging.jsonl").read_text().splitlines()))
    return [rows_of(folder), charges, (folder / "checkpoint/ledger.jsonl").read_bytes()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded run that nothing interrupted."""
    return start(tmp_path_factory.mktemp("whole"), record_wire=True)


# -- histories ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("owner", "method", "call", "before"),
    [
        (Lines, "append", 9, False),  # in the middle of a round
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
    assert asked == [0, 1, 2, 3, 2, 2, 3]  # whoever was asked is noted, however often


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


def test_rows_that_were_deleted_come_back(whole: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(whole, tmp_path / "run")
    (folder / "metrics.jsonl").unlink()
    assert resume(folder) == 0
    assert rows_of(folder) == rows_of(whole)


def test_lines_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    lines = Lines(tmp_path / "x.jsonl")
    lines.append({"a": 1}, {"b": math.nan})
    mark = lines.mark
    before = lines.file.read_bytes()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 5, limit[1]))  # as a disk with room for five bytes
    try:
        with pytest.raises(OSError, match=r"could not be written to its end|File too large"):
            lines.append({"long": "x" * 100})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert lines.file.read_bytes() == before
    assert lines.mark == mark
    lines.append({"c": 3})
    assert [list(record) for record in lines.read(lines.mark)] == [["a"], ["b"], ["c"]]
    lines.cut(mark)
    assert lines.file.read_bytes() == before
    lines.cut(START)
    assert lines.read(START) == []


def test_a_charge_that_was_cut_off_was_asked_of_nobody(whole: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(whole, tmp_path / "run")
    file = folder / "charging.jsonl"
    data = file.read_bytes()
    file.write_bytes(data + b'{"round": 4, "char')
    assert resume(folder) == 0
    assert file.read_bytes() == data


# -- a folder that cannot be used --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "text"), [(errno.ENOSPC, "No space left"), (errno.EROFS, "Read-only file system")])
def test_a_full_disk_says_what_is_safe_and_how_to_go_on(
    number: int, text: str, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, calls = Lines.append, []

    def full(self: Lines, *records: Any) -> None:
        calls.append(1)
        if len(calls) >= 9:
            raise OSError(number, os.strerror(number), str(self.file))
        append(self, *records)

    with monkeypatch.context() as patch:
        patch.setattr(Lines, "append", full)
        patch.setattr(Execution, "_write_results", lambda *_: (_ for _ in ()).throw(OSError(number, "no")))
        with pytest.raises(SetupError) as caught:
            start(tmp_path)
    (folder,) = tmp_path.iterdir()
    rounds = Checkpoints(folder).rounds()[-1]
    assert f"({text}" in str(caught.value)
    assert f"The first {rounds} rounds are safe in {folder / 'checkpoint'}" in str(caught.value)
    assert f"the folder {folder} writable, and go on: fedplug resume {folder}" in str(caught.value)
    assert resume(folder) == 0
    assert rows_of(folder) == rows_of(whole)


def test_a_folder_that_cannot_be_written_is_named(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(whole, tmp_path / "run")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def refuse(self: Path, *_: Any, **__: Any) -> Any:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", refuse)
        with pytest.raises(SetupError, match=r"Read-only file system.*what it holds is safe") as caught:
            resume(folder)
    assert f"fedplug resume {folder}" in str(caught.value)
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


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
    file = Checkpoints(folder).path(ROUNDS) / file_name("client:1")
    file.unlink()
    file.mkdir()
    with pytest.raises(CheckpointError, match=r"cannot be read.*go back one") as caught:
        resume(folder)
    assert f"fedplug resume {folder} --round {ROUNDS - 1}" in str(caught.value)


# -- what others say ---------------------------------------------------------------------------------------------------


def test_numbers_that_json_does_not_know() -> None:
    plain = json_ready({"loss": math.nan, "epsilon": math.inf, "deep": [(1.5, -math.inf)]})
    assert json.loads(json.dumps(plain, allow_nan=False)) == {"loss": None, "epsilon": "inf", "deep": [[1.5, "-inf"]]}


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


@pytest.mark.parametrize("text", ["\x1b[2Jgone\r\nnote: all is well\x00", "x" * 100_000, "a\u202eb\u2028c"])
def test_errors_of_clients_are_one_short_line(text: str) -> None:
    assert one_line(text).isprintable()
    assert len(one_line(text)) <= 500
    body = {"error": {"call": text, "message": text, "kind": text}, "done": 0, "saved": 0, "reports": {}}
    reply, _ = read_reply(frame(encode(body)))
    assert reply.error is not None
    for said in (reply.error.call, reply.error.kind, reply.error.message):
        assert said.isprintable()
        assert len(said) <= 500


def test_a_recorded_message_has_a_frame_of_its_own(tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    assert not recording.begun
    recording.begin(0)
    sent = [Message("server", f"client:{n}", 3, "upload", bytes(n), n, {"clear": n}) for n in range(3)]
    for message in sent:
        recording.add(message)
    recording.end_of_round(4)
    found = read_wire(tmp_path / "wire/round-0004.wire")
    assert [(m.receiver, m.data, dict(m.zones)) for m in found] == [(m.receiver, m.data, dict(m.zones)) for m in sent]
    recording.end_of_round(5)
    assert read_wire(tmp_path / "wire/round-0005.wire") == []
    recording.begin(4)
    assert sorted(path.name for path in (tmp_path / "wire").iterdir()) == ["round-0004.wire"]
