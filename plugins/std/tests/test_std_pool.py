"""Pools of processes: who is where, and what each draws."""

from __future__ import annotations

import numpy as np
import torch
from fedplug_std.pool import draw_apart, shares


def test_every_client_has_one_worker_and_no_worker_is_idle() -> None:
    assert shares(5, 2) == [[0, 2, 4], [1, 3]]
    assert shares(2, 9) == [[0], [1]]
    assert shares(3, 0) == [[0, 1, 2]]


def test_generators_that_began_alike_draw_apart() -> None:
    drawn = []
    for _ in range(2):
        np.random.seed(1)
        torch.manual_seed(1)
        draw_apart()
        drawn.append((float(np.random.standard_normal()), float(torch.randn(()))))
    (numpy_first, torch_first), (numpy_second, torch_second) = drawn
    assert numpy_first != numpy_second
    assert torch_first != torch_second
