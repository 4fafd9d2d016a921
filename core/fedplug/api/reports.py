"""The numbers of a round that parties report with their replies."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from fedplug.api.records import Amount, Count, Number, Record, one_line, shown

Name = Annotated[str, Field(strict=True, max_length=200, pattern=r"^([^\p{C}\p{Z}]| )*$")]
"""A component's name and a word, of characters that can be printed."""
Reason = Annotated[str, Field(strict=True), AfterValidator(one_line)]
MOST_NAMES = 1000
"""The most of each kind in one reply: rows and reports hold every name that any client has given."""
_Few = Field(max_length=MOST_NAMES)
Numbers = Annotated[dict[Name, Number], _Few]
"""What a component gives under its own names: what a trainer returns, what is logged."""
Found = Annotated[dict[Name, Any], _Few]
"""What a service gives, which looks at it where it arrives."""
MOST_SECONDS = 2.0**30
"""The most seconds of one reply, 34 years: sums over clients and rounds, and numbers made of them, stay finite."""
Seconds = Annotated[Amount, Field(lt=MOST_SECONDS)]


def _done(pair: list[float]) -> list[float]:
    count, seconds = pair
    if not (count.is_integer() and count < 2**53):  # a tiny share of one would make one cost more than numbers can say
        raise ValueError(f"{shown(count)} operations must be a whole number below 2^53")
    if seconds >= MOST_SECONDS:
        raise ValueError(f"{shown(seconds)} seconds must be below {MOST_SECONDS:g}")
    return pair


MOST_PICTURES = 16
"""How many pictures one reply may carry."""
Picture = Annotated[str, Field(strict=True, max_length=2_000_000)]
"""JSON of what a component has drawn, for the plugin that draws reports: nothing here looks into it."""


Operations = Annotated[list[Amount], Field(min_length=2, max_length=2), AfterValidator(_done)]
"""How many of a name were done, and the seconds that they took."""


class Reports(Record):
    """What came with a reply; each field may be empty.

    Attributes:
        seconds_total: of everything that the message asked for.
        seconds: of it, by phase.
        train: what the trainer returned; `loss` is the mean training loss of the last epoch.
        zones: share of the model in each zone of the client's plan.
        churn: share of the plan that changed since the round before.
        log: what components logged.
        evaluation: of the model before this round, as the service `evaluation` made it.
        operations: name -> count and seconds of costly operations, where they are counted.
        unopened: zone -> why its sum could not be opened.
        failed: zone -> what its opener raised that is no refusal: its author must fix it.
        opened_before: zone -> rounds of which another sum was opened before.
        pictures, unpictured: what the party's components drew, as JSON, and why others are left out, as the service
            `drawn` made them.
        compared: what a client found of its plain values in this reply and those before, as the `Store` that looks for
            them made it; empty where it did not look.
    """

    seconds_total: Seconds = 0.0
    seconds: Annotated[dict[Name, Seconds], _Few] = dataclasses.field(default_factory=dict)
    train: Numbers = dataclasses.field(default_factory=dict)
    zones: Numbers = dataclasses.field(default_factory=dict)
    churn: Number | None = None
    log: Numbers = dataclasses.field(default_factory=dict)
    evaluation: Found = dataclasses.field(default_factory=dict)
    operations: Annotated[dict[Name, Operations], _Few] = dataclasses.field(default_factory=dict)
    unopened: Annotated[dict[Name, Reason], _Few] = dataclasses.field(default_factory=dict)
    failed: Annotated[dict[Name, Reason], _Few] = dataclasses.field(default_factory=dict)
    opened_before: Annotated[dict[Name, Annotated[list[Count], _Few]], _Few] = dataclasses.field(default_factory=dict)
    pictures: Annotated[dict[Name, Picture], Field(max_length=MOST_PICTURES)] = dataclasses.field(default_factory=dict)
    unpictured: Annotated[dict[Name, Reason], _Few] = dataclasses.field(default_factory=dict)
    compared: Found = dataclasses.field(default_factory=dict)
