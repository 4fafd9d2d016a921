"""The engine with carriers that lose, repeat and reorder messages, and with parties that fail or are killed."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import shutil
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_toys import Checked, encrypted, plain_of
from fedplug.api import codec
from fedplug.api.errors import CheckpointError, ClientError, PartyLost, SetupError
from fedplug.engines.base import Job
from fedplug_party.engine import PartyEngine
from fedplug_party.frames import Request
from fedplug_party.sockets import SocketEngine, SocketTransport
from fedplug_runs.checkpoint import StateFiles
from party_toys import SECONDS, Beside, parties
from run_toys import start
from toy_components import UNANIMOUS, paraaegis
from toy_protocol import build, run_protocol


class Unruly:
    """Delivers every request twice, and replies in reverse order between old replies and copies."""

    def __init__(self, beside: Beside) -> None:
        self.beside, self.old = beside, list[tuple[str, bytes | PartyLost]]()
        self.dropped = 0

    def exchange(self, requests: Mapping[str, bytes], seconds: float) -> Iterator[tuple[str, bytes | PartyLost]]:
        first = list(self.beside.exchange(requests, seconds))
        assert list(self.beside.exchange(requests, seconds)) == first
        yield from self.old
        self.old = [*self.old[-4:], *first]
        for answer in reversed(first):
            yield from (answer, answer)

    def close(self) -> None:
        self.beside.close()


def test_duplicate_late_and_reordered_requests_and_replies_change_nothing(tmp_path: Path) -> None:
    """Two clients and a key server give the same model as one process, although all of that happens."""
    plain = encrypted()
    beside = Beside(tmp_path, plain)
    checked = Checked(plain, lambda job: PartyEngine(job, Unruly(beside)), tmp_path)
    checked.set_up()
    checked.protocol.run()
    assert checked.dropped() == [{}, {}]
    notes = [party.state.notes for party in beside.parties.values()]
    assert [sum("answered" in line for line in each.lines) for each in notes] == [3, 3, 0]  # the last: evaluations
    ours = checked.vectors(tmp_path)
    checked.engine.close()
    assert beside.closed
    assert all(party.over for party in beside.parties.values())
    local = run_protocol(plain)
    assert all(np.array_equal(local.vector, vector) for vector in ours.values())
    messages = [message for message in local.wire.messages if message.size]
    assert 0 < checked.engine.framing < 1000 * len(messages)


def test_a_reply_that_is_lost_costs_the_client_the_round_and_nothing_is_run_twice(tmp_path: Path) -> None:
    beside = Beside(tmp_path, plain_of(rounds=3))

    class Losing:
        lose = False

        def exchange(self, requests: Mapping[str, bytes], seconds: float) -> Iterator[tuple[str, bytes | PartyLost]]:
            for address, answer in beside.exchange(requests, seconds):
                lost = self.lose and address == "client:1" and beside.asked[-1].command == "deliver"
                yield address, PartyLost("the line broke") if lost else answer

        def close(self) -> None:
            """There is nothing to close."""

    carrier = Losing()
    checked = Checked(plain_of(rounds=3), lambda job: PartyEngine(job, carrier), tmp_path)
    checked.protocol.after_each_round(lambda done: setattr(carrier, "lose", done == 1))
    checked.set_up()
    checked.protocol.run()
    assert checked.dropped() == [{}, {1: "the line broke"}, {}]
    assert beside.parties["client:1"].state.notes.repeats == 0
    vectors = checked.vectors(tmp_path)
    assert len(vectors) == 3
    assert all(np.array_equal(vectors["client-0"], vector) for vector in vectors.values())


def test_a_party_that_was_away_when_the_others_saved_goes_on_from_its_own_checkpoint(tmp_path: Path) -> None:
    """It catches up with everything it missed. It keeps the checkpoint that the server's checkpoint lists."""
    plain = encrypted(rounds=5, clients=3)
    beside = Beside(tmp_path / "parties", plain)

    def before_saving(done: int) -> None:
        if done == 2:
            beside.kill("client:1")

    checked = Checked(plain, beside.engine, tmp_path, before_saving)
    checked.protocol.after_each_round(lambda done: beside.start("client:1") if done == 3 else None)
    checked.set_up()
    checked.protocol.run()
    vectors = checked.vectors(tmp_path)
    assert [sorted(lost) for lost in checked.dropped()] == [[], [], [1], [], []]
    assert all(np.array_equal(vectors["client-0"], vector) for vector in vectors.values())
    loaded = [request.checkpoint for request in beside.asked if request.command == "load"]
    assert [name[0] for name in loaded] == ["1"]


def test_a_folder_that_was_put_back_from_a_backup_is_refused_by_the_server_and_costs_nobody_else(
    tmp_path: Path,
) -> None:
    """Its notes are as old as the rest, so only the server notices. With the right folder the party returns."""
    plain = plain_of(rounds=5)
    beside = Beside(tmp_path / "parties", plain)
    mine, old, new = (tmp_path / name for name in ("parties/client-1", "old", "new"))

    def put_back(folder: Path) -> None:
        shutil.rmtree(mine)
        shutil.copytree(folder, mine)
        beside.start("client:1")

    def on_round(done: int) -> None:
        if done == 1:
            shutil.copytree(mine, old)
        elif done == 3:
            beside.kill("client:1")
            shutil.copytree(mine, new)
            put_back(old)
        elif done == 4:
            beside.kill("client:1")
            put_back(new)

    checked = Checked(plain, beside.engine, tmp_path)
    checked.protocol.after_each_round(on_round)
    checked.set_up()
    checked.protocol.run()
    dropped = checked.dropped()
    assert [sorted(lost) for lost in dropped] == [[], [], [], [1], []]
    assert "client:1 must continue from 3-" in dropped[3][1]
    assert "if the folder was restored from an older copy" in dropped[3][1]
    vectors = checked.vectors(tmp_path)
    assert all(np.array_equal(vectors["client-0"], vector) for vector in vectors.values())


def test_a_key_server_that_dies_is_awaited_and_asked_again(tmp_path: Path) -> None:
    """It returns with the keys of its checkpoint. If it stays away, the run stops."""
    plain = encrypted(rounds=3)
    beside = Beside(tmp_path / "parties", plain)

    class Deadly:
        dies, asked, back_after = False, 0, 2

        def exchange(self, requests: Mapping[str, bytes], seconds: float) -> Iterator[tuple[str, bytes | PartyLost]]:
            if self.dies and "key_server" in requests and Request.read(requests["key_server"]).command == "deliver":
                list(beside.exchange(requests, seconds))  # it opens the sum and dies before it can answer
                beside.kill("key_server")
                self.dies, self.asked = False, 0
            elif "key_server" not in beside.parties:
                self.asked += 1
                if self.asked == self.back_after:
                    beside.start("key_server")
            yield from beside.exchange(requests, seconds)

        def close(self) -> None:
            """There is nothing to close."""

    carrier = Deadly()
    checked = Checked(plain, lambda job: PartyEngine(job, carrier, SECONDS), tmp_path)
    checked.set_up()
    carrier.dies = True
    checked.protocol.round(0)
    assert len(beside.parties["key_server"].state.notes.lines) == 4  # begun, saved, sent back, saved
    checked.protocol.round(1)
    assert [row.clients.answered for row in checked.protocol.rows] == [2]
    carrier.dies, carrier.back_after = True, -1
    checked.engine._patience = 0.5
    with pytest.raises(ClientError, match="the key server is gone: key_server is not there"):
        checked.protocol.round(2)


def test_a_party_with_another_recipe_is_refused_when_the_server_starts(tmp_path: Path) -> None:
    beside = Beside(tmp_path, plain_of())
    with pytest.raises(SetupError, match=r"client:0 refuses: it was started with recipe \w{12}"):
        build(plain_of(rounds=3), beside.engine)
    assert beside.closed


def test_a_server_that_goes_back_further_than_the_parties_can_is_told(tmp_path: Path) -> None:
    beside = Beside(tmp_path / "parties", plain_of(rounds=4))
    checked = Checked(plain_of(rounds=4), beside.engine, tmp_path)
    checked.checkpoints.kept = None
    checked.set_up()
    checked.protocol.run()
    with pytest.raises(CheckpointError, match=r"client:0 must continue from 1-\w+, but its folder has 3-\w+, 4-\w+;"):
        checked.engine.load(checked.checkpoints.path(1))
    checked.engine.load(checked.checkpoints.path(3))


def test_a_party_that_cannot_save_stops_the_run_with_its_reason(tmp_path: Path) -> None:
    beside = Beside(tmp_path / "parties", plain_of(rounds=1))
    checked = Checked(plain_of(rounds=1), beside.engine, tmp_path)
    checked.protocol.setup()
    (tmp_path / "parties/client-1/checkpoint").write_text("in the way")
    with pytest.raises(SetupError, match=r"client:1 could not save its state: .*File exists"):
        checked.save(0)
    (tmp_path / "parties/client-1/checkpoint").unlink()
    beside.kill("client:2")
    with pytest.raises(SetupError, match="client:2 is not there; every party must save what was agreed before round 1"):
        checked.save(0)


def test_a_reply_that_nobody_can_read_costs_that_client_the_round_alone(tmp_path: Path) -> None:
    beside = Beside(tmp_path, plain_of(rounds=1))

    class Strange:
        strange = False

        def exchange(self, requests: Mapping[str, bytes], seconds: float) -> Iterator[tuple[str, bytes | PartyLost]]:
            for address, answer in beside.exchange(requests, seconds):
                if self.strange and address == "client:1" and isinstance(answer, bytes):
                    plain: Any = codec.decode(codec.unframe(answer))
                    yield address, codec.frame(codec.encode({**plain, "outcome": np.array([1, 2])}))
                else:
                    yield address, answer

        def close(self) -> None:
            """There is nothing to close."""

    carrier = Strange()
    checked = Checked(plain_of(rounds=1), lambda job: PartyEngine(job, carrier, 0.1), tmp_path)
    checked.set_up()
    carrier.strange = True
    checked.protocol.run()
    ((lost, why),) = checked.dropped()[0].items()
    assert lost == 1
    assert "a reply that cannot be read: a malformed reply: outcome is" in why


def test_a_full_disk_at_one_site_ends_the_run_for_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that cannot save counts as away and returns later. Without the key server the run stops."""
    plain = encrypted(rounds=3, clients=3)
    beside = Beside(tmp_path / "parties", plain)

    def full(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    def before_saving(done: int) -> None:
        if done == 1:
            monkeypatch.setattr(beside.parties["client:1"].host, "save", full)

    def engine(job: Job) -> PartyEngine:
        return beside.engine(dataclasses.replace(job, store=StateFiles(tmp_path)))

    checked = Checked(plain, engine, tmp_path, before_saving)
    checked.set_up()
    checked.protocol.run()
    assert checked.dropped() == [{}, {}, {}]
    assert re.search("client:1 could not save its state: .*No space left", (tmp_path / "errors.log").read_text())
    loaded = [request.address for request in beside.asked if request.command == "load"]
    assert loaded == ["client:1"]
    assert set(beside.parties["client:1"].state.kept()) <= set(beside.parties["client:0"].state.kept())
    monkeypatch.setattr(beside.parties["key_server"].host, "save", full)
    with pytest.raises(SetupError, match=r"key_server could not save its state: .*No space left"):
        checked.save(3)


def test_without_parties_there_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"client:0 did not join: no party listens at .*client-0/party.sock; start it"):
        build(plain_of(), lambda job: PartyEngine(job, SocketTransport(tmp_path), 0.1))
    plain = encrypted()
    beside = Beside(tmp_path, plain)
    beside.kill("key_server")
    with pytest.raises(SetupError, match="key_server did not join: key_server is not there"):
        build(plain, lambda job: PartyEngine(job, beside, 0.1))
    with pytest.raises(SetupError, match="needs to know where the parties are: --parties DIR"):
        build(plain, SocketEngine)


@pytest.mark.slow
def test_a_party_that_hangs_costs_the_others_one_deadline_and_may_return(tmp_path: Path) -> None:
    """A client that stops in a round is left out. The server asks briefly whether it is back, and lets it return."""
    plain = plain_of(rounds=5)
    with parties(tmp_path / "parties", plain) as there:
        client = there.processes["client:1"]
        there.listening()

        def on_round(done: int) -> None:
            if done in (1, 3):
                os.kill(client.pid, signal.SIGSTOP if done == 1 else signal.SIGCONT)

        engine = functools.partial(PartyEngine, transport=SocketTransport(there.folder), patience=8.0)
        checked = Checked(plain, lambda job: engine(dataclasses.replace(job, timeout=6)), tmp_path)
        checked.protocol.after_each_round(on_round)
        try:
            checked.set_up()
            checked.protocol.run()
            vectors = checked.vectors(tmp_path)
        finally:
            checked.engine.close()
        dropped = checked.dropped()
    assert [sorted(lost) for lost in dropped] == [[], [1], [1], [], []]
    assert "silent for longer than 6 seconds" in dropped[1][1]
    assert all(np.array_equal(vectors["client-0"], vector) for vector in vectors.values())


def test_a_run_on_another_engine_cannot_be_resumed_with_parties(tmp_path: Path) -> None:
    """Such a run keeps the clients' state in its folder. The message names its engine."""
    plain = plain_of(rounds=1)
    beside = Beside(tmp_path / "parties", plain)
    run = start(tmp_path / "runs", plain)
    checked = Checked(plain, beside.engine, tmp_path)
    with pytest.raises(CheckpointError, match=r"ran with the engine local.*: fedplug resume"):
        checked.engine.load(run / "checkpoint/round-0001")
    with pytest.raises(SetupError, match=r"elsewhere is not the checkpoint folder of a round, such as round-0007"):
        checked.engine.save(tmp_path / "elsewhere")


class Mortal:
    """Kills one party at its n-th request after the set-up, before or after it obeys. It returns at the next one."""

    def __init__(self, beside: Beside, address: str, nth: int, after: bool) -> None:
        self.beside, self.address, self.left, self.after = beside, address, nth, after
        self.counts, self.command = False, ""

    def exchange(self, requests: Mapping[str, bytes], seconds: float) -> Iterator[tuple[str, bytes | PartyLost]]:
        if self.address in requests and self.address not in self.beside.parties:
            self.beside.start(self.address)
        self.left -= self.counts and self.address in requests
        if not self.command and self.left < 0:
            self.command = Request.read(requests[self.address]).command
            if self.after:
                list(self.beside.exchange({self.address: requests[self.address]}, seconds))
            self.beside.kill(self.address)
        yield from self.beside.exchange(requests, seconds)

    def close(self) -> None:
        """Nothing to close."""


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("address", ["client:1", "key_server"])
def test_a_kill_at_any_moment_costs_a_round_at_most(address: str, after: bool, tmp_path: Path) -> None:
    """Whatever it does at the time: a ballot, an upload, an opening, a checkpoint, the last delivery."""
    seal = {"use": "std.bfv", "key_holder": "key_server"}
    plain = paraaegis(rounds=3, seal=seal, score_parameters=[UNANIMOUS], min_clients=2)
    whole = run_protocol(plain).vector
    killed: list[str] = []
    for nth in range(30):
        folder = tmp_path / str(nth)
        carrier = Mortal(Beside(folder / "parties", plain), address, nth, after)

        def engine(job: Job, carrier: Mortal = carrier, folder: Path = folder) -> PartyEngine:
            return PartyEngine(dataclasses.replace(job, store=StateFiles(folder)), carrier, 0.5)

        checked = Checked(plain, engine, folder)
        checked.set_up()
        carrier.counts = True
        checked.protocol.run()
        carrier.counts = False
        if not carrier.command:
            break
        killed.append(carrier.command)
        lost = [sorted(dropped) for dropped in checked.dropped()]
        assert sum(map(len, lost)) <= (address == "client:1"), (nth, carrier.command, lost)
        if checked.protocol.office.dropped:  # it missed the last delivery, which a resumed run repeats
            checked.engine.close()
            checked = Checked(plain, engine, folder)
            found = checked.checkpoints.read()
            assert found is not None
            checked.engine.load(found[2])
            checked.protocol.restore(found[1])
            checked.protocol.finish()
        vectors = checked.vectors(folder)
        assert all(np.array_equal(vectors["client-0"], vector) for vector in vectors.values()), (nth, carrier.command)
        if not any(lost):
            assert np.array_equal(vectors["client-0"], whole)
        notes = carrier.beside.parties["client:1"].state.notes
        assert notes.repeats <= 1
    assert {"deliver", "save"} == set(killed)
    assert len(killed) >= 6
