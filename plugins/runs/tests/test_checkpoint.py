"""Checkpoints: complete or absent, refused when damaged, and a resumed run equals an uninterrupted one."""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from charge_toys import Killed
from fedplug.api import codec
from fedplug.api.errors import CheckpointError, TooFewClients
from fedplug.engines.base import Engine
from fedplug.recipe.recipe import Recipe
from fedplug_runs import execution
from fedplug_runs.checkpoint import Checkpoints, read_file, states_in, write_file, write_states
from fedplug_runs.rows import Row, Sent, Traffic
from fedplug_runs.settings import Settings
from toy_components import UNANIMOUS, paraaegis, recipe_of, toy_catalog
from toy_protocol import Watched, build, read_saved


class Nobody:
    """An engine whose parties write one file each."""

    def save(self, folder: Path) -> None:
        for number in range(2):
            write_file(folder / f"client-{number}.state", b"x" * 100)

    def saved(self, folder: Path) -> None:
        assert (folder / "server.state").is_file()


def written(folder: Path, rounds: int = 3) -> Checkpoints:
    checkpoints = Checkpoints(folder)
    for round in range(rounds):
        checkpoints.write(round, {"round": round}, Nobody())  # type: ignore[arg-type]
    return checkpoints


# -- the files ---------------------------------------------------------------------------------------------------------


def test_what_was_written_is_read_and_the_last_two_are_kept(tmp_path: Path) -> None:
    checkpoints = written(tmp_path, 4)
    assert checkpoints.rounds() == [2, 3]
    assert checkpoints.read() == (3, {"round": 3}, tmp_path / "checkpoint" / "round-0003")
    assert checkpoints.read(2) == (2, {"round": 2}, tmp_path / "checkpoint" / "round-0002")
    assert Checkpoints(tmp_path / "new").read() is None
    with pytest.raises(CheckpointError, match=r"no checkpoint of round 1; it has \[2, 3\]"):
        checkpoints.read(1)


def test_a_draft_left_by_a_kill_is_no_checkpoint(tmp_path: Path) -> None:
    checkpoints = written(tmp_path)
    draft = tmp_path / "checkpoint" / "round-0003.tmp"
    shutil.copytree(checkpoints.path(2), draft)
    (draft / "server.state").unlink()
    assert checkpoints.rounds() == [1, 2]
    assert checkpoints.read() == (2, {"round": 2}, checkpoints.path(2))
    (draft / "leftover").write_text("x")
    checkpoints.write(3, {"round": 3}, Nobody())  # type: ignore[arg-type]
    assert not draft.exists()
    assert not (checkpoints.path(3) / "leftover").exists()


def test_a_checkpoint_is_never_there_in_part(tmp_path: Path) -> None:
    class Dies(Nobody):
        def save(self, folder: Path) -> None:
            super().save(folder)
            raise KeyboardInterrupt

    checkpoints = written(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        checkpoints.write(3, {"round": 3}, Dies())  # type: ignore[arg-type]
    assert checkpoints.read() == (2, {"round": 2}, checkpoints.path(2))


def test_a_round_that_is_run_again_replaces_its_checkpoint(tmp_path: Path) -> None:
    checkpoints = written(tmp_path)
    checkpoints.write(2, {"again": True}, Nobody())  # type: ignore[arg-type]
    assert checkpoints.read() == (2, {"again": True}, checkpoints.path(2))
    assert checkpoints.rounds() == [1, 2]
    assert sorted(path.name for path in (tmp_path / "checkpoint").iterdir()) == ["round-0001", "round-0002"]


DAMAGES: dict[str, Any] = {
    "truncated": lambda data: data[:-3],
    "empty": lambda data: b"",
    "altered": lambda data: data[:18] + bytes([data[18] ^ 4]) + data[19:],
    "nonsense": lambda data: b"not a checkpoint",
}


@pytest.mark.parametrize("damage", [*DAMAGES, "missing"])
def test_a_damaged_server_file_is_refused_with_the_file_and_a_remedy(damage: str, tmp_path: Path) -> None:
    checkpoints = written(tmp_path)
    file = checkpoints.path(2) / "server.state"
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(DAMAGES[damage](file.read_bytes()))
    with pytest.raises(CheckpointError) as caught:
        checkpoints.read()
    assert str(file) in str(caught.value)
    assert f"go back one: fedplug resume {tmp_path} --round 1" in str(caught.value)
    assert checkpoints.read(1) == (1, {"round": 1}, checkpoints.path(1))
    shutil.rmtree(checkpoints.path(1))
    with pytest.raises(CheckpointError, match="there is no earlier one; run the recipe again: fedplug run"):
        checkpoints.read()
    assert "sent again" not in str(caught.value)  # these are files, not messages


def test_the_remedy_names_only_checkpoints_that_are_whole(tmp_path: Path) -> None:
    checkpoints = written(tmp_path)
    assert checkpoints.rounds() == [1, 2]
    (checkpoints.path(1) / "server.state").write_bytes(b"x")
    later = f"there is no earlier one that is whole; go on from a later one: fedplug resume {tmp_path} --round 2"
    with pytest.raises(CheckpointError) as caught:
        checkpoints.read(1)
    assert later in str(caught.value)
    shutil.copytree(checkpoints.path(2), checkpoints.path(0))
    resume = f"fedplug resume {tmp_path} --round"
    assert checkpoints.remedy(1) == f"go back one: {resume} 0, or go on from a later one: {resume} 2"
    for round in (0, 2):
        (checkpoints.path(round) / "client-1.state").write_bytes(b"x")
    assert checkpoints.remedy(1).startswith("no other one is whole; run the recipe again: fedplug run")


def test_a_server_file_of_something_else_says_so(tmp_path: Path) -> None:
    checkpoints = written(tmp_path)
    write_file(checkpoints.path(2) / "server.state", b"\xc1")
    with pytest.raises(CheckpointError, match=r"server\.state holds no server's state; go back one"):
        checkpoints.read()


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    write_file(tmp_path / "x.state", b"secret")
    assert (tmp_path / "x.state").stat().st_mode & 0o777 == 0o600
    assert read_file(tmp_path / "x.state") == b"secret"


# -- runs --------------------------------------------------------------------------------------------------------------


class Stopped(Exception):
    """Ends a run as if by a power cut."""


def stop_after(protocol: Watched, engine: Engine, folder: Path, rounds: int) -> None:
    """Sets up and runs, writes a checkpoint before round 1 and after every round, and stops after some."""
    checkpoints = Checkpoints(folder)

    def on_round(done: int) -> None:
        checkpoints.write(done, protocol.state(), engine)
        if done == rounds:
            raise Stopped

    protocol.after_each_round(on_round)
    protocol.setup()
    on_round(0)
    protocol.run()


def models(engine: Engine, folder: Path) -> dict[int, Any]:
    folder.mkdir()
    engine.save(folder)
    return read_saved(folder)[0]


PLAINS = {
    "paraaegis": paraaegis(rounds=4, decay=0.9, score_parameters=[UNANIMOUS]),
    "key server": paraaegis(
        rounds=4, seal={"use": "std.bfv", "key_holder": "key_server"}, score_parameters=[UNANIMOUS]
    ),
    "drop-outs": paraaegis(
        rounds=4,
        score_parameters=[UNANIMOUS, {"use": "toy.fail", "clients": [2], "rounds": [1, 3]}],
    ),
    "sampled": paraaegis(
        rounds=4, sampling={"scheme": "fixed", "rate": 0.5, "source": "reproducible"}, score_parameters=[UNANIMOUS]
    ),
    "groups": recipe_of(rounds=4, negotiate_mask={"use": "toy.groups"}),
    "batch norm": recipe_of(rounds=4, model={"use": "std.cnn", "hidden": 4}),
}


def without_times(rows: list[Row]) -> list[Row]:
    """Rows without values that differ between runs: seconds, and bytes of ciphertexts under other keys."""
    nothing = Traffic(Sent(), Sent(), Sent())
    return [dataclasses.replace(row, seconds={}, wall_seconds=0.0, cpu_seconds=0.0, bytes=nothing) for row in rows]


@pytest.mark.parametrize("case", PLAINS)
def test_a_resumed_run_equals_an_uninterrupted_one(case: str, tmp_path: Path) -> None:
    """Spec 40, second half: bit for bit, with BFV and reproducible noise, including the ledger."""
    plain = {**PLAINS[case], "data": {**PLAINS[case]["data"], "train_size": 200, "test_size": 50}}
    whole, engine, _ = build(plain)
    whole.setup()
    whole.run()
    expected = models(engine, tmp_path / "whole")

    for stop in (0, 3) if case == "paraaegis" else (2,):
        run = tmp_path / f"stopped-{stop}"
        first, engine, _ = build(plain)
        with pytest.raises(Stopped):
            stop_after(first, engine, run, stop)
        second, engine, watch = build(plain)
        found = Checkpoints(run).read()
        assert found is not None
        done, state, folder = found
        assert done == stop
        engine.load(folder)
        second.restore(state)
        second.run(done)
        resumed = models(engine, tmp_path / f"resumed-{stop}")
        assert list(resumed) == list(expected)
        assert all(np.array_equal(resumed[c], expected[c]) for c in expected)
        assert without_times(second.rows) == without_times(whole.rows)
        assert second.ledger.log == whole.ledger.log
        assert not any("different models" in note for note in watch.notes)


def test_a_model_of_zeros_and_a_plan_of_zeros_are_not_confused(tmp_path: Path) -> None:
    """Equal arrays are stored once, but labels of 0 and weights of 0.0 differ."""
    plain = recipe_of("encrypted", [{"use": "std.bfv"}], rounds=1)
    protocol, engine, _ = build(plain)
    protocol.setup()
    client = engine._hosts["client:0"].clients["client:0"]  # type: ignore[attr-defined]
    protocol.run()
    client.vector = np.zeros(650, np.float32)
    assert not client.plan.labels.any()
    assert models(engine, tmp_path / "a")[0].dtype == np.float32
    engine.load(tmp_path / "a")
    assert client.vector.dtype == np.float32
    assert client.plan.labels.dtype == np.uint8


# -- through the run folder --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run."""
    catalog, settings = toy_catalog(), Settings(output=tmp_path_factory.mktemp("runs"), quiet=True)
    recipe = Recipe.from_plain(paraaegis(score_parameters=[UNANIMOUS]), catalog)
    code, folder = execution.start(recipe, settings, catalog)
    assert code == 0
    return folder


@pytest.fixture
def finished(reference: Path, tmp_path: Path) -> tuple[Path, Settings]:
    """A copy of it to damage, and settings to resume it with."""
    return shutil.copytree(reference, tmp_path / "run"), Settings(output=tmp_path, quiet=True)


@pytest.mark.parametrize("damage", ["truncated", "altered", "missing"])
@pytest.mark.parametrize("file", ["clients-0.state", "client-0-array-0.state"])
def test_a_damaged_client_file_is_refused_with_the_file_and_a_remedy(
    file: str, damage: str, finished: tuple[Path, Settings]
) -> None:
    folder, settings = finished
    path = folder / "checkpoint" / "round-0002" / file
    data = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(DAMAGES[damage](data))
    with pytest.raises(CheckpointError) as caught:
        execution.resume(folder, settings, catalog=toy_catalog())
    assert str(path.parent if damage == "missing" else path) in str(caught.value)
    assert f"go back one: fedplug resume {folder} --round 1" in str(caught.value)
    if damage == "missing":
        assert execution.resume(folder, settings, 1, toy_catalog()) == 0
        assert len((folder / "metrics.jsonl").read_text().splitlines()) == 2


def test_a_state_of_something_else_is_a_checkpoint_error(finished: tuple[Path, Settings]) -> None:
    """The checksum is right, the content is not: for instance a file of another version."""
    folder, settings = finished
    round_folder = folder / "checkpoint" / "round-0002"
    for name in ("clients-0.state", "server.state"):
        path = round_folder / name
        data = path.read_bytes()
        clients = dict(states_in(path)) if name == "clients-0.state" else {}
        whole = codec.decode(clients["client:2"] if clients else read_file(path))
        altered = whole if clients else whole["server"]
        altered["remembered"] = {"other": 1}
        for content in ({"other": 1}, whole):
            if clients:
                states = {**clients, "client:2": codec.encode(content)}
                write_states(round_folder, {a: functools.partial(bytes, state) for a, state in states.items()})
            else:
                write_file(path, codec.encode(content))
            with pytest.raises(CheckpointError, match=rf"round-0002/{name} holds no .*go back one"):
                execution.resume(folder, settings, catalog=toy_catalog())
        path.write_bytes(data)


def test_a_recipe_that_was_edited_after_the_run_began_is_refused(finished: tuple[Path, Settings]) -> None:
    folder, settings = finished
    text = (folder / "recipe.yaml").read_text()
    (folder / "recipe.yaml").write_text(text.replace("rounds: 2", "rounds: 4"))
    with pytest.raises(CheckpointError, match="recipe"):
        execution.resume(folder, settings, catalog=toy_catalog())


def test_no_run_folder_is_a_checkpoint_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not a run folder"):
        execution.resume(tmp_path, Settings(output=tmp_path, quiet=True))


def test_a_run_that_was_killed_before_its_first_round_starts_again(
    reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, settings = toy_catalog(), Settings(output=tmp_path, quiet=True)
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "write", lambda *_: (_ for _ in ()).throw(Killed()))
        recipe = Recipe.from_plain(paraaegis(score_parameters=[UNANIMOUS]), catalog)
        with pytest.raises(Killed):
            execution.start(recipe, settings, catalog)
    (folder,) = tmp_path.iterdir()
    assert Checkpoints(folder).read() is None
    assert execution.resume(folder, settings, catalog=catalog) == 0
    ends = [[json.loads(line)["loss"] for line in (f / "metrics.jsonl").open()] for f in (folder, reference)]
    assert ends[0] == ends[1]
    assert len(ends[0]) == 2


@pytest.mark.usefixtures("reports")
def test_a_run_that_fails_keeps_its_checkpoint_and_says_how_to_go_on(tmp_path: Path) -> None:
    fail = {"use": "toy.fail", "clients": [0, 1, 2], "rounds": [1, 2, 3]}
    catalog = toy_catalog()
    recipe = Recipe.from_plain(recipe_of(rounds=5, score_parameters=[fail]), catalog)
    with pytest.raises(TooFewClients, match="the toy broke") as caught:
        execution.start(recipe, Settings(output=tmp_path, quiet=True), catalog)
    (folder,) = tmp_path.iterdir()
    assert f"Nothing is lost: continue with fedplug resume {folder}" in str(caught.value)
    assert Checkpoints(folder).rounds()[-1] == 3
    assert (folder / "report.html").is_file()


# -- the ledger pays for every upload ----------------------------------------------------------------------------------


def test_an_error_before_anything_is_restored_leaves_the_ledger_alone(finished: tuple[Path, Settings]) -> None:
    folder, settings = finished
    before = (folder / "ledger.json").read_text()
    (sorted((folder / "checkpoint").glob("*/clients-0.state"))[-1]).write_bytes(b"damaged")
    with pytest.raises(CheckpointError):
        execution.resume(folder, settings, catalog=toy_catalog())
    assert (folder / "ledger.json").read_text() == before
