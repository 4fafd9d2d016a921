"""Whether the model fits the declared data set. `check` and a run report it with the line of `model`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_calls import GOOD, LIGHT, MAIN, call, python
from fedplug import Declares
from fedplug.api.errors import DataError, RecipeError
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.recipe import Recipe
from fedplug_runs.fitting import misfit
from fedplug_runs.overlay import load_recipe

SITES = (
    "data: {use: std.image_folder, path: ., clients: 4, at: sites, "
    "agreed: {shape: [3, 10, 20], classes: [a, b], mean: [0, 0, 0], std: [1, 1, 1]}}"
)
DATA = "data: {use: std.digits, clients: 4, partition: std.iid}"


def written(folder: Path, data: str = DATA, model: str = "std.lenet5") -> Path:
    path = folder / "r.yaml"
    path.write_text(GOOD.replace(DATA, data).replace("model: std.mlp", f"model: {model}"))
    return path


@pytest.mark.parametrize(
    ("data", "shape"),
    [
        (DATA, "std.digits, which have the shape 1x8x8"),
        (SITES, "std.image_folder, which have the shape 3x10x20"),
        (DATA.replace("std.digits", "std.image_folder, path: x, image_size: 9"),
         "std.image_folder, which have the shape 3x9x9"),
    ],
)  # fmt: skip
def test_the_line_of_the_model_is_named(tmp_path: Path, data: str, shape: str) -> None:
    path = written(tmp_path, data)
    with pytest.raises(RecipeError) as refused:
        load_recipe(path)
    rule = "it takes images of at least 12x12; use larger images or std.mlp"
    assert refused.value.problems == [f"{path}:5:8: std.lenet5 cannot take the examples of {shape}: {rule}"]


def test_it_comes_with_the_other_mistakes(tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as refused:
        load_recipe(written(tmp_path), ["aggregate=std.men"])
    assert len(refused.value.problems) == 2


def test_saying_so_imports_no_torch(tmp_path: Path) -> None:
    result = python(MAIN + LIGHT + "sys.exit(code)", "check", str(written(tmp_path)))
    assert result.returncode == 1, result.stderr
    assert "it takes images of at least 12x12" in result.stdout


def test_what_only_the_files_tell_a_run_says_with_the_same_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    images, labels = np.zeros((20, 8, 8), np.uint8), np.arange(20) % 2
    train, test = ({f"{split}_images": images, f"{split}_labels": labels} for split in ("train", "test"))
    np.savez(tmp_path / "data.npz", classes=["a", "b"], **train, **test)
    path = written(tmp_path, DATA.replace("std.digits", f"std.arrays, file: {tmp_path / 'data.npz'}"))
    load_recipe(path)
    assert call(monkeypatch, "run", str(path), "--output", str(tmp_path / "runs")) != 0
    said = capsys.readouterr().err
    assert f"{path}:5:8: std.lenet5 cannot take the examples of std.arrays, which have the shape 1x8x8" in said
    assert "Traceback" not in said


def test_what_only_building_tells_names_the_line_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedplug.recipe.composition import Composition
    from fedplug.round.world import World

    monkeypatch.setattr("fedplug_std.models.LeNet5.refuses", lambda *given: None)
    path = written(tmp_path)
    recipe = load_recipe(path)
    with pytest.raises(DataError, match=r"r\.yaml:5:8: this model cannot take examples of shape 1x8x8"):
        World(recipe, Composition(recipe), None).model("cpu")
    plain = Recipe.from_plain(recipe.to_plain())
    with pytest.raises(DataError, match=r"^recipe\.model: this model cannot"):
        World(plain, Composition(plain), None).model("cpu")


@pytest.mark.parametrize(
    ("data", "model", "said"),
    [
        ("fedre.documents", "std.mlp", "it gives one class an example, but these need one a pixel"),
        ("fedre.documents, task: kinds", "fedre.unet", "it gives one class per pixel, and these have one per example"),
        ("fedre.documents", "fedre.unet", None),
        ("fedre.documents, task: kinds", "std.mlp", None),
    ],
)
def test_classes_of_pixels_need_a_model_for_them(tmp_path: Path, data: str, model: str, said: str | None) -> None:
    path = written(tmp_path, DATA.replace("std.digits", data), model)
    if said is None:
        load_recipe(path)
        return
    with pytest.raises(RecipeError, match=said):
        load_recipe(path)


def test_a_model_that_fails_to_say_is_a_complaint(
    plain_recipe: dict[str, Any], fake_classes: dict[str, dict[str, type]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*given: Any) -> None:
        raise KeyError("width")

    monkeypatch.setattr(fake_classes["dataset"]["std.digits"], "declares", Declares(shape=(1, 2, 2)))
    monkeypatch.setattr(fake_classes["model"]["std.mlp"], "refuses", refuses)
    with pytest.raises(RecipeError, match=r"recipe\.model: component std\.mlp fails to say what it refuses: KeyError"):
        Recipe.from_plain(plain_recipe, Catalog.of(fake_classes))


def test_a_shape_that_nobody_declares_is_not_asked_about(fake_classes: dict[str, dict[str, type]]) -> None:
    model: Any = fake_classes["model"]["std.mlp"]
    assert misfit(model(None), "std.digits", Declares(num_classes=3)) is None


HUGE = "[1000000000, 1000000000]"


BEYOND = [
    (DATA, f"{{use: std.mlp, hidden: {HUGE}}}", "1,000,000,076,000,000,010"),
    (DATA, f"{{use: std.alexnet, hidden: {HUGE}}}", "1,000,001,036,002,250,442"),
    (DATA.replace("std.digits", "std.mnist"), "{use: std.cnn, hidden: 1000000000}", "3,147,000,019,018"),
    (SITES, f"{{use: std.mlp, hidden: {HUGE}}}", "1,000,000,604,000,000,002"),
    (DATA.replace("std.digits", "std.text, file: t.txt, context: 8"), "{use: std.gpt, width: 10000000}",
     "2,400,005,480,000,256"),
    (SITES.replace("[3, 10, 20]", "[3, 1000000, 2000000]"), "std.logistic", "12,000,000,000,002"),
]  # fmt: skip


def test_a_model_beyond_the_memory_is_refused_before_anybody_builds_it(tmp_path: Path) -> None:
    paths = []
    for number, (data, model, _) in enumerate(BEYOND):
        (folder := tmp_path / str(number)).mkdir()
        (folder / "t.txt").write_text("text")
        paths.append(written(folder, data, model))
    result = python(MAIN + LIGHT + "sys.exit(code)", "check", *map(str, paths))
    assert result.returncode == 1, result.stdout + result.stderr
    for path, (_, model, parameters) in zip(paths, BEYOND, strict=True):
        used = model.partition(",")[0].removeprefix("{use: ")
        (said,) = [line for line in result.stdout.splitlines() if f"{path}:5:8: {used} has {parameters} param" in line]
        assert "it does not fit into this machine's memory of " in said
        assert "make it smaller" in said


def test_a_run_that_learns_the_shape_from_the_data_refuses_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    images, labels = np.zeros((20, 8, 8), np.uint8), np.arange(20) % 2
    train, test = ({f"{split}_images": images, f"{split}_labels": labels} for split in ("train", "test"))
    np.savez(tmp_path / "data.npz", classes=["a", "b"], **train, **test)
    path = written(tmp_path, DATA.replace("std.digits", f"std.arrays, file: {tmp_path / 'data.npz'}"), "std.mlp")
    load_recipe(path)
    words = ["run", str(path), "--output", str(tmp_path / "runs"), "--set", f"model={{use: std.mlp, hidden: {HUGE}}}"]
    assert call(monkeypatch, *words) == 1
    assert "--set model: std.mlp has 1,000,000,068,000,000,002 parameters" in capsys.readouterr().err


def test_a_model_that_fits_twice_is_not_refused(
    plain_recipe: dict[str, Any], fake_classes: dict[str, dict[str, type]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake_classes["dataset"]["std.digits"], "declares", Declares(shape=(1, 2, 2)))
    monkeypatch.setattr(fake_classes["model"]["std.mlp"], "num_parameters", lambda *given: 100)
    monkeypatch.setattr("fedplug_runs.fitting.memory", lambda: 800)
    Recipe.from_plain(plain_recipe, Catalog.of(fake_classes))
    monkeypatch.setattr("fedplug_runs.fitting.memory", lambda: 799)
    with pytest.raises(RecipeError, match=r"has 100 parameters, and two copies .* are 800 bytes: it does not fit"):
        Recipe.from_plain(plain_recipe, Catalog.of(fake_classes))
    monkeypatch.setattr("fedplug_runs.fitting.memory", lambda: None)
    Recipe.from_plain(plain_recipe, Catalog.of(fake_classes))


OPTIONS: dict[str, dict[str, Any]] = {
    "std.image_folder": {"path": "."}, "std.text": {"file": "text.txt"}, "std.table": {"answer": "y"},
    "std.torchvision": {"dataset": "KMNIST"}, "features.projection": {"size": 10}, "features.whitening": {"size": 10},
    "features.torchvision": {"model": "resnet18"}, "features.timm": {"model": "resnet18", "weights": "x.safetensors"},
    "features.huggingface": {"folder": "vit", "inputs": "images"}, "std.text_table": {"answer": "y"},
    "std.simulated_users": {"users": 9},
    "features.word_vectors": {"file": "glove.txt"}, "features.ngrams": {"size": 10}, "features.tfidf": {"size": 10},
}  # fmt: skip
TOLD_BY_FILES = {"std.arrays", "std.table", "std.huggingface", "std.torchvision"}
SHAPED_BY_FILES = {"features.huggingface", "features.timm", "features.torchvision"}
OF_TEXTS = {"features.ngrams", "features.tfidf", "features.word_vectors"}


@pytest.mark.parametrize("name", [entry.name for entry in Catalog.discover() if entry.group == "dataset"])
def test_every_data_set_declares_its_shape(name: str) -> None:
    entry = Catalog.discover().get("dataset", name)
    assert entry is not None
    found: Any = entry.load()
    source = found(found.Options.model_validate(OPTIONS.get(name, {})))
    for within in found.inner:  # features of images
        digits: Any = Catalog.discover().groups["dataset"]["std.digits"].load()
        setattr(source, within, digits(digits.Options()))
    source.name = name
    declares = source.declares
    assert (declares.shape is None) == (name in TOLD_BY_FILES | SHAPED_BY_FILES | OF_TEXTS), declares
    assert (declares.num_classes is None) == (name in TOLD_BY_FILES | {"std.image_folder", "std.text_table"})
