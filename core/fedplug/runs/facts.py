"""What a run says of itself in `summary.json`: versions, what data the clients have, how its parts are assessed."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from importlib_metadata import version

from fedplug.api.errors import describe
from fedplug.api.outer_roles import Partition
from fedplug.api.role_records import GroundTruth
from fedplug.runs.summary import Distribution

if TYPE_CHECKING:
    from fedplug.engines.base import Engine
    from fedplug.recipe.catalog import Catalog, Entry
    from fedplug.recipe.recipe import Recipe
    from fedplug.round.protocol import Protocol
    from fedplug.round.world import World
    from fedplug.wire.record import Wire


def versions(recipe: Recipe, catalog: Catalog, engine: Entry) -> dict[str, str]:
    """Of Python, numpy, fedplug, and every plugin that the recipe or the engine is of."""
    by_name = {"python": sys.version.split()[0], "numpy": np.__version__, "fedplug": version("fedplug")}
    by_name[engine.distribution] = engine.version
    for use in recipe.uses():
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
    """For the report, how many examples of each class a client has, which no message carries.

    Args:
        world: in which clients have their data.
        at_sites: by client, what its site let be told; all that anybody knows of data at sites.
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
    """Asks the components for facts that no party has, such as how well clusters match the true ones.

    Runs outside every party, with what was true of the data. An assessment that fails is noted, and left out.

    Args:
        protocol: at the end of the run.
        distribution: what `class_distribution` gives.
    """
    examples = distribution.clients
    composition, assessed = protocol.composition, {}
    place = protocol.recipe.data.partition
    partition = composition.part(place.name, Partition) if place else None
    for name, component in composition.components.items():
        try:
            categories = partition.categories(len(examples)) if partition else None
            truth = GroundTruth(classes=distribution.classes, examples=examples, categories=categories)
            if facts := component.assess(protocol.server, truth):
                assessed[name] = {str(fact): float(value) for fact, value in facts.items()}
        except Exception as error:
            protocol.events.note(f"the assessment of {name} is left out: {describe(error)}")
    return assessed
