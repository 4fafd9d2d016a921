"""Threads that parties compute with."""

from __future__ import annotations

import torch
from fedplug.api.threads import of_a_party, parties_compute_with


def test_torch_has_afterwards_what_it_had() -> None:
    torch.set_num_threads(2)
    assert of_a_party() == 1
    with parties_compute_with(3):
        assert of_a_party() == 3
        torch.set_num_threads(1)
    assert of_a_party() == 1
    assert torch.get_num_threads() == 2
