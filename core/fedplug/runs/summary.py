"""What ran, on what: the content of `summary.json`, and where it comes from."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from importlib_metadata import version

from fedplug.api.errors import describe
from fedplug.api.outer_roles import Partition
from fedplug.api.record import Count, Number, Record, Text
from fedplug.api.role_records import GroundTruth
from fedplug.api.roles import Groups

if TYPE_CHECKING:
    from fedplug.engines.base import Engine
    from fedplug.recipe.catalog import Catalog, Entry
    from fedplug.recipe.recipe import Recipe
    from fedplug.round.protocol import Protocol
    from fedplug.round.world import World
    from fedplug.wire.record import Wire


class Distribution(Record):
    """Who holds what: names of the classes, and by client how many training examples it has of each."""

    classes: list[Text]
    clients: dict[int, list[Count]]


class Summary(Record):
    """What ran.

    Attributes:
        name, digest: of the recipe.
        recipe: as plain data, with all defaults.
        plan: hook, component and what it does here, in the order of a round.
        versions: of Python, numpy, fedplug and every plugin used.
        engine, device: that computed.
        class_distribution: of the clients' data, which no message carries; of data at sites, what sites let be known.
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


def versions(recipe: Recipe, catalog: Catalog, engine: Entry) -> dict[str, str]:
    """Of Python, numpy, fedplug, and every plugin that the recipe or the engine is of."""
    by_name = {"python": sys.version.split()[0], "numpy": np.__version__, "fedplug": version("fedplug")}
    by_name[engine.distribution] = engine.version
    for use in recipe.uses:
        entry = catalog.get(use.group, use.use)
        if entry is not None:
            by_name[entry.distribution] = entry.version
    for entry in (catalog.sections[key] for key in recipe.sections):
        by_name[entry.distribution] = entry.version
    return dict(sorted(by_name.items()))


def carried(wire: Wire, engine: Engine) -> dict[str, int]:
    """Bytes of this execution's messages, and of what the engine says was added to them on their way."""
    return {"messages": sum(sum(counts.values()) for counts in wire.counts.values()), **engine.overhead()}


def class_distribution(world: World, at_sites: Mapping[int, list[int]]) -> Distribution:
    """How many examples of each class a client has, which no message carries; of data at sites, what these let be
    known.
    """
    data = world.data
    if data is None:
        return Distribution(list(world.label_names), dict(at_sites))
    counts = {
        client_id: np.bincount(data.train.labels[mine], minlength=len(data.label_names)).tolist()
        for client_id, mine in enumerate(world.assignment)
    }
    return Distribution(list(data.label_names), counts)


def assessments(protocol: Protocol, distribution: Distribution) -> dict[str, dict[str, float]]:
    """Has groups of clients compared with what was true of the data, at the end of the run, outside every party.

    By component. An assessment that fails is noted, and left out.
    """
    recipe, composition, examples = protocol.recipe, protocol.composition, distribution.clients
    if not recipe.groups:
        return {}
    name, place = recipe.groups.name, recipe.data.partition
    try:
        categories = composition.part(place.name, Partition).categories(len(examples)) if place else None
        truth = GroundTruth(classes=distribution.classes, examples=examples, categories=categories)
        facts = composition.part(name, Groups).assess(protocol.server, truth)
        return {name: {str(fact): float(value) for fact, value in facts.items()}} if facts else {}
    except Exception as error:
        protocol.events.note(f"the assessment of {name} is left out: {describe(error)}")
        return {}
