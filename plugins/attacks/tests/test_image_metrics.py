"""Image metrics: equal to other libraries where conventions agree, and refused where they are not defined."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from examples import examples
from fedplug.api.errors import MetricError
from fedplug_attacks import image_metrics
from fedplug_attacks.api.report import AttackReport
from fedplug_attacks.api.truth import Truth
from fedplug_attacks.image_metrics import Mse, MsSsim, Psnr, Ssim, Vifp
from fedplug_kit.static import check_component
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import ValidationError
from scipy.stats import binomtest

Images = NDArray[np.float32]
METRICS = {"mse": Mse, "psnr": Psnr, "mssim": Ssim, "ms_ssim": MsSsim, "vifp": Vifp}
SMALLEST = {"mse": 1, "psnr": 1, "mssim": 11, "ms_ssim": 161, "vifp": 41}


def measure(number: str, found: Images, truth: Images, **options: Any) -> float:
    metric: Any = METRICS[number]
    score = metric(metric.Options(**options)).score(report(found), true(truth))
    assert set(score) == set(metric.measures.better)
    return float(score[number])


def report(images: Images | None) -> AttackReport:
    return AttackReport("finished", images=images)


def true(images: Images) -> Truth:
    return Truth(images, np.zeros(len(images), np.int64), 10)


@functools.cache
def photographs(size: int, n: int = 3) -> Images:
    """Cuts of a photograph that comes with scikit-learn, scaled to size x size."""
    from PIL import Image
    from sklearn.datasets import load_sample_image

    whole = load_sample_image("china.jpg")
    corners = np.random.default_rng(0).integers(0, (227, 440), (n, 2))
    cuts = [Image.fromarray(whole[y : y + 200, x : x + 200]).resize((size, size)) for y, x in corners]
    return (np.stack([np.asarray(cut) for cut in cuts]).transpose(0, 3, 1, 2) / 255).astype(np.float32)


def noisy(images: Images, std: float = 0.1) -> Images:
    noise = np.random.default_rng(1).normal(0, std, images.shape)
    return np.clip(images + noise, 0, 1).astype(np.float32)


def blurred(images: Images) -> Images:
    """Every pixel the mean of itself and its neighbours below and to the right."""
    return np.clip((images + np.roll(images, 1, 2) + np.roll(images, 1, 3)) / 3, 0, 1)


def tensors(*sides: NDArray[Any]) -> Any:
    import torch

    return tuple(torch.from_numpy(side) for side in sides)


def peer(name: str) -> Any:
    image_metrics.torchmetrics_image()  # piq imports torchvision as well, and needs the same help
    return pytest.importorskip(name, reason=f"{name} is not installed, so nothing is compared with it")


@pytest.mark.parametrize("name", ["mse", "psnr", "ssim", "ms_ssim", "vifp"])
def test_conforms(name: str) -> None:
    check_component(f"attacks.{name}")


# -- other libraries ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("harm", [noisy, blurred])
@pytest.mark.parametrize("size", [11, 32, 45])
def test_error_and_ssim_agree_with_scikit_image(size: int, harm: Callable[[Images], Images]) -> None:
    theirs = peer("skimage.metrics")
    truth = photographs(size)
    found = harm(truth)
    pairs = list(zip(truth, found, strict=True))
    ssim = functools.partial(
        theirs.structural_similarity,
        channel_axis=0,
        data_range=1.0,
        gaussian_weights=True,
        sigma=1.5,
        use_sample_covariance=False,
    )
    psnr = functools.partial(theirs.peak_signal_noise_ratio, data_range=1.0)
    assert measure("mse", found, truth) == pytest.approx(np.mean([theirs.mean_squared_error(*p) for p in pairs]), 1e-4)
    assert measure("psnr", found, truth) == pytest.approx(np.mean([psnr(*pair) for pair in pairs]), abs=1e-4)
    assert measure("mssim", found, truth) == pytest.approx(np.mean([ssim(*pair) for pair in pairs]), abs=1e-4)


@pytest.mark.parametrize("harm", [noisy, blurred])
@pytest.mark.parametrize("size", [11, 45])
def test_psnr_and_ssim_agree_with_piq(size: int, harm: Callable[[Images], Images]) -> None:
    piq = peer("piq")
    truth = photographs(size)
    pair = tensors(harm(truth), truth)
    assert measure("psnr", harm(truth), truth) == pytest.approx(piq.psnr(*pair).item(), abs=1e-4)
    theirs = piq.ssim(*pair, downsample=False).item()
    assert measure("mssim", harm(truth), truth) == pytest.approx(theirs, abs=1e-4)


def test_ms_ssim_agrees_with_piq_where_sizes_halve_evenly() -> None:
    piq = peer("piq")
    truth = photographs(176, n=1)
    ours = measure("ms_ssim", noisy(truth), truth)
    assert ours == pytest.approx(piq.multi_scale_ssim(*tensors(noisy(truth), truth)).item(), abs=1e-4)
    # A little apart, for its last scale is padded by reflection.
    padded = image_metrics.torchmetrics_image().multiscale_structural_similarity_index_measure
    assert ours == pytest.approx(padded(*tensors(noisy(truth), truth), data_range=1.0).item(), abs=1e-3)


def test_ms_ssim_halves_an_odd_size_as_its_authors_do() -> None:
    """Rows and columns that are left over are means of what there is, as with symmetric padding at the far side."""
    truth = photographs(161, n=1)[:, :1]
    found = noisy(truth)
    ours = measure("ms_ssim", found, truth)
    ssim = image_metrics.torchmetrics_image().structural_similarity_index_measure
    sides = [side.astype(np.float64) for side in (found, truth)]
    terms = []
    for scale in range(5):
        pair = tensors(*(side.reshape(-1, 1, *side.shape[2:]) for side in sides))
        if scale < 4:
            terms.append(ssim(*pair, data_range=1.0, return_contrast_sensitivity=True)[1].numpy())
        else:
            whole = ssim(*pair, data_range=1.0, return_full_image=True)[1]
            terms.append(whole[..., 5:-5, 5:-5].mean((1, 2, 3)).numpy())
        padded = [np.pad(side, ((0, 0), (0, 0), (0, 1), (0, 1)), mode="symmetric") for side in sides]
        over = [(side[:, :, :-1] + side[:, :, 1:])[:, :, ::2] for side in padded]
        sides = [(side[..., :-1] + side[..., 1:])[..., ::2] / 4 for side in over]
    weights = np.array([0.0448, 0.2856, 0.3001, 0.2363, 0.1333])[:, None]
    assert [side.shape[-1] for side in sides] == [6, 6]
    assert ours == pytest.approx(float(np.prod(np.array(terms) ** weights, axis=0).mean()), abs=1e-9)


@pytest.mark.parametrize("harm", [noisy, blurred])
@pytest.mark.parametrize("size", [41, 64])
def test_vif_agrees_with_torchmetrics_and_in_gray_with_piq(size: int, harm: Callable[[Images], Images]) -> None:
    truth = photographs(size)
    theirs = image_metrics.torchmetrics_image().visual_information_fidelity(*tensors(255 * harm(truth), 255 * truth))
    assert measure("vifp", harm(truth), truth) == pytest.approx(theirs.item(), abs=1e-4)
    piq = peer("piq")  # of colour it takes the luminance
    gray = truth[:, :1]
    assert measure("vifp", harm(gray), gray) == pytest.approx(
        piq.vif_p(*tensors(harm(gray), gray), data_range=1.0).item(), abs=1e-4
    )


def test_psnr_agrees_with_torchmetrics() -> None:
    truth = photographs(32)
    theirs = image_metrics.torchmetrics_image().peak_signal_noise_ratio
    expected = theirs(*tensors(noisy(truth), truth), data_range=1.0, dim=(1, 2, 3)).mean().item()
    assert measure("psnr", noisy(truth), truth) == pytest.approx(expected, abs=1e-4)


# -- conventions that change the number --------------------------------------------------------------------------------


def test_padding_changes_ssim_of_small_images() -> None:
    """By reflection, as torchmetrics pads: at 32 pixels .09 less, where the border is worse than the centre."""
    reflected = image_metrics.torchmetrics_image().structural_similarity_index_measure
    truth = photographs(32, n=8)
    theirs = reflected(*tensors(blurred(truth), truth), data_range=1.0).item()
    assert measure("mssim", blurred(truth), truth) - theirs == pytest.approx(0.088, abs=0.01)


def test_mssim_and_ms_ssim_are_different_numbers() -> None:
    truth = photographs(176, n=1)[:, :1]
    assert measure("ms_ssim", noisy(truth), truth) > measure("mssim", noisy(truth), truth) + 0.2
    assert not set(Ssim.measures.better) & set(MsSsim.measures.better)


def test_vif_of_the_wrong_range_would_look_near_perfect_and_is_refused() -> None:
    truth = photographs(64)
    right = measure("vifp", noisy(truth), truth)
    wrong = image_metrics.torchmetrics_image().visual_information_fidelity(*tensors(noisy(truth), truth)).item()
    assert right < 0.3
    assert wrong > 0.9
    with pytest.raises(MetricError, match=r"vifp: the found images lie in \[0, 255\], .* \[0, 1\].* divide .* by 255"):
        measure("vifp", np.round(255 * noisy(truth)), np.round(255 * truth))


def test_colour_counts_as_the_mean_over_channels() -> None:
    truth = photographs(41, n=2)
    for number in ("mse", "mssim", "vifp"):
        channels = [measure(number, noisy(truth)[:, [c]], truth[:, [c]]) for c in range(3)]
        assert measure(number, noisy(truth), truth) == pytest.approx(np.mean(channels), rel=1e-6)


def test_recovered_images_are_counted_below_the_threshold_with_a_wilson_interval() -> None:
    truth = np.full((10, 1, 4, 4), 0.5, np.float32)
    found = truth + np.linspace(0, 0.09, 10, dtype=np.float32)[:, None, None, None]  # MSE (i / 100)^2
    score = Mse(Mse.Options()).score(report(found), true(truth))
    expected = binomtest(4, 10).proportion_ci(0.95, method="wilson")
    assert score["images_recovered"] == 0.4  # sqrt(1e-3) = 0.0316: 0 to 3
    assert score["images_recovered_low"] == pytest.approx(expected.low, abs=1e-6)
    assert score["images_recovered_high"] == pytest.approx(expected.high, abs=1e-6)
    assert score["mse"] == pytest.approx(0.00285, rel=1e-4)
    narrower = Mse(Mse.Options(recovered_below=5e-5)).score(report(found), true(truth))
    assert narrower["images_recovered"] == 0.1
    with pytest.raises(ValidationError, match="recovered_below"):
        Mse.Options(recovered_below=0)


def test_psnr_is_the_mean_over_images_of_each_at_most_100() -> None:
    truth = np.full((2, 1, 4, 4), 0.5, np.float32)
    found = truth.copy()
    found[1] += 0.1
    assert measure("psnr", found, truth) == pytest.approx((100 + 20) / 2, abs=1e-4)
    assert measure("psnr", truth + np.float32(1e-6), truth) == 100


# -- properties --------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 3]), st.integers(41, 50), st.floats(0.01, 1))
def test_equal_images_score_best(seed: int, channels: int, size: int, contrast: float) -> None:
    images = (contrast * np.random.default_rng(seed).random((2, channels, size, 41))).astype(np.float32)
    assert measure("mse", images, images) == 0
    assert measure("psnr", images, images) == 100
    assert measure("mssim", images, images) == pytest.approx(1, abs=1e-9)
    assert measure("vifp", images, images) == pytest.approx(1, abs=1e-6)


def test_a_flat_image_equals_itself_to_full_precision() -> None:
    """In float32, small variances are lost in rounding, and MSSIM is 0.999."""
    page = np.full((1, 1, 64, 64), 0.97, np.float32)
    page[:, :, 10:14, 10:30] = np.random.default_rng(0).random((4, 20))
    assert measure("mssim", page, page) == pytest.approx(1, abs=1e-9)
    assert measure("vifp", page, page) == pytest.approx(1, abs=1e-9)
    ssim = image_metrics.torchmetrics_image().structural_similarity_index_measure
    rounded = ssim(*tensors(page, page), data_range=1.0)
    assert rounded.item() < 0.9995


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 40))
def test_moving_pixels_alike_in_both_leaves_the_squared_error(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    found, truth = rng.random((2, 2, 3, size, size), np.float32)
    order = rng.permutation(size * size)

    def moved(images: Images) -> Images:
        return images.reshape(2, 3, -1)[:, :, order].reshape(images.shape)

    assert measure("mse", moved(found), moved(truth)) == pytest.approx(measure("mse", found, truth), rel=1e-9)
    assert measure("psnr", moved(found), moved(truth)) == pytest.approx(measure("psnr", found, truth), rel=1e-9)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1), st.permutations(range(4)))
def test_the_order_of_images_does_not_matter(seed: int, order: list[int]) -> None:
    found, truth = np.random.default_rng(seed).random((2, 4, 1, 41, 41), np.float32)
    for number in ("mse", "psnr", "mssim", "vifp"):
        assert measure(number, found[order], truth[order]) == pytest.approx(measure(number, found, truth), rel=1e-9)


def test_more_noise_scores_worse() -> None:
    truth = photographs(64, n=1)[:, :1]
    for number in ("mse", "psnr", "mssim", "vifp"):
        values = [measure(number, noisy(truth, std), truth) for std in (0.02, 0.1, 0.4)]
        assert values == sorted(values, reverse=number != "mse")


def test_batches_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    truth = photographs(64, n=1)
    whole = {number: measure(number, noisy(truth), truth) for number in ("mssim", "vifp")}
    monkeypatch.setattr(image_metrics, "_VALUES_AT_ONCE", 2 * 64 * 64)
    for number, value in whole.items():
        assert measure(number, noisy(truth), truth) == pytest.approx(value, rel=1e-9)


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", ["mssim", "ms_ssim", "vifp"])
def test_images_too_small_are_refused_and_the_size_is_named(number: str) -> None:
    least = SMALLEST[number]
    rng = np.random.default_rng(0)
    enough = rng.random((1, 1, least, least + 3), np.float32)
    assert math.isfinite(measure(number, enough, enough))
    for cut in (enough[:, :, 1:], enough[:, :, :, 4:]):
        height, width = cut.shape[2:]
        with pytest.raises(MetricError, match=rf"images of {height}x{width} pixels are too small.* >= {least} .*mse"):
            measure(number, cut, cut)


@pytest.mark.parametrize("number", ["mse", "psnr"])
def test_errors_are_defined_for_one_pixel(number: str) -> None:
    assert math.isfinite(measure(number, np.zeros((1, 1, 1, 1), np.float32), np.ones((1, 1, 1, 1), np.float32)))


@pytest.mark.parametrize("number", METRICS)
def test_what_is_no_image_is_refused_by_every_metric(number: str) -> None:
    good = np.random.default_rng(0).random((2, 3, 161, 161), np.float32)
    metric: Any = METRICS[number]
    with pytest.raises(MetricError, match="the attack found none"):
        metric(metric.Options()).score(report(None), true(good))

    def refused(found: Images, truth: Images, why: str) -> None:
        with pytest.raises(MetricError, match=why):
            measure(number, found, truth)

    broken = good.copy()
    broken[1, 0, 0, 0] = np.nan
    refused(broken, good, "1 of 2 of the found images hold NaN")
    refused(good, np.where(np.isnan(broken), np.inf, good), "1 of 2 of the true images hold NaN or infinity")
    refused(good * 255, good, r"found images lie in \[.*25\d.*\], which must be in \[0, 1\]")
    refused(good, 2 * good - 1, r"true images lie in \[-.*undo the standardisation")
    refused(good[:1], good, r"\[1, 3, 161, 161\] and \[2, 3, 161, 161\], which must be the same")
    refused(good[:, :1], good, "must be the same")
    refused(good[0], good, r"the found images have the shape \[3, 161, 161\], which must be \(n, C, H, W\)")
    refused(good[:0], good[:0], "none 0")


def test_rounding_of_a_standardisation_undone_is_no_wrong_range() -> None:
    truth = photographs(32)
    mean, std = np.float32(0.4914), np.float32(0.2023)
    back = ((truth - mean) / std) * std + mean
    edges = np.where(truth == truth.max(), np.float32(1 + 2e-7), back)
    assert edges.max() > 1
    assert measure("mse", edges, truth) < 1e-4


def test_vif_of_a_constant_true_channel_is_refused_and_of_a_constant_guess_is_0() -> None:
    truth = photographs(64).copy()
    assert measure("vifp", np.full_like(truth, truth.mean()), truth) == pytest.approx(0, abs=1e-6)
    truth[1, 2] = 0.3
    with pytest.raises(MetricError, match=r"1 channels of the true images have one value only, .* 2 of image 1"):
        measure("vifp", noisy(truth), truth)


def test_a_torchvision_that_does_not_import_is_a_metric_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("operator torchvision::roi_align does not exist")

    monkeypatch.setattr("fedplug_std.torchvision_import.torchvision", broken)
    truth = photographs(32)
    with pytest.raises(MetricError, match=r"cannot be imported .*roi_align.*belong together"):
        measure("mssim", truth, truth)


def test_images_that_an_attack_offers_nothing_for_are_not_recovered() -> None:
    from fedplug_attacks.api.report import AttackReport
    from fedplug_attacks.api.truth import Truth, wilson
    from fedplug_attacks.workshop.scorer import Scorer

    rng = np.random.default_rng(0)
    images = rng.random((4, 1, 8, 8), dtype=np.float32)
    truth = Truth(images=images, labels=np.zeros(4, np.int64), num_classes=2)
    scorer = Scorer({"attacks.mse": Mse(Mse.Options())}, None, (0.5,), 0)
    numbers = scorer.score(AttackReport("finished", images=images[[2]]), truth).numbers
    assert numbers["mse"] == 0
    assert numbers["images_recovered"] == 1 / 4
    assert (numbers["images_recovered_low"], numbers["images_recovered_high"]) == wilson(1, 4)
