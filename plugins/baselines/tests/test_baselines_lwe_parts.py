"""The arithmetic under LWE aggregation: the field, the public matrix, secret shares, integers that cannot wrap."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from examples import examples
from fedplug.api.errors import ProtectionError
from fedplug_baselines import lwe_field
from fedplug_baselines.lwe_field import HALF, Q, centred, keystream, masks, residues, uniform
from fedplug_baselines.lwe_numbers import Steps, largest, step_of
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

SEED = bytes(range(32))


def exact(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    """The product modulo q by whole numbers of Python."""
    found: NDArray[Any] = (first.astype(object) @ second.astype(object)) % Q
    return found


# -- the field ---------------------------------------------------------------------------------------------------------


def test_the_longest_products_do_not_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lwe_field, "uniform", lambda _, count: np.full(count, Q - 1, np.uint32))
    assert masks(SEED, 1, np.full(65_536, Q - 1))[0] == (Q - 1) ** 2 * 65_536 % Q


@given(st.lists(st.integers(-HALF, HALF), max_size=20))
def test_residues_represent_their_integers(values: list[int]) -> None:
    assert centred(residues(np.array(values, np.int64))).tolist() == values


def test_words_beyond_the_field_are_drawn_again() -> None:
    class Stream:
        words = iter([5, 2**31 - 1, 2**32 - 1, 2**31 + 7, 2**31 - 1, 9, 11])

        def update(self, zeros: bytes) -> bytes:
            return np.array(list(itertools.islice(self.words, len(zeros) // 4)), "<u4").tobytes()

    assert uniform(Stream(), 4).tolist() == [5, 11, 9, 7]  # type: ignore[arg-type]


def test_elements_are_uniform() -> None:
    drawn = uniform(keystream(SEED), 80_000)
    assert drawn.max() < Q
    counts = np.histogram(drawn, bins=16, range=(0, Q))[0]
    assert np.sum((counts - 5000) ** 2) / 5000 < 50, "chi-square of 15 degrees of freedom"


# -- the matrix --------------------------------------------------------------------------------------------------------


def test_masks_are_the_product_with_the_public_matrix() -> None:
    """Rows are made in blocks. Row by row, the matrix is the output of the seed's stream."""
    size, n = 1100, 40
    secret = uniform(keystream(bytes(32)), n)
    stream = keystream(SEED)
    matrix = np.concatenate([uniform(stream, rows * n).reshape(rows, n) for rows in (512, 512, 76)])
    assert np.array_equal(masks(SEED, size, secret), exact(matrix, secret).astype(np.uint64))
    assert np.array_equal(masks(SEED, 700, secret), masks(SEED, size, secret)[:700])
    assert not np.array_equal(masks(bytes(32), size, secret), masks(SEED, size, secret))


def test_masks_add_up() -> None:
    """A s + A s' = A (s + s'), the only property that opening a sum needs."""
    first, second = (uniform(keystream(bytes([k] * 32)), 64).astype(np.uint64) for k in (1, 2))
    total = (masks(SEED, 600, first) + masks(SEED, 600, second)) % Q
    assert np.array_equal(total, masks(SEED, 600, (first + second) % Q))


def test_an_upload_is_not_solved_where_there_is_an_error() -> None:
    """Without errors n samples reveal the secret (as in the code that omits e). With errors the solution is wrong."""
    n = 24
    secret = uniform(keystream(bytes(32)), n).astype(np.uint64)
    matrix = uniform(keystream(SEED), n * n).reshape(n, n)
    sent = masks(SEED, n, secret)
    errors = residues(np.random.default_rng(0).integers(-(2**15), 2**15, n))
    assert np.array_equal(_solve(matrix, sent), secret)
    assert not np.any(_solve(matrix, (sent + errors) % Q) == secret)


def _solve(matrix: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """Gauss elimination modulo q."""
    rows = np.concatenate([matrix, right[:, None]], axis=1).astype(object)
    for i in range(len(rows)):
        pivot = next(k for k in range(i, len(rows)) if rows[k, i])
        rows[[i, pivot]] = rows[[pivot, i]]
        rows[i] = rows[i] * pow(int(rows[i, i]), -1, Q) % Q
        for k in range(len(rows)):
            if k != i:
                rows[k] = (rows[k] - rows[k, i] * rows[i]) % Q
    return rows[:, -1].astype(np.uint64)


# -- integers ----------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(100))
@given(st.integers(1, 500), st.data())
def test_sums_of_what_fits_do_not_wrap(clients: int, data: st.DataObject) -> None:
    limit = largest(clients)
    values = data.draw(st.lists(st.sampled_from([-limit, limit, 0, 1]), min_size=clients, max_size=clients))
    whole = np.array(values, np.int64)
    total = np.array([int(residues(whole).sum() % Q)], np.uint64)
    assert centred(total)[0] == whole.sum()
    assert Steps(0.25, clients).decode(centred(total), clients).tolist() == [whole.sum() / 4]


@pytest.mark.parametrize("sign", [-1, 1])
def test_what_has_wrapped_is_found(sign: int) -> None:
    # Three clients, at twice their share: the sum has wrapped, and exceeds the largest sum of three of ten.
    wrapped = centred(residues(np.array([sign * 2 * (HALF // 10) * 3 * 3])))
    with pytest.raises(ProtectionError, match="has wrapped around the modulus"):
        Steps(1.0, 10).decode(wrapped, 3)


@given(st.floats(1e-6, 1e6), st.floats(0.06, 50), st.integers(2, 500))
def test_the_finest_step_leaves_room_for_all(norm: float, multiplier: float, clients: int) -> None:
    std = multiplier * norm
    step = step_of(norm, std, clients, None)
    assert np.log2(step) == round(np.log2(step))
    assert norm / step + 12 * std / step <= largest(clients)
    assert largest(clients) * clients <= HALF
    assert largest(clients) <= 2**24
    assert std / step >= 2**15
    assert step_of(norm, std, clients, step) == step


def test_steps_that_cannot_be() -> None:
    with pytest.raises(ProtectionError, match="the sum of 10 clients could wrap"):
        step_of(1.0, 1.0, 10, 2.0**-30)
    with pytest.raises(ProtectionError, match=r"2\^15 steps to the noise of one client, 1\)"):
        step_of(1.0, 1.0, 10, 0.5)
    with pytest.raises(ProtectionError, match="too small for a norm of 1 and sums of 10 clients"):
        step_of(1.0, 1e-5, 10, None)


@given(st.lists(st.integers(-(2**24), 2**24), max_size=50), st.integers(-60, 60))
def test_float32_holds_every_integer_of_a_client(whole: list[int], power: int) -> None:
    step = 2.0**power
    values = (np.array(whole, np.int64) * step).astype(np.float32)
    words, saturated = Steps(step, 2).encode(values.astype(np.float64))
    assert (words.tolist(), saturated) == (whole, 0.0)


@given(st.floats(-1, 1, width=32), st.integers(-40, 0))
def test_cutting_a_value_off_is_exact_in_float32(value: float, power: int) -> None:
    """Even where it is more than 2^24 steps, because then it is a multiple of the step already."""
    cut = np.trunc(value / 2.0**power) * 2.0**power
    assert float(np.float32(cut)) == cut
    assert abs(cut) <= abs(value)
