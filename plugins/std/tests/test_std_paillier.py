"""Packed Paillier sums are exact whatever the masks, and a mistake of key, packing or number of clients is found."""

from __future__ import annotations

import math
import types
from typing import Any, Literal

import numpy as np
import pytest
from fedplug import Block
from fedplug.api import codec
from fedplug.api.context import Client, Context, KeyServer, Party, Server
from fedplug.api.errors import MessageError, ProtectionError
from fedplug.api.types import CLEAR, ENCRYPTED, Layout
from fedplug_kit.static import check_component
from fedplug_std import paillier_scheme
from fedplug_std._fixed_base import fixed_base
from fedplug_std.paillier import PackedPaillier, Paillier
from fedplug_std.paillier_scheme import PublicKey, SecretKey
from fedplug_std.quantise import FixedPoint, most_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import ValidationError
from toy_components import pushed, recipe_of
from toy_protocol import Outcome, build, initial_vector, run_protocol, weights_of

SIZE = 300  # four ciphertexts of 2048 bits
SMALL = paillier_scheme._generate(256)
ORDERS: tuple[Literal["big", "little"], ...] = ("big", "little")
NARROW = PackedPaillier(3, 256)
"""Ten fields of three bytes."""


def make(**options: Any) -> Paillier:
    return Paillier(Paillier.Options.model_validate({"key_bits": 2048, **options}))


class Parties:
    """One component's parties with their keys; all clients are one object. What travels goes through the codec."""

    def __init__(self, component: Paillier, num_clients: int = 5, size: int = SIZE) -> None:
        self.component, self.num_clients, self.min_clients = component, num_clients, 2
        self.layout = Layout.of([("w", (size,))])
        self.server, self.key_server, self.client = Server(), KeyServer(), Client(client_id=0)
        self.client.remembered.cohort_secret = bytes(32)
        if component.site == "client":
            made = component.make_shared_key(self.client, num_clients)
        else:
            made = component.make_keys(self.key_server, num_clients)
        self.server.memory(component).update(context=made["adding"], terms=made["terms"])
        component.adopt_keys(self.client, made["keys"], made["terms"])
        self.made_keys: bytes = self.client.memory(component)["context"]
        self.holder: Party = self.client if component.site == "client" else self.key_server

    def context(self, party: Party) -> Context:
        return Context(
            round=0, rounds=1, layout=self.layout, zones=("encrypted",), num_clients=self.num_clients,
            min_clients=self.min_clients, seed=1, digest="d", party=party,
        )  # fmt: skip

    def protect(self, values: Any, weight: float = 1.0, positions: NDArray[Any] | None = None) -> Block:
        """What a client sends."""
        self.client.weight, plain = weight, np.asarray(values, np.float32)
        block = Block("encrypted", len(plain), plain, positions)
        return self.relay(self.component.protect(block, self.client, self.context(self.client)))

    def add(self, blocks: dict[int, Block]) -> Block:
        return self.relay(self.component.add_blocks(blocks, self.context(self.server)))

    def open(self, block: Block) -> Block:
        return self.component.postprocess(block, self.context(self.holder))

    @staticmethod
    def relay(block: Block) -> Block:
        return codec.decode(codec.encode(block))  # type: ignore[no-any-return]

    @property
    def numbers(self) -> FixedPoint:
        return self.component.codec(self.server.memory(self.component)["terms"]).fixed_point


@pytest.fixture(scope="module", params=["key_server", "clients"])
def parties(request: pytest.FixtureRequest) -> Parties:
    """Five clients with a key of 2048 bits, for tests that add and open."""
    return Parties(make(key_holder=request.param))


def test_conforms() -> None:
    check_component("std.paillier")


# -- packing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "values", "num_bytes"),
    [({}, 84, 516), ({"key_bits": 3072}, 126, 772), ({"field_bytes": 2}, 126, 516), ({"field_bytes": 4}, 62, 516)],
    ids=str,
)
def test_a_ciphertext_holds_as_many_values_as_fit(options: dict[str, Any], values: int, num_bytes: int) -> None:
    component = make(**options)
    assert component.position_block == component.slots - 1 == values
    field_bits, key_bits = 8 * component.options.field_bytes, component.options.key_bits
    assert component.slots * field_bits < key_bits <= (component.slots + 1) * field_bits  # below n, which has key_bits
    assert PublicKey(2**key_bits - 1).ciphertext_bytes + 4 == num_bytes
    assert f"{values} values a ciphertext" in component.describe()


def test_with_one_value_a_ciphertext_a_client_encrypts_its_mask_and_no_more() -> None:
    parties, rng = Parties(make(values=1, short_exponents=True), num_clients=3), np.random.default_rng(4)
    updates = rng.uniform(-1, 1, (3, SIZE))
    masks = [np.arange(start, start + 12, 2).astype(np.uint32) for start in (0, 4, 8)]  # 0 to 10, 4 to 14, 8 to 18
    blocks = {c: parties.protect(updates[c][where], positions=where) for c, where in enumerate(masks)}
    assert [len(block.ciphertexts) for block in blocks.values()] == [6, 6, 6]
    total = parties.add(blocks)
    assert total.positions is not None
    assert total.positions.tolist() == [4, 6, 8, 10, 12, 14]  # two clients or three
    assert total.meta["fewest"] == 2  # nothing else is in these ciphertexts
    expected = [sum(updates[c][at] for c in range(3) if at in masks[c]) for at in total.positions]
    assert parties.open(total).plain() == pytest.approx(np.array(expected), abs=3 * parties.numbers.step)
    assert "1 value a ciphertext" in parties.component.describe()


def test_more_values_than_a_ciphertext_has_room_for_are_refused() -> None:
    assert make(values=84).position_block == 84 == make().position_block
    with pytest.raises(ValidationError, match=r"values=85 must be at most 84, .* at field_bytes=3"):
        make(values=85)


@pytest.mark.parametrize(
    ("options", "clients", "bits"),
    [({}, 32, 19), ({}, 33, 18), ({}, 256, 16), ({"field_bytes": 2}, 20, 11), ({"field_bytes": 4}, 20, 24),
     ({"field_bytes": 4}, 128, 24), ({"bits": 16}, 20, 16)],
    ids=str,
)  # fmt: skip
def test_values_get_the_bits_that_sums_leave(options: dict[str, Any], clients: int, bits: int) -> None:
    component = make(**options)
    numbers = component.agree(clients)
    assert numbers.bits == bits
    assert clients * (2**bits - 1) < 2**numbers.field_bits <= 256**component.options.field_bytes
    assert (component.options.range, component.step(clients)) == (1.0, numbers.step)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 7), st.integers(1, 9), st.integers(0, 5), st.integers(1, 50), st.integers(0, 2**32))
def test_fields_of_sums_are_sums_of_fields(field_bytes: int, slots: int, count: int, clients: int, seed: int) -> None:
    backend = PackedPaillier(field_bytes, 2048)
    largest = (256**field_bytes - 1) // clients
    rows = np.random.default_rng(seed).integers(0, largest, (clients, count, slots), endpoint=True)
    rows[:, :, ::2] = largest
    packed = [backend.pack(update) for update in rows]
    naive = [sum(int(value) << 8 * field_bytes * index for index, value in enumerate(row)) for row in rows[0]]
    assert packed[0] == naive
    totals = [sum(column) for column in zip(*packed, strict=True)]
    opened = backend.unpack(totals, slots)
    assert opened.dtype == np.int64
    assert opened.shape == (count, slots)
    assert np.array_equal(opened, rows.sum(0))


@pytest.mark.parametrize("bad", [-1, 2**24])
def test_a_slot_out_of_range_is_refused_and_does_not_spill(bad: int) -> None:
    rows = np.array([[1, 2**24 - 1, 0], [1, bad, 0]])
    with pytest.raises(ProtectionError, match="a slot must be 0 to 16777215 to fit a field of 3 bytes") as caught:
        NARROW.encrypt(SMALL, rows)
    assert f"{bad}" not in str(caught.value).replace("16777215", "")
    opened = NARROW.decrypt(SMALL, NARROW.encrypt(SMALL, rows[:1]), 3)
    assert opened.tolist() == [[1, 2**24 - 1, 0]]


# -- sums --------------------------------------------------------------------------------------------------------------


def test_sums_of_128_worst_case_clients_are_exact() -> None:
    parties = Parties(make(), 128)
    assert (parties.numbers.bits, parties.numbers.field_bits) == (most_bits(24, 128), 24)
    rng = np.random.default_rng(0)
    updates = rng.uniform(-1, 1, (3, SIZE)).astype(np.float32)
    updates[:, :100], updates[:, 100:200] = 1, -1
    blocks = [parties.protect(update) for update in updates]
    total = parties.add({index: blocks[index % 3] for index in range(128)})
    assert (total.contributors, total.divisor, total.weighted) == (128, 128.0, True)
    opened, numbers = parties.open(total).plain(), parties.numbers
    codes = np.array([numbers.quantise(update)[0] for update in updates])[np.arange(128) % 3].sum(0)
    assert np.array_equal(opened, numbers.dequantise_sum(codes, 128))
    error = np.abs(opened - updates[np.arange(128) % 3].astype(np.float64).sum(0))
    assert error.max() <= 128 * numbers.step / 2 + 1e-5  # the result is float32
    assert error[:200].max() == 0  # the ends of the range are on the grid


def test_a_weighted_sum_is_exact_after_rounding(parties: Parties) -> None:
    rng = np.random.default_rng(1)
    updates, weights = rng.normal(0, 0.2, (3, SIZE)).astype(np.float32), [1.0, 0.5, 0.25]
    total = parties.add({i: parties.protect(u, w) for i, (u, w) in enumerate(zip(updates, weights, strict=True))})
    assert total.divisor == 1.75
    assert [len(ciphertext) for ciphertext in total.ciphertexts] == [516] * 4
    codes = sum(parties.numbers.quantise(u * w)[0] for u, w in zip(updates.astype(np.float64), weights, strict=True))
    assert np.array_equal(parties.open(total).plain(), parties.numbers.dequantise_sum(codes, 3))


@pytest.mark.parametrize("min_clients", [1, 2, 3])
def test_every_client_may_have_a_mask_of_its_own(parties: Parties, min_clients: int) -> None:
    rng = np.random.default_rng(min_clients)
    updates = rng.uniform(-1, 1, (5, SIZE)).astype(np.float32)
    masks = rng.random((5, SIZE)) < 0.3
    masks[0], masks[1], masks[2], masks[3, :200] = False, True, np.arange(SIZE) >= 250, False
    weights = np.array([1.0, 0.5, 0.75, 1.0, 0.25])
    blocks = {}
    for index, (update, mask) in enumerate(zip(updates, masks, strict=True)):
        positions = np.flatnonzero(mask).astype(np.uint32)
        blocks[index] = parties.protect(update[mask], weights[index], positions)
        touched = {position // 84 for position in positions.tolist()}
        assert len(blocks[index].ciphertexts) == len(touched)
    parties.min_clients = min_clients
    try:
        total = parties.add(blocks)
        opened = parties.open(total)
    finally:
        parties.min_clients = 2
    assert np.array_equal(opened.positions, np.flatnonzero(masks.sum(0) >= min_clients))
    where = opened.positions
    exact = (updates * weights[:, None] * masks).sum(0)[where]
    assert np.abs(opened.plain() - exact).max() <= 5 * parties.numbers.step / 2 + 1e-6
    assert np.allclose(opened.divisor, (weights[:, None] * masks).sum(0)[where])


def test_an_empty_zone_has_no_ciphertexts(parties: Parties) -> None:
    total = parties.add({index: parties.protect([]) for index in range(3)})
    assert total.ciphertexts == ()
    assert parties.open(total).plain().shape == (0,)


def test_values_beyond_the_range_saturate_and_are_counted(parties: Parties) -> None:
    total = parties.add({index: parties.protect([0.0, 3.0, -1e30, 0.5]) for index in range(2)})
    assert parties.client.log["std.paillier.saturated"] == 0.5
    opened = parties.open(total).plain()
    assert opened[:3].tolist() == [0.0, 2.0, -2.0]
    assert abs(opened[3] - 1) <= parties.numbers.step


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(parties: Parties, bad: float) -> None:
    with pytest.raises(ProtectionError, match="1 of 3 values are NaN or infinite"):
        parties.protect([0.1, bad, 0.2])


def test_the_table_is_built_before_the_clock_of_an_encryption_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    parties, built, encrypt = Parties(make()), [], PackedPaillier.encrypt

    def watched(self: PackedPaillier, context: Any, rows: NDArray[Any]) -> tuple[bytes, ...]:
        built.append(fixed_base.cache_info().misses)
        ciphertexts = encrypt(self, context, rows)
        built.append(fixed_base.cache_info().misses)
        return ciphertexts

    monkeypatch.setattr(PackedPaillier, "encrypt", watched)
    before = fixed_base.cache_info().misses
    parties.protect([0.5])
    assert built == [before + 1, before + 1]
    assert parties.client.operations["std.paillier.encrypt"][0] == 1


def test_short_exponents_add_and_open_like_long_ones() -> None:
    short = Parties(make(short_exponents=True))
    assert "short exponents" in short.component.describe()
    assert "short exponents" not in make().describe()
    total = short.add({index: short.protect(np.full(200, 0.5)) for index in range(2)})
    assert np.abs(short.open(total).plain() - 1).max() <= short.numbers.step
    assert make().backend.short_exponents is False


# -- a run -------------------------------------------------------------------------------------------------------------


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

    tag = adding._tag(f"{component.slots} fields of 3 bytes")
    uploads = {c for m in protocol.wire.messages if m.sender.startswith("client:") for c in ciphertexts(m)}
    elsewhere = {c for m in protocol.wire.messages if m.sender == "server" for c in ciphertexts(m)}
    num_ciphertexts = math.ceil(len(update) / component.position_block)
    assert len(uploads) == 2 * 4 * num_ciphertexts
    assert len(elsewhere) == 2 * num_ciphertexts  # the sums, to whoever opens them
    assert not uploads & elsewhere
    engine.close()


# -- mistakes ----------------------------------------------------------------------------------------------------------


def test_the_server_cannot_decrypt(parties: Parties) -> None:
    total = parties.add({index: parties.protect([0.5]) for index in range(2)})
    with pytest.raises(ProtectionError, match="no secret key"):
        parties.component.postprocess(total, parties.context(parties.server))
    if parties.component.site == "key_server":
        with pytest.raises(ProtectionError, match="no secret key"):
            parties.component.postprocess(total, parties.context(parties.client))
        backend = parties.component.backend
        public = backend.load_context(parties.made_keys)
        with pytest.raises(ProtectionError, match="no secret key to give"):
            backend.dump_context(public, secret_key=True)


@pytest.mark.parametrize(("really", "claimed"), [(1, 2), (2, 3), (4, 3)])
def test_a_sum_of_another_number_than_claimed_is_not_opened(parties: Parties, really: int, claimed: int) -> None:
    total = parties.add({index: parties.protect([0.5]) for index in range(really)})
    with pytest.raises(ProtectionError, match=f"does not hold the {claimed} updates that are claimed") as caught:
        parties.open(total.replace(contributors=claimed))
    assert f" {really} " not in str(caught.value)


def test_too_few_updates_are_not_opened_and_too_many_not_added(parties: Parties) -> None:
    block = parties.protect([0.5])
    with pytest.raises(ProtectionError, match="opening fewer than min_clients=2"):
        parties.open(parties.add({0: block}))
    with pytest.raises(ProtectionError, match="sum of 6 updates could overflow: max_clients=5"):
        parties.add(dict.fromkeys(range(6), block))


def test_ciphertexts_of_another_key_are_blamed_on_their_client(parties: Parties) -> None:
    strange = Parties(make(key_holder=parties.component.options.key_holder)).protect([0.5])
    blocks = {index: parties.protect([0.5]) for index in range(2)}
    with pytest.raises(ProtectionError, match="client 2 encrypted its encrypted block under another key") as caught:
        parties.add({**blocks, 2: strange})
    assert caught.value.client_id == 2
    # Whatever it says of its key: every ciphertext tells.
    with pytest.raises(MessageError, match=r"ciphertext 0 of client 2 .*another key or packing") as found:
        parties.add({**blocks, 2: strange.replace(meta=blocks[0].meta)})
    assert found.value.client_id == 2
    assert parties.open(parties.add(blocks)).plain().tolist() == pytest.approx([1.0], abs=1e-5)  # the others go on
    with pytest.raises(MessageError, match="another key or packing"):
        parties.open(parties.add(blocks).replace(ciphertexts=strange.ciphertexts))


def test_ciphertexts_of_another_packing_are_blamed_on_their_client(parties: Parties) -> None:
    blocks = {index: parties.protect([0.5]) for index in range(3)}
    context, other = parties.component.backend.load_context(parties.made_keys), PackedPaillier(2, 2048)
    row = np.array([[1, *[2] * 126]])
    blocks[1] = blocks[1].replace(ciphertexts=other.encrypt(context, row))
    with pytest.raises(MessageError, match=r"ciphertext 0 of client 1 .*another key or packing") as caught:
        parties.add(blocks)
    assert caught.value.client_id == 1


@pytest.mark.parametrize("positions", [None, np.array([5, 200], np.uint32)], ids=["gathered", "own mask"])
@pytest.mark.parametrize("damage", ["cut", "zero", "empty", "garbage", "two", "divisor"])
def test_damaged_ciphertexts_are_blamed_on_their_client(
    parties: Parties, damage: str, positions: NDArray[Any] | None
) -> None:
    blocks = {index: parties.protect([0.5, 0.25], positions=positions) for index in range(3)}
    data = blocks[1].ciphertexts[-1]
    modulus = parties.component.backend.load_context(parties.server.memory(parties.component)["context"]).n
    bad = {
        "cut": data[:-1], "zero": data[:4] + bytes(512), "empty": b"", "garbage": b"garbage" * 80,
        "two": data + data[4:], "divisor": data[:4] + modulus.to_bytes(512, "little"),
    }[damage]  # fmt: skip
    blocks[1] = blocks[1].replace(ciphertexts=(*blocks[1].ciphertexts[:-1], bad))
    with pytest.raises(MessageError, match=r"ciphertext 0 of client 1[, ]") as caught:
        parties.add(blocks)
    assert caught.value.client_id == 1


def test_an_altered_number_is_found_when_the_sum_is_opened(parties: Parties) -> None:
    blocks = {index: parties.protect([0.5]) for index in range(2)}
    total = parties.add(blocks)
    for spot in (4, 100, 300):
        altered = bytearray(total.ciphertexts[0])
        altered[spot] ^= 0x5A
        with pytest.raises((ProtectionError, MessageError), match="damaged"):
            parties.open(total.replace(ciphertexts=(bytes(altered),)))


def test_keys_of_another_length_are_not_taken(parties: Parties) -> None:
    longer = PackedPaillier(3, 3072)
    with pytest.raises(MessageError, match="a key of 2048 bits where key_bits=3072"):
        longer.load_context(parties.made_keys)
    for data in (b"", b"x", b"p", b"p" + codec.encode([]), b"s" + parties.made_keys[1:]):
        if data[:1] != b"s" or parties.component.site == "key_server":
            with pytest.raises(MessageError, match="bytes"):
                parties.component.backend.load_context(data)


@pytest.mark.parametrize(
    ("options", "clients", "words"),
    [
        ({"bits": 20}, 20, ["max_clients=20", "bits=20", "lower bits to 19", "or raise field_bytes"]),
        ({"bits": 24, "field_bytes": 4}, 200, ["bits=24", "lower bits to 23", "max_clients to 128"]),
        ({"field_bytes": 2}, 40_000, ["bits=1 must be at least 2", "or raise field_bytes"]),
        ({"max_clients": 3}, 4, ["max_clients=3", "raise max_clients to 4"]),
    ],
)
def test_what_could_overflow_is_refused_before_the_run(options: dict[str, Any], clients: int, words: list[str]) -> None:
    (problem,) = make(**options).check(types.SimpleNamespace(clients=clients))  # type: ignore[arg-type]
    for word in words:
        assert word in problem


@pytest.mark.parametrize(
    "bad",
    [{"key_bits": 1024}, {"key_bits": "3072"}, {"field_bytes": 1}, {"field_bytes": 5}, {"bits": 1}, {"bits": 25},
     {"range": 0}, {"max_clients": 0}, {"key_holder": "server"}, {"short_exponents": "often"}, {"window": 8}],
    ids=str,
)  # fmt: skip
def test_bad_options_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        make(**bad)


def test_the_ledger_learns_what_stays_visible() -> None:
    parties = Parties(make(key_holder="clients"))
    channels = parties.component.reveals(parties.context(parties.server))
    assert [channel.what for channel in channels] == [
        "size of the encrypted zone", "locked key", "single updates of the encrypted zone",
        "single updates of the encrypted zone",
    ]  # fmt: skip
    assert parties.component.cohort_secret
    assert parties.component.site == "client"
    assert not make().cohort_secret
