"""An attack's report, in the form that the scorer, the pictures and the result files rely on.

Attacks are plugins: a report of the wrong shape costs its own target, and nothing else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from fedplug.api.errors import ViewError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedplug_attacks.api.view import View

Status = Literal["finished", "success", "failed", "inconclusive", "diverged", "not_applicable"]
FINISHED: Final = "finished"
SUCCESS: Final = "success"
FAILED: Final = "failed"
INCONCLUSIVE: Final = "inconclusive"
DIVERGED: Final = "diverged"
NOT_APPLICABLE: Final = "not_applicable"
_ITS_OWN = (FINISHED, DIVERGED, NOT_APPLICABLE)


@dataclasses.dataclass(frozen=True, eq=False)
class AttackReport:
    """An attack's findings. Only the scorer, which knows the truth, can call them a success.

    Attributes:
        status: `finished`, `diverged` or `not_applicable` from an attack; the scorer makes `success`, `failed` or
            `inconclusive` of the first two.
        metrics: the attack's own numbers, such as its final loss.
        reason: one sentence, where the status is not `finished`.
        images: float32 (n, C, H, W) in [0, 1]: the examples it believes the update was made from, in any order; of a
            table rows (n, d), in the units of its columns.
        labels: int64 (n,), the label of each.
        counts: (K,), how many examples of each class there were, before any renormalisation.
        presence: float64 (K,), for each class a score that is higher the more likely its presence; None: that of the
            counts.
        tokens: int64 (t,), distinct tokens that it believes the inputs hold, in any order.
        share: the share of the examples, 0 to 1, that it believes to have the requested attribute.
        texts: int64 (n, T), whole inputs where these are tokens, in any order.
        members: float64 (m,), for each candidate a score that is higher the more it looks like a member.
        seed: of its randomness.
        gradient_evaluations: how many gradients of the model it computed.
        losses: its objective over time, thinned out.
        unfit: why a failure would be inconclusive, in a clause: the search result does not explain the observation, or
            the question covers too few examples. Empty if a failure counts.
    """

    status: Status
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    reason: str = ""
    images: NDArray[np.float32] | None = None
    labels: NDArray[np.int64] | None = None
    counts: NDArray[Any] | None = None
    presence: NDArray[np.float64] | None = None
    members: NDArray[np.float64] | None = None
    seed: int | None = None
    gradient_evaluations: int = 0
    losses: tuple[float, ...] = ()
    unfit: str = ""
    tokens: NDArray[np.int64] | None = None
    texts: NDArray[np.int64] | None = None
    share: float | None = None


def checked(report: Any, view: View) -> AttackReport:
    """The report with plain numbers, and arrays as `AttackReport` describes them.

    Findings that are NaN or infinite make it `diverged`.

    Args:
        report: what an attack returned.
        view: what it was given.

    Raises:
        ViewError: it is not a report, or a field has the wrong form.
    """
    if not isinstance(report, AttackReport):
        raise ViewError(f"the attack gave a {type(report).__name__}, not an AttackReport")
    if report.status not in _ITS_OWN:
        raise ViewError(f"the attack gave the status {report.status!r}; an attack can give {', '.join(_ITS_OWN)}")
    found = dataclasses.replace(
        report,
        metrics={str(name): _number(value, name) for name, value in report.metrics.items()},
        images=_array(report.images, "images", np.float32, (None, *view.shape)),
        labels=_array(report.labels, "labels", np.int64, (None,)),
        tokens=_array(report.tokens, "tokens", np.int64, (None,)),
        texts=_array(report.texts, "texts", np.int64, (None, *view.shape)),
        counts=_array(report.counts, "counts", np.float64, (view.num_classes,)),
        presence=_array(report.presence, "presence", np.float64, (view.num_classes,)),
        members=_array(report.members, "members", np.float64, (len(view.candidates) if view.candidates else 0,)),
        share=None if report.share is None else _number(report.share, "share"),
        seed=None if report.seed is None else int(_number(report.seed, "seed")),
        gradient_evaluations=int(_number(report.gradient_evaluations, "gradient_evaluations")),
        losses=tuple(_number(value, "losses") for value in report.losses),
        unfit=str(report.unfit),
    )
    if found.labels is not None and not ((found.labels >= 0) & (found.labels < view.num_classes)).all():
        raise ViewError(f"the attack gave labels that are not 0 to {view.num_classes - 1}")
    for name, tokens in (("tokens", found.tokens), ("texts", found.texts)):
        if tokens is not None and not ((tokens >= 0) & (tokens < view.num_classes)).all():
            raise ViewError(f"the attack gave {name} whose tokens are not 0 to {view.num_classes - 1}")
    if found.share is not None and not np.isfinite(found.share):
        return dataclasses.replace(found, status=DIVERGED, reason="the share that it found is not finite", share=None)
    for name in ("images", "counts", "presence", "members"):
        array = getattr(found, name)
        if array is not None and not np.isfinite(array).all():
            scores = "scores of presence" if name == "presence" else name
            reason = report.reason or f"the {scores} that it found are not finite"
            return dataclasses.replace(
                found, status=DIVERGED, reason=reason, images=None, counts=None, presence=None, members=None
            )
    return found


def _number(value: Any, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ViewError(f"the attack gave {value!r:.40} for {name}, which is not a number") from None


def _array(value: Any, name: str, dtype: type, shape: tuple[int | None, ...]) -> NDArray[Any] | None:
    """The value as an array of that shape, in which None means any length."""
    if value is None:
        return None
    try:
        array: NDArray[Any] = np.asarray(value, dtype)
    except (TypeError, ValueError):
        kind = type(value).__name__
        raise ViewError(f"the attack gave a {kind} for {name}, which is not an array of numbers") from None
    if array.ndim != len(shape) or any(want not in (None, have) for want, have in zip(shape, array.shape, strict=True)):
        wanted = ", ".join("any" if want is None else str(want) for want in shape)
        raise ViewError(f"the attack gave {name} of shape {array.shape}, not ({wanted})")
    return array
