"""The arithmetic of bounds: what one implies of another norm, and what it becomes when values move.

`layers` are the scalars of each layer of the model; empty while no model is known.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from fedplug.api.records import Checked, at_least

Layers = tuple[int, ...]
Size = float | tuple[float, ...]
"""One number, or one a layer."""


class Bound(Checked):
    """One client's values are at most this long.

    Attributes:
        norm: the largest norm; one for each layer of the model where it is `per="layer"`.
        order: 2 or 1, of the norm; infinity for magnitudes.
        per: of the whole zone (`update`), of each layer's values in it, or of each scalar.
    """

    norm: float | tuple[float, ...] = at_least(0)
    order: float = at_least(1, default=2)
    per: Literal["update", "layer", "scalar"] = "update"


def each(value: Size) -> tuple[float, ...]:
    """The number as a tuple of one, or the numbers."""
    return value if isinstance(value, tuple) else (value,)


def times(value: Size, factor: float) -> Size:
    """The number, or each of them, times a factor."""
    return tuple(v * factor for v in value) if isinstance(value, tuple) else value * factor


def held(bound: Bound) -> bool:
    """Whether float32 holds values of that length: shorter ones it rounds to steps of 2^-149, and lifts their norm."""
    return all(norm == 0 or norm >= 2.0**-102 for norm in each(bound.norm))


def of_scalars(bound: Bound) -> bool:
    """Whether it bounds magnitudes rather than a norm of several values."""
    return bound.per == "scalar" or bound.order == math.inf


def of_layers(bound: Bound, layers: Layers) -> tuple[float, ...]:
    """The norm of each layer, where it is `per="layer"`."""
    return bound.norm if isinstance(bound.norm, tuple) else (bound.norm,) * max(1, len(layers))


def implied(bound: Bound, order: float, layers: Layers) -> float | None:
    """The largest norm of that order that a bound leaves; None where it says nothing of it."""
    if of_scalars(bound):
        return max(each(bound.norm)) * sum(layers) ** (1 / order) if sum(layers) else math.inf
    if bound.order != order:
        return None
    if bound.per == "update":
        return max(each(bound.norm))
    if not layers and not isinstance(bound.norm, tuple):  # of how many layers is not known yet
        return math.inf
    norms = of_layers(bound, layers)
    return math.hypot(*norms) if order == 2 else math.fsum(norms)


def stretched(bound: Bound, factor: float) -> Bound:
    """The bound of values that are this many times as large."""
    return dataclasses.replace(bound, norm=times(bound.norm, factor))


def widened(bound: Bound, by: float, layers: Layers, doubled: bool = True) -> Bound:
    """A bound once every value may have gone to the nearest of numbers that are twice that far apart.

    Never more than twice itself: what is closer to 0 than to another of those numbers becomes 0. That does not hold
    where values move by so much, and not to the nearest: then `doubled` is False.
    """

    def wider(norm: float, more: float) -> float:
        return min(norm + more, 2 * norm) if doubled else norm + more

    if of_scalars(bound):
        more = [by]
    elif bound.per == "update":
        more = [by * sum(layers) ** (1 / bound.order)]
    else:
        more = [by * count ** (1 / bound.order) for count in layers] or [0.0]
    if isinstance(bound.norm, tuple) or len(more) > 1:
        norms = bound.norm if isinstance(bound.norm, tuple) else (bound.norm,) * len(more)
        steps = more if len(more) == len(norms) else [max(more)] * len(norms)
        return dataclasses.replace(bound, norm=tuple(wider(n, b) for n, b in zip(norms, steps, strict=True)))
    return dataclasses.replace(bound, norm=wider(bound.norm, more[0]))


def rounded(norm: float, step: float, size: int, beta: float) -> float:
    """The L2 norm that conditional randomised rounding leaves, and that a draw exceeds with probability beta at most.

    min{ (c + g sqrt(d))^2, c^2 + g^2 d / 4 + sqrt(2 log(1 / beta)) g (c + g sqrt(d) / 2) } is its square (Kairouz, Liu
    & Steinke, ICML 2021, Theorem 1).

    Args:
        norm: c, before rounding.
        step: g, distance of neighbouring results.
        size: d, the most values that are rounded.
        beta: in (0, 1); 1 / sqrt(e) in the paper.
    """
    far = norm + step * math.sqrt(size)
    spread = math.sqrt(2 * math.log(1 / beta)) * step * (norm + step * math.sqrt(size) / 2)
    return min(far, math.sqrt(norm**2 + step**2 * size / 4 + spread))


def apart(bounds: tuple[Bound, ...], step: float, layers: Layers) -> tuple[Bound, ...]:
    """Bounds of how far values lie apart that did so by these, once both went to the nearest multiple of a step."""
    widened = []
    for bound in bounds:
        norms = each(bound.norm)
        if bound.per == "layer" and layers:
            norms = norms if len(norms) == len(layers) else norms * len(layers)
            more = [step * count ** (1 / bound.order) for count in layers]
        else:
            root = 0.0 if of_scalars(bound) else 1 / bound.order
            more = [step * max(1, sum(layers)) ** root] * len(norms)
        wider = tuple(norm + extra for norm, extra in zip(norms, more, strict=True))
        widened.append(dataclasses.replace(bound, norm=wider[0] if len(wider) == 1 else wider))
    return tuple(widened)


def behind_clip(bounds: tuple[Bound, ...], clip: Bound, layers: Layers) -> tuple[Bound, ...]:
    """Bounds of how far values lie apart that did so by these, once both were scaled down by a clip.

    Cutting magnitudes off brings values no further apart in any norm, and scaling down to an L2 norm not in L2. Scaling
    down to an L1 norm does: values 1 apart may end up sqrt(n) apart. So may in L1 those behind an L2 clip.
    """
    if of_scalars(clip):
        return bounds
    if clip.order != 2:
        return ()
    together = ((bound, implied(bound, 2, layers)) for bound in bounds)
    return tuple(
        bound if bound.per == clip.per == "layer" else dataclasses.replace(bound, norm=norm, order=2, per="update")
        for bound, norm in together
        if norm is not None
    )


def multiplier(scale: Size | None, norm: float | None, norms: tuple[float, ...] | None, order: float) -> float:
    """Scale over sensitivity; 0 where nothing bounds the values, or nobody says how large the noise is.

    Args:
        scale: of the noise, one number or one a layer.
        norm: the sensitivity of all layers together.
        norms: that of each layer, where layers are bounded one by one.
        order: of the norms.
    """
    if scale is None or norm is None or not math.isfinite(norm):
        return 0.0
    if not isinstance(scale, tuple):
        return scale / norm if norm > 0 else math.inf
    if norms is None:
        return min(scale, default=0.0) / norm if norm > 0 else math.inf
    if len(norms) != len(scale) or any(s == 0 for s in scale):
        return 0.0  # before the model is known nobody can say which belongs to which
    # One release of all layers together: (sum of (C_l / s_l)^2)^(-1/2); of Laplace noise (sum of C_l / b_l)^(-1).
    shares = [c / s for c, s in zip(norms, scale, strict=True)]
    cost = math.hypot(*shares) if order == 2 else math.fsum(shares)
    return 1 / cost if cost > 0 else math.inf
