"""What everybody in a process may share: the data, who holds which part of it, and the initial model.

Built once a process and handed on. Components are not in it: the server, the key server and the clients of a process
each have their own. Clients of one process share theirs: what one keeps on itself by mistake, the next client meets.

With data at sites there is no data to share: a world then knows what the recipe says of it, and loads what a client has
when that client is built, which no server does.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedplug.api.blocks import unchangeable
from fedplug.api.data import About, ClientData, Dataset, Examples, Model, PublicData, model_problem
from fedplug.api.errors import DataError, PluginError, SetupError, of_component
from fedplug.api.records import shown
from fedplug.api.roles import DataSource, Declares, ModelSource, Partition, Task
from fedplug.api.streams import stream
from fedplug.recipe.catalog import EXAMINE, installed, service
from fedplug.recipe.composition import Composition
from fedplug.recipe.parts import Agreed, Use
from fedplug.recipe.recipe import Recipe


@dataclasses.dataclass(frozen=True, eq=False)
class Holding:
    """What a client has.

    Attributes:
        data: its examples.
        folder: where it finds data sets, or None.
        tells_classes: whether the server may be told how many examples of each class it has.
    """

    data: ClientData
    folder: str | None
    tells_classes: bool = False


def read_only(examples: Examples) -> Examples:
    """The same examples, in arrays that cannot be written to; make a copy to change them."""
    fields = ((field.name, getattr(examples, field.name)) for field in dataclasses.fields(examples))
    return dataclasses.replace(examples, **{name: _locked(array) for name, array in fields if array is not None})


def _locked(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view


def client_data(
    dataset: Dataset, assignment: Sequence[NDArray[np.int64]], client_id: int, num_clients: int, seed: int,
    evaluation: Any = None,
) -> ClientData:  # fmt: skip
    """The data of one client.

    Args:
        dataset: the whole data set.
        assignment: for each client, the indices of its training examples, as a partition gives them.
        client_id: 0 to K-1.
        num_clients: K.
        seed: of the recipe.
        evaluation: the service that draws the client's own test examples; None: it has none.

    Raises:
        ValueError: the assignment is not one for `num_clients` clients.
    """
    if len(assignment) != num_clients or not 0 <= client_id < num_clients:
        raise ValueError(f"client {client_id} of {num_clients} has no share in an assignment to {len(assignment)}")
    train = dataset.train.take(assignment[client_id])
    own = np.empty(0, np.int64)
    if evaluation is not None:
        rng = stream(seed, "own_test", client_id)
        own = evaluation.own_test(train.labels, dataset.test.labels, num_clients, rng)
    return ClientData(train, dataset.test.take(own), dataset.test, own, **dataset.about)


def load_data(recipe: Recipe, components: Mapping[str, Any], root: str | None) -> tuple[Dataset, PublicData | None]:
    """The data set that is split among the clients, and the public examples, which none of them owns.

    Public examples are a separate data set (section `public`), or training examples set aside (`data.public`),
    chosen by the recipe's seed; everybody who loads them gets the same. What equals one of these is no client's either.

    Raises:
        DataError: there are too few examples to set aside, or the public ones do not look like the others.
    """
    with of_component(recipe.data.name, "load"):
        data: Dataset = components[recipe.data.name].load(root)
    if recipe.public is not None:
        return data, load_public(recipe, components, root, data.shape, len(data.classes), data.train.answers.ndim)
    count, total = recipe.data.public, len(data.train)
    if not count:
        return data, None
    if count > total - recipe.data.clients:
        raise DataError(
            f"data.public={count} of {total} training examples leaves fewer than one for each of "
            f"{recipe.data.clients} clients; set fewer aside"
        )
    order = stream(recipe.seed, "public").permutation(total)
    public = data.train.take(np.sort(order[:count]))
    others = data.train.take(np.sort(order[count:]))
    private = others.take(np.flatnonzero(~_among(others, public)))
    return dataclasses.replace(data, train=private), _public(data, public)


def load_public(
    recipe: Recipe, components: Mapping[str, Any], root: str | None, shape: tuple[int, ...], num_classes: int,
    answers: int | None,
) -> PublicData | None:  # fmt: skip
    """The public examples of the section `public`; None where the recipe has none.

    Args:
        recipe, components: whose section, and what loads it.
        root: folder of data sets, or None.
        shape, num_classes, answers: of the clients' data: of an example, of its classes, dimensions of all answers;
            None where the task says what these are.

    Raises:
        DataError: they do not look like the clients' data.
    """
    if recipe.public is None:
        return None
    with of_component(recipe.public.name, "load"):
        other: Dataset = components[recipe.public.name].load(root)
    for what, theirs, ours in (
        ("shape", other.shape, shape),
        ("number of classes", len(other.classes), num_classes),
        ("kind of answer", other.train.answers.ndim, answers),
    ):
        if ours not in (None, theirs):
            aside = ", or set examples aside: data: {public: 32, ...}" if recipe.data.agreed is None else ""
            raise DataError(
                f"public: {recipe.public.use} has the {what} {theirs}, data: {recipe.data.use} has {ours}; choose "
                f"a public data set of the same task{aside}"
            )
    return _public(other, other.train)


def _public(dataset: Dataset, examples: Examples) -> PublicData:
    return PublicData(examples, **dataset.about)


def _among(examples: Examples, others: Examples) -> NDArray[np.bool_]:
    """Which examples have inputs that others have too, (n,)."""
    known = {row.tobytes() for row in others.inputs}
    return np.fromiter((row.tobytes() in known for row in examples.inputs), np.bool_, len(examples))


def class_counts(data: ClientData) -> list[int]:
    """How many training examples there are of each label."""
    counts: list[int] = np.bincount(data.train.labels, minlength=len(data.label_names)).tolist()
    return counts


def assignment_problem(assignment: Any, clients: int, examples: int) -> str:
    """What is wrong with how a partition splits the training examples; empty if nothing.

    An example that two clients have would be in two updates, and no guarantee says what that costs.
    """
    if not isinstance(assignment, Sequence) or len(assignment) != clients:
        return f"it gave {shown(assignment)}; it must give a list of {clients} arrays of indices, one a client"
    for client_id, mine in enumerate(assignment):
        if not isinstance(mine, np.ndarray) or mine.dtype.kind not in "iu" or mine.ndim != 1:
            return f"it gave client {client_id} {shown(mine)}; it must be an array of indices: int64 (n,)"
    every = np.concatenate([np.empty(0, np.int64), *assignment])
    if len(every) and not 0 <= every.min() <= every.max() < examples:
        return f"it gave indices from {every.min()} to {every.max()}, and there are {examples} training examples"
    counts = np.bincount(every, minlength=1)
    if counts.max() > 1:
        whose = [c for c, mine in enumerate(assignment) if counts.argmax() in mine]
        return f"it gave example {counts.argmax()} to the clients {whose}; each example belongs to one client, once"
    return ""


class World:
    """The facts of a recipe that take long to build, and that no party changes.

    Args:
        recipe, composition: whose data set, partition and model are asked.
        data_root: folder of data sets, or None.
        site: with data at sites, the client whose folder `data_root` is, in a process that holds no other; None: it
            holds a folder for each client.

    Attributes:
        data: the examples that are split among the clients; only code that acts as the clients may look at them. None
            with data at sites.
        public: the examples that everybody has; None where the recipe names none.
        assignment: for each client, the indices of its training examples; empty with data at sites.
        shape, classes, label_names, mean: of the clients' data, as in `Dataset`.
        doubts: what is odd about the data, a sentence each, for those who have it; with data at sites only once a
            client's was loaded.

    Raises:
        DataError: the data set is missing or cannot be used.
    """

    def __init__(
        self, recipe: Recipe, composition: Composition, data_root: str | None, site: int | None = None
    ) -> None:
        self._recipe, self._composition, self._root, self._site = recipe, composition, data_root, site
        self.doubts: list[str] = []
        self._task = composition.part(recipe.task.name, Task) if recipe.task else None
        self.data: Dataset | None = None
        self.assignment: Sequence[NDArray[np.int64]] = ()
        public = self._split() if recipe.data.agreed is None else self._agreed(recipe.data.agreed)
        if public is not None:
            public = dataclasses.replace(public, examples=read_only(public.examples), task=self._task)
            self._require({"public": public.examples}, public, recipe.public or recipe.data)
        self.public = public
        self._source = composition.part(recipe.model.name, ModelSource)
        self._models: dict[str, Model] = {}

    def _split(self) -> PublicData | None:
        """Loads the data set and splits it."""
        recipe = self._recipe
        data, public = load_data(recipe, self._composition.components, self._root)
        # What all share nobody can write to: one client could tell the others, and the server, of its data that way.
        self.data = data = dataclasses.replace(
            data, train=read_only(data.train), test=read_only(data.test), task=self._task
        )
        others = {"public": public.examples} if public and recipe.public else {}
        self._require({"training": data.train, "test": data.test, **others}, data, recipe.data)
        targets = data.train.targets
        per: Literal["example", "pixel"] = "example" if targets is None or targets.ndim < 3 else "pixel"
        self._holds = Declares(shape=data.shape, num_classes=len(data.classes), per=per)
        self.shape, self.mean = data.shape, data.mean
        self.classes, self.label_names = data.classes, data.label_names
        assert recipe.data.partition is not None  # a recipe without has data at sites
        partition = self._composition.part(recipe.data.partition.name, Partition)
        with of_component(partition.name, "assign"):
            rng = stream(recipe.seed, "partition")
            given = partition.assign(getattr(data.train, partition.by), recipe.data.clients, rng)
            if isinstance(given, Sequence):  # as it is now: another look may find something else
                given = [unchangeable(one) if isinstance(one, np.ndarray) else one for one in given]
            if problem := assignment_problem(given, recipe.data.clients, len(data.train)):
                raise ValueError(problem)
            self.assignment = given
        return public

    def _require(self, parts: dict[str, Examples], about: About, use: Use, where: str = "") -> None:
        """Refuses data that is none for the recipe's task, or that nobody can learn from; notes what is odd about it.

        `use` names its source in the recipe, and `where` the site that has it.

        Raises:
            DataError: says what is wrong with it.
        """
        task, recipe = self._task, self._recipe
        source = f"{use.use} ({self._composition.components[use.name].describe()}){where}"
        looks: list[Any] = [entry.imported() for entry in installed(EXAMINE).values()]
        for wrong in filter(None, (look.problem(parts, about) for look in looks)):
            raise DataError(f"{use.place}: {source}: {wrong}")
        for split, examples in parts.items():
            why: str | None = None
            if task is not None:
                with of_component(task.name, "refuses"):
                    why = task.refuses(examples, about)
            elif examples.targets is not None and examples.targets.dtype.kind == "f":
                why = "answers are numbers, and a recipe without a task has classes; write task: std.regression"
            if why:
                named = f"{recipe.task.place}: {recipe.task.use}" if recipe.task else use.place
                raise DataError(f"{named}: the {split} examples of {source} do not suit the task: {why}")
        scales = "scale" in type(use.options).model_fields
        self.doubts += (f"data{where}: {doubt}" for look in looks for doubt in look.doubts(parts, about, scales))

    def _agreed(self, agreed: Agreed) -> PublicData | None:
        """Takes what the recipe says of the data at all sites."""
        self.shape, self.mean, self._holds = agreed.shape, agreed.mean, agreed.holds
        self.classes, self.label_names = agreed.classes, agreed.kinds or agreed.classes
        of_all = None if self._task else 3 if agreed.kinds else 1  # one class an example, or one a pixel
        components = self._composition.components
        return load_public(self._recipe, components, self._root, self.shape, len(self.classes), of_all)

    @functools.cached_property
    def digest(self) -> bytes:
        """Of the training examples and of who has which: these must be the same in every process and in every part of a
        run, or two clients have the same. Empty with data at sites.
        """
        found = hashlib.blake2b(digest_size=16)
        if self.data is None:
            return b""
        train = self.data.train
        for array in (train.inputs, train.labels, train.targets, *self.assignment):
            if array is not None:
                found.update(f"{array.dtype.str} {array.shape}".encode())
                found.update(np.ascontiguousarray(array).data)
        return found.digest()

    def holdings(self, client_ids: list[int]) -> dict[int, Holding]:
        """What these clients have; only for code that acts as them.

        Raises:
            DataError: with data at sites, a folder is missing, or what lies there is not what the recipe says.
        """
        recipe, data, agreed = self._recipe, self.data, self._recipe.data.agreed
        if agreed is not None:
            sites, fitting = service("sites"), service("fitting")
            if sites is None:
                raise SetupError(f"{recipe.data.place}: this needs fedplug-runs, installed as fedplug was")
            source = self._composition.part(recipe.data.name, DataSource)
            folders = sites.site_folders(self._root, client_ids, self._site)
            found: dict[int, Holding] = {
                c: dataclasses.replace(held, data=dataclasses.replace(held.data, task=self._task))
                for c, held in sites.load_sites(source, agreed, folders).items()
            }
            problems: list[str] = []
            public = {"public": self.public.examples} if self.public else {}
            for client_id, held in found.items():
                at = f" of client {client_id}, in {held.folder}"
                held_out = {"test": held.data.own_test} if len(held.data.own_test) else {}
                try:
                    self._require({"training": held.data.train, **held_out, **public}, held.data, recipe.data, at)
                    for model in self._models.values() if fitting else ():
                        fitting.tried(model, held.data, recipe.data.use + at)
                except DataError as error:
                    problems.append(str(error))
            if problems:
                raise DataError("\n".join(problems))
            return found
        assert data is not None  # whatever is not at sites was loaded and split
        split, evaluation = (data, self.assignment), service("evaluation")
        return {
            c: Holding(client_data(*split, c, recipe.data.clients, recipe.seed, evaluation), self._root)
            for c in client_ids
        }

    def model(self, device: str) -> Model:
        """A separate model with the initial weights; built once a device and copied from then on.

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
                if fitting := service("fitting"):
                    fitting.require(self._source, recipe.data.name, self._holds)
                made = self._source.build(self.shape, len(self.classes), recipe.seed, device)
                if fitting and self.data is not None and not model_problem(made):
                    fitting.tried(made, self.data, recipe.data.use)
        except (DataError, SetupError) as error:
            raise type(error)(f"{recipe.model.place}: {error}") from error
        if problem := model_problem(made):
            raise PluginError(f"component {self._source.name}, build: {problem}")
        return made
