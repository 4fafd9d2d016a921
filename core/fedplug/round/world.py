"""What everybody in a process may share: the data, who holds which part of it, and the initial model.

Built once a process and handed on. Components are not in it: the server, the key server and the clients of a process
each have their own. Clients of one process share theirs: what one keeps on itself by mistake, the next client meets.

With data at sites there is no data to share: a world then knows what the recipe says of it, and loads what a client has
when that client is built, which no server does.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from fedplug.api.errors import DataError, PluginError, SetupError, of_component
from fedplug.api.model import model_problem
from fedplug.api.outer_roles import ModelSource, Partition
from fedplug.api.role_records import Declares
from fedplug.api.streams import stream
from fedplug.recipe.fitting import misfit
from fedplug.round.client_data import Holding, client_data, load_data, load_public, read_only
from fedplug.round.sites import load_sites, site_folders

if TYPE_CHECKING:
    from fedplug.api.data import Dataset, PublicData
    from fedplug.api.model import Model
    from fedplug.recipe.composition import Composition
    from fedplug.recipe.parts import Agreed
    from fedplug.recipe.recipe import Recipe


class World:
    """The facts of a recipe that take long to build, and that no party changes.

    Args:
        recipe, composition: whose data set, partition and model are asked.
        data_root: folder of data sets, or None.
        site: with data at sites, the client whose folder `data_root` is, in a process that holds no other; None: it
            holds a folder for each client.

    Attributes:
        data: the examples that are split among the clients; only who stands for the clients may look at them. None with
            data at sites.
        public: the examples that everybody has; None where the recipe names none.
        assignment: for each client, the indices of its training examples; empty with data at sites.
        shape, classes, label_names, mean: of the clients' data, as in `Dataset`.

    Raises:
        DataError: the data set is missing or cannot be used.
    """

    def __init__(
        self, recipe: Recipe, composition: Composition, data_root: str | None, site: int | None = None
    ) -> None:
        self._recipe, self._composition, self._root, self._site = recipe, composition, data_root, site
        self.data: Dataset | None = None
        self.assignment: Sequence[NDArray[np.int64]] = ()
        public = self._split() if recipe.data.agreed is None else self._agreed(recipe.data.agreed)
        self.public = public and dataclasses.replace(public, examples=read_only(public.examples))
        self._source = composition.part(recipe.model.name, ModelSource)
        self._models: dict[str, Model] = {}

    def _split(self) -> PublicData | None:
        """Loads the data set and splits it."""
        recipe = self._recipe
        data, public = load_data(recipe, self._composition.components, self._root)
        # What all share nobody can write to: one client could tell the others, and the server, of its data that way.
        self.data = data = dataclasses.replace(data, train=read_only(data.train), test=read_only(data.test))
        per: Literal["example", "pixel"] = "example" if data.train.targets is None else "pixel"
        self._holds = Declares(shape=data.shape, num_classes=len(data.classes), per=per)
        self.shape, self.mean = data.shape, data.mean
        self.classes, self.label_names = data.classes, data.label_names
        assert recipe.data.partition is not None  # a recipe without has data at sites
        partition = self._composition.part(recipe.data.partition.name, Partition)
        with of_component(partition.name, "assign"):
            rng = stream(recipe.seed, "partition")
            self.assignment = partition.assign(data.train.labels, recipe.data.clients, rng)
        return public

    def _agreed(self, agreed: Agreed) -> PublicData | None:
        """Takes what the recipe says of the data at all sites."""
        self.shape, self.mean, self._holds = agreed.shape, agreed.mean, agreed.holds
        self.classes, self.label_names = agreed.classes, agreed.kinds or agreed.classes
        of_all = 3 if agreed.kinds else 1  # one class an example, or one a pixel
        components = self._composition.components
        return load_public(self._recipe, components, self._root, self.shape, len(self.classes), of_all)

    def holdings(self, client_ids: list[int]) -> dict[int, Holding]:
        """What these clients have; for who stands for them alone.

        Raises:
            DataError: with data at sites, a folder is missing, or what lies there is not what the recipe says.
        """
        recipe, data, agreed = self._recipe, self.data, self._recipe.data.agreed
        if agreed is not None:
            if self._site is not None and self._root is not None:
                folders = {self._site: Path(self._root)}
            else:
                folders = site_folders(self._root, client_ids)
            return load_sites(recipe, agreed, self._composition, folders)
        assert data is not None  # whatever is not at sites was loaded and split
        return {
            c: Holding(client_data(data, self.assignment, c, recipe.data.clients, recipe.seed), self._root)
            for c in client_ids
        }

    def model(self, device: str) -> Model:
        """A model of one's own, with the initial weights; built once a device and copied from then on.

        Raises:
            DataError: it takes no examples of this shape; names the place of `model` in the recipe.
            SetupError: the machine lacks what it needs; likewise.
        """
        if device not in self._models:
            self._models[device] = self._built(device)
        return copy.deepcopy(self._models[device])

    def _built(self, device: str) -> Model:
        recipe = self._recipe
        try:
            with of_component(self._source.name, "build"):
                if why := misfit(self._source, recipe.data.name, self._holds):
                    raise DataError(why)
                made = self._source.build(self.shape, len(self.classes), recipe.seed, device)
        except (DataError, SetupError) as error:
            raise type(error)(f"{recipe.model.place}: {error}") from error
        if problem := model_problem(made):
            raise PluginError(f"component {self._source.name}, build: {problem}")
        return made
