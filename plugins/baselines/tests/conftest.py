"""Parties without a run, for tests that call a component's methods themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fedplug import Client, Facts, Layout
from fedplug.api.blocks import BASE_ZONES
from fedplug.api.links import Link
from lwe_toys import CLIENTS, SIZE, lwe


def bare_client(
    layout: Layout,
    components: dict[str, Any] | None = None,
    *,
    round: int = 0,
    client_id: int = 0,
    links: dict[str, tuple[Link, ...]] | None = None,
    **fields: Any,
) -> Client:
    """A client in a round of a run of four clients; its global model is zero unless given."""
    client = Client(client_id=client_id)
    client.vector = np.zeros(layout.size, np.float32)
    client.facts = Facts(
        round=round, rounds=9, layout=layout, zones=BASE_ZONES, num_clients=4, min_clients=2, seed=7, digest="",
        components=components or {}, chains=links or {},
    )  # fmt: skip
    for name, value in fields.items():
        setattr(client, name, value)
    return client


@pytest.fixture(scope="session")
def make_client() -> Callable[..., Client]:
    """`bare_client`, as a fixture."""
    return bare_client


@pytest.fixture
def parties(make_client: Any) -> dict[int, Client]:
    """Four clients, each of which has all public keys."""
    masks = lwe()
    layout = Layout.of([("w", (SIZE,))])
    found = {client_id: make_client(layout, client_id=client_id) for client_id in range(CLIENTS)}
    keys = {client_id: masks.make_key(client) for client_id, client in found.items()}
    for client in found.values():
        masks.take_keys(client, keys)
    return found
