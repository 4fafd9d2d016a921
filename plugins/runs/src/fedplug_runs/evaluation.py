"""How clients judge models: on which examples, and what they count.

The kernel asks for it as the service `evaluation`; without it clients judge no model. The common test set is a part of
the data set that no client trains on; every client has it. A client's own test examples are about 1/K of it, drawn with
the class mix of its training examples, each client for itself: two clients may be tested on the same example, but never
train on one of them.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Protocol, runtime_checkable

import numpy as np
from fedplug.api.blocks import RETAINED
from fedplug.api.data import ClientData, Evaluation, Examples
from fedplug.api.errors import of_component
from fedplug.api.records import Number, Record, shown
from fedplug.api.reports import Name
from fedplug.api.roles import Trainer
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.base import NAME
from pydantic import Field

from fedplug_runs.by_class import ByClass, auc, balanced, counted, in_order_of_classes, rarest

if TYPE_CHECKING:
    from fedplug.round.hosted import HostedClient
    from numpy.typing import NDArray

_KEPT_BYTES = 1 << 27
"""Clients keep standardised test examples between rounds where those of all of them take at most this much memory."""


Counts = Annotated[dict[Name, Number], Field(max_length=30_000)]
"""What a task counts, by name: a few of each of up to 10,000 labels or classes."""


class Evaluated(Record):
    """Counts of a client's evaluation of the global model, and of its personal model where it has one.

    Attributes:
        correct, count, loss: on its share of the common test set; the loss is a sum, in nats. With data at sites, on
            the site's held-out examples.
        own_correct, own_count: on test data like its own.
        personal_correct, personal_own_correct: of its personal model, on the same; None where it has none.
        task: what else the model counted, on its share of the common test set; see `Evaluation.task`.
        personal_task: the same of its personal model.
        own_task, personal_own_task: the same of both models on test data like its own.
        tuned_correct, tuned_own_correct, tuned_task, tuned_own_task: of the global model, fine-tuned on its own
            training examples; None and empty where the recipe asks for none.
        by_class: of the global model on its share of the common test set. Counts of examples that others do not have
            would tell the mix of their classes, so of a site's held-out examples, and of test data like a client's own,
            the means below are sent in their place.
        own_balanced: balanced accuracy on test data like its own, where a class of the common test set is rare; with
            data at sites, where the site holds out examples of every class.
        own_auc: AUC on a site's held-out examples, likewise.
        rare: whether the site's held-out examples have a class that is rare.
        personal_balanced, personal_own_balanced, tuned_balanced, tuned_own_balanced: balanced accuracy of these models,
            where a class is rare.
    """

    correct: Number
    count: Number
    loss: Number
    own_correct: Number
    own_count: Number
    personal_correct: Number | None = None
    personal_own_correct: Number | None = None
    task: Counts = dataclasses.field(default_factory=dict)
    personal_task: Counts = dataclasses.field(default_factory=dict)
    own_task: Counts = dataclasses.field(default_factory=dict)
    personal_own_task: Counts = dataclasses.field(default_factory=dict)
    tuned_correct: Number | None = None
    tuned_own_correct: Number | None = None
    tuned_task: Counts = dataclasses.field(default_factory=dict)
    tuned_own_task: Counts = dataclasses.field(default_factory=dict)
    by_class: ByClass | None = None
    own_balanced: Number | None = None
    own_auc: Number | None = None
    rare: bool | None = None
    personal_balanced: Number | None = None
    personal_own_balanced: Number | None = None
    tuned_balanced: Number | None = None
    tuned_own_balanced: Number | None = None

    def __post_init__(self) -> None:
        """Raises ValueError where there are more right answers than questions, or more of these than anybody counts."""
        for name, of in _RIGHT.items():
            right, asked = getattr(self, name), getattr(self, of)
            if right is not None and not (float(asked).is_integer() and 0 <= right <= asked < 2**53):
                raise ValueError(f"evaluation.{name} is {shown(right)} of {shown(asked)} examples")
        if self.loss == -math.inf:
            raise ValueError("evaluation.loss is -inf, which no sum of losses is")
        for name in _MEANS:
            mean = getattr(self, name)
            if mean is not None and not 0 <= mean <= 1:
                raise ValueError(f"evaluation.{name} is {shown(mean)}, and must be from 0 to 1")
        if self.by_class is not None and sum(self.by_class.are) != self.count:
            raise ValueError(f"evaluation.by_class counts other examples than the {shown(self.count)} of count")

    def shares(self) -> Evaluated:
        """The same for one answer: shares and means, which do not say outright of how many answers."""
        answers, own_answers = self.count or 1.0, self.own_count or 1.0

        def of(count: float | None, asked: float) -> float | None:
            return None if count is None else count / asked

        def each(counts: Mapping[str, float], asked: float) -> dict[str, float]:
            return {name: total / asked for name, total in counts.items()}

        return dataclasses.replace(
            self,
            correct=self.correct / answers,
            count=min(self.count, 1.0),
            loss=self.loss / answers,
            own_correct=self.own_correct / own_answers,
            own_count=min(self.own_count, 1.0),
            personal_correct=of(self.personal_correct, answers),
            personal_own_correct=of(self.personal_own_correct, own_answers),
            task=each(self.task, answers),
            personal_task=each(self.personal_task, answers),
            own_task=each(self.own_task, own_answers),
            personal_own_task=each(self.personal_own_task, own_answers),
            tuned_correct=of(self.tuned_correct, answers),
            tuned_own_correct=of(self.tuned_own_correct, own_answers),
            tuned_task=each(self.tuned_task, answers),
            tuned_own_task=each(self.tuned_own_task, own_answers),
            by_class=None,
        )


_RIGHT = {
    "correct": "count", "own_correct": "own_count", "personal_correct": "count", "personal_own_correct": "own_count",
    "tuned_correct": "count", "tuned_own_correct": "own_count",
}  # fmt: skip
"""The counts of an evaluation, and their total."""
_MEANS = (
    "own_balanced", "own_auc", "personal_balanced", "personal_own_balanced", "tuned_balanced", "tuned_own_balanced",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, eq=False)
class _Tests:
    """On what a client evaluates.

    Attributes:
        place: of the client among those who share the common test set, and how many these are.
        sets: that share, and the client's own test examples; at a site these alone.
        places: where these lie in the common test set; None at a site.
        classes: how many there are.
        rare: whether a class is rare: of the common test set, or of a site's held-out examples.
        kept: where the model may keep what it makes of them; None: it may not.
    """

    place: tuple[int, int]
    sets: list[Examples]
    places: list[NDArray[np.int64]] | None
    classes: int
    rare: bool = False
    kept: dict[str, Any] | None = None

    def counted(self, found: Evaluation, place: int = -1) -> ByClass | None:
        """What a model does on one of the sets, by class."""
        return counted(found.outputs, self.sets[place].answers, self.classes)


def evaluated(recipe: Recipe, composition: Composition, client: HostedClient, members: bytes) -> Evaluated:
    """Evaluates the global model on a client's share of the common test set, and on test data like its own.

    With data at sites, evaluates on the site's held-out examples alone, and gives shares of right answers in place of
    counts, and means over classes in place of counts by class. A personal model is evaluated too.

    Args:
        recipe, composition: of the run.
        client: who evaluates.
        members: who share the common test set, as `packed` gives them.

    Raises:
        ValueError: the client is none of them.
    """
    tests, at_site = _tests(recipe, composition, client, members), recipe.data.at == "sites"
    with client.timed("evaluate"):
        public, own = _judged_once(client, tests) or _judged(client, client.vector, tests)
        counts = Evaluated(
            public.correct, public.count, public.loss, own.correct, own.count, task=_floats(public.task),
            own_task=_own_task(client, own),
        )  # fmt: skip
        if at_site:
            _count_at_site(counts, own, tests)
        else:
            counts.by_class, counts.own_balanced = tests.counted(public, 0), _mean(own, tests)
        if client.personal is not None or recipe.postprocess.get(RETAINED):
            public, own = _judged(client, client.start, tests)
            counts.personal_correct, counts.personal_own_correct = public.correct, own.correct
            counts.personal_task, counts.personal_own_task = _floats(public.task), _own_task(client, own)
            counts.personal_balanced, counts.personal_own_balanced = _mean(public, tests, 0), _mean(own, tests)
            client.forget_model()
    if recipe.fine_tune is not None:
        _tuned(composition.part(recipe.fine_tune.name, Trainer), client, tests, counts)
    return counts.shares() if at_site else counts


def _count_at_site(counts: Evaluated, own: Evaluation, tests: _Tests) -> None:
    """The figures of a site that holds out examples of every class: means, not counts."""
    found = tests.counted(own)
    if found is not None and all(found.are):
        counts.own_balanced, counts.own_auc, counts.rare = balanced([found]), auc([found]), tests.rare


def _mean(found: Evaluation, tests: _Tests, place: int = -1) -> float | None:
    """Balanced accuracy on one of the sets, where a class is rare: elsewhere accuracy says it."""
    by_class = tests.counted(found, place) if tests.rare else None
    return balanced([by_class]) if by_class else None


def _tuned(trainer: Trainer, client: HostedClient, tests: _Tests, counts: Evaluated) -> None:
    """Adds how the global model does once this client has trained it on its own examples; nobody keeps that model.

    Training continues as if it did not exist: `check` lets no trainer be used here that keeps an account or sets
    models of the clients' own, and what it remembers is dropped.
    """
    personal, client.personal = client.personal, None
    with client.timed("evaluate"), of_component(trainer.name, "train"):
        model = client.loaded(client.vector)
        trainer.train(client, client.facts)
        found = model.evaluate_each(tests.sets, client.data, tests.kept)
    client.personal = personal
    client.state.pop(trainer.name, None)
    client.forget_model()
    public, own = found[0], found[-1]
    counts.tuned_correct, counts.tuned_own_correct = public.correct, own.correct
    if client.data.task is not None:
        counts.tuned_task, counts.tuned_own_task = _floats(public.task), _floats(own.task)
    counts.tuned_balanced, counts.tuned_own_balanced = _mean(public, tests, 0), _mean(own, tests)


def _judged(client: HostedClient, vector: NDArray[np.float32], tests: _Tests) -> tuple[Evaluation, Evaluation]:
    found = client.loaded(vector).evaluate_each(tests.sets, client.data, tests.kept)
    return found[0], found[-1]


@runtime_checkable
class _AnswersOnce(Protocol):
    """A model whose clients in one process have it answer for the common test set once: `TorchModel` is one."""

    def evaluate_parts(
        self, sets: Sequence[Examples], places: Sequence[NDArray[np.int64]], data: ClientData
    ) -> tuple[list[Evaluation], float] | None:
        """As `TorchModel.evaluate_parts`."""


def _judged_once(client: HostedClient, tests: _Tests) -> tuple[Evaluation, Evaluation] | None:
    """What the global model does, found for all clients of this process at once; None where it cannot be."""
    if tests.places is None:
        return None
    model, started = client.loaded(client.vector), time.perf_counter()
    answered = model.evaluate_parts(tests.sets, tests.places, client.data) if isinstance(model, _AnswersOnce) else None
    if answered is None:
        return None
    (public, own), alone = answered
    client.saved(alone - (time.perf_counter() - started))
    return public, own


def _tests(recipe: Recipe, composition: Composition, client: HostedClient, members: bytes) -> _Tests:
    """What a client evaluates on; the same object as long as its share of the common test set is the same."""
    data = client.data
    at_site = recipe.data.at == "sites"
    ids = _unpacked(members, recipe.data.clients)
    if client.client_id not in ids:
        raise ValueError(f"client {client.client_id} is not among those that evaluate")
    place = (0, 1) if at_site else (int(np.searchsorted(ids, client.client_id)), len(ids))
    tests: _Tests | None = client.cache.get(NAME)
    if tests is not None and tests.place == place:
        return tests
    if at_site:
        tests = _Tests(place, [data.own_test], None, len(data.classes), _rare(data.own_test))
    else:
        rare, in_order = _known(data.shared_test)
        share = slice_of_test(*place, len(data.shared_test))
        if in_order:
            share = slice(place[0], None, place[1])  # else it is of one class
        # The shares of all clients are the test set, and their own test examples are no more than as many again.
        kept: Any = {} if 2 * 4 * data.shared_test.inputs.size <= _KEPT_BYTES else None
        sets, places = [data.shared_test.take(share), data.own_test], None
        # Clients whose models differ in buffers have one each, and what is not of fedplug itself may keep more.
        alike = recipe.buffers == "mean" or not client.remembered.buffers
        if alike and data.own_places is not None and composition.shipped(recipe.model.name):
            places = [np.arange(*share.indices(len(data.shared_test))), data.own_places]
        tests = _Tests(place, sets, places, len(data.classes), rare, kept)
    client.cache[NAME] = tests
    return tests


def packed(client_ids: Sequence[int]) -> bytes:
    """Ids as a bit for each client up to the last, compressed.

    Of 10,000 clients all take 19 bytes, and a thousand drawn by lot 760, where a list takes three each.
    """
    there = np.zeros(max(client_ids, default=-1) + 1, bool)
    there[list(client_ids)] = True
    return zlib.compress(np.packbits(there).tobytes())


@functools.lru_cache(maxsize=4)
def _unpacked(members: bytes, clients: int) -> NDArray[np.int64]:
    """The ids that `packed` wrote, of so many clients in all; read once for those of a process, who hear the same."""
    bits = zlib.decompressobj().decompress(members, (clients + 7) // 8)
    return np.flatnonzero(np.unpackbits(np.frombuffer(bits, np.uint8)))


@functools.lru_cache(maxsize=4)
def _known(common: Examples) -> tuple[bool, bool]:
    """Whether the common test set has a rare class, and whether it comes class by class."""
    return _rare(common), in_order_of_classes(common)


def _rare(examples: Examples) -> bool:
    return examples.answers.ndim == 1 and rarest(examples.answers) is not None


def _own_task(client: HostedClient, own: Evaluation) -> dict[str, float]:
    return _floats(own.task) if client.data.task is not None else {}


def _floats(counts: Mapping[str, float]) -> dict[str, float]:
    return {name: float(count) for name, count in counts.items()}


# -- on which examples -------------------------------------------------------------------------------------------------


def own_test(
    train_labels: NDArray[np.int64], test_labels: NDArray[np.int64], num_clients: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """The client's own test examples, as `matched_test` draws them: about 1/K of the test set, at least 1 and at most
    250, so that the standard error is at most 3 points.
    """
    return matched_test(train_labels, test_labels, min(250, max(1, len(test_labels) // num_clients)), rng)


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
