"""Fixtures that the tests of this plugin share."""

from __future__ import annotations

from collections.abc import Iterator

import paillier_toys
import pytest
from he_toys import SCHEMES, Parties, make


@pytest.fixture(scope="session", params=SCHEMES)
def parties(request: pytest.FixtureRequest) -> Parties:
    """Five clients with keys of BFV or CKKS, for tests that add and open."""
    kind, key_holder = request.param
    return Parties(make(kind, key_holder=key_holder), 5, min_clients=3).setup()


@pytest.fixture(scope="module")
def small_tables() -> Iterator[None]:
    """Keys of Paillier have small tables."""
    with paillier_toys.small_tables():
        yield
