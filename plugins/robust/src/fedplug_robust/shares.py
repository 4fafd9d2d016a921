"""What the update of each client counted in a round, for simulations of clients that lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedplug import Party


def note_shares(aggregator: Any, server: Party, shares: Mapping[int, float]) -> None:
    """Adds what each client counted in one zone to what it counted in others."""
    counted = server.cache.setdefault(_key(aggregator.name), {})
    for client_id, share in shares.items():
        counted[client_id] = counted.get(client_id, 0.0) + share


def taken_shares(aggregator: str, server: Party, weights: Mapping[int, float]) -> Mapping[int, float]:
    """What each client counted in the round that has just ended, as noted; else these weights."""
    found: Mapping[int, float] = server.cache.pop(_key(aggregator), weights)
    return found


def _key(aggregator: str) -> str:
    return f"{aggregator} shares"
