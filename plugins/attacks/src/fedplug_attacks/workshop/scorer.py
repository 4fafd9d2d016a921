"""Compares an attack's findings with the truth, which the attack never sees, and with trivial guesses.

A number without the score of a guess that looks at nothing means little: with 30 examples of 10 classes, "every class
is present" is right for about 94% of the classes. So every metric is computed for the trivial guesses too.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.errors import describe
from fedplug.api.streams import stream

from fedplug_attacks import Truth
from fedplug_attacks.api.report import (
    DIVERGED,
    FAILED,
    FINISHED,
    INCONCLUSIVE,
    NOT_APPLICABLE,
    SUCCESS,
    AttackReport,
    Status,
)
from fedplug_attacks.labels import largest_remainder
from fedplug_attacks.membership_metrics import RATES
from fedplug_attacks.workshop.judge import (
    STRANGERS,
    judged,
    of_area,
    of_draws,
    of_rate,
    recovered,
    recovered_rows,
    recovered_texts,
)
from fedplug_attacks.workshop.pictures import roc_curve
from fedplug_attacks.workshop.records import Evidence, Guesses, Outcome, Success

if TYPE_CHECKING:
    from fedplug.api.data import Examples, PublicData
    from fedplug.api.roles import Finds, Metric
    from fedplug.recipe.catalog import Catalog
    from numpy.typing import NDArray

GUESSES, DRAWS = 20, 200
"""Number of random guesses in an average, and in the distribution of a measure."""
AREA = "membership_auc"


def pixels(examples: Examples) -> NDArray[np.float32]:
    """Stored inputs as float32 in [0, 1]; (n, C, H, W)."""
    inputs = examples.inputs
    return inputs.astype(np.float32) / np.float32(255) if inputs.dtype == np.uint8 else inputs.astype(np.float32)


def are_tokens(examples: Examples) -> bool:
    """Whether inputs are tokens, whole numbers (n, positions)."""
    return examples.inputs.ndim == 2 and examples.inputs.dtype.kind in "iu"


@dataclasses.dataclass(frozen=True)
class Scored:
    """The metrics of a report.

    Attributes:
        numbers: by name.
        undefined: the reason for each metric that is not defined here.
    """

    numbers: dict[str, float]
    undefined: dict[str, str]


def usual_metrics(catalog: Catalog) -> dict[str, Metric]:
    """Every installed metric that is computed by default, by name."""
    found: dict[str, Metric] = {}
    for entry in catalog.groups["metric"].values():
        metric: type[Metric] = entry.load()
        # A metric with required options must be named by a recipe, because its numbers may depend on them.
        if any(field.is_required() for field in metric.Options.model_fields.values()):
            continue
        one = metric(metric.Options())
        if one.measures.default:
            one.name, found[entry.name] = entry.name, one
    return found


class Scorer:
    """Scores reports with metric components.

    Args:
        metrics: the metrics by name.
        public: examples that everybody has, for the trivial guesses; or None.
        mean: the data set's mean per channel: the trivial image without public examples.
        seed: the recipe's seed, for random guesses.
        others: examples that nobody trains on, in place of public ones that the recipe does not have; or None.
    """

    def __init__(
        self, metrics: Mapping[str, Metric], public: PublicData | None, mean: tuple[float, ...], seed: int,
        others: Examples | None = None,
    ) -> None:  # fmt: skip
        self.metrics, self.public, self.mean, self.seed, self.others = metrics, public, mean, seed, others
        self._class_means: NDArray[np.float32] | None = None
        counted = [metric for metric in metrics.values() if metric.measures.kind not in ("images", "texts")]
        self._counted = {name for metric in counted for name in metric.measures.better}  # not of single examples
        # A metric may appear twice, with different options: the first keeps its names, the other's get a suffix.
        self._names: dict[tuple[str, str], str] = {}
        for name, metric in metrics.items():
            taken = set(self._names.values())
            self._names |= {(name, key): f"{name}.{key}" if key in taken else key for key in metric.measures.better}

    @property
    def better(self) -> dict[str, str]:
        """For each number, whether `high` or `low` means that the attack learnt more."""
        metrics = self.metrics.items()
        return {self._names[name, key]: way for name, metric in metrics for key, way in metric.measures.better.items()}

    def score(self, found: AttackReport, truth: Truth) -> Scored:
        """The numbers of every metric that compares something the attack found."""
        numbers: dict[str, float] = {}
        undefined: dict[str, str] = {}
        matched, true = matched_images(found, truth)
        if matched.counts is None and matched.labels is not None:
            counts = np.bincount(matched.labels, minlength=truth.num_classes)
            matched = dataclasses.replace(matched, counts=counts)
        if matched.presence is None and matched.counts is not None:
            matched = dataclasses.replace(matched, presence=np.asarray(matched.counts, np.float64))
        there = {
            "images": matched.images is not None,
            "labels": matched.counts is not None,
            "tokens": matched.tokens is not None and truth.tokens is not None,
            "attribute": matched.share is not None and truth.attribute is not None,
            "texts": matched.texts is not None and truth.texts is not None,
            "members": matched.members is not None and truth.members is not None,
            "update": truth.update is not None and truth.observed is not None,
        }
        for name, metric in self.metrics.items():
            if there[metric.measures.kind]:
                try:
                    about_images = metric.measures.kind == "images"
                    scored = metric.score(matched, true if about_images else truth)
                    found_here = {str(key): float(value) for key, value in scored.items()}
                except Exception as error:  # a metric of a plugin; the others still count
                    undefined[name] = describe(error)
                    continue
                for key, value in found_here.items():
                    known_as = self._names.get((name, key), key)
                    numbers[f"{name}.{key}" if known_as in numbers else known_as] = value
        return Scored(numbers, undefined)

    def outcome(self, report: AttackReport, truth: Truth, guesses: Guesses, finds: Finds, seconds: float) -> Outcome:
        """The outcome of one form of an attack: its numbers, and whether they are a success.

        `judge` has the criteria. A search that diverged, or did not fit its observation, is inconclusive if it did not
        succeed.

        Args:
            report: the attack's report.
            truth: of the target.
            guesses: the numbers of trivial guesses, from `baselines`.
            finds: the information that the attack looks for.
            seconds: its processor time.
        """
        scored, success = self.score(report, truth), finds.success
        numbers, reason = scored.numbers, report.reason
        status = self.verdict(report, numbers, success) if success[0] else report.status
        single = report.status == FINISHED and success[0] not in self._counted
        places = self.recovered(report, truth) if single else None
        unscored = "" if places is not None else self.unscored(report, scored.undefined, success[0])
        if unscored:
            status, reason = NOT_APPLICABLE, unscored
        outcome = Outcome(
            status=status, reason=reason, metrics=numbers, seconds=seconds,
            gradient_evaluations=report.gradient_evaluations, seed=report.seed, losses=list(report.losses),
            own=dict(report.metrics), undefined=scored.undefined, counts=_listed(report.counts),
            labels=_listed(report.labels), presence=_listed(report.presence), recovered=places or [],
            roc=[] if report.members is None or truth.members is None else roc_curve(report.members, truth.members),
        )  # fmt: skip
        if status in (SUCCESS, FAILED):
            if places is None:
                outcome.evidence = self.evidence(report, numbers, truth, guesses, finds)
                if outcome.evidence:
                    outcome.status = judged([outcome], Success(*success), len(outcome.evidence)).state
            else:
                outcome.status = SUCCESS if places else FAILED
        if outcome.status in (FAILED, INCONCLUSIVE) and report.unfit:
            outcome.status, outcome.reason = INCONCLUSIVE, report.unfit
        if outcome.status == DIVERGED:
            outcome.status, outcome.reason = INCONCLUSIVE, reason or "its objective became NaN or infinite"
        return outcome

    def recovered(self, found: AttackReport, truth: Truth) -> list[int] | None:
        """The recovered true images, rows or texts, by their places in the truth; None if the attack found none.

        Args:
            found: the attack's report.
            truth: of the target.
        """
        if found.texts is not None and truth.texts is not None:
            dull = self._dullest(truth.texts.shape[1])
            return np.flatnonzero(recovered_texts(truth.texts, found.texts, dull)).tolist()
        if found.images is None or (pairs := matched(found, truth)) is None:
            return None
        true, guess, mean = truth.images[pairs[0]], np.nan_to_num(found.images[pairs[1]]), self._mean_image(truth)
        if truth.images.ndim == 2:
            right = recovered_rows(*(truth.measured(side) for side in (true, guess, mean)))
        else:
            right = recovered(true, guess, mean, self._strangers(truth))
        return sorted(int(place) for place in pairs[0][right])

    def _strangers(self, truth: Truth) -> NDArray[np.float32]:
        """Images of people who are in nobody's training data, of the shape of the truth, and the mean of each class.

        Labels are easily found. The mean of a class is nobody's image, and nearer to many than any stranger.
        """
        shape = truth.images.shape[1:]
        known = self.public.examples if self.public is not None else self.others
        if known is None or known.inputs.shape[1:] != shape:
            return np.zeros((0, *shape), np.float32)
        people = pixels(known.take(np.arange(min(STRANGERS, len(known)))))
        if self._class_means is None:
            classes = (known.take(np.flatnonzero(known.labels == each)) for each in np.unique(known.labels))
            self._class_means = np.array([pixels(each).mean(0) for each in classes], np.float32).reshape(-1, *shape)
        return np.concatenate([people, self._class_means])

    def evidence(
        self, report: AttackReport, numbers: Mapping[str, float], truth: Truth, guesses: Guesses, finds: Finds
    ) -> list[Evidence]:
        """How the numbers that decide compare with guesses; empty where nothing is known of guesses."""
        name = finds.success[0]
        if name not in numbers:
            return []
        if report.members is not None and truth.members is not None:
            inside, outside = (int(np.count_nonzero(truth.members == which)) for which in (True, False))
            rate, one_in = min(RATES.items(), key=lambda pair: pair[1])
            found = [of_area(name, numbers[name], inside, outside, truth.common)] if name == AREA else []
            if rate in numbers:
                found.append(of_rate(rate, numbers[rate], inside, outside, one_in, truth.common))
            return found
        deciding = {each: metric for each, metric in self.metrics.items() if name in metric.measures.better}
        judge = Scorer(deciding, self.public, self.mean, self.seed)
        blind = dataclasses.replace(truth, update=None)
        drawn = self._drawn(finds.what, truth, DRAWS)
        draws = [judge.score(guess, blind).numbers.get(name, math.nan) for guess in drawn]
        trivial = [values[name] for values in guesses.values() if name in values]
        one = of_draws(name, numbers[name], draws, trivial, finds.success[1] == ">=")
        return [one] if one else []

    def verdict(self, found: AttackReport, numbers: Mapping[str, float], success: tuple[str, str, float]) -> Status:
        """`success` or `failed` by the attack's own threshold, where nothing else decides; other statuses stay."""
        if found.status != FINISHED:
            return found.status
        name, relation, threshold = success
        value = numbers.get(name, math.nan)
        reached = value <= threshold if relation == "<=" else value >= threshold
        return SUCCESS if reached else FAILED

    def unscored(self, found: AttackReport, undefined: Mapping[str, str], metric: str) -> str:
        """Why the deciding number is not defined for this truth; empty if it is, or if nothing was found.

        Classes that are all present cannot be told apart, so a failure of the attack would mean nothing.
        """
        if found.status != FINISHED:
            return ""
        return next((why for name, why in undefined.items() if metric in self.metrics[name].measures.better), "")

    def baselines(self, finds: frozenset[str], truth: Truth) -> dict[str, dict[str, float]]:
        """The numbers of guesses that look at nothing: by the guess, the same as in `score`."""
        size, classes = len(truth.labels), truth.num_classes
        guesses: dict[str, list[AttackReport]] = {}
        if "images" in finds:
            mean = "mean row" if truth.images.ndim == 2 else "mean image"
            guesses[mean] = [AttackReport(FINISHED, images=np.repeat(self._mean_image(truth), size, axis=0))]
        if "tokens" in finds:
            guesses["every token"] = [AttackReport(FINISHED, tokens=np.arange(classes))]
        if "texts" in finds and truth.texts is not None:
            guesses["one token everywhere"] = [AttackReport(FINISHED, texts=self._dullest(truth.texts.shape[1]))]
        if "attribute" in finds and truth.public_share is not None:
            guesses["public share"] = [AttackReport(FINISHED, share=truth.public_share)]
        if "labels" in finds:
            each = max(1, round(size / classes))
            guesses["all classes equally"] = [AttackReport(FINISHED, counts=np.full(classes, each))]
            if size < classes:  # most classes are absent, so a guess of none is right for most of them
                guesses["no class"] = [AttackReport(FINISHED, counts=np.zeros(classes, np.int64))]
            if self.public is not None and len(self.public.classes) == classes:
                guesses["public class mix"] = [AttackReport(FINISHED, counts=self._public_mix(size, classes))]
        if drawn := self._drawn(finds, truth):
            guesses["random guess"] = drawn
        blind = dataclasses.replace(truth, update=None)
        averaged = {}
        for name, reports in guesses.items():
            rows = [self.score(report, blind).numbers for report in reports]
            known = dict.fromkeys(key for row in rows for key in row)  # some metrics are not defined for every guess
            averaged[name] = {key: float(np.mean([row[key] for row in rows if key in row])) for key in known}
        return averaged

    def _drawn(self, finds: frozenset[str], truth: Truth, draws: int = GUESSES) -> list[AttackReport]:
        """Random guesses: of membership scores, of tokens, else of the classes of this number of examples; none of
        images.
        """
        rng, classes = stream(self.seed, "guess", len(truth.labels)), truth.num_classes
        if "members" in finds and truth.members is not None:
            return [AttackReport(FINISHED, members=draw) for draw in rng.random((draws, len(truth.members)))]
        if "attribute" in finds and truth.public_share is not None and truth.attribute is not None:
            size = len(truth.attribute)
            return [AttackReport(FINISHED, share=n / size) for n in rng.binomial(size, truth.public_share, draws)]
        if "labels" in finds:
            drawn = rng.multinomial(len(truth.labels), np.full(classes, 1 / classes), size=draws)
            return [AttackReport(FINISHED, counts=draw) for draw in drawn]
        if "tokens" in finds and truth.tokens is not None:
            size = min(classes, len(truth.tokens))
            return [AttackReport(FINISHED, tokens=rng.permutation(classes)[:size]) for _ in range(draws)]
        return []

    def _dullest(self, positions: int) -> NDArray[np.int64]:
        """A text of the most common public token, else of ASCII spaces; (1, positions)."""
        commonest = ord(" ")
        if self.public is not None and are_tokens(self.public.examples):
            commonest = int(np.bincount(self.public.examples.inputs.reshape(-1)).argmax())
        return np.full((1, positions), commonest)

    def _public_mix(self, size: int, classes: int) -> NDArray[np.int64]:
        """Counts of this number of examples in the proportions of the public ones, by largest remainders."""
        assert self.public is not None
        return largest_remainder(np.bincount(self.public.examples.labels, minlength=classes).astype(np.float64), size)

    def _mean_image(self, truth: Truth) -> NDArray[np.float32]:
        """The mean of the public examples; without any, the data set's mean colour, which is public too."""
        shape = truth.images.shape[1:]
        mean: NDArray[np.float32]
        if self.public is not None and tuple(self.public.shape) == shape:
            mean = pixels(self.public.examples).mean(0, keepdims=True, dtype=np.float32)
            return mean
        known = self.mean or (0.0,)  # a table that reaches the model unstandardised is scaled to about -1 to 1
        colour = np.asarray(known, np.float32).reshape(1, -1, *[1] * (len(shape) - 1))
        return np.broadcast_to(colour, (1, *shape)).astype(np.float32)


def _listed(values: NDArray[Any] | None) -> list[Any] | None:
    return None if values is None else np.asarray(values).tolist()


def matched_images(found: AttackReport, truth: Truth) -> tuple[AttackReport, Truth]:
    """Both with equally many images, paired with the least total squared error.

    An attack does not know the order of a batch, so its images come in any order. Surplus found images are left out.
    True images without a found one are left out and counted (`Truth.missed`).
    """
    pairs = matched(found, truth)
    if pairs is None:
        return found, truth
    true, guessed = pairs
    truth = dataclasses.replace(
        truth,
        images=truth.images[true],
        labels=truth.labels[true],
        regions=None if truth.regions is None else truth.regions[true],
        missed=len(truth.images) - len(true),
    )
    assert found.images is not None  # else there are no pairs
    return dataclasses.replace(found, images=found.images[guessed]), truth


def matched(found: AttackReport, truth: Truth) -> tuple[NDArray[np.intp], NDArray[np.intp]] | None:
    """Places of true images and of their found partners; None if no found image has their shape."""
    from scipy.optimize import linear_sum_assignment

    if found.images is None or found.images.shape[1:] != truth.images.shape[1:] or not len(found.images):
        return None
    a = truth.in_spreads.reshape(len(truth.images), -1)
    b = np.nan_to_num(truth.measured(found.images).reshape(len(found.images), -1))
    true, guessed = linear_sum_assignment((a**2).sum(1)[:, None] - 2 * a @ b.T + (b**2).sum(1)[None])
    return true, guessed
