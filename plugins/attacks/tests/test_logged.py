"""`fedplug attack --update`: what another framework's server logged, in the files that it writes."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli_calls import call
from fedplug.api.errors import SetupError
from fedplug_attacks.api.observation import Seen
from fedplug_attacks.views import logged
from fedplug_attacks.views.logged import Facts, Server, files_in
from fedplug_std.torch_model import TorchModel
from sklearn.datasets import load_digits
from torch import nn

NETS = """
from torch import nn


class Perceptron(nn.Module):
    def __init__(self, shape, num_classes):
        super().__init__()
        self.first, self.last = nn.Linear(64, 96), nn.Linear(96, num_classes)

    def forward(self, images):
        return self.last(self.first(images.flatten(1)).relu())
"""
FACTS = ["--fact", "shape=[1, 8, 8]", "--fact", "examples=6", "--fact", "lr=0.1", "--fact", "steps=1"]


def one_step(images: Any, labels: Any) -> tuple[nn.Module, dict[str, Any], dict[str, Any]]:
    """A network, its state, and its state after one step of plain gradient descent."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 10))
    names = dict(zip(net.state_dict(), ("first.weight", "first.bias", "last.weight", "last.bias"), strict=True))
    before = {names[name]: value.clone() for name, value in net.state_dict().items()}
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    nn.functional.cross_entropy(net(torch.from_numpy(images).flatten(1)), torch.from_numpy(labels)).backward()
    optimiser.step()
    return net, before, {names[name]: value.clone() for name, value in net.state_dict().items()}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files as torch, NVFlare, Flower and NumPy write them, of one client's step on six digits."""
    monkeypatch.chdir(tmp_path)
    digits = load_digits()
    images, labels = (digits.images[:6, None] / 16).astype(np.float32), digits.target[:6].astype(np.int64)
    _, before, after = one_step(images, labels)
    Path("nets.py").write_text(NETS)
    torch.save(before, "start.pt")
    torch.save({"model": after, "train_conf": {"lr": 0.1}}, "FL_model.pt")
    np.savez("flower.npz", *(value.numpy() for value in after.values()))
    np.savez("difference.npz", **{name: (after[name] - before[name]).numpy() for name in after})
    np.savez("gradient.npz", **{name: ((before[name] - after[name]) / 0.1).numpy() for name in after})
    np.savez("part.npz", **{name: value.numpy() for name, value in after.items() if name.startswith("last")})
    np.savez("truth.npz", images=images, labels=labels)
    return tmp_path


def attacked(monkeypatch: pytest.MonkeyPatch, update: str, *more: str, start: str = "start.pt") -> int:
    words = ["attack", "--update", update, "--global", start, "--model", "nets.py:Perceptron", *FACTS, "--out", "out"]
    return call(monkeypatch, *words, *more)


@pytest.mark.parametrize("update", ["FL_model.pt", "flower.npz", "difference.npz", "gradient.npz"])
def test_all_images_of_a_batch_are_found_whatever_a_framework_writes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, update: str
) -> None:
    sent = ["--fact", "sent=gradient"] if update == "gradient.npz" else []
    assert attacked(monkeypatch, update, "--truth", "truth.npz", "--attack", "exact_batch", *sent) == 0
    (found,) = json.loads(Path("out/found.json").read_text())["attacks"]
    assert (found["status"], found["recovered"]) == ("success", [0, 1, 2, 3, 4, 5])
    with np.load("out/attacks.exact_batch.npz") as file, np.load("truth.npz") as truth:
        distance = np.abs(file["images"][:, None] - truth["images"][None]).max((2, 3, 4)).min(1)
    assert distance.max() < 1e-3
    assert Path("out/attacks.exact_batch.png").stat().st_size > 100


def test_what_is_secret_or_not_in_the_file_is_hidden(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert attacked(monkeypatch, "flower.npz", "--secret", "first.*", "--attack", "exact_batch") == 0
    assert "hidden" in capsys.readouterr().out
    assert attacked(monkeypatch, "part.npz", "--attack", "exact_batch", "--attack", "ilrg", "--out", "other") == 0
    out = capsys.readouterr().out
    assert "exact_batch: does not apply" in out
    assert "ilrg: found 1 of class 0" in out
    assert "without --truth nobody here can say" in out


def test_what_is_not_stated_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """The same server has the images once its user says how many examples the client has."""
    words = ["attack", "--update", "flower.npz", "--global", "start.pt", "--model", "nets.py:Perceptron"]
    asked = [*words, "--fact", "shape=[1, 8, 8]", "--attack", "exact_batch", "--out", "out"]
    assert call(monkeypatch, *asked) == 0
    out = capsys.readouterr().out
    assert "exact_batch: does not apply" in out
    assert "may find more with --fact examples=..., --fact lr=..., --fact steps=..." in " ".join(out.split())


def test_arrays_that_were_packed_again_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    net = nn.Sequential(*(nn.Linear(3, 3) for _ in range(6)))
    names = {f"arr_{place}": value.numpy() for place, value in enumerate(net.state_dict().values())}
    np.savez(tmp_path / "start.npz", **dict(sorted(names.items())))
    moved = {name: value + place for place, (name, value) in enumerate(names.items(), 1)}
    np.savez(tmp_path / "update.npz", **dict(sorted(moved.items())))
    model = TorchModel(net, "cpu")
    before = model.get_vector()
    server = Server(model, Facts(shape=(3,), sent="model"), [])
    seen = server.saw(tmp_path / "start.npz", tmp_path / "update.npz", 0)
    assert np.array_equal(model.get_vector(), before)
    first = [round(float(seen.update.values[each.slice][0])) for each in model.layout.parameters]
    assert first == [*range(1, 13)]


@pytest.mark.parametrize("ending", [".npz", ".pt"])
def test_a_small_file_that_unpacks_to_gigabytes_is_refused_before(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / f"bomb{ending}"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("arr_0.npy", b"\0" * 1000)
    said = file.read_bytes().replace((1000).to_bytes(4, "little"), (2**32 - 2).to_bytes(4, "little"))
    file.write_bytes(said)  # the directory says 4 GiB
    monkeypatch.setattr(logged, "memory_now", lambda: (0, 10**10))
    with pytest.raises(SetupError, match=r"holds 4\.3 GB, of which 3 copies are made, and this machine has 10\.0 GB"):
        logged.tensors(file)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_tensor_that_is_larger_than_what_is_stored_of_it_is_refused_too(sparse: bool, tmp_path: Path) -> None:
    """One value is shown often, or few are there at all."""
    place = torch.zeros(1, 1, dtype=torch.int64)
    few = torch.sparse_coo_tensor(place, torch.ones(1), (10**15,), check_invariants=True)
    torch.save({"weight": few if sparse else torch.zeros(1).expand(10**15)}, tmp_path / "small.pt")
    assert (tmp_path / "small.pt").stat().st_size < 10_000
    with pytest.raises(SetupError, match=r"holds 4000\.0 TB, of which 3 copies are made"):
        logged.tensors(tmp_path / "small.pt")



def test_files_of_rounds_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("round-10.npz", "round-2.npz", "readme.txt"):
        (tmp_path / name).touch()
    assert [each.name for each in files_in(tmp_path, "--update")] == ["round-2.npz", "round-10.npz"]


def test_parameters_that_nobody_trained_are_hidden(tmp_path: Path) -> None:
    """Their gradient is not 0, as an attack would take it to be: it is unknown."""
    net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    torch.save(net.state_dict(), tmp_path / "start.pt")
    frozen = {name: value + (1 if name.startswith("0") else 0) for name, value in net.state_dict().items()}
    torch.save(frozen, tmp_path / "update.pt")
    server = Server(TorchModel(net, "cpu"), Facts(shape=(3,), sent="model"), [])
    seen = server.saw(tmp_path / "start.pt", tmp_path / "update.pt", 0)
    assert server.still == ("1.weight", "1.bias")
    assert (seen.update.states == Seen.CLEAR).sum() == len(seen.update.values) == 16
    with pytest.raises(SetupError, match=r"start.pt moves nothing: give the --global model"):
        server.saw(tmp_path / "start.pt", tmp_path / "start.pt", 0)


def test_a_tied_weight_is_seen_by_either_of_its_names(tmp_path: Path) -> None:
    """safetensors keeps one name of a weight that two layers share."""
    net = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7, bias=False))
    net[1].weight = net[0].weight
    torch.save(net.state_dict(), tmp_path / "start.pt")
    torch.save({"1.weight": net.state_dict()["0.weight"] + 1}, tmp_path / "update.pt")
    server = Server(TorchModel(net, "cpu"), Facts(shape=(3,), sent="model"), [])
    seen = server.saw(tmp_path / "start.pt", tmp_path / "update.pt", 0)
    assert seen.update.visible.all()
    assert np.allclose(seen.update.values, 1)


def test_tensors_that_are_no_plain_numbers_are_refused_and_sparse_ones_read(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(3, 2))
    state = net.state_dict()
    torch.save(state, tmp_path / "start.pt")
    torch.save({name: (value + 1).to_sparse() for name, value in state.items()}, tmp_path / "sparse.pt")
    np.savez(tmp_path / "words.npz", **{name: value.numpy().astype("U9") for name, value in state.items()})
    server = Server(TorchModel(net, "cpu"), Facts(shape=(3,), sent="model"), [])
    assert np.allclose(server.saw(tmp_path / "start.pt", tmp_path / "sparse.pt", 0).update.values, 1)
    with pytest.raises(SetupError, match=r"0.weight has values of the type <U9, which are no numbers"):
        server.saw(tmp_path / "start.pt", tmp_path / "words.npz", 0)


def test_a_folder_has_a_file_for_each_round(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("updates").mkdir()
    for name in ("flower.npz", "difference.npz"):
        Path(name).rename(Path("updates") / name)
    assert attacked(monkeypatch, "updates", "--truth", "truth.npz", "--attack", "exact_batch") == 0
    told = json.loads(Path("out/found.json").read_text())["attacks"]
    assert [each["attack"] for each in told] == ["attacks.exact_batch-round1", "attacks.exact_batch-round2"]
    assert [len(each["recovered"]) for each in told] == [6, 6]


def test_arrays_without_names_are_in_the_order_of_the_state_with_its_statistics(tmp_path: Path) -> None:
    """Flower's clients send `net.state_dict().values()`: statistics of batch norm are among them."""
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    state = [value.clone() for value in net.state_dict().values()]
    np.savez(tmp_path / "start.npz", *(value.numpy() for value in state))
    np.savez(tmp_path / "update.npz", *((value + 1).numpy() for value in state))
    model = TorchModel(net, "cpu")
    before = model.get_vector()
    facts = Facts(shape=(3,), sent="model", noise=0.5)
    seen = Server(model, facts, ["2.*"]).saw(tmp_path / "start.npz", tmp_path / "update.npz", 0)
    assert seen.vector is not None
    assert np.array_equal(seen.vector, before)
    assert set(seen.buffers) == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    hidden = np.isin(np.arange(model.layout.size), np.arange(model.layout.size - 10, model.layout.size))
    assert np.array_equal(seen.update.states == Seen.ENCRYPTED, hidden)
    assert np.allclose(seen.update.values, 1.0)
    assert (seen.update.sigma == 0.5).all()


def test_the_meaning_follows_from_the_facts() -> None:
    facts = Facts(shape=(3,), examples=10, batch_size=4, epochs=2, lr=0.1, momentum=0.9)
    assert (facts.meaning.steps, facts.meaning.sign, facts.meaning.momentum) == (6, -1, 0.9)
    assert Facts(shape=(3,), examples=10, lr=0.1).meaning.steps is None
    assert Facts(shape=(3,), examples=4, sent="gradient").meaning.reach == 1.0


@pytest.mark.parametrize(("words", "said"), [
    (["--fact", "epoch=1"], "unknown option 'epoch' of --fact; did you mean epochs?"),
    (["--fact", "lr"], "--fact lr: write name=value"),
    (["--fact", "mean=[0.1, 0.2]"], "--fact: data: agreed.mean has 2 numbers"),
    (["--model", "nets.py:Net"], "--model: nets.py has no Net; it has Perceptron"),
    (["--update", "away.npz"], "--update away.npz: there is no such file"),
    (["--update", "truth.npz"], "--update truth.npz has no parameter of the model; it has first.weight"),
    (["--global", "part.npz"], "--global part.npz does not fit this model: it lacks first.weight, first.bias"),
    (["--global", "nets.py"], "nets.py is of no kind that is read here"),
    (["--secret", "middle.*"], "--secret middle.* is no parameter of the model; it has first.weight"),
    (["--truth", "flower.npz"], "--truth flower.npz must hold images or inputs [n, 1, 8, 8] and labels [n]"),
    (["--attack", "exact"], "--attack: unknown attack component 'exact'; for attack there is"),
    (["--set", "attack.attacks.0.speed=1"], "unknown option 'speed' of attacks.ilrg"),
    (["--probe", "3"], "--probe: only for a run"),
    (["run-1"], "give the folder of a run, or --update FILE"),
    (["--out", "."], ". holds something already"),
])  # fmt: skip
def test_what_does_not_fit_is_refused_with_a_remedy(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, words: list[str], said: str
) -> None:
    assert attacked(monkeypatch, "flower.npz", "--quick", *words) == 1
    assert said in capsys.readouterr().err
    assert not Path("out").exists()
