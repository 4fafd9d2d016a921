"""FAS's words: fixed point, a permutation of bits, and a key that is needed to open them."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest
from fedplug.api.errors import MessageError
from fedplug_fas.words import FixedWords, Scrambler, permutation, permute_bits
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))
WORDS = arrays(np.uint64, st.integers(0, 40), elements=st.integers(0, 2**64 - 1))
VALUES = arrays(np.float32, st.integers(0, 40), elements=st.floats(-1e4, 1e4, width=32))


@given(VALUES, st.integers(8, 40))
def test_fixed_point_is_exact_to_half_a_step(values: Any, bits: int) -> None:
    numbers = FixedWords(bits)
    words, saturated = numbers.encode(values.astype(np.float64))
    assert words.dtype == np.uint64
    assert saturated == 0
    assert (np.abs(numbers.decode(words) - values) <= numbers.step / 2).all()
    assert np.array_equal(numbers.decode(words + words), 2 * numbers.decode(words))  # words add up


def test_fixed_point_saturates_and_says_so() -> None:
    values = np.array([2.0**30, -(2.0**31), 2.0**29, 3e38], np.float32)
    words, saturated = FixedWords(32).encode(values.astype(np.float64))
    assert saturated == 0.5  # of four
    assert FixedWords(32).decode(words).tolist() == [2.0**30, -(2.0**30), 2.0**29, 2.0**30]


@given(WORDS)
def test_a_permutation_of_bits_moves_each_bit_to_its_place(words: Any) -> None:
    order = permutation(KEY)
    assert sorted(order.tolist()) == list(range(64))
    permuted = permute_bits(words, order)
    for before, after in zip(words.tolist(), permuted.tolist(), strict=True):
        assert after == sum(((before >> source) & 1) << place for place, source in enumerate(order.tolist()))
    assert np.array_equal(permute_bits(permuted, np.argsort(order)), words)


def test_another_key_gives_another_permutation() -> None:
    orders = [permutation(bytes([number]) * 32) for number in range(20)]
    assert len({tuple(order.tolist()) for order in orders}) == 20
    assert np.mean([np.count_nonzero(orders[0] == order) for order in orders[1:]]) < 5  # 1 is expected


@given(WORDS, st.sampled_from(["keyed", "static"]), st.booleans())
def test_unscrambling_undoes_scrambling(words: Any, style: Any, hexadecimal: bool) -> None:
    """Item 30."""
    scrambler = Scrambler(KEY, style, hexadecimal)
    message = scrambler.scramble(words, "upload", 3, 1, "noised")
    assert np.array_equal(scrambler.unscramble(message, len(words), "upload", 3, 1, "noised"), words)
    size = 8 * len(words) + (48 if style == "keyed" else 0)
    assert len(message) == (2 * size if hexadecimal else size)


def test_wrong_key_header_or_byte_fails() -> None:
    """Item 30: an error, not noise."""
    words = np.arange(100, dtype=np.uint64)
    message = Scrambler(KEY).scramble(words, "upload", 3, 1)
    with pytest.raises(MessageError, match="another key"):
        Scrambler(OTHER).unscramble(message, 100, "upload", 3, 1)
    for header in (("upload", 2, 1), ("upload", 3, 2), ("sum", 3, 1)):
        with pytest.raises(MessageError, match="do not open"):
            Scrambler(KEY).unscramble(message, 100, *header)
    for place in (0, 20, 500, len(message) - 1):
        altered = message[:place] + bytes([message[place] ^ 1]) + message[place + 1 :]
        with pytest.raises(MessageError, match="altered"):
            Scrambler(KEY).unscramble(altered, 100, "upload", 3, 1)
    with pytest.raises(MessageError, match="848 bytes of scrambled words for 99 values, expected 840"):
        Scrambler(KEY).unscramble(message, 99, "upload", 3, 1)
    with pytest.raises(MessageError, match="not hexadecimal text"):
        Scrambler(KEY, hexadecimal=True).unscramble(message, 100, "upload", 3, 1)


def test_literal_scrambling_does_not_notice_a_wrong_key() -> None:
    words = np.arange(100, dtype=np.uint64)
    message = Scrambler(KEY, "static").scramble(words, "upload")
    assert not np.array_equal(Scrambler(OTHER, "static").unscramble(message, 100, "upload"), words)


def test_keyed_words_look_random_and_literal_ones_keep_their_pattern() -> None:
    """Equal values give different words under a keystream. Permuted bits alone show equality and the count of ones."""
    words, _ = FixedWords(32).encode(np.full(1000, 0.37))
    keyed = np.frombuffer(Scrambler(KEY).scramble(words)[16:-32], "<u8")
    static = np.frombuffer(Scrambler(KEY, "static").scramble(words), "<u8")
    assert len(np.unique(keyed)) == 1000
    bits = np.unpackbits(keyed.view(np.uint8)).mean()
    assert abs(bits - 0.5) < 6 * 0.5 / math.sqrt(64_000)
    assert len(np.unique(static)) == 1
    assert int(static[0]).bit_count() == int(words[0]).bit_count()
    assert static[0] != words[0]


def test_literal_words_are_read_without_the_key() -> None:
    """Uses the words of four uploads alone. Bits before the first significant one equal the sign, and later bits do so
    ever less often, which puts all bits that matter in order.
    """
    rng, scrambler = np.random.default_rng(0), Scrambler(KEY, "static")
    values = rng.laplace(0, 0.01, (4, 650))
    tapped = b"".join(scrambler.scramble(FixedWords(32).encode(upload)[0]) for upload in values)
    bits = np.unpackbits(np.frombuffer(tapped, np.uint8).reshape(-1, 8), axis=1, bitorder="little").astype(bool)
    alike = (bits[:, :, None] == bits[:, None, :]).mean(0)
    sign = bits[:, np.argmax((alike == 1).sum(1))]
    order = np.argsort((bits != sign[:, None]).mean(0), kind="stable")  # the most significant first
    sizes = ((bits ^ sign[:, None])[:, order] * 2.0 ** (63 - 32 - np.arange(64))).sum(1)
    assert np.corrcoef(np.where(sign, -sizes, sizes), values.ravel())[0, 1] > 0.99


def test_a_small_model_is_scrambled_in_no_time() -> None:
    words, _ = FixedWords(32).encode(np.random.default_rng(0).standard_normal(235_146))
    took = []
    for _ in range(5):
        started = time.process_time()
        Scrambler(KEY).scramble(words)
        took.append(time.process_time() - started)
    assert min(took) < 0.1  # 5 to 20 ms on one core
