"""Metrics of labels: accuracies over the classes, recall and precision (Ma et al. 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import fedplug
import numpy as np
from fedplug import Measures
from fedplug.api.errors import MetricError

from fedplug_attacks import AttackReport, Truth
from fedplug_attacks.membership_metrics import area_under_roc

if TYPE_CHECKING:
    from numpy.typing import NDArray


class LabelAccuracy(fedplug.Metric):
    """Label existence accuracy (LeAcc) and label number accuracy (LnAcc) of Ma et al. (2023).

    LeAcc is the share of the classes whose presence was found, LnAcc of those whose number was found. Both are
    means over all K classes: LeAcc of [(n_i > 0) = (t_i > 0)], LnAcc of [n_i = t_i], with the counts as the attack
    gives them. A class that is absent and reported as absent counts as found.
    """

    measures = Measures(
        kind="labels",
        better={"le_acc": "high", "ln_acc": "high"},
        conventions="0 to 1; mean over all classes, present or not; counts before renormalisation",
        default=True,
    )

    def score(self, found: AttackReport, truth: Truth) -> dict[str, float]:
        """`le_acc` and `ln_acc`.

        Raises:
            MetricError: the attack found neither counts nor labels, or its counts do not fit the classes.
        """
        counts = found_counts(found, truth.num_classes)
        return {
            "le_acc": float(np.mean((counts > 0) == (truth.counts > 0))),
            "ln_acc": float(np.mean(counts == truth.counts)),
        }


class LabelRecall(fedplug.Metric):
    """Share of the classes present that were found, share of those found that are present, and of instances found.

    `instance_recall` is the sum of min(n_i, t_i) over the number of examples (IRec of Ma et al. 2023).
    """

    measures = Measures(
        kind="labels",
        better={"label_recall": "high", "label_precision": "high", "instance_recall": "high"},
        conventions="0 to 1; precision is 0 where no class was found; instances as a multiset",
        default=True,
    )

    def score(self, found: AttackReport, truth: Truth) -> dict[str, float]:
        """`label_recall`, `label_precision` and `instance_recall`.

        Raises:
            MetricError: the attack found neither counts nor labels, its counts do not fit the classes, or the target
                had no examples.
        """
        counts = found_counts(found, truth.num_classes)
        if not truth.counts.sum():
            raise MetricError("label recall is not defined for a target without examples")
        both = np.count_nonzero((counts > 0) & (truth.counts > 0))
        instances = np.minimum(counts, truth.counts).clip(min=0)
        return {
            "label_recall": float(both / int(np.count_nonzero(truth.counts))),
            "label_precision": float(both / max(1, int(np.count_nonzero(counts > 0)))),
            "instance_recall": float(np.sum(instances) / np.sum(truth.counts)),
        }


class PresenceAuc(fedplug.Metric):
    """Area under the ROC curve for telling present classes from absent ones.

    It is the share of pairs of a present and an absent class in which the present one has the higher score. Attacks
    without scores are scored by their counts. A guess with equal scores for all classes has 0.5.
    """

    measures = Measures(
        kind="labels",
        better={"presence_auc": "high"},
        conventions="0 to 1; ties count half; left out if every class is present, or none",
        default=True,
    )

    def score(self, found: AttackReport, truth: Truth) -> dict[str, float]:
        """`presence_auc`.

        Raises:
            MetricError: the target has every class or none, or the scores do not fit the classes.
        """
        scores = found_counts(found, truth.num_classes) if found.presence is None else np.asarray(found.presence)
        there = truth.counts > 0
        if scores.shape != there.shape:
            raise MetricError(f"presence scores of shape {list(scores.shape)} must be one a class, ({len(there)},)")
        if there.all() or not there.any():
            which = "every class" if there.any() else "no class"
            raise MetricError(f"the target has {which}, so no class can be told from others")
        return {"presence_auc": area_under_roc(scores[there].astype(np.float64), scores[~there].astype(np.float64))}


def found_counts(found: AttackReport, num_classes: int) -> NDArray[Any]:
    """The counts an attack found; those of its labels where it gives no counts.

    Raises:
        MetricError: it gives neither, or they do not fit the classes.
    """
    if found.counts is not None:
        counts = np.asarray(found.counts)
        if counts.shape != (num_classes,) or not np.isfinite(counts).all():
            raise MetricError(
                f"counts of shape {list(counts.shape)} must be one finite number for each of {num_classes} classes"
            )
        return counts
    if found.labels is None:
        raise MetricError("label metrics need counts or labels, and the attack found neither")
    labels = np.asarray(found.labels)
    if labels.size and not (labels.min() >= 0 and labels.max() < num_classes):
        raise MetricError(f"labels from {labels.min()} to {labels.max()} must lie in 0 to {num_classes - 1}")
    return np.bincount(labels.astype(np.int64), minlength=num_classes)
