"""What the scorer makes of an answer: matching, trivial guesses, intervals, and metrics that are not defined."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from attack_toys import Broken, CountError, Distance, Hits, NotANumber, Undefined
from fedplug import Finds
from fedplug.api.data import Examples, PublicData
from fedplug.api.errors import ViewError
from fedplug_attacks.api.report import AttackReport, checked
from fedplug_attacks.api.truth import Truth, wilson
from fedplug_attacks.api.view import View
from fedplug_attacks.workshop.records import Outcome
from fedplug_attacks.workshop.results import stronger
from fedplug_attacks.workshop.scorer import Scored, Scorer, matched_images, pixels
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

VIEW = View("server", shape=(1, 2, 2), num_classes=3)


def scorer(*metrics: Any, public: PublicData | None = None, mean: tuple[float, ...] = (0.25,)) -> Scorer:
    return Scorer({kind.__name__: kind(kind.Options()) for kind in metrics}, public, mean, 7)


def truth_of(images: Any, labels: Any = None, classes: int = 3, **more: Any) -> Truth:
    images = np.asarray(images, np.float32)
    labels = np.zeros(len(images), np.int64) if labels is None else np.asarray(labels, np.int64)
    return Truth(images, labels, classes, **more)


def grey(*levels: float) -> Any:
    return np.stack([np.full((1, 2, 2), level, np.float32) for level in levels])


def test_a_metric_that_stands_there_twice_gives_both_its_numbers() -> None:
    class Loose(Hits):
        """The same numbers under other options."""

        def score(self, found: AttackReport, truth: Truth) -> dict[str, float]:
            return {"toy_hits": 0.5, "toy_note": 2.0}

    class Strict(Loose):
        def score(self, found: AttackReport, truth: Truth) -> dict[str, float]:
            return {"toy_hits": 0.25, "toy_note": 1.0}

    both = scorer(Loose, Strict)
    report = AttackReport("finished", counts=np.ones(3), members=np.ones(2))
    scored = both.score(report, truth_of(grey(0.5), members=np.array([True, False])))
    numbers, undefined = scored.numbers, scored.undefined
    assert numbers == {"toy_hits": 0.5, "toy_note": 2.0, "Strict.toy_hits": 0.25, "Strict.toy_note": 1.0}
    assert not undefined
    assert both.better == {"toy_hits": "high", "Strict.toy_hits": "high"}


# -- matching ----------------------------------------------------------------------------------------------------------


@given(st.integers(1, 7), st.randoms())
@settings(max_examples=30, deadline=None)
def test_a_batch_in_another_order_is_the_same_batch(count: int, random: Any) -> None:
    images = np.random.default_rng(random.randrange(2**31)).random((count, 2, 4, 4)).astype(np.float32)
    order = random.sample(range(count), count)
    found = AttackReport("finished", images=images[order])
    assert scorer(Distance).score(found, truth_of(images)).numbers["toy_distance"] == 0


@given(arrays(np.float32, (4, 1, 2, 2), elements=st.floats(0, 1, width=32)),
       arrays(np.float32, (4, 1, 2, 2), elements=st.floats(0, 1, width=32)))  # fmt: skip
@settings(max_examples=30, deadline=None)
def test_no_other_order_comes_nearer(images: Any, found: Any) -> None:
    import itertools

    best = min(float(np.mean((found[list(order)] - images) ** 2)) for order in itertools.permutations(range(4)))
    score = scorer(Distance).score(AttackReport("finished", images=found), truth_of(images)).numbers
    assert score["toy_distance"] == pytest.approx(best, abs=1e-6)


def test_regions_and_labels_of_the_truth_follow_its_images() -> None:
    truth = truth_of(grey(0.1, 0.5, 0.9), [0, 1, 2], regions=np.arange(3, dtype=np.uint8)[:, None, None].repeat(2, 1))
    found, true = matched_images(AttackReport("finished", images=grey(0.9)), truth)
    assert found.images is not None
    assert len(found.images) == len(true.images) == 1
    assert true.labels.tolist() == [2]
    assert true.regions is not None
    assert true.regions.ravel().tolist() == [2, 2]
    too_many, true = matched_images(AttackReport("finished", images=grey(0.8, 0.0, 0.52, 0.45, 0.1)), truth)
    assert too_many.images is not None
    assert too_many.images[:, 0, 0, 0] == pytest.approx([0.1, 0.52, 0.8])  # what was found too much is left out
    assert true.labels.tolist() == [0, 1, 2]


def test_counts_are_compared_with_the_whole_batch_even_where_fewer_images_were_found() -> None:
    truth = truth_of(grey(0.1, 0.5, 0.9), [0, 0, 2])
    found = AttackReport("finished", images=grey(0.1), counts=np.array([2, 0, 1]))
    assert scorer(CountError).score(found, truth).numbers == {"toy_count_error": 0}
    labels = AttackReport("finished", labels=np.array([0, 0, 2]))  # counts follow from labels
    assert scorer(CountError).score(labels, truth).numbers == {"toy_count_error": 0}


# -- trivial guesses ---------------------------------------------------------------------------------------------------


def test_trivial_guesses_by_hand() -> None:
    truth = truth_of(grey(0, 1, 1, 1), [0, 1, 1, 1], members=np.array([True, True, False, False]))
    found = scorer(Distance, CountError, Hits).baselines(frozenset({"images", "labels", "members"}), truth)
    # Without public examples the mean colour, 0.25: (0.0625 + 3 * 0.5625) / 4.
    assert found["mean image"] == {"toy_distance": pytest.approx(0.4375)}
    # 4 examples of 3 classes: one each; truth (1, 3, 0).
    assert found["all classes equally"] == {"toy_count_error": 3.0}
    # A random order of 2 members among 4 candidates: half of the top 2 on average; 20 draws.
    assert found["random guess"]["toy_hits"] == pytest.approx(0.5, abs=0.3)
    only = scorer(Distance, CountError).baselines(frozenset({"labels"}), truth)
    assert set(only) == {"all classes equally", "random guess"}
    # Binomial counts: E|X0 - 1| + E|X1 - 3| + E|X2 - 0| of 4 draws with probability 1/3 each.
    probability = [math.comb(4, k) * 2 ** (4 - k) / 81 for k in range(5)]
    expected = sum(p * (abs(k - 1) + abs(k - 3) + k) for k, p in enumerate(probability))
    assert only["random guess"]["toy_count_error"] == pytest.approx(expected, rel=0.35)


def test_the_mean_image_is_that_of_the_public_examples_where_there_are_some() -> None:
    examples = Examples((grey(0.2, 0.6) * 255).round().astype(np.uint8), np.zeros(2, np.int64))
    public = PublicData(examples, classes=("a",), mean=(0.9,), std=(1.0,))
    found = scorer(Distance, public=public).baselines(frozenset({"images"}), truth_of(grey(0.5)))
    assert found["mean image"]["toy_distance"] == pytest.approx(0.01, rel=1e-3)
    assert pixels(examples).max() == pytest.approx(0.6)


def test_guesses_are_reproducible() -> None:
    truth = truth_of(grey(0, 1), [0, 1])
    assert scorer(CountError).baselines(frozenset({"labels"}), truth) == scorer(CountError).baselines(
        frozenset({"labels"}), truth
    )


def test_a_metric_that_is_not_defined_for_every_guess_is_averaged_over_the_others() -> None:
    found = scorer(Undefined, CountError).baselines(frozenset({"labels"}), truth_of(grey(*[0.5] * 6)))
    assert found["random guess"]["toy_odd"] == 1.0
    assert "toy_odd" not in found["all classes equally"]
    assert "toy_count_error" in found["all classes equally"]


# -- numbers -----------------------------------------------------------------------------------------------------------


def test_what_is_not_defined_is_said_and_the_others_count() -> None:
    found = AttackReport("finished", images=grey(0.5), counts=np.array([2, 0, 0]))
    scored = scorer(Distance, Undefined, Broken, CountError).score(found, truth_of(grey(0.5)))
    numbers, undefined = scored.numbers, scored.undefined
    assert numbers == {"toy_distance": 0.0, "toy_count_error": 1.0}
    assert undefined["Undefined"] == "the toy metric needs an odd count; take another"
    assert undefined["Broken"].startswith("IndexError: the toy metric looked too far")


def test_metrics_of_what_was_not_found_are_not_computed() -> None:
    truth = truth_of(grey(0.5))
    assert scorer(Distance, CountError, Hits, Broken).score(AttackReport("finished"), truth) == Scored({}, {})
    members = AttackReport("finished", members=np.ones(2))
    assert scorer(Hits).score(members, truth) == Scored({}, {})  # there was no challenge


def test_a_verdict_needs_a_number() -> None:
    judge = scorer(NotANumber)
    done = AttackReport("finished", images=grey(0.5))
    numbers = judge.score(done, truth_of(grey(0.5))).numbers
    assert judge.verdict(done, numbers, ("toy_nan", "<=", 1.0)) == "failed"
    assert judge.verdict(done, numbers, ("toy_nan", ">=", 0.0)) == "failed"
    assert judge.verdict(done, {}, ("missing", ">=", 0.0)) == "failed"
    assert judge.verdict(done, {"mse": 0.1}, ("mse", "<=", 0.1)) == "success"
    assert judge.verdict(done, {"acc": 0.1}, ("acc", ">=", 0.2)) == "failed"
    for status in ("diverged", "not_applicable"):
        assert judge.verdict(AttackReport(status), {"mse": 0.0}, ("mse", "<=", 0.1)) == status


def judged(report: AttackReport, truth: Truth, threshold: float = 0.01) -> tuple[str, list[int]]:
    finds = Finds(needs=None, what=frozenset({"images"}), headline=("toy_distance", "low"),
                  success=("toy_distance", "<=", threshold))  # fmt: skip
    judge = scorer(Distance)
    outcome = judge.outcome(report, truth, judge.baselines(finds.what, truth), finds, 0.0)
    return outcome.status, outcome.recovered


def test_any_image_that_was_recovered_is_a_success_and_is_named_by_its_place() -> None:
    truth = truth_of(grey(0.9, 0.5, 0.1))
    assert judged(AttackReport("finished", images=grey(0.3, 0.11, 0.4)), truth) == ("success", [2])
    assert judged(AttackReport("finished", images=grey(0.1)), truth) == ("success", [2])
    assert judged(AttackReport("finished", images=grey(0.24, 0.26)), truth) == ("failed", [])
    # The mean image, of 0.25, is as near to that of 0.3: nothing was learnt of it.
    assert judged(AttackReport("finished", images=grey(0.25)), truth_of(grey(0.3)), 0.1) == ("failed", [])
    assert judged(AttackReport("finished", images=grey(np.nan)), truth_of(grey(0.9))) == ("failed", [])


def test_a_search_that_did_not_fit_is_inconclusive_unless_it_succeeded() -> None:
    truth = truth_of(grey(0.9))
    unfit = AttackReport("finished", images=grey(0.1), unfit="the mismatch is large")
    assert judged(unfit, truth)[0] == "inconclusive"
    assert judged(dataclasses.replace(unfit, images=grey(0.9)), truth)[0] == "success"
    assert judged(AttackReport("diverged"), truth)[0] == "inconclusive"


def test_counts_of_classes_are_judged_by_what_random_guesses_have() -> None:
    finds = Finds(needs=None, what=frozenset({"labels"}), headline=("toy_count_error", "low"),
                  success=("toy_count_error", "<=", 0.5))  # fmt: skip
    judge, truth = scorer(CountError), truth_of(grey(*[0.5] * 30), [0] * 10 + [1] * 15 + [2] * 5)
    guesses = judge.baselines(finds.what, truth)

    def outcome(*counts: int) -> Outcome:
        return judge.outcome(AttackReport("finished", counts=np.array(counts)), truth, guesses, finds, 0.0)

    (one,) = outcome(10, 15, 5).evidence
    assert one.metric == "toy_count_error"
    assert one.value == 0
    assert 0 < one.guess <= min(guess["toy_count_error"] for guess in guesses.values())
    assert one.std > 0
    assert outcome(10, 15, 5).status == "success"
    assert outcome(30, 0, 0).status == "failed"


def test_why_the_deciding_number_is_not_defined_is_told_of_attacks_that_found_something() -> None:
    judge = scorer(Undefined, CountError)
    found = AttackReport("finished", counts=np.array([2, 0, 1]))
    scored = judge.score(found, truth_of(grey(0.5)))
    numbers, undefined = scored.numbers, scored.undefined
    assert numbers.keys() == {"toy_count_error"}
    assert "odd count" in judge.unscored(found, undefined, "toy_odd")
    assert judge.unscored(found, undefined, "toy_count_error") == ""
    assert judge.unscored(AttackReport("failed"), undefined, "toy_odd") == ""


def test_the_stronger_form_is_the_one_that_learnt_more() -> None:
    numbers = {"adaptive": 0.2, "naive": 0.1}
    assert stronger(numbers, "low") == "naive"
    assert stronger(numbers, "high") == "adaptive"
    assert stronger({**numbers, "naive": math.nan}, "low") == "adaptive"
    assert stronger({"adaptive": 0.2}, "low") == "adaptive"
    assert stronger({"adaptive": 0.2, "naive": 0.2}, "low") == "adaptive"
    assert stronger({"naive": math.nan}, "low") is None


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [  # Newcombe (1998), Table I; and R's prop.test(9, 10, correct=FALSE)
        (81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718),
        (29, 29, 0.8830, 1.0), (9, 10, 0.5958, 0.9821), (0, 0, 0.0, 1.0),
    ],
)  # fmt: skip
def test_wilsons_interval_is_the_published_one(successes: int, trials: int, low: float, high: float) -> None:
    assert wilson(successes, trials) == pytest.approx((low, high), abs=6e-5)


# -- answers -----------------------------------------------------------------------------------------------------------


def test_an_answer_gets_the_types_that_everything_else_relies_on() -> None:
    given = AttackReport("finished", images=grey(0.5).astype(np.float64), labels=[2], counts=[1, 0, 2],  # type: ignore
                         seed=np.int64(3), gradient_evaluations=np.int32(4), losses=(np.float32(0.5),),  # type: ignore
                         metrics={"own": np.float32(1.5)})  # type: ignore[dict-item]  # fmt: skip
    found = checked(given, VIEW)
    assert found.images is not None
    assert found.images.dtype == np.float32
    assert found.labels is not None
    assert found.labels.dtype == np.int64
    assert [type(value) for value in (found.seed, found.gradient_evaluations, found.losses[0])] == [int, int, float]
    assert found.metrics == {"own": 1.5}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"status": "done"}, "the status 'done'"),
        ({"images": np.zeros((2, 2, 2))}, "images of shape (2, 2, 2), not (any, 1, 2, 2)"),
        ({"images": "text"}, "a str for images"),
        ({"labels": np.array([0, 3])}, "labels that are not 0 to 2"),
        ({"labels": np.array([-1])}, "labels that are not 0 to 2"),
        ({"counts": np.zeros(4)}, "counts of shape (4,), not (3)"),
        ({"presence": np.zeros(2)}, "presence of shape (2,), not (3)"),
        ({"members": np.zeros(4)}, "members of shape (4,), not (0)"),
        ({"losses": ("low",)}, "'low' for losses"),
        ({"metrics": {"own": "much"}}, "'much' for own"),
        ({"seed": "none"}, "'none' for seed"),
    ],
)
def test_an_answer_that_cannot_be_used_is_refused_with_what_is_wrong(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ViewError) as refused:
        checked(AttackReport(**({"status": "finished"} | change)), VIEW)
    assert words in str(refused.value)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_findings_that_are_not_finite_mean_that_the_attack_diverged(value: float) -> None:
    found = checked(AttackReport("finished", images=grey(0.5, value)), VIEW)
    assert found.status == "diverged"
    assert found.reason == "the images that it found are not finite"
    assert found.images is None
    found = checked(AttackReport("finished", presence=np.array([0.5, value, 1])), VIEW)
    assert (found.status, found.reason) == ("diverged", "the scores of presence that it found are not finite")


def test_the_mean_image_of_a_class_is_nobodys_image_however_near_it_is() -> None:
    """Of scikit-learn's digits, the mean of the right class is nearer to one in seven than every stranger."""
    from sklearn.datasets import load_digits

    known = load_digits()
    images, labels = (known.images[:, None] / 16).astype(np.float32), known.target.astype(np.int64)
    public = Examples(images[:600], labels[:600])
    judge = scorer(public=PublicData(classes=("",) * 10, mean=(0.3,), std=(0.3,), examples=public))
    means = np.stack([images[:600][labels[:600] == each].mean(0) for each in range(10)])

    def recovered(found: Any, each: int) -> list[int] | None:
        return judge.recovered(AttackReport("finished", images=found[None]), truth_of(images[each][None]))

    assert not any(recovered(means[labels[each]], each) for each in range(1000, 1200))
    assert [recovered(images[each], each) for each in range(1000, 1020)] == [[0]] * 20
