"""Objects of a session as files of a recipe."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import fedplug
import numpy as np
import pytest
import torch
from fedplug.api.errors import DataError, SetupError
from fedplug.recipe.composition import Composition
from fedplug_runs import session
from notebook_cells import arrays, notebook
from python_toys import PLAIN


def names(recipe: fedplug.Recipe) -> list[str]:
    return [own.name for own in recipe.own_files]


def test_each_object_is_a_file() -> None:
    made = notebook()
    recipe = fedplug.check(PLAIN, model=made["Net"], data=arrays(), loss=made["focal"])
    assert names(recipe) == ["session_data.py", "session_model.py", "session_loss.py"]
    assert recipe.model.use == "session_model.py:Net"
    assert recipe.data.clients == 4  # of the recipe, as its partition is
    assert recipe.train.to_plain()["lr"] == 0.05
    assert session.only_in_memory(recipe.own_files) == [
        "data: its arrays are in the memory of the Python session alone; keep_data=True keeps them in the run folder"
    ]
    again = fedplug.check(PLAIN, model=made["Net"], data=arrays(), loss=made["focal"])
    assert again.digest == recipe.digest
    assert fedplug.check(PLAIN, model=made["Net"], data=arrays(1), loss=made["focal"]).digest != recipe.digest


def test_objects_have_options_as_names_have(tmp_path: Path) -> None:
    made = notebook()
    file = tmp_path / "small.yaml"
    file.write_text(str(PLAIN), encoding="utf-8")
    data = {"use": arrays(), "clients": 2, "partition": "std.iid", "classes": ["above", "below"]}
    recipe = fedplug.check(
        file, model={"use": made["Net"], "hidden": 3}, data=data, train={"use": made["focal"], "lr": 1}
    )
    assert recipe.model.to_plain()["hidden"] == 3
    assert recipe.data.clients == 2
    assert recipe.train.to_plain()["lr"] == 1
    with pytest.raises(fedplug.RecipeError, match="hidden"):
        fedplug.check(file, model={"use": made["Net"], "hiden": 3})


def test_arrays_come_by_name_too_and_from_functions() -> None:
    made = notebook()
    named = dict(zip(session.ARRAYS, arrays(), strict=True))
    by_name, in_order = (fedplug.check(PLAIN, data=given) for given in (named, arrays()))
    assert by_name.digest == in_order.digest
    made.cell("def load(root, count: int = 4):\n    return None\n")
    recipe = fedplug.check(PLAIN, data={"use": made["load"], "count": 5})
    assert recipe.data.clients == 4
    assert not session.only_in_memory(recipe.own_files)


RNG = np.random.default_rng(0)
TABLE, TOKENS = RNG.normal(size=(24, 5)), RNG.integers(0, 30, (24, 6))
Y = np.arange(24) % 3
PIXELS = RNG.integers(0, 256, (24, 4, 4)).astype(np.uint8)


@pytest.mark.parametrize(
    ("inputs", "answers", "task", "shape", "classes", "kinds"),
    [
        (TABLE, Y, None, (5,), 3, "fi"),
        (TABLE > 0, Y + 1, "std.classification", (5,), 3, "fi"),
        (np.rint(TABLE).astype(np.int8), np.array(["x", "y", "z"], object)[Y], None, (5,), 3, "fi"),
        (TABLE[:, 0], np.eye(3)[Y], None, (1,), 3, "fi"),
        (TABLE, TABLE[:, 1], {"use": "std.regression", "unit": "m"}, (5,), 1, "ff"),
        (TABLE, Y, "std.regression", (5,), 1, "ff"),
        (PIXELS, TABLE[:, :2], "std.regression", (1, 4, 4), 2, "uf"),
        (TABLE, (TABLE[:, :2] > 0), "std.multi_label", (5,), 2, "fi"),
        (TOKENS.astype(np.uint16), np.roll(TOKENS, -1, 1), "std.language_model", (6,), 30, "ii"),
        (PIXELS / 255, PIXELS > 99, "std.segmentation", (1, 4, 4), 2, "fi"),
        (PIXELS.astype(">i4"), Y.astype(float), None, (1, 4, 4), 3, "ui"),
        (torch.tensor(PIXELS), torch.tensor(Y), None, (1, 4, 4), 3, "ui"),
    ],
)
def test_arrays_of_any_type_are_what_the_task_takes(
    inputs: Any, answers: Any, task: Any, shape: tuple[int, ...], classes: int, kinds: str
) -> None:
    given = {"task": task} if task else {}
    recipe = fedplug.check(PLAIN, data=(inputs, answers, inputs[:9], answers[:9]), **given)
    data = Composition(recipe).part(recipe.data.name, fedplug.DataSource).load(None)
    assert (data.shape, len(data.classes), len(data.train), len(data.test)) == (shape, classes, 24, 9)
    assert data.train.inputs.dtype.kind + data.train.answers.dtype.kind == kinds
    if kinds == "fi" and len(shape) == 1 and task != "std.multi_label":
        assert data.train.labels.tolist() == Y.tolist()


def test_tokens_by_name_and_the_size_of_their_vocabulary(tmp_path: Path) -> None:
    named = {"train_inputs": TOKENS, "train_targets": TOKENS, "test_inputs": TOKENS, "test_targets": TOKENS}
    recipe = fedplug.check(PLAIN, data={"use": named, "outputs": 40}, task="std.language_model")
    data = Composition(recipe).part(recipe.data.name, fedplug.DataSource).load(None)
    assert (data.train.inputs.dtype, len(data.classes)) == (np.int64, 40)
    assert [len(fedplug.check(PLAIN, data=each, task="std.language_model").digest) for each in (named,)] == [64]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((TABLE, TABLE[:, 0], TABLE, TABLE[:, 0]), r"holds 0\.1257.* is no class; .* task: std\.regression"),
        ((TOKENS, TOKENS, TOKENS, TOKENS), r"give one class an example.* tokens with std\.lang"),
        ((TABLE, Y, TABLE[:, :4], Y), r"test examples: inputs have the shape \[4\], and those of training .* \[5\]"),
        ((PIXELS.astype(np.float32), Y, PIXELS / 255, Y), r"images are float32 from 0 to 25\d .* divide them by 255"),
        ({"train_inputs": TOKENS, "train_labels": Y, "test_inputs": TOKENS, "test_labels": Y}, "Whole numbers are"),
        ({"train_inputs": TABLE, "train_labels": Y}, r"has no array test_inputs; it has train_inputs, train_labels"),
    ],
)
def test_what_is_refused_names_the_array_and_the_remedy(tmp_path: Path, data: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        fedplug.run(PLAIN, data=data, model="std.mlp", rounds=1, output=tmp_path, quiet=True)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"data": type("Frame", (), {"to_csv": None})()}, r"with named columns, goes by a file: .*'std\.table'"),
        ({"data": arrays()[:3]}, "data, a tuple, must be train_images, train_labels, test_images, test_labels"),
        ({"data": (*arrays()[:3], np.array([None]))}, "test_labels holds Python objects"),
        ({"data": (*arrays()[:3], [[1], [2, 3]])}, "data: test_labels is no array"),
        ({"model": 3}, "model=3 must be a class or a function"),
        ({"model": max}, "does not say which arguments it takes"),
        ({"train": "acme.adam", "loss": max}, "goes with an installed trainer, and the recipe has acme.adam"),
    ],
)
def test_what_nobody_can_use(given: dict[str, Any], message: str) -> None:
    with pytest.raises(SetupError, match=message):
        fedplug.check(PLAIN, **given)


def test_masked_values_are_not_taken_for_values() -> None:
    masked = np.ma.masked_array(TABLE, TABLE.mean() < TABLE)
    with pytest.raises(SetupError, match=r"data: train_inputs has \d+ masked values.*\.filled\(VALUE\)"):
        fedplug.check(PLAIN, data={"train_inputs": masked, "train_labels": Y, "test_inputs": TABLE, "test_labels": Y})


def test_the_loss_is_for_the_trainer_of_the_recipe() -> None:
    made = notebook()
    train = {"use": "std.fedprox", "mu": 0.5, "lr": 0.1}
    recipe = fedplug.check(PLAIN, train=train, loss=made["focal"])
    assert recipe.train.to_plain()["mu"] == 0.5
    assert recipe.train.use == "session_loss.py:focal_by_FedProx"
    with pytest.raises(fedplug.RecipeError, match=r"is not a subclass of std\.sgd and accepts no other loss"):
        fedplug.check(PLAIN, train={"use": "baselines.dp_sgd", "norm": 1.0}, loss=made["focal"])


def test_objects_without_a_source_stay_in_memory() -> None:
    made = notebook()
    model = made["Net"]((1, 8, 8), 10)
    recipe = fedplug.check(PLAIN, model=model, loss=torch.nn.CrossEntropyLoss())
    of_model, of_loss = session.only_in_memory(recipe.own_files)
    assert of_model.startswith(
        "model is in the memory of the Python session that ran this alone, since it is an object"
    )
    assert "a CrossEntropyLoss" in of_loss
    partial = functools.partial(made["Net"], hidden=3)
    assert fedplug.check(PLAIN, model={"use": partial, "hidden": 5}).model.to_plain()["hidden"] == 5


def test_another_session_is_told_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = fedplug.check(PLAIN, data=arrays())
    (own,) = recipe.own_files
    sha256 = own.module().SHA256
    session.keep_arrays([own], tmp_path)
    assert (tmp_path / "session_data.npz").stat().st_mode & 0o077 == 0
    monkeypatch.setattr(session, "_arrays", {})
    monkeypatch.setattr(session, "_held", {})
    with pytest.raises(SetupError, match="were in the memory of another Python session; give them again"):
        own.made()["data"](None)
    with pytest.raises(SetupError, match="why"):
        session.held("token", "why")
    kept = session.arrays(sha256, str(tmp_path / "session_data.py"))
    np.testing.assert_array_equal(kept["train_images"], arrays()[0])
    np.savez(tmp_path / "session_data.npz", **{**kept, "train_labels": kept["train_labels"] * 0})
    with pytest.raises(SetupError, match="were changed since"):
        session.arrays(sha256, str(tmp_path / "session_data.py"))
    (tmp_path / "session_data.npz").write_bytes(b"no")
    with pytest.raises(SetupError, match="cannot be read"):
        session.arrays(sha256, str(tmp_path / "session_data.py"))


def test_arrays_that_are_changed_are_noticed() -> None:
    given = arrays()
    (own,) = fedplug.check(PLAIN, data=given).own_files
    given[0][0] += 1
    with pytest.raises(SetupError, match="were changed since"):
        own.made()["data"](None)


def test_a_session_remembers_a_few_data_sets() -> None:
    for seed in range(12):
        fedplug.check(PLAIN, data=arrays(seed))
    assert len(session._arrays) == 8
