"""Image metrics inside and outside the privacy-sensitive regions of the true images, as in FedRE.

The paper does not say how it restricts structural similarity to a region. Here its map is averaged over the region.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import fedplug
import numpy as np
from fedplug import Field, Measures
from fedplug.api.errors import MetricError
from pydantic import model_validator

from fedplug_attacks import AttackReport, Truth
from fedplug_attacks.image_metrics import MARGIN, WINDOW, decibels, image_pair, per_channel, squared_errors, ssim_map

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
