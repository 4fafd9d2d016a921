"""Metrics inside and outside the privacy-sensitive regions, and what they are not defined for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fedplug.api.errors import MetricError
from fedplug_attacks.api.report import AttackReport
from fedplug_attacks.api.truth import Truth
from fedplug_attacks.image_metrics import Mse, Regions, Ssim
from fedplug_kit.static import check_component
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

Images = NDArray[np.float32]
Marks = NDArray[np.uint8]


def score(found: Images, truth: Images, regions: Marks | None, **options: Any) -> dict[str, float]:
    known = Truth(truth, np.zeros(len(truth), np.int64), 10, regions=regions)
    return Regions(Regions.Options(**options)).score(AttackReport("finished", images=found), known)


def boxes(n: int, size: int, *corners: int) -> Marks:
    """The same box in every image, of field 3."""
    y0, x0, y1, x1 = corners
    marks = np.zeros((n, size, size), np.uint8)
    marks[:, y0:y1, x0:x1] = 3
    return marks


def pair(n: int = 2, channels: int = 3, size: int = 32, seed: int = 0) -> tuple[Images, Images]:
    found, truth = np.random.default_rng(seed).random((2, n, channels, size, size), np.float32)
    return found, truth


def test_conforms() -> None:
    check_component("attacks.regions")


def test_an_attack_that_finds_all_but_the_region() -> None:
    _, truth = pair()
    found = truth.copy()
    found[:, :, 8:24, 8:24] = 1 - truth[:, :, 8:24, 8:24]
    numbers = score(found, truth, boxes(2, 32, 8, 8, 24, 24))
    assert list(numbers) == [
        "mse_inside",
        "psnr_inside",
        "mse_outside",
        "psnr_outside",
        "mssim_inside",
        "mssim_outside",
    ]
    assert set(numbers) == set(Regions.measures.better)
    assert numbers["mse_outside"] == 0
    assert numbers["psnr_outside"] == 100
    assert numbers["mse_inside"] == pytest.approx(np.square(1 - 2 * truth[:, :, 8:24, 8:24]).mean(), rel=1e-5)
    # Windows outside reach into the region: their similarity is below 1, but above that inside.
    assert numbers["mssim_inside"] < -0.5 < 0.2 < numbers["mssim_outside"] < 1


def test_each_number_is_the_mean_over_images_of_the_mean_over_the_region() -> None:
    found, truth = pair(n=3)
    marks = np.concatenate([boxes(1, 32, 6, 6, 10, 30), boxes(1, 32, 10, 10, 26, 12), boxes(1, 32, 0, 0, 0, 0)])
    numbers = score(found, truth, marks)
    errors = np.square(found.astype(float) - truth).mean(1)
    inside = [errors[i][marks[i] > 0].mean() for i in (0, 1)]  # the third has no region
    outside = [errors[i][marks[i] == 0].mean() for i in range(3)]
    assert numbers["mse_inside"] == pytest.approx(np.mean(inside))
    assert numbers["mse_outside"] == pytest.approx(np.mean(outside))
    assert numbers["psnr_inside"] == pytest.approx(np.mean(-10 * np.log10(inside)))
    assert numbers["psnr_outside"] == pytest.approx(np.mean(-10 * np.log10(outside)))


def test_ssim_agrees_with_the_map_of_scikit_image() -> None:
    theirs: Any = pytest.importorskip("skimage.metrics", reason="scikit-image is not there to compare with")
    found, truth = pair(n=1)
    marks = boxes(1, 32, 0, 4, 20, 20)  # reaches into the border, where no window has its centre
    whole = theirs.structural_similarity(
        found[0].astype(float),
        truth[0].astype(float),
        channel_axis=0,
        data_range=1.0,
        gaussian_weights=True,
        sigma=1.5,
        use_sample_covariance=False,
        full=True,
    )[1]
    valid, centres = whole[:, 5:-5, 5:-5].mean(0), marks[0, 5:-5, 5:-5] > 0
    numbers = score(found, truth, marks)
    assert numbers["mssim_inside"] == pytest.approx(valid[centres].mean(), abs=1e-4)
    assert numbers["mssim_outside"] == pytest.approx(valid[~centres].mean(), abs=1e-4)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(12, 30), st.sampled_from([1, 3]), st.floats(0.05, 0.95))
def test_both_sides_together_are_the_whole_image(seed: int, size: int, channels: int, share: float) -> None:
    found, truth = pair(1, channels, size, seed)
    marks = (np.random.default_rng(seed).random((1, size, size)) < share).astype(np.uint8)
    marks[:, 5, 5], marks[:, 5, 6] = 1, 0
    numbers = score(found, truth, marks)
    reported, known = AttackReport("finished", images=found), Truth(truth, np.zeros(1, np.int64), 10)
    inside, centres = (marks > 0).mean(), (marks[:, 5:-5, 5:-5] > 0).mean()
    mse = inside * numbers["mse_inside"] + (1 - inside) * numbers["mse_outside"]
    mssim = centres * numbers["mssim_inside"] + (1 - centres) * numbers["mssim_outside"]
    assert mse == pytest.approx(Mse(Mse.Options()).score(reported, known)["mse"], rel=1e-9)
    assert mssim == pytest.approx(Ssim(Ssim.Options()).score(reported, known)["mssim"], rel=1e-9)


def test_without_ssim_size_and_border_do_not_matter() -> None:
    found, truth = pair(size=8)
    numbers = score(found, truth, boxes(2, 8, 0, 0, 2, 8), ssim=False)
    assert set(numbers) == {"mse_inside", "mse_outside", "psnr_inside", "psnr_outside"}
    assert Regions(Regions.Options(ssim=False)).describe() == "inside and outside the regions, without MSSIM"


def test_only_the_named_fields_count_as_inside() -> None:
    found, truth = pair()
    marks = boxes(2, 32, 8, 8, 16, 16)
    marks[:, 16:24, 16:24] = 1
    known = Truth(truth, np.zeros(2, np.int64), 10, regions=marks, region_names=("name", "date", "total"))
    metric = Regions(Regions.Options(fields=("total",)))
    total = boxes(2, 32, 8, 8, 16, 16)
    assert metric.score(AttackReport("finished", images=found), known) == score(found, truth, total)
    assert metric.describe() == "inside and outside total"
    everything = Regions(Regions.Options(fields=("name", "date", "total")))
    assert everything.score(AttackReport("finished", images=found), known) == score(found, truth, marks)
    unknown = Regions(Regions.Options(fields=("total", "address")))
    with pytest.raises(MetricError, match=r"fields \['address'\] must be among .*: name, date, total"):
        unknown.score(AttackReport("finished", images=found), known)


def test_a_box_needs_no_marks() -> None:
    found, truth = pair()
    boxed = score(found, truth, None, box=(4, 8, 20, 24))
    assert boxed == score(found, truth, boxes(2, 32, 8, 4, 24, 20))
    assert boxed == score(found, truth, boxes(2, 32, 0, 0, 4, 4), box=(4, 8, 20, 24))
    assert Regions(Regions.Options(box=(4, 8, 20, 24))).describe() == "inside and outside the box [4, 8, 20, 24]"
    with pytest.raises(MetricError, match=r"box \[4, 8, 33, 24\] .* 32 wide and 32 high"):
        score(found, truth, None, box=(4, 8, 33, 24))
    with pytest.raises(ValueError, match=r"box \[4, 8, 4, 24\] must have 0 <= x0 < x1"):
        Regions.Options(box=(4, 8, 4, 24))
    with pytest.raises(ValueError, match="fields and box both define"):
        Regions.Options(fields=("name",), box=(4, 8, 20, 24))


def test_what_has_no_regions_is_refused() -> None:
    found, truth = pair()

    def refused(why: str, marks: Marks | None, images: tuple[Images, Images] = (found, truth)) -> None:
        with pytest.raises(MetricError, match=why):
            score(*images, marks)

    refused("the data has no regions", None)
    refused("0 of the 2 true images have a pixel inside the regions; .*whole images", boxes(2, 32, 0, 0, 0, 0))
    refused("0 of the 2 true images have a pixel outside the regions; ", boxes(2, 32, 0, 0, 32, 32))
    at_border = "pixel inside the regions at least 5 pixels from the border.* write ssim: false"
    refused(at_border, boxes(2, 32, 0, 0, 5, 32))
    refused(r"shape \[2, 16, 16\], which must be \[2, 32, 32\]", boxes(2, 16, 4, 4, 8, 8))
    refused("images of 8x8 pixels are too small: .* >= 11 .*ssim: false", boxes(2, 8, 1, 1, 3, 3), pair(size=8))
    refused(r"lie in \[0, 255\]", boxes(2, 32, 8, 8, 24, 24), (found, np.round(truth * 255)))
