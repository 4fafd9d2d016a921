"""Zones under names that say how they were sent: a zone that a recipe calls noised, and sends as it is, is clear."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from fedplug.api.blocks import CLEAR, NOISED
from fedplug_runs.rows import Row, Sent, Traffic

T = TypeVar("T", int, float)


def bare(recipe: Mapping[str, Any]) -> bool:
    """Whether a recipe, as plain data, has a zone `noised` whose chain is empty, so that nothing is added to it."""
    protect = recipe.get("protect")
    return isinstance(protect, Mapping) and NOISED in protect and not protect[NOISED]


def as_sent(rows: Sequence[Row], recipe: Mapping[str, Any]) -> list[Row]:
    """The rows with a zone `noised` that got no noise counted as clear.

    Args:
        rows: of a run.
        recipe: of the run, as plain data.
    """
    if not bare(recipe):
        return list(rows)
    return [
        dataclasses.replace(
            row,
            zones=_shares(row.zones),
            bytes=Traffic(_sent(row.bytes.up), _sent(row.bytes.down), _sent(row.bytes.key_server)),
        )
        for row in rows
    ]


def _sent(found: Sent) -> Sent:
    return dataclasses.replace(found, zones=_merged(found.zones))


def _shares(zones: Mapping[str, float | None]) -> dict[str, float | None]:
    known = _merged({zone: share for zone, share in zones.items() if share is not None})
    return {zone: known.get(zone) for zone in zones if zone != NOISED} | known


def _merged(by_zone: Mapping[str, T]) -> dict[str, T]:
    """The same with `noised` added to `clear`; where there is neither, as it was."""
    merged = {zone: amount for zone, amount in by_zone.items() if zone != NOISED}
    if NOISED in by_zone:
        merged[CLEAR] = merged[CLEAR] + by_zone[NOISED] if CLEAR in merged else by_zone[NOISED]
    return merged
