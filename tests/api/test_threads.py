"""Threads that parties compute with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from fedplug.api.parties import threads_of_a_party
from fedplug_runs.machine import parties_compute_with


@pytest.fixture(autouse=True)
def one_thread_again() -> Iterator[None]:
    """Tests of this process that follow compute with as many threads as before."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_torch_has_afterwards_what_it_had() -> None:
    torch.set_num_threads(2)
    assert threads_of_a_party() == 1
    with parties_compute_with(3):
        assert threads_of_a_party() == 3
        torch.set_num_threads(1)
    assert threads_of_a_party() == 1
    assert torch.get_num_threads() == 2
