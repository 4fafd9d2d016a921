"""How close the images an attack found are to the true ones: squared error, structural similarity, fidelity.

Conventions differ between papers and libraries, and so do the numbers; each metric says its own, in `conventions`.
All take images in [0, 1], measure each image by itself and give the mean over images. Colour counts as the mean over
channels. What a metric is not defined for it refuses.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import fedplug
import numpy as np
from fedplug import Field, Measures
from fedplug.api.errors import MetricError
from pydantic import model_validator

from fedplug_attacks import AttackReport, Truth
from fedplug_attacks.api.truth import wilson

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

# Undoing a standardisation in float32 leaves errors of this order; half a grey level of 8 bits is 200 times as much.
_ROUNDING = 1e-5
# Values of one side that are measured at once. Convolutions of many more in float64 take four times as long.
_VALUES_AT_ONCE = 1 << 18


def image_pair(
    found: AttackReport, truth: Truth, metric: str, smallest: int = 1, why: str = ""
) -> tuple[NDArray[Any], ...]:
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


def row_errors(found: AttackReport, truth: Truth, metric: str) -> NDArray[np.float64]:
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


CAP = 100.0
"""PSNR of identical images, in dB, and the most that any can have."""
WINDOW = 11
"""Height and width of SSIM's Gaussian window, in pixels."""
MARGIN = WINDOW // 2
"""Pixels along each border that no window has as its centre, if it must lie in the image."""

_WEIGHTS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)  # of the five scales (Wang et al. 2003, Sec. 3.2)
_SMALLEST = {"ms_ssim": (WINDOW - 1) * 2 ** (len(_WEIGHTS) - 1) + 1, "vifp": 41}


class Rows(fedplug.Metric):
    """Share of a table's rows that were recovered exactly, and how far values are off, by column."""

    measures = Measures(
        kind="images",
        better={"rows_recovered": "high", "column_error": "low", "worst_column_error": "low"},
        conventions=(
            "rows of a table, each column in units of its public spread; a row counts as recovered where every value "
            "is off by less than recovered_below (0.01); column_error is the mean over columns, and worst_column_error "
            "the largest, of the mean size of errors of a column over the rows"
        ),
        default=True,
    )

    class Options(fedplug.Options):
        recovered_below: float = Field(0.01, gt=0, description="the largest error of any value of a recovered row")

    def score(self, found: AttackReport, truth: Truth) -> dict[str, float]:
        """`rows_recovered`, `column_error`, `worst_column_error`.

        Raises:
            MetricError: the examples are not rows of a table, or none was found.
        """
        errors = np.abs(row_errors(found, truth, "rows"))
        recovered = int(np.count_nonzero(errors.max(axis=1) < self.options.recovered_below))
        columns = errors.mean(axis=0)
        return {
            "rows_recovered": recovered / (len(errors) + truth.missed),
            "column_error": float(columns.mean()),
            "worst_column_error": float(columns.max()),
        }


class Mse(fedplug.Metric):
    """Mean squared error, and the share of images recovered, with its 95% interval."""

    measures = Measures(
        kind="images",
        better={
            "mse": "low",
            "images_recovered": "high",
            "images_recovered_low": "high",
            "images_recovered_high": "high",
        },
        conventions=(
            "images in [0, 1], any size; mean over channels and pixels of an image, then over images; an image "
            "counts as recovered below an MSE of 1e-3 (option recovered_below), one that nothing was offered for "
            "does not; Wilson interval of 95% over all images of the batch; of a table the mean over columns, each in "
            "units of its public spread"
        ),
        default=True,
    )

    class Options(fedplug.Options):
        recovered_below: float = Field(
            1e-3, gt=0, le=1, description="an image whose MSE is below it counts as recovered; 1e-3 is a PSNR of 30 dB"
        )

    def score(self, found: AttackReport, truth: Truth) -> dict[str, float]:
        """`mse`; `images_recovered` with `_low` and `_high`, the ends of its interval.

        Raises:
            MetricError: the images are none, not of one shape, not finite or not in [0, 1].
        """
        if truth.images.ndim == 2:
            errors = np.square(row_errors(found, truth, "mse")).mean(axis=1)
        else:
            errors = squared_errors(*image_pair(found, truth, "mse")).mean(axis=(1, 2))
        recovered = int(np.count_nonzero(errors < self.options.recovered_below))
        images = len(errors) + truth.missed  # what an attack offers nothing for is not recovered
        low, high = wilson(recovered, images)
        return {
            "mse": float(errors.mean()),
            "images_recovered": recovered / images,
            "images_recovered_low": low,
            "images_recovered_high": high,
        }

    def describe(self) -> str:
        return f"an image counts as recovered below an MSE of {self.options.recovered_below:g}"


class Psnr(fedplug.Metric):
    """Peak signal-to-noise ratio, in dB: -10 log10 of the mean squared error of each image."""

    measures = Measures(
        kind="images",
        better={"psnr": "high"},
        conventions=(
            "images in [0, 1], so the peak is 1; any size; MSE over channels and pixels of an image, at most 100 dB "
            "(equal images have 100), then mean over images"
        ),
        default=True,
    )

    def score(self, found: AttackReport, truth: Truth) -> dict[str, float]:
        """`psnr`.

        Raises:
            MetricError: the images are none, not of one shape, not finite or not in [0, 1].
        """
        errors = squared_errors(*image_pair(found, truth, "psnr")).mean(axis=(1, 2))
        return {"psnr": float(decibels(errors).mean())}


class Ssim(fedplug.Metric):
    """Structural similarity (MSSIM): the mean of the SSIM map of each image (Wang et al. 2004)."""

    measures = Measures(
        kind="images",
        better={"mssim": "high"},
        conventions=(
            "images in [0, 1]; at least 11x11 pixels; Gaussian window 11x11, sigma 1.5, K1 0.01, K2 0.03, population "
            "covariance, only windows that lie in the image (no padding); mean over channels; 1 for equal images, "
            "may be negative"
        ),
        default=True,
    )

    def score(self, found: AttackReport, truth: Truth) -> dict[str, float]:
        """`mssim`, which is not MS-SSIM.

        Raises:
            MetricError: the images are none, not of one shape, not finite, not in [0, 1] or smaller than 11 pixels.
        """
        pair = image_pair(found, truth, "ssim", WINDOW, "its window")
        return {"mssim": float(per_channel(lambda *sides: ssim_map(*sides).mean((1, 2)), *pair).mean())}


class MsSsim(fedplug.Metric):
    """Multi-scale structural similarity (MS-SSIM), over five scales (Wang et al. 2003, eq. 7)."""

    measures = Measures(
        kind="images",
        better={"ms_ssim": "high"},
        conventions=(
            "images in [0, 1]; at least 161x161 pixels; five scales, each half the last (2x2 means), SSIM as in "
            "attacks.ssim without padding at every scale, negative terms count as 0; each channel by itself, then "
            "mean; 1 for equal images"
        ),
        default=True,
    )

    def score(self, found: AttackReport, truth: Truth) -> dict[str, float]:
        """`ms_ssim`, which is not MSSIM.

        Raises:
            MetricError: the images are none, not of one shape, not finite, not in [0, 1] or smaller than 161 pixels.
        """
        why = "its window fits into the fifth scale"
        pair = image_pair(found, truth, "ms_ssim", _SMALLEST["ms_ssim"], why)
        return {"ms_ssim": float(per_channel(ms_ssim, *pair).mean())}


class Vifp(fedplug.Metric):
    """Visual information fidelity in the pixel domain (VIFp; Sheikh & Bovik 2006), over four scales."""

    measures = Measures(
        kind="images",
        better={"vifp": "high"},
        conventions=(
            "images in [0, 1], scaled to [0, 255] for its noise variance of 2; at least 41x41 pixels, no padding; "
            "each channel by itself, then mean; 1 for equal images, 0 where nothing is left, above 1 for raised "
            "contrast; not defined for a true channel of one value"
        ),
        default=True,
    )

    def score(self, found: AttackReport, truth: Truth) -> dict[str, float]:
        """`vifp`.

        Raises:
            MetricError: the images are none, not of one shape, not finite, not in [0, 1] or smaller than 41 pixels, or
                a channel of a true image is constant and so has no information that could be kept.
        """
        pair = image_pair(found, truth, "vifp", _SMALLEST["vifp"], "its windows fit into the fourth scale")
        constant = np.argwhere(np.ptp(pair[1], axis=(2, 3)) == 0)
        if len(constant):
            raise MetricError(
                f"vifp: {len(constant)} channels of the true images have one value only, first channel "
                f"{constant[0][1]} of image {constant[0][0]}; they must vary, for it divides by their information; use "
                "attacks.ssim or attacks.mse"
            )
        fidelity = torchmetrics_image().visual_information_fidelity

        # Its noise variance of 2 is in squared grey levels of 8 bits: on [0, 1] the same images seem nearly equal.
        def measure(found: Tensor, truth: Tensor) -> Tensor:
            values: Tensor = fidelity(255 * found, 255 * truth, reduction="none")
            return values

        return {"vifp": float(per_channel(measure, *pair).mean())}


# FedRE does not say how it restricts structural similarity to a region. Here its map is averaged over the region.
class Regions(fedplug.Metric):
    """MSE, PSNR and MSSIM inside and outside the privacy-sensitive regions (as in FedRE's Table 2)."""

    measures = Measures(
        kind="images",
        better={
            "mse_inside": "low",
            "mse_outside": "low",
            "psnr_inside": "high",
            "psnr_outside": "high",
            "mssim_inside": "high",
            "mssim_outside": "high",
        },
        conventions=(
            "images in [0, 1]; each number is the mean over a side's pixels, then over the images that have any; the "
            "SSIM map is that of attacks.ssim, from 11x11 pixels, and a pixel counts where it is the centre of a "
            "window that lies in the image: not within 5 pixels of the border; mean over channels"
        ),
        default=True,
    )

    class Options(fedplug.Options):
        ssim: bool = Field(
            True, description="MSSIM as well; without it, images of any size and regions at the border count too"
        )
        fields: tuple[str, ...] | None = Field(
            None, min_length=1, description="fields that count as inside, such as [name, total]; null: all of them"
        )
        box: tuple[int, int, int, int] | None = Field(
            None, description="[x0, y0, x1, y1], a box that counts as inside, whatever the data marks; x1, y1 are "
                              "outside"
        )

        @model_validator(mode="after")
        def _one_region(self) -> Regions.Options:
            if self.fields is not None and self.box is not None:
                raise ValueError("fields and box both define the inside; give only one of them")
            if self.box is not None:
                x0, y0, x1, y1 = self.box
                if not (0 <= x0 < x1 and 0 <= y0 < y1):
                    raise ValueError(f"box {list(self.box)} must have 0 <= x0 < x1 and 0 <= y0 < y1")
            return self

    def score(self, found: AttackReport, truth: Truth) -> dict[str, float]:
        """`mse`, `psnr` and `mssim`, each with `_inside` and `_outside`.

        Raises:
            MetricError: the data has no regions or no such field, the box is not in the images, nothing is left inside
                or outside, or the images are none, not of one shape, not finite, not in [0, 1] or, for MSSIM, smaller
                than 11 pixels.
        """
        if truth.regions is None and self.options.box is None:
            raise MetricError(
                "regions: the data has no regions; a data set such as fedre.receipts knows them, or give a box"
            )
        pair = image_pair(found, truth, "regions", WINDOW if self.options.ssim else 1, "SSIM's window; ssim: false")
        inside = self._inside(truth, (len(pair[1]), *pair[1].shape[2:]))
        numbers: dict[str, float] = {}
        errors = squared_errors(*pair)
        for side, mask in (("inside", inside), ("outside", ~inside)):
            each = _means(errors, mask, side)
            numbers |= {f"mse_{side}": float(each.mean()), f"psnr_{side}": float(decibels(each).mean())}
        if self.options.ssim:
            similarity = per_channel(ssim_map, *pair).mean(axis=1)
            centres = inside[:, MARGIN:-MARGIN, MARGIN:-MARGIN]
            for side, mask in (("inside", centres), ("outside", ~centres)):
                each = _means(similarity, mask, side, "; for MSE and PSNR alone write ssim: false")
                numbers[f"mssim_{side}"] = float(each.mean())
        return numbers

    def _inside(self, truth: Truth, shape: tuple[int, ...]) -> NDArray[np.bool_]:
        """Which pixels count as inside, bool (n, H, W)."""
        fields, box, regions = self.options.fields, self.options.box, truth.regions
        inside = np.zeros(shape, np.bool_)
        if box is not None:
            x0, y0, x1, y1 = box
            if x1 > shape[2] or y1 > shape[1]:
                raise MetricError(
                    f"regions: the box {list(box)} ([x0, y0, x1, y1]) must lie in images {shape[2]} wide and "
                    f"{shape[1]} high"
                )
            inside[:, y0:y1, x0:x1] = True
            return inside
        assert regions is not None  # score has checked it
        if regions.shape != shape:
            raise MetricError(
                f"regions: they have the shape {list(regions.shape)}, which must be {list(shape)}, a number "
                "for each pixel of each image; resize them with the images"
            )
        if unknown := [name for name in fields or () if name not in truth.region_names]:
            raise MetricError(
                f"regions: fields {unknown} must be among those that the data marks: {', '.join(truth.region_names)}"
            )
        inside[:] = regions > 0
        if fields is not None:
            inside[:] = np.isin(regions, [1 + truth.region_names.index(name) for name in fields])
        return inside

    def describe(self) -> str:
        fields, box = self.options.fields, self.options.box
        where = f"the box {list(box)}" if box else ", ".join(fields) if fields else "the regions"
        return f"inside and outside {where}" + ("" if self.options.ssim else ", without MSSIM")


def _means(values: NDArray[np.float64], mask: NDArray[np.bool_], side: str, more: str = "") -> NDArray[np.float64]:
    """The mean over each image's pixels in the mask, of the images that have any.

    Raises:
        MetricError: none has.
    """
    pixels = mask.sum(axis=(1, 2))
    has = pixels > 0
    if not has.any():
        where = f" at least {MARGIN} pixels from the border, where windows of SSIM have their centre" if more else ""
        raise MetricError(
            f"regions: 0 of the {len(mask)} true images have a pixel {side} the regions{where}; at least one must; "
            f"attacks.mse, attacks.psnr and attacks.ssim judge whole images{more}"
        )
    means: NDArray[np.float64] = (values * mask).sum(axis=(1, 2))[has] / pixels[has]
    return means


def squared_errors(found: NDArray[np.float64], truth: NDArray[np.float64]) -> NDArray[np.float64]:
    """Squared error of each pixel, the mean over its channels; (n, H, W)."""
    errors: NDArray[np.float64] = np.square(found - truth).mean(axis=1)
    return errors


def decibels(errors: NDArray[np.float64]) -> NDArray[np.float64]:
    """PSNR of mean squared errors of images in [0, 1], at most `CAP` dB."""
    capped: NDArray[np.float64] = -10 * np.log10(np.maximum(errors, 10 ** (-CAP / 10)))
    return capped


def ssim_map(found: Tensor, truth: Tensor) -> Tensor:
    """SSIM of grey images at every centre of a window that lies in the image; (m, 1, H, W) to (m, H - 10, W - 10).

    Wang et al. 2004, eq. 13. As in piq, pytorch-msssim and scikit-image with population covariance.
    """
    similarity = torchmetrics_image().structural_similarity_index_measure
    # torchmetrics pads by reflection; values within the margin are of padded windows, and are cut off.
    _, whole = similarity(found, truth, data_range=1.0, return_full_image=True)
    valid: Tensor = whole[:, 0, MARGIN:-MARGIN, MARGIN:-MARGIN]
    return valid


def similarity(found: NDArray[np.float32], truth: NDArray[np.float32]) -> NDArray[np.float64]:
    """The mean SSIM of each image, as `attacks.ssim` for images of 11 pixels or more; (n, C, H, W) to (n,).

    Smaller images have one window, which is the whole image.
    """
    from scipy.ndimage import gaussian_filter

    a, b = found.astype(np.float64), truth.astype(np.float64)

    def mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
        if min(a.shape[2:]) < WINDOW:
            whole: NDArray[np.float64] = values.mean(axis=(2, 3), keepdims=True)
            return whole
        smooth: NDArray[np.float64] = gaussian_filter(values, (0, 0, 1.5, 1.5), radius=(0, 0, MARGIN, MARGIN))
        return smooth[:, :, MARGIN:-MARGIN, MARGIN:-MARGIN]

    of_a, of_b = mean(a), mean(b)
    spread_a, spread_b, common = mean(a * a) - of_a**2, mean(b * b) - of_b**2, mean(a * b) - of_a * of_b
    light = (2 * of_a * of_b + 0.01**2) / (of_a**2 + of_b**2 + 0.01**2)
    like: NDArray[np.float64] = light * (2 * common + 0.03**2) / (spread_a + spread_b + 0.03**2)
    each: NDArray[np.float64] = like.mean(axis=(1, 2, 3))
    return each


def ms_ssim(found: Tensor, truth: Tensor) -> Tensor:
    """MS-SSIM of grey images (m, 1, H, W); (m,).

    torchmetrics' own function refuses images below 176 pixels, and its last scale pads by reflection. So the scales are
    put together here, as in piq: means of contrast and structure, and of the whole SSIM at the last scale.
    """
    import torch
    from torch.nn.functional import avg_pool2d

    similarity = torchmetrics_image().structural_similarity_index_measure
    terms = []
    for _ in _WEIGHTS[:-1]:
        _, contrast = similarity(found, truth, data_range=1.0, return_contrast_sensitivity=True)
        terms.append(contrast)
        # An odd last row or column is kept, as in the authors' code; piq and pytorch-msssim pad the first ones.
        found, truth = (avg_pool2d(side, 2, ceil_mode=True, count_include_pad=False) for side in (found, truth))
    terms.append(ssim_map(found, truth).mean((1, 2)))
    weights = torch.tensor(_WEIGHTS, dtype=found.dtype, device=found.device)
    return (torch.stack(terms, dim=1).clamp(min=0) ** weights).prod(dim=1)
