"""Joining: the clients agree on a secret that the server relays and cannot read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fedplug.api import codec
from fedplug.api.errors import TooFewClients
from fedplug.engines.base import Engine
from fedplug.round.protocol import Protocol
from key_story import Story, encrypted
from toy_components import paraaegis, recipe_of
from toy_protocol import Outcome, build, run_protocol


def test_all_clients_share_a_secret_that_the_server_never_sees(tmp_path: Path) -> None:
    story = Story(paraaegis(), tmp_path)
    secrets = {story.party(f"client:{c}").remembered.cohort_secret for c in range(4)}
    assert len(secrets) == 1
    (secret,) = secrets
    assert len(secret) == 32
    wire = b"".join(message.data for message in story.protocol.wire.messages)
    assert secret not in wire
    assert secret not in codec.encode(story.protocol.state())
    assert secret not in (story.folder / "server.state").read_bytes()
    assert secret in (story.folder / "clients-0.state").read_bytes()  # its right place, readable by its owner
    assert (story.folder / "clients-0.state").stat().st_mode & 0o077 == 0


def test_every_run_has_its_own_secret(tmp_path: Path) -> None:
    first, second = (Story(paraaegis(rounds=1), tmp_path / name) for name in ("a", "b"))
    of = [story.party("client:0").remembered.cohort_secret for story in (first, second)]
    assert of[0] != of[1]


def test_no_secret_is_agreed_on_where_nobody_needs_one() -> None:
    def look(protocol: Protocol, engine: Engine) -> None:
        hosts.append(engine._hosts["client:0"])  # type: ignore[attr-defined]

    hosts: list[Any] = []
    outcome: Outcome = run_protocol(encrypted("std.bfv", "key_server"), prepare=look)
    assert hosts[0].clients["client:0"].remembered.cohort_secret is None
    assert len(outcome.sent("client:0", round=-1)) == 2  # number of examples; the end of the set-up


def test_a_server_that_swaps_the_box_is_found_out() -> None:
    """The locked box of the encryption keys is bound to its published terms, sealed secrets to recipe and receiver."""
    for swapped in ("hear", "take_secret"):
        protocol, engine, _ = build(paraaegis())
        exchange = engine.exchange

        boxes: dict[str, bytes] = {}

        def altered(
            messages: dict[str, bytes], exchange: Any = exchange, swapped: str = swapped, boxes: Any = boxes
        ) -> Any:
            changed = {}
            for address, data in messages.items():
                for call in map(codec.decode, codec.decode(codec.unframe(data))["calls"]):
                    if call[3] == "take_secret":
                        boxes[address] = call[4][0]
            for address, data in messages.items():
                body = codec.decode(codec.unframe(data))
                calls = [codec.decode(call) for call in body["calls"]]
                for call in calls:
                    if call[3] == "hear" == swapped and "terms" in call[4][1]:
                        call[4][1] = {"terms": {**call[4][1]["terms"], "bits": 3}}
                    elif call[3] == "take_secret" == swapped:
                        call[4][0] = next((box for whose, box in boxes.items() if whose != address), call[4][0])
                body["calls"] = [codec.encode(call) for call in calls]
                changed[address] = codec.frame(codec.encode(body))
            return exchange(changed)

        engine.exchange = altered  # type: ignore[method-assign]
        with pytest.raises(TooFewClients, match=r"do(es)? not open"):
            protocol.setup()


@pytest.mark.parametrize("key_holder", ["clients", "key_server"])
def test_a_sealed_secret_goes_to_its_client_alone(key_holder: str) -> None:
    """Each client gets one box, different from the others. A set-up is not quadratic in clients."""
    answer = {"sums_visible_to": "clients"} if key_holder == "key_server" else {}
    seal = {"use": "std.bfv", "key_holder": key_holder, **answer}
    protocol, engine, _ = build(recipe_of("encrypted", [seal], rounds=1))
    try:
        protocol.setup()
    finally:
        engine.close()
    boxes: dict[str, list[bytes]] = {}
    for message in protocol.wire.messages:
        if message.sender == "server" and message.receiver.startswith("client:"):
            for call in message.decode()["calls"]:
                if call[3] in ("take_secret", "take_answer_key"):
                    boxes.setdefault(message.receiver, []).append(call[4][0])
    assert sorted(boxes) == [f"client:{client_id}" for client_id in range(4)]
    assert all(len(mine) == 1 and isinstance(mine[0], bytes) for mine in boxes.values())
    assert len({mine[0] for mine in boxes.values()}) == 4
