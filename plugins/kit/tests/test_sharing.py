"""What noise must not share: what breaks the ledger's account is found, and honest noise is not suspected."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from fedplug_kit.law import Draws
from fedplug_kit.sharing import (
    copied_problems,
    follows_problems,
    missing_problems,
    rank_problems,
    repeated_problem,
    repeated_problems,
    shared_problems,
    uneven_problems,
)

RNG = np.random.default_rng(11)
SIZE, CHANCE = 4420, 1e-7
NOISE = RNG.normal(size=(2, SIZE))


def draws_of(rows: np.ndarray, grid: float = 0.0) -> Draws:  # type: ignore[type-arg]
    noise = rows.reshape(2, -1, rows.shape[-1])
    every, who = np.ones_like(noise), tuple(f"client {number}" for number in range(noise.shape[1]))
    return Draws.of(noise, every, grid * every, "gaussian", np.zeros(noise.shape[-1], np.int64), who)


def test_noise_that_follows_that_of_another_round_is_found() -> None:
    def looked_at(first: np.ndarray, second: np.ndarray) -> list[str]:  # type: ignore[type-arg]
        return list(repeated_problem(first, second, "is that of another run", "no seeds", CHANCE))

    assert looked_at(*NOISE) == []
    assert looked_at(NOISE[0], NOISE[1] + 0.5 * NOISE[0])
    (said,) = looked_at(NOISE[0], NOISE[0])
    assert "its noise is that of another run: a correlation of +1.00" in said
    assert said.endswith("no seeds")


@pytest.mark.parametrize(("one", "other", "said"), [
    ((slice(None), 1), (slice(None), 3), "of client 3 follows that of client 1"),
    ((slice(None), 0), (slice(None), 2), "of client 2 follows that of client 0"),
    ((0, 3), (1, 3), "of round 2 follows that of round 1"),
])  # fmt: skip
def test_noise_that_any_two_clients_or_rounds_share_is_found(one: tuple, other: tuple, said: str) -> None:  # type: ignore[type-arg]
    noise = RNG.normal(size=(2, 4, SIZE))
    assert list(repeated_problems(draws_of(noise), draws_of(RNG.normal(size=(2, 4, SIZE))), CHANCE)) == []
    noise[other] = noise[one]
    (found,) = repeated_problems(draws_of(noise), None, CHANCE)
    assert said in found


def test_what_follows_the_values_is_found() -> None:
    values = RNG.standard_t(3, SIZE).astype(np.float32)
    noise = RNG.normal(size=(2, 4, SIZE))
    assert list(follows_problems(draws_of(noise), values, CHANCE)) == []
    (said,) = follows_problems(draws_of(noise + 3 * values / np.linalg.norm(values)), values, CHANCE)
    assert "what it adds follows the values: a correlation of +0.0" in said


def honest(kind: str, size: int = SIZE, count: int = 8) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    noise, grid = RNG.normal(size=(count, size)), 0.5 if kind == "coarse" else 0.0
    noise = np.rint(noise / grid) * grid if grid else noise
    draws = draws_of(noise, grid)
    assert list(missing_problems(draws, CHANCE)) == []
    return noise, draws.rows


@pytest.mark.parametrize("kind", ["gaussian", "coarse"])
@pytest.mark.parametrize("size", [1, 2, 7, 300, SIZE])
def test_honest_noise_is_not_suspected(kind: str, size: int) -> None:
    for _ in range(6):
        noise, rows = honest(kind, size)
        assert [*uneven_problems(rows, CHANCE), *shared_problems(rows, CHANCE), *copied_problems(noise)] == []
        assert list(rank_problems(rows, CHANCE)) == []


@pytest.mark.parametrize(("scales", "said"), [
    (np.where(np.arange(SIZE) % 2, np.sqrt(2), 0), "2210 of 4420 scalars have no noise"),
    (np.where(np.arange(SIZE) < 5, 0, 1), "5 of 4420 scalars have no noise"),
])  # fmt: skip
def test_scalars_without_noise_are_found(scales: np.ndarray, said: str) -> None:  # type: ignore[type-arg]
    noise, _ = honest("gaussian")
    (found,) = missing_problems(draws_of(noise * scales), CHANCE)
    assert said in found


@pytest.mark.parametrize(
    "scales",
    [
        np.where(np.arange(SIZE) % 2, np.sqrt(1.6), np.sqrt(0.4)),
        np.where(RNG.random(SIZE) < 0.1, 2.0, np.sqrt(2 / 3)),
    ],
    ids=["in turn", "a tenth"],
)
def test_noise_of_other_sizes_at_some_scalars_is_found(scales: np.ndarray) -> None:  # type: ignore[type-arg]
    _, rows = honest("gaussian", count=4)
    (found,) = uneven_problems(rows * scales, CHANCE)
    assert "larger for some scalars than for others" in found


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
    noise = share(honest("gaussian", count=4)[0])
    assert any(said in found for found in [*shared_problems(noise, CHANCE), *copied_problems(noise)])


@pytest.mark.parametrize(("count", "draws"), [(8, SIZE // 12), (16, SIZE // 4), (16, 100), (16, 3)])
def test_noise_that_is_mixed_of_fewer_draws_is_found(count: int, draws: int) -> None:
    """Every scalar's noise is Gaussian and of the stated scale, and nothing is alike, shifted or mirrored."""
    mix = np.random.default_rng(1).normal(size=(draws, SIZE))
    rows = RNG.normal(size=(count, draws)) @ mix / np.linalg.norm(mix, axis=0)
    (said,) = rank_problems(rows, CHANCE)
    about = float(said.split("about ")[1].split()[0])
    assert 0.5 * draws < about < 2 * draws


def test_mixes_are_suspected_no_more_often_than_promised() -> None:
    found = sum(bool(list(rank_problems(RNG.normal(size=(8, 64)), 0.1))) for _ in range(400))
    assert found <= 40  # of 400, where the bound allows 40 to be expected
