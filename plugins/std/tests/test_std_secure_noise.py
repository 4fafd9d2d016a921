"""Secret samples: the distribution, its tails, how far float64 is from the formula, and streams that never meet."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from fedplug.mechanisms import secure
from fedplug.mechanisms.noise import add_laplace, add_noise
from fedplug.mechanisms.secure import BLOCK, LARGEST_GAUSSIAN, LARGEST_LAPLACE, SecureNoise
from scipy import stats  # type: ignore[import-untyped]

SAMPLES = 20 * BLOCK


def drawn(kind: str, blocks: int = 20) -> Any:
    noise = SecureNoise()
    draw = getattr(noise, kind)
    return np.concatenate([draw(1.0, BLOCK).copy() for _ in range(blocks)])


def of_words(monkeypatch: pytest.MonkeyPatch, kind: str, words: Any) -> Any:
    """Samples made of given words."""
    monkeypatch.setattr(SecureNoise, "words", lambda *_: np.array(words, np.uint64))
    return getattr(SecureNoise(), kind)(1.0, len(words)).copy()


# -- the distribution --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "law"), [("gaussian", stats.norm), ("laplace", stats.laplace)])
def test_samples_have_the_distribution_and_its_tails(kind: str, law: Any) -> None:
    """A right sampler fails with probability below 1e-8."""
    samples = drawn(kind)
    assert stats.kstest(samples, law.cdf).pvalue > 1e-9
    for bound in (0.001, 0.1, 1, 2, 3, 4):
        share = 2 * law.sf(bound)
        low, high = stats.binom.ppf([1e-10, 1 - 1e-10], SAMPLES, share)
        assert low <= np.count_nonzero(np.abs(samples) > bound) <= high
        assert low / 2 - 7 * math.sqrt(low) <= np.count_nonzero(samples > bound) <= high / 2 + 7 * math.sqrt(high)


def test_the_two_samples_of_a_pair_are_independent() -> None:
    pairs = drawn("gaussian").reshape(-1, 2)
    bound = 6.5 / math.sqrt(len(pairs))
    for power in (lambda x: x, lambda x: x**2 - 1, np.abs):
        assert abs(np.corrcoef(power(pairs[:, 0]), power(pairs[:, 1]))[0, 1]) < bound
    # As many in each of 4096 equal parts of the circle, within half the table's steps too.
    angles = np.arctan2(pairs[:, 1], pairs[:, 0])
    for parts in (64, 2**14):
        counts = np.bincount(np.floor((angles % (2 * math.pi)) * parts / (2 * math.pi)).astype(int) % 64, minlength=64)
        assert stats.chisquare(counts).pvalue > 1e-9


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_blocks_streams_and_threads_share_nothing(kind: str) -> None:
    found = [drawn(kind, 1), *drawn(kind, 2).reshape(2, -1)]
    thread = threading.Thread(target=lambda: found.append(drawn(kind, 1)))
    thread.start()
    thread.join()
    correlation = np.corrcoef(found) - np.eye(4)
    assert np.abs(correlation).max() < 6 / math.sqrt(BLOCK)
    lagged = [np.corrcoef(found[0][:-lag], found[0][lag:])[0, 1] for lag in (1, 2, BLOCK // 2)]
    assert np.abs(lagged).max() < 6 / math.sqrt(BLOCK / 2)


@pytest.mark.parametrize("size", [0, 1, 2, 3, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 7])
def test_any_number_of_values_gets_noise(size: int) -> None:
    values, stream = np.full(size, 0.5, np.float32), np.random.default_rng()
    for add in (add_noise, add_laplace):
        noised = add(values, 1.0, 2.0**-18, "secure", stream)
        assert (noised.shape, noised.dtype) == ((size,), np.float32)
        assert len(np.unique(noised)) >= 0.9 * size
        assert np.array_equal(np.rint(noised * 2.0**18), noised * 2.0**18)
    assert np.all(values == 0.5)


def test_results_saturate_where_float32_ends() -> None:
    """On a grid that is too fine for so much noise nothing is rounded twice, and nothing wraps."""
    noised = add_noise(np.zeros(4000, np.float32), 1.0, 2.0**-24, "secure", np.random.default_rng())
    assert noised.max() == -noised.min() == 1.0
    assert np.count_nonzero(np.abs(noised) == 1) == pytest.approx(4000 * 2 * stats.norm.sf(1), rel=0.2)
    assert np.array_equal(np.rint(noised * 2.0**24), noised * 2.0**24)


# -- what the module's argument rests on -------------------------------------------------------------------------------


def test_float64_is_as_close_to_the_formula_as_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """2^-46 with the sum, where r is at least 1/16; in extended precision, from the same words."""
    words = np.random.default_rng(0).integers(0, 2**64, BLOCK, dtype=np.uint64)
    words[:60] = [2**index for index in range(60)]  # small U
    words[60:100] = [2**63 - 2 ** (20 + index) for index in range(40)]  # large U
    pairs = BLOCK // 2
    samples = of_words(monkeypatch, "gaussian", words).reshape(-1, 2)
    signed, exact = words.view(np.int64), np.longdouble
    radius = np.sqrt(-2 * np.log(np.abs(signed[:pairs].astype(exact) + exact(0.5)) * exact(2) ** -63))
    step = 8 * np.arctan(exact(1)) / 2**13
    angle = ((words[pairs:] & np.uint64(2**13 - 1)).astype(exact) + exact(0.5)) * step
    angle += signed[pairs:].astype(exact) * step * exact(2) ** -64
    far = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1) - samples
    assert np.finfo(exact).nmant > 60  # or nothing would be tested here
    near = radius < 1 / 16
    assert np.count_nonzero(near) > 10
    assert np.abs(far[~near]).max() < 2.0**-47  # the sum with a value of up to 13 adds 2^-49
    assert (np.abs(far[near]).max(1) * radius[near]).max() < 2.0**-52


def test_tails_end_where_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest U is half a unit: |z| is finite, below what the grid leaves room for, and as rare as 2^-64."""
    smallest = of_words(monkeypatch, "gaussian", [0] * 4)
    assert np.hypot(smallest[0], smallest[1]) == pytest.approx(LARGEST_GAUSSIAN, rel=1e-12)
    assert stats.chi2.sf(LARGEST_GAUSSIAN**2, 2) == pytest.approx(2.0**-64, rel=1e-6)
    assert of_words(monkeypatch, "laplace", [0]).tolist() == [pytest.approx(LARGEST_LAPLACE)]
    assert of_words(monkeypatch, "laplace", [2**64 - 1]).tolist() == [pytest.approx(-LARGEST_LAPLACE)]
    assert 2 * stats.laplace.sf(LARGEST_LAPLACE) == pytest.approx(2.0**-64, rel=1e-6)
    largest = of_words(monkeypatch, "gaussian", [2**63 - 1, 2**63, 5, 7])
    assert np.abs(largest).max() < 2.0**-26  # U rounds to 1, and its logarithm to 0


def test_a_cell_of_the_grid_holds_its_share() -> None:
    """Noised pairs next to an edge of the table are as frequent as elsewhere: no ray is favoured within a step."""
    pairs = drawn("gaussian", 3).reshape(-1, 2)
    angles = np.arctan2(pairs[:, 1], pairs[:, 0]) % (2 * math.pi)
    within = angles * 2**13 / (2 * math.pi) % 1
    assert stats.kstest(within, "uniform").pvalue > 1e-9


def test_words_are_the_keystream_of_a_fresh_key(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = []
    urandom = secure.os.urandom
    monkeypatch.setattr(secure.os, "urandom", lambda size: keys.append(urandom(size)) or keys[-1])
    before = bytes(secure._SCRATCH.stream[:64])
    words = SecureNoise().words(8).tobytes()
    reference = Cipher(algorithms.AES256(keys[0]), modes.CTR(bytes(16))).encryptor().update(before)
    assert words == reference
    SecureNoise()
    assert [len(key) for key in keys] == [32, 32]
    assert keys[0] != keys[1]
