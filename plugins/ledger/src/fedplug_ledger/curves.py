"""Under which curve the noise of a mechanism is counted: one name has one curve in a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fedplug.api.links import Step
from fedplug.api.operations import GAUSSIAN, INTEGER, OF_EPSILON, Curve, Noise, Operations

PRICED = (*GAUSSIAN, *INTEGER, *OF_EPSILON)
"""The mechanisms whose cost the core knows."""
Stated = tuple[str, Operations]
"""Who gives operations, as `std.gaussian in zone noised`, and the operations."""


def stated_in(chains: Iterable[Iterable[Step]]) -> list[Stated]:
    """The operations of the links of several zones."""
    return [(f"{step.link.name} in zone {step.link.zone}", step.operations) for chain in chains for step in chain]


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
