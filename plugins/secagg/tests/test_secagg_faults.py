"""Clients that are really killed in each phase of a round, in worker processes and in separate programs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from fault_toys import KILLS, Faulty, away, closed, epsilon, in_one_process, killed, mortal, serve
from fedplug.api.events import Asking
from fedplug_std.processes import ProcessEngine
from party_toys import SECONDS, Parties, parties
from run_toys import resume
from toy_protocol import run_protocol


def restarting(there: Parties, after: Callable[[int], bool] = lambda done: True) -> Callable[[Any, Any], None]:
    """Restarts parties that were killed, after these rounds."""

    def prepare(protocol: Any, engine: Any) -> None:
        def on_round(done: int) -> None:
            lost.update(f"client:{client_id}" for client_id in protocol.office.lost)
            for address in sorted(lost) if after(done) else ():
                there.processes[address].join(SECONDS)
                assert there.processes[address].exitcode == -signal.SIGKILL
                there.start(address)
                there.listening(address)
            if after(done):
                lost.clear()

        lost: set[str] = set()
        protocol.after_each_round(on_round)

    return prepare


NAMES = [
    "Bonawitz", pytest.param("Plus", marks=pytest.mark.slow), pytest.param("Lwe", marks=pytest.mark.slow),
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES[:2])
def test_an_error_costs_what_being_away_costs(name: str, tmp_path: Path) -> None:
    """The reference for the runs below."""
    assert in_one_process(name, KILLS).protocol.ledger.log == away(name, KILLS, tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_a_worker_that_is_killed_in_any_phase_costs_its_client_that_round(name: str, tmp_path: Path) -> None:
    kills = [kill for kill in KILLS if name != "Lwe" or kill.split()[2] not in ("advertise", "dealt")]
    run = Faulty(mortal(name, kills), "processes", tmp_path)
    assert [sorted(lost) for lost in run.dropped] == killed(kills)
    assert all("ended with code -9" in why for lost in run.dropped for why in lost.values())
    assert not any("skipped" in note for note in run.notes)
    run.require_equal(in_one_process(name, kills))


def test_one_that_was_killed_after_its_upload_is_asked_for_shares_that_it_has_lost(tmp_path: Path) -> None:
    """It is back before that question, from the last checkpoint. It says so and drops out, and others open the sum."""

    def prepare(protocol: Any, engine: Any) -> None:
        def on_opening(event: Asking) -> None:
            if event.round == 1 and event.what == "opening":
                worker = engine._members[4].process
                os.kill(worker.pid, signal.SIGKILL)
                worker.join()

        assert isinstance(engine, ProcessEngine)
        protocol.events.subscribe(Asking, on_opening)

    run = Faulty(mortal(rounds=3), "processes", tmp_path, prepare)
    assert [sorted(lost) for lost in run.dropped] == [[], [4], []]
    assert "client 4 has no keys of round 2; its process was started again in the middle of it" in run.dropped[1][4]
    run.require_equal(run_protocol(mortal(rounds=3)))


@pytest.mark.parametrize("engine", ["processes", pytest.param("parties", marks=pytest.mark.slow)])
def test_lies_replays_and_too_few_shares_skip_the_sum_and_cost_what_was_in_hand(engine: str, tmp_path: Path) -> None:
    faults = ["1 2 lies", "2 1 replays", "4 0 opening", "4 2 opening", "4 3 answered", "4 5 opening"]
    plain = mortal(faults=faults, rounds=5, source="secure")
    if engine == "processes":
        run = Faulty(plain, engine, tmp_path)
    else:
        with parties(tmp_path / "parties", plain) as there:
            there.listening()
            run = Faulty(plain, there.engine, tmp_path, restarting(there))
    said = [next((note for note in run.notes if note.startswith(f"round {r}: zone")), "") for r in range(1, 6)]
    assert "do not belong together: at least one of them is wrong" in said[0]
    assert "1 clients answered with a share of client 0's own mask, and 3 open it" in said[1]
    assert "2 clients answered with a share of client 0's own mask, and 3 open it" in said[3]
    assert said[2] == said[4] == ""
    assert sorted(run.dropped[1]) == [0, 2, 3, 4, 5]
    assert "the letter of client 1 about shares does not open" in run.dropped[1][0]
    # Of the first sum the server had all shares in hand, of the others too few.
    assert closed(run.log) == [False, True, False, True, False]
    assert epsilon(run.protocol) == epsilon(run_protocol(mortal(rounds=3, source="secure")).protocol)


@pytest.mark.slow
def test_where_keys_are_signed_a_kill_of_one_in_six_keeps_the_sum_closed_and_costs_nothing(tmp_path: Path) -> None:
    """Five others must then open a client's secrets, so no client may be missing. Of nine, one may."""
    signed = {"threshold": None, "signed": True}
    run = Faulty(mortal(faults=["1 2 sealed", "2 3 opening"], rounds=3, **signed), "processes", tmp_path)
    assert closed(run.log) == [True, True, False]
    assert any("0 clients have signed who is in the sum, and 5 must; nobody is asked" in note for note in run.notes)
    assert any("4 clients answered with a share of client" in note for note in run.notes)


@pytest.mark.slow
def test_where_keys_are_signed_one_of_nine_may_be_killed_in_any_phase(tmp_path: Path) -> None:
    kills = ["1 1 advertise", "2 2 dealt", "3 3 sealed", "4 4 agreeing", "5 5 opening"]
    signed: dict[str, Any] = {"threshold": None, "signed": True, "clients": 9, "rounds": 6}
    run = Faulty(mortal(faults=kills, **signed), "processes", tmp_path)
    assert [sorted(lost) for lost in run.dropped] == killed(kills, 6)
    assert not any("skipped" in note for note in run.notes)
    run.require_equal(in_one_process("Bonawitz", kills, **signed))


def test_a_party_that_is_killed_comes_back_after_its_round(tmp_path: Path) -> None:
    """Killed between its shares and its upload, or when asked for shares. After a restart, each takes part again."""
    kills = ["1 3 sealed", "2 5 opening"]
    plain = mortal(faults=kills, rounds=4)
    with parties(tmp_path / "parties", plain) as there:
        there.listening()
        run = Faulty(plain, there.engine, tmp_path, restarting(there, lambda done: done == 2))
    assert [sorted(lost) for lost in run.dropped] == [[3], [3, 5], [], []]
    assert "gave no answer" in run.dropped[0][3]
    assert "no party listens at" in run.dropped[1][3]
    assert "gave no answer" in run.dropped[1][5]
    run.require_equal(in_one_process("Bonawitz", [*kills, "2 3 advertise"], rounds=4))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Bonawitz", "Plus"])
def test_a_party_that_is_killed_in_any_phase_costs_its_client_that_round(name: str, tmp_path: Path) -> None:
    plain = mortal(name, KILLS)
    with parties(tmp_path / "parties", plain) as there:
        there.listening()
        run = Faulty(plain, there.engine, tmp_path, restarting(there))
    assert [sorted(lost) for lost in run.dropped] == killed(KILLS)
    run.require_equal(in_one_process(name, KILLS))


@pytest.mark.slow
def test_a_party_that_is_back_before_the_opening_says_that_it_has_lost_its_shares(tmp_path: Path) -> None:
    plain = mortal(rounds=3)
    with parties(tmp_path / "parties", plain) as there:
        there.listening()

        def prepare(protocol: Any, engine: Any) -> None:
            def on_opening(event: Asking) -> None:
                if event.round == 1 and event.what == "opening":
                    there.kill("client:4")
                    there.start("client:4")
                    there.listening("client:4")

            protocol.events.subscribe(Asking, on_opening)

        run = Faulty(plain, there.engine, tmp_path, prepare)
    assert [sorted(lost) for lost in run.dropped] == [[], [4], []]
    assert "client 4 has no keys of round 2; its process was started again" in run.dropped[1][4]
    run.require_equal(run_protocol(plain))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["processes", "parties"])
@pytest.mark.parametrize("moment", ["asking", "in hand"])
def test_a_server_that_is_killed_at_the_opening_opens_nothing_twice_and_pays_what_it_had(
    moment: str, engine: str, tmp_path: Path
) -> None:
    """Its round is repeated. Clients that gave shares give none in the second attempt, whose sum stays closed. Clients
    that were not asked before do. The ledger counts the first sum as opened, since it had noted the question."""
    plain = mortal(rounds=3, source="secure")
    settings: dict[str, Any] = {"engine": engine}
    with contextlib.ExitStack() as stack:
        if engine == "parties":
            stack.enter_context(parties(tmp_path / "parties", plain)).listening()
            settings["engine_options"] = {"parties": str(tmp_path / "parties")}
        server = get_context("forkserver").Process(target=serve, args=(tmp_path / "runs", plain, moment, settings))
        server.start()
        server.join()
        assert server.exitcode == -signal.SIGKILL
        (folder,) = (tmp_path / "runs").iterdir()
        assert resume(folder, **settings) == 0
    ledger = json.loads((folder / "ledger.json").read_text())
    sums = [(entry["round"], bool(entry["zones"]["encrypted"].get("closed"))) for entry in ledger["log"]]
    assert sums == [(1, False), (2, False), (2, moment == "in hand"), (3, False)]
    told = "round 2 was repeated; zone encrypted was not opened a second time"
    assert (told in ledger["warnings"]) == (moment == "in hand")
    opened = [json.loads(line) for line in next(tmp_path.glob("**/openings/client-1.jsonl")).read_text().splitlines()]
    assert [each["round"] for each in opened] == [0, 1, 2]
