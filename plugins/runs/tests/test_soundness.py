"""Errors and oddities of examples, in messages that name column, rows and remedy."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug.api.data import About, Examples
from fedplug.api.errors import DataError, FedplugError
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.world import World
from fedplug_runs import soundness
from fedplug_runs.soundness import doubts, problem, ranges
from site_toys import at_sites, write_sites

ABOUT = About(classes=("no", "yes"), mean=(), std=(), columns=("age", "sex=f", "income"))


def examples(inputs: Any, labels: Any = None, targets: Any = None) -> Examples:
    given = np.array(inputs, np.float32)
    return Examples(given, np.array([0] * len(given) if labels is None else labels, np.int64), targets)


GOOD = [[0.1, 0.0, -1.0], [0.3, 1.0, 0.5], [-0.2, 0.0, 0.9]]


def changed(place: tuple[int, int], value: float) -> Examples:
    inputs = np.array(GOOD)
    inputs[place] = value
    return examples(inputs)


def test_nothing_is_wrong_with_good_examples() -> None:
    good = {"training": examples(GOOD, [0, 1, 0]), "test": examples(GOOD, [0, 1, 0])}
    assert problem(good, ABOUT) == ""
    assert doubts(good, ABOUT) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (changed((1, 2), np.nan), "of 1 examples contain values that are not numbers, the first nan in column income"),
        (changed((0, 0), np.inf), "the first inf in column age of example 0 (counted from 0; all: 0)"),
        (examples(GOOD, targets=np.array([[1.0], [np.nan], [np.inf]])), "contain values that are not numbers"),
        (examples(GOOD, [0, 1, 2]), "labels of 1 examples are none of the 2 that have a name, 0 to 1: the first is 2"),
        (examples(np.empty((0, 3))), "there are none"),
        (examples(np.full((2, 1, 2, 2), np.nan)), "in position [0, 0, 0] of example 0"),
        (Examples(np.array(GOOD, object), np.zeros(3, np.int64)), "inputs are object (3, 3), and must be numbers"),
        (Examples(np.array(GOOD), np.array([0.0, 1.0, 0.5])), "labels are float64 (3,), and must be one whole number"),
    ],
)  # fmt: skip
def test_what_is_wrong(given: Examples, said: str) -> None:
    assert said in problem({"training": given}, ABOUT)
    assert problem({"training": examples(GOOD), "test": given}, ABOUT).startswith("test examples: ")


IMAGES = About(classes=("no", "yes"), mean=(0.5,), std=(0.5,))


def pixels(*values: float, kind: Any = np.float32) -> Examples:
    return Examples(np.array(values, kind).reshape(-1, 1, 1, 2), np.arange(len(values) // 2) % 2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (pixels(0, 1, 2, 200), "images are float32 from 0 to 200 (200 in example 1, counted from 0), but must"),
        (pixels(0, 1, 2, 200), "divide them by 255, as float32. What is no image, or is scaled already, goes"),
        (pixels(0, 4095, 1, 2, kind=np.uint16), "divide them by 4095"),
        (pixels(-1, 1, 0, 0), "images are float32 from -1 to 1 (-1 in example 0, counted from 0)"),
        (pixels(0, 1, 1, 0, kind=np.uint8), "the brightest pixel of all 2 images is 1 of 255 (0.4%)"),
        (pixels(0, 0.06, 0.01, 0), "as good as black"),
    ],
)
def test_images_whose_values_mean_something_else(given: Examples, said: str) -> None:
    assert said in problem({"training": given}, IMAGES)


def test_what_no_model_takes_together() -> None:
    train, other = pixels(0, 1, 1, 0), Examples(np.zeros((2, 1, 2, 1), np.float32), np.zeros(2, np.int64))
    assert problem({"training": train, "test": pixels(0, 255, kind=np.uint8)}, IMAGES) == ""
    assert problem({"training": train, "test": other}, IMAGES) == (
        "test examples: inputs have the shape [1, 2, 1], and those of training examples [1, 1, 2]; bring all to one "
        "shape"
    )
    assert "has 3 values; give one a channel" in problem(
        {"training": train}, dataclasses.replace(IMAGES, mean=(0.5,) * 3)
    )
    assert "there is one class, no," in problem(
        {"training": pixels(0, 1)}, dataclasses.replace(IMAGES, classes=("no",))
    )


@pytest.mark.parametrize("part", ["test", "public"])
def test_one_part_in_other_units_is_as_good_as_black(part: str) -> None:
    """Truths as whole numbers, next to training images of 0 to 255."""
    given = {"training": pixels(0, 255, 255, 0, kind=np.uint8), part: pixels(0, 1, 1, 1, kind=np.uint8)}
    assert problem(given, IMAGES).startswith(f"{part} examples: the brightest pixel of all 2 images is 1 of 255")


def test_public_examples_are_found_among_private_ones_of_another_type() -> None:
    bytes_, parts = pixels(10, 200, 30, 40, kind=np.uint8), pixels(200 / 255, 10 / 255, 10 / 255, 200 / 255)
    for train, public in ((bytes_, parts), (parts, bytes_)):
        said = problem({"training": train, "public": public}, IMAGES)
        assert said.startswith("1 training examples are among the public ones, which everybody has")
    tokens = [Examples(np.array([[1, 2], [3, 4]], kind), np.array([0, 1])) for kind in (np.int64, np.uint8)]
    about = About(classes=("0", "1", "2", "3", "4"), mean=(), std=())
    assert problem({"training": tokens[0], "public": tokens[1]}, about).startswith("2 training examples are among")
    assert problem({"training": bytes_, "public": pixels(0.5, 0.1)}, IMAGES) == ""


def test_classes_without_an_example_are_named() -> None:
    about = About(classes=("a", "b", "c"), mean=(), std=())
    train, test = examples(GOOD, [0, 2, 2]), examples(GOOD, [0, 1, 1])
    assert doubts({"training": train, "test": test}, about)[:2] == [
        "no training example has the class b, so that a model learns nothing of it here",
        "no test example has the class c, so that no model is judged by it here",
    ]
    assert doubts({"training": train}, about)[0] == "no examples are held out, so that this site judges no model"


def test_where_nothing_is_trained_columns_may_be_as_they_are() -> None:
    class Nothing:
        name, descends = "acme.nothing", ""

    given = {"training": examples([[40, 0, 900], [60, 0, 900]])}
    assert doubts(given, dataclasses.replace(ABOUT, task=Nothing())) == []
    assert len(doubts(given, ABOUT)) == 4


def test_columns_that_are_constant_or_not_scaled() -> None:
    odd = examples([[40, 0, 900], [41, 0, 900], [60, 0, 900]])

    def doubts(examples: Examples, about: About, scales: bool = False) -> list[str]:
        parts = {"training": examples, "test": examples}
        return [said for said in soundness.doubts(parts, about, scales) if "column" in said]

    constant, wide = doubts(odd, ABOUT)
    assert constant.startswith("1 column of the inputs is the same in all 3 training examples: income (900)")
    assert "sex" not in constant, "of a category that is listed, a site may have nobody"
    assert wide.startswith("2 columns of the inputs are not scaled: income from 900 to 900, age from 40 to 60")
    assert "scale: {income: [CENTRE, SPREAD]}" not in wide
    assert "scale: {income: [CENTRE, SPREAD]} in data" in doubts(odd, ABOUT, scales=True)[1]
    standardised = dataclasses.replace(ABOUT, mean=(1.0,) * 3, std=(1.0,) * 3)
    assert len(doubts(odd, standardised)) == 1
    assert doubts(Examples(np.zeros((4, 1, 2, 2), np.uint8), np.zeros(4, np.int64)), ABOUT) == []
    assert "column 0 from 40 to 60" in doubts(odd, dataclasses.replace(ABOUT, columns=()))[1]


def test_ranges() -> None:
    given = examples([[40, 0, -900], [60, 1, 3]], targets=np.array([[3.0], [7.0]], np.float32))
    assert ranges(given, ABOUT) == (
        "the widest column of the inputs, income, goes from -900 to 3, and answers go from 3 to 7"
    )
    images = Examples(np.array([[[[7, 200]]]], np.uint8), np.zeros(1, np.int64))
    assert ranges(images, dataclasses.replace(ABOUT, mean=(0.5,), std=(0.5,))) == (
        "inputs go from 7 to 200 before they are standardised"
    )


# -- in a run ----------------------------------------------------------------------------------------------------------


def recipe(path: Path, lr: float = 0.1) -> dict[str, Any]:
    return {
        "name": "odd", "seed": 1, "rounds": 2, "min_clients": 2, "model": "std.mlp",
        "data": {"use": "std.arrays", "file": str(path), "clients": 3, "partition": "std.iid", "outputs": 2},
        "train": {"use": "std.sgd", "lr": lr}, "negotiate_mask": {"use": "std.single_zone", "zone": "clear"},
        "protect": {"clear": []}, "aggregate": "std.mean",
    }  # fmt: skip


def write(folder: Path, **changes: Any) -> Path:
    rng = np.random.default_rng(1)
    arrays = {
        f"{split}_{what}": made for split, count in (("train", 30), ("test", 9))
        for what, made in (("inputs", rng.normal(size=(count, 4)) * [1, 1, 1, 90]), ("labels", np.arange(count) % 2))
    }  # fmt: skip
    np.savez(folder / "data.npz", **{**arrays, **changes})
    return folder / "data.npz"


def test_a_run_says_what_is_odd_before_the_first_round(tmp_path: Path) -> None:
    plain = Recipe.from_plain(recipe(write(tmp_path)))
    (said,) = World(plain, Composition(plain), None).doubts
    assert said.startswith("data: 1 column of the inputs is not scaled: column 3 from ")
    heard: list[str] = []
    fedplug.run(
        recipe(write(tmp_path)), output=tmp_path / "runs", quiet=True,
        listeners=[lambda event: heard.append(getattr(event, "text", ""))],
    )  # fmt: skip
    assert said in heard


def test_wrong_labels_and_an_empty_test_set_end_a_run_before_it_begins(tmp_path: Path) -> None:
    for changes, said in (
        ({"train_labels": np.arange(30) % 3}, "labels of 10 examples are none of the 2 that have a name"),
        ({"test_inputs": np.empty((0, 4)), "test_labels": np.empty(0, int)}, "test examples: there are none"),
    ):
        with pytest.raises(DataError, match=said):
            fedplug.run(recipe(write(tmp_path, **changes)), output=tmp_path / "runs", quiet=True)


def test_where_training_diverges_likely_causes_are_named(tmp_path: Path) -> None:
    with pytest.raises(FedplugError, match=r"diverged") as caught:
        fedplug.run(recipe(write(tmp_path), 1e30), output=tmp_path / "runs", quiet=True)
    said = str(caught.value)
    assert "Likely causes: steps too large (lr is 1e+30 in train), or the widest column of the inputs, column 3" in said


def test_what_is_odd_at_a_site_names_the_site(tmp_path: Path) -> None:
    write_sites(tmp_path)
    table = {f"{split}_inputs": np.ones((6, 3), np.float32) for split in ("train", "test")}
    table |= {f"{split}_labels": np.arange(6) % 2 for split in ("train", "test")}
    np.savez(tmp_path / "client-0" / "data.npz", classes=["low", "high"], **table)
    plain = Recipe.from_plain(at_sites(agreed={"shape": [3], "mean": [], "std": []}))
    world = World(plain, Composition(plain), str(tmp_path))
    assert world.doubts == []
    world.holdings([0])
    (said,) = world.doubts
    assert said.startswith(f"data of client 0, in {tmp_path / 'client-0'}: 3 columns of the inputs are the same in all")
    table["train_inputs"][2, 1] = np.nan
    np.savez(tmp_path / "client-0" / "data.npz", classes=["low", "high"], **table)
    with pytest.raises(DataError, match=r"of client 0, in \S*client-0: training examples: .* column 1 of example 2"):
        world.holdings([0])
