"""The backend of encryption in numpy with its contexts, for tests that encrypt, add and open."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fedplug_std.bfv import COEFF_BITS, DEGREE, SCALE_BITS
from fedplug_std.he_contexts import RingContext
from fedplug_std.he_rlwe import Rlwe

RNG = np.random.default_rng(5)

symmetric = pytest.mark.parametrize("symmetric", [False, True], ids=["public key", "seeded"])


def bfv(symmetric: bool) -> tuple[Rlwe, RingContext, RingContext]:
    """The backend, a context with all keys, and the server's."""
    backend = Rlwe("bfv", DEGREE, COEFF_BITS)
    context = backend.new_context(2.0**SCALE_BITS, symmetric=symmetric)
    return backend, context, backend.load_context(backend.dump_context(context))


def add(backend: Any, context: Any, *ciphertexts: tuple[bytes, ...]) -> tuple[bytes, ...]:
    return backend.add(context, ciphertexts, backend.degree)  # type: ignore[no-any-return]


def slots_of(packing: Any, values: Any) -> Any:
    """Values as a row of slots."""
    return packing.pack(packing.numbers.encode(np.asarray(values, np.float64))[0])


def values_of(packing: Any, slots: Any, size: int, count: int) -> Any:
    """Values of a row of slots that so many were added to."""
    return packing.numbers.decode(packing.unpack(slots, size), count)
