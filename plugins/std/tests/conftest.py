"""Fixtures that the tests of this plugin share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from he_toys import SCHEMES, Parties, make


@pytest.fixture(scope="session", params=SCHEMES)
def parties(request: pytest.FixtureRequest) -> Parties:
    """Five clients with keys of BFV or CKKS, for tests that add and open."""
    kind, key_holder = request.param
    return Parties(make(kind, key_holder=key_holder), 5, min_clients=3).setup()


@pytest.fixture(scope="module")
def small_tables() -> Iterator[None]:
    """Powers under keys of Paillier are taken from small tables. They are the same, and a table of full size, which
    pays where many ciphertexts are made, takes half a second.
    """
    from fedplug_std import _fixed_base

    _fixed_base.fixed_base.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_fixed_base, "TEETH", 5)
        yield
    _fixed_base.fixed_base.cache_clear()
