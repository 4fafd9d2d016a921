"""What chains of operations say of their price: under which curves, where there is none, and what sampling may hide."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from fedplug.api.facts import Facts
from fedplug.api.known import Known
from fedplug.api.links import Link, Step, released
from fedplug.api.operations import GAUSSIAN, INTEGER, OF_EPSILON, Combine, Curve, Map, Noise, Operations, Post
from fedplug.api.roles import Site

PRICED = (*GAUSSIAN, *INTEGER, *OF_EPSILON)
"""The mechanisms whose cost the core knows."""
Stated = tuple[str, Operations]
"""Who gives operations, as `std.gaussian in zone noised`, and the operations."""


def stated_in(chains: Iterable[Iterable[Step]]) -> list[Stated]:
    """The operations of the links of several zones."""
    return [
        (f"{step.link.name} in zone {step.link.zone}", step.operations) for chain in chains for step in chain
    ]


def curves_of(stated: Iterable[Stated]) -> dict[str, Curve]:
    """The first curve under each name."""
    curves: dict[str, Curve] = {}
    for _, noise in _noises(stated):
        if noise.curve is not None:
            curves.setdefault(noise.mechanism, noise.curve)
    return curves


def curve_problems(stated: Iterable[Stated], curves: Mapping[str, Curve]) -> list[tuple[str, str]]:
    """Who gives a cost that the ledger would not use, each with a sentence; see `curves_of` for the costs in use."""
    problems = []
    for who, noise in _noises(stated):
        name = noise.mechanism
        if name in PRICED:
            if noise.curve is not None:
                problems.append((
                    who,
                    f"{who} gives a curve for {name} noise, whose cost is known here, and other noise of that name "
                    "would get it too; give the mechanism a different name (mechanism=self.name)",
                ))
        elif name in curves and not _alike(noise.curve, curves[name]):
            other = "no curve" if noise.curve is None else "another curve"
            problems.append((
                who,
                f"{who} gives {other} for the mechanism {name} than was given before; one name has one curve for the "
                "whole run: name the mechanisms apart (mechanism=self.name), let the multiplier change from round "
                "to round and not the curve, and make the curve a frozen dataclass, so that equal ones compare equal",
            ))
    return problems


def _noises(stated: Iterable[Stated]) -> list[tuple[str, Noise]]:
    return [(who, one) for who, operations in stated for one in operations if isinstance(one, Noise)]


def _alike(one: Curve | None, other: Curve) -> bool:
    """Whether two curves are equal; such as cannot be compared, for instance by an array in them, count as not."""
    try:
        return one is other or bool(one == other)
    except Exception:
        return False


def unpriced(steps: Iterable[Step]) -> Iterator[tuple[Link, str]]:
    """Links whose noise has no price, or takes that of noise before it away, each with a sentence."""
    for step in steps:
        for number, operation in enumerate(step.operations):
            before, behind = step.states[number : number + 2]
            if isinstance(operation, Noise) and operation.std != 0 and _is_unbounded(operation, before):
                yield step.link, (
                    f"nothing bounds the L{operation.order:g} norm of the {step.link.zone} values before the noise of "
                    f"{step.link.name}, so it has no price and gives no guarantee; put a clip of that norm before it"
                )
            elif isinstance(operation, Map) and len(behind.freed) > len(before.freed):
                yield step.link, (
                    f"{step.link.name} changes {step.link.zone} values behind the noise with the data in hand, so the "
                    "noise counts for nothing; give Post(function), which is handed values alone, or put it before "
                    "the noise"
                )


def _is_unbounded(noise: Noise, known: Known) -> bool:
    return (known.sensitivity(noise.order) if noise.trust == "central" else known.norm(noise.order)) is None


class Sampled(Protocol):
    """How cohorts are drawn."""

    @property
    def scheme(self) -> str:
        """Its name, such as `poisson`."""


def amplified(sampling: Sampled | None, facts: Facts) -> set[str]:
    """The zones whose noise is added to the sum of a Poisson sample, which hides who takes part.

    None where a function of the sum comes before the noise: what it remembers of the clients of one round would be in
    the releases of others, and sampling a round hides nobody then. Nor where noise is correlated over rounds: what is
    released of one round has the clients of others in it.
    """
    if sampling is None or sampling.scheme != "poisson":
        return set()
    return {zone for zone, first in _central(facts).items() if first} - correlated(facts, "server", "key_server")


def correlated(facts: Facts, *sites: Site) -> set[str]:
    """The zones in which a party of these adds noise that takes back some of that of earlier rounds."""
    return {
        zone for zone in facts.links for step in facts.steps(zone) for each in step.operations
        if isinstance(each, Noise) and each.takes_back is not None and step.link.site in sites
    }  # fmt: skip


def remembered(facts: Facts) -> set[str]:
    """The zones in which a function of the sum comes before the noise of the server: who was in the sum of one round
    may be in the releases of all that follow, and pays for these too.
    """
    return {zone for zone, first in _central(facts).items() if not first}


def _central(facts: Facts) -> dict[str, bool]:
    """By zone with noise at the server, whether that is added before a function of a plugin gets the sum."""
    folded = {zone: facts.steps(zone) for zone in facts.links}
    behind = {zone: released(steps) for zone, steps in folded.items()}
    return {
        zone: _noised_first(folded[zone]) for zone, known in behind.items()
        if known and any(each.trust == "central" for each in known.releases)
    }  # fmt: skip


def _noised_first(steps: Iterable[Step]) -> bool:
    """Whether noise is added to the sum before a function of a plugin gets it."""
    for step in steps:
        for operation, known in zip(step.operations, step.states, strict=False):
            if isinstance(operation, Combine) or (isinstance(operation, Post | Map) and known.summed):
                return False
            if isinstance(operation, Noise) and known.summed:
                return True
    return True
