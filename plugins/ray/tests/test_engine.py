"""The engine on a Ray of one machine: the results of `local`, and actors that die or are silent.

All tests share one Ray, which takes seconds to start.
"""

# ruff: noqa: E402  Ray may not be installed, and the skip must come before the other imports.

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fedplug_ray", reason="fedplug-ray is not installed: make test installs it")
ray = pytest.importorskip("ray", reason="Ray is not installed: make test installs it")

from ended import gone
from fedplug.api.errors import ClientError, SetupError
from fedplug.api.events import Asking
from fedplug.engines.base import Job
from fedplug.recipe.recipe import Recipe
from fedplug_ray import engine as engine_module
from fedplug_ray.cluster import Cluster
from fedplug_ray.engine import RayEngine
from fedplug_runs.checkpoint import Checkpoints
from fedplug_std.pool import KEY_SERVER_MEMBER
from ray_actors import actors, fill_disk, kill, pids
from toy_components import UNANIMOUS, paraaegis, recipe_of, toy_catalog
from toy_protocol import build, read_saved, run_protocol

pytestmark = pytest.mark.xdist_group("ray")
SECONDS = 10
"""Enough for a toy on a busy machine."""


@pytest.fixture(scope="module")
def shared_ray() -> Iterator[Cluster]:
    """A Ray for all tests of this module."""
    cluster = Cluster(None, cpus=2)  # Ray starts an idle process for each
    yield cluster
    cluster.close()
    assert not ray.is_initialized()


@pytest.fixture(autouse=True)
def _on_the_shared_ray(shared_ray: Cluster) -> Iterator[None]:
    """No test leaves an actor behind or ends a Ray that it did not start."""
    yield
    assert ray.is_initialized()
    deadline = time.monotonic() + 120
    while (left := ray.cluster_resources()["CPU"] - ray.available_resources().get("CPU", 0)) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.1)
    assert not left


def test_ray_gives_the_model_and_the_messages_of_local(monkeypatch: pytest.MonkeyPatch) -> None:
    """The models are equal bit for bit, with BFV, reproducible noise, a vote, drop-outs and a sampled cohort."""
    plain = paraaegis(
        rounds=3,
        decay=0.9,
        seal={"use": "std.bfv", "key_holder": "key_server"},
        model={"use": "std.mlp", "hidden": [400]},  # messages of over 100 kB go into the object store
        sampling={"scheme": "fixed", "rate": 0.8, "source": "reproducible"},
        score_parameters=[UNANIMOUS, "toy.draws", {"use": "toy.fail", "clients": [2], "rounds": [1]}],
    )
    plain["data"]["clients"] = 5
    started: list[int] = []
    stored: list[int] = []

    def prepare(_: Any, engine: Any) -> None:
        started.extend(pids(engine).values())
        put = ray.put
        monkeypatch.setattr(ray, "put", lambda data: stored.append(len(data)) or put(data))

    local = run_protocol(plain)
    far = run_protocol(plain, RayEngine, prepare=prepare)
    assert len({*started, os.getpid()}) == 4, "two workers, the key server and the server are separate processes"
    assert gone(started)
    assert np.array_equal(local.vector, far.vector)
    assert all(np.array_equal(local.vectors[client_id], far.vectors[client_id]) for client_id in range(5))
    for one, other in zip(local.rows, far.rows, strict=True):
        for key in ("accuracy", "loss", "train_loss", "client_accuracy", "clients", "zones", "epsilon", "messages"):
            assert getattr(one, key) == getattr(other, key)
    assert local.protocol.ledger.log == far.protocol.ledger.log
    # The aggregate goes to four or five clients with the next question, and is stored once for all of them.
    large = [m for m in far.wire.messages if m.receiver.startswith("client:") and m.size >= engine_module._STORED]
    assert 2 < len(stored) <= len(large) / 3
    # If global generators began with the same state in two workers, the noise of two uploads would cancel.
    for library in ("numpy", "torch"):
        drawn = [value for key, value in far.rows[0].log.items() if key.startswith(f"toy.draws.{library}.")]
        assert len(set(drawn)) == len(drawn) >= 4


@pytest.mark.slow
def test_actors_that_die_cost_their_clients_a_round_at_most(tmp_path: Path, capfd: Any) -> None:
    """The actor dies while training, before and after a checkpoint is written, and between two questions of a round.

    Every time, the clients are restored, catch up, and agree at the end.
    """
    dies = [{"use": "toy.fail", "clients": [1], "rounds": [0], "how": "kill"}]
    plain = paraaegis(rounds=7, score_parameters=[{"use": "paraaegis.magnitude"}, *dies])
    protocol, engine, _ = build(plain, RayEngine)
    checkpoints = Checkpoints(tmp_path)

    def on_round(done: int) -> None:
        if done == 3:
            kill(engine, "worker-0")  # round 3 is complete, but none of it is saved
        checkpoints.write(done, protocol.state(), engine)
        if done == 4:
            kill(engine, "worker-1")

    def on_upload(event: Asking) -> None:
        if event.round == 5 and event.what == "upload":
            kill(engine, "worker-0")  # after the ballots and before the uploads

    protocol.after_each_round(on_round)
    protocol.events.subscribe(Asking, on_upload)
    try:
        first = pids(engine)
        protocol.setup()
        on_round(0)
        protocol.run()
        (tmp_path / "end").mkdir()
        engine.save(tmp_path / "end")
        vectors, _ = read_saved(tmp_path / "end")
        last = pids(engine)
    finally:
        engine.close()
    assert sorted(last) == sorted(first)
    assert set(last.values()).isdisjoint(first.values())
    assert all(np.array_equal(vectors[0], vectors[client_id]) for client_id in range(4))
    dropped = [sorted(row.clients.dropped) for row in protocol.rows]
    assert set(dropped[0]) in ({1}, {1, 3})  # 3 too if it had not answered yet
    assert dropped[1:5] == [[], [], [], []]
    assert dropped[5] == [0, 2]
    assert dropped[6] == []
    assert "worker-1 ended: " in protocol.rows[0].clients.dropped[1]
    assert all("has not trained in round 6" in reason for reason in protocol.rows[5].clients.dropped.values())
    time.sleep(2)  # Ray may take this long to print its own message
    assert "ray" not in capfd.readouterr().out


@pytest.mark.slow
def test_a_key_server_that_dies_is_restored_with_its_keys(tmp_path: Path) -> None:
    """It dies between two rounds, while it opens a sum, and while a checkpoint is written. Nobody loses a round."""
    plain = recipe_of("encrypted", [{"use": "std.bfv", "key_holder": "key_server"}], rounds=3)
    protocol, engine, _ = build(plain, RayEngine, workers=1)
    assert isinstance(engine, RayEngine)
    checkpoints = Checkpoints(tmp_path)
    member = engine._members[KEY_SERVER_MEMBER]
    ask, dies_at = member.ask, [""]

    def ask_and_die(method: str, *arguments: Any) -> None:
        ask(method, *arguments)
        if method == dies_at[0]:
            dies_at[0] = ""
            ray.kill(member._actor)

    member.ask = ask_and_die  # type: ignore[method-assign]
    try:
        protocol.setup()
        keys = protocol.server.state["std.bfv"]["context"]
        checkpoints.write(0, protocol.state(), engine)
        kill(engine, "key-server")
        protocol.round(0)
        dies_at[0] = "save"
        checkpoints.write(1, protocol.state(), engine)
        dies_at[0] = "deliver"
        protocol.round(1)
        checkpoints.write(2, protocol.state(), engine)
        protocol.round(2)
        protocol.finish()
        assert protocol.server.state["std.bfv"]["context"] == keys
        (tmp_path / "end").mkdir()
        engine.save(tmp_path / "end")
        assert np.array_equal(read_saved(tmp_path / "end")[0][3], run_protocol(plain).vector)
        assert [row.clients.answered for row in protocol.rows] == [4, 4, 4]
    finally:
        engine.close()
    assert dies_at == [""]


@pytest.mark.slow
def test_one_that_dies_whenever_it_is_restored_ends_the_run(tmp_path: Path) -> None:
    protocol, engine, _ = build(recipe_of(rounds=1), RayEngine)
    assert isinstance(engine, RayEngine)
    member = engine._members[0]
    ask, deaths = member.ask, [2]

    def dying(method: str, *arguments: Any) -> None:
        ask(method, *arguments)
        if method == "load" and deaths[0]:
            deaths[0] -= 1
            ray.kill(member._actor)

    member.ask = dying  # type: ignore[method-assign]
    try:
        protocol.setup()
        Checkpoints(tmp_path).write(0, protocol.state(), engine)
        kill(engine, "worker-0")
        protocol.round(0)
        assert deaths == [0]
        assert not protocol.office.dropped
        kill(engine, "worker-0")
        deaths[0] = 3
        with pytest.raises(SetupError, match=r"worker-0 .*, 3 times while it was being restored"):
            protocol.round(1)
    finally:
        engine.close()


@pytest.mark.slow
def test_a_silent_actor_costs_its_clients_the_round_and_they_are_back_in_the_next(tmp_path: Path) -> None:
    protocol, engine, _ = build(recipe_of(rounds=4), RayEngine, timeout=SECONDS)
    checkpoints, stopped = Checkpoints(tmp_path), []

    def on_upload(event: Asking) -> None:
        if event.round == 1:
            stopped.append(pids(engine)["worker-1"])
            os.kill(stopped[0], signal.SIGSTOP)

    protocol.after_each_round(lambda done: checkpoints.write(done, protocol.state(), engine))
    protocol.events.subscribe(Asking, on_upload)
    try:
        protocol.setup()
        checkpoints.write(0, protocol.state(), engine)
        protocol.run()
        (tmp_path / "end").mkdir()
        engine.save(tmp_path / "end")
        vectors, _ = read_saved(tmp_path / "end")
        assert pids(engine)["worker-1"] != stopped[0]
    finally:
        engine.close()
    assert gone(stopped), "Ray must end a stopped process too"
    assert [sorted(row.clients.dropped) for row in protocol.rows] == [[], [1, 3], [], []]
    assert [row.clients.answered for row in protocol.rows] == [4, 2, 4, 4]
    assert set(protocol.rows[1].clients.dropped.values()) == {
        f"worker-1 was silent for longer than --timeout {SECONDS} allows, so the run ended it; if a client needs more "
        "time, use a larger --timeout (seconds; 0: no limit)"
    }
    assert all(np.array_equal(vectors[0], vectors[client_id]) for client_id in range(4))


@pytest.mark.slow
def test_a_silent_key_server_is_asked_once_more_and_then_ends_the_run(tmp_path: Path) -> None:
    plain = recipe_of("encrypted", [{"use": "std.bfv", "key_holder": "key_server"}], rounds=2)
    protocol, engine, _ = build(plain, RayEngine, workers=1, timeout=SECONDS)
    assert isinstance(engine, RayEngine)
    try:
        protocol.setup()
        Checkpoints(tmp_path).write(0, protocol.state(), engine)
        exchange, stops = engine.exchange, [1]

        def stopping(messages: dict[str, bytes]) -> Any:
            if "key_server" in messages and stops[0]:
                stops[0] -= 1
                engine._revive()
                os.kill(pids(engine)["key-server"], signal.SIGSTOP)
            return exchange(messages)

        engine.exchange = stopping  # type: ignore[method-assign]
        protocol.round(0)
        assert stops == [0]
        Checkpoints(tmp_path).write(1, protocol.state(), engine)
        stops[0] = 2
        with pytest.raises(ClientError, match="the key server is gone: key-server was silent for longer"):
            protocol.round(1)
    finally:
        engine.close()


@pytest.mark.slow
def test_what_the_server_does_meanwhile_is_no_silence_and_a_large_message_passes() -> None:
    """Answers that arrive while the server adds up count, however late. Half a gigabyte exceeds Ray's store."""
    from fedplug.wire.calls import Call, read_reply, request

    protocol, engine, _ = build(recipe_of(), RayEngine, timeout=SECONDS)
    try:
        protocol.setup()
        data, _ = request(protocol.recipe.digest, [Call.of(protocol.steps.train, (), "client", 0)])
        answers = {}
        for address, answer in engine.exchange({f"client:{client_id}": data for client_id in range(4)}):
            time.sleep(0 if answers else SECONDS + 0.5)
            answers[address] = type(answer)
        assert answers == {f"client:{client_id}": bytes for client_id in range(4)}
    finally:
        engine.close()
    protocol, engine, _ = build(recipe_of(), RayEngine)
    try:
        large = b"x" * 2**29
        for _, answer in engine.exchange({"client:0": large, "client:1": large}):
            assert isinstance(answer, bytes)
            assert read_reply(answer)[0].error is not None, "it must be read and refused"
    finally:
        engine.close()


@pytest.mark.slow
def test_a_machine_that_cannot_go_on_ends_the_run_with_the_reason() -> None:
    """The actor would fail again after it is restored."""
    _, engine, _ = build(recipe_of(), RayEngine, workers=1)
    try:
        ray.get(actors(engine)["worker-0"].__ray_call__.remote(fill_disk))
        with pytest.raises(SetupError, match=r"worker-0: .*No space left on device"):
            dict(engine.exchange({"client:0": b"x"}))
    finally:
        engine.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "workers", "options", "message"),
    [
        ({"data": {"use": "std.mnist", "clients": 2, "partition": "std.iid"}}, 1, {}, "could not start: .*MNIST"),
        ({}, 3, {"cpus": 9}, r"3 workers with 9 CPUs each need 27, but this Ray has \d+; use fewer --workers"),
        ({}, 1, {"gpus": 0.5}, "1 workers with 0.5 GPUs each need 0.5, but this Ray has 0"),
    ],
    ids=["missing data set", "too few CPUs", "no GPU"],
)  # fmt: skip
def test_what_cannot_start_says_why(
    change: dict[str, Any], workers: int, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    plain = Recipe.from_plain(recipe_of(), toy_catalog()).to_plain() | change
    given = RayEngine.Options.model_validate(options)
    with pytest.raises(SetupError, match=message):
        RayEngine(Job(plain, workers=workers, data_root=str(tmp_path), catalog=toy_catalog(), options=given))
