"""Whether findings explain what was seen, for attacks that do not say so: images the first layer, counts the last.

A search that does not fit its view proves nothing if it fails. The gradient of a first fully connected layer is made of
the inputs alone, and that of the last bias is the mean of the probabilities less the share of each class. So both can
be checked without the truth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from fedplug.api.errors import ViewError

from fedplug_attacks.api.needs import FIRST_WEIGHT, LAST_BIAS, role

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedplug_attacks import AttackReport, ObservedUpdate, TensorView, View

_LEFT = 0.1
"""Share of what the first layer shows, beyond the noise, that images may leave unexplained."""
_DEVIATIONS = 4.0


def unexplained(view: View, report: AttackReport) -> str:
    """Why the findings do not explain the update, in a clause; empty if they do, or if that cannot be checked.

    Args:
        view: what the attack was given.
        report: its finished report, without a reason of its own.
    """
    update = view.update
    if update is None or not len(update.values) or not np.isfinite(update.sigma).all():
        return ""
    try:
        gradient = update.as_gradient(view.vector)
    except ViewError:  # the learning rate or the number of steps is not known
        return ""
    if report.images is not None:
        return _images(view, gradient, report)
    one_step = len(update.contributors) == 1 and update.meaning.steps == 1 and bool(update.meaning.lr)
    return _counts(view, gradient, report) if report.counts is not None and one_step else ""


def _images(view: View, gradient: ObservedUpdate, report: AttackReport) -> str:
    """Rows of the gradient of the first layer are combinations of the standardised inputs."""
    name, size = role(gradient.layout, FIRST_WEIGHT), int(np.prod(view.shape))
    if name is None or report.images is None or len(view.shape) != 3:
        return ""
    tensor = gradient.tensor(name)
    whole = tensor.visible.all(1)
    if tensor.states.shape[1] != size or not whole.any():
        return ""
    rows, noise = tensor.dense(0.0)[whole].astype(np.float64), _sigma(tensor)[whole]
    mean, std = (np.asarray(each or (empty,), np.float64).reshape(1, -1, 1, 1) for each, empty in (
        (view.mean, 0.0), (view.std, 1.0)
    ))  # fmt: skip
    inputs = ((np.nan_to_num(report.images) - mean) / std).reshape(len(report.images), -1)
    _, lengths, directions = np.linalg.svd(inputs, full_matrices=False)
    basis = directions[lengths > 1e-6 * lengths.max(initial=0.0)].T
    expected = float(np.square(noise).sum())
    left = float(np.square(rows - rows @ basis @ basis.T).sum()) - expected * max(0.0, 1 - basis.shape[1] / size)
    seen = float(np.square(rows).sum()) - expected
    if seen <= 0 or left <= _LEFT * seen:
        return ""
    return f"the images leave {left / seen:.0%} of what the first layer shows unexplained"


def _counts(view: View, gradient: ObservedUpdate, report: AttackReport) -> str:
    """B times the gradient of the last bias, plus the counts, are B mean probabilities: from 0 to B."""
    name, examples = role(gradient.layout, LAST_BIAS, view.num_classes), gradient.meaning.examples
    if name is None or not examples or report.counts is None or gradient.meaning.clip_norm is not None:
        return ""
    tensor = gradient.tensor(name)
    noise = _DEVIATIONS * examples * _sigma(tensor)
    likely = np.asarray(report.counts, np.float64) + examples * tensor.dense(0.0)
    off = np.where(tensor.visible, np.maximum(-likely, likely - examples) - noise, 0.0)
    if off.max(initial=0.0) <= 0.5:
        return ""
    return f"with these counts the last bias would need probabilities of class {int(off.argmax())} outside 0 to 1"


def _sigma(tensor: TensorView) -> NDArray[np.float64]:
    """The standard deviation of the noise on each entry of a tensor, 0 where none is visible."""
    found = np.zeros(tensor.states.shape)
    found[tensor.visible] = tensor.sigma
    return found
