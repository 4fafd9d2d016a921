"""The engine over parties: real processes that are killed and come back, and carriers that lose, repeat and reorder."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedplug.api import codec
from fedplug.api.errors import CheckpointError, PartyLost, SetupError
from fedplug.api.events import Asking
from fedplug.engines.base import Engine, Job
from fedplug.round.arrivals import Arrivals
from fedplug.round.checkpoint import Checkpoints
from fedplug.round.state_files import read_file
from fedplug_party import engine as engines
from fedplug_party.engine import PartyEngine
from fedplug_party.transport import SocketTransport
from party_toys import Beside, parties
from run_toys import TIMES, resume, rows_of, start
from toy_components import Watched, build, recipe_of, run_protocol


def encrypted(rounds: int = 2, clients: int = 2, **changes: Any) -> dict[str, Any]:
    """Two clients and a key server: BFV behind a clip and reproducible noise."""
    noise = {"use": "std.gaussian", "epsilon": 8, "delta": 1e-5, "source": "reproducible"}
    chain = [{"use": "std.clip", "norm": 1.0}, noise, {"use": "std.bfv", "key_holder": "key_server"}]
    plain = recipe_of("encrypted", chain, rounds=rounds, postprocess={"encrypted": ["std.bfv"]}, min_clients=2)
    plain["data"]["clients"] = clients
    return plain | changes


def plain_of(clients: int = 3, **changes: Any) -> dict[str, Any]:
    plain = recipe_of(min_clients=2, **changes)
    plain["data"]["clients"] = clients
    return plain


def vectors_in(folder: Path) -> dict[str, Any]:
    """The global model of each client, as its last checkpoint has it: under a run folder, or under those of parties."""
    last: dict[str, Path] = {}
    for path in sorted(folder.glob("**/round-*/client-?.state")):
        last[path.stem] = path
    return {
        name: codec.decode(read_file(path.with_name(codec.decode(read_file(path))["vector"])))
        for name, path in last.items()
    }


class Checked:
    """A protocol over parties, with a checkpoint after every round, and what a test does in between."""

    def __init__(self, plain: Mapping[str, Any], engine: Callable[[Job], Engine], folder: Path) -> None:
        self.protocol, running, self.notes = build(plain, engine)
        assert isinstance(running, PartyEngine)
        self.engine, self.checkpoints = running, Checkpoints(folder)
        self.protocol.after_each_round(self.save)

    def save(self, done: int) -> None:
        self.checkpoints.write(done, self.protocol.state(), self.engine)

    def set_up(self) -> None:
        self.protocol.setup()
        self.save(0)

    def go_on(self) -> None:
        found = self.checkpoints.read()
        assert found is not None
        self.engine.load(found[2])
        self.protocol.restore(found[1])
        self.protocol.run(found[0])

    def dropped(self) -> list[dict[int, str]]:
        return [dict(row.clients.dropped) for row in self.protocol.rows]


# -- real processes ----------------------------------------------------------------------------------------------------


def serve(folder: Path, plain: dict[str, Any], where: Path, dies: bool) -> None:
    """A server of its own process; perhaps one that dies when it has the uploads of round 2, before it adds them up."""
    close = Arrivals.close

    def die(self: Arrivals, group: str) -> Any:
        if dies and self.ctx.round == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return close(self, group)

    Arrivals.close = die  # type: ignore[method-assign]
    start(folder, plain, engine="parties", engine_options={"parties": str(where)})


def test_real_parties_give_what_one_process_gives_also_when_the_server_is_killed_and_resumed(tmp_path: Path) -> None:
    """Two clients and a key server with BFV: the same model bit for bit, the same bytes, no secret key outside the key
    server's folder; the round that was repeated is charged, and noted by the parties."""
    plain, where = encrypted(rounds=3), tmp_path / "parties"
    with parties(where, plain) as there:
        server = get_context("forkserver").Process(target=serve, args=(tmp_path / "runs", plain, where, True))
        server.start()
        server.join()
        assert server.exitcode == -signal.SIGKILL
        (run,) = (tmp_path / "runs").iterdir()
        assert Checkpoints(run).rounds() == [0, 1]
        assert all(process.is_alive() for process in there.processes.values())
        resume(run, engine="parties", engine_options={"parties": str(where)})
        for process in there.processes.values():
            process.join(10)
        assert [process.exitcode for process in there.processes.values()] == [0, 0, 0]
        assert "round 2: answered fedplug.protect" in there.said("client:0")
        assert there.said("client:0").count("a server has joined") == 2
        assert there.said("client:0").count("round 2: answered") == 2

    local = start(tmp_path / "local", plain)
    assert rows_of(run) == rows_of(local)
    for one, other in zip(rows_of(run, times=True), rows_of(local, times=True), strict=True):
        assert set(TIMES) <= one.keys()
        for way in ("up", "down"):
            sizes = [row["bytes"][way]["total"] - row["bytes"][way]["zones"].get("encrypted", 0) for row in (one, other)]
            assert sizes[0] == sizes[1]  # ciphertexts are compressed, and differ with every key
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
    """One between two questions of a round; the key server between two rounds; one that comes back rounds later."""
    plain = encrypted(rounds=6, clients=3)
    plain["score_parameters"] = [{"use": "toy.fail", "clients": [1], "rounds": [3], "how": "kill"}]
    with parties(tmp_path / "parties", plain) as there:
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
            (tmp_path / "end" / "round-0006").mkdir(parents=True)
            checked.engine.save(tmp_path / "end" / "round-0006")
        finally:
            checked.engine.close()
        dropped = checked.dropped()
        ours = vectors_in(tmp_path / "parties")
    assert [sorted(lost) for lost in dropped] == [[], [], [], [1], [1], []]
    assert "gave no answer" in dropped[3][1]
    assert "nobody listens at" in dropped[4][1]
    assert "fedplug party" in dropped[4][1]
    assert all(np.array_equal(ours["client-0"], vector) for vector in ours.values())
