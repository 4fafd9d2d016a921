"""Pictures of attacked targets: what is in them, and that equal results give equal files."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from fedplug_attacks.workshop import pictures as attack_pictures
from fedplug_attacks.workshop.pictures import Challenge, draw, figure_of, roc_curve
from fedplug_attacks.workshop.records import ProbedBatch, Ranking, TargetResult, TrueClasses
from matplotlib.figure import Figure
from numpy.typing import NDArray
from target_toys import a_target, an_outcome


def a_result(**changes: Any) -> TargetResult:
    forms = {
        "naive": an_outcome(metrics={"mse": 0.21, "psnr": 6.8}, labels=[2]),
        "adaptive": an_outcome("success", metrics={"psnr": 60.0, "mse": 1e-6}, labels=[7]),
    }
    given: dict[str, Any] = {
        "probe": ProbedBatch(1, 1), "forms": forms, "baselines": {"mean image": {"mse": 0.08}},
        "truth": TrueClasses([0, 0, 1], [7]), **changes,
    }  # fmt: skip
    return a_target(**given)


def images(number: int, channels: int = 1, side: int = 8) -> NDArray[np.float32]:
    return np.random.default_rng(number).random((number, channels, side, side), np.float32)


def texts(figure: Figure) -> str:
    """Everything a picture says, line breaks as blanks."""
    found = [figure.get_suptitle()]
    for ax in figure.axes:
        found += [ax.get_title(loc) for loc in ("left", "center")] + [ax.get_xlabel()]
        found += [text.get_text() for text in ax.texts]
        if (legend := ax.get_legend()) is not None:
            found += [text.get_text() for text in legend.get_texts()]
    return " ".join(" ".join(found).split())


def shown_images(figure: Figure) -> int:
    return sum(len(ax.images) for ax in figure.axes)


@pytest.fixture(autouse=True)
def _style() -> Any:
    with matplotlib.rc_context(attack_pictures._STYLE):
        yield


def test_one_image_stands_in_three_columns_with_numbers_below() -> None:
    truth = images(1)
    figure = figure_of(a_result(), truth, {"naive": 1 - truth, "adaptive": truth})
    assert len(figure.axes) == 2 * 3
    assert shown_images(figure) == 3
    said = texts(figure)
    assert "toy.copy server, round 1, client 3, probe 1 with 1 example entries: clear 90.0%, encrypted 10.0%" in said
    for part in ("mean image: MSE 0.080", "failed MSE 0.210 PSNR 6.8 dB", "success MSE 1.00e-06 PSNR 60.0 dB",
                 "adaptive (the stronger)", "class 7", "class 2"):  # fmt: skip
        assert part in said, part
    columns = [ax.images[0].get_array() for ax in figure.axes if ax.images]
    assert np.array_equal(columns[0][..., 0], truth[0, 0])
    assert np.array_equal(columns[0], columns[2])
    assert not np.array_equal(columns[0], columns[1])


def test_only_the_forms_there_are_have_a_column() -> None:
    result = a_result(forms={"adaptive": a_result().forms["adaptive"]})
    figure = figure_of(result, images(1), {"adaptive": images(1)})
    assert len(figure.axes) == 2 * 2
    assert "naive" not in texts(figure)
    assert "stronger" not in texts(figure)
    equal = figure_of(
        a_result(forms=dict.fromkeys(("naive", "adaptive"), a_result().forms["naive"])), images(1),
        {"adaptive": images(1)},
    )  # fmt: skip
    assert "stronger" not in texts(equal)


def test_many_images_are_a_grid_and_the_rest_is_counted() -> None:
    figure = figure_of(a_result(), images(30), {"naive": images(3), "adaptive": images(30)})
    assert shown_images(figure) == 8 + 3 + 8
    assert "22 more images of this target are not shown" in texts(figure)


def test_a_form_without_an_image_says_why() -> None:
    result = a_result()
    reason = "the bias of the last layer is encrypted, so labels cannot be counted"
    result.forms["adaptive"] = an_outcome("not_applicable", reason)
    figure = figure_of(result, images(1), {"naive": images(1), "adaptive": None})
    assert shown_images(figure) == 2
    assert "no image: not applicable" in texts(figure)
    assert reason in texts(figure)


def test_grey_colour_and_broken_pixels() -> None:
    broken = np.full((1, 3, 8, 8), np.nan, np.float32)
    figure = figure_of(a_result(), images(1, 3), {"naive": broken, "adaptive": images(1, 2)})
    truth, naive, adaptive = [ax.images[0].get_array() for ax in figure.axes if ax.images]
    assert np.array_equal(truth, images(1, 3)[0].transpose(1, 2, 0))
    assert len(np.unique(naive.reshape(-1, 3), axis=0)) == 1  # one colour, and not a grey
    assert len(np.unique(naive)) == 3
    assert np.allclose(adaptive, images(1, 2)[0].mean(0)[..., None])


@pytest.mark.parametrize(("side", "interpolation"), [(8, "nearest"), (32, "nearest"), (224, "antialiased")])
def test_small_images_are_not_smoothed(side: int, interpolation: str) -> None:
    figure = figure_of(a_result(), images(1, 1, side), {"naive": images(1, 1, side), "adaptive": images(1, 1, side)})
    assert {ax.images[0].get_interpolation() for ax in figure.axes if ax.images} == {interpolation}


def counts_result(truth: list[int], **found: list[float | None]) -> TargetResult:
    result = a_result(truth=TrueClasses(truth, []))
    for form, counts in found.items():
        result.forms[form].counts = [math.nan if count is None else count for count in counts]
    return result


def heights(figure: Figure, panel: int) -> list[list[float]]:
    return [[bar.get_height() for bar in bars] for bars in figure.axes[panel].containers]  # type: ignore[attr-defined]


def test_counts_are_bars_beside_the_true_ones_in_a_panel_for_each_form() -> None:
    figure = figure_of(counts_result([3, 0, 2], naive=[0, 0, 0], adaptive=[3, 1, 1]), images(5), {})
    assert len(figure.axes) == 2
    assert heights(figure, 0) == [[3, 0, 2], [0, 0, 0]]
    assert heights(figure, 1) == [[3, 0, 2], [3, 1, 1]]
    assert "adaptive (the stronger): success, MSE 1.00e-06" in texts(figure)
    assert "trivial guesses: mean image: MSE 0.080" in texts(figure)


def test_labels_are_counted_where_there_are_no_counts() -> None:
    result = counts_result([1, 0, 2], adaptive=[1])
    result.forms["naive"].labels = [2, 2, 9]
    figure = figure_of(result, None, {})
    assert heights(figure, 0) == [[1, 0, 2], [0, 0, 2]]
    assert heights(figure, 1) == [[1, 0, 2]]  # counts of another number of classes are not drawn


def test_of_many_classes_those_that_are_wrong_are_shown() -> None:
    truth = np.ones(1000)
    wrong = truth.copy()
    wrong[[17, 800]] = 4, 0
    ones = truth.astype(int).tolist()
    figure = figure_of(counts_result(ones, naive=truth.tolist(), adaptive=wrong.tolist()), None, {})
    true, found = heights(figure, 1)
    assert len(true) == len(found) == 100
    assert sum(a != b for a, b in zip(true, found, strict=True)) == 2
    assert "100 of 1000 classes are shown. Some form is wrong in 2 classes; 2 of these are among them." in texts(figure)


def test_a_count_that_is_far_off_leaves_the_true_ones_visible() -> None:
    figure = figure_of(counts_result([3, 0, 2], naive=[1e9, None, 0], adaptive=[3, 0, 2]), None, {})
    assert figure.axes[0].get_ylim()[1] < 10


def test_members_have_a_roc_curve_and_a_histogram_for_each_form() -> None:
    members = np.arange(40) < 20
    scores = {"naive": np.zeros(40), "adaptive": np.where(members, 1.0, 0.0)}
    figure = figure_of(a_result(), images(3), {}, Challenge(members, scores))
    assert len(figure.axes) == 3
    assert figure.axes[0].get_xscale() == figure.axes[0].get_yscale() == "log"
    assert "naive, AUC 0.500 adaptive, AUC 1.000" in texts(figure)


def test_roc_curve_of_a_worked_example() -> None:
    # Sorted: member, other and member tied, other. The tie is one point.
    false, true = roc_curve(np.array([0.9, 0.5, 0.5, np.nan]), np.array([True, False, True, False]))
    assert false.tolist() == [0, 0, 0.5, 1]
    assert true.tolist() == [0, 0.5, 1, 1]
    assert [rate.tolist() for rate in roc_curve(np.empty(0), np.empty(0, bool))] == [[0], [0]]


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures of few dots, which are soon drawn."""
    monkeypatch.setattr(attack_pictures, "_DOTS_PER_INCH", 30)


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize(("adaptive", "naive"), [
    (np.full(4, np.nan), np.full(4, 1e300)), (np.zeros(4), np.array([np.inf, 0, -1, 2])),
])  # fmt: skip
def test_any_scores_can_be_drawn(adaptive: NDArray[np.float64], naive: NDArray[np.float64], tmp_path: Path) -> None:
    scores = {"adaptive": adaptive, "naive": naive}
    members = Challenge(np.array([True, False, True, False]), scores)
    draw(tmp_path / "a.png", a_result(), None, {}, members)
    assert matplotlib.image.imread(tmp_path / "a.png").std() > 0
    scores["naive"] = naive[:3]  # which says nothing of four candidates
    assert len(figure_of(a_result(), None, {}, members).axes) == 2


def test_the_same_result_gives_the_same_bytes_without_names_of_software_or_machine(tmp_path: Path) -> None:
    files = [tmp_path / "one.png", tmp_path / "there" / "two.png"]
    files[1].parent.mkdir()
    for file in files:
        draw(file, a_result(), images(2), {"naive": images(1), "adaptive": images(2)})
    first, second = (file.read_bytes() for file in files)
    assert first == second
    for trace in (b"atplotlib", b"Software", b"tIME", str(tmp_path).encode()):
        assert trace not in first
    read = matplotlib.image.imread(files[0])
    assert read.shape[1] > 500
    draw(files[0], a_result(), images(2), {"naive": images(1), "adaptive": 1 - images(2)})
    assert files[0].read_bytes() != first


@pytest.mark.usefixtures("coarse")
def test_a_picture_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.png"
    draw(file, a_result(), images(1), {"naive": images(1), "adaptive": images(1)})
    before = file.read_bytes()

    def fail(*_: Any) -> None:
        raise OSError(28, "disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        draw(file, a_result(attack="other"), images(1), {"naive": images(1), "adaptive": images(1)})
    assert file.read_bytes() == before


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize(
    "changes",
    [{"forms": {}}, {"truth": TrueClasses([], [])}, {"baselines": {}}, {"states": {}}, {"headline": None},
     {"ranking": Ranking("", "high"), "success": None}, {"probe": None, "meaning": None}],
    ids=lambda changes: "-".join(changes),
)  # fmt: skip
def test_a_result_that_says_little_is_still_drawn(changes: dict[str, Any], tmp_path: Path) -> None:
    draw(tmp_path / "a.png", a_result(**changes), images(1), {"naive": images(1), "adaptive": images(1)})
    figure_of(a_result(**changes), images(1), {}).draw_without_rendering()
    assert matplotlib.image.imread(tmp_path / "a.png").std() > 0


def test_signs_of_mathematics_and_long_names_are_drawn_as_they_are(tmp_path: Path) -> None:
    result = a_result(attack="$\\frac{ " * 40, adversary="server+" * 40)
    result.forms["adaptive"].reason = "$^ " * 300
    draw(tmp_path / "a.png", result, images(1), {"naive": images(1), "adaptive": images(1)})
    width = matplotlib.image.imread(tmp_path / "a.png").shape[1]
    assert width < 1100
