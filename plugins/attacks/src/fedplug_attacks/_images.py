"""Shared code of the image metrics: declarations, checks of both sides, torchmetrics, and batches per channel."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.errors import MetricError

from fedplug_attacks.api.report import AttackReport
from fedplug_attacks.api.truth import Truth

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

# Undoing a standardisation in float32 leaves errors of this order; half a grey level of 8 bits is 200 times as much.
_ROUNDING = 1e-5
# Values of one side that are measured at once. Convolutions of many more in float64 take four times as long.
_VALUES_AT_ONCE = 1 << 18


def both(found: AttackReport, truth: Truth, metric: str, smallest: int = 1, why: str = "") -> tuple[NDArray[Any], ...]:
    """The found and the true images, if the metric is defined for them; float64 (n, C, H, W) in [0, 1] each.

    Args:
        found: the attack's images in the order of the truth.
        truth: with the true images.
        metric: its name, for the errors.
        smallest: fewest pixels that height and width must have.
        why: the reason for this minimum.

    Raises:
        MetricError: no images; not of the same shape; not finite; not in [0, 1]; too small.
    """
    if found.images is None:
        raise MetricError(f"{metric} compares images, but the attack found none; use a metric for its findings")
    checked = _one(found.images, "the found images", metric), _one(truth.images, "the true images", metric)
    if checked[0].shape != checked[1].shape:
        shapes = " and ".join(str(list(images.shape)) for images in checked)
        raise MetricError(
            f"{metric}: found and true images have the shapes {shapes}, which must be the same (n, C, H, W); match "
            "every true image with one found image first"
        )
    height, width = checked[1].shape[2:]
    if min(height, width) < smallest:
        raise MetricError(
            f"{metric}: images of {height}x{width} pixels are too small: height and width must be >= {smallest} "
            f"({why}); attacks.mse and attacks.psnr are defined for any size, attacks.ssim from 11 pixels"
        )
    return checked


def rows(found: AttackReport, truth: Truth, metric: str) -> NDArray[np.float64]:
    """By how much each value of a found row is off, in units of its column's public spread; (n, d).

    Args:
        found: the attack's rows in the order of the truth.
        truth: with the true rows.
        metric: its name, for the errors.

    Raises:
        MetricError: the examples are not rows of a table; none was found; not of the same shape; not finite.
    """
    if truth.images.ndim != 2:
        raise MetricError(f"{metric} compares rows of a table, but these are images; use attacks.mse")
    if found.images is None or found.images.shape != truth.images.shape:
        there = "none" if found.images is None else f"{list(found.images.shape)}"
        raise MetricError(f"{metric}: found rows are {there}, and the true ones {list(truth.images.shape)}")
    off = truth.measured(found.images) - truth.in_spreads
    if not np.isfinite(off).all():
        raise MetricError(f"{metric}: found rows hold NaN or infinity, and must be finite; such an attack has diverged")
    return off


def _one(images: NDArray[Any], whose: str, metric: str) -> NDArray[np.float64]:
    if images.ndim != 4 or not images.size:
        raise MetricError(f"{metric}: {whose} have the shape {list(images.shape)}, which must be (n, C, H, W), none 0")
    if not np.isfinite(images).all():
        bad = np.count_nonzero(~np.isfinite(images).all(axis=(1, 2, 3)))
        raise MetricError(
            f"{metric}: {bad} of {len(images)} of {whose} hold NaN or infinity, and must be finite; an attack that "
            "ends like this has diverged and finds no images"
        )
    low, high = float(images.min()), float(images.max())
    if low < -_ROUNDING or high > 1 + _ROUNDING:
        raise MetricError(
            f"{metric}: {whose} lie in [{low:g}, {high:g}], which must be in [0, 1]; undo the standardisation, or "
            "divide 8-bit values by 255"
        )
    return np.clip(images.astype(np.float64), 0, 1)


def torchmetrics_image() -> Any:
    """The module `torchmetrics.functional.image`; torch computes with one thread from here on.

    Raises:
        MetricError: it cannot be imported on this machine.
    """
    from fedplug_std.torch_model import use_one_thread

    use_one_thread()
    try:
        # torchmetrics imports torchvision if it is installed, and not every torchvision works with every torch.
        if importlib.util.find_spec("torchvision"):
            from fedplug_std.torchvision_import import torchvision

            torchvision()
        import torchmetrics.functional.image
    except (ImportError, OSError, RuntimeError) as error:
        raise MetricError(
            f"torchmetrics, which computes this metric, cannot be imported ({error}); install builds of torch and "
            "torchvision that belong together"
        ) from error
    return torchmetrics.functional.image


def per_channel(
    measure: Callable[[Tensor, Tensor], Tensor], found: NDArray[np.float64], truth: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Measures every channel as a separate grey image, many at once; (n, C, ...).

    Args:
        measure: of found and true tensors (m, 1, H, W), in this order; (m, ...).
        found, truth: (n, C, H, W); in float64, for in float32 a flat image has an MSSIM of 0.999 with itself.
    """
    import torch

    height, width = truth.shape[2:]
    sides = (torch.from_numpy(side.reshape(-1, 1, height, width)) for side in (found, truth))
    at_once = max(1, _VALUES_AT_ONCE // (height * width))
    batches = zip(*(torch.split(side, at_once) for side in sides), strict=True)
    with torch.no_grad():
        measured: NDArray[np.float64] = torch.cat([measure(*batch) for batch in batches]).numpy()
    return measured.reshape(*truth.shape[:2], *measured.shape[1:])
