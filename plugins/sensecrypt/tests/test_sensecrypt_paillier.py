"""Scalar Paillier: exact sums over masks that differ, nothing in the clear, and bad input refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import phe
import pytest
from fedplug import Known, Seal
from fedplug.api.errors import MessageError, ProtectionError
from fedplug_kit.static import check_component
from fedplug_sensecrypt._phe import COUNT_BITS, Phe
from fedplug_sensecrypt.paillier import SCALE, Paillier, SignedFixedPoint
from he_toys import Parties, facts_of
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

SIZE = 12


@pytest.fixture
def small_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of 256 bits, which protect nothing and are fast. The arithmetic is the same."""
    monkeypatch.setattr(Phe, "new_context", lambda self, bits: phe.generate_paillier_keypair(n_length=256)[1])


def parties_of(num_clients: int = 4, min_clients: int = 3, **options: Any) -> Parties:
    return Parties(Paillier(Paillier.Options(**options)), num_clients, min_clients, SIZE).setup()


def test_conforms() -> None:
    check_component("sensecrypt.paillier")


@pytest.mark.parametrize("key_holder", ["key_server", "clients"])
def test_sums_at_2048_bits_in_both_key_arrangements(key_holder: str) -> None:
    """Items 16 and 37: sums are exact after rounding. The server sees no secret key, and 512 bytes per scalar."""
    parties = parties_of(3, key_holder=key_holder)
    updates = np.array([[0.5, -3e-7], [-1.25, 900.0], [2**-32, -0.1]], np.float32)
    blocks = {index: parties.seal(index, updates[index]) for index in range(3)}
    assert all(len(ciphertext) == 512 for block in blocks.values() for ciphertext in block.ciphertexts)
    opened = parties.open(parties.add(blocks))
    codes = np.rint(updates.astype(np.float64) * SCALE).sum(0)
    np.testing.assert_array_equal(opened.plain(), (codes / SCALE).astype(np.float32))
    with pytest.raises(ProtectionError, match="no secret key"):
        parties.open(parties.add(blocks), parties.server)
    keys = [p.memory(parties.component)["context"] for p in (parties.key_server, parties.clients[1])
            if "context" in p.memory(parties.component)]  # fmt: skip
    secret = next(data for data in keys if data.startswith(b"p "))
    prime = secret.split(b" ")[1]
    assert not any(prime in message for message in parties.seen_by_server)
    assert (key_holder == "clients") == parties.clients[1].memory(parties.component)["context"].startswith(b"p ")


masks = st.lists(st.sets(st.integers(0, SIZE - 1)), min_size=4, max_size=4)


@settings(max_examples=25, deadline=None)
@given(covers=masks, seed=st.integers(0, 1000), least=st.sampled_from([1, 3]))
def test_own_masks_sum_to_the_weighted_mean(covers: list[set[int]], seed: int, least: int) -> None:
    """Item 28: over the union of the masks (`min_clients: 1`, the paper), or where enough clients encrypted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Phe, "new_context", lambda self, bits: phe.generate_paillier_keypair(n_length=256)[1])
        parties = parties_of(4, least)
    rng = np.random.default_rng(seed)
    weights = rng.random(4) + 0.1
    total, weight, count = np.zeros(SIZE), np.zeros(SIZE), np.zeros(SIZE, int)
    blocks = {}
    for index, cover in enumerate(covers):
        where, values = sorted(cover), rng.standard_normal(len(cover))
        blocks[index] = parties.seal(index, values, weights[index] / 2, where)
        total[where] += weights[index] / 2 * values.astype(np.float32)
        weight[where] += weights[index] / 2
        count[where] += 1
    expected = np.flatnonzero(count >= least)
    summed = parties.add(blocks)
    assert summed.positions is not None
    assert summed.positions.tolist() == expected.tolist()
    assert len(summed.ciphertexts) == len(expected)  # ciphertexts that are not opened are not even passed on
    mean = parties.open(summed).mean()
    np.testing.assert_allclose(mean, total[expected] / weight[expected], atol=1e-6)


@pytest.mark.usefixtures("small_keys")
def test_disjoint_empty_and_full_masks() -> None:
    parties = parties_of(4)
    disjoint = {index: parties.seal(index, np.ones(3), where=range(3 * index, 3 * index + 3)) for index in range(4)}
    summed = parties.add(disjoint)
    assert (summed.size, summed.ciphertexts) == (0, ())  # every sum would be one client's value
    assert parties.open(summed).plain().shape == (0,)
    some = {index: parties.seal(index, np.full(SIZE, index), where=range(SIZE)) for index in range(3)}
    some[3] = parties.seal(3, [], where=[])
    assert some[3].ciphertexts == ()
    np.testing.assert_array_equal(parties.open(parties.add(some)).mean(), np.ones(SIZE))


# -- what is on the wire -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_keys")
def test_ciphertexts_are_randomised_and_tell_no_magnitude() -> None:
    parties = parties_of(3)
    once, twice = parties.seal(0, [0.5, 0.5, 1e-6]), parties.seal(0, [0.5, 0.5, 1e-6])
    assert len({*once.ciphertexts, *twice.ciphertexts}) == 6
    assert {len(ciphertext) for ciphertext in once.ciphertexts} == {64}  # twice 256 bits, for any value
    assert not once.meta
    key = phe.generate_paillier_keypair(n_length=256)[0]
    assert key.encrypt(0.5).exponent != key.encrypt(1e-6).exponent  # phe's floats would reveal this


@pytest.mark.usefixtures("small_keys")
def test_sums_are_the_bare_product() -> None:
    """No second randomisation of sums, at 900 times the cost: only the product modulo n^2."""
    parties = parties_of(3)
    blocks = {index: parties.seal(index, [0.25]) for index in range(3)}
    key = Phe().load_context(parties.server.memory(parties.component)["context"])
    product = 1
    for block in blocks.values():
        product = product * int.from_bytes(block.ciphertexts[0], "big") % key.nsquare
    (summed,) = parties.add(blocks).ciphertexts
    assert int.from_bytes(summed, "big") == product


@pytest.mark.usefixtures("small_keys")
def test_plaintexts_count_their_contributors() -> None:
    parties = parties_of(3)
    secret = Phe().load_context(parties.key_server.memory(parties.component)["context"])
    summed = parties.add({index: parties.seal(index, [-0.5]) for index in range(3)})
    plain = int(secret.raw_decrypt(int.from_bytes(summed.ciphertexts[0], "big")))
    assert plain == (3 << COUNT_BITS) - 3 * SCALE // 2
    with pytest.raises(ProtectionError, match="does not hold the 4 updates that are claimed"):
        parties.open(summed.replace(contributors=4))
    two = parties.add({index: parties.seal(index, [1.0]) for index in range(2)})
    with pytest.raises(ProtectionError, match="fewer than min_clients=3"):
        parties.open(two)


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_keys")
@pytest.mark.parametrize("value", [1.5, -1.5, np.nan, np.inf])
def test_a_value_out_of_range_is_refused(value: float) -> None:
    parties = parties_of(3, range=1.0)
    beyond = "times weight are beyond range=1; raise range" if np.isfinite(value) else ".* are NaN or infinite"
    with pytest.raises(ProtectionError, match=f"1 of 2 values {beyond}"):
        parties.seal(0, [0.5, value])
    if np.isfinite(value):
        parties.seal(0, [0.5, value], weight=0.5)  # the weight is applied before the check
    assert np.abs(parties.open(parties.add({k: parties.seal(k, [1, -1]) for k in range(3)})).plain()).max() == 3


def test_a_sum_out_of_range_is_refused() -> None:
    numbers = SignedFixedPoint(1.0, 1 / SCALE)
    np.testing.assert_array_equal(numbers.decode(np.array([2 * SCALE, -2 * SCALE]), 2), [2, -2])
    with pytest.raises(ProtectionError, match="the opened sum is larger than its updates add up to"):
        numbers.decode(np.array([2 * SCALE + 1]), 2)


@pytest.mark.usefixtures("small_keys")
def test_ciphertexts_of_another_key_are_refused() -> None:
    """By the count at the key server."""
    parties, others = parties_of(3), parties_of(3)
    blocks = {index: parties.seal(index, [0.5]) for index in range(3)}
    foreign = others.seal(2, [0.5])
    key, own = (Phe().load_context(p.server.memory(p.component)["context"]) for p in (others, parties))
    small = int.from_bytes(foreign.ciphertexts[0], "big") % min(key.nsquare, own.nsquare)
    foreign = foreign.replace(ciphertexts=(small.to_bytes(64, "big"),))
    with pytest.raises(ProtectionError, match="does not hold the 3 updates"):
        parties.open(parties.add(blocks | {2: foreign}))


@pytest.mark.usefixtures("small_keys")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: (c[0],), "sent 1 parts for 2 values in 2 blocks of 1 positions"),  # another packing
        (lambda c: (c[0], c[1] + b"\0"), "has 65 bytes, which must be 64"),  # a key of another length
        (lambda c: (c[0], bytes(64)), "not a number below n\\^2"),
        (lambda c: (c[0], b"\xff" * 64), "not a number below n\\^2"),
    ],
)
def test_damaged_ciphertexts_are_blamed_on_their_client(change: Any, message: str) -> None:
    parties = parties_of(3)
    blocks = {index: parties.seal(index, [0.5, 1], where=[3, 7]) for index in range(3)}
    blocks[1] = blocks[1].replace(ciphertexts=change(blocks[1].ciphertexts))
    with pytest.raises(MessageError, match=message) as caught:
        parties.add(blocks)
    assert caught.value.client_id == 1


@pytest.mark.parametrize("data", [b"", b"n", b"n 0", b"n -5", b"n zz", b"p 3 q", b"p 3 q 3", b"\xff\xfe", b"x 5"])
def test_bytes_that_are_no_key_are_refused(data: bytes) -> None:
    with pytest.raises(MessageError, match="not a Paillier key"):
        Phe().load_context(data)


def test_options_that_could_overflow_are_refused() -> None:
    with pytest.raises(ProtectionError, match=r"could exceed 2\^62; lower range to less than 1.07374e\+08"):
        Paillier(Paillier.Options(range=2e8)).agree(10)
    with pytest.raises(ValidationError, match="greater than or equal to 2048"):
        Paillier.Options(bits=1024)
    with pytest.raises(ValidationError, match="greater than 0"):
        Paillier.Options(range=0)


def test_the_seal_says_what_it_holds() -> None:
    component = Paillier(Paillier.Options())
    (seal,) = component.protect(Known(zone="encrypted"), facts_of(component, 10, 2))
    assert isinstance(seal, Seal)
    assert (seal.range, seal.step, seal.position_block) == (1024.0, 2**-32, 1)
    assert (seal.opened_by, seal.sums_visible_to) == ("key_server", "server")
    assert seal.scheme == "Paillier 2048 through phe, one value a ciphertext, steps of 2^-32, range ±1024"
    assert component.describe() == f"{seal.scheme}; secret key at the key server"
