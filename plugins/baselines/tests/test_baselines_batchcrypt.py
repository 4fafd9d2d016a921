"""BatchCrypt: its packing, its clip, exact sums, and no overflow that goes unnoticed."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
from fedplug import Known, Layout, Misplaced
from fedplug.api.errors import MessageError, ProtectionError, RecipeError, TooFewClients
from fedplug.api.norms import Bound
from fedplug.recipe.recipe import Recipe
from fedplug_baselines.batchcrypt import BatchCrypt, extremes_problem
from fedplug_baselines.batches import (
    TwosComplement,
    code_limit,
    dynamic_clip,
    field_bits,
    optimal_clip,
)  # fmt: skip
from fedplug_ledger.wording import PLAIN_VALUES
from fedplug_std import paillier_scheme
from fedplug_std.paillier import PackedPaillier
from fedplug_std.paillier_scheme import SecretKey, _generate
from hypothesis import given
from hypothesis import strategies as st
from toy_components import pushed, recipe_of, toy_catalog
from toy_protocol import initial_vector, run_protocol, weights_of

PUSH = {"use": "toy.push"}
RNG = np.random.default_rng(0)

one_key = functools.cache(paillier_scheme.generate)


@pytest.fixture(autouse=True)
def _one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """All runs in this process have one key: to make one, with its table of powers, takes half of a run's time."""
    monkeypatch.setattr(paillier_scheme, "generate", one_key)


def recipe(holder: str = "clients", clip: str = "daciq", **changes: Any) -> dict[str, Any]:
    options = {key: changes.pop(key) for key in ("bits", "range", "rounding") if key in changes}
    component = {"use": "baselines.batchcrypt", "key_holder": holder, "clip": clip, **options}
    plain = recipe_of("encrypted", negotiate_mask=component, train=PUSH, rounds=1)
    return plain | {
        "protect": {"encrypted": ["baselines.batchcrypt"]}, "postprocess": {"encrypted": ["baselines.batchcrypt"]},
    } | changes  # fmt: skip


# -- numbers -----------------------------------------------------------------------------------------------------------


def test_ten_bits_go_204_times_into_a_2048_bit_key() -> None:
    """The paper's example: eight bits, a second sign bit, one of padding for two clients."""
    assert field_bits(8, 2) == 10
    assert PackedPaillier(field_bits(8, 2), 2048).most_slots() == 204
    assert [field_bits(16, clients) for clients in (1, 2, 3, 4, 5, 10)] == [17, 18, 19, 19, 20, 21]


@given(st.integers(3, 32), st.integers(1, 1000))
def test_the_codes_of_all_clients_sum_to_bits_bits_and_never_reach_the_next_field(bits: int, clients: int) -> None:
    """Spec 35: by construction, whatever the values are."""
    assert clients * code_limit(bits, clients) <= 2 ** (bits - 1) - 1
    assert clients * (2 ** (bits + 1) - 1) < 2 ** field_bits(bits, clients)


@given(st.integers(1, 7), st.integers(4, 20), st.integers(0, 2**32 - 1))
def test_packed_sums_are_the_sums_of_the_values(clients: int, bits: int, seed: int) -> None:
    """The plaintexts are added as whole numbers. Each value is off by at most half a step per client."""
    rng = np.random.default_rng(seed)
    clip = np.concatenate([[0.0], rng.uniform(0.1, 2, 10)])
    codec = TwosComplement(bits, clients, clip, stochastic=False)
    fields = PackedPaillier(field_bits(bits, clients), 2048)
    values = rng.normal(0, 1, (clients, 11)) * rng.choice([0.01, 1, 100], (clients, 1))
    numbers = [fields.pack(codec.encode(row, rng)[0].reshape(1, -1))[0] for row in values]
    total = codec.decode(fields.unpack([sum(numbers)], 11)[0], clients)
    expected = np.clip(values, -clip, clip).sum(0)
    assert (np.abs(total - expected) <= clients * clip / code_limit(bits, clients) / 2 + 1e-6).all()


def test_two_s_complement_has_two_sign_bits() -> None:
    codec = TwosComplement(bits=4, max_clients=1, clip=7.0, stochastic=False)
    fields, beyond = codec.encode(np.array([3.0, -3.0, -7.0, 0.0, 9.0]), RNG)
    assert [f"{field:05b}" for field in fields] == ["00011", "11101", "11001", "00000", "00111"]
    assert beyond == pytest.approx(0.2)
    assert codec.decode(fields, 1).tolist() == [3, -3, -7, 0, 7]


def test_carries_end_in_the_padding() -> None:
    """All clients send -1 everywhere. Every field is all ones, and every sum carries as far as possible."""
    bits, clients = 8, 9
    codec = TwosComplement(bits, clients, float(code_limit(bits, clients)), stochastic=False)
    fields = PackedPaillier(field_bits(bits, clients), 2048)
    row = codec.encode(np.full(20, -1.0), RNG)[0].reshape(1, -1)
    total = fields.unpack([clients * fields.pack(row)[0]], 20)[0]
    assert codec.decode(total, clients).tolist() == [-clients] * 20


@given(st.lists(st.integers(-127, 127), min_size=1, max_size=6))
def test_an_overflow_is_found_and_never_silent(codes: list[int]) -> None:
    """Spec 35: clients that use all of the 8 bits for themselves, so that the sum of six may need eleven."""
    codec = TwosComplement(bits=8, max_clients=6, clip=1.0, stochastic=False)
    fields = sum(code & 0x1FF for code in codes)
    total = sum(codes)
    if abs(total) <= len(codes) * codec.limit:
        assert codec.decode(np.array([fields]), len(codes))[0] == pytest.approx(total / codec.limit)
    elif -256 <= total < 256:
        with pytest.raises(ProtectionError, match=r"1 of 1 sums overflowed|1 are larger than"):
            codec.decode(np.array([fields]), len(codes))
    overflows = not -128 <= total < 128
    if overflows and -256 <= total < 256:
        with pytest.raises(ProtectionError, match="1 of 1 sums overflowed their 8 bits"):
            codec.decode(np.array([fields]), len(codes))


def test_rounding_by_chance_has_no_bias() -> None:
    codec = TwosComplement(8, 1, 127.0, stochastic=True)
    values = np.full(40_000, 0.3)
    decoded = codec.decode(codec.encode(values, RNG)[0], 1)
    assert set(decoded) == {0.0, 1.0}
    assert abs(decoded.mean() - 0.3) < 5 * math.sqrt(0.21 / 40_000)
    assert set(codec.decode(codec.encode(np.array([127.0, -127.0, 200.0]), RNG)[0], 1)) == {127.0, -127.0}


def test_a_plaintext_with_more_than_its_fields_is_refused() -> None:
    with pytest.raises(MessageError, match="plaintext 1 is longer than 3 fields of 12 bits"):
        PackedPaillier(12, 512).unpack([2**36 - 1, 2**36], 3)


# -- the clip ----------------------------------------------------------------------------------------------------------


def test_the_best_clip_is_that_of_the_authors_table() -> None:
    """aciq.py, `alpha_gaus`: clips of a standard normal tensor for 2 to 20 bits."""
    table = [
        1.71063516, 2.02612148, 2.39851063, 2.76873681, 3.12262004, 3.45733738, 3.77355322, 4.07294252, 4.35732563,
        4.62841243, 4.88765043, 5.1363822, 5.37557768, 5.60671468, 5.82964388, 6.04501354, 6.25385785, 6.45657762,
        6.66251328,
    ]  # fmt: skip
    assert [optimal_clip(bits) for bits in range(2, 21)] == pytest.approx(table, rel=2e-3)


def test_the_clip_of_a_tensor_follows_from_its_extremes() -> None:
    """aciq.py, `get_alpha_gaus`, by hand: 0.175 (1 + sqrt(pi ln 4)) = 0.5402 of the range over sqrt(2 ln n)."""
    clips = dynamic_clip(np.array([-1.0, 0.0]), np.array([3.0, 0.0]), np.array([1000, 1]), 8)
    assert clips[0] == pytest.approx(optimal_clip(8) * 4 * 0.540205 / math.sqrt(2 * math.log(1000)), rel=1e-5)
    assert clips[1] == 0.0


# -- ciphertexts -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def key() -> SecretKey:
    """A short key. The tests do not depend on its length."""
    return _generate(512)


def test_the_server_adds_without_a_key_and_only_the_secret_key_opens(key: SecretKey) -> None:
    backend = PackedPaillier(12, 512)
    at_client = backend.load_context(backend.dump_context(key, public_key=True))
    at_server = backend.load_context(backend.dump_context(key))
    at_holder = backend.load_context(backend.dump_context(key, secret_key=True))
    rows = np.random.default_rng(0).integers(0, 2**9, (3, 40))
    uploads = [backend.encrypt(at_client, rows + i) for i in range(4)]
    total = backend.add(at_server, uploads, 40)
    assert np.array_equal(backend.decrypt(at_holder, total, 40), 4 * rows + 6)
    for party in (at_client, at_server):
        with pytest.raises(ProtectionError, match="holds no secret key"):
            backend.decrypt(party, total, 40)
    with pytest.raises(ProtectionError, match="can only add"):
        backend.encrypt(at_server, rows)
    assert "SecretKey" not in f"{type(at_client)} {type(at_server)}"


def test_ciphertexts_of_another_key_or_packing_or_damaged_ones_are_refused(key: SecretKey) -> None:
    backend, other = PackedPaillier(12, 512), PackedPaillier(13, 512)
    rows = np.ones((1, 30), np.int64)
    (good,), (foreign,) = backend.encrypt(key, rows), other.encrypt(key, rows)
    (stranger,) = backend.encrypt(_generate(512), rows)
    for bad in (foreign, stranger, good[:-1], good + good[4:], b""):
        with pytest.raises(MessageError, match="ciphertext 0 cannot be used"):
            backend.add(key.public, [[good], [bad]], 30)
    for bad in (b"", b"x", b"s", b"p" + b"\x00"):
        with pytest.raises(MessageError):
            backend.load_context(bad)


# -- as a whole --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("holder", "clip"), [("clients", "daciq"), ("key_server", "daciq"), ("key_server", "range")])
def test_the_opened_sum_is_the_plain_sum_of_what_was_clipped(holder: str, clip: str) -> None:
    plain = recipe(holder, clip, range=0.02, bits=20, rounding="nearest")
    outcome = run_protocol(plain)
    start, weights = initial_vector(plain), weights_of(outcome)
    updates = np.stack([pushed(start, 7, client, 0) * weights[client] for client in range(4)]).astype(np.float64)
    clips = np.full(650, 0.02)
    if clip == "daciq":
        parts = [slice(0, 640), slice(640, 650)]  # the weight and the bias of the linear model
        for part in parts:
            extremes = updates[:, part].min(), updates[:, part].max()
            counts = np.array([updates[:, part].size])
            clips[part] = dynamic_clip(np.array(extremes[:1]), np.array(extremes[1:]), counts, 20)
    mean = np.clip(updates, -clips, clips).sum(0) / sum(weights.values())
    step = clips.max() / code_limit(20, 4)
    assert np.abs(outcome.vector - start - mean).max() < 4 * step + 1e-7
    clipped = np.mean(np.abs(updates) > clips)
    assert (clipped > 0) == (clip == "range")


def test_an_overflowing_sum_is_not_opened_and_the_model_stays(monkeypatch: Any) -> None:
    """Clients that do not leave room for each other, all at the clip: the zone is skipped, and the reason is noted."""
    monkeypatch.setattr(TwosComplement, "limit", property(lambda self: 2 ** (self.bits - 1) - 1))
    plain = recipe("key_server", "range", range=1e-6, bits=8)
    outcome = run_protocol(plain)
    assert any("overflowed their 8 bits" in note for note in outcome.notes)
    assert np.array_equal(outcome.vector, initial_vector(plain))


def test_both_engines_agree_on_what_chance_rounds() -> None:
    plain = recipe(bits=8)
    assert np.array_equal(run_protocol(plain).vector, run_protocol(plain, "processes", workers=1).vector)


def test_a_shared_part_of_the_model_can_be_encrypted_under_a_given_clip() -> None:
    part = {
        "negotiate_mask": {"use": "baselines.random_mask", "ratio": 0.25},
        "postprocess": {"encrypted": ["baselines.batchcrypt"]},
    }
    seal = {"use": "baselines.batchcrypt", "clip": "range", "range": 0.1}
    outcome = run_protocol(recipe() | part | {"protect": {"encrypted": [seal], "clear": []}})
    assert outcome.rows[0].zones["encrypted"] == pytest.approx(162 / 650)
    fedavg = run_protocol(recipe_of(train=PUSH, rounds=1))
    assert 0 < np.abs(outcome.vector - fedavg.vector).max() < 4 * 0.1 / code_limit(16, 4)


@pytest.mark.parametrize(("plain", "problem"), [
    (recipe(negotiate_mask={"use": "std.single_zone", "zone": "encrypted"}), "daciq is agreed in the negotiation"),
    (recipe(bits=3), r"bits=3 leaves each of max_clients=4 no code but 0; raise bits to 4"),
    (recipe(bits=33), "bits"),
    (recipe(protect={"encrypted": [{"use": "baselines.batchcrypt", "name": "b"}]}, postprocess={"encrypted": ["b"]}),
     r"baselines.batchcrypt: it protects nothing; write protect: \{encrypted: \[baselines.batchcrypt\]\}"),
])  # fmt: skip
def test_what_cannot_work_is_said_before_the_run(plain: dict[str, Any], problem: str) -> None:
    with pytest.raises(RecipeError, match=problem):
        Recipe.from_plain(plain, toy_catalog())


@pytest.mark.parametrize("found", [
    None, np.zeros((2, 3), np.float32), np.zeros((2, 2)), np.array([[0.0, 0, np.nan]] * 2),
    np.array([[1.0, 0, 0], [0.0, 0, 0]]),
])  # fmt: skip
def test_extremes_are_checked_before_they_are_used(found: Any) -> None:
    assert extremes_problem(np.array([[-1.0, 0, 0], [1.0, 0, 2]]), 3) == ""
    assert "not a finite pair for each tensor" in extremes_problem(found, 3)


def test_every_group_has_its_own_clips() -> None:
    """The groups negotiate one after the other, before any of them is summed; parties go by those of their group."""
    plain = recipe("key_server", groups="toy.halves", bits=20, rounding="nearest")
    outcome = run_protocol(plain)
    assert outcome.notes == []
    protocol, start, weights = outcome.protocol, initial_vector(plain), weights_of(outcome)
    groups = protocol.server.remembered.groups
    clips = [protocol.facts(0, group).of("baselines.batchcrypt")["clips"] for group in groups]
    assert not np.array_equal(*clips)
    for members, agreed in zip(groups.values(), clips, strict=True):
        updates = np.stack([pushed(start, 7, c, 0).astype(np.float64) * weights[c] for c in members])
        for tensor, part in enumerate((slice(0, 640), slice(640, 650))):
            count = np.array([updates[:, part].size])
            lowest, highest = (np.array([extreme]) for extreme in (updates[:, part].min(), updates[:, part].max()))
            assert agreed[tensor] == pytest.approx(dynamic_clip(lowest, highest, count, 20)[0], rel=1e-12)


def test_values_without_the_clips_of_the_whole_model_are_not_closed() -> None:
    for clip in (None, np.ones(3)):
        with pytest.raises(ProtectionError, match=r"there are no clips for \(4,\) values; the negotiation"):
            TwosComplement(8, 2, clip, stochastic=False).encode(np.ones(4), RNG)


def test_a_diverged_client_is_left_out() -> None:
    with pytest.raises(TooFewClients, match=r"not a finite pair for each tensor"):
        run_protocol(recipe(train={"use": "std.sgd", "lr": 1e30}, model={"use": "std.mlp", "hidden": [8]}))


# -- what it states ----------------------------------------------------------------------------------------------------


def behind(make_client: Any, **options: Any) -> Known:
    """The facts known about clipped values after the component."""
    component = BatchCrypt(BatchCrypt.Options(**options))
    facts = make_client(Layout.of([("w", (50,))])).facts
    known = Known(zone="encrypted", link=component.name, layers=(50,), bounds=(Bound(1.0),))
    return known.after(*component.protect(known, facts))


def test_a_given_clip_and_the_nearest_code_are_a_range_and_a_step(make_client: Any) -> None:
    known = behind(make_client, clip="range", range=0.5, rounding="nearest")
    seal: Any = known.closed
    assert (seal.range, seal.step) == (0.5, 0.5 / code_limit(16, 4))
    assert known.norm() == pytest.approx(1 + seal.step / 2 * math.sqrt(50))


def test_what_rounding_by_chance_or_a_clip_of_the_round_does_to_a_length_is_not_known(make_client: Any) -> None:
    """Random rounding can turn a value next to 0 into a whole step, so a short update can become many times as long."""
    chance, agreed = behind(make_client, clip="range", range=0.5), behind(make_client)
    for known in (chance, agreed):
        seal: Any = known.closed
        assert math.isnan(seal.step)
        assert known.norm() is None
        assert known.sensitivity() is None
        with pytest.raises(Misplaced, match=r"baselines\.batchcrypt does not say what values it holds"):
            known.need_norm("put a clip before it")
        assert "so others' noise earns no credit" in known.uncredited[0]
    ranges: list[Any] = [known.closed for known in (chance, agreed)]
    assert ranges[0].range == 0.5
    assert math.isnan(ranges[1].range)


def test_the_server_learns_the_extremes_and_the_opener_the_clips() -> None:
    protocol = run_protocol(recipe()).protocol
    assert {*protocol.ledger.uncovered} <= {PLAIN_VALUES}  # extremes are plain values, as it states
    component: Any = protocol.composition.components["baselines.batchcrypt"]
    seen = {(each.what, party) for each in component.reveals(protocol.server.facts) for party in each.to}
    told = {("extremes of updates", "server"), ("clip of the round", "client"), ("clip of the round", "key_holder")}
    assert told <= seen
    assert component.plan(protocol.server.facts) is None
    given = BatchCrypt(BatchCrypt.Options(clip="range"))
    assert given.plan(protocol.server.facts) == "encrypted"
    assert not {each.what for each in given.reveals(protocol.server.facts)} & {what for what, _ in told}
