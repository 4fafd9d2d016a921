"""Keys, ciphertexts and openings by hand: exact sums, noise sizes, and the power of fewer than t clients."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from examples import examples
from fedplug.api.errors import MessageError, ProtectionError
from fedplug_std.shamir import Sharing
from fedplug_threshold import smudging
from fedplug_threshold.parameters import ERROR_VARIANCE, TAIL, TERNARY_VARIANCE, choose, noise_bound
from fedplug_threshold.ring import Chain
from fedplug_threshold.scheme import Scheme
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from test_threshold_ring import whole


def sum_of(scheme: Scheme, c0: NDArray[np.uint64], parts: Sequence[NDArray[np.uint64]], size: int) -> NDArray[np.int64]:
    """Sums of fields from c0 and the parts of all clients of the set."""
    return scheme.read(functools.reduce(scheme.chain.plus, parts, c0), size)


@dataclasses.dataclass
class Party:
    """All clients of a run, with a fresh key."""

    scheme: Scheme
    clients: int

    def __post_init__(self) -> None:
        (common,) = self.scheme.chain.uniform(os.urandom(16))
        parts = [self.scheme.contribution(common, range(self.clients)) for _ in range(self.clients)]
        self.key = self.scheme.public_key(self.scheme.chain.total(public for public, _ in parts), common)
        self.shares = [self.scheme.chain.total(shares[j] for _, shares in parts) for j in range(self.clients)]
        self.noise = [os.urandom(32) for _ in range(self.clients)]
        pairs = itertools.combinations(range(self.clients), 2)
        self.masks = {frozenset(pair): os.urandom(16) for pair in pairs}

    def secret(self, holders: Sequence[int]) -> NDArray[np.uint64]:
        as_if_enough = dataclasses.replace(self.scheme.parameters, threshold=len(holders))
        return Scheme(as_if_enough).secret({j: self.shares[j] for j in holders})

    def part(self, me: int, holders: Sequence[int], c1: NDArray[np.uint64]) -> NDArray[np.uint64]:
        masks = {other: self.masks[frozenset((me, other))] for other in holders if other != me}
        return self.scheme.partial(self.shares[me], me, holders, c1, self.noise[me], masks)

    def total(self, numbers: Sequence[NDArray[np.int64]]) -> NDArray[np.uint64]:
        return functools.reduce(self.scheme.chain.plus, (self.scheme.encrypt(self.key, each) for each in numbers))


def party(clients: int = 6, threshold: int = 4, degree: int | None = None, bits: int | None = None) -> Party:
    """Those with these numbers, made once."""
    return made(clients, threshold, degree, bits)


@functools.cache
def made(clients: int, threshold: int, degree: int | None, bits: int | None) -> Party:
    return Party(Scheme(choose(clients, threshold, 40, bits, degree)), clients)


def drawn(party: Party, size: int, seed: int = 1) -> list[NDArray[np.int64]]:
    top = (2**party.scheme.parameters.bits - 2 ** (party.scheme.parameters.bits - 8)) // party.clients
    return list(np.random.default_rng(seed).integers(0, top + 1, (party.clients, size)))


@pytest.mark.parametrize(("of", "holders"), [
    ((6, 4), (0, 1, 2, 3)), ((6, 4), (1, 3, 4, 5)), ((6, 4), (5, 0, 2, 4)), ((6, 4, None, 36), (1, 3, 4, 5)),
    ((6, 4, 8192), (5, 0, 2, 4)), ((3, 2, 16384, 20), (2, 0)),
])  # fmt: skip
def test_any_threshold_clients_open_a_sum_exactly(of: tuple[int, ...], holders: Any) -> None:
    them = party(*of)
    numbers = drawn(them, 10_001)
    numbers[0][:] = numbers[1][:] = 0
    total = them.total(numbers)
    parts = [them.part(j, holders, total[:, 1]) for j in holders]
    assert np.array_equal(sum_of(them.scheme, total[:, 0], parts, 10_001), sum(numbers))


@settings(max_examples=examples(24), deadline=None)
@given(st.integers(2, 9), st.data())
def test_sums_of_some_are_opened_by_any_set_of_any_size(clients: int, data: st.DataObject) -> None:
    threshold = data.draw(st.integers(2, clients))
    them = party(clients, threshold)
    holders = tuple(data.draw(st.permutations(range(clients)))[:threshold])
    inside = data.draw(st.integers(1, clients))
    size = data.draw(st.integers(0, 9000))
    numbers = drawn(them, size, data.draw(st.integers(0, 2**32)))[:inside]
    total = them.total(numbers)
    parts = [them.part(j, holders, total[:, 1]) for j in holders]
    assert np.array_equal(sum_of(them.scheme, total[:, 0], parts, size), sum(numbers))


def test_the_largest_sums_fit_into_every_field() -> None:
    for clients, threshold, *numbers in ((6, 4), (6, 4, 8192), (3, 2, 16384, 20)):
        them, holders = party(clients, threshold, *numbers), range(threshold)
        parameters = them.scheme.parameters
        top = (2**parameters.bits - 2 ** (parameters.bits - 8)) // clients
        size = parameters.degree * parameters.per_coefficient
        total = them.total([np.full(size, top, np.int64)] * clients)
        parts = [them.part(j, holders, total[:, 1]) for j in holders]
        assert set(sum_of(them.scheme, total[:, 0], parts, size).tolist()) == {clients * top}


# -- noise -------------------------------------------------------------------------------------------------------------


def centred(chain: Chain, residues: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Numbers modulo q of either sign, shape (m, N) for (m, L, N)."""
    modulus = math.prod(chain.primes)
    rows = [[x - modulus if x > modulus // 2 else x for x in whole(row, chain.primes)] for row in residues]
    return np.array(rows, np.float64)


@pytest.mark.parametrize("clients", [3, 6, 20])
def test_the_noise_of_a_sum_is_below_the_bound_that_smudging_assumes(clients: int) -> None:
    them = party(clients, clients // 2 + 1)
    parameters, chain = them.scheme.parameters, them.scheme.chain
    total = them.total([np.zeros(2 * 4096 * parameters.per_coefficient, np.int64)] * clients)
    secret = them.secret(range(parameters.threshold))
    noise = centred(chain, chain.plus(total[:, 0], chain.product(total[:, 1], chain.limbs(secret))))
    expected = clients * math.sqrt(4096 * 2 * ERROR_VARIANCE * TERNARY_VARIANCE)
    assert float(noise.std()) == pytest.approx(expected, rel=0.07)
    # The bound holds 12 deviations of a key with norms that are sqrt(2) larger: a factor of 17 above the deviation, and
    # some four above the largest of some thousand coefficients.
    assert parameters.noise / float(noise.std()) == pytest.approx(TAIL * math.sqrt(2), rel=0.07)
    assert float(np.abs(noise).max()) < parameters.noise / 2.4


@pytest.mark.parametrize("bits", [20, 48, 57, 80])
def test_smudging_noise_has_the_stated_size_and_distribution(bits: int) -> None:
    chain = party().scheme.chain
    if bits > 57:
        chain = party(6, 4, 8192).scheme.chain
    noise = centred(chain, smudging.draw(chain, os.urandom(32), 8, bits)).reshape(-1)
    deviation = 2.0**bits * math.sqrt(4 / 12)
    assert float(noise.std()) == pytest.approx(deviation, rel=0.02)
    assert abs(float(noise.mean())) < 6 * deviation / math.sqrt(noise.size)
    assert float(np.abs(noise).max()) <= 2.0 ** (bits + 1)
    # The fourth moment of a sum of four uniform numbers: 3 - 1.2 / 4 times the squared variance.
    assert float((noise**4).mean()) / deviation**4 == pytest.approx(2.7, rel=0.1)


def test_smudging_of_a_run_is_as_large_as_stated_and_the_opened_noise_within_its_bound() -> None:
    them = party()
    parameters, chain = them.scheme.parameters, them.scheme.chain
    total = them.total([np.zeros(4096, np.int64)] * 6)
    parts = [them.part(j, (0, 1, 2, 3), total[:, 1]) for j in range(4)]
    opened = centred(chain, functools.reduce(chain.plus, parts, total[:, 0]))
    assert parameters.smudge_deviation >= 2**40 * parameters.noise
    assert float(opened.std()) == pytest.approx(2 * parameters.smudge_deviation, rel=0.08)  # of four clients
    assert float(np.abs(opened).max()) < parameters.opened_noise / 1.5


@pytest.mark.parametrize("size", [1, 2, 5])
def test_fisher_information_bounds_what_shows_behind_the_noise(size: int) -> None:
    """The exact total variation between smudging noise of a few bits and the same shifted, against the docs' bound."""
    bits = 8
    uniform = np.full(2**bits, 2.0**-bits)
    density = functools.reduce(np.convolve, [uniform] * 4)
    shifted = np.concatenate([np.zeros(size), density])
    variation = 0.5 * float(np.abs(shifted - np.concatenate([density, np.zeros(size)])).sum())
    assert variation <= size * math.sqrt(1.03858) / (2 * 2**bits / math.sqrt(3)) < 1.5 * variation


# -- which parties open what -------------------------------------------------------------------------------------------


def test_one_client_fewer_than_the_threshold_gets_nothing() -> None:
    """t - 1 clients with all their shares, and the server with an upload, interpolate. The result is noise."""
    them = party()
    scheme, chain = them.scheme, them.scheme.chain
    numbers = drawn(them, 8192)[0]
    upload = scheme.encrypt(them.key, numbers)
    assert np.array_equal(scheme.decrypt(them.secret((0, 2, 3, 5)), upload, 8192), numbers)
    few = them.secret((0, 2, 3))
    with pytest.raises(ProtectionError, match="does not lie on its grid"):
        scheme.decrypt(few, upload, 8192)
    phases = chain.plus(upload[:, 0], chain.product(upload[:, 1], chain.limbs(few)))
    for place, prime in enumerate(chain.primes):
        counts = np.histogram(phases[:, place].astype(np.float64), bins=16, range=(0, prime))[0]
        assert abs(counts - phases[:, place].size / 16).max() < 6 * math.sqrt(phases[:, place].size / 16)
    # Their parts of an opening by a whole set, without the fourth, do not help either.
    parts = [them.part(j, (0, 2, 3, 5), upload[:, 1]) for j in (0, 2, 3)]
    with pytest.raises(ProtectionError):
        sum_of(scheme, upload[:, 0], parts, 8192)


def test_a_wrong_part_is_noticed() -> None:
    them = party()
    numbers = drawn(them, 5000)
    total = them.total(numbers)
    holders = (0, 1, 2, 3)
    parts = [them.part(j, holders, total[:, 1]) for j in holders]
    for wrong in (them.part(2, (1, 2, 3, 4), total[:, 1]), np.zeros_like(parts[2]), parts[3]):
        with pytest.raises(ProtectionError, match="does not lie on its grid"):
            sum_of(them.scheme, total[:, 0], [*parts[:2], wrong, parts[3]], 5000)
    off = parts[2].copy()
    off[0, :, 7] = (off[0, :, 7] + them.scheme.chain.moduli[:, 0] // np.uint64(3)) % them.scheme.chain.moduli[:, 0]
    with pytest.raises(ProtectionError, match="does not lie on its grid"):
        sum_of(them.scheme, total[:, 0], [*parts[:2], off, parts[3]], 5000)


def test_a_part_that_is_wrong_by_whole_steps_is_not_noticed() -> None:
    """The pages state this limit: a lying client can move a sum within its range."""
    them = party()
    chain, parameters = them.scheme.chain, them.scheme.parameters
    total = them.total([np.full(100, 1000, np.int64)] * 6)
    parts = [them.part(j, (0, 1, 2, 3), total[:, 1]) for j in range(4)]
    step = np.array([(parameters.primes[0] << parameters.guard) % prime for prime in chain.primes], np.uint64)
    parts[2][0, :, 7] = chain.plus(parts[2][0, :, 7][:, None], step[:, None])[:, 0]
    found = sum_of(them.scheme, total[:, 0], parts, 100)
    assert found[7] == 6001
    assert set(np.delete(found, 7)) == {6000}


def test_a_part_is_the_same_for_the_same_question_and_uniform_without_the_others() -> None:
    them = party()
    total = them.total([np.zeros(8192, np.int64)] * 6)
    part = them.part(1, (0, 1, 2, 3), total[:, 1])
    assert np.array_equal(part, them.part(1, (0, 1, 2, 3), total[:, 1]))
    for place, prime in enumerate(them.scheme.chain.primes):
        counts = np.histogram(part[:, place].astype(np.float64), bins=16, range=(0, prime))[0]
        assert abs(counts - part[:, place].size / 16).max() < 6 * math.sqrt(part[:, place].size / 16)


def small_solution(ratio: int, known: int, modulus: int) -> tuple[int, int]:
    """Small e and f with f = ratio e + known, modulo a number: Gauss' reduction in two dimensions, Babai's rounding."""
    first, second = (1, ratio), (0, modulus)

    def product(one: tuple[int, int], other: tuple[int, int]) -> int:
        return one[0] * other[0] + one[1] * other[1]

    def nearest(above: int, below: int) -> int:
        return (2 * above + below) // (2 * below)

    while True:
        if product(first, first) > product(second, second):
            first, second = second, first
        times_ = nearest(product(first, second), product(first, first))
        if times_ == 0:
            break
        second = (second[0] - times_ * first[0], second[1] - times_ * first[1])
    determinant = first[0] * second[1] - first[1] * second[0]
    x = nearest(known * second[0], determinant) if determinant > 0 else nearest(-known * second[0], -determinant)
    y = nearest(-known * first[0], determinant) if determinant > 0 else nearest(known * first[0], -determinant)
    point = (x * first[0] + y * second[0], x * first[1] + y * second[1])
    return point[0], point[1] + known


def test_answers_to_two_sets_without_masks_would_give_a_share_away_and_with_them_do_not() -> None:
    """The reason for masks on parts: an incomplete set, another set with the same client, and the same ciphertext.

    lambda x + e and lambda' x + f, of x = S_j c1 and small e and f: f = (lambda'/lambda) e + known, modulo q. (Lagrange
    coefficients of a few neighbouring numbers are fractions of small numbers. Then less than x is found.)
    """
    scheme, me = Scheme(choose(1000, 31, 40, None, 8192)), 500
    chain = scheme.chain
    modulus = math.prod(chain.primes)
    rng = np.random.default_rng(5)
    others = [number for number in rng.permutation(1000).tolist() if number != me]
    sets = [tuple(sorted([me, *others[:30]])), tuple(sorted([me, *others[10:40]]))]
    share, (c1,) = chain.uniform(os.urandom(16))[0], chain.uniform(os.urandom(16))
    true = whole(chain.product(c1[None], chain.limbs(share))[0, :, :20], chain.primes)
    sharings = [Sharing(prime, 31) for prime in chain.primes]
    weights = [whole(np.stack([one.weight(me, each) for one in sharings]), chain.primes)[0] for each in sets]
    ratio = weights[1] * pow(weights[0], -1, modulus) % modulus

    def answer(holders: tuple[int, ...], masked: bool) -> NDArray[np.uint64]:
        masks = {other: os.urandom(16) for other in holders}
        part = scheme.partial(share, me, holders, c1[None], os.urandom(32), masks)
        if not masked:  # removed again
            for other in holders:
                mask = chain.uniform(masks[other])
                if other != me:
                    part = chain.minus(part, mask) if me < other else chain.plus(part, mask)
        return part

    def guessed(masked: bool) -> list[int]:
        answers = (answer(each, masked) for each in sets)
        found, (one, other) = [], (whole(part[0, :, :20], chain.primes) for part in answers)
        for h, g in zip(one, other, strict=True):
            e, _ = small_solution(ratio, (g - ratio * h) % modulus, modulus)
            found.append((h - e) * pow(weights[0], -1, modulus) % modulus)
        return found

    assert guessed(masked=False) == true
    assert not {*guessed(masked=True)} & {*true}


# -- bytes and messages ------------------------------------------------------------------------------------------------


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(0, 20_000), st.sampled_from([None, 8192]))
def test_ciphertexts_of_any_number_of_values_come_back_from_bytes(size: int, degree: int | None) -> None:
    them = party(6, 4, degree)
    numbers = np.random.default_rng(size).integers(0, 2 ** (them.scheme.parameters.bits - 1), size)
    packed = them.scheme.pack_pairs(them.scheme.encrypt(them.key, numbers))
    assert len(packed) == them.scheme.count(size)
    assert {len(data) for data in packed} <= {2 * them.scheme.chain.packed}
    pairs = them.scheme.unpack_pairs(packed, "an upload")
    assert np.array_equal(them.scheme.decrypt(them.secret((0, 1, 2, 3)), pairs, size), numbers)


def test_invalid_ciphertexts_are_reported() -> None:
    scheme = party().scheme
    for wrong in (b"", bytes(2 * scheme.chain.packed + 1), 3):
        with pytest.raises(MessageError, match="an upload"):
            scheme.unpack_pairs([wrong], "an upload")


def test_equal_messages_give_different_ciphertexts() -> None:
    them = party()
    zeros = np.zeros(4096, np.int64)
    first, second = (them.scheme.encrypt(them.key, zeros) for _ in range(2))
    assert float(np.mean(first == second)) < 0.001


# -- against the textbook ----------------------------------------------------------------------------------------------


def negacyclic(first: Sequence[int], second: Sequence[int], modulus: int) -> list[int]:
    """A product modulo X^N + 1 and q, by the definition."""
    size, found = len(first), [0] * len(first)
    for i, one in enumerate(first):
        for j, other in enumerate(second):
            found[(i + j) % size] += one * other if i + j < size else -one * other
    return [value % modulus for value in found]


def test_keys_ciphertexts_and_openings_are_those_of_the_textbook() -> None:
    """In a ring of 64 coefficients, by whole numbers of any size. It is far too small to hide anything."""
    clients, threshold = 5, 3
    parameters = dataclasses.replace(choose(clients, threshold), degree=64)
    scheme = Scheme(parameters)
    chain, modulus = scheme.chain, math.prod(parameters.primes)
    (common,) = chain.uniform(bytes(16))
    parts = [scheme.contribution(common, range(clients)) for _ in range(clients)]
    joint = scheme.chain.total(public for public, _ in parts)
    shares = [scheme.chain.total(dealt[j] for _, dealt in parts) for j in range(clients)]

    def centred_(values: Sequence[int]) -> list[int]:
        return [value - modulus if value > modulus // 2 else value for value in values]

    # s is a sum of ternary secrets, and b + a s a sum of errors of 21 at most.
    secret = centred_(whole(scheme.secret(dict(enumerate(shares[:threshold]))), chain.primes))
    assert max(map(abs, secret)) <= clients
    a, b = whole(common, chain.primes), whole(joint, chain.primes)
    errors = centred_([(x + y) % modulus for x, y in zip(b, negacyclic(a, secret, modulus), strict=True)])
    assert 0 < max(map(abs, errors)) <= 21 * clients
    # c0 + c1 s is Delta m and noise; m is the fields, one above the other.
    size = 64 * parameters.per_coefficient
    numbers = np.random.default_rng(2).integers(0, 2 ** (parameters.bits - 3), size)
    (pair,) = scheme.encrypt(scheme.public_key(joint, common), numbers)
    c0, c1 = (whole(half, chain.primes) for half in pair)
    phase = [(x + y) % modulus for x, y in zip(c0, negacyclic(c1, secret, modulus), strict=True)]
    delta = parameters.primes[0] << parameters.guard
    messages = sum(numbers.reshape(-1, 64)[k].astype(object) << k * parameters.bits for k in range(len(numbers) // 64))
    noise = centred_([(x - delta * int(m)) % modulus for x, m in zip(phase, messages, strict=True)])
    assert 0 < max(map(abs, noise)) < noise_bound(64, clients)
    # Parts of three clients are lambda_j S_j c1 plus masks and noise. Together they are s c1 plus all smudging noise.
    holders = (0, 2, 4)
    seeds = {frozenset(each): os.urandom(16) for each in itertools.combinations(holders, 2)}
    opened = [
        scheme.partial(
            shares[j], j, holders, pair[1][None], os.urandom(32),
            {other: seeds[frozenset((j, other))] for other in holders if other != j},
        )[0]
        for j in holders
    ]  # fmt: skip
    total = [sum(column) % modulus for column in zip(*(whole(part, chain.primes) for part in opened), strict=True)]
    smudged = centred_([(x - y) % modulus for x, y in zip(total, negacyclic(c1, secret, modulus), strict=True)])
    assert parameters.smudge_deviation < max(map(abs, smudged)) < parameters.opened_noise
    assert np.array_equal(sum_of(scheme, pair[0][None], [part[None] for part in opened], size), numbers)
