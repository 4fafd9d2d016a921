"""Torch modules, loading functions and losses of the user's own, as parts of a recipe."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import fedplug
import numpy as np
import pytest
import torch
from fedplug import Dataset, Examples
from fedplug.api.data import ClientData
from fedplug.api.errors import DataError, RecipeError, SetupError
from fedplug.recipe.composition import instantiate
from fedplug.recipe.parts import Use
from fedplug_kit import conformance
from fedplug_runs import own_files
from fedplug_runs.trust import RUNS
from fedplug_std import own

FILE = '''\
import numpy as np
import torch
from torch import nn


class Net(nn.Module):
    """One hidden layer."""

    def __init__(self, shape, num_classes, hidden: int = 8):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(shape[1] * shape[2], hidden), nn.Tanh(),
                                  nn.Linear(hidden, num_classes))

    def forward(self, images):
        return self.body(images)


def load(root, count: int = 80):
    rng = np.random.default_rng(0)
    labels = np.arange(count) % 2
    images = rng.integers(0, 100, (count, 4, 4)).astype(np.uint8)
    images[labels == 0, :2] += 150
    return images, labels, images[:20], labels[:20]


def squares(logits, answers):
    return ((logits.softmax(1) - nn.functional.one_hot(answers, logits.shape[1])) ** 2).sum(1).mean()
'''
RECIPE: dict[str, Any] = {
    "name": "mine", "seed": 1, "rounds": 2,
    "data": {"use": "mine.py:load", "count": 60, "clients": 2, "partition": "std.iid"},
    "model": {"use": "mine.py:Net", "hidden": 6},
    "train": {"use": "mine.py:squares", "lr": 0.5, "batch_size": 8},
    "negotiate_mask": {"use": "std.single_zone", "zone": "clear"},
    "protect": {"clear": []}, "aggregate": "std.mean",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(FILE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    RUNS.covers([own_files.read("mine.py:Net")], "the test")
    return tmp_path


def made(found: type | None, **options: Any) -> Any:
    assert found is not None
    validated = found.Options.model_validate(options)  # type: ignore[attr-defined]
    return instantiate(Use("mine", "mine", "", validated, made_of=found))


def test_model_data_and_loss_of_a_file_make_a_run(folder: Path) -> None:
    run = fedplug.run(RECIPE, quiet=True, output=folder / "runs", muted=["lab.report"])
    assert [row.accuracy for row in run.metrics][-1] > 0.9
    assert (run.folder / "mine.py").read_text(encoding="utf-8") == FILE


@pytest.mark.slow
def test_processes_have_the_file_too(folder: Path) -> None:
    """Also those that are defined elsewhere: the file travels with the job."""
    given = {"quiet": True, "output": folder / "runs", "muted": ["lab.report"]}
    here = fedplug.run(RECIPE, **given)
    apart = fedplug.run(RECIPE, engine="processes", workers=2, **given)
    assert [row.accuracy for row in apart.metrics] == [row.accuracy for row in here.metrics]


def test_arguments_are_options(folder: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        fedplug.check(RECIPE | {"model": {"use": "mine.py:Net", "hiden": 3, "hidden": "x"}}, trust=True)
    assert any("unknown option 'hiden' of mine.py:Net; did you mean hidden?" in each for each in caught.value.problems)
    assert any("hidden='x' must be" in each for each in caught.value.problems)


class Linear(torch.nn.Module):
    """A linear model."""

    def __init__(self, shape: tuple[int, ...], num_classes: int, scale: float = 1.0, outputs: int | None = None):
        super().__init__()
        self.layer = torch.nn.Linear(int(np.prod(shape)), outputs or num_classes)
        self.scale = scale

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.scale * self.layer(inputs.flatten(1))


def test_a_module_is_a_model_with_weights_of_the_seed() -> None:
    found = own.model(Linear, "mine.Linear")
    assert found is not None
    assert (found.__name__, found.__doc__) == ("Linear", "A linear model.")
    assert set(found.Options.model_fields) == {"scale", "outputs"}
    vectors = [made(found).build((1, 4, 4), 3, seed, "cpu").get_vector() for seed in (1, 1, 2)]
    assert np.array_equal(vectors[0], vectors[1])
    assert not np.array_equal(vectors[0], vectors[2])
    assert vectors[0].shape == (16 * 3 + 3,)


def test_a_function_may_give_the_module() -> None:
    def net(shape: tuple[int, ...], num_classes: int, bias: bool = True) -> torch.nn.Module:
        layer = torch.nn.Linear(int(np.prod(shape)), num_classes, bias=bias)
        return torch.nn.Sequential(torch.nn.Flatten(), layer)

    assert made(own.model(net, "mine.net"), bias=False).build((1, 2, 2), 3, 0, "cpu").layout.size == 12


@pytest.mark.parametrize(
    ("found", "options", "why"),
    [
        (Linear, {"outputs": 5}, r"gives \(1, 5\) for one example; it must give one number for each of 3 classes"),
        (lambda shape: "no", {}, "gives a str; it must give a torch.nn.Module"),
        (lambda shape: 1 / 0, {}, "mine.net fails: ZeroDivisionError"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(found: Any, options: dict[str, Any], why: str) -> None:
    with pytest.raises(SetupError, match=why):
        made(own.model(found, "mine.net"), **options).build((1, 4, 4), 3, 0, "cpu")


def test_what_is_neither_a_class_nor_a_function_is_left_to_others() -> None:
    assert own.model(3, "x") is None
    assert own.model(dict, "x") is None
    assert own.dataset(dict, "x") is None
    assert own.trainer(Linear, "x") is None
    with pytest.raises(TypeError, match="its argument mean has the name of an existing option"):
        own.dataset(lambda root, mean: None, "x")


IMAGES, LABELS = np.zeros((6, 4, 4), np.float32), np.array([0, 1, 2, 0, 1, 2])


def test_a_function_gives_arrays_by_order_or_name_or_a_data_set() -> None:
    arrays = (IMAGES, LABELS, IMAGES, LABELS)
    names = ("train_images", "train_labels", "test_images", "test_labels")
    whole = Dataset(
        Examples(IMAGES[:, None], LABELS), Examples(IMAGES[:, None], LABELS),
        classes=("a", "b", "c"), mean=(0.1,), std=(0.2,),
    )  # fmt: skip
    by_order = made(own.dataset(lambda root: arrays, "mine.load"), train_size=4).load(None)
    by_name = made(own.dataset(lambda root: dict(zip(names, arrays, strict=True)), "mine.load")).load(None)
    as_it_is = made(own.dataset(lambda root: whole, "mine.load"), test_size=3).load("somewhere")
    assert (by_order.shape, by_order.classes, len(by_order.train)) == ((1, 4, 4), ("0", "1", "2"), 4)
    assert (by_name.mean, by_name.std) == ((0.5,), (0.25,))
    assert (as_it_is.classes, as_it_is.mean, len(as_it_is.test)) == (("a", "b", "c"), (0.1,), 3)
    roots = made(own.dataset(lambda place: [place] * 3, "mine.load"))
    with pytest.raises(DataError, match=r"mine\.load gives a list; it must give train_images, train_labels"):
        roots.load("somewhere")
    with pytest.raises(DataError, match=r"mine\.load: train_labels is int64 \(3,\), but must be a class for each of"):
        made(own.dataset(lambda root: (IMAGES, LABELS[:3], IMAGES, LABELS), "mine.load")).load(None)
    with pytest.raises(DataError, match=r"mine\.load: train_images is complex64 .* must be numbers of at most 64 bits"):
        made(own.dataset(lambda root: (IMAGES * 1j, LABELS, IMAGES, LABELS), "mine.load")).load(None)


def test_an_own_loss_is_descended_and_said() -> None:
    def squares(logits: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
        return ((logits - torch.nn.functional.one_hot(answers, logits.shape[1])) ** 2).sum(1).mean()

    trainer = made(own.trainer(squares, "mine.squares"), lr=0.1, batch_size=6)
    model = made(own.model(Linear, "mine.Linear")).build((1, 4, 4), 3, 0, "cpu")
    examples = Examples(np.random.default_rng(0).random((6, 1, 4, 4), np.float32), LABELS)
    start = model.get_vector()
    data = ClientData(examples, examples, examples, classes=("a", "b", "c"), mean=(0.0,), std=(1.0,))
    client = fedplug.Client(client_id=0, data=data, model=model)
    client.facts = facts = fedplug.Facts(0, 1, model.layout, ("clear",), 1, 1, 7, "")
    assert trainer.learns(facts).descends == "the loss mine.squares"
    loss = squares(model.module(torch.from_numpy(examples.inputs)), torch.from_numpy(LABELS))
    gradient = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, model.parameters)]).numpy()
    trainer.train(client, facts)
    np.testing.assert_allclose(model.get_vector(), start - 0.1 * gradient, rtol=1e-4, atol=1e-6)
    with pytest.raises(SetupError, match="class_weights applies to the cross entropy, not mine"):
        made(own.trainer(squares, "mine.squares"), class_weights=[1, 2, 3]).train(client, facts)
    with pytest.raises(SetupError, match=r"must give one number, the mean loss of the batch; add .mean\(\)"):
        made(own.trainer(lambda logits, answers: logits, "mine.squares")).train(client, facts)


@pytest.mark.parametrize(("name", "group"), [("Net", "model"), ("load", "dataset"), ("squares", "trainer")])
def test_what_an_adapter_makes_conforms(folder: Path, name: str, group: str) -> None:
    file = own_files.read(f"mine.py:{name}", [folder], None)
    conformance(own_files.component(file, f"mine.py:{name}", group), group=group, shape=(1, 4, 4))


MODULES = """\
import torch
from torch import nn


class Fixed(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.last = nn.Linear(width, 2)

    def forward(self, images):
        return self.last(images.flatten(1))


class Reads(Fixed):
    def __init__(self, width: int):
        super().__init__(width)
        self.rates = [float(rate) for rate in torch.linspace(0, 1, 3)]  # nothing can be read on the device meta


def pixels(num_classes):
    return nn.Conv2d(1, num_classes, 1)


def fails(shape):
    raise KeyError("width")
"""


@pytest.mark.parametrize(
    ("name", "options", "per", "said"),
    [
        ("Fixed", {"width": 16}, "example", ""),
        ("Reads", {"width": 16}, "example", ""),
        ("Fixed", {"width": 9}, "example", "it fails at one: mat1 and mat2 .*; build it for the shape"),
        ("Reads", {"width": 9}, "example", "it fails at one: mat1 and mat2 .*; build it for the shape"),
        ("Fixed", {"width": 16}, "pixel", r"gives \(1, 2\) for one .*\(1, 2, H, W\) for segmentation"),
        ("pixels", {}, "pixel", ""),
        ("pixels", {}, "example", r"gives \(1, 2, 4, 4\) for one example"),
        ("fails", {}, "example", r"m\.fails fails: KeyError: 'width'"),
    ],
)
def test_a_module_is_tried_with_the_shape_that_the_data_declares(
    name: str, options: dict[str, Any], per: Any, said: str
) -> None:
    module: dict[str, Any] = {"__name__": "m"}
    exec(compile(MODULES, "m.py", "exec"), module)
    before = torch.random.get_rng_state()
    why = made(own.model(module[name], f"m.{name}"), **options).refuses((1, 4, 4), 2, per)
    assert re.search(said, why) if said else why is None
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_module_is_not_tried_where_the_number_of_classes_is_not_known(folder: Path) -> None:
    found = own_files.component(own_files.read("mine.py:Net", [folder], None), "mine.py:Net", "model")
    assert made(found).refuses((1, 4, 4), None, "example") is None


LARGE = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, shape, num_classes, hidden: int = 8, dtype: str = "float32"):
        super().__init__()
        self.first = nn.Linear(shape[0] * shape[1] * shape[2], hidden, dtype=getattr(torch, dtype))
        self.last = nn.Linear(hidden, num_classes)

    def forward(self, images):
        return self.last(self.first(images.flatten(1).to(self.first.weight.dtype)).float())
"""


def test_the_parameters_of_a_module_are_counted_without_memory_for_them(folder: Path) -> None:
    (folder / "large.py").write_text(LARGE, encoding="utf-8")
    plain = RECIPE | {"data": {"use": "std.digits", "clients": 2, "partition": "std.iid"}, "train": "std.sgd"}
    model = {"use": "large.py:Net", "hidden": 10**12}
    for given in (model, {"use": "std.lora", "around": model}):
        with pytest.raises(RecipeError, match=r"has 75,000,000,000,010 parameters, .* does not fit into"):
            fedplug.check(plain | {"model": given}, trust=True)
    module: dict[str, Any] = {"__name__": "large"}
    exec(compile(LARGE, "large.py", "exec"), module)
    kind = own.model(module["Net"], "large.Net")
    assert made(kind).num_parameters((1, 8, 8), 10) == 65 * 8 + 90
    assert made(kind, dtype="float16").num_parameters((1, 8, 8), 10) == 90  # float32 alone


def test_the_line_of_a_module_that_does_not_fit_is_named(folder: Path) -> None:
    (folder / "fixed.py").write_text(MODULES, encoding="utf-8")
    plain = RECIPE | {"data": {"use": "std.digits", "clients": 2, "partition": "std.iid"}, "train": "std.sgd"}
    with pytest.raises(RecipeError, match=r"recipe\.model: fixed\.Fixed cannot take the examples of std\.digits"):
        fedplug.check(plain | {"model": {"use": "fixed.py:Fixed", "width": 9}}, trust=True)
