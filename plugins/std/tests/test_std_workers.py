"""Workers that are silent: stopped between two messages, in the middle of one, while they save; and a busy server."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
import types
from multiprocessing import forkserver
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedplug.api.errors import ClientError, PartyLost, SetupError
from fedplug.api.events import Asking
from fedplug.engines.base import Job
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.steps import Steps
from fedplug.wire.calls import Call, request
from fedplug_runs.checkpoint import Checkpoints, StateFiles
from fedplug_std import pool, workers
from fedplug_std.pool import KEY_SERVER_MEMBER
from fedplug_std.processes import ProcessEngine
from fedplug_std.workers import Worker, answering
from toy_components import recipe_of, toy_catalog
from toy_protocol import build, half_an_answer, read_saved

SECONDS = 100
"""Enough for what a toy does, on a machine that is busy with something else too."""
SOON = 1
"""Seconds that a test waits for a worker that will never answer."""


def stop(engine: ProcessEngine, number: int) -> int:
    """Stops a worker, as a debugger or a hung device does; gives its process id.

    It alone has no more than a second, as with `--timeout 1`: the others have to answer on a busy machine.
    """
    worker = engine._members[number]
    pid = worker.process.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    worker._timeout = SOON
    workers._limit(worker.pipe, SOON)
    return pid


def engine_of(plain: dict[str, Any], **settings: Any) -> tuple[Any, ProcessEngine]:
    protocol, engine, _ = build(plain, "processes", **settings)
    assert isinstance(engine, ProcessEngine)
    return protocol, engine


def test_a_silent_worker_costs_its_clients_the_round_and_they_are_back_in_the_next(tmp_path: Path) -> None:
    protocol, engine = engine_of(recipe_of(rounds=4), timeout=SECONDS)
    checkpoints, stopped, took = Checkpoints(tmp_path), [], []

    def on_upload(event: Asking) -> None:
        if event.round == 1:
            stopped.append(stop(engine, 1))

    protocol.after_each_round(lambda done: checkpoints.write(done, protocol.state(), engine))
    protocol.events.subscribe(Asking, on_upload)
    try:
        protocol.setup()
        checkpoints.write(0, protocol.state(), engine)
        started = time.monotonic()
        protocol.run()
        took.append(time.monotonic() - started)
        (tmp_path / "end").mkdir()
        engine.save(tmp_path / "end")
        vectors, _ = read_saved(tmp_path / "end")
        assert engine._members[1].process.pid != stopped[0]
    finally:
        engine.close()
    assert [sorted(row.clients.dropped) for row in protocol.rows] == [[], [1, 3], [], []]
    assert [row.clients.answered for row in protocol.rows] == [4, 2, 4, 4]
    assert set(protocol.rows[1].clients.dropped.values()) == {
        f"worker process worker-1 was silent for longer than --timeout {SOON} allows, so the run ended it; if a "
        "client needs more time, use a larger --timeout (seconds; 0: no limit)"
    }
    assert all(np.array_equal(vectors[0], vectors[client_id]) for client_id in range(4))
    assert SOON <= took[0] < 600  # without a limit it would be for ever


@pytest.mark.parametrize("always", [False, True], ids=["once", "every time"])
def test_a_silent_key_server_is_asked_once_more_and_then_ends_the_run(tmp_path: Path, always: bool) -> None:
    plain = recipe_of("encrypted", [{"use": "std.bfv", "key_holder": "key_server"}], rounds=1)
    protocol, engine = engine_of(plain, workers=1, timeout=SECONDS)
    try:
        protocol.setup()
        Checkpoints(tmp_path).write(0, protocol.state(), engine)
        exchange = engine.exchange
        stops = [2 if always else 1]

        def stopping(messages: dict[str, bytes]) -> Any:
            if "key_server" in messages and stops[0]:
                stops[0] -= 1
                engine._revive()
                stop(engine, KEY_SERVER_MEMBER)
            return exchange(messages)

        engine.exchange = stopping  # type: ignore[method-assign]
        if always:
            with pytest.raises(ClientError, match="the key server is gone: worker process key-server was silent"):
                protocol.round(0)
        else:
            protocol.round(0)
            protocol.finish()
            assert protocol.rows[0].clients.answered == 4
        assert stops == [0]
    finally:
        engine.close()


def test_a_worker_that_stops_while_it_saves_is_restored_and_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has longer than for a message, since it saves all of its clients."""
    protocol, engine = engine_of(recipe_of(), timeout=SECONDS)
    try:
        protocol.setup()
        Checkpoints(tmp_path).write(0, protocol.state(), engine)
        worker = engine._members[0]
        assert worker._seconds("save") == 600 > worker._seconds("deliver") == SECONDS
        before = stop(engine, 0)
        monkeypatch.setattr(worker, "_seconds", lambda _: float(SOON))  # and not of the one that takes its place
        (tmp_path / "saved").mkdir()
        engine.save(tmp_path / "saved")
        assert engine._members[0].process.pid != before
        assert sorted(read_saved(tmp_path / "saved")[0]) == [0, 1, 2, 3]
    finally:
        engine.close()


def test_a_message_that_a_stopped_worker_does_not_read_blocks_nobody() -> None:
    """A pipe takes some kilobytes that nobody reads, and then blocks the writer."""
    _, engine = engine_of(recipe_of(), timeout=SECONDS)
    try:
        stop(engine, 0)
        answers = dict(engine.exchange({"client:0": b"x" * 50_000_000, "client:2": b"x", "client:1": b"x"}))
    finally:
        engine.close()
    assert [type(answers[f"client:{c}"]) for c in range(3)] == [PartyLost, bytes, PartyLost]
    assert f"silent for longer than --timeout {SOON}" in str(answers["client:0"])
    assert str(answers["client:2"]) == str(answers["client:0"]), "who waited for the same worker hears the same reason"


def test_an_answer_that_does_not_go_on_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "serve", half_an_answer)
    job = Job(Recipe.from_plain(recipe_of(), toy_catalog()).to_plain(), timeout=SOON)
    worker = Worker(job, 0, [0])
    assert answering([worker]) == [worker]
    with pytest.raises(PartyLost, match="silent for longer"):
        worker.take()
    worker.process.join(300)
    assert worker.process.exitcode == -signal.SIGKILL


def test_what_the_server_does_meanwhile_is_no_silence_of_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers that lie in the pipes while the server adds up are read, however late."""
    later = [0.0]
    for module in (workers, pool):
        monkeypatch.setattr(module, "time", types.SimpleNamespace(monotonic=lambda: time.monotonic() + later[0]))
    protocol, engine = engine_of(recipe_of(), timeout=SECONDS)
    try:
        protocol.setup()
        data, _ = request(protocol.recipe.digest, [Call.of(protocol.steps.train, (), "client", 0)])
        answers = {}
        for address, answer in engine.exchange({f"client:{client_id}": data for client_id in range(4)}):
            if not answers:  # the other worker answers, and the server looks long after its time
                assert wait([engine._members[1 - engine._home[address]].pipe], SECONDS)
                later[0] = 2.0 * SECONDS
            answers[address] = type(answer)
    finally:
        engine.close()
    assert answers == {f"client:{client_id}": bytes for client_id in range(4)}


def test_zero_is_no_limit() -> None:
    _, engine = engine_of(recipe_of(), timeout=0)
    try:
        assert [worker.until for worker in engine._members.values()] == [float("inf")] * 2
    finally:
        engine.close()


def test_what_ends_a_worker_beside_its_parties_ends_the_run_with_its_reason(tmp_path: Path) -> None:
    """A client that cannot be put away, say: nobody's reply, and nobody's fault."""
    recipe = Recipe.from_plain(recipe_of(), toy_catalog())
    train = Steps(recipe, Composition(recipe)).train
    job = Job(recipe.to_plain(), catalog=toy_catalog(), store=StateFiles(tmp_path, 1))
    engine = ProcessEngine(job)
    try:
        tmp_path.rename(tmp_path.with_name("moved"))
        data, _ = request(recipe.digest, [Call.of(train, (), "client", 0)])
        with pytest.raises(SetupError, match=r"worker-0: a client cannot be put away.*leave --max-clients-in-memory"):
            list(engine.exchange({"client:0": data, "client:1": data}))
    finally:
        engine.close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers are not forked from a server")
def test_ctrl_c_is_for_the_parent_alone_also_while_the_server_of_workers_imports() -> None:
    """A terminal sends it to all processes of the group; the server would print a traceback amid an import."""
    workers._context()
    pid = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    blocked = int(status.partition("SigBlk:")[2].split()[0], 16)
    assert blocked >> (signal.SIGINT - 1) & 1
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


@pytest.mark.parametrize("built", [True, False])
def test_a_worker_whose_parent_went_while_it_was_built_ends_quietly(
    monkeypatch: pytest.MonkeyPatch, built: bool
) -> None:
    """As after Ctrl-C; what it raised would be a traceback on the terminal."""

    def host_of(*_: Any) -> Any:
        if not built:
            raise SetupError("no data")

    monkeypatch.setattr(workers, "host_of", host_of)
    monkeypatch.setattr(workers, "draw_apart", lambda: None)  # of this process' generators
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    ours, theirs = multiprocessing.Pipe()
    ours.close()
    workers.serve(theirs, Job(recipe_of(rounds=1)), [0], {})
