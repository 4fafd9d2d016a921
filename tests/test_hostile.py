"""A few hostile frames and run folders; `benchmarks/fuzz.py` has the long versions."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fedplug
import pytest
from cli_calls import call
from examples import examples
from fedplug.api import codec
from fedplug.wire.calls import read_reply
from fedplug_runs.wire_record import read_wire
from scripts import script

hostile = script(Path(__file__).parents[1] / "benchmarks/hostile.py")

RECIPE: dict[str, Any] = {
    "name": "given",
    "seed": 1,
    "rounds": 2,
    "data": {"use": "std.digits", "clients": 3, "train_size": 60, "test_size": 20, "partition": {"use": "std.iid"}},
    "model": {"use": "std.mlp", "hidden": [4]},
    "train": {"use": "std.sgd", "epochs": 1},
    "negotiate_mask": {"use": "std.single_zone", "zone": "noised"},
    "protect": {"noised": [{"use": "std.clip", "norm": 1.0}, {"use": "std.gaussian", "noise_multiplier": 2.0}]},
    "aggregate": {"use": "std.mean", "weighting": "uniform"},
    "attack": {"attacks": ["attacks.ilrg"], "adversaries": ["server"], "rounds": [1]},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded run, with its attack."""
    return fedplug.run(RECIPE, output=tmp_path_factory.mktemp("made"), record_wire=True, quiet=True).folder


@pytest.fixture(scope="module")
def honest(made: Path) -> list[bytes]:
    return [message.data for file in sorted(made.glob("wire/*.wire")) for message in read_wire(file)]


def test_any_frame_is_read_or_refused(honest: list[bytes]) -> None:
    readers = {"decode": lambda data: codec.decode(codec.unframe(data)), "reply": read_reply}
    kinds = set()
    for seed in range(examples(400)):
        kind, data = hostile.hostile_frame(honest, random.Random(seed))
        kinds.add(kind)
        assert hostile.frame_problem(data, readers) == "", (seed, kind)
    assert len(kinds) == 9


def test_a_reader_that_stumbles_or_is_busy_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostile, "SECONDS", 0.05)
    assert hostile.frame_problem(b"", {"bad": lambda data: data[0]}) == "bad: IndexError: index out of range"
    assert "busy: 0." in hostile.frame_problem(b"abc", {"busy": lambda data: sum(range(10_000_000))})


def test_a_hostile_run_folder_gives_a_sentence(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    outside, run = tmp_path / "outside", tmp_path / "given" / "run"
    outside.mkdir()
    (outside / "precious").write_text("mine")
    for seed in range(examples(20)):
        shutil.copytree(made, run)
        said = hostile.make_hostile(run, outside, random.Random(seed))
        commands: dict[str, Callable[[], int]] = {
            "report": lambda: call(monkeypatch, "report", str(run)),
            "compare": lambda: call(monkeypatch, "compare", str(run), str(made), "--output", "compared"),
            "attack": lambda: call(monkeypatch, "attack", str(run), "-q"),
            "resume": lambda: call(monkeypatch, "resume", str(run), "--round", "1", "-q"),
        }
        assert list(hostile.folder_problems(run, outside, commands)) == [], (seed, said)
        shutil.rmtree(run)


def test_what_goes_wrong_with_a_folder_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostile, "PATIENCE", 4)

    def writes() -> int:
        (tmp_path / "precious").write_text("theirs")
        return 0

    def prints() -> int:
        print("Traceback (most recent call last)")
        return 1

    def hangs() -> int:
        try:
            time.sleep(600)
        except OSError:
            return 1
        return 0

    commands = {"raises": lambda: 1 // 0, "writes": writes, "prints": prints, "silent": lambda: 1, "hangs": hangs}
    said = list(hostile.folder_problems(tmp_path, tmp_path, commands))
    assert [line.split(":")[0] for line in said] == ["raises", "writes", "prints", "silent", "hangs"]
    assert "ZeroDivisionError" in said[0]
    assert "wrote outside" in said[1]
    assert "a traceback" in said[2]
    assert "without a word" in said[3]
    assert "TookTooLong" in said[4]


@pytest.mark.parametrize("text", ["[" * 100_000, "null", "[]", '{"name": NaN}', "", '{"a":' * 100_000, "1e400"])
def test_a_summary_that_is_none_is_refused_by_whoever_reads_it(
    text: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(made, tmp_path / "run"))
    (run / "summary.json").write_text(text)
    for words in (["report", str(run)], ["compare", str(run), str(made), "--output", str(tmp_path / "out")]):
        assert call(monkeypatch, *words) == 1
        said = capsys.readouterr().err
        assert f"{run / 'summary.json'} is damaged" in said
        assert "Traceback" not in said
