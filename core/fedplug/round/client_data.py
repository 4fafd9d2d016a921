"""Who holds which data: the public examples, each client's training examples and its own test examples."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedplug.api.data import ClientData, Dataset, Examples, PublicData
from fedplug.api.errors import DataError, of_component
from fedplug.api.streams import stream

if TYPE_CHECKING:
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
    """The same examples, in arrays that cannot be written to; whoever wants to makes a copy."""
    fields = ((field.name, getattr(examples, field.name)) for field in dataclasses.fields(examples))
    return dataclasses.replace(examples, **{name: _locked(array) for name, array in fields if array is not None})


def _locked(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view


def client_data(
    dataset: Dataset, assignment: Sequence[NDArray[np.int64]], client_id: int, num_clients: int, seed: int
) -> ClientData:
    """The data of one client.

    Its own test examples are about 1/K of the test set (see `own_test_size`), drawn with the class mix of its training
    examples, each client for itself: two clients may be tested on the same example, but never train on one of them.

    Args:
        dataset: the whole data set.
        assignment: for each client, the indices of its training examples, as a partition gives them.
        client_id: 0 to K-1.
        num_clients: K.
        seed: of the recipe.

    Raises:
        ValueError: the assignment is not one for `num_clients` clients.
    """
    if len(assignment) != num_clients or not 0 <= client_id < num_clients:
        raise ValueError(f"client {client_id} of {num_clients} has no share in an assignment to {len(assignment)}")
    train = dataset.train.take(assignment[client_id])
    rng = stream(seed, "own_test", client_id)
    own = matched_test(train.labels, dataset.test.labels, own_test_size(len(dataset.test), num_clients), rng)
    return ClientData(train, dataset.test.take(own), dataset.test, **dataset.about)


def load_data(recipe: Recipe, components: Mapping[str, Any], root: str | None) -> tuple[Dataset, PublicData | None]:
    """The data set that is split among the clients, and the public examples, which none of them owns.

    Public examples are a data set of their own (section `public`), or training examples set aside (`data.public`),
    chosen by the recipe's seed; everybody who loads them gets the same.

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
    mine = dataclasses.replace(data, train=data.train.take(np.sort(order[count:])))
    return mine, _public(data, data.train.take(np.sort(order[:count])))


def load_public(
    recipe: Recipe,
    components: Mapping[str, Any],
    root: str | None,
    shape: tuple[int, ...],
    num_classes: int,
    answers: int,
) -> PublicData | None:
    """The public examples of the section `public`; None where the recipe has none.

    Args:
        recipe, components: whose section, and what loads it.
        root: folder of data sets, or None.
        shape, num_classes, answers: of the clients' data: of an example, of its classes, dimensions of all answers.

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
        if theirs != ours:
            aside = ", or set examples aside: data: {public: 32, ...}" if recipe.data.agreed is None else ""
            raise DataError(
                f"public: {recipe.public.use} has the {what} {theirs}, data: {recipe.data.use} has {ours}; choose "
                f"a public data set of the same task{aside}"
            )
    return _public(other, other.train)


def _public(dataset: Dataset, examples: Examples) -> PublicData:
    return PublicData(examples, **dataset.about)


def own_test_size(test_examples: int, num_clients: int) -> int:
    """About 1/K of the test set, at least 1 and at most 250: the standard error is then at most 3 points."""
    return min(250, max(1, test_examples // num_clients))


def matched_test(
    train_labels: NDArray[np.int64], test_labels: NDArray[np.int64], size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Test examples with the class mix of a client's training labels.

    Classes get their share of `size` by largest remainders, so every count is within one of the exact share. Where
    the test set has too few examples of a class, all counts shrink in proportion: the mix matters, not the size.

    Args:
        train_labels: int64 (n,), the client's.
        test_labels: int64 (m,), of the whole test set.
        size: how many test examples are wanted, >= 1.
        rng: draws the examples of each class without replacement.

    Returns:
        Ascending indices into the test set, without repetition; 1 to `size` of them. Empty only where the test set
        holds none of the client's classes.
    """
    num_classes = int(max(train_labels.max(initial=-1), test_labels.max(initial=-1))) + 1
    available = np.bincount(test_labels, minlength=num_classes)
    wanted = np.bincount(train_labels, minlength=num_classes) * (available > 0)
    if not wanted.any():
        return np.empty(0, np.int64)
    mix = wanted / wanted.sum()
    limit = np.divide(available, mix, out=np.full(num_classes, np.inf), where=mix > 0).min()
    total = max(1, min(size, int(limit + 1e-9)))
    exact = mix * total
    counts = np.floor(exact + 1e-9).astype(np.int64)
    most_left_over = np.argsort(-(exact - counts), kind="stable")
    counts[most_left_over[: total - int(counts.sum())]] += 1
    counts = np.minimum(counts, available)
    chosen = [
        rng.choice(np.flatnonzero(test_labels == label), counts[label], replace=False)
        for label in np.flatnonzero(counts)
    ]
    return np.sort(np.concatenate(chosen)).astype(np.int64)


def slice_of_test(position: int, parties: int, n: int) -> slice:
    """The share of `n` test examples that the party at `position` (0 to parties-1) evaluates.

    The shares are disjoint and complete, and their sizes differ by at most one.
    """
    return slice(position * n // parties, (position + 1) * n // parties)
