"""Whether what an aggregator gave is the sum that it states: of values, of weights, and of updates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedplug.api.effects import Adds, Changes, Effects
from fedplug.api.types import Block
from fedplug.round.expected import Expected, places


def addition_problem(
    total: Block, blocks: Mapping[int, Block], weights: Mapping[int, float], effects: Effects
) -> str:
    """Which part of a plain sum is not that of the weighted uploads, at some thousands of places; empty if none is.

    Whatever else a sum were divided by, or however many it claims to hold, would follow from values without noise. Who
    states that it changes values freely may divide them so: no noise counts that is added behind that.
    """
    adds = next((effect for effect in effects if isinstance(effect, Adds)), None)
    if adds is None or total.values is None or any(isinstance(effect, Changes) for effect in effects):
        return ""
    positions, at = total.positions, places(total.size)
    values, sizes, divisor = (np.zeros(len(at), np.float64) for _ in range(3))
    counts = np.zeros(len(at), np.int64)
    for client_id, block in blocks.items():
        if block.values is None:
            return ""  # what closes a zone at some clients alone adds it up by rules of its own
        if (block.positions is None) != (positions is None):
            return "it gave a sum with positions of uploads without, or the other way round, and states that it adds up"
        here: Any = slice(None)
        there: Any = at
        if block.positions is None or positions is None:
            if block.size != total.size:
                return f"it states that it adds uploads of {block.size} scalars up, and gave {total.size}"
        else:
            index = np.minimum(np.searchsorted(block.positions, positions[at]), max(0, block.size - 1))
            here = block.positions[index] == positions[at] if block.size else np.zeros(len(at), bool)
            there = index[here]
        part = block.plain()[there] * np.float64(1.0 if block.weighted else weights[client_id])
        values[here] += part
        sizes[here] += np.abs(part)
        divisor[here] += weights[client_id]
        counts[here] += 1
    expected = Expected.of(effects, len(blocks))
    if expected and (problem := expected.problem(total.plain()[at], values, sizes)):
        return (
            f"it states that it adds the weighted uploads up, and {problem}; give the sum, with the total weight as "
            "its divisor, or state what else it does in its `sums`"
        )
    whole = adds.divided_by == "all" or positions is None
    weight = np.full(1, math.fsum(weights[client_id] for client_id in blocks)) if whole else divisor
    with np.errstate(divide="ignore"):  # a rate of 0 leaves no number to divide by
        stated = weight / adds.rate
    given = total.divisor if isinstance(total.divisor, int | float) else np.asarray(total.divisor)[at]
    if not np.allclose(given, stated, rtol=1e-6, atol=0):
        return (
            "it states that it adds the weighted uploads up, and divides them by something else than their weight; "
            "give that as the divisor, state what else there is in Adds (divided_by, rate), or state Changes"
        )
    if total.contributors > int(counts.min(initial=len(blocks))):
        return f"it states {total.contributors} updates behind every value of a sum, and behind some are fewer"
    if total.meta:
        return "it put meta beside the sum, which no noise hides; give meta={}, or state Changes"
    return ""
