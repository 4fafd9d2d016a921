"""Features of images: histograms of oriented gradients, against the definition and a peer, and in place of pixels."""

from __future__ import annotations

import numpy as np
import pytest
from dataset_toys import load
from fedplug_std import datasets
from fedplug_std import oriented_gradients as hog
from hypothesis import given, settings
from hypothesis import strategies as st


def cells_of(image: np.ndarray) -> np.ndarray:
    """Features of one gray image, (orientations, rows, columns)."""
    return hog.oriented_gradients(image[None, None]).reshape(hog.ORIENTATIONS, hog.CELLS, hog.CELLS)


def test_an_edge_counts_for_the_direction_in_which_it_gets_brighter() -> None:
    """Dark on the left: the gradient points to the right, orientation 0; turned by quarters, 2, 4 and 6."""
    image = np.zeros((28, 28), np.uint8)
    image[:, 14:] = 255
    for quarter in range(4):
        inside = cells_of(np.rot90(image, -quarter))[:, 2:5, 2:5]  # the border of the image is an edge too
        assert inside.sum((1, 2)).argmax() == 2 * quarter
        assert np.delete(inside, 2 * quarter, axis=0).max() < 1e-5


def test_a_direction_between_two_orientations_counts_for_both_by_distance() -> None:
    across, down = np.meshgrid(np.arange(28.0), np.arange(28.0))
    degrees = 30.0  # two thirds of the way from orientation 0 (0 degrees) to 1 (45 degrees)
    ramp = 3 * (np.cos(np.deg2rad(degrees)) * across + np.sin(np.deg2rad(degrees)) * down)
    middle = cells_of(np.rint(ramp).astype(np.uint8))[:, 3, 3]
    assert middle[1] / (middle[0] + middle[1]) == pytest.approx(2 / 3, abs=0.05)


@given(st.integers(0, 2**32 - 1), st.sampled_from([(1, 8, 8), (3, 32, 32), (1, 28, 20), (1, 5, 5)]))
@settings(max_examples=25, deadline=None)
def test_features_are_those_of_the_definition(seed: int, shape: tuple[int, ...]) -> None:
    """Pixel by pixel, as the docstring says it."""
    image = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    _, height, width = shape
    padded = np.pad(image.astype(int), ((0, 0), (1, 1), (1, 1)))
    cells = np.zeros((hog.ORIENTATIONS, hog.CELLS, hog.CELLS))
    weights = []
    for side in (height, width):
        away = [
            [max(1e-9, 1 - abs(p + 0.5 - (c + 0.5) * side / hog.CELLS) * hog.CELLS / side) for p in range(side)]
            for c in range(hog.CELLS)
        ]
        weights.append(np.array([np.array(row) / sum(row) for row in away]))
    for y in range(height):
        for x in range(width):
            steps = [(p[y + 1, x + 2] - p[y + 1, x], p[y + 2, x + 1] - p[y, x + 1]) for p in padded]
            right, down = np.array(max(steps, key=lambda step: step[0] ** 2 + step[1] ** 2)) / 255  # the first of such
            turn = np.arctan2(down, right) / (2 * np.pi) * hog.ORIENTATIONS % hog.ORIENTATIONS
            low = int(turn) % hog.ORIENTATIONS
            where = np.outer(weights[0][:, y], weights[1][:, x]) * np.hypot(right, down)
            cells[low] += (1 - turn % 1) * where
            cells[(low + 1) % hog.ORIENTATIONS] += (turn % 1) * where
    squares = np.pad((cells**2).sum(0), 1)
    around = sum(squares[i : i + hog.CELLS, j : j + hog.CELLS] for i in range(3) for j in range(3))
    wanted = 2 * cells / (np.sqrt(around / 9) + 0.02)
    found = hog.oriented_gradients(image[None]).reshape(wanted.shape)
    np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-5)


def test_of_channels_with_equally_long_gradients_the_first_counts() -> None:
    """A ramp of (3, 4) a pixel and one of (4, 3)."""
    across, down = np.meshgrid(np.arange(28), np.arange(28))
    ramps = [(3 * across + 4 * down).astype(np.uint8), (4 * across + 3 * down).astype(np.uint8)]
    for first, second in (ramps, ramps[::-1]):
        both = hog.oriented_gradients(np.stack([first, second])[None])
        alone = hog.oriented_gradients(first[None, None])
        inside = np.s_[:, :, 2:5, 2:5]
        cells = [each.reshape(1, hog.ORIENTATIONS, hog.CELLS, hog.CELLS)[inside] for each in (both, alone)]
        np.testing.assert_allclose(*cells, atol=1e-6)  # every pixel counts 1e-9 for every cell, the border's too


def test_features_take_the_place_of_pixels() -> None:
    """Rows of 392 numbers which reach the model as they are; the labels are the same."""
    source = datasets.Digits(datasets.Digits.Options(features="oriented_gradients"))
    pixels, rows = load(datasets.Digits), source.load(None)
    assert rows.shape == source.declares.shape == (datasets.FEATURES,) == (hog.SIZE,)
    assert (rows.mean, rows.std) == ((), ())
    np.testing.assert_array_equal(rows.train.inputs, hog.oriented_gradients(pixels.train.inputs))
    np.testing.assert_array_equal(rows.test.labels, pixels.test.labels)


def test_an_image_without_edges_has_features_of_zero() -> None:
    assert not hog.oriented_gradients(np.zeros((2, 3, 16, 16), np.uint8)).any()
