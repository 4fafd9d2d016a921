"""DOC"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fedplug.api.blocks import Block
from fedplug.api.errors import FedplugError, ProtectionError
from fedplug.api.events import Events, Released
from fedplug.engines.base import Engine, Job
from fedplug.engines.local import LocalEngine
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.protocol import Protocol
from fedplug.round.steps import opened_once
from fedplug.round.sums import Arrivals
from fedplug.wire.calls import Call, Reply, read_reply, request
from fedplug_ledger.charging import Charging
from fedplug_runs import execution
from fedplug_runs.archive import Archive
from fedplug_runs.checkpoint import Checkpoints, StateFiles
from fedplug_runs.folder import read_rows
from fedplug_runs.rows import Row
from fedplug_runs.settings import Settings
from fedplug_std.pool import KEY_SERVER_MEMBER
from fedplug_std.processes import ProcessEngine
from toy_components import recipe_of, toy_catalog
from toy_protocol import build

ENGINES = ("local", "processes")


class Killed(Exception):
    """Represents a kill inside the process."""


def sealed(holder: str, rounds: int = 3, **changes: Any) -> dict[str, Any]:
    """The whole model in one encrypted zone, so a round without it does not change the model."""
    return recipe_of("encrypted", [{"use": "std.bfv", "key_holder": holder, "range": 0.5}], rounds=rounds, **changes)


def settings_of(tmp_path: Path, engine: str = "local") -> Settings:
    return Settings.load().replace({"engine": engine, "workers": 1, "output": tmp_path, "quiet": True})


def start(plain: dict[str, Any], settings: Settings) -> Path:
    code, folder = execution.start(Recipe.from_plain(plain, toy_catalog()), settings, toy_catalog())
    assert code == 0
    return folder


def start_and_die(plain: dict[str, Any], settings: Settings, monkeypatch: pytest.MonkeyPatch, round: int) -> Path:
    """A run that ends in a round (0-based) after its sums were opened, and before its checkpoint."""
    charge = Charging._released

    def killed(self: Charging, event: Released) -> None:
        if event.round == round:
            raise Killed
        charge(self, event)

    with monkeypatch.context() as patch:
        patch.setattr(Charging, "_released", killed)
        with pytest.raises(Killed):
            execution.start(Recipe.from_plain(plain, toy_catalog()), settings, toy_catalog())
    (folder,) = settings.output.iterdir()
    assert Checkpoints(folder).rounds()[-1] == round
    return folder


def resume(folder: Path, settings: Settings, round: int | None = None) -> None:
    assert execution.resume(folder, settings, round, toy_catalog()) == 0


def noted(folder: Path, party: str) -> list[dict[str, Any]]:
    notes = []
    for file in sorted((folder / "openings").iterdir()):
        for note in map(json.loads, file.read_text().splitlines()):
            by = [f"client-{client}" for client in note["by"]] if "by" in note else [file.stem]
            notes += [note] if party in by else []
    return notes


def rows_of(folder: Path) -> list[Row]:
    return read_rows(folder)


def told(folder: Path) -> list[str]:
    """The rounds and zones that the ledger says were not opened again."""
    warnings: list[str] = json.loads((folder / "ledger.json").read_text())["warnings"]
    return [warning for warning in warnings if "a second time" in warning]


SAID = "round {} was repeated; zone encrypted was not opened a second time"


# -- the key server ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_a_repeated_round_goes_on_without_the_zone_that_the_key_server_opened(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_of(tmp_path, engine)
    folder = start_and_die(sealed("key_server"), settings, monkeypatch, 1)
    before = noted(folder, "key_server")
    assert [(note["round"], note["zone"], note["group"], note["clients"]) for note in before] == [
        (round, "encrypted", "all", [0, 1, 2, 3]) for round in (0, 1)
    ]
    assert (folder / "openings" / "key_server.jsonl").stat().st_mode & 0o777 == 0o600
    assert (folder / "openings").stat().st_mode & 0o777 == 0o700

    resume(folder, settings)
    after = noted(folder, "key_server")
    assert after[:2] == before
    assert [note["round"] for note in after] == [0, 1, 2]
    assert told(folder) == [SAID.format(2)]
    note = "note: round 2: zone encrypted is skipped: the key server refused fedplug.open: a sum of zone encrypted in "
    assert note + "round 2 was opened before, with other ciphertexts" in capsys.readouterr().out
    losses = [row.loss for row in rows_of(folder)]
    assert losses[0] == losses[1] > losses[2]  # the model stayed in round 2, and moved again in round 3


def test_a_round_that_is_repeated_again_and_again_stays_closed_and_the_ledger_keeps_saying_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, noise = settings_of(tmp_path), {"use": "std.gaussian", "noise_multiplier": 2.0, "source": "secure"}
    chain = [{"use": "std.clip", "norm": 1.0}, noise, {"use": "std.bfv", "key_holder": "key_server", "range": 0.5}]
    folder = start_and_die(recipe_of("encrypted", chain, rounds=3), settings, monkeypatch, 1)
    resume(folder, settings)
    resume(folder, settings, 2)  # of which the ledger is read, and round 3 is repeated
    assert told(folder) == [SAID.format(2), SAID.format(3)]
    assert len(noted(folder, "key_server")) == 3
    log = json.loads((folder / "ledger.json").read_text())["log"]
    assert [entry["round"] for entry in log] == [1, 2, 2, 3, 3]  # each attempt is charged, as without an encryption


def test_a_sum_of_others_in_a_repeated_round_stays_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The case that matters: a client is missing in the second attempt, so the difference would be its update."""
    settings = settings_of(tmp_path)
    plain = sealed("key_server", rounds=2, min_clients=2)
    folder = start_and_die(plain, settings, monkeypatch, 1)
    without: list[int] = []
    take = Arrivals.take

    def without_one(self: Arrivals, client_id: int, reply: Any) -> None:
        if client_id != 3:
            take(self, client_id, reply)
            return
        without.append(3)
        self.office.drop(3, "it left")

    monkeypatch.setattr(Arrivals, "take", without_one)
    resume(folder, settings)
    assert without == [3]
    assert rows_of(folder)[1].clients.answered == 3
    assert [note["clients"] for note in noted(folder, "key_server")] == [[0, 1, 2, 3], [0, 1, 2, 3]]
    assert told(folder) == [SAID.format(2)]


def running(engine: str, folder: Path) -> tuple[Protocol, Engine]:
    """A protocol whose parties keep their notes in a folder."""
    from fedplug.round.world import load_data
    from fedplug_runs.wire_record import Wire

    recipe = Recipe.from_plain(sealed("key_server", rounds=1), toy_catalog())
    composition = Composition(recipe)
    job = Job(recipe.to_plain(), workers=1, key_server=True, catalog=toy_catalog(), store=StateFiles(folder))
    started: Engine = LocalEngine(job) if engine == "local" else ProcessEngine(job)
    data, public = load_data(recipe, composition.components, None)
    model = composition.components[recipe.model.name].build(data.shape, len(data.classes), recipe.seed, "cpu")
    arguments = (recipe, composition, started, model.layout, Wire(keep=True), Events(), model, public)
    return Protocol(*arguments), started


@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_bytes_from_the_same_clients_are_opened_again(engine: str, tmp_path: Path) -> None:
    """As if the key server ended after it opened a sum and before its answer arrived. It is asked again."""
    protocol, first = running(engine, tmp_path)
    protocol.setup()
    Checkpoints(tmp_path).write(0, protocol.state(), first)
    protocol.round(0)
    (asked,) = [m.data for m in protocol.wire.messages if m.receiver == "key_server" and m.round == 0]
    (answer,) = [m.data for m in protocol.wire.messages if m.sender == "key_server" and m.round == 0]
    if isinstance(first, ProcessEngine):
        first._members[KEY_SERVER_MEMBER].process.kill()
        first._members[KEY_SERVER_MEMBER].process.join()
        second: Engine = first  # which starts the key server again
    else:
        second = running(engine, tmp_path)[1]
        second.load(Checkpoints(tmp_path).path(0))

    def reply(data: bytes) -> Reply:
        ((_, found),) = second.exchange({"key_server": data})
        assert isinstance(found, bytes)
        return read_reply(found)[0]

    name, block, plain, group, senders = _payload(asked)
    assert reply(asked).value.values.tobytes() == read_reply(answer)[0].value.values.tobytes()
    assert len(noted(tmp_path, "key_server")) == 1
    changed = block.replace(ciphertexts=(*block.ciphertexts[:-1], block.ciphertexts[-1] + b"\0"))
    others = [
        ((name, changed, plain, group, senders), "OpenedBefore", "with other ciphertexts"),
        ((name, block, plain, group, [0, 1, 2, 7]), "OpenedBefore", "from other clients"),
        ((name, changed, plain, "another", senders), "OpenedBefore", "with other ciphertexts"),
        ((name, block, plain, group, senders[1:]), "ProtectionError", "4 updates came with the numbers of"),
    ]
    for payload, kind, why in others:
        call = Call.of(protocol.steps.open, payload, "key_server", 0)
        error = reply(request(protocol.recipe.digest, [call])[0]).error
        assert (error.kind, why in error.message) == (kind, True)
    assert len(noted(tmp_path, "key_server")) == 1
    second.close()
    first.close()


def _payload(asked: bytes) -> list[Any]:
    from fedplug.api import codec

    (body,) = codec.decode(codec.unframe(asked))["calls"]
    payload: list[Any] = codec.decode(body)[4]
    return payload


# -- clients that hold the key -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_clients_that_hold_the_key_refuse_another_sum_of_a_round_they_have_opened(engine: str, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, engine)
    folder = start(sealed("clients"), settings)
    before = {f"client-{c}": noted(folder, f"client-{c}") for c in range(4)}
    assert [[note["round"] for note in notes] for notes in before.values()] == [[0, 1, 2]] * 4
    first = rows_of(folder)
    resume(folder, settings, 2)
    (told_row,) = rows_of(folder)[2].unopened
    assert (told_row.zone, told_row.clients) == ("encrypted", [0, 1, 2, 3])
    assert "a sum of zone encrypted in round 3 was opened before" in told_row.reason
    assert told(folder) == [SAID.format(3)]
    assert [row.loss for row in rows_of(folder)[:2]] == [row.loss for row in first[:2]]
    assert rows_of(folder)[2].loss == first[1].loss != first[2].loss
    assert {f"client-{c}": noted(folder, f"client-{c}") for c in range(4)} == before


@pytest.mark.parametrize("engine", ["local", pytest.param("processes", marks=pytest.mark.slow)])
def test_clients_open_the_same_bytes_again_after_a_kill_and_end_as_if_nothing_had_happened(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In round 2 they open the sum of round 1, and then the run dies: the checkpoint tells them that sum once more."""
    whole = start(sealed("clients"), settings_of(tmp_path / "whole", engine))
    settings = settings_of(tmp_path / "killed", engine)
    folder = start_and_die(sealed("clients"), settings, monkeypatch, 1)
    assert [note["round"] for note in noted(folder, "client-2")] == [0]
    resume(folder, settings)
    assert [note["round"] for note in noted(folder, "client-2")] == [0, 1, 2]
    assert [row.loss for row in rows_of(folder)] == [row.loss for row in rows_of(whole)]
    assert not any(row.unopened for row in rows_of(folder))
    assert told(folder) == []


def test_a_client_whose_process_dies_opens_the_last_sum_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row of round 1 is there when the clients have opened its sum, before the checkpoint of round 2."""
    write, victims = Archive.add_row, list[Any]()

    def killing(self: Archive, *arguments: Any) -> None:
        write(self, *arguments)
        if not victims:
            victims.extend(child for child in multiprocessing.active_children() if child.name == "worker-0")
            victims[0].kill()
            victims[0].join()

    monkeypatch.setattr(Archive, "add_row", killing)
    folder = start(sealed("clients", min_clients=2), settings_of(tmp_path, "processes"))
    assert len(victims) == 1
    assert not any(row.unopened for row in rows_of(folder))
    assert told(folder) == []
    assert [note["round"] for note in noted(folder, "client-0")] == [0, 1, 2]


# -- the notes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "holder"), [("local", "clients"), ("local", "key_server"), ("processes", "key_server")]
)
def test_notes_that_are_missing_or_shortened_end_a_resume(engine: str, holder: str, tmp_path: Path) -> None:
    """Going back to a checkpoint from before the missing line does not help either."""
    settings = settings_of(tmp_path / "runs", engine)
    folder = start(sealed(holder, rounds=2 if holder == "key_server" else 3), settings)  # a client opens a round later
    file = folder / "openings" / ("key_server.jsonl" if holder == "key_server" else "client-0.jsonl")
    lines = file.read_text().splitlines(keepends=True)
    ledger = (folder / "ledger.json").read_bytes()
    assert len(lines) == (2 if holder == "key_server" else 3)  # a round, whichever of its clients opened it
    damages = [(lines[:1], "has 1 notes of "), (None, "has 0 notes of ")]
    for left, found in damages if engine == "local" else damages[:1]:
        file.unlink()
        if left is not None:
            file.write_text("".join(left))
        for round in (Checkpoints(folder).rounds()[0], None) if engine == "local" else (None,):
            with pytest.raises(FedplugError) as caught:
                execution.resume(folder, settings, round, toy_catalog())
            said = f"{file.parent} {found}{file.stem}, but a checkpoint knows of 2 sums that it opened"
            assert said in str(caught.value)
            assert "go back" not in str(caught.value)
    assert (folder / "ledger.json").read_bytes() == ledger


def test_openings_outlive_the_checkpoints(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    folder = start(sealed("key_server", rounds=2), settings)
    shutil.rmtree(folder / "checkpoint")
    resume(folder, settings)
    assert told(folder) == [SAID.format(1), SAID.format(2)]


# -- one process at a time ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("round", [-1, 2, 100_000])
def test_no_sum_is_opened_of_a_round_that_the_recipe_does_not_have(round: int) -> None:
    """Otherwise a party that invents rounds could have any number of sums of the same clients opened."""
    party: Any = SimpleNamespace(facts=SimpleNamespace(round=round, rounds=2))
    block = Block("encrypted", 3, ciphertexts=(b"",), sealed_by="std.bfv", contributors=2)
    said = f"a sum of round {round + 1}, and the recipe has 2 rounds"
    with pytest.raises(ProtectionError, match=said), opened_once(party, block, "all", [0, 1]):
        pytest.fail("it was opened")


@pytest.mark.parametrize(("seal", "refuses"), [("std.bfv", True), ("fas.scramble", False)])
def test_who_opens_with_a_key_holds_the_server_to_min_clients(seal: str, refuses: bool) -> None:
    """Whatever the sealer does. Not of a zone that is scrambled alone: the server has seen every upload of it."""
    plain = recipe_of("encrypted", [seal], min_clients=3, postprocess={"encrypted": [seal]})
    _, engine, _ = build(plain)
    assert isinstance(engine, LocalEngine)
    client = engine.clients.clients["client:0"]
    engine.clients._at_round(client, 0)
    for contributors in (2, 3):
        block = Block("encrypted", 3, ciphertexts=(b"",), sealed_by=seal, contributors=contributors)
        with contextlib.ExitStack() as stack:
            if refuses and contributors == 2:
                said = "holds 2 updates; opening fewer than min_clients=3 would show too much of each"
                stack.enter_context(pytest.raises(ProtectionError, match=said))
            stack.enter_context(opened_once(client, block, "all", [0, 1, 2]))
    engine.close()
