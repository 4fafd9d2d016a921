"""Zones by the names of parameters: layers that stay with the clients, layers that are encrypted."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

import fedplug
import numpy as np
from fedplug import Client, Cohort, Facts, Field, Known, Map, Misplaced, Operations, Plan, Plans
from fedplug.api.blocks import CLEAR, RETAINED
from fedplug.api.errors import SetupError

if TYPE_CHECKING:
    from fedplug import Block, KeyServerLine, Layout, Party, Recipe
    from numpy.typing import NDArray


class PutBack(fedplug.Opener):
    """Lets each client continue with the values that it retained."""

    def postprocess(self, known: Known, facts: Facts) -> Operations:
        """The client continues with its retained values; the values do not change.

        Raises:
            Misplaced: the zone is not that of the retained values.
        """
        if known.zone != RETAINED:
            raise Misplaced(
                f"{self.name} restores a client's retained values, not zone {known.zone}; write postprocess: "
                f"{{retained: [{self.name}]}}"
            )
        return (Map(self.put_back),)

    def put_back(self, block: Block, party: Party, facts: Facts) -> Block:
        """Sets `client.personal`: the new global model, with the values that the client retained."""
        cast("Client", party).put_back(block.positions, block.plain())
        return block


class ByName(fedplug.PublicPlan, PutBack):
    """Put parameters into zones by their names: personal heads, FedBN, encrypted layers.

    * FedBN (Li et al. 2021): `norm: retained`. Scales and shifts of batch norm stay with each client, like its running
      statistics with `buffers: local`, the default.
    * Personal heads (FedPer, Arivazhagan et al. 2019): `zones: {retained: [fc2.*]}`.
    * Layers in zones of other kinds: `zones: {encrypted: [conv*, fc1.weight]}`.

    A client continues with its retained values and the global values of the rest: also name this component under
    postprocess, `postprocess: {retained: [std.by_name]}`. The global model keeps its first values there, so read the
    figures of the personal models. Plans are public, the same for all clients, and fixed.
    """

    class Options(fedplug.Options):
        """The zones of parameter names."""

        zones: dict[str, tuple[str, ...]] = Field(
            default_factory=dict,
            description="patterns of names by zone, such as {retained: [fc2.*, '*.bias']}; * matches any text, and a "
            "parameter goes to the first zone with a matching pattern",
        )
        norm: str | None = Field(
            None, description="zone of normalisation layers (those with a vector as weight); null: like others"
        )
        other_zone: str = Field(
            CLEAR, json_schema_extra={"formerly": "rest"}, description="zone of all other parameters"
        )

    options: Options

    @property
    def plans(self) -> Plans:
        """The named zones, whatever the clients and the data."""
        norm = set() if self.options.norm is None else {self.options.norm}
        return Plans(zones=frozenset({*self.options.zones, self.options.other_zone, *norm}), fixed=True)

    def setup(self, cohort: Cohort, key_server: KeyServerLine, facts: Facts) -> None:
        """Checks that the model has the named parameters.

        Raises:
            SetupError: a pattern matches no parameter, no layer is a normalisation, or nothing is left to send.
        """
        names = [parameter.name for parameter in facts.layout.parameters]
        there = f"the model has {', '.join(names)}"
        for zone, patterns in self.options.zones.items():
            for pattern in patterns:
                if not fnmatch.filter(names, pattern):
                    raise SetupError(f"{self.name}: zones.{zone}: no parameter has a name like {pattern!r}; {there}")
        placed = self.placed(facts.layout)
        if self.options.norm is not None and not _norms(facts.layout):
            raise SetupError(
                f"{self.name}: norm={self.options.norm}, but no layer of the model is a normalisation; {there}; name "
                "another model, such as std.cnn, or leave norm out"
            )
        if set(placed.values()) == {RETAINED}:
            raise SetupError(f"{self.name}: all parameters stay with the clients, so none is sent; {there}")

    def placed(self, layout: Layout) -> dict[str, str]:
        """The zone of each parameter, by name."""
        options, norms = self.options, _norms(layout)
        found = {}
        for parameter in layout.parameters:
            named = (
                zone
                for zone, patterns in options.zones.items()
                if any(fnmatch.fnmatchcase(parameter.name, pattern) for pattern in patterns)
            )
            normal = options.norm if parameter.layer in norms else None
            found[parameter.name] = next(named, normal or options.other_zone)
        return found

    def plan(self, facts: Facts) -> Plan:
        """The zones of the names, the same in every round."""
        held: dict[str, list[NDArray[np.intp]]] = {}
        placed = self.placed(facts.layout)
        for parameter in facts.layout.parameters:
            zone = placed[parameter.name]
            held.setdefault(zone, []).append(np.arange(parameter.slice.start, parameter.slice.stop))
        return Plan.of(facts, self.options.other_zone, **{zone: np.concatenate(parts) for zone, parts in held.items()})

    def check(self, recipe: Recipe) -> Iterable[str]:
        """Checks that retained values are restored, and that statistics of batch norm stay with its scales."""
        if RETAINED not in self.plans.zones:
            return
        if not recipe.postprocess.get(RETAINED):
            yield f"retained values are lost after a round; write postprocess: {{retained: [{self.name}]}}"
        if self.options.norm == RETAINED and recipe.buffers == "mean":
            remedy = "remove buffers, or norm"
            yield f"norm=retained keeps batch norm at the clients, but buffers: mean sends its statistics; {remedy}"

    def describe(self) -> str:
        """One line for the plan of the run."""
        options = self.options
        parts = [f"{', '.join(patterns)}: {zone}" for zone, patterns in options.zones.items()]
        norm = [] if options.norm is None else [f"normalisation: {options.norm}"]
        return "; ".join([*parts, *norm, f"the rest: {options.other_zone}"])


def _norms(layout: Layout) -> set[str]:
    """The layers that scale and shift: a fully connected or convolutional weight has two dimensions or more."""
    return {
        parameter.layer
        for parameter in layout.parameters
        if parameter.name == f"{parameter.layer}.weight" and len(parameter.shape) == 1
    }
