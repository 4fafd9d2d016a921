"""Statistics of noise: what breaks the ledger's account is found, and honest noise is not suspected."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from fedplug.testing.noise import repeated_problem, scale_problem, shared_problems, uneven_problems

RNG = np.random.default_rng(11)
NOISE = RNG.normal(size=(2, 4000))
SIZE = 4420


def test_the_stated_scale_is_believed_within_chance() -> None:
    assert list(scale_problem(NOISE[0] * 2, 2.0, "gaussian", False)) == []
    assert list(scale_problem(np.zeros(10), 0.0, "gaussian", False)) == []


@pytest.mark.parametrize(("factor", "said"), [(1.2, r"adds 2\.\d+: \+(19|20|21)"), (0.8, "adds 1.")])
def test_another_scale_is_found(factor: float, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(*scale_problem(NOISE[0] * 2 * factor, 2.0, "gaussian", False))
    assert list(scale_problem(NOISE[0], 0.0, "gaussian", False))


def test_noise_that_follows_that_of_another_round_is_found() -> None:
    assert list(repeated_problem(*NOISE)) == []
    assert list(repeated_problem(NOISE[0], NOISE[0]))
    assert list(repeated_problem(NOISE[0], NOISE[1] + 0.5 * NOISE[0]))
    (said,) = repeated_problem(NOISE[0], NOISE[0], "is that of another run", "no seeds")
    assert "its noise is that of another run: a correlation of +1.00" in said
    assert said.endswith("no seeds")


def honest(kind: str, size: int = SIZE) -> np.ndarray:  # type: ignore[type-arg]
    if kind == "laplace":
        return (RNG.laplace(size=(4, size)) - RNG.laplace(size=(4, size))) / 2
    noise = RNG.normal(size=(4, size))
    return np.rint(2 * noise) / 2 if kind == "coarse" else noise.astype(np.float32).astype(np.float64)


@pytest.mark.parametrize("kind", ["gaussian", "laplace", "coarse"])
@pytest.mark.parametrize("size", [1, 2, 7, 300, SIZE])
def test_honest_noise_is_not_suspected(kind: str, size: int) -> None:
    for _ in range(30):
        noise = honest(kind, size)
        assert [*uneven_problems(noise), *shared_problems(noise)] == []


@pytest.mark.parametrize(
    ("scales", "said"),
    [
        (np.where(np.arange(SIZE) % 2, np.sqrt(2), 0), "2210 of 4420 scalars have no noise"),
        (np.where(np.arange(SIZE) < 5, 0, 1), "5 of 4420 scalars have no noise"),
        (np.where(np.arange(SIZE) % 2, np.sqrt(1.6), np.sqrt(0.4)), "larger for some scalars than for others"),
        (np.where(RNG.random(SIZE) < 0.1, 2.0, np.sqrt(2 / 3)), "larger for some scalars than for others"),
    ],
    ids=["every other", "a few", "in turn", "a tenth"],
)
def test_noise_of_other_sizes_at_some_scalars_is_found(scales: np.ndarray, said: str) -> None:  # type: ignore[type-arg]
    noise = honest("gaussian") * scales
    assert list(scale_problem(noise[0], 1.0, "gaussian", False)) == [] or scales[0] == 0
    (found,) = uneven_problems(noise)
    assert said in found


def _mirrored(noise: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    half = noise[:, : SIZE // 2]
    return np.concatenate([half, -half[:, ::-1]], axis=1)


def _shuffled(noise: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    half = noise[:, : SIZE // 2]
    return np.concatenate([half, -half[:, np.random.default_rng(1).permutation(SIZE // 2)]], axis=1)


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (lambda noise: np.concatenate([noise[:, : SIZE // 2], -noise[:, : SIZE // 2]], axis=1), "scalars 2210 apart"),
        (_mirrored, "shared between scalars about a middle"),
        (_shuffled, "2210 of 4420 scalars have the noise of another one"),
        (lambda noise: np.repeat(noise, 10, axis=1)[:, :SIZE], "scalars 1 apart"),
        (lambda noise: (noise + 0.3 * np.roll(noise, 3, axis=1)) / np.sqrt(1.09), "scalars 3 apart"),
        (lambda noise: noise[:, :1] * np.where(np.arange(SIZE) % 2, 1, -1), "apart"),
    ],
    ids=["opposite halves", "mirrored", "shuffled", "tens", "a filter", "one sample"],
)
def test_noise_that_scalars_share_is_found(share: Callable[..., np.ndarray], said: str) -> None:  # type: ignore[type-arg]
    assert any(said in found for found in shared_problems(share(honest("gaussian"))))
