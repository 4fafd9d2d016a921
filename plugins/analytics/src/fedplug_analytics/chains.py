"""What keeps the mean of clients' updates from being sums that can be answered, in recipes that name statistics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fedplug import Clip, Noise, Open, Rotate, Round, Seal, WeightedSum, Widen
from fedplug.api.blocks import RETAINED
from fedplug.api.operations import Look
from fedplug.api.roles import Aggregator, Groups, Negotiation, Trainer

from fedplug_analytics.clip import Clip as Clips
from fedplug_analytics.local import LocalSums
from fedplug_analytics.noised import Noised
from fedplug_analytics.statistics import Statistics

_ADD_UP = (Clip, Look, Noise, Open, Rotate, Round, Seal, WeightedSum, Widen)
"""Operations behind which the mean of all updates still is the mean of sums, with noise of a known size."""

Complaint = tuple[tuple[str | int, ...], str]


def problems(rules: Any) -> Iterator[Complaint]:
    """Sums that the server does not read, that are weighted, or that a function changes, and answers that nobody makes.
    """
    if not any(isinstance(part, Statistics) for part in rules.parts.values()):
        of_sums = [use for use, part in rules.defined if isinstance(part, LocalSums | Clips)]
        needing = [] if rules.recipe is None else of_sums
        remedy = "write model: {use: analytics.statistics, of: [...]}"
        yield from ((use.path, f"{use.use} is for sums of statistics; {remedy}") for use in needing)
        return
    if "answers" not in rules.draft.sections:
        yield ("model",), "nobody makes answers of its sums; write answers: {confidence: 0.95}"
    for use, part in rules.defined:
        if isinstance(part, Aggregator) and part.wants.num_examples:
            yield use.path, "it weights clients, and sums count all alike; write {use: std.mean, weighting: uniform}"
        if isinstance(part, Negotiation) and (part.plans.own or RETAINED in part.plans.zones):
            yield use.path, "some sums may stay at clients, and answers are of all; write {use: std.single_zone}"
        if isinstance(part, Trainer) and not isinstance(part, Statistics | LocalSums):
            yield use.path, "it trains, and there is no model; write train: analytics.statistics, or analytics.noised"
        if isinstance(part, Groups):
            yield use.path, "it forms groups of clients, and sums are over all; leave groups out"
    noised = next((use.name for use, part in rules.defined if isinstance(part, Noised)), "")
    for zone in rules.foldable:
        yield from ((("protect", zone), f"zone {zone}: {why}") for why in _of(rules.steps(zone), noised))


def _of(steps: Any, noised: str) -> Iterator[str]:
    """What is wrong with the links of a zone, as half sentences; `noised` names a trainer that adds noise."""
    for step in steps:
        name = step.link.name
        for operation in step.operations:
            if isinstance(operation, Seal) and (
                operation.opened_by == "clients" or operation.sums_visible_to != "server"
            ):
                yield (
                    f"only clients read the sums that {name} opens, and the server answers; write key_holder: "
                    "key_server or sums_visible_to: server, as the component has it"
                )
            elif isinstance(operation, Seal) and hasattr(operation.numbers, "wrapped"):
                yield f"{name} lets sums wrap, which makes other counts of them; leave wraps out"
            elif isinstance(operation, WeightedSum) and (operation.by is not None or operation.rate != 1):
                yield f"{name} weights the sum by more than the number of clients; use std.mean"
            elif isinstance(operation, Noise) and not isinstance(operation.std, int | float):
                yield f"the noise of {name} has more than one size, and intervals need one; use std.gaussian"
            elif isinstance(operation, Clip) and noised:
                yield (
                    f"{name} clips behind the noise of {noised}, which changes its size; put the clip first, or leave "
                    "it out"
                )
            elif isinstance(operation, Round) and operation.toward_zero:
                yield f"{name} rounds toward zero, which moves sums; leave it out"
            elif not isinstance(operation, _ADD_UP):
                what = type(operation).__name__
                yield f"{name} changes the values ({what}), so that their sum answers nothing; leave it out"
            noised = name if isinstance(operation, Noise) else noised
