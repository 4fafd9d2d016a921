"""Metrics of membership scores: area under the ROC curve, and true-positive rates at low false-positive rates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import fedplug
import numpy as np
from fedplug import Measures, MetricError

from fedplug_attacks import AttackReport, Truth

if TYPE_CHECKING:
    from numpy.typing import NDArray


RATES = {"tpr_at_1_fpr": 100, "tpr_at_01_fpr": 1000}
"""Names of true-positive rates, with the number of non-members for each allowed false alarm."""


class MembershipRoc(fedplug.Metric):
    """Area under the ROC curve of membership scores, and the share of members found at 1% and at 0.1% false alarms.

    The area is the chance that a member scores higher than a non-member, ties counted half (Mann and Whitney 1947); 0.5
    is a coin. An attack that is sure of a few members and guesses the rest has an area near 0.5 and still does harm, so
    the true-positive rates at low false-positive rates are given too (Carlini et al. 2022), each with its 95% interval
    (Clopper and Pearson 1934). If there are so few non-members that one false alarm exceeds the rate, the rate is left
    out, which says nothing about it. The interval treats the threshold as given. The rate of false alarms behind it has
    its own interval, which for 1 of 1,000 is 0.003% to 0.56%.
    """

    measures = Measures(
        kind="members",
        better={"membership_auc": "high"} | dict.fromkeys(RATES, "high"),
        conventions=(
            "all 0 to 1; AUC: ties count half, 0.5 is a coin; TPR: the largest among thresholds with FPR <= 0.01, or "
            "<= 0.001, not interpolated, left out below 100, or 1,000, non-members; intervals: Clopper-Pearson, 95%"
        ),
        default=True,
    )

    def score(self, found: AttackReport, truth: Truth) -> dict[str, Any]:
        """The numbers of one challenge.

        Returns:
            `membership_auc`; `tpr_at_1_fpr` and `tpr_at_01_fpr` (0.1%), each left out where one false alarm would be
            more than that; the ends of their intervals, such as `tpr_at_1_fpr_low` and `tpr_at_1_fpr_high`; and
            `members`, `non_members`: how many candidates of each kind there were.

        Raises:
            MetricError: there is no challenge or no score for it, a score is not finite, or all candidates are alike.
        """
        if truth.members is None:
            raise MetricError("there was no membership challenge; name candidates for this target")
        if found.members is None:
            raise MetricError("the attack gave no membership scores")
        scores, members = np.asarray(found.members, np.float64), np.asarray(truth.members, np.bool_)
        if scores.shape != members.shape:
            raise MetricError(f"{len(scores)} scores for {len(members)} candidates; there must be one score each")
        if not np.isfinite(scores).all():
            lost = np.count_nonzero(~np.isfinite(scores))
            raise MetricError(f"{lost} of {len(scores)} membership scores are not finite numbers")
        inside, outside = scores[members], scores[~members]
        if not len(inside) or not len(outside):
            raise MetricError(
                f"{len(inside)} members and {len(outside)} non-members among the candidates; a challenge needs both"
            )
        numbers = {"membership_auc": area_under_roc(inside, outside)}
        for name, one_in in RATES.items():
            if len(outside) >= one_in:
                found_inside = int(np.count_nonzero(inside > threshold(outside, one_in)))
                numbers[name] = found_inside / len(inside)
                numbers[f"{name}_low"], numbers[f"{name}_high"] = clopper_pearson(found_inside, len(inside))
        return numbers | {"members": float(len(inside)), "non_members": float(len(outside))}


def area_under_roc(inside: NDArray[np.float64], outside: NDArray[np.float64]) -> float:
    """The share of pairs in which the member (`inside`) scores higher than the non-member, ties counted half."""
    outside = np.sort(outside)
    lower = np.searchsorted(outside, inside, "left")
    not_higher = np.searchsorted(outside, inside, "right")
    return float(lower.sum() + not_higher.sum()) / (2 * len(inside) * len(outside))


def threshold(outside: NDArray[np.float64], one_in: int) -> float:
    """The lowest score that at most one in `one_in` of the non-members exceeds.

    A member that ties with a non-member is above a threshold only together with it.
    """
    return float(np.sort(outside)[-1 - len(outside) // one_in])


def clopper_pearson(successes: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Exact interval of a share (Clopper and Pearson 1934): it covers the true one at least at the given level.

    Args:
        successes: number of successes among `trials`, >= 1.
        level: confidence level.
    """
    from scipy.stats import binomtest

    low, high = binomtest(successes, trials).proportion_ci(level)
    return float(low), float(high)
