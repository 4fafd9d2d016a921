"""A ledger of twenty clients, and the questions to it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from fedplug.api.known import Release
from fedplug.api.roles import Reveals
from fedplug.recipe.parts import Sampling
from fedplug_ledger.accounting import gaussian_noise_multiplier
from fedplug_ledger.ledger import Ledger
from fedplug_ledger.ledger_record import EncryptionReport
from hypothesis import strategies as st

DELTA = 1e-5
SIGMA = math.sqrt(10) * gaussian_noise_multiplier(1, DELTA)
LOCAL = Release("gaussian", SIGMA, 1.0)
CENTRAL = Release("gaussian", SIGMA, 1.0, trust="central")


def held(range: float, step: float) -> Release:
    """`LOCAL` under an encryption that holds values up to `range`, rounded to `step`."""
    return dataclasses.replace(LOCAL, range=range, step=step)


def laplace(multiplier: float = 20.0, **facts: object) -> Release:
    return Release("laplace", multiplier, 1.0, **facts)  # type: ignore[arg-type]


CLIENTS = 20


class FakeAccountant:
    """Records its questions."""

    name = "toy.book"

    def __init__(self) -> None:
        self.asked: list[tuple[list[tuple[str, float, float, int]], float, str]] = []

    def compose(self, releases: list[tuple[str, float, float, int]], delta: float, adjacency: str) -> dict[str, float]:
        self.asked.append((releases, delta, adjacency))
        return {"pld": 0.5, "rdp": 0.6}


def closed(key_holders: Mapping[str, str], published: list[str] | None = None) -> dict[str, EncryptionReport]:
    """Zones with their key holders. Sums that the key server opens pass through the server, or those `published`."""
    seen = [zone for zone, by in key_holders.items() if by == "key_server"] if published is None else published
    return {
        zone: EncryptionReport(by, zone in seen, opens_with=3 if by == "shares" else 1)
        for zone, by in key_holders.items()
    }


def ledger_of(
    key_holders: Mapping[str, str] | None = None, published: list[str] | None = None,
    sampling: Mapping[str, Any] | None = None, **facts: Any,
) -> Ledger:  # fmt: skip
    given = {
        "recipe_name": "test", "num_clients": CLIENTS, "rounds": 10, "min_clients": 2, "delta": DELTA,
        "encryption": closed(key_holders or {}, published), "sampling": Sampling(**sampling) if sampling else None,
    }  # fmt: skip
    return Ledger(**{**given, **facts})


def enter(
    ledger: Ledger,
    zone_sizes: Mapping[str, float],
    releases: Mapping[str, list[Release]],
    rounds: int = 10,
    charged: list[int] | None = None,
    weights: Mapping[int, float] | None = None,
    secret_cohort: bool = True,
) -> Ledger:
    for round in range(rounds):
        asked = list(range(ledger.num_clients)) if charged is None else charged
        arrived = dict.fromkeys(asked, 1.0) if weights is None else dict(weights)
        ledger.record(
            round,
            charged=asked,
            zone_sizes=zone_sizes,
            total=1000,
            releases=releases,
            contributors=dict.fromkeys(zone_sizes, len(arrived)),
            weights=arrived,
            secret_cohort=secret_cohort,
        )
    return ledger


def exact(ledger: Ledger, view: str, adjacency: str = "zero_out") -> float:
    epsilons = ledger.report().views[view].epsilons
    assert epsilons is not None
    stated = epsilons.zero_out if adjacency == "zero_out" else epsilons.replace_one
    return stated["epsilon_exact"]


def reason(ledger: Ledger, view: str) -> str:
    found = ledger.report().views[view]
    assert found.epsilon is None, f"{view} claims {found}"
    return found.detail


shares = st.lists(st.floats(0.01, 1.0), min_size=3, max_size=8)
VECTORS = Reveals("vectors", ("server",), voids=True, note="of each client, without noise")
