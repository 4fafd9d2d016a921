"""Two engines, one result; and what happens when a process dies."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedplug.calls import Call, request
from fedplug.checkpoint import Checkpoints
from fedplug.engines.base import Engine, Job
from fedplug.engines.processes import KEY_SERVER_WORKER, ProcessEngine
from fedplug.errors import ClientError, SetupError
from fedplug.protocol import Protocol
from fedplug.recipe import Recipe
from toy_components import build, paraaegis, read_saved, recipe_of, run_protocol, toy_catalog


def pids(engine: Any) -> dict[int, int]:
    """Process ids of the workers."""
    return {number: worker.process.pid for number, worker in engine._workers.items()}


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.is_file() or stat.read_text().rpartition(")")[2].split()[0] != "Z"  # ended, but not yet waited for


def gone(processes: list[int], seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while any(map(alive, processes)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(map(alive, processes))


def test_both_engines_give_the_same_model_and_the_same_messages() -> None:
    """Bit for bit, with BFV and reproducible noise, a vote, drop-outs and a sampled cohort."""
    plain = paraaegis(
        rounds=3,
        decay=0.9,
        sampling={"scheme": "fixed", "rate": 0.8, "source": "reproducible"},
        score_parameters=[{"use": "paraaegis.magnitude"}, {"use": "toy.fail", "clients": [2], "rounds": [1]}],
    )
    plain["data"]["clients"] = 5
    started: list[int] = []
    local = run_protocol(plain)
    processes = run_protocol(plain, "processes", prepare=lambda _, engine: started.extend(pids(engine).values()))
    assert len(started) == 2
    assert np.array_equal(local.vector, processes.vector)

    def sizes(outcome: Any) -> list[tuple[Any, ...]]:
        """Every message of a round but its ciphertexts, whose bytes are compressed and differ with every key."""
        return sorted(
            (m.round, m.phase, m.sender, m.receiver, m.size - m.zones.get("encrypted", 0))
            for m in outcome.wire.messages
            if m.round >= 0
        )

    assert sizes(local) == sizes(processes)
    for one, other in zip(local.rows, processes.rows, strict=True):
        for key in ("accuracy", "loss", "train_loss", "client_accuracy", "clients", "zones", "epsilon", "messages"):
            assert one[key] == other[key]
        ciphertexts = [row["bytes"]["up"]["zones"].get("encrypted", 0) for row in (one, other)]
        assert abs(ciphertexts[0] - ciphertexts[1]) <= 0.001 * max(ciphertexts)
    assert local.protocol.ledger.log == processes.protocol.ledger.log

    # Nothing is left behind.
    assert gone(started)
    assert not multiprocessing.active_children()


def test_workers_that_die_cost_their_clients_a_round_at_most(tmp_path: Path) -> None:
    """Four deaths, one after another: while training, before and after a checkpoint is written, between two questions
    of a round. Every time the clients are restored, catch up, and agree in the end."""
    kill = [{"use": "toy.fail", "clients": [1], "rounds": [0], "how": "kill"}]
    plain = paraaegis(rounds=7, score_parameters=[{"use": "paraaegis.magnitude"}, *kill])
    protocol, engine, _ = build(plain, "processes")
    assert isinstance(engine, ProcessEngine)
    checkpoints = Checkpoints(tmp_path)
    first = pids(engine)

    def kill_worker(number: int) -> None:
        os.kill(pids(engine)[number], signal.SIGKILL)
        engine._workers[number].process.join()

    def on_round(done: int) -> None:
        if done == 3:
            kill_worker(0)  # everything of round 3 is done, and nothing of it is saved
        checkpoints.write(done, protocol.state(), engine)
        if done == 4:
            kill_worker(1)

    def on_upload(round: int, charged: list[int]) -> None:
        if round == 5:
            kill_worker(0)  # after the ballots, before the uploads

    protocol.on_round, protocol.on_upload = on_round, on_upload
    try:
        protocol.setup()
        on_round(0)
        protocol.run()
        (tmp_path / "end").mkdir()
        engine.save(tmp_path / "end")
        vectors, _ = read_saved(tmp_path / "end")
    finally:
        last = pids(engine)
        engine.close()
    assert sorted(last) == sorted(first)
    assert set(last.values()).isdisjoint(first.values())
    assert all(np.array_equal(vectors[0], vectors[c]) for c in range(4))
    dropped = [sorted(row["clients"]["dropped"]) for row in protocol.rows]
    assert dropped[0][0] == "1"  # and 3, if it had not answered yet
    assert set(dropped[0]) <= {"1", "3"}
    assert dropped[1:5] == [[], [], [], []]
    assert dropped[5] == ["0", "2"]
    assert dropped[6] == []
    reasons = [reason for row in protocol.rows for reason in row["clients"]["dropped"].values()]
    assert any("worker process worker-1 ended with code -9" in reason for reason in reasons)
    assert any("has not trained in round 6" in reason for reason in reasons)
    assert all(row["accuracy"] is not None for row in protocol.rows)
    assert gone(list(last.values()))


def test_a_worker_that_dies_while_a_checkpoint_is_written_is_started_again(tmp_path: Path) -> None:
    protocol, engine, _ = build(recipe_of(rounds=2), "processes", workers=1)
    assert isinstance(engine, ProcessEngine)
    checkpoints = Checkpoints(tmp_path)
    try:
        protocol.setup()
        checkpoints.write(0, protocol.state(), engine)
        protocol.round(0)
        worker = engine._workers[0]
        send = worker.send
        killed: list[int | None] = []

        def send_and_die(command: str, argument: str, data: bytes) -> None:
            if command == "save" and not killed:
                killed.append(worker.process.pid)
                worker.process.kill()
                worker.process.join()
            send(command, argument, data)

        worker.send = send_and_die  # type: ignore[method-assign]
        checkpoints.write(1, protocol.state(), engine)
        assert killed
        assert len(list(checkpoints.path(1).glob("client-?.state"))) == 4
        protocol.round(1)
        protocol.finish()
        (tmp_path / "end").mkdir()
        engine.save(tmp_path / "end")
        assert np.array_equal(read_saved(tmp_path / "end")[0][3], run_protocol(recipe_of(rounds=2)).vector)
        assert protocol.rows[1]["clients"]["answered"] == 4
    finally:
        engine.close()


def test_a_key_server_that_dies_ends_the_run_and_a_resumed_run_goes_on(tmp_path: Path) -> None:
    plain = recipe_of("encrypted", [{"use": "std.bfv", "key_holder": "key_server"}], rounds=3)
    expected = run_protocol(plain).vector
    checkpoints = Checkpoints(tmp_path)

    def start() -> tuple[Protocol, Engine]:
        protocol, engine, _ = build(plain, "processes", workers=1)

        def on_round(done: int) -> None:
            checkpoints.write(done, protocol.state(), engine)

        protocol.on_round = on_round
        return protocol, engine

    protocol, engine = start()
    assert isinstance(engine, ProcessEngine)
    try:
        protocol.setup()
        protocol.on_round(0)
        protocol.round(0)
        protocol.on_round(1)
        host = engine._workers[KEY_SERVER_WORKER].process
        protocol.on_upload = lambda round, charged: host.kill()
        with pytest.raises(ClientError, match="key server is gone: worker process key-server ended with code -9"):
            protocol.round(1)
    finally:
        engine.close()
    protocol, engine = start()
    try:
        found = checkpoints.read()
        assert found is not None
        done, state, folder = found
        assert done == 1
        engine.load(folder)
        protocol.restore(state)
        protocol.run(done)
        (tmp_path / "end").mkdir()
        engine.save(tmp_path / "end")
        assert np.array_equal(read_saved(tmp_path / "end")[0][3], expected)
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": {"use": "std.mnist", "clients": 2, "partition": {"use": "std.iid"}}}, "MNIST"),
        ({"rounds": 0}, "rounds"),
    ],
    ids=["data set that is not there", "recipe that is none"],
)
def test_a_worker_that_cannot_start_says_why(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    plain = Recipe.from_plain(recipe_of(), toy_catalog()).to_plain() | change
    with pytest.raises(SetupError, match=rf"worker-0 could not start: .*{message}"):
        ProcessEngine(Job(plain, workers=1, data_root=str(tmp_path), catalog=toy_catalog()))
    assert not multiprocessing.active_children()


def test_closing_does_not_wait_for_a_client_that_is_busy() -> None:
    plain = recipe_of(train={"use": "std.sgd", "epochs": 100_000})
    plain["data"]["clients"] = 2
    protocol, engine, _ = build(plain, "processes", workers=9)
    assert isinstance(engine, ProcessEngine)
    started = list(pids(engine).values())
    assert len(started) == 2  # no more than there are clients
    protocol.setup()
    data, _ = request(protocol.recipe.digest, [Call.of(protocol.steps.train, (), "client", 0)])
    for client_id, worker in engine._workers.items():
        worker.send("deliver", f"client:{client_id}", data)
    before = time.monotonic()
    engine.close()
    assert time.monotonic() - before < 4  # two seconds for all together, and then they are ended
    assert gone(started)
