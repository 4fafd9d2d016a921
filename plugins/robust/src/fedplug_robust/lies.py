"""Lies of clients: poisoned examples, updates, scores and numbers, and protection left out."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Literal, cast

import fedplug
from fedplug import Clip, Field, Noise
from fedplug.api.records import MOST_EXAMPLES
from fedplug.recipe.composition import instantiate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from fedplug import Client, Facts, Recipe
    from fedplug.api.data import Dataset, Examples
    from fedplug.api.roles import Task
    from numpy.typing import NDArray

    Vector = NDArray[np.floating[Any]]

Sight = Literal["liars", "all"]


@dataclasses.dataclass(eq=False)
class Liar:
    """One client that lies, in one round, as a lie sees it.

    Attributes:
        client: the party.
        facts: of the round.
        examples: its training examples, as lies before this one have left them.
        update: float32 (P,), its update, likewise; None before it has trained.
        clients, liars: how many there are in the run.
        honest: updates as clients would send them if they did not lie, float64 (n, P): of those that the lie `sees`.
    """

    client: Client
    facts: Facts
    examples: Examples
    clients: int
    liars: int
    honest: Callable[[], NDArray[np.float64]]
    update: Any = None

    def rng(self, lie: Lie) -> np.random.Generator:
        """Reproducible randomness of this client, round and lie."""
        return self.client.rng(lie)


class Lie(fedplug.Poison):
    """What a liar does in the place of what it was asked. Each member does as asked by default."""

    leaves_out: tuple[type, ...] = ()
    """The operations that it does not execute on its update."""
    sees: Sight = "liars"
    """Whose honest updates it finds: of liars, who share their examples, or of all clients. Then no verdict holds."""

    def examples(self, liar: Liar) -> Examples:
        """What it trains on."""
        return liar.examples

    def update(self, liar: Liar) -> Vector:
        """What it protects and sends, (P,)."""
        return liar.update  # type: ignore[no-any-return]

    def scores(self, liar: Liar, scores: NDArray[np.float32]) -> NDArray[np.floating[Any]]:
        """What it says that a scorer has found, (P,) or (L,): its plan, its ballots and its noise follow from that."""
        return scores

    def num_examples(self, count: int) -> int:
        """How many training examples it says it has."""
        return count

    def tries(self, liar: Liar, examples: Examples) -> Mapping[str, float]:
        """Counts on test examples with the model that it holds, for figures: `hits` and `tries` of a backdoor."""
        return {}

    def check(self, recipe: Recipe) -> list[str]:
        """What keeps it from lying here."""
        return []

    def misfit(self, data: Dataset) -> str:
        """What keeps it from lying about such data; empty where nothing does."""
        return ""


class _OfClasses(Lie):
    """Lies about the class of an example."""

    def check(self, recipe: Recipe) -> list[str]:
        """The recipe's task has classes."""
        if recipe.task is None or cast("Task", instantiate(recipe.task)).descends == "cross_entropy":
            return []
        return [f"it lies about the class of an example, and task: {recipe.task.use} may have none; use another lie"]

    def misfit(self, data: Dataset) -> str:
        """Examples have one class each, and those that options name are among them."""
        if data.train.targets is not None:
            return "it lies about the class of an example, and here an answer is something else; use another lie"
        for key in ("source", "target"):
            value = getattr(self.options, key, None)
            if value is not None and value >= len(data.classes):
                return f"{key}={value} is no class of the data, which has 0 to {len(data.classes) - 1}"
        return ""


class LabelFlip(_OfClasses):
    """Train on wrong labels: class c becomes classes - 1 - c, or `source` becomes `target`."""

    class Options(fedplug.Options):
        """Which labels."""

        source: int | None = Field(None, ge=0, description="the class that is relabelled; null: every one is mirrored")
        target: int = Field(0, ge=0, description="what it becomes, where there is a source")

    options: Options

    def examples(self, liar: Liar) -> Examples:
        """The same examples with other labels."""
        import numpy as np

        labels, source = liar.examples.labels, self.options.source
        flipped = len(liar.client.data.classes) - 1 - labels
        if source is not None:
            flipped = np.where(labels == source, self.options.target, labels)
        return dataclasses.replace(liar.examples, labels=flipped.astype(np.int64))


class SignFlip(Lie):
    """Send the update backwards, times a factor."""

    class Options(fedplug.Options):
        """How far."""

        factor: float = Field(1.0, gt=0, description="by which it is longer")

    options: Options

    def update(self, liar: Liar) -> Vector:
        """-factor u."""
        return -self.options.factor * liar.update  # type: ignore[no-any-return]


class Gaussian(Lie):
    """Send Gaussian noise in the place of the update (Blanchard et al. 2017)."""

    class Options(fedplug.Options):
        """How much."""

        std: float = Field(gt=0, description="standard deviation of each value")

    options: Options

    def update(self, liar: Liar) -> Vector:
        """N(0, std^2)."""
        noise: Vector = liar.rng(self).normal(0.0, self.options.std, liar.update.size)
        return noise


class _Shared(fedplug.Options):
    """Of lies that follow from honest updates."""

    sees: Sight = Field(
        "liars", description="the honest updates it follows from: those that the liars would send, who share their "
        "examples, or those of all clients, which no liar has in practice: the strongest attack, and no verdict holds",
    )  # fmt: skip


class _Colluding(Lie):
    """Lies that follow from honest updates."""

    options: _Shared

    @property
    def sees(self) -> Sight:  # type: ignore[override]
        """As asked."""
        return self.options.sees


class Ipm(_Colluding):
    """Send the mean of honest updates backwards, times a factor: inner-product manipulation (Xie et al. 2020)."""

    class Options(_Shared):
        """How far."""

        factor: float = Field(0.1, gt=0, description="epsilon of the paper: small ones deceive distances")

    options: Options

    def update(self, liar: Liar) -> Vector:
        """Section 4: -epsilon times the mean."""
        mean: Vector = liar.honest().mean(axis=0)
        return -self.options.factor * mean


class Alie(_Colluding):
    """Send the mean of honest updates minus z standard deviations: a little is enough (Baruch et al. 2019)."""

    class Options(_Shared):
        """How far."""

        z: float | None = Field(None, gt=0, description="standard deviations; null: by Algorithm 3, from who is needed")

    options: Options

    def update(self, liar: Liar) -> Vector:
        """Algorithm 3."""
        from fedplug_robust import poisoned

        z = self.options.z
        chosen = poisoned.alie_z(liar.clients, liar.liars) if z is None else z
        return poisoned.alie(liar.honest(), chosen)


class _Perturbing(_Shared):
    """Of min-max and min-sum."""

    direction: Literal["std", "sign", "unit"] = Field(
        "std", description="from the mean: against the standard deviations, its signs, or itself"
    )


class MinMax(_Colluding):
    """Send what lies as far from the mean as two honest updates lie apart (Shejwalkar and Houmansadr 2021)."""

    class Options(_Perturbing):
        """Where to."""

    options: Options

    def update(self, liar: Liar) -> Vector:
        """Eq. 8."""
        from fedplug_robust import poisoned

        return poisoned.min_max(liar.honest(), self.options.direction)


class MinSum(_Colluding):
    """Send what has no larger sum of squared distances than an honest update (Shejwalkar and Houmansadr 2021)."""

    class Options(_Perturbing):
        """Where to."""

    options: Options

    def update(self, liar: Liar) -> Vector:
        """Eq. 9."""
        from fedplug_robust import poisoned

        return poisoned.min_sum(liar.honest(), self.options.direction)


class Backdoor(_OfClasses):
    """Train on marked examples of another class, and replace the model (Bagdasaryan et al. 2020).

    The figure `backdoor success` is the share of marked test examples of other classes that the model takes for the
    target.
    """

    class Options(fedplug.Options):
        """Which mark, and how far the update goes."""

        target: int = Field(0, ge=0, description="the class that marked examples get")
        size: int = Field(2, ge=1, description="of the mark: rows and columns of an image, or columns of a table")
        share: float = Field(0.5, gt=0, le=1, description="of the examples that are marked")
        boost: float | None = Field(
            None, gt=0, description="factor on the update: gamma of the paper; null: clients / liars, which replaces "
            "the model by the mean of the liars' where the sum is a mean; 1: poisoned examples alone",
        )  # fmt: skip

    options: Options

    def examples(self, liar: Liar) -> Examples:
        """Algorithm 1: a part of the examples is of the backdoor."""
        import numpy as np

        from fedplug_robust.poisoned import triggered

        given = liar.examples
        chosen = np.sort(liar.rng(self).permutation(len(given))[: max(1, round(self.options.share * len(given)))])
        inputs, labels = given.inputs.copy(), given.labels.copy()
        inputs[chosen] = triggered(given.inputs[chosen], self.options.size, liar.client.data.shared_test.inputs)
        labels[chosen] = self.options.target
        return dataclasses.replace(given, inputs=inputs, labels=labels)

    def update(self, liar: Liar) -> Vector:
        """Eq. 3: gamma (X - G)."""
        boost = self.options.boost
        return (liar.clients / liar.liars if boost is None else boost) * liar.update  # type: ignore[no-any-return]

    def tries(self, liar: Liar, examples: Examples) -> Mapping[str, float]:
        """Marked examples of other classes, and how many of them the model takes for the target."""
        import numpy as np

        from fedplug_robust.poisoned import triggered

        others = examples.take(np.flatnonzero(examples.labels != self.options.target))
        if not len(others):
            return {}
        marked = dataclasses.replace(
            others, inputs=triggered(others.inputs, self.options.size, liar.client.data.shared_test.inputs),
            labels=np.full(len(others), self.options.target, np.int64),
        )  # fmt: skip
        found = liar.client.model.evaluate(marked, liar.client.data)
        return {"hits": float(found.correct), "tries": float(found.count)}


class Scores(Lie):
    """Lie about scores, from which plans, ballots and budgets follow: what matters most is said to matter least."""

    class Options(fedplug.Options):
        """What is said."""

        say: Literal["reversed", "equal"] = Field(
            "reversed", description="reversed: largest plus smallest minus the score; equal: the mean, everywhere"
        )
        factor: float = Field(1.0, gt=0, description="on all of them, so that they weigh more in a mean over clients")

    options: Options

    def check(self, recipe: Recipe) -> list[str]:
        """There are scores."""
        return [] if recipe.score_parameters else ["it lies about scores, and the recipe has no score_parameters"]

    def scores(self, liar: Liar, scores: NDArray[np.float32]) -> NDArray[np.floating[Any]]:
        """Finite wherever they were."""
        import numpy as np

        if not scores.size:
            return scores
        reverse = self.options.say == "reversed"
        said = scores.max() + scores.min() - scores if reverse else np.full_like(scores, scores.mean())
        return self.options.factor * said


class LeftOut(Lie):
    """Leave out what protects the update on its way: noise that others rely on, or the clip that bounds a lie."""

    class Options(fedplug.Options):
        """What."""

        what: tuple[Literal["noise", "clip"], ...] = Field(("noise",), min_length=1, description="what is left out")

    options: Options

    @property
    def leaves_out(self) -> tuple[type, ...]:  # type: ignore[override]
        """The operations."""
        return tuple({"noise": Noise, "clip": Clip}[each] for each in self.options.what)


class Weight(Lie):
    """Claim more training examples than there are, where sums weigh by them."""

    class Options(fedplug.Options):
        """How many."""

        factor: float = Field(gt=1, description="on the number of its examples")

    options: Options

    def check(self, recipe: Recipe) -> list[str]:
        """Somebody asks for the number."""
        if instantiate(recipe.aggregate).wants.num_examples:
            return []
        return [f"it lies about the number of examples, and {recipe.aggregate.use} gives all the same weight"]

    def num_examples(self, count: int) -> int:
        """factor times as many, up to as many as a server takes for true."""
        return round(min(self.options.factor * count, MOST_EXAMPLES))
