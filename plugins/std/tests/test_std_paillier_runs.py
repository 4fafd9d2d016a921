"""Runs under packed Paillier: the mean is right, and neither primes nor values pass where they must not."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import pytest
from fedplug.api import codec
from fedplug.api.blocks import CLEAR, ENCRYPTED
from fedplug_std.paillier_scheme import PublicKey, SecretKey
from paillier_toys import make
from toy_components import pushed, recipe_of
from toy_protocol import Outcome, build, initial_vector, run_protocol, weights_of

pytestmark = pytest.mark.usefixtures("small_tables")
ORDERS: tuple[Literal["big", "little"], ...] = ("big", "little")


def plain_recipe(key_holder: str, key_bits: int = 2048) -> dict[str, Any]:
    seal = {"use": "std.paillier", "key_holder": key_holder, "key_bits": key_bits}
    return recipe_of(ENCRYPTED, [seal], train={"use": "toy.push"}, postprocess={ENCRYPTED: ["std.paillier"]})


@pytest.fixture(scope="module", params=[("key_server", 3072), ("clients", 2048)], ids=["key_server", "clients"])
def outcome(request: pytest.FixtureRequest) -> Outcome:
    """Two rounds of four clients."""
    return run_protocol(plain_recipe(*request.param))


def test_a_run_gives_the_weighted_mean(outcome: Outcome) -> None:
    recipe = plain_recipe("key_server")
    vector, weights, step = initial_vector(recipe), weights_of(outcome), make().agree(4).step
    for round in range(2):
        updates = {client_id: pushed(vector, 7, client_id, round).astype(np.float64) for client_id in weights}
        vector = vector + sum(weights[c] * updates[c] for c in weights) / sum(weights.values())
    assert np.abs(outcome.vector - vector).max() <= 2 * 4 * step / 2 / sum(weights.values()) + 1e-6
    assert outcome.rows[-1].round == 2


def test_both_engines_give_the_same_model(outcome: Outcome) -> None:
    holder = outcome.protocol.composition.components["std.paillier"].options.key_holder
    processes = run_protocol(plain_recipe(holder), "processes", workers=1)
    # Keys, ciphertexts and even the key's length differ; the sums do not.
    assert np.array_equal(processes.vector, outcome.vector)


@pytest.mark.parametrize("holder", ["key_server", "clients"])
def test_clients_with_masks_of_their_own_agree_with_fedavg(holder: str) -> None:
    masked = plain_recipe(holder) | {"negotiate_mask": {"use": "toy.masks"}}
    masked["protect"] = {**masked["protect"], CLEAR: []}
    outcome, reference = run_protocol(masked), run_protocol(recipe_of(train={"use": "toy.push"}))
    assert outcome.notes == []
    assert any(b"positions" in message.data for message in outcome.sent(receiver="server"))
    assert np.allclose(outcome.vector, reference.vector, atol=4 * make().agree(4).step)


@pytest.mark.parametrize("holder", ["key_server", "clients"])
def test_neither_primes_nor_values_nor_single_uploads_pass_where_they_must_not(holder: str) -> None:
    recipe = plain_recipe(holder)
    protocol, engine, _ = build(recipe)
    protocol.setup()
    protocol.run()
    hosts, component = engine._hosts, protocol.composition.components["std.paillier"]  # type: ignore[attr-defined]
    clients = [hosts[f"client:{index}"].clients[f"client:{index}"] for index in range(4)]
    owner = hosts["key_server"].party if holder == "key_server" else clients[2]
    secret = component.backend.load_context(owner.memory(component)["context"])
    adding = component.backend.load_context(protocol.server.memory(component)["context"])
    assert isinstance(secret, SecretKey)
    assert adding == PublicKey(secret.public.n)  # without hs: enough to add
    wire = b"".join(message.data for message in protocol.wire.messages)
    for place in (wire, codec.encode(protocol.state())):
        assert secret.public.n.to_bytes(256, "big") in place  # so the searches below can find something
        assert not any(prime.to_bytes(128, order) in place for prime in (secret.p, secret.q) for order in ORDERS)
    if holder == "key_server":
        assert all(component.backend.load_context(c.memory(component)["context"]) == secret.public for c in clients)
    update = pushed(initial_vector(recipe), 7, 2, 0)
    weight = np.float32(protocol.server.weights[2])
    assert not any(value.tobytes() in wire for value in (*update[:50], *(update * weight)[:50]))

    def ciphertexts(message: Any) -> set[bytes]:
        data = message.data
        return {data[at : at + 516] for at in range(len(data) - 515) if data.startswith(tag, at)}

    tag = adding._tag(f"{component.slots} fields of 24 bits")
    uploads = {c for m in protocol.wire.messages if m.sender.startswith("client:") for c in ciphertexts(m)}
    elsewhere = {c for m in protocol.wire.messages if m.sender == "server" for c in ciphertexts(m)}
    num_ciphertexts = math.ceil(len(update) / component.position_block)
    assert len(uploads) == 2 * 4 * num_ciphertexts
    assert len(elsewhere) == 2 * num_ciphertexts  # the sums, sent to the parties that open them
    assert not uploads & elsewhere
    engine.close()
