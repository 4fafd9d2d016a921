"""Pictures of an attacked target: true images above found ones, and charts of class counts and of members' scores.

Images are a PNG in the folder of results, without text: the same result always gives the same bytes. Charts are drawn
by the report from the numbers in a target's file.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug_lab.drawing import Drawing
from fedplug_lab.panel import MUTED
from fedplug_runs import units
from fedplug_runs.files import write_bytes

from fedplug_attacks.workshop.records import Outcome, TargetResult
from fedplug_attacks.workshop.words import forms

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_IMAGES, MOST_CLASSES = 8, 1000
"""Largest number of images in one picture, and of classes in a chart."""
POINTS = 200
"""Largest number of points of a ROC curve."""
_TILE, _EDGE = 72, ((2, 2), (2, 2), (0, 0))  # pixels of an image that has fewer, and of white around it
COLOURS = {"naive": "#e39a2d", "adaptive": "#8661c1"}
"""One colour for each form."""


def draw(path: Path, rows: Sequence[Sequence[NDArray[np.float32] | None]]) -> None:
    """Writes rows of images as PNG, whole or not at all.

    Args:
        path: the file; an older picture is replaced.
        rows: equally many images each, float32 (C, H, W) in [0, 1], all of one shape: the true ones, then those of each
            form; None where there is no image.
    """
    from matplotlib.image import imsave

    blank = np.ones_like(next(image for row in rows for image in row if image is not None))
    side = max(1, _TILE // max(blank.shape[1:]))
    lines = [
        np.concatenate([
            np.pad(np.kron(_pixels(blank if image is None else image), np.ones((side, side, 1))), _EDGE,
                   constant_values=1.0) for image in row
        ], axis=1)
        for row in rows
    ]  # fmt: skip
    buffer = io.BytesIO()
    metadata: Any = {"Software": None}  # without its name and version, equal pictures have equal bytes
    imsave(buffer, np.concatenate(lines), format="png", metadata=metadata)
    write_bytes(path, buffer.getvalue())


def _pixels(image: NDArray[np.float32]) -> NDArray[np.float32]:
    """An image (C, H, W) as (H, W, 3); values that are not finite have a colour that no grey image has."""
    pixels = np.asarray(image, np.float32)
    broken = ~np.isfinite(pixels).all(axis=0)
    shown = pixels if len(pixels) == 3 else pixels.mean(axis=0, keepdims=True).repeat(3, axis=0)
    shown = np.clip(np.nan_to_num(shown), 0, 1).transpose(1, 2, 0).copy()
    shown[broken] = (0.85, 0.33, 0.31)
    return shown


def chart(result: TargetResult, key: str, alt: str) -> str:
    """A chart as SVG: the ROC curve of members' scores, else the counts of classes; empty where there is neither.

    Args:
        result: of the target.
        key: of this picture in its page.
        alt: what it shows, in words.
    """
    curves = {form: outcome.roc for form, outcome in forms(result).items() if outcome.roc}
    if curves:
        return _roc(curves).svg(key, alt)
    truth = np.array(result.truth.counts, np.float64)
    tried = {form: _found_counts(outcome, len(truth)) for form, outcome in forms(result).items()}
    found = {form: counts for form, counts in tried.items() if counts is not None}
    return _counts(truth, found).svg(key, alt) if found and 0 < len(truth) <= MOST_CLASSES else ""


def _counts(truth: NDArray[np.float64], found: dict[str, NDArray[np.float64]]) -> Drawing:
    """A panel for each form: wide bars are the true counts, narrow ones the form's counts, class by class."""
    drawing = Drawing(5.0, 2.0 * len(found), len(found), columns=1)
    # A count with a large error must not make the true ones invisible.
    highest = max(truth.max(), min(truth.sum(), max(np.nan_to_num(counts).max() for counts in found.values())))
    places, none = np.arange(len(truth)), np.zeros(len(truth))
    for panel, (form, counts) in zip(drawing.panels, found.items(), strict=True):
        panel.title, panel.x_label, panel.y_label = f"{form} (narrow bars), and true counts", "class", "examples"
        panel.x.whole = panel.y.whole = True
        panel.y.from_zero(float(highest))
        panel.bars(places, none, truth, 0.8, MUTED, 0.55)
        panel.bars(places, none, np.minimum(counts, 2 * highest), 0.4, COLOURS.get(form, COLOURS["adaptive"]))
    return drawing


def _found_counts(outcome: Outcome, classes: int) -> NDArray[np.float64] | None:
    """A form's counts, or else the counts of the labels it found; None if neither is about these classes."""
    if outcome.counts is not None:
        counts = np.array(outcome.counts, np.float64)
    elif outcome.labels is not None:
        counts = np.histogram(outcome.labels, np.arange(classes + 1) - 0.5)[0].astype(np.float64)
    else:
        return None
    return counts if len(counts) == classes else None


def _roc(curves: dict[str, list[tuple[float, float]]]) -> Drawing:
    """The curve of each form on logarithmic axes; dashed: guessing."""
    rates = {form: np.array(points).T for form, points in curves.items()}
    floor = 0.5 * min((float(rate[rate > 0].min()) for rate in rates.values() if (rate > 0).any()), default=1e-3)
    drawing = Drawing(4.0, 3.4)
    (panel,) = drawing.panels
    areas = {form: float(np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2)) for form, (x, y) in rates.items()}
    panel.title = ", ".join(f"{form}: area {units.number(area)}" for form, area in areas.items())
    panel.x_label, panel.y_label = "false positive rate", "true positive rate"
    for axis in (panel.x, panel.y):
        axis.logarithmic, axis.low, axis.high = True, floor, 1.0
    panel.line([floor, 1], [floor, 1], MUTED, 0.9, dashed=True)
    for form, (x, y) in rates.items():
        across, up = np.repeat(np.maximum(x, floor), 2)[1:], np.repeat(np.maximum(y, floor), 2)[:-1]
        panel.line(across, up, COLOURS.get(form, COLOURS["adaptive"]))
    return drawing


def roc_curve(scores: NDArray[np.float64], truth: NDArray[np.bool_]) -> list[tuple[float, float]]:
    """False and true positive rates from (0, 0) to (1, 1), at most `POINTS`, the highest score first.

    There is a point for each distinct score. A score that is not a number counts as the lowest. Without members or
    without others, that rate stays at 0.

    Args:
        scores: (m,), higher the more a candidate looks like a member.
        truth: bool (m,), which are.
    """
    values = np.nan_to_num(scores, nan=-np.inf, posinf=np.inf, neginf=-np.inf)
    order = np.argsort(-values, kind="stable")
    hits = np.cumsum(truth[order])
    # Candidates with equal scores are accepted together: only the last of them is a point of the curve.
    last = np.flatnonzero(np.append(values[order][1:] != values[order][:-1], True)) if len(order) else order
    true = np.concatenate([[0.0], hits[last] / max(int(truth.sum()), 1)])
    false = np.concatenate([[0.0], (last + 1 - hits[last]) / max(int((~truth).sum()), 1)])
    # Low rates of false alarms matter most: nearer to them points are denser.
    kept = np.unique(np.geomspace(1, len(true), POINTS).round().astype(int) - 1) if len(true) > POINTS else slice(None)
    return list(zip(false[kept].tolist(), true[kept].tolist(), strict=True))
