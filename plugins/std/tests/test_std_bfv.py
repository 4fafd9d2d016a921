"""BFV sums are exact, and the keys of both encryption components go where they should and nowhere else."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy  # type: ignore[import-untyped]
from fedplug import Known, Sealer
from fedplug.api import codec
from fedplug.api.context import Client, Context, KeyServer, Party, Server
from fedplug.api.effects import Misplaced
from fedplug.api.errors import MessageError, ProtectionError, TooFewClients
from fedplug.api.types import Block, Layout
from fedplug_kit.static import check_component
from fedplug_std import he_keys
from fedplug_std.bfv import COEFF_BITS, DEGREE, SCALE_BITS, Bfv
from fedplug_std.ckks import Ckks
from fedplug_std.he_rlwe import Rlwe
from fedplug_std.quantise import FixedPoint
from pydantic import ValidationError


class Parties:
    """All parties of a run in this process; whatever passes the server goes through the codec and is kept."""

    def __init__(self, component: Any, num_clients: int, min_clients: int = 2) -> None:
        self.component, self.num_clients, self.min_clients = component, num_clients, min_clients
        self.server, self.key_server = Server(), KeyServer()
        self.clients = {index: Client(client_id=index) for index in range(num_clients)}
        self.seen_by_server: list[bytes] = []
        self.broken: set[int] = set()
        for client in self.clients.values():
            client.remembered.cohort_secret = bytes(range(32))
            client.ctx = self.context(client)

    def context(self, party: Party) -> Context:
        return Context(
            round=0, rounds=1, layout=Layout.of([("w", (10,))]), zones=("encrypted",), num_clients=self.num_clients,
            min_clients=self.min_clients, seed=1, digest="d", party=party,
            components={self.component.name: self.component},
        )  # fmt: skip

    def setup(self) -> Parties:
        self.component.setup(Cohort(self, list(self.clients)), self, self.context(self.server))
        return self

    def relay(self, value: Any) -> Any:
        data = codec.encode(value)
        self.seen_by_server.append(data)
        return codec.decode(data)

    def ask(self, method: Callable[..., Any], *payload: Any) -> Any:
        """The line to the key server."""
        assert method.__fedplug_site__ == "key_server"  # type: ignore[attr-defined]
        return self.relay(method(self.key_server, *self.relay(payload)))

    def protect(self, index: int, values: Any, weight: float = 1.0) -> Block:
        client = self.clients[index]
        client.weight = weight
        plain = np.asarray(values, np.float32)
        block = self.component.protect(Block("encrypted", len(plain), plain), client, client.ctx)
        return self.relay(block)  # type: ignore[no-any-return]

    def add(self, blocks: dict[int, Block]) -> Block:
        return self.relay(self.component.add_blocks(blocks, self.context(self.server)))  # type: ignore[no-any-return]

    def open(self, block: Block) -> Block:
        holder = self.clients[0] if self.component.site == "client" else self.key_server
        return self.component.postprocess(block, self.context(holder))  # type: ignore[no-any-return]


class Cohort:
    def __init__(self, parties: Parties, client_ids: list[int]) -> None:
        self.parties, self.client_ids = parties, client_ids

    def only(self, client_ids: list[int]) -> Cohort:
        return Cohort(self.parties, client_ids)

    def ask(self, method: Callable[..., Any], *payload: Any) -> dict[int, Any]:
        assert method.__fedplug_site__ == "client"  # type: ignore[attr-defined]
        payload = self.parties.relay(payload)
        asked = [index for index in self.client_ids if index not in self.parties.broken]
        return {index: self.parties.relay(method(self.parties.clients[index], *payload)) for index in asked}

    def tell(self, method: Callable[..., Any], *payload: Any) -> None:
        self.ask(method, *payload)


def make(kind: Any, **options: Any) -> Any:
    return kind(kind.Options.model_validate(options))


@pytest.fixture(scope="module", params=[(Bfv, "key_server"), (Bfv, "clients"), (Ckks, "key_server"), (Ckks, "clients")],
                ids=["bfv-key_server", "bfv-clients", "ckks-key_server", "ckks-clients"])  # fmt: skip
def parties(request: pytest.FixtureRequest) -> Parties:
    """Five clients with keys, for tests that add and open."""
    kind, key_holder = request.param
    return Parties(make(kind, key_holder=key_holder), 5, min_clients=3).setup()


@pytest.mark.parametrize("kind", [Bfv, Ckks])
def test_conforms(kind: Any) -> None:
    check_component(kind)


# -- sums --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key_holder", ["key_server", "clients"])
def test_sums_of_128_worst_case_clients_are_exact(key_holder: str) -> None:
    parties = Parties(make(Bfv, key_holder=key_holder), 128).setup()
    terms = parties.server.memory(parties.component)["terms"]
    assert terms == {"field_bits": 23, "bits": 16, "max_clients": 128, "key": terms["key"]}
    numbers = FixedPoint(1.0, 16, 23, 128)
    rng = np.random.default_rng(0)
    extremes = np.where(rng.random((128, 8000)) < 0.5, -1, 1).astype(np.float32)
    extremes[:, :2000], extremes[:, 6000:] = 1, rng.uniform(-1, 1, (128, 2000))
    extremes[:, 2000:4000] = -1
    total = parties.add({index: parties.protect(0, update) for index, update in enumerate(extremes)})
    assert (total.contributors, total.divisor, total.weighted) == (128, 128.0, True)
    opened = parties.open(total).plain()
    quantised = np.sum([numbers.quantise(update)[0] for update in extremes], axis=0)
    assert np.array_equal(opened, numbers.dequantise_sum(quantised, 128))
    error = np.abs(opened - extremes.astype(np.float64).sum(0))
    assert error.max() < 128 * numbers.step / 2
    assert error[:6000].max() == 0  # the ends of the range are on the grid


def test_clients_of_a_process_decrypt_a_sum_once_and_each_reports_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    parties = Parties(make(Bfv, key_holder="clients"), 3, min_clients=2).setup()
    component, values = parties.component, np.arange(10, dtype=np.float32) / 10
    decrypted: list[int] = []
    real = Rlwe.decrypt

    def decrypt(self: Rlwe, context: Any, ciphertexts: Any, slots: int) -> Any:
        decrypted.append(len(ciphertexts))
        return real(self, context, ciphertexts, slots)

    monkeypatch.setattr(Rlwe, "decrypt", decrypt)

    def opened(client_id: int, total: Block, **facts: Any) -> Block:
        ctx = dataclasses.replace(parties.context(parties.clients[client_id]), **facts)
        block: Block = component.postprocess(total, ctx)
        return block

    total = parties.add({index: parties.protect(index, values) for index in range(3)})
    found = [opened(index, parties.relay(total)) for index in range(3)]
    assert len(decrypted) == 1
    assert all(np.array_equal(block.plain(), found[0].plain()) for block in found)
    seconds = [parties.clients[index].operations["std.bfv.decrypt"] for index in range(3)]
    assert [count for count, _ in seconds] == [1.0] * 3
    assert seconds[1][1] > seconds[0][1] / 2
    with pytest.raises(ProtectionError, match="holds 3 updates; opening fewer than min_clients=4"):
        opened(0, total, min_clients=4)
    opened(1, parties.add({index: parties.protect(index, values) for index in range(2)}))
    assert len(decrypted) == 3


def test_one_client_may_use_every_bit_of_a_field() -> None:
    parties = Parties(make(Bfv), 1, min_clients=1).setup()
    values = np.array([1, -1, 1, 1, 0.3], np.float32)
    assert np.abs(parties.open(parties.add({0: parties.protect(0, values)})).plain() - values).max() < 2.0**-22


def test_many_clients_get_narrower_fields_that_still_decrypt() -> None:
    component = make(Bfv)
    context, terms = component.new_keys(5000)
    assert terms["field_bits"] < 23
    assert 5000 * (2 ** terms["bits"] - 1) < 2 ** terms["field_bits"]
    codec_ = component.codec(terms)
    slots, _ = codec_.encode(np.ones(2 * DEGREE))
    fresh = component.backend.encrypt(context, np.tile(slots, (64, 1)))
    total = component.backend.add(context, [(str(index), [one]) for index, one in enumerate(fresh)], DEGREE)
    for _ in range(4):  # noise of independent updates grows with the root of their number, so twice is four times
        total = component.backend.add(context, [("it", total), ("itself", total)], DEGREE)
    summed = component.backend.decrypt(context, total, DEGREE)[0]
    assert np.array_equal(codec_.decode(summed, 2 * DEGREE, 1024), np.full(2 * DEGREE, 1024, np.float32))


def test_fields_shrink_when_the_noise_leaves_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rlwe, "noise", lambda *_: 300.0)
    parties = Parties(make(Bfv), 4).setup()
    assert parties.clients[3].memory(parties.component)["terms"]["field_bits"] == 22
    monkeypatch.setattr(Rlwe, "noise", lambda *_: 1e9)
    with pytest.raises(ProtectionError, match="max_clients=4 leaves no noise budget"):
        Parties(make(Bfv), 4).setup()


def test_the_scale_is_the_quotient_of_both_moduli() -> None:
    """q = 2^14 t + 1 for the plain modulus t = 2^46 - 1, so that messages times 2^14 are textbook BFV."""
    context, _ = make(Bfv).new_keys(3)
    modulus = context.ring.modulus
    assert sympy.isprime(modulus)
    assert (modulus - 1) % (2 * DEGREE) == 0
    assert divmod(modulus, 2**46 - 1) == (2**SCALE_BITS, 1)
    assert context.seal.first_context_data().parms().plain_modulus().value() == 2**46 - 1
    assert sum(COEFF_BITS) == context.seal.key_context_data().total_coeff_modulus_bit_count() == 109


def test_weights_are_multiplied_in_and_divided_out(parties: Parties) -> None:
    rng = np.random.default_rng(1)
    updates, weights = rng.uniform(-1, 1, (5, 7)), [1.0, 0.5, 0.25, 0.125, 0.7]
    blocks = {index: parties.protect(index, updates[index], weights[index]) for index in range(5)}
    assert all(block.values is None and block.weighted for block in blocks.values())
    assert [block.divisor for block in blocks.values()] == weights
    mean = parties.open(parties.add(blocks)).mean()
    assert np.abs(mean - np.average(updates, axis=0, weights=weights)).max() < 1e-5 * 5 / sum(weights)


def test_weights_already_in_are_not_multiplied_again(parties: Parties) -> None:
    client = parties.clients[0]
    client.weight = 0.5
    plain = Block("encrypted", 3, np.array([0.5, -0.25, 1], np.float32), weighted=True, divisor=0.75)
    blocks = {index: parties.component.protect(plain, client, client.ctx) for index in range(3)}
    total = parties.add(blocks)
    assert total.divisor == 2.25
    assert np.abs(parties.open(total).plain() - [1.5, -0.75, 3.0]).max() < 1e-4


@pytest.mark.parametrize("size", [0, 1, 2, 2047, 2048, 4094, 4095, 8190, 8191, 9001])
def test_every_size_fits(parties: Parties, size: int) -> None:
    updates = np.random.default_rng(size).uniform(-1, 1, (3, size)).astype(np.float32)
    blocks = {index: parties.protect(index, updates[index]) for index in range(3)}
    assert bool(size) == bool(blocks[0].ciphertexts)
    opened = parties.open(parties.add(blocks))
    assert opened.plain().shape == (size,)
    assert np.abs(opened.plain() - updates.sum(0)).max(initial=0) < 3e-5


def test_an_empty_zone_costs_no_ciphertext(parties: Parties) -> None:
    assert parties.protect(0, []).ciphertexts == ()


def test_saturation_is_logged_and_nan_refused(parties: Parties) -> None:
    parties.protect(0, [0.5, 2.0, -3.0, 0.0])
    assert parties.clients[0].log[f"{parties.component.name}.saturated"] == 0.5
    with pytest.raises(ProtectionError, match="NaN or infinite"):
        parties.protect(0, [0.5, np.nan])


def test_encrypting_prints_nothing(parties: Parties, capfd: pytest.CaptureFixture[str]) -> None:
    parties.protect(0, np.zeros(20_000))
    assert capfd.readouterr().out == ""


def test_no_plain_value_is_in_the_ciphertexts(parties: Parties) -> None:
    values = np.random.default_rng(2).uniform(-1, 1, 1000).astype(np.float32)
    upload = b"".join(parties.protect(0, values).ciphertexts)
    assert not [index for index in range(999) if values[index : index + 2].tobytes() in upload]


# -- keys --------------------------------------------------------------------------------------------------------------


def test_the_server_cannot_decrypt(parties: Parties) -> None:
    upload = parties.protect(0, [0.25])
    memory = parties.server.memory(parties.component)
    context = parties.component.backend.load_context(memory["context"])
    assert not context.has_secret_key()
    assert len(memory["context"]) < 200
    with pytest.raises(ProtectionError, match="no secret key"):
        parties.component.postprocess(upload, parties.context(parties.server))
    assert (context.secret_key, context.public_key) == (b"", b"")
    with pytest.raises(ProtectionError, match="holds no key of the encryption, so it cannot encrypt"):
        parties.component.backend.encrypt(context, np.zeros((1, parties.component.slots), np.int64))


def test_no_byte_of_the_secret_key_passes_the_server(parties: Parties) -> None:
    holder = parties.clients[0] if parties.component.site == "client" else parties.key_server
    stored = holder.memory(parties.component)["context"]
    secret = parties.component.backend.dump_context(parties.component.backend.load_context(stored), secret_key=True)
    pieces = [secret[start : start + 24] for start in range(200, len(secret) - 200, 97)]
    assert len(pieces) > 300
    assert sum(piece in stored for piece in pieces) == len(pieces)  # so the search below can find something
    seen = b"".join(parties.seen_by_server)
    assert len(seen) > 40_000
    assert not [piece for piece in pieces if piece in seen]


def test_clients_get_no_secret_key_from_the_key_server(parties: Parties) -> None:
    component = parties.component
    contexts = [component.backend.load_context(c.memory(component)["context"]) for c in parties.clients.values()]
    assert {context.has_secret_key() for context in contexts} == {parties.component.site == "client"}
    if parties.component.site == "key_server":
        with pytest.raises(ProtectionError, match="no secret key"):
            parties.component.postprocess(parties.protect(0, [0.5]), parties.context(parties.clients[0]))


def test_memory_is_plain_data_and_rebuilds_after_a_checkpoint(parties: Parties) -> None:
    total = parties.add({index: parties.protect(index, [0.5, 0.25]) for index in range(3)})
    for party in (parties.server, parties.key_server, *parties.clients.values()):
        party.state, party.cache = codec.decode(codec.encode(party.state)), {}
    again = parties.add({index: parties.protect(index, [0.5, 0.25]) for index in range(3)})
    assert np.array_equal(parties.open(total).plain(), parties.open(again).plain())


def test_contexts_do_not_travel_with_messages(parties: Parties) -> None:
    upload = parties.protect(0, np.zeros(parties.component.slots - 1))
    assert len(upload.ciphertexts) == 1
    assert len(upload.ciphertexts[0]) < 66_000


def test_the_box_opens_only_for_clients_and_only_with_its_terms() -> None:
    parties = Parties(make(Bfv, key_holder="clients"), 3)
    made = parties.component.make_shared_key(parties.clients[0], 3)
    other = {**made["terms"], "bits": made["terms"]["bits"] - 1}
    with pytest.raises(MessageError, match="do not open"):
        parties.component.adopt_keys(parties.clients[1], made["keys"], other)
    parties.clients[1].remembered.cohort_secret = bytes(32)
    with pytest.raises(MessageError, match="do not open"):
        parties.component.adopt_keys(parties.clients[1], made["keys"], made["terms"])
    with pytest.raises(MessageError, match="not an encryption context"):
        he_keys.context_of(parties.component, _with_context(parties.component, made["keys"]))


def _with_context(component: Any, data: bytes) -> Party:
    party = Party()
    party.memory(component).update(context=data, terms={})
    return party


@pytest.mark.parametrize("kind", [Bfv, Ckks])
def test_too_few_max_clients_is_refused_before_any_key_is_made(kind: Any) -> None:
    parties = Parties(make(kind, max_clients=5), 6)
    assert parties.component.check(types.SimpleNamespace(clients=5)) == []
    assert len(parties.component.check(types.SimpleNamespace(clients=6))) == 1
    with pytest.raises(ProtectionError, match=r"max_clients=5 is fewer than the 6 clients.* raise max_clients to 6"):
        parties.setup()
    assert parties.seen_by_server == []


def test_bits_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ProtectionError, match=r"max_clients=100 .*bits=20.*lower bits to 16"):
        Parties(make(Bfv, bits=20), 100).setup()
    assert "lower bits to 16" in make(Bfv, bits=20).check(types.SimpleNamespace(clients=100))[0]
    for wrong in ({"bits": 24}, {"range": 0}, {"range": float("inf")}, {"max_clients": 0}, {"key_holder": "server"}):
        with pytest.raises(ValidationError):
            make(Bfv, **wrong)


def test_a_leader_that_fails_is_named() -> None:
    parties = Parties(make(Bfv, key_holder="clients"), 3)
    parties.broken.add(0)
    with pytest.raises(TooFewClients, match=r"client 0 failed to make the key of std\.bfv"):
        parties.setup()


def test_a_party_without_keys_says_so() -> None:
    parties = Parties(make(Bfv), 3)
    with pytest.raises(ProtectionError, match=r"std\.bfv has no keys"):
        parties.protect(0, [1.0])


def test_clients_refuse_keys_made_for_fewer_clients(parties: Parties) -> None:
    more = Parties(parties.component, 6)
    more.clients[0].state = parties.clients[0].state
    with pytest.raises(ProtectionError, match="made for max_clients=5, but 6 clients"):
        more.protect(0, [1.0])


def test_what_components_declare(parties: Parties) -> None:
    component = parties.component
    assert component.site == {"clients": "client", "key_server": "key_server"}[component.options.key_holder]
    assert component.cohort_secret == (component.site == "client")
    assert isinstance(component, Sealer)
    ctx, plain = parties.context(parties.server), Known(zone="encrypted", link=component.name)
    (seal,) = component.effects(plain, ctx)
    assert (seal.opened_by, seal.answers) == (component.options.key_holder, "server")
    assert (seal.range, seal.step > 0) == (component.options.range, True)
    with pytest.raises(Misplaced, match="must not come after encryption in the chain of zone encrypted; encrypt once"):
        component.effects(plain.after((seal,)), ctx)
    assert ("every client" in component.describe()) == (component.site == "client")
    assert "\n" not in component.describe()
    assert len(component.reveals(ctx)) == (3 if component.site == "client" else 2)


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_a_sum_of_too_few_updates_is_not_opened(parties: Parties) -> None:
    total = parties.add({index: parties.protect(index, [0.5]) for index in range(2)})
    with pytest.raises(ProtectionError, match=r"holds 2 updates.* min_clients=3"):
        parties.open(total)


@pytest.mark.parametrize("really", [1, 2, 4])
def test_a_sum_of_another_number_than_claimed_is_not_opened(parties: Parties, really: int) -> None:
    total = parties.add({index: parties.protect(index, [0.5]) for index in range(really)})
    with pytest.raises(ProtectionError, match="does not hold the 3 updates that are claimed") as caught:
        parties.open(total.replace(contributors=3))
    assert f" {really} " not in str(caught.value)  # what was decrypted does not travel to the server


def test_a_single_ciphertext_slipped_into_a_sum_is_found(parties: Parties) -> None:
    values = np.zeros(3 * 4096)
    blocks = {index: parties.protect(index, values) for index in range(3)}
    total = parties.add(blocks)
    forged = total.replace(ciphertexts=(*total.ciphertexts[:1], blocks[0].ciphertexts[1], *total.ciphertexts[2:]))
    with pytest.raises(ProtectionError, match=r"ciphertext 1 .* does not hold the 3 updates"):
        parties.open(forged)


def test_more_updates_than_agreed_are_not_added(parties: Parties) -> None:
    block = parties.protect(0, [0.5])
    with pytest.raises(ProtectionError, match="sum of 6 updates could overflow: max_clients=5"):
        parties.add(dict.fromkeys(range(6), block))
    with pytest.raises(ProtectionError, match="sum of 7 updates"):
        parties.add({0: block, 1: block.replace(contributors=6)})


def test_blocks_that_differ_are_not_added(parties: Parties) -> None:
    one, other = parties.protect(0, [0.5]), parties.protect(1, [0.5, 0.1])
    with pytest.raises(ProtectionError, match=r"client 1 encrypted 2 scalars .* client 0 1; all clients must encrypt"):
        parties.add({0: one, 1: other})
    with pytest.raises(ProtectionError, match=r"sealed by other\.thing"):
        parties.add({0: one.replace(sealed_by="other.thing")})
    with pytest.raises(ProtectionError, match="sealed by None"):
        parties.open(Block("encrypted", 1, np.zeros(1, np.float32)))


def test_a_missing_ciphertext_is_found(parties: Parties) -> None:
    block = parties.protect(0, np.zeros(9000))
    short = block.replace(ciphertexts=block.ciphertexts[:-1])
    with pytest.raises(MessageError, match=r"client 0 sent .* ciphertexts for 9000 values, expected"):
        parties.add({0: short})
    with pytest.raises(MessageError, match="ciphertexts for 9000 values, expected"):
        parties.open(short)


@pytest.mark.parametrize("keep", [0, 1, 7, 50, 1000, 0.5, -1])
def test_truncated_ciphertexts_are_refused(parties: Parties, keep: float) -> None:
    block = parties.protect(1, [0.5])
    data = block.ciphertexts[0]
    cut = block.replace(ciphertexts=(data[: int(len(data) * keep) if 0 < keep < 1 else int(keep)],))
    with pytest.raises(MessageError, match="ciphertext 0 of client 1 "):
        parties.add({0: block, 1: cut})
    with pytest.raises(MessageError, match="ciphertext 0 "):
        parties.open(cut)


def test_altered_bytes_end_in_an_error_and_never_in_a_crash(parties: Parties) -> None:
    rng = np.random.default_rng(3)
    good = {index: parties.protect(index, [0.5]) for index in range(3)}
    data = good[2].ciphertexts[0]
    spots = [*range(90), *rng.integers(90, len(data), 60), *range(len(data) - 20, len(data))]
    refused = 0
    for spot in spots:
        altered = bytearray(data)
        altered[spot] ^= int(rng.integers(1, 256))
        try:
            total = parties.add({**good, 2: good[2].replace(ciphertexts=(bytes(altered),))})
            parties.open(total)
        except (MessageError, ProtectionError):
            refused += 1
    assert refused > 0.8 * len(spots)


def test_bytes_of_other_keys_are_refused(parties: Parties) -> None:
    stranger = Parties(make(type(parties.component), key_holder=parties.component.options.key_holder), 5).setup()
    blocks = {index: parties.protect(index, [0.5]) for index in range(2)}
    strange = stranger.protect(2, [0.5])
    with pytest.raises(ProtectionError, match="client 2 encrypted its encrypted block under another key") as caught:
        parties.add({**blocks, 2: strange})
    assert caught.value.client_id == 2
    # The number of the key finds what was mixed up; whatever it says, the sum does not open.
    with pytest.raises((ProtectionError, MessageError)):
        parties.open(parties.add({**blocks, 2: strange.replace(meta=blocks[0].meta)}))


def test_ciphertexts_of_another_packing_are_blamed_on_their_client(parties: Parties) -> None:
    component = parties.component
    other: Any = make(Ckks if component.name == "std.bfv" else Bfv)
    stranger, _ = other.new_keys(3)
    strange = other.backend.encrypt(stranger, np.ones((1, component.slots), np.int64))
    blocks = {index: parties.protect(index, [0.5]) for index in range(3)}
    blocks[1] = blocks[1].replace(ciphertexts=strange)
    with pytest.raises(MessageError, match="ciphertext 0 of client 1 ") as caught:
        parties.component.add_blocks(blocks, parties.context(parties.server))
    assert caught.value.client_id == 1


@pytest.mark.parametrize(
    "fault",
    [{"contributors": 2}, {"contributors": 0}, {"divisor": 0.5}, {"divisor": -1.0}, {"divisor": np.ones(1)},
     {"ciphertexts": ()}, {"ciphertexts": (b"garbage",)}, {"weighted": False}],
    ids=str,
)  # fmt: skip
def test_a_fault_of_one_upload_is_blamed_on_its_client(parties: Parties, fault: dict[str, Any]) -> None:
    parties.server.remembered.weights = dict.fromkeys(range(5), 1.0)
    blocks = {index: parties.protect(index, [0.5]) for index in range(3)}
    assert parties.component.add_blocks(blocks, parties.context(parties.server)).contributors == 3
    blocks[1] = blocks[1].replace(**fault)
    with pytest.raises((ProtectionError, MessageError), match="client 1") as caught:
        parties.component.add_blocks(blocks, parties.context(parties.server))
    parties.server.remembered.weights = {}
    assert caught.value.client_id == 1
