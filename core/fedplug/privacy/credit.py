"""What the noise of a round earns in a zone: which of a chain's releases counts, and how much others' noise adds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from fedplug.api.operations import GAUSSIAN, OF_EPSILON
from fedplug.api.releases import Release
from fedplug.privacy.ledger_record import ZoneEntry

_TAILS = 9.0
"""Standard deviations of noise that an encryption must hold before the noise of others counts. A sample lies beyond
with probability 2e-19, so that even 1e10 of them (coordinates x clients x rounds) reach there with 2e-9: far below any
delta."""
_STEPS_PER_STD = 2.0
"""Grid steps in a standard deviation from which on a sum of rounded values is as private as the sum of the exact ones:
it equals that sum with independent uniform noise on top, but for a relative error of exp(-2 pi^2 2^2) = 5e-35."""


def entry_of(
    zone: str, size: float, noises: list[Release], curves: Iterable[str], count: int, charged: list[int],
    weights: Mapping[int, float],
) -> ZoneEntry:  # fmt: skip
    """What a zone of this size released: which of its chain's noises count, and what others' noise adds to them.

    `curves` names the mechanisms whose cost somebody states, and the last three are of the cohort: see
    `noise_of_others`.
    """
    why = uncredited(zone, noises, min(weights.values(), default=1.0))
    alone, others = (1.0, 1.0) if why else noise_of_others(count, charged, weights)
    return ZoneEntry(
        size=float(size),
        releases=list(noises),
        local=strongest(release for release in noises if release.trust != "central"),
        central=strongest(release for release in noises if release.trust == "central"),
        other=strongest_other(noises, curves),
        sum_factor=alone,
        peer_factor=others,
        uncredited=why,
        slack=max((release.slack for release in noises), default=0.0),
    )


def strongest_other(releases: Iterable[Release], curves: Iterable[str]) -> tuple[str, float] | None:
    """The largest multiplier of local noise that is not Gaussian, with its mechanism.

    None where Gaussian noise in the same chain is accounted for instead: either is a bound by itself.
    """
    noises = list(releases)
    if any(r.mechanism in GAUSSIAN and r.noise_multiplier > 0 for r in noises):
        return None
    known = {*OF_EPSILON, *curves}
    others = [r for r in noises if r.mechanism in known and r.trust != "central" and r.noise_multiplier > 0]
    if not others:
        return None
    strongest = max(others, key=lambda release: release.noise_multiplier)
    return strongest.mechanism, float(strongest.noise_multiplier)


def uncredited(zone: str, releases: list[Release], lightest: float) -> str:
    """Why a zone's sums get no credit for the noise of other clients; empty if they do, or need none.

    The sum of several clients' noise hides one of them as far as it is really in the sum: values that saturated, or
    were rounded to a grid that is coarse beside the noise of one, carry less of it than its size says.
    """
    local = [release for release in releases if release.trust != "central" and release.noise_multiplier > 0]
    if why := next((release.uncredited for release in releases if release.uncredited), ""):
        return f"zone {zone}: {why}"
    local = [release for release in local if release.mechanism in GAUSSIAN]
    if not local:
        return ""
    largest, step = min(release.range for release in local), max(release.step for release in local)
    std = math.hypot(*(release.clipping_norm * release.noise_multiplier for release in local))
    needed = max(release.clipping_norm for release in local) + _TAILS * std
    if not math.isfinite(needed):  # NaN where no bound is one number
        if math.isinf(largest) and step == 0:
            return ""
        return f"zone {zone}: the noise names no single clipping norm, so others' noise earns no credit"
    if largest < needed:
        return (
            f"zone {zone}: the encryption saturates at {largest:g}, and saturated noise hides less; others' noise "
            f"earns credit from range: {math.ceil(needed)} on"
        )
    if _STEPS_PER_STD * step > lightest * std:
        return (
            f"zone {zone}: values are rounded to {step:.2g}, too coarse beside noise of {lightest * std:.3g}; "
            "others' noise earns no credit"
        )
    return ""


def strongest(releases: Iterable[Release]) -> float | None:
    """The largest multiplier: noise that a link adds after another is post-processing of the other and cannot harm.

    None where there is no release. A mechanism that nothing here accounts for counts as no noise.
    """
    return max((r.noise_multiplier if r.mechanism in GAUSSIAN else 0.0 for r in releases), default=None)


def noise_of_others(count: int, charged: list[int], weights: Mapping[int, float]) -> tuple[float, float]:
    """How much larger the multiplier of local noise is in a weighted sum: for outsiders, and for another contributor.

    sqrt(sum of w^2) / max w over the contributors: sqrt(m) for m equal weights. Another contributor knows its own
    noise. Never below 1, since the sum is computed from the upload. The maximum goes over all charged clients and the
    sum over the `count` smallest weights, so that a client that drops out never lowers the cost.
    """
    squares = sorted(weight * weight for weight in weights.values())[:count]
    heaviest = max((weights.get(client_id, 1.0) for client_id in charged), default=1.0)
    total, without_largest = math.fsum(squares), math.fsum(squares[:-1])
    return max(1.0, math.sqrt(total) / heaviest), max(1.0, math.sqrt(without_largest) / heaviest)
