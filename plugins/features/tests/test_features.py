"""Features in the place of inputs: what they are, that they follow from public facts alone, and that they are kept."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import fedplug
import numpy as np
import pytest
from features_toys import Toy, made, made_digits
from fedplug import Dataset
from fedplug.api.errors import DataError, RecipeError
from fedplug_features import base
from fedplug_features._scattering import Scattering as Transform
from fedplug_features._scattering import channels
from fedplug_features.oriented_gradients import OrientedGradients
from fedplug_features.projection import Projection, Whitening
from fedplug_features.scattering import Scattering, by_group
from hypothesis import given
from hypothesis import strategies as st

# -- scattering --------------------------------------------------------------------------------------------------------


def test_scattering_is_that_of_kymatio() -> None:
    """kymatio 0.3.0: `Scattering2D(2, (16, 12), L=4)` of this image. It writes 3.1415 for pi, hence 3e-5."""
    y, x = np.mgrid[:16, :12]
    image = (np.sin(0.7 * x + 0.2 * y) + np.cos(0.05 * x * y)).astype(np.float32)
    (found,) = Transform(16, 12, 2, 4)(image[None, None])
    assert found.shape == (channels(2, 4), 4, 3) == (25, 4, 3)
    wanted = [0.069860, 0.069928, 0.110984, 0.129688, 0.230161, 0.008803, 0.014013, 0.011507, 0.008560]
    np.testing.assert_allclose(found[[0, 1, 4, 5, 8, 9, 12, 20, 24], 1, 2], wanted, rtol=1e-4, atol=1e-6)
    assert found.sum() == pytest.approx(22.878527, rel=1e-4)
    assert np.square(found).sum() == pytest.approx(13.80385, rel=1e-4)


@given(st.floats(0.01, 100), st.integers(0, 2**32 - 1))
def test_scattering_of_a_brighter_image_is_as_much_larger(factor: float, seed: int) -> None:
    image = np.random.default_rng(seed).random((1, 1, 8, 8), np.float32)
    transform = Transform(8, 8, 2, 3)
    np.testing.assert_allclose(transform(np.float32(factor) * image), factor * transform(image), rtol=1e-3, atol=1e-4)


def test_each_group_of_maps_is_standardised_in_each_example() -> None:
    maps = np.random.default_rng(0).normal(3, 2, (4, 6, 5, 5)).astype(np.float32)
    found = by_group(maps, 3).reshape(4, 3, -1)
    np.testing.assert_allclose(found.mean(2), 0, atol=1e-6)
    np.testing.assert_allclose(found.std(2), 1, rtol=1e-4)
    np.testing.assert_array_equal(by_group(maps[:1], 3)[0], by_group(maps, 3)[0])  # nobody else's data


# -- projection and whitening ------------------------------------------------------------------------------------------


def test_a_projection_keeps_distances_and_follows_from_its_seed() -> None:
    rows = np.random.default_rng(0).normal(size=(20, 2000)).astype(np.float32)
    found = made(Projection, Toy(rows), size=1000).load(None).train.inputs
    near = np.linalg.norm(found[1:] - found[0], axis=1) / np.linalg.norm(rows[1:] - rows[0], axis=1)
    assert np.abs(near - 1).max() < np.sqrt(8 * np.log(20) / 1000)
    np.testing.assert_array_equal(found, made(Projection, Toy(rows), "other", size=1000).load(None).train.inputs)
    assert not np.array_equal(found, made(Projection, Toy(rows), size=1000, seed=1).load(None).train.inputs)


def test_whitened_public_examples_have_no_correlation_left() -> None:
    rng = np.random.default_rng(0)
    mix = rng.normal(size=(6, 6))
    public = (rng.normal(size=(4000, 6)) @ mix + 3).astype(np.float32)
    private = (rng.normal(size=(4000, 6)) @ mix + 3).astype(np.float32)
    found = made(Whitening, Toy(private), public=Toy(public), size=6, least=1e-9).load(None).train.inputs
    np.testing.assert_allclose(np.cov(found, rowvar=False), np.eye(6), atol=0.15)
    np.testing.assert_allclose(found.mean(0), 0, atol=0.1)
    only = made(Whitening, Toy(private), public=Toy(public), size=2, least=1e-9).load(None).train.inputs
    np.testing.assert_allclose(np.abs(only), np.abs(found[:, :2]), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", [Projection, Whitening])
def test_every_example_has_the_length_that_is_asked_for(kind: Any) -> None:
    rows = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32)
    public = {"public": Toy(rows + 1)} if kind is Whitening else {}
    own, scaled = (made(kind, Toy(rows), size=3, length=length, **public).load(None).train for length in (None, 5))
    np.testing.assert_allclose(np.linalg.norm(scaled.inputs, axis=1), 5, rtol=1e-5)
    directions = own.inputs / np.linalg.norm(own.inputs, axis=1, keepdims=True)
    np.testing.assert_allclose(scaled.inputs, 5 * directions, rtol=1e-4, atol=1e-6)
    zeros = made(Projection, Toy(np.zeros((3, 6), np.float32)), size=3, length=5).load(None).train.inputs
    np.testing.assert_array_equal(zeros, 0)


def test_directions_follow_from_the_first_public_examples() -> None:
    rng = np.random.default_rng(0)
    rows, public, more = (rng.normal(size=(50, 4)).astype(np.float32) for _ in range(3))
    one = made(Whitening, Toy(rows), public=Toy(public), size=2).load(None).train.inputs
    many = Toy(np.concatenate([public, 9 * more]))
    first = made(Whitening, Toy(rows), public=many, size=2, examples=50).load(None).train.inputs
    np.testing.assert_array_equal(first, one)
    assert not np.allclose(made(Whitening, Toy(rows), public=many, size=2).load(None).train.inputs, one)


def test_directions_of_the_clients_own_examples_are_refused() -> None:
    """They would follow from private data, and nobody would pay."""
    rows = np.arange(40, dtype=np.float32).reshape(10, 4)
    public = Toy(np.concatenate([rows[3:5], rows[:8] + 0.5]))
    public.name = "other"
    with pytest.raises(DataError, match="2 examples of toy are among those of other"):
        made(Whitening, Toy(rows), public=public, size=2).load(None)
    # Nor do features of them hide that.
    with pytest.raises(DataError, match="2 examples of toy are among those of made"):
        made(Whitening, Toy(rows), public=made(Projection, public, size=4), size=2).load(None)
    # Nor does it help that directions of other examples follow from them.
    nested = made(Whitening, Toy(rows + 0.25), "outer", public=public, size=4)
    with pytest.raises(DataError, match="2 examples of toy are among those of other"):
        made(Whitening, Toy(rows), public=nested, size=2).load(None)
    # Nor that they are for tests, which are a site's own as well.
    with pytest.raises(DataError, match="1 examples of toy are among those of other"):
        made(Whitening, Toy(rows + 0.25, np.stack([rows[7] + 0.5, rows[9]])), public=public, size=2).load(None)


@pytest.mark.parametrize("colours", [1, 3])
def test_the_clients_own_images_are_known_in_another_form(colours: int) -> None:
    """The same files by another component have other constants, and tables may have been standardised before."""
    images = np.random.default_rng(0).integers(0, 256, (20, colours, 8, 8), np.uint8)
    mine = Toy(images, 0 * images[:2], mean=(0.1307,) * colours, std=(0.3081,) * colours)
    scaled = (images[:5] / 255 - 0.5) / [[[0.25]], [[0.5]], [[1]]][:colours]
    rows = images.reshape(20, -1)
    for theirs, found in [
        (Toy(images[:9], mean=(0.5,) * colours, std=(0.25,) * colours), 9),
        (Toy(scaled.astype(np.float32)), 5),
        (Toy(rows[:7] / np.float32(255)), 7 if colours == 1 else 0),  # in a row there are no channels to tell
        (Toy(255 - images, mean=(0.5,) * colours, std=(0.25,) * colours), 0),
        (Toy(np.full((9, colours, 8, 8), 0.3, np.float32)), 0),
    ]:
        assert base._shared(mine.load(None), theirs.load(None)) == found


# -- nesting, and what is kept -----------------------------------------------------------------------------------------


def test_features_nest_and_see_what_a_model_would() -> None:
    source = made(Projection, made(Scattering, made_digits(), "inner", groups=None), size=50)
    found, pixels = source.load(None), made_digits().load(None)
    assert found.shape == source.declares.shape == (50,)
    assert (found.mean, found.std, found.classes) == ((), (), pixels.classes)
    np.testing.assert_array_equal(found.test.labels, pixels.test.labels)
    standardised = (pixels.test.inputs / np.float32(255) - np.float32(0.3053)) / np.float32(0.3759)
    maps = Transform(8, 8, 2, 8)(standardised.astype(np.float32))
    (drawn,) = [fedplug.stream(0, "features.projection").standard_normal((81 * 4, 50), np.float32)]
    np.testing.assert_allclose(found.test.inputs, maps.reshape(len(maps), -1) @ drawn / 50**0.5, rtol=1e-3, atol=1e-3)


def test_features_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).normal(size=(200, 30)).astype(np.float32)
    first = made(Projection, Toy(rows), size=5).load(None)
    with monkeypatch.context() as patched:
        patched.setattr(base, "_applied", lambda *given: pytest.fail("they were made before"))
        again = made(Projection, Toy(rows), size=5).load(None)
    np.testing.assert_array_equal(again.train.inputs, first.train.inputs)
    np.testing.assert_array_equal(again.test.inputs, first.test.inputs)
    made(Projection, Toy(rows + 1), size=5).load(None)
    made(Projection, Toy(rows), size=6).load(None)
    assert len([*(tmp_path / "cache" / "features").iterdir()]) == 3


def test_other_public_examples_make_other_features(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows, public = (rng.normal(size=(50, 4)).astype(np.float32) for _ in range(2))
    one = made(Whitening, Toy(rows), public=Toy(public), size=2).load(None).train.inputs
    other = made(Whitening, Toy(rows), public=Toy(2 * public), size=2).load(None).train.inputs
    assert not np.allclose(one, other)


def test_sites_must_name_the_public_examples_and_have_them() -> None:
    rng = np.random.default_rng(0)
    rows, public = (rng.normal(size=(50, 4)).astype(np.float32) for _ in range(2))
    recipe = {
        "name": "features", "seed": 1, "rounds": 1, "train": {"use": "std.sgd", "batch_size": 60, "lr": 0.1},
        "data": {
            "use": "features.whitening", "size": 4, "fitted_on": "std.digits", "of": "std.arrays", "at": "sites",
            "clients": 3, "agreed": {"shape": [4], "classes": ["a", "b"], "mean": [], "std": []},
        },
        "model": "std.logistic", "negotiate_mask": {"use": "std.single_zone", "zone": "clear"},
        "protect": {"clear": []}, "aggregate": "std.mean",
    }  # fmt: skip
    with pytest.raises(RecipeError, match=r"something else in place of std\.digits; write sha256"):
        fedplug.check(recipe)
    fedplug.check(recipe | {"data": recipe["data"] | {"sha256": "0" * 64}})
    sites = {key: recipe["data"][key] for key in ("of", "at", "clients", "agreed")}
    own = {"use": "features.torchvision", "model": "resnet18", "weights": "own.pth"}
    for file, said in (
        ({"use": "features.word_vectors", "file": "v.txt"}, r"in place of the word vectors v\.txt; write sha256"),
        (own, r"in place of the weights own\.pth; write sha256"),
    ):
        with pytest.raises(RecipeError, match=said):
            fedplug.check(recipe | {"data": sites | file})
        fedplug.check(recipe | {"data": sites | file | {"sha256": "0" * 64}})
    fedplug.check(recipe | {"data": sites | own | {"weights": None}})  # its SHA-256 is in its name
    with pytest.raises(DataError, match=r"have the sha256 [0-9a-f]{64}, and the recipe says 0") as refused:
        made(Whitening, Toy(rows), public=Toy(public), size=2, sha256="0" * 64).load(None)
    right = re.findall("[0-9a-f]{64}", str(refused.value))[0]
    made(Whitening, Toy(rows), public=Toy(public), size=2, sha256=right).load(None)
    with pytest.raises(DataError, match="and the recipe says"):
        made(Whitening, Toy(rows), public=Toy(2 * public), size=2, sha256=right).load(None)


def test_the_word_of_a_data_set_and_the_component_give_the_same_histograms() -> None:
    word = made_digits(features="oriented_gradients").load(None)
    component = made(OrientedGradients, made_digits())
    assert component.load(None).shape == component.declares.shape == word.shape
    np.testing.assert_allclose(component.load(None).test.inputs, word.test.inputs, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(component.load(None).train.labels, word.train.labels)
    floats = Toy(made_digits().load(None).test.inputs / np.float32(255), mean=(0.3,), std=(0.4,))
    np.testing.assert_allclose(made(OrientedGradients, floats).load(None).train.inputs, word.test.inputs, rtol=1e-6)


def test_what_reads_pixels_is_innermost() -> None:
    around = made(OrientedGradients, made(Scattering, made_digits(), "inner"), "outer")
    with pytest.raises(DataError, match="outer reads pixels, and inner gives other numbers; put it innermost"):
        around.load(None)


@pytest.mark.parametrize(
    ("feature", "said"),
    [
        (lambda: made(OrientedGradients, Toy(np.zeros((3, 7), np.float32))), "reads images, not inputs of shape"),
        (lambda: made(Scattering, Toy(np.zeros((3, 7), np.float32))), "not inputs of shape"),
        (lambda: made(Scattering, Toy(np.zeros((3, 1, 2, 9), np.float32))), "at least 4 x 4 pixels"),
        (lambda: made(Scattering, Toy(np.zeros((3, 1, 8, 8), np.float32)), groups=10), "write 9, or null"),
        (lambda: made(Projection, Toy(np.zeros((3, 7), np.float32)), size=8), "size=8 of 7 numbers"),
        (lambda: made(Whitening, Toy(np.ones((3, 7), np.float32)), public=Toy(np.zeros((3, 7), np.float32)), size=3),
         "size=3 directions of 3 examples"),
    ],
)  # fmt: skip
def test_what_has_no_such_features_is_refused(feature: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        feature().load(None)


def test_answers_that_are_pixels_have_no_features() -> None:
    class Pixels(Toy):
        def load(self, root: str | None) -> Dataset:
            data = super().load(root)
            part = dataclasses.replace(data.train, targets=np.zeros((3, 8, 8), np.uint8))
            return dataclasses.replace(data, train=part, test=part)

    with pytest.raises(DataError, match="classes of pixels"):
        made(Scattering, Pixels(np.zeros((3, 1, 8, 8), np.uint8))).load(None)


def test_a_recipe_on_features_runs_and_its_plan_says_what_they_are(tmp_path: Path) -> None:
    recipe = {
        "name": "features", "seed": 1, "rounds": 1, "train": {"use": "std.sgd", "batch_size": 60, "lr": 0.1},
        "data": {
            "use": "features.projection", "size": 60, "clients": 5, "partition": "std.iid",
            "of": {"use": "features.scattering", "of": "std.digits"},
        },
        "model": "std.logistic", "negotiate_mask": {"use": "std.single_zone", "zone": "clear"},
        "protect": {"clear": []}, "aggregate": "std.mean",
    }  # fmt: skip
    result = fedplug.run(recipe, output=tmp_path, quiet=True)
    with pytest.raises(RecipeError, match="size=2000 of 324 numbers"):
        fedplug.check(recipe | {"data": recipe["data"] | {"size": 2000}})
    within = {"use": "features.scattering", "of": "std.digits", "groups": 10}
    misplaced = {"use": "features.oriented_gradients", "of": {"use": "features.scattering", "of": "std.digits"}}
    with pytest.raises(RecipeError, match=r"data\.of.*oriented_gradients reads pixels, and features.scattering gives"):
        fedplug.check(recipe | {"data": recipe["data"] | {"of": misplaced}})
    with pytest.raises(RecipeError, match=r"data\.of.*groups=10 does not divide its 81 maps; write 9"):
        fedplug.check(recipe | {"data": recipe["data"] | {"of": within}})
    assert result.metrics[-1].accuracy > 0.8


def test_long_work_is_shown_in_a_terminal_and_leaves_no_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    moments = iter(range(0, 1000, 3))
    monkeypatch.setattr(base.time, "monotonic", lambda: next(moments))
    assert [*base._shown(range(0, 200, 64))] == [0, 64, 128, 192]
    assert capsys.readouterr().err == ""  # a file is no terminal
    monkeypatch.setattr(base.sys.stderr, "isatty", lambda: True)
    assert [*base._shown(range(0, 200, 64))] == [0, 64, 128, 192]
    written = capsys.readouterr().err
    assert "64 of 200 examples" in written
    assert written.endswith("\r\x1b[K")
