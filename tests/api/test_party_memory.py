"""The protocol's memory of its parties: saved as plain data, and checked when it is loaded."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedplug.api import codec
from fedplug.api.blocks import Block
from fedplug.api.errors import CheckpointError, ProtectionError
from fedplug.api.parties import Client, ClientMemory, KeyServer, KeyServerMemory, PartyMemory, Server, ServerMemory
from fedplug.round.parties import KeyServerHost
from fedplug_attacks.views.adversaries import Adversary, read_client
from fedplug_runs.checkpoint import StateFiles, write_file, write_states
from toy_components import recipe_of
from toy_protocol import build

RETAINED = Block("retained", 2, np.ones(2, np.float32), np.array([1, 4], np.uint32))
CLIENT = ClientMemory(
    done=5, saved=3, round=2, opened=1, next=2, trained=2, protected=1, weight=0.5,
    buffers={"mean": np.zeros(3, np.float64)}, retained=RETAINED, accounts={"record": [[1.0, 0.1, float("inf")]]},
    cohort_secret=bytes(32), answer_key=bytes(range(32)),
)  # fmt: skip
SERVER = ServerMemory(
    weights={0: 1.0, 1: 0.25}, accounts={1: {"record": [[1.0, 0.1, 3.0]]}}, groups={"a": [0, 1]},
    zone_sizes={"clear": 2.5}, secret_cohort=False, vectors={"a": np.ones(4, np.float32)},
)  # fmt: skip
ALL = [CLIENT, ClientMemory(), SERVER, ServerMemory(), KeyServerMemory(1, 1, 0, 2, 1, bytes(32)), KeyServerMemory()]


@pytest.mark.parametrize("memory", ALL, ids=lambda memory: type(memory).__name__)
def test_what_is_remembered_survives_a_checkpoint(memory: PartyMemory) -> None:
    saved = codec.encode(memory.to_plain())
    again = type(memory).from_plain(codec.decode(saved))
    assert codec.encode(again.to_plain()) == saved


@pytest.mark.parametrize("kind", [ClientMemory, ServerMemory, KeyServerMemory])
def test_no_record_shares_a_dictionary(kind: type[PartyMemory]) -> None:
    first, second = kind(), kind()
    for field in dataclasses.fields(kind):
        value = getattr(first, field.name)
        assert not isinstance(value, dict) or value is not getattr(second, field.name)


@pytest.mark.parametrize(
    ("memory", "field", "value"),
    [
        (CLIENT, "done", -1), (CLIENT, "saved", "3"), (CLIENT, "round", -2), (CLIENT, "opened", True),
        (CLIENT, "next", -2),
        (CLIENT, "trained", None), (CLIENT, "weight", 0.0), (CLIENT, "weight", 2.0), (CLIENT, "weight", float("nan")),
        (CLIENT, "buffers", {"mean": [0.0]}), (CLIENT, "retained", {"positions": [], "values": []}),
        (CLIENT, "retained", Block("clear", 0)), (CLIENT, "accounts", {"record": [[1, "0"]]}),
        (CLIENT, "cohort_secret", b"short"),
        (CLIENT, "answer_key", "text"), (SERVER, "weights", {"0": 1.0}), (SERVER, "groups", {"a": [-1]}),
        (SERVER, "zone_sizes", {"clear": float("nan")}), (SERVER, "secret_cohort", 0),
        (SERVER, "vectors", {"a": np.ones(4)}), (SERVER, "accounts", {0: None}),
    ],
)  # fmt: skip
def test_a_field_that_cannot_be_is_refused_by_its_name(memory: PartyMemory, field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{field}[.: ]"):
        type(memory).from_plain({**memory.to_plain(), field: value})


@pytest.mark.parametrize("plain", [None, [], {}, {"done": 0}, {**CLIENT.to_plain(), "more": 1}])
def test_another_record_is_refused(plain: Any) -> None:
    with pytest.raises(ValueError, match="does not have the fields of a ClientMemory"):
        ClientMemory.from_plain(plain)


def test_a_party_that_cannot_be_restored_stays_as_it_was() -> None:
    client = Client(client_id=1, state={"toy": {"a": 1}}, remembered=CLIENT)
    saved = client.to_plain()
    for damaged in ({**saved, "state": []}, {**saved, "state": {"toy": 1}}, {"state": {}}, None):
        with pytest.raises(ValueError, match=r"lacks|fields"):
            client.restore(damaged)
    assert client.state == {"toy": {"a": 1}}
    assert client.remembered is CLIENT


def test_only_who_was_told_a_secret_derives_from_it() -> None:
    class Component:
        name = "toy"

    with pytest.raises(ProtectionError, match="client 3 has none"):
        Client(client_id=3).secret(Component(), "key")
    assert len(Client(remembered=CLIENT).secret(Component(), "key")) == 32


# -- files that hold something else ------------------------------------------------------------------------------------


def damaged(party: Server | KeyServer | Client) -> dict[str, Any]:
    plain = party.to_plain()
    plain["remembered"] = {**plain["remembered"], next(iter(plain["remembered"])): "damaged"}
    return plain


def test_a_damaged_record_of_the_key_server_is_a_checkpoint_error(tmp_path: Path) -> None:
    path = tmp_path / "key_server.state"
    write_file(path, codec.encode(damaged(KeyServer())))
    protocol, engine, _ = build(recipe_of())
    try:
        host = KeyServerHost(protocol.recipe, protocol.composition, protocol.layout, StateFiles())
        with pytest.raises(CheckpointError, match=r"key_server\.state holds no key server's state .*done is 'damaged'"):
            host.load(tmp_path)
    finally:
        engine.close()


def test_a_damaged_record_of_an_insider_is_a_checkpoint_error(tmp_path: Path) -> None:
    write_states(tmp_path, {"client:2": lambda: codec.encode({**damaged(Client()), "plan": None})})
    with pytest.raises(CheckpointError, match=r"clients-2\.state holds no client's state .*done is 'damaged'"):
        read_client(tmp_path, 2)
    for role, file, plain in (
        ("server", "server.state", {"server": damaged(Server())}), ("key_server", "key_server.state", {"state": {}})
    ):  # fmt: skip
        write_file(tmp_path / file, codec.encode(plain))
        adversary = Adversary.of(role, 0, [0, 1], False)
        assert adversary is not None
        with pytest.raises(CheckpointError, match=file):
            adversary.insiders(tmp_path)
