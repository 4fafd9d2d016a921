"""What everybody in a process may share: the data, who holds which part of it, and the initial model.

Built once a process and handed on. Components are not in it: the server, the key server and the clients of a process
each have their own. Clients of one process share theirs: what one keeps on itself by mistake, the next client meets.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedplug.api.errors import of_component
from fedplug.api.outer_roles import ModelSource, Partition
from fedplug.api.streams import stream
from fedplug.round.client_data import load_data

if TYPE_CHECKING:
    from fedplug.api.data import Examples
    from fedplug.api.model import Model
    from fedplug.recipe.composition import Composition
    from fedplug.recipe.recipe import Recipe


def read_only(examples: Examples) -> Examples:
    """The same examples, in arrays that cannot be written to; whoever wants to makes a copy."""
    fields = ((field.name, getattr(examples, field.name)) for field in dataclasses.fields(examples))
    return dataclasses.replace(examples, **{name: locked(array) for name, array in fields if array is not None})


def locked(array: NDArray[Any]) -> NDArray[Any]:
    """A view of an array that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


class World:
    """The facts of a recipe that take long to build, and that no party changes.

    Args:
        recipe, composition: whose data set, partition and model are asked.
        data_root: folder of data sets, or None.

    Attributes:
        data: the examples that are split among the clients; only who stands for the clients may look at them.
        public: the examples that everybody has; None where the recipe names none.
        assignment: for each client, the indices of its training examples.

    Raises:
        DataError: the data set is missing or cannot be used.
    """

    def __init__(self, recipe: Recipe, composition: Composition, data_root: str | None) -> None:
        self._seed = recipe.seed
        data, public = load_data(recipe, composition.components, data_root)
        # What all share nobody can write to: one client could tell the others, and the server, of its data that way.
        self.data = dataclasses.replace(data, train=read_only(data.train), test=read_only(data.test))
        self.public = public and dataclasses.replace(public, examples=read_only(public.examples))
        partition = composition.part(recipe.data.partition.name, Partition)
        with of_component(partition.name, "assign"):
            rng = stream(recipe.seed, "partition")
            given = partition.assign(self.data.train.labels, recipe.data.clients, rng)
        self.assignment: Sequence[NDArray[np.int64]] = given
        self._source = composition.part(recipe.model.name, ModelSource)
        self._models: dict[str, Model] = {}

    def model(self, device: str) -> Model:
        """A model of one's own, with the initial weights; built once a device and copied from then on."""
        if device not in self._models:
            with of_component(self._source.name, "build"):
                self._models[device] = self._source.build(
                    self.data.shape, len(self.data.classes), self._seed, device
                )
        return copy.deepcopy(self._models[device])
