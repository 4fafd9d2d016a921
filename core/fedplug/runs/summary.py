"""What ran, on what: the content of `summary.json`."""

from __future__ import annotations

import dataclasses
from typing import Any

from fedplug.api.record import Count, Number, Record, Text


@dataclasses.dataclass
class Distribution(Record):
    """Who holds what: names of the classes, and by client how many training examples it has of each."""

    classes: list[Text]
    clients: dict[int, list[Count]]


@dataclasses.dataclass
class Summary(Record):
    """What ran.

    Attributes:
        name, digest: of the recipe.
        recipe: as plain data, with all defaults.
        plan: hook, component and what it does here, in the order of a round.
        versions: of Python, numpy, fedplug and every plugin used.
        engine, device: that computed.
        class_distribution: of the clients' data, which no message carries; of data at sites, what was told.
        resumed: whether the run went on from a checkpoint.
        command: that does it again, for a shell; empty in a script and in a notebook.
        parameters: of the model.
        assessments: component -> fact -> value, with knowledge that no party has.
        carried: bytes that travelled in this execution: the `messages`, as the rows have them, and what was added to
            them on their way, where the engine says so; headers of networks come on top.
        peak_memory: bytes that the server's process held at most in this execution, libraries and all; with the engine
            `local` those of all parties. None where the system does not tell.
    """

    name: Text
    digest: Text
    recipe: dict[Text, Any]
    plan: list[tuple[Text, Text, Text]]
    versions: dict[Text, Text]
    engine: Text
    device: Text
    class_distribution: Distribution
    resumed: bool
    command: Text
    parameters: Count
    assessments: dict[Text, dict[Text, Number]] = dataclasses.field(default_factory=dict)
    carried: dict[Text, Count] = dataclasses.field(default_factory=dict)
    peak_memory: Count | None = None
