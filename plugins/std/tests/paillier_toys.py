"""Parties with keys of packed Paillier."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from fedplug_std import _fixed_base
from fedplug_std.paillier import Paillier
from he_toys import OneClient

SIZE = 300  # four ciphertexts of 2048 bits


def make(**options: Any) -> Paillier:
    return Paillier(Paillier.Options.model_validate({"key_bits": 2048, **options}))


def parties_of(component: Paillier, num_clients: int = 5) -> OneClient:
    return OneClient(component, SIZE, num_clients, min_clients=2)


@contextlib.contextmanager
def small_tables(teeth: int = 5) -> Iterator[None]:
    """Inside, powers are taken from small tables. They are the same, and a table of full size, which pays where many
    ciphertexts are made, takes half a second.
    """
    _fixed_base.fixed_base.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_fixed_base, "TEETH", teeth)
        yield
    _fixed_base.fixed_base.cache_clear()
