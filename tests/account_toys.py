"""Components that keep the account of a separate level, as a third party writes them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import fedplug
from fedplug import Account


class Flips(NamedTuple):
    """Randomised response on labels: each is kept with this probability."""

    kept: float


class Labels(fedplug.Protector, fedplug.AccountKeeper):
    """Flip labels, and keep the account of one label."""

    account = Account(
        level="label", release=Flips, unit="the label of one example",
        trust="local: labels are flipped at the client", covers="what follows from labels",
    )  # fmt: skip

    def protect(self, known: Any, facts: Any) -> tuple[()]:
        """The values do not change."""
        return ()

    def round_release(self, client: Any, facts: Any) -> Flips:
        """The same in every round."""
        return Flips(0.75)

    def release_problem(self, release: Flips) -> str:
        """A label that is never flipped has no epsilon."""
        return "" if release.kept < 1 else f"kept={release.kept:g} must be below 1"

    def units(self, release: Flips) -> float:
        """No toy client has more examples."""
        return 1000.0

    def epsilon_of(self, releases: Sequence[Flips], delta: float) -> dict[str, float]:
        """Warner's: log(p / (1 - p)), which adds up."""
        return {"epsilon_pure": sum(math.log(one.kept / (1 - one.kept)) for one in releases)}


class Steps(NamedTuple):
    multiplier: float
    rate: float
    steps: float


class Records(fedplug.AccountKeeper):
    """Epsilon is the number of steps over the multiplier."""

    name = "toy.records"
    account = Account(
        level="record", release=Steps, unit="one example", trust="local", covers="all"
    )

    def round_release(self, client: Any, facts: Any) -> Steps:
        raise AssertionError("a ledger is told what a round releases, and asks nobody")

    def units(self, release: Steps) -> float:
        return round(1 / release.rate)

    def epsilon_of(self, releases: Sequence[Steps], delta: float) -> dict[str, float]:
        return {"epsilon_toy": float(sum(one.steps * one.rate / one.multiplier for one in releases))}
