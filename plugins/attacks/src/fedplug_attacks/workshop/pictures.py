"""A picture of one attacked target: the truth next to the findings of each form, with the numbers below.

Images are in columns: truth, naive, adaptive. Counts of labels become bars, scores of members a ROC curve and
histograms. The same result always gives the same bytes.
"""

from __future__ import annotations

import dataclasses
import io
import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug_runs import units
from fedplug_runs.files import write_bytes

from fedplug_attacks.workshop.records import Outcome, TargetResult
from fedplug_attacks.workshop.words import (
    forms,
    is_stronger,
    metric_names,
    metric_words,
    shares_words,
    status_words,
    target_words,
    trivial_guesses,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

MOST_IMAGES, MOST_CLASSES = 8, 100
"""Largest number of images, and of classes, in one picture."""
_METRICS, _BESIDE = 4, 2  # numbers below a form, and next to each trivial guess
_COLUMN, _WRAP = 1.8, 27  # inches of a column of images, and characters that fit below it
_DOTS_PER_INCH, _COARSE = 144, 96  # images of fewer pixels than this keep their squares
_TILE, _EDGE = 72, ((2, 2), (2, 2), (0, 0))  # pixels of an image in a strip, if it has fewer; and of white around it
_INK, _MUTED, _GRID = "#1b1f27", "#5a6372", "#e3e6eb"
COLOURS = {"truth": "#8b94a3", "naive": "#e39a2d", "adaptive": "#8661c1"}
"""One colour for the truth and each form."""
_STYLE: dict[Any, Any] = {
    "text.parse_math": False, "font.family": "DejaVu Sans", "font.size": 9,
    "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": _MUTED, "axes.labelcolor": _MUTED,
    "axes.titlecolor": _INK, "axes.titlesize": 9, "axes.titlelocation": "left",
    "axes.grid": True, "axes.grid.axis": "y", "axes.axisbelow": True,
    "grid.color": _GRID, "grid.linewidth": 0.8, "text.color": _INK, "xtick.color": _MUTED, "ytick.color": _MUTED,
    "xtick.major.size": 0, "ytick.major.size": 0, "lines.linewidth": 1.8, "axes.linewidth": 0.8,
}  # fmt: skip

Found = Mapping[str, "NDArray[Any] | None"]


@dataclasses.dataclass(frozen=True, eq=False)
class Challenge:
    """A membership challenge, for its picture.

    Attributes:
        members: bool (m,), which candidates were members.
        scores: form -> (m,), higher for members.
    """

    members: NDArray[np.bool_]
    scores: Mapping[str, NDArray[np.float64]]


def draw(
    path: Path,
    result: TargetResult,
    truth_images: NDArray[np.float32] | None,
    found: Found,
    members: Challenge | None = None,
) -> None:
    """Writes the picture of a target as PNG, whole or not at all.

    Args:
        path: the file; an older picture is replaced.
        result: the content of the target's file.
        truth_images: float32 (n, C, H, W) in [0, 1]; None without images.
        found: form -> the images that it found, in the order of the truth, of any number; None if it found none.
        members: a membership challenge; None without one.
    """
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        figure = figure_of(result, truth_images, found, members)
        buffer = io.BytesIO()
        # Without the name and version of the software, equal pictures have equal bytes.
        figure.savefig(buffer, format="png", dpi=_DOTS_PER_INCH, facecolor="white", metadata={"Software": None})
    write_bytes(path, buffer.getvalue())


def draw_strip(path: Path, pairs: Sequence[tuple[NDArray[np.float32], NDArray[np.float32]]]) -> None:
    """Writes the true images and below them the found ones, without text: a PNG, whole or not at all.

    Args:
        path: the file; an older picture is replaced.
        pairs: a true image and the found one, float32 (C, H, W) in [0, 1], all of one shape.
    """
    from matplotlib.image import imsave

    side = max(1, _TILE // max(pairs[0][0].shape[1:]))
    rows = [
        np.concatenate([np.pad(np.kron(_pixels(image), np.ones((side, side, 1))), _EDGE, constant_values=1.0)
                        for image in images], axis=1)
        for images in zip(*pairs, strict=True)
    ]  # fmt: skip
    buffer = io.BytesIO()
    metadata: Any = {"Software": None}  # as in `draw`
    imsave(buffer, np.concatenate(rows), format="png", metadata=metadata)
    write_bytes(path, buffer.getvalue())


def figure_of(
    result: TargetResult,
    truth_images: NDArray[np.float32] | None,
    found: Found,
    members: Challenge | None = None,
) -> Figure:
    """The figure of `draw`: images if any form found some, else scores of members, counts of labels, or words."""
    tried = forms(result)
    if any(images is not None and len(images) for images in found.values()):
        return _images(result, truth_images, found)
    if members is not None and any(form in tried for form in members.scores):
        return _members(result, members)
    if result.truth.counts:
        return _labels(result)
    return _images(result, truth_images, found)


# ---- images


def _images(result: TargetResult, truth_images: NDArray[np.float32] | None, found: Found) -> Figure:
    """Truth and forms in columns, an image a row; the last row has the numbers."""
    columns: dict[str, NDArray[np.float32] | None] = {"truth": truth_images}
    columns |= {form: found.get(form) for form in forms(result)}
    most = max((len(images) for images in columns.values() if images is not None), default=0)
    shown = min(most, MOST_IMAGES)
    side = 1.5 if shown <= 1 else 1.2 if shown <= 4 else 1.0
    lines = {name: _lines(result, name) for name in columns}
    below = 0.17 * max(map(len, lines.values())) + 0.2
    rows = max(shown, 1)
    width = _COLUMN * len(columns) + 0.2
    figure = _figure(result, width, rows * (side + 0.28) + below, note=_more(most, shown))
    grid = figure.subplots(rows + 1, len(columns), squeeze=False, height_ratios=[side + 0.28] * rows + [below])
    for column, (name, images) in enumerate(columns.items()):
        axes = grid[:, column]
        axes[0].set_title(_column_title(result, name), loc="center", fontweight="bold")
        drawn = 0 if images is None else min(len(images), shown)
        for row in range(drawn):
            _draw_image(axes[row], images[row])  # type: ignore[index]
            axes[row].set_xlabel(_label(result, name, row, len(images)), fontsize=7)  # type: ignore[arg-type]
        for ax in axes[drawn:]:
            ax.set_axis_off()  # limits stay 0 and 1: text is placed in units of the axes
        if not drawn:
            axes[0].text(0.5, 0.5, _absent(result, name), ha="center", va="center", color=_MUTED, fontsize=8)
        axes[-1].text(0.5, 1.0, "\n".join(lines[name]), ha="center", va="top", fontsize=8, linespacing=1.35)
    return figure


def _draw_image(ax: Axes, image: NDArray[np.float32]) -> None:
    """One image (C, H, W)."""
    shown = _pixels(image)
    ax.grid(False)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)
    # Interpolation would invent detail between the few pixels of a small image.
    ax.imshow(shown, interpolation="nearest" if max(shown.shape[:2]) <= _COARSE else "antialiased")


def _pixels(image: NDArray[np.float32]) -> NDArray[np.float32]:
    """An image (C, H, W) as (H, W, 3); values that are not finite have a colour that no grey image has."""
    pixels = np.asarray(image, np.float32)
    pixels = pixels[None] if pixels.ndim == 2 else pixels
    broken = ~np.isfinite(pixels).all(axis=0)
    shown = pixels if len(pixels) == 3 else pixels.mean(axis=0, keepdims=True).repeat(3, axis=0)
    shown = np.clip(np.nan_to_num(shown), 0, 1).transpose(1, 2, 0).copy()
    shown[broken] = (0.85, 0.33, 0.31)
    return shown


def _label(result: TargetResult, name: str, index: int, images: int) -> str:
    """The class of an image, if there is a label for each."""
    labels = result.truth.labels if name == "truth" else result.forms[name].labels
    return f"class {labels[index]}" if labels is not None and len(labels) == images else ""


def _absent(result: TargetResult, name: str) -> str:
    if name == "truth":
        return "not shown"
    return "no image:\n" + status_words(result.forms[name])


def _more(all_of_them: int, shown: int) -> str:
    return f"{all_of_them - shown} more images of this target are not shown." if all_of_them > shown else ""


# ---- labels


def _labels(result: TargetResult) -> Figure:
    """A panel for each form: wide bars are the true counts, narrow ones the form's counts, class by class."""
    truth = np.array(result.truth.counts, np.float64)
    found = {form: _found_counts(outcome, len(truth)) for form, outcome in forms(result).items()}
    classes, note = _chosen_classes(truth, [counts for counts in found.values() if counts is not None])
    panels: dict[str, NDArray[np.float64] | None] = found or {"truth": None}
    width = 5.0 if len(classes) <= 20 else 10.2
    figure = _figure(result, width, 2.15 * len(panels) + 0.1, note=note)
    grid = figure.subplots(len(panels), 1, squeeze=False, sharex=True)[:, 0]
    # A count with a large error must not make the true ones invisible.
    highest = 1.15 * max(float(truth.max(initial=1)), min(float(truth.sum()), _highest(found)))
    places = np.arange(len(classes))
    for ax, (form, counts) in zip(grid, panels.items(), strict=True):
        ax.bar(places, truth[classes], 0.8, color=COLOURS["truth"], alpha=0.55, linewidth=0, label="true")
        if counts is not None:
            colour = COLOURS.get(form, COLOURS["adaptive"])
            ax.bar(places, counts[classes], 0.4, color=colour, linewidth=0, label="found")
            ax.legend(loc="upper right", ncols=2, frameon=False, fontsize=7, borderaxespad=0, handlelength=1)
        ax.set_ylim(0, highest)
        ax.yaxis.get_major_locator().set_params(integer=True, nbins=5)
        ax.set_ylabel("examples")
        said = f"{_column_title(result, form)}: {', '.join(_lines(result, form))}" if form in found else "truth"
        ax.set_title(textwrap.fill(said, 75 if width < 6 else 155), fontsize=8)
    step = math.ceil(len(classes) / (20 if width < 6 else 40))
    grid[-1].set_xticks(places[::step], [str(c) for c in classes[::step]], fontsize=8 if len(classes) <= 40 else 7)
    guesses = textwrap.wrap(" ".join(_lines(result, "truth")), 70 if width < 6 else 150)
    grid[-1].set_xlabel("\n".join(["class", *guesses]), fontsize=8)
    return figure


def _chosen_classes(truth: NDArray[np.float64], found: Sequence[NDArray[np.float64]]) -> tuple[NDArray[np.intp], str]:
    """All classes; if too many to show, those with the largest errors, then the most frequent ones."""
    if len(truth) <= MOST_CLASSES:
        return np.arange(len(truth)), ""
    error = np.zeros(len(truth))
    for counts in found:
        error = np.maximum(error, np.abs(np.nan_to_num(counts, nan=np.inf) - truth))
    chosen = np.sort(np.lexsort((-truth, -error))[:MOST_CLASSES])
    wrong = error > 0.5  # a count is right if it rounds to the true one
    return chosen, (
        f"{MOST_CLASSES} of {len(truth)} classes are shown. Some form is wrong in {int(wrong.sum())} classes; "
        f"{int(wrong[chosen].sum())} of these are among them."
    )


def _highest(found: Mapping[str, NDArray[np.float64] | None]) -> float:
    return max((float(np.nan_to_num(counts).max(initial=0)) for counts in found.values() if counts is not None),
               default=0.0)  # fmt: skip


def _found_counts(outcome: Outcome, classes: int) -> NDArray[np.float64] | None:
    """A form's counts, or else the counts of the labels it found; None if neither is about these classes."""
    if outcome.counts is not None:
        counts = np.array(outcome.counts, np.float64)
    elif outcome.labels is not None:
        counts = np.histogram(outcome.labels, np.arange(classes + 1) - 0.5)[0].astype(np.float64)
    else:
        return None
    return counts if len(counts) == classes else None


# ---- members


def _members(result: TargetResult, members: Challenge) -> Figure:
    """The ROC curve of every form on logarithmic axes, next to histograms of members' and other scores."""
    truth = members.members
    scores = {form: members.scores[form] for form in forms(result) if len(members.scores.get(form, ())) == len(truth)}
    figure = _figure(result, 2.9 * (1 + max(1, len(scores))) + 0.4, 3.3)
    roc, *histograms = figure.subplots(1, 1 + len(scores), squeeze=False)[0]
    floor = 0.5 / max(int((~truth).sum()), 1)  # below the smallest possible rate except 0
    roc.plot([floor, 1], [floor, 1], "--", color=_MUTED, linewidth=0.9)
    for form, values in scores.items():
        false, true = roc_curve(values, truth)
        area = float(np.sum(np.diff(false) * (true[1:] + true[:-1]) / 2))
        colour = COLOURS.get(form, COLOURS["adaptive"])
        label = f"{form}, AUC {units.number(area)}"
        roc.plot(np.maximum(false, floor), np.maximum(true, floor), color=colour, label=label, drawstyle="steps-post")
    for axis in (roc.set_xscale, roc.set_yscale):
        axis("log")
    for ax_axis in (roc.xaxis, roc.yaxis):
        ax_axis.set_major_formatter("{x:g}")
    roc.set_xlim(floor, 1)
    roc.set_ylim(floor, 1.2)
    roc.set_xlabel("false positive rate")
    roc.set_ylabel("true positive rate")
    roc.set_title("\n".join([*_lines(result, "truth"), "ROC (dashed: guessing)"]), fontsize=8)
    if scores:
        roc.legend(loc="lower right", frameon=False, fontsize=7, borderaxespad=0.2)
    for ax, (form, values) in zip(histograms, scores.items(), strict=True):
        _draw_histogram(ax, values, truth)
        said = "\n".join([_column_title(result, form), *_lines(result, form)])
        ax.set_title(said, fontsize=8)
    return figure


def _draw_histogram(ax: Axes, scores: NDArray[np.float64], truth: NDArray[np.bool_]) -> None:
    finite = scores[np.isfinite(scores)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    # One score, or scores so near that bins between them would have no width, still need a range.
    room = 0.0 if high - low > 1e-6 * max(abs(low), abs(high), 1e-30) else max(0.05 * abs(high), 0.5)
    edges = np.linspace(low - room, high + room, 21)
    for inside, label, colour in ((~truth, "non-members", COLOURS["truth"]), (truth, "members", "#c2557f")):
        values = scores[inside]
        counts, _ = np.histogram(values[np.isfinite(values)], edges)
        ax.stairs(counts / max(len(values), 1), edges, fill=True, alpha=0.55, color=colour, label=label)
    ax.set_xlabel("score")
    ax.set_ylabel("share of the candidates of a kind", fontsize=7)
    ax.legend(loc="best", frameon=False, fontsize=7)


def roc_curve(scores: NDArray[np.float64], truth: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """False and true positive rates from (0, 0) to (1, 1), a point for each distinct score, the highest score first.

    A score that is not a number counts as the lowest. Without members or without others, that rate stays at 0.

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
    return false, true


# ---- shared by all three


def _figure(result: TargetResult, width: float, height: float, note: str = "") -> Figure:
    """An empty figure with the title: the attack, the target, and the share that the adversary saw."""
    from matplotlib.figure import Figure

    wide = max(int(width * 13), 30)
    head = textwrap.wrap(result.attack, wide)
    under = textwrap.wrap(target_words(result), wide)
    if shares := shares_words(result.states):
        under += textwrap.wrap(f"entries: {shares}", wide)
    under += textwrap.wrap(note, wide) if note else []
    figure = Figure(figsize=(width, height + 0.24 * len(head) + 0.2 * len(under) + 0.4), layout="constrained")
    figure.suptitle("\n".join([*head, *under, ""]), fontsize=9, ha="left", x=0.02, linespacing=1.35)
    return figure


def _column_title(result: TargetResult, name: str) -> str:
    if name == "truth":
        return "truth"
    return f"{name} (the stronger)" if is_stronger(result, name) else name


def _lines(result: TargetResult, name: str) -> list[str]:
    """The numbers below a column; below the truth, those of trivial guesses."""
    first = result.ranking.metric
    if name == "truth":
        # For an attack that finds images and labels, only the guesses that compete in its ranking number.
        guesses = list(trivial_guesses(result.baselines, first) or result.baselines)
        lines = ["trivial guesses:"] if guesses else []
        for guess in guesses:
            reached = result.baselines[guess]
            numbers = [metric_words(metric, reached[metric]) for metric in metric_names(reached, first)[:_BESIDE]]
            lines += textwrap.wrap(f"{guess}: {', '.join(numbers) or units.NOTHING}", _WRAP)
        return lines
    outcome = result.forms[name]
    ordered = metric_names(outcome.metrics, first)
    lines = [status_words(outcome), *(metric_words(metric, outcome.metrics[metric]) for metric in ordered[:_METRICS])]
    if outcome.reason:
        lines += textwrap.wrap(textwrap.shorten(outcome.reason, 180, placeholder=" …"), _WRAP)
    return lines
