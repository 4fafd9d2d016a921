"""Rules for recipes (`fedplug.rules`), which are loaded with every recipe: those of statistics only with theirs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def problems(rules: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Where a recipe has a component of this distribution, or what inherits from one: `chains.problems`."""
    kinds = (kind for part in rules.parts.values() for kind in type(part).__mro__)
    if any(kind.__module__.startswith("fedplug_analytics.") for kind in kinds):
        from fedplug_analytics import chains

        yield from chains.problems(rules)
