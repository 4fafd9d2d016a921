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
from ended import gone
from fedplug.api.errors import SetupError
from fedplug.api.events import Asking
from fedplug.engines.base import Job
from fedplug.recipe.recipe import Recipe
from fedplug.wire.calls import Call, request
from fedplug_runs.checkpoint import Checkpoints
from fedplug_std import processes
from fedplug_std.pool import KEY_SERVER_MEMBER
from fedplug_std.processes import ProcessEngine
from toy_components import UNANIMOUS, paraaegis, recipe_of, toy_catalog
from toy_protocol import build, read_saved, run_protocol


def pids(engine: Any) -> dict[int, int]:
    """Process ids of the workers."""
    return {number: worker.process.pid for number, worker in engine._members.items()}


def test_both_engines_give_the_same_model_and_the_same_messages() -> None:
    """Bit for bit, with BFV and reproducible noise, a vote, drop-outs and a sampled cohort."""
    plain = paraaegis(
        rounds=3,
        decay=0.9,
        sampling={"scheme": "fixed", "rate": 0.8, "source": "reproducible"},
        score_parameters=[UNANIMOUS, {"use": "toy.fail", "clients": [2], "rounds": [1]}],
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
            assert getattr(one, key) == getattr(other, key)
        ciphertexts = [row.bytes.up.zones.get("encrypted", 0) for row in (one, other)]
        assert abs(ciphertexts[0] - ciphertexts[1]) <= 0.001 * max(ciphertexts)
    assert local.protocol.ledger.log == processes.protocol.ledger.log

    # Nothing is left behind.
    assert gone(started)
    assert not multiprocessing.active_children()


def test_two_workers_draw_apart() -> None:
    """Noise from a global generator that began alike in two workers would cancel between two uploads."""
    outcome = run_protocol(recipe_of(score_parameters=["toy.draws"], rounds=1), "processes")
    log = outcome.rows[0].log
    for library in ("numpy", "torch"):
        first, second = (log[f"toy.draws.{library}.{client_id}"] for client_id in (0, 1))  # one in each worker
        assert first != second


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
        engine._members[number].process.join()

    def on_round(done: int) -> None:
        if done == 3:
            kill_worker(0)  # everything of round 3 is done, and nothing of it is saved
        checkpoints.write(done, protocol.state(), engine)
        if done == 4:
            kill_worker(1)

    def on_upload(event: Asking) -> None:
        if event.round == 5 and event.what == "upload":
            kill_worker(0)  # after the ballots, before the uploads

    protocol.after_each_round(on_round)
    protocol.events.subscribe(Asking, on_upload)
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
    dropped = [sorted(row.clients.dropped) for row in protocol.rows]
    assert dropped[0][0] == 1  # and 3, if it had not answered yet
    assert set(dropped[0]) <= {1, 3}
    assert dropped[1:5] == [[], [], [], []]
    assert dropped[5] == [0, 2]
    assert dropped[6] == []
    reasons = [reason for row in protocol.rows for reason in row.clients.dropped.values()]
    assert any("worker process worker-1 ended with code -9" in reason for reason in reasons)
    assert any("has not trained in round 6" in reason for reason in reasons)
    assert all(row.accuracy is not None for row in protocol.rows)
    assert gone(list(last.values()))


def test_a_process_that_dies_while_it_works_for_all_is_started_again(tmp_path: Path) -> None:
    """The key server between and during its work, a worker while a checkpoint is written: nobody loses a round."""
    plain = recipe_of("encrypted", [{"use": "std.bfv", "key_holder": "key_server"}], rounds=3)
    protocol, engine, _ = build(plain, "processes", workers=1)
    assert isinstance(engine, ProcessEngine)
    checkpoints = Checkpoints(tmp_path)

    def dies_at_next(number: int, wanted: str) -> None:
        worker = engine._members[number]
        ask = worker.ask

        def ask_the_dying(command: str, argument: str, message: bytes = b"") -> None:
            if command == wanted:
                worker.process.kill()
                worker.process.join()
            ask(command, argument, message)

        worker.ask = ask_the_dying  # type: ignore[method-assign]

    try:
        protocol.setup()
        keys = protocol.server.state["std.bfv"]["context"]
        checkpoints.write(0, protocol.state(), engine)
        engine._members[KEY_SERVER_MEMBER].process.kill()
        engine._members[KEY_SERVER_MEMBER].process.join()
        protocol.round(0)
        dies_at_next(0, "save")
        first = pids(engine)
        checkpoints.write(1, protocol.state(), engine)
        assert pids(engine)[0] != first[0]
        dies_at_next(KEY_SERVER_MEMBER, "deliver")
        protocol.round(1)
        checkpoints.write(2, protocol.state(), engine)
        assert pids(engine)[KEY_SERVER_MEMBER] != first[KEY_SERVER_MEMBER]
        protocol.round(2)
        protocol.finish()
        assert protocol.server.state["std.bfv"]["context"] == keys
        (tmp_path / "end").mkdir()
        engine.save(tmp_path / "end")
        assert np.array_equal(read_saved(tmp_path / "end")[0][3], run_protocol(plain).vector)
        assert [row.clients.answered for row in protocol.rows] == [4, 4, 4]
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


def test_closing_does_not_wait_for_a_client_that_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "CLOSE_SECONDS", 0.1)
    plain = recipe_of(train={"use": "std.sgd", "epochs": 10_000_000})
    plain["data"]["clients"] = plain["min_clients"] = 1
    protocol, engine, _ = build(plain, "processes", workers=9)
    assert isinstance(engine, ProcessEngine)
    started = list(pids(engine).values())
    assert len(started) == 1  # no more than there are clients
    protocol.setup()
    data, _ = request(protocol.recipe.digest, [Call.of(protocol.steps.train, (), "client", 0)])
    engine._members[0].ask("deliver", "client:0", data)
    before = time.monotonic()
    engine.close()
    assert time.monotonic() - before < 120  # then they are ended; it trains for hours
    assert gone(started)


def test_a_worker_that_dies_while_it_is_restored_is_restored_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once more, and a third time; one that dies of it every time ends the run, which can be resumed."""
    protocol, engine, _ = build(recipe_of(rounds=3), "processes")
    assert isinstance(engine, ProcessEngine)
    ask, deaths = processes.Worker.ask, [2]

    def dying(self: processes.Worker, command: str, argument: str, message: bytes = b"") -> None:
        if command == "load" and deaths[0]:
            deaths[0] -= 1
            self.process.kill()
            self.process.join()
        ask(self, command, argument, message)

    def kill_worker() -> None:
        os.kill(pids(engine)[0], signal.SIGKILL)
        engine._members[0].process.join()

    monkeypatch.setattr(processes.Worker, "ask", dying)
    try:
        protocol.setup()
        Checkpoints(tmp_path).write(0, protocol.state(), engine)
        kill_worker()
        protocol.round(0)
        assert deaths == [0]
        assert not protocol.office.dropped
        kill_worker()
        deaths[0] = 3
        with pytest.raises(SetupError, match="3 times while it was being restored"):
            protocol.round(1)
    finally:
        engine.close()


def test_arrays_that_clients_hold_alike_are_stored_once_whatever_their_order(tmp_path: Path) -> None:
    protocol, engine, _ = build(recipe_of(rounds=1))
    try:
        protocol.setup()
        clients = list(engine._hosts["client:0"].clients.values())  # type: ignore[attr-defined]
        one, other = clients[0].vector.copy(), clients[0].vector + 1
        for client, vector in zip(clients, (one, other, one.copy(), other.copy()), strict=True):
            client.vector = vector
        engine.save(tmp_path)
        assert len(list(tmp_path.glob("*-array-*.state"))) == 2
        vectors, _ = read_saved(tmp_path)
    finally:
        engine.close()
    for client_id, vector in enumerate((one, other, one, other)):
        assert np.array_equal(vectors[client_id], vector)
