"""Examples: equal numbers of all parts, and the answers expected of a model."""

from __future__ import annotations

import numpy as np
import pytest
from fedplug import Examples, Figure


def test_examples_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="equally many"):
        Examples(np.zeros((2, 1, 4, 4), np.uint8), np.zeros(2, np.int64), np.zeros((3, 4, 4), np.uint8))


def test_targets_are_the_answers_and_are_taken_along() -> None:
    targets = np.arange(32, dtype=np.uint8).reshape(2, 4, 4)
    examples = Examples(np.zeros((2, 1, 4, 4), np.uint8), np.array([0, 1]), targets, targets + 1)
    assert examples.answers.dtype == np.int64
    assert np.array_equal(examples.take(np.array([1])).answers, targets[1:])
    assert np.array_equal(examples.take(slice(0, 1)).regions, targets[:1] + 1)


def test_a_figure_says_how_it_is_read() -> None:
    with pytest.raises(ValueError, match="better"):
        Figure("RMSE", better="less")  # type: ignore[arg-type]
