"""Holders of keys: the server can open nothing, and the key server opens only sums."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedplug import Block, Opened, Total
from fedplug.api import codec
from fedplug.api.errors import MessageError, PluginError, ProtectionError
from fedplug.api.facts import Facts
from fedplug.mechanisms.closing import Closing
from fedplug.wire.calls import Call, Reply, read_reply, request
from fedplug_std.bfv import Bfv
from fedplug_std.he_contexts import RingContext
from key_story import Story, encrypted
from toy_components import recipe_of
from toy_protocol import initial_vector, run_protocol

SCHEMES = ("std.bfv", "std.ckks")
HOLDERS = ("clients", "key_server")
CASES = [(scheme, holder) for scheme in SCHEMES for holder in HOLDERS]


def first_row(component: Any, context: RingContext, block: Block) -> Any:
    """The block's first ciphertext, opened under a context."""
    return component.backend.decrypt(context, block.ciphertexts[:1], component.slots)[0]


def everything_in(value: Any) -> list[bytes]:
    """Every bytes object and array inside nested plain data, however deep."""
    if isinstance(value, bytes):
        inner: list[bytes] = []
        try:
            inner = everything_in(codec.decode(value))
        except Exception:
            inner = []
        return [value, *inner]
    if isinstance(value, np.ndarray):
        return [value.tobytes()]
    if isinstance(value, dict):
        return [part for key in value for part in (*everything_in(key), *everything_in(value[key]))]
    if isinstance(value, list | tuple):
        return [part for item in value for part in everything_in(item)]
    if isinstance(value, Block):
        return [part for name in value.__dataclass_fields__ for part in everything_in(getattr(value, name))]
    return []


@pytest.mark.parametrize(("scheme", "holder"), CASES)
def test_with_all_that_the_server_has_nothing_decrypts(scheme: str, holder: str, tmp_path: Path) -> None:
    story = Story(encrypted(scheme, holder), tmp_path)
    protocol = story.protocol
    server = protocol.server
    sealed = story.upload()

    # 1. Its own components, state and cache: the context it adds with has no secret key, in memory either.
    component = protocol.composition.components[scheme]
    with pytest.raises(ProtectionError, match="no secret key"):
        Closing.of("encrypted", protocol.facts(1)).open(sealed.replace(contributors=4), range(4), server)
    cached = server.cache[scheme].context
    assert (cached.secret_key, cached.public_key) == (b"", b"")
    with pytest.raises(ProtectionError, match="no secret key"):
        first_row(component, cached, sealed)

    # 2. Every byte string it was ever sent or keeps, tried as a context.
    kept = everything_in(server.state) + everything_in(protocol.state())
    kept += [part for message in protocol.wire.messages for part in everything_in(message.decode())]
    contexts = 0
    for data in {part for part in kept if len(part) >= 24}:
        try:
            loaded = RingContext.load(data)
        except MessageError:
            continue
        contexts += 1
        assert not loaded.has_secret_key()
    assert contexts >= 1  # the bare parameters, at least: the search does recognise a context

    # 3. The holder's secret does not occur anywhere, in one piece or in part.
    owner = "key_server" if holder == "key_server" else "client:1"
    secret_context = story.party(owner).state[scheme]["context"]
    assert RingContext.load(secret_context).has_secret_key()
    pieces = [secret_context[i : i + 64] for i in range(512, len(secret_context) - 64, 997)]
    wire = b"".join(message.data for message in protocol.wire.messages)
    files = (story.folder / "server.state").read_bytes()
    public = b"".join(everything_in(story.party("client:1").state[scheme])) if holder == "key_server" else b""
    private = [piece for piece in pieces if piece not in public]
    assert len(private) > 20
    for place in (wire, files, codec.encode(protocol.state())):
        assert not any(piece in place for piece in private)


@pytest.mark.parametrize(("scheme", "holder"), CASES)
def test_the_holder_does_open(scheme: str, holder: str, tmp_path: Path) -> None:
    """The counterpart of the test above: with the key, the same ciphertexts give numbers."""
    story = Story(encrypted(scheme, holder), tmp_path)
    party = story.party("key_server" if holder == "key_server" else "client:3")
    loaded = RingContext.load(party.state[scheme]["context"])
    assert np.unique(first_row(story.protocol.composition.components[scheme], loaded, story.upload())).size > 100
    if holder == "key_server":
        assert not RingContext.load(story.party("client:3").state[scheme]["context"]).has_secret_key()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_client_refuses_to_open_a_single_upload(scheme: str, tmp_path: Path) -> None:
    story = Story(encrypted(scheme, "clients"), tmp_path)
    client = story.party("client:2")
    closing = Closing.of("encrypted", client.facts)
    for claimed in (1, 2, 4):
        refusal = "holds 1 updates" if claimed == 1 else f"does not hold the {claimed} updates that are claimed"
        with pytest.raises(ProtectionError, match=refusal):
            closing.open(story.upload().replace(contributors=claimed), range(claimed), client)


# -- the key server (spec 37) ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_key_server_receives_sums_only(scheme: str) -> None:
    outcome = run_protocol(encrypted(scheme, "key_server", rounds=3, min_clients=3))
    requests = [message.decode() for message in outcome.sent("key_server")]
    opened = [call for message in requests for call in message["calls"] if call[3] == "open"]
    assert len(opened) == 3
    assert all(call[4][1].contributors == 4 for call in opened)
    sent = {part for m in outcome.sent("server") if m.sender.startswith("client") for part in ciphertexts(m.decode())}
    received = {part for message in requests for part in ciphertexts(message)}
    assert len(sent) >= 12
    assert received
    assert not sent & received


def ciphertexts(value: Any) -> list[bytes]:
    return [part for part in everything_in(value) if len(part) > 10_000]


def asked(story: Story, block: Block) -> Reply:
    """The key server's answer to a server that asks it to open a block."""
    name = "std.bfv" if "std.bfv" in story.protocol.composition.components else "std.ckks"
    sent = (name, block, [], "all", [0, 1, 3])
    call = Call.of(story.protocol.steps.open, sent, "key_server", 2)  # a round of which nothing was opened
    data, _ = request(story.protocol.recipe.digest, [call])
    ((_, answer),) = story.engine.exchange({"key_server": data})
    assert isinstance(answer, bytes)
    return read_reply(answer)[0]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_key_server_refuses_sums_of_too_few(scheme: str, tmp_path: Path) -> None:
    fail = {"use": "toy.fail", "clients": [0, 1], "rounds": [2]}
    story = Story(encrypted(scheme, "key_server", min_clients=3, rounds=3, score_parameters=[fail]), tmp_path)
    closing, server = Closing.of("encrypted", story.protocol.facts(1)), story.protocol.server
    uploads = {client_id: story.upload(client_id) for client_id in range(4)}
    for members in ([1], [0, 2]):
        few = closing.add({c: uploads[c] for c in members}, server.weights, server)
        reply = asked(story, few)
        assert reply.value is None
        refusal = f"holds {len(members)} updates; opening fewer than min_clients=3 would show too much of each"
        assert refusal in reply.error.message
        # Nor if the server claims that there are more: the ciphertexts count their contributors.
        reply = asked(story, few.replace(contributors=3))
        assert reply.value is None
        assert "does not hold the 3 updates that are claimed" in reply.error.message
    enough = closing.add({c: uploads[c] for c in (0, 1, 3)}, server.weights, server)
    assert asked(story, enough).value.values.shape == (650,)


@pytest.mark.parametrize("holder", HOLDERS)
def test_the_sum_of_a_group_too_small_for_it_is_skipped_and_the_others_go_on(holder: str) -> None:
    """Client 0 misses a round. One client of its group is left, and no party may open its sum."""
    fail = {"use": "toy.fail", "clients": [0], "rounds": [1]}
    plain = encrypted("std.bfv", holder, rounds=3, score_parameters=[fail])
    plain["negotiate_mask"] = {"use": "toy.groups", "zone": "encrypted"}
    outcome = run_protocol(plain)
    assert [row.clients.answered for row in outcome.rows] == [4, 3, 4]
    skipped = "round 2: the sum of group even is skipped: clients that sent an update: 1; min_clients is 2"
    assert [note for note in outcome.notes if "dropped out" not in note] == [skipped]
    adopted = [
        [call[1] + 1 for m in outcome.sent(f"client:{c}") for call in m.decode()["calls"] if call[3] == "adopt"
         and call[2] == "fedplug"]
        for c in (2, 3)
    ]  # fmt: skip
    assert adopted == [[1, 3], [1, 2, 3]]
    plain = {**plain, "min_clients": 3, "score_parameters": []}
    outcome = run_protocol(plain)  # never a sum, in no round and no group
    assert len(outcome.notes) == 6
    assert np.array_equal(outcome.vectors[0], outcome.vectors[1])


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_zone_that_too_few_have_sent_is_skipped(holder: str) -> None:
    """Client 0 retains everything, so the sum of the encrypted zone holds three updates of four."""
    seal = {"use": "std.bfv", "key_holder": holder}
    plain = recipe_of("clear", [seal], rounds=2, negotiate_mask={"use": "toy.silent"}, min_clients=4)
    outcome = run_protocol(plain)
    whys = [f"round {r}: zone clear is skipped: its sum holds 3 updates; min_clients is 4" for r in (1, 2)]
    assert outcome.notes == whys
    assert np.array_equal(outcome.vector, initial_vector(plain))


def raises_in_round_2(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    opens = Bfv.open

    def fails_once(self: Bfv, total: Total, party: Any, facts: Facts) -> Opened:
        if facts.round == 1:
            raise error
        return opens(self, total, party, facts)

    fails_once.__name__ = "open"
    monkeypatch.setattr(Bfv, "open", fails_once)


def test_a_sum_that_the_key_server_refuses_is_skipped_in_that_round(monkeypatch: pytest.MonkeyPatch) -> None:
    raises_in_round_2(monkeypatch, ProtectionError("not this sum"))
    outcome = run_protocol(encrypted("std.bfv", "key_server", rounds=3))
    assert [row.clients.answered for row in outcome.rows] == [4, 4, 4]
    assert outcome.notes == ["round 2: zone encrypted is skipped: the key server refused fedplug.open: not this sum"]
    assert outcome.rows[1].loss == pytest.approx(outcome.rows[0].loss)  # the model has not moved
    assert outcome.rows[2].loss < outcome.rows[1].loss


def test_a_scheme_that_breaks_at_the_key_server_ends_the_run_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    raises_in_round_2(monkeypatch, ZeroDivisionError("by the test"))
    said = r"component std\.bfv, zone encrypted, open: ZeroDivisionError: by the test"
    with pytest.raises(PluginError, match=said):
        run_protocol(encrypted("std.bfv", "key_server", rounds=3))


def test_nothing_but_marked_methods_runs_at_the_key_server(tmp_path: Path) -> None:
    story = Story(encrypted("std.bfv", "key_server"), tmp_path)
    for component, method in (("std.bfv", "open"), ("std.bfv", "adopt_keys"), ("fedplug", "protect")):
        body = codec.encode([0, 0, component, method, []])
        data, _ = request(story.protocol.recipe.digest, [Call(body, Counter(), 0)])
        ((_, answer),) = story.engine.exchange({"key_server": data})
        assert isinstance(answer, bytes)
        assert "may be called at a key_server" in read_reply(answer)[0].error.message
