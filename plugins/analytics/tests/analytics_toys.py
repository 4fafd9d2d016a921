"""Records, statistics and released sums that tests make without a recipe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from fedplug import Examples
from fedplug.api.data import About
from fedplug_analytics.statistic import Estimate, Records, Released, Statistic
from fedplug_analytics.statistics import KINDS


def asked(statistic: str, **options: Any) -> Statistic:
    """A statistic of that kind."""
    return KINDS[statistic](statistic=statistic, **options)


def records(classes: Sequence[str] = ("no", "yes"), labels: Any = None, **columns: Any) -> Records:
    """Records with these columns."""
    inputs = np.stack([np.asarray(column, np.float32) for column in columns.values()], 1)
    found = np.zeros(len(inputs), np.int64) if labels is None else np.asarray(labels)
    return Records(Examples(inputs, found), About(classes=tuple(classes), mean=(), std=(), columns=tuple(columns)))


def released(statistic: Statistic, *parts: Records, std: float = 0.0, seed: int = 0, **more: Any) -> Released:
    """The sums over these clients, with noise of this size."""
    sums = np.sum([statistic.sums(part) for part in parts], 0)
    noise = np.random.default_rng(seed).normal(0, std, len(sums)) if std else 0.0
    return Released(sums + noise, np.full(len(sums), std**2), **more)


def answers(statistic: Statistic, *parts: Records, **more: Any) -> dict[str, Estimate]:
    """Its numbers by name."""
    return {each.name: each for each in statistic.answer(released(statistic, *parts, **more))}
