"""Parties with keys of packed Paillier."""

from __future__ import annotations

from typing import Any

from fedplug_std.paillier import Paillier
from he_toys import OneClient

SIZE = 300  # four ciphertexts of 2048 bits


def make(**options: Any) -> Paillier:
    return Paillier(Paillier.Options.model_validate({"key_bits": 2048, **options}))


def parties_of(component: Paillier, num_clients: int = 5) -> OneClient:
    return OneClient(component, SIZE, num_clients, min_clients=2)
