"""The engine with real processes that are killed and come back."""

from __future__ import annotations

import signal
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from engine_toys import Checked, encrypted, vectors_in
from fedplug.api import codec
from fedplug_runs.checkpoint import Checkpoints, read_file
from fedplug_runs.result import Run
from fedplug_runs.settings import Settings
from party_toys import SECONDS, parties, serve
from run_toys import TIMES, resume, rows_of, start


def test_real_parties_give_what_one_process_gives_also_when_the_server_is_killed_and_resumed(tmp_path: Path) -> None:
    """Two clients and a key server with BFV give the same model bit for bit and the same bytes.

    No secret key is outside the key server's folder. The repeated round is charged, and the parties record it.
    """
    plain, where = encrypted(rounds=3), tmp_path / "parties"
    with parties(where, plain) as there:
        there.listening()
        server = get_context("forkserver").Process(target=serve, args=(tmp_path / "runs", plain, where, True))
        server.start()
        server.join()
        assert server.exitcode == -signal.SIGKILL
        (run,) = (tmp_path / "runs").iterdir()
        assert Checkpoints(run).rounds() == [0, 1]
        assert all(process.is_alive() for process in there.processes.values())
        resume(run, engine="parties", engine_options={"parties": str(where)})
        for process in there.processes.values():
            process.join(SECONDS)
        assert [process.exitcode for process in there.processes.values()] == [0, 0, 0]
        assert "round 2: answered fedplug.protect" in there.said("client:0")
        assert there.said("client:0").count("a server has connected") == 2
        assert there.said("client:0").count("round 2: answered") == 2

    local = start(tmp_path / "local", plain)
    assert rows_of(run) == rows_of(local)
    for one, other in zip(rows_of(run, times=True), rows_of(local, times=True), strict=True):
        assert set(TIMES) <= one.keys()
        for way in ("up", "down"):
            sent = [row["bytes"][way] for row in (one, other)]
            sizes = [bytes["total"] - bytes["zones"].get("encrypted", 0) for bytes in sent]
            assert sizes[0] == sizes[1]  # ciphertexts are compressed and differ with every key
    final = Run(local, Settings()).client_model(0).state_dict()
    for number in range(2):
        with np.load(where / f"client-{number}/model.npz") as model:
            assert model.keys() == final.keys()
            assert all(np.array_equal(model[name], tensor.numpy()) for name, tensor in final.items())
    ours, theirs = vectors_in(where), vectors_in(local)
    assert ours.keys() == theirs.keys() == {"client-0", "client-1"}
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)

    (state,) = where.glob("key-server/checkpoint/round-0003/key_server.state")
    secret = codec.decode(read_file(state))["state"]["std.bfv"]["context"]
    pieces = [secret[i : i + 64] for i in range(512, len(secret) - 64, 997)]
    assert len(pieces) > 20
    holders = {
        path.relative_to(tmp_path).parts[:2]
        for path in tmp_path.rglob("*")
        if path.is_file() and path.relative_to(tmp_path).parts[0] != "local"
        and any(piece in path.read_bytes() for piece in pieces)
    }  # fmt: skip
    assert holders == {("parties", "key-server")}
    assert not list(run.rglob("client-*"))


def test_a_party_that_is_killed_comes_back_and_loses_that_round(tmp_path: Path) -> None:
    """A client between two questions of a round, the key server between two rounds, and one that returns much later."""
    plain = encrypted(rounds=6, clients=3)
    plain["score_parameters"] = [{"use": "toy.fail", "clients": [1], "rounds": [3], "how": "kill"}]
    with parties(tmp_path / "parties", plain) as there:
        there.listening()
        checked = Checked(plain, there.engine, tmp_path)
        protocol = checked.protocol

        def on_round(done: int) -> None:
            if done == 1:
                there.kill("key_server")
                there.start("key_server")
                there.listening("key_server")
            elif done == 4:
                assert there.processes["client:1"].exitcode == -signal.SIGKILL
            elif done == 5:
                there.start("client:1")
                there.listening("client:1")

        protocol.after_each_round(on_round)
        try:
            checked.set_up()
            protocol.run()
            ours = checked.vectors(tmp_path)
        finally:
            checked.engine.close()
        dropped = checked.dropped()
    assert [sorted(lost) for lost in dropped] == [[], [], [], [1], [1], []]
    assert "gave no answer" in dropped[3][1]
    assert "no party listens at" in dropped[4][1]
    assert "fedplug party" in dropped[4][1]
    assert all(np.array_equal(ours["client-0"], vector) for vector in ours.values())
