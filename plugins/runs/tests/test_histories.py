"""Files of a run that only grow: JSON lines, the charges for each upload, and messages as they crossed the wire."""

from __future__ import annotations

import math
import resource
import shutil
import signal
from pathlib import Path

import pytest
from charge_toys import noised, paid
from fedplug.api.errors import CheckpointError
from fedplug.recipe.recipe import Recipe
from fedplug_runs import execution
from fedplug_runs.archive import START, Lines, Recording
from fedplug_runs.settings import Settings
from fedplug_runs.wire_record import Message, read_wire
from run_toys import resume
from toy_components import toy_catalog


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


def test_a_recorded_message_has_its_own_frame(tmp_path: Path) -> None:
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


def test_a_charge_that_was_cut_off_was_asked_of_nobody(whole: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(whole, tmp_path / "run")
    file = folder / "charging.jsonl"
    data = file.read_bytes()
    file.write_bytes(data + b'{"round": 4, "char')
    assert resume(folder) == 0
    assert file.read_bytes() == data


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run with secret noise."""
    catalog, settings = toy_catalog(), Settings(output=tmp_path_factory.mktemp("noisy"), quiet=True)
    return execution.start(Recipe.from_plain(noised(), catalog), settings, catalog)[1]


@pytest.mark.parametrize("left", [None, 0, 3])
def test_a_missing_or_shortened_charging_file_is_refused(left: int | None, noisy: Path, tmp_path: Path) -> None:
    """Also when going back to a checkpoint that is as old as the file is short."""
    folder = shutil.copytree(noisy, tmp_path / "run")
    file = folder / "charging.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    before = (folder / "ledger.json").read_bytes()
    file.unlink()
    if left is not None:
        file.write_text("".join(lines[:left]))
    found = "is missing" if left is None else f"has {left} lines"
    for round in (3, None):
        with pytest.raises(CheckpointError) as caught:
            execution.resume(folder, Settings(output=tmp_path, quiet=True), round, toy_catalog())
        assert f"{file} {found}, but the checkpoint after round" in str(caught.value)
        assert f"fedplug run {folder / 'recipe.yaml'}" in str(caught.value)
    assert (folder / "ledger.json").read_bytes() == before


@pytest.mark.parametrize("line", ["{nonsense", '{"round": 1}', '{"round": "1", "charged": [0]}', "[]", "\x00"])
def test_a_damaged_charging_file_is_refused_with_its_line(line: str, noisy: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(noisy, tmp_path / "run")
    file = folder / "charging.jsonl"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([lines[0], line, *lines[2:]]) + "\n")
    with pytest.raises(CheckpointError) as caught:
        execution.resume(folder, Settings(output=tmp_path, quiet=True), 3, toy_catalog())
    assert f"{file}, line 2, is damaged" in str(caught.value)
    assert f"fedplug run {folder / 'recipe.yaml'}" in str(caught.value)


def test_uploads_are_paid_for_even_when_every_checkpoint_is_gone(noisy: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(noisy, tmp_path / "run")
    shutil.rmtree(folder / "checkpoint")
    assert execution.resume(folder, Settings(output=tmp_path, quiet=True), catalog=toy_catalog()) == 0
    assert paid(folder) == [1, 1, 2, 2, 3, 3, 4, 4]
