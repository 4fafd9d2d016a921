"""How well membership scores tell a client's examples from others: area under the ROC curve, and TPR at 1% FPR."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import fedplug
import numpy as np
from fedplug import Measures, MetricError

from fedplug_attacks.api.report import AttackReport
from fedplug_attacks.api.truth import Truth

if TYPE_CHECKING:
    from numpy.typing import NDArray


class MembershipRoc(fedplug.Metric):
    """Area under the ROC curve of membership scores, and how many members are found at 1% false alarms.

    The area is the chance that a member scores higher than a non-member, ties counted half (Mann and Whitney 1947);
    0.5 is a coin. An attack that is sure of a few members and guesses the rest has an area near 0.5 and still does
    harm, so the true-positive rate at a low false-positive rate stands beside it (Carlini et al. 2022).
    """

    name: str

    class Options(fedplug.Options):
        """None."""

    measures = Measures(
        kind="members",
        better={"membership_auc": "high", "tpr_at_1_fpr": "high"},
        conventions=(
            "both 0 to 1; AUC: ties count half, 0.5 is a coin; TPR: the largest among thresholds with FPR <= 0.01, "
            "not interpolated, left out below 100 non-members"
        ),
        default=True,
    )

    def __init__(self, options: Options) -> None:
        self.options = options

    def score(self, found: AttackReport, truth: Truth) -> dict[str, Any]:
        """The numbers of one challenge.

        Returns:
            `membership_auc`; `tpr_at_1_fpr`, which is left out where there are fewer than 100 non-members, because one
            false alarm is then more than 1%; and `members`, `non_members`: how many candidates of each kind there were.

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
        if len(outside) >= 100:
            numbers["tpr_at_1_fpr"] = tpr_at_1_fpr(inside, outside)
        return numbers | {"members": float(len(inside)), "non_members": float(len(outside))}


def area_under_roc(inside: NDArray[np.float64], outside: NDArray[np.float64]) -> float:
    """The share of pairs in which the member (`inside`) scores higher than the non-member, ties counted half."""
    outside = np.sort(outside)
    lower = np.searchsorted(outside, inside, "left")
    not_higher = np.searchsorted(outside, inside, "right")
    return float(lower.sum() + not_higher.sum()) / (2 * len(inside) * len(outside))


def tpr_at_1_fpr(inside: NDArray[np.float64], outside: NDArray[np.float64]) -> float:
    """The largest share of members above a threshold that no more than 1% of the non-members (>= 100) are above.

    Whoever ties with a non-member is above a threshold only together with it.
    """
    allowed = len(outside) // 100
    first_too_many = np.sort(outside)[-1 - allowed]
    return float(np.mean(inside > first_too_many))
