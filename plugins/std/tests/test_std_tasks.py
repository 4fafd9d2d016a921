"""Tasks: losses, figures and refusals by hand, and whole runs on tables."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import fedplug
import numpy as np
import pytest
import torch
from fedplug import Examples
from fedplug.api.data import About, ClientData
from fedplug.api.errors import DataError, FedplugError, RecipeError
from fedplug.recipe.recipe import Recipe
from fedplug_lab.records import result_of
from fedplug_lab.report import rounds_tables
from fedplug_runs.overlay import load_recipe
from fedplug_std import tasks, torch_model
from fedplug_std.models import Gpt
from fedplug_std.per_sample import per_sample_gradients
from fedplug_std.torch_model import TorchModel, batch_of, to_tensor
from torch import nn

ROOT = Path(__file__).parents[3]


def task(kind: type[fedplug.Task], **options: Any) -> fedplug.Task:
    made = kind(kind.Options(**options))
    made.name = "the task"
    return made


def of(part: Examples, classes: int, what: fedplug.Task | None = None, mean: tuple[float, ...] = ()) -> ClientData:
    names = tuple(map(str, range(classes)))
    return ClientData(part, part, part, classes=names, mean=mean, std=(1.0,) * len(mean), task=what)


def added(what: fedplug.Task, *batches: tuple[Any, Any]) -> dict[str, float]:
    total: dict[str, float] = {}
    for outputs, answers in batches:
        for name, number in what.counts(torch.tensor(outputs), torch.tensor(answers)).items():
            total[name] = total.get(name, 0) + number
    return what.figures(total)


# -- figures -----------------------------------------------------------------------------------------------------------


def test_regression_in_the_unit_of_the_data_over_batches() -> None:
    """Errors -10, 0, 20, 0 of the answers 110, 100, 80, 110, whose mean is 100."""
    what = task(tasks.Regression, centre=100.0, scale=10.0, unit="mmHg")
    found = added(what, ([[0.0], [0.0]], [[110.0], [100.0]]), ([[0.0], [1.0]], [[80.0], [110.0]]))
    assert found == {"RMSE": pytest.approx(math.sqrt(500 / 4)), "R2": pytest.approx(1 - 500 / 600)}
    assert [(each.name, each.better, each.unit) for each in what.judged_by] == [
        ("RMSE", "lower", "mmHg"), ("R2", "higher", ""),
    ]  # fmt: skip
    losses = what.losses(torch.tensor([[0.0], [2.0]]), torch.tensor([[110.0], [100.0]]))
    assert losses.tolist() == [1.0, 4.0], "in units of the scale"
    assert math.isnan(added(what, ([[0.0], [0.0]], [[5.0], [5.0]]))["R2"])


def test_several_labels_have_micro_and_macro_f1() -> None:
    """Label 0: called twice, once rightly, there once; label 1: there twice, called once; label 2: neither."""
    outputs, answers = [[2.0, -1.0, -1.0], [3.0, 4.0, -2.0]], [[1, 1, 0], [0, 1, 0]]
    found = added(task(tasks.MultiLabel), (outputs, answers))
    assert found == {"micro F1": pytest.approx(4 / 6), "macro F1": pytest.approx(2 / 3)}


def test_perplexity_of_equal_numbers_is_the_vocabulary_and_what_is_ignored_does_not_count() -> None:
    what = task(tasks.LanguageModel)
    outputs, answers = torch.zeros(2, 3, 5), torch.tensor([[0, 1, -1], [4, -1, -1]])
    assert what.figures(what.counts(outputs, answers)) == {
        "perplexity": pytest.approx(5.0), "tokens foreseen": pytest.approx(1 / 3),
    }  # fmt: skip
    assert what.losses(outputs, answers).tolist() == pytest.approx([math.log(5)] * 2)


def test_each_task_knows_what_a_guess_gets() -> None:
    numbers = np.array([[1.0], [2.0], [6.0]], np.float32)
    found = task(tasks.Regression).guesses(numbers)
    assert found == {"RMSE": pytest.approx(np.std(numbers)), "R2": 0.0}
    pixels = np.array([[[0, 0], [0, 1]]])
    assert task(tasks.Segmentation).guesses(pixels) == {"mean IoU": 0.375, "accuracy": 0.75}
    tokens = np.array([[1, 1, 1, 1, -1], [2, 2, 3, 3, -1]])
    entropy = 0.5 * math.log(2) + 0.5 * math.log(4)
    found = task(tasks.LanguageModel).guesses(tokens)
    assert found == {"perplexity": pytest.approx(math.exp(entropy)), "tokens foreseen": 0.5}
    labels = np.array([[1, 0], [1, 1]])
    always = task(tasks.MultiLabel)
    outputs = torch.ones(2, 2)
    expected = always.figures(always.counts(outputs, torch.from_numpy(labels)))
    assert always.guesses(labels) == pytest.approx(expected)
    # As a model that says the commonest class at every pixel.
    pixelwise = task(tasks.Segmentation)
    said = torch.zeros(1, 2, 2, 2)
    said[:, 0] = 1
    assert pixelwise.figures(pixelwise.counts(said, torch.from_numpy(pixels))) == pixelwise.guesses(pixels)
    assert task(tasks.Classification).guesses(np.array([0, 1])) == {}, "what a guess of a class gets any run knows"


def test_outputs_are_those_of_examples_with_one_class_each(monkeypatch: pytest.MonkeyPatch) -> None:
    model = TorchModel(nn.Sequential(nn.Flatten(), nn.Linear(4, 3)))
    rng = np.random.default_rng(0)
    sets = [Examples(rng.normal(size=(n, 4)).astype(np.float32), rng.integers(0, 3, n)) for n in (5, 3)]
    about: dict[str, Any] = {"classes": ("a", "b", "c"), "mean": (), "std": ()}
    for of in (None, task(tasks.Classification)):
        data = ClientData(sets[0], sets[0], sets[0], task=of, **about)
        together = model.evaluate_each(sets, data)
        monkeypatch.setattr(torch_model, "_EVALUATION_BATCH", 2)
        alone = model.evaluate_each(sets, data)
        monkeypatch.undo()
        for one, other, given in zip(together, alone, sets, strict=True):
            assert one.outputs is not None
            assert one.outputs.shape == (len(given), 3)
            np.testing.assert_allclose(one.outputs, other.outputs, rtol=1e-5, atol=1e-6)
            assert one.correct == int((one.outputs.argmax(1) == given.labels).sum())
    monkeypatch.setattr(torch_model, "MOST_OUTPUTS", 5)
    monkeypatch.setattr(torch_model, "_EVALUATION_BATCH", 2)
    assert model.evaluate_each(sets, data)[0].outputs is None


def test_segmentation_is_led_by_the_mean_iou() -> None:
    outputs = torch.tensor([[[[9.0, 0.0], [9.0, 0.0]], [[0.0, 9.0], [0.0, 9.0]]]])  # left 0, right 1
    what = task(tasks.Segmentation)
    found = what.figures(what.counts(outputs, torch.tensor([[[0, 1], [0, 0]]])))
    assert found == {"mean IoU": pytest.approx((2 / 3 + 1 / 2) / 2), "accuracy": 0.75}


@pytest.mark.parametrize("what", [tasks.Classification, tasks.Segmentation])
def test_classes_count_as_where_no_task_is_named(what: type[fedplug.Task]) -> None:
    rng = np.random.default_rng(0)
    inputs = rng.random((9, 2, 4, 4)).astype(np.float32)
    pixels = what is tasks.Segmentation
    part = Examples(inputs, rng.integers(0, 3, 9), rng.integers(0, 3, (9, 4, 4), np.uint8) if pixels else None)
    model = TorchModel(nn.Conv2d(2, 3, 1) if pixels else nn.Sequential(nn.Flatten(), nn.Linear(32, 3)))
    plain, named = (model.evaluate(part, of(part, 3, each, (0.5, 0.5))) for each in (None, task(what)))
    assert (named.correct, named.count) == (plain.correct, plain.count)
    assert named.loss == pytest.approx(plain.loss, rel=1e-5)
    first, second = (
        torch.cat([*per_sample_gradients(model, part, of(part, 3, each, (0.5, 0.5)))]) for each in (None, task(what))
    )
    assert torch.allclose(first, second, atol=1e-6)


# -- inputs, and memory ------------------------------------------------------------------------------------------------


def test_inputs_stay_as_they_are_where_no_normalisation_is_asked_for() -> None:
    tokens, row = np.array([[1, 2, 3]]), np.array([[1e6, -3.0]])
    assert to_tensor(tokens, (), ()).dtype == torch.int64
    assert to_tensor(row, (), ()).tolist() == row.tolist()
    assert to_tensor(row.astype(np.float32), (1.0, 0.0), (1e6, 3.0)).tolist()[0][1] == -1.0


def test_evaluation_is_bounded_by_what_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vocabulary of 8,000 at 128 positions: 16 examples are 64 MiB of outputs."""
    tokens = np.zeros((40, 128), np.int64)
    part = Examples(tokens, np.zeros(40, np.int64), tokens)
    what = task(tasks.LanguageModel)
    assert batch_of(part, of(part, 8000, what)) == 16
    assert batch_of(Examples(np.zeros((3, 1, 28, 28), np.uint8), np.zeros(3, np.int64)), of(part, 10)) == 1024
    monkeypatch.setattr(torch_model, "_OUTPUT_VALUES", 3 * 128 * 20)
    sizes = []

    class Counts(nn.Embedding):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            sizes.append(len(inputs))
            return super().forward(inputs)

    found = TorchModel(Counts(20, 20)).evaluate(part, of(part, 20, what))
    assert max(sizes) == 3
    assert sum(sizes) == 40
    assert found.task["tokens"] == 40 * 128


# -- what does not suit ------------------------------------------------------------------------------------------------


def numbers(inputs: Any, targets: Any = None) -> Examples:
    return Examples(np.array(inputs), np.zeros(len(inputs), np.int64), None if targets is None else np.array(targets))


@pytest.mark.parametrize(
    ("what", "part", "classes", "said"),
    [
        (tasks.LanguageModel, numbers([[0, 7]], [[7, 0]]), 5, "inputs hold the tokens 0 to 7, but the vocabulary"),
        (tasks.LanguageModel, numbers([[0.5]], [[0]]), 5, "must be tokens"),
        (tasks.Regression, numbers([[0.5, 9e4]], [[1.0]]), 1, "column 1 of the inputs goes from 90000 to 90000"),
        (tasks.Regression, numbers([[0.5]]), 1, "answers are one class an example, but must be targets (n, 1)"),
        (tasks.MultiLabel, numbers([[0.5]], [[0, 3]]), 2, "answers go from 0 to 3, but each must be 0 or 1"),
        (tasks.Classification, numbers([[0.5]], [[0.5]]), 2, "must be one class an example"),
    ],
)
def test_data_that_does_not_suit_the_task(what: type[fedplug.Task], part: Examples, classes: int, said: str) -> None:
    why = task(what).refuses(part, About(classes=tuple(map(str, range(classes))), mean=(), std=()))
    assert why is not None
    assert said in why


TABLE = {
    "name": "table", "seed": 1, "rounds": 3, "min_clients": 2,
    "data": {"use": "std.arrays", "clients": 3, "partition": {"use": "std.iid"}},
    "task": {"use": "std.regression"},
    "model": {"use": "std.mlp", "hidden": [8]},
    "train": {"use": "std.sgd", "epochs": 2, "batch_size": 8, "lr": 0.05},
    "negotiate_mask": {"use": "std.single_zone", "zone": "clear"},
    "protect": {"clear": []},
    "aggregate": {"use": "std.mean"},
}  # fmt: skip


def table(folder: Path, **changed: Any) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    arrays: dict[str, Any] = {}
    for split, count in (("train", 60), ("test", 20)):
        inputs = rng.normal(size=(count, 4)).astype(np.float32)
        arrays |= {f"{split}_inputs": inputs, f"{split}_targets": inputs @ np.array([1.0, -2.0, 0.5, 0.0])}
    np.savez(folder / "table.npz", **{**arrays, **changed})
    return {**TABLE, "data": {**TABLE["data"], "file": str(folder / "table.npz")}}  # type: ignore[dict-item]


def test_a_table_of_ones_own_is_judged_by_rmse_and_has_no_accuracy(tmp_path: Path) -> None:
    run = fedplug.run(Recipe.from_plain(table(tmp_path)), output=tmp_path / "runs", quiet=True)
    first, last = run.metrics[0], run.metrics[-1]
    assert last.accuracy is None
    assert not last.client_accuracy
    assert (last.leads.name, last.leads.better) == ("RMSE", "lower")
    assert list(last.judged) == ["RMSE", "R2"]
    assert last.leading is not None
    assert first.leading is not None
    assert last.leading < first.leading
    assert "accuracy" not in repr(run)
    assert "RMSE" in repr(run)


@pytest.mark.parametrize(
    ("split", "place", "value", "said"),
    [
        ("train_inputs", (7, 2), np.nan, "contain values that are not numbers, the first nan in column 2 of"),
        ("test_targets", 4, np.inf, "test examples: answers of 1 examples"),
    ],
)
def test_what_is_no_number_is_named_before_training(
    tmp_path: Path, split: str, place: Any, value: float, said: str
) -> None:
    plain = table(tmp_path)
    with np.load(tmp_path / "table.npz") as stored:
        arrays = dict(stored)
    arrays[split][place] = value
    np.savez(tmp_path / "table.npz", **arrays)
    with pytest.raises(DataError, match=said):
        fedplug.run(Recipe.from_plain(plain), output=tmp_path / "runs", quiet=True)


def test_numbers_without_a_task_and_class_weights_without_classes(tmp_path: Path) -> None:
    plain = table(tmp_path)
    with pytest.raises(DataError, match=r"write task: std\.regression"):
        fedplug.run(Recipe.from_plain({**plain, "task": None}), output=tmp_path / "runs", quiet=True)
    weighed = {**plain, "train": {**plain["train"], "class_weights": [1.0]}}
    with pytest.raises(FedplugError, match=r"class_weights applies to the cross entropy, but std\.regression descends"):
        fedplug.run(Recipe.from_plain(weighed), output=tmp_path / "runs", quiet=True)


# -- recipes -----------------------------------------------------------------------------------------------------------


def test_a_data_set_brings_its_task_and_a_recipe_without_one_says_nothing() -> None:
    recipe = load_recipe(ROOT / "recipes/fedavg.yaml", [("data.use", "std.diabetes"), ("data.partition", "std.iid")])
    assert recipe.task is not None
    assert recipe.task.use == "std.regression"
    assert Recipe.from_plain(recipe.to_plain()).digest == recipe.digest
    assert "task" not in load_recipe(ROOT / "recipes/fedavg.yaml").to_plain()


@pytest.mark.parametrize(
    ("name", "rounds", "figure", "least"),
    [("diabetes-paraaegis", 3, "RMSE", 0.0), ("breast-cancer-dp-sgd", 1, "accuracy", 0.8),
     ("breast-cancer-fas", 3, "accuracy", 0.5)],
)  # fmt: skip
def test_recipes_of_tables_run(tmp_path: Path, name: str, rounds: int, figure: str, least: float) -> None:
    run = fedplug.run(ROOT / f"recipes/{name}.yaml", rounds=rounds, output=tmp_path, quiet=True)
    last = run.metrics[-1]
    assert last.leads.name == figure
    assert last.leading is not None
    assert least < last.leading < 75
    assert (last.accuracy is None) == (figure != "accuracy")


# -- tokens ------------------------------------------------------------------------------------------------------------


def text(tmp_path: Path, **changed: Any) -> dict[str, Any]:
    (tmp_path / "text.txt").write_text("the cat sat on the mat. " * 100, encoding="utf-8")
    data = {"use": "std.text", "file": str(tmp_path / "text.txt"), "context": 16, "clients": 3}
    return {
        **{key: value for key, value in TABLE.items() if key != "task"},
        "data": {**data, "partition": {"use": "std.iid"}}, "model": {"use": "std.gpt", "width": 16, "layers": 1},
        "train": {"use": "std.sgd", "epochs": 2, "batch_size": 8, "lr": 0.5}, **changed,
    }  # fmt: skip


def test_a_small_transformer_learns_a_text(tmp_path: Path) -> None:
    run = fedplug.run(Recipe.from_plain(text(tmp_path)), output=tmp_path / "runs", quiet=True)
    assert [figure.name for figure in run.summary.figures] == ["perplexity", "tokens foreseen"]
    assert run.metrics[-1].leading is not None
    assert run.metrics[-1].leading < 20 < 256
    assert run.metrics[-1].accuracy is None


def test_dp_sgd_trains_it(tmp_path: Path) -> None:
    train = {"use": "baselines.dp_sgd", "epochs": 1, "batch_size": 16, "lr": 0.5, "clipping_norm": 1.0,
             "noise_multiplier": 0.5}  # fmt: skip
    run = fedplug.run(Recipe.from_plain(text(tmp_path, train=train, rounds=1)), output=tmp_path / "runs", quiet=True)
    assert run.metrics[-1].leading is not None
    assert run.metrics[-1].leading < 256


def test_no_position_sees_those_behind_it() -> None:
    model = Gpt(Gpt.Options(width=8, heads=2)).build((6,), 11, 0, "cpu").module.eval()
    tokens = torch.arange(6)[None]
    other = tokens.clone()
    other[0, 4:] = 9
    assert torch.equal(model(tokens)[0, :4], model(other)[0, :4])
    assert not torch.equal(model(tokens)[0, 4:], model(other)[0, 4:])


def test_a_text_that_is_too_short_says_so(tmp_path: Path) -> None:
    plain = text(tmp_path)
    (tmp_path / "text.txt").write_text("short", encoding="utf-8")
    with pytest.raises(DataError, match="holds 5 bytes, but 321 are needed"):
        fedplug.run(Recipe.from_plain(plain), output=tmp_path / "runs", quiet=True)


def test_clients_clusters_and_fine_tuned_models_are_judged_by_what_leads(tmp_path: Path) -> None:
    tuned = {"use": "std.sgd", "epochs": 4, "batch_size": 8, "lr": 0.05}
    asked = {"fine_tune": tuned, "clusters": {"two": [0, 1], "one": [2]}}
    plain = fedplug.run(Recipe.from_plain(table(tmp_path)), output=tmp_path / "runs", quiet=True)
    run = fedplug.run(Recipe.from_plain(table(tmp_path) | asked), output=tmp_path / "runs", quiet=True)
    last = run.metrics[-1]
    assert set(last.of_clients) == set(last.tuned) == set(last.tuned_public) == {0, 1, 2}
    assert sum(last.tuned.values()) < sum(last.of_clients.values()), "RMSE falls where clients train on"
    assert last.clusters["one"] == pytest.approx(last.of_clients[2])
    two = [last.of_clients[0], last.of_clients[1]]
    assert min(two) <= last.clusters["two"] <= max(two)
    # Training is what it was.
    assert [row.figures for row in plain.metrics] == [row.figures for row in run.metrics]
    assert not plain.metrics[-1].tuned
    found = result_of(run.folder)
    assert (found.of_clients, found.client_accuracy) == (found.client_leading, None)
    assert found.tuned is not None
    page = rounds_tables(run.metrics)
    assert "client accuracy" not in page
    assert all(word in page for word in ("fine-tuned", "cluster two", "client RMSE"))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"fine_tune": "std.sgd"}, "std.sgd would share what it remembers with train; write fine_tune: {use: std.sgd}"),
        ({"fine_tune": {"use": "std.scaffold"}}, "std.scaffold keeps models of the clients' own; choose a trainer"),
        ({"clusters": {"far": [0, 3]}}, "cluster far has client 3; name some of the recipe's clients, from 0"),
    ],
)
def test_an_evaluation_that_would_change_training_is_refused(
    tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(RecipeError) as raised:
        Recipe.from_plain(table(tmp_path) | changed)
    assert said in str(raised.value)
