"""LoRA around models of recipes, of files and of a session: what is trained, what travels, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fedplug
import numpy as np
import pytest
import torch
from fedplug.api.errors import FedplugError, RecipeError, SetupError
from fedplug.recipe.recipe import Recipe
from fedplug_runs.overlay import load_recipe
from fedplug_runs.wire_record import read_wire
from fedplug_std import weights
from fedplug_std._lora import Adapted, adapt
from fedplug_std.lora import Lora
from fedplug_std.per_sample import mean_squared_gradients, per_sample_gradients
from fedplug_std.torch_model import TorchModel
from torch import nn

GPT = {"use": "std.gpt", "width": 16, "layers": 1}


def recipe(tmp_path: Path, **changed: Any) -> dict[str, Any]:
    """Four clients with a text, and LoRA around a small transformer."""
    (tmp_path / "text.txt").write_text("the cat sat on the mat. " * 100, encoding="utf-8")
    data = {"use": "std.text", "file": str(tmp_path / "text.txt"), "context": 16, "clients": 3}
    return {
        "name": "lora", "seed": 7, "rounds": 2, "data": {**data, "partition": {"use": "std.iid"}},
        "model": {"use": "std.lora", "rank": 2, "around": GPT},
        "train": {"use": "std.sgd", "epochs": 2, "batch_size": 8, "lr": 0.5},
        "negotiate_mask": {"use": "std.single_zone", "zone": "clear"}, "protect": {"clear": []},
        "aggregate": {"use": "std.mean", "weighting": "uniform"}, **changed,
    }  # fmt: skip


def run(tmp_path: Path, **changed: Any) -> fedplug.Run:
    return fedplug.run(recipe(tmp_path, **changed), output=tmp_path / "runs", quiet=True)


def lora(module: nn.Module, shape: tuple[int, ...] = (6,), **options: Any) -> nn.Module:
    adapt(module, Lora.Options(**options), shape, 7)
    return module


# -- what it computes --------------------------------------------------------------------------------------------------


def test_a_layer_computes_w_x_plus_alpha_over_rank_b_a_x() -> None:
    module = lora(nn.Sequential(nn.Linear(6, 4)), rank=2, alpha=6.0)
    x, (part,) = torch.randn(3, 6), module
    assert isinstance(part, Adapted)
    assert torch.equal(module(x), part.base_layer(x))  # B is zero at first
    nn.init.normal_(part.lora_B.weight)
    added = 3 * x @ (part.lora_B.weight @ part.lora_A.weight).T
    torch.testing.assert_close(module(x), part.base_layer(x) + added)


def test_convolutions_and_embeddings_are_adapted_where_they_are_named() -> None:
    convolutional = lora(nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.Flatten()), (3, 8, 8), rank=2, targets=("0",))
    nn.init.normal_(convolutional[0].lora_B.weight)
    x = torch.randn(2, 3, 8, 8)
    a, b = (part.weight for part in (convolutional[0].lora_A, convolutional[0].lora_B))
    whole = torch.einsum("or,rikl->oikl", b[:, :, 0, 0], a)
    base = convolutional[0].base_layer
    expected = nn.functional.conv2d(x, base.weight + whole, base.bias, 2, 1)
    torch.testing.assert_close(convolutional(x), expected.flatten(1), atol=1e-5, rtol=1e-5)
    embedded = lora(nn.Sequential(nn.Embedding(5, 4)), rank=2, targets=("0",))
    nn.init.normal_(embedded[0].lora_B.weight)
    table = embedded[0].weight + embedded[0].lora_A.weight @ embedded[0].lora_B.weight.T
    torch.testing.assert_close(embedded(torch.arange(5)), table)


def test_equal_seeds_give_equal_adapters_and_leave_the_model_within_as_it_was(tmp_path: Path) -> None:
    plain = Recipe.from_plain(recipe(tmp_path))
    one, other = (made(plain) for _ in range(2))
    assert np.array_equal(one.get_vector(), other.get_vector())
    within = made(Recipe.from_plain(recipe(tmp_path, model=GPT)))
    tokens = torch.arange(16)[None]
    assert torch.equal(one.module.eval()(tokens), within.module.eval()(tokens))


def made(of: Recipe) -> Any:
    from fedplug.recipe.composition import instantiate

    return instantiate(of.model).build((16,), 256, of.seed, "cpu")


# -- what travels ------------------------------------------------------------------------------------------------------


def test_only_adapters_and_what_is_named_travel_and_the_wire_shows_it(tmp_path: Path) -> None:
    model = {"use": "std.lora", "rank": 2, "trained": ["head.bias"], "around": GPT}
    plain = Recipe.from_plain(recipe(tmp_path, model=model))
    found = fedplug.run(plain, output=tmp_path / "runs", quiet=True, record_wire=True)
    layout = made(plain).layout
    names = [each.name for each in layout.parameters]
    assert all("lora_A" in name or "lora_B" in name or name == "head.base_layer.bias" for name in names)
    assert "head.base_layer.bias" in names
    whole = sum(tensor.numel() for tensor in made(plain).module.parameters())
    assert layout.size < whole / 3
    uploads = [
        message
        for file in sorted((found.folder / "wire").iterdir())
        for message in read_wire(file)
        if message.phase == "upload" and message.sender.startswith("client")
    ]
    assert len(uploads) == 6
    assert all(4 * layout.size <= message.size < 4 * layout.size + 2048 for message in uploads)
    # A row of each frozen tensor, as its bytes, is in no message of the run.
    sent = b"".join(message.data for file in (found.folder / "wire").iterdir() for message in read_wire(file))
    frozen = {name: tensor for name, tensor in made(plain).module.named_parameters() if name not in names}
    rows = {name: tensor.detach().flatten()[:4].numpy() for name, tensor in frozen.items() if tensor.detach().std() > 0}
    assert len(rows) > 5
    assert not [name for name, row in rows.items() if row.tobytes() in sent]
    before, after = made(plain).module.state_dict(), found.model.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == set(names)


def test_a_base_in_bfloat16_stays_what_it_is_and_float32_travels() -> None:
    with torch.random.fork_rng():
        module = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))

    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.within = module.to(torch.bfloat16)
            self.register_buffer("seen", torch.ones(2, dtype=torch.bfloat16))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.within(x.to(torch.bfloat16)).float()

    model = TorchModel(lora(Wide(), rank=2))
    assert model.get_vector().dtype == np.float32
    assert {tensor.dtype for tensor in model.parameters} == {torch.float32}
    assert next(module.parameters()).dtype == torch.bfloat16
    model.set_vector(model.get_vector() + np.float32(0.1))
    assert model.module(torch.ones(1, 6)).dtype == torch.float32
    buffers = model.get_buffers()
    assert buffers["seen"].dtype == np.float32
    model.set_buffers({"seen": buffers["seen"] * 2})
    assert model.get_buffers()["seen"].tolist() == [2, 2]


def test_parameters_that_are_trained_in_another_dtype_are_refused() -> None:
    with pytest.raises(ValueError, match=r"convert the module with \.float\(\), or freeze it and train adapters"):
        TorchModel(nn.Linear(2, 2).to(torch.bfloat16))


class Tied(nn.Module):
    """The head has the embedding's weight, as GPT-2's."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.middle, self.head = nn.Embedding(9, 4), nn.Linear(4, 4), nn.Linear(4, 9, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.middle(self.tokens(tokens)))


def test_tied_weights_travel_once_and_stay_tied() -> None:
    model = TorchModel(Tied())
    assert [each.name for each in model.layout.parameters] == ["tokens.weight", "middle.weight", "middle.bias"]
    model.set_vector(np.ones(model.layout.size, np.float32))
    assert model.module.head.weight is model.module.tokens.weight
    assert model.module.head.weight.eq(1).all()
    adapted = lora(Tied(), rank=1)
    assert adapted.head.weight is adapted.tokens.weight
    assert not adapted.head.weight.requires_grad
    trained = TorchModel(lora(Tied(), rank=1, targets=("middle",), trained=("tokens.weight",)))
    assert next(each.name for each in trained.layout.parameters) == "tokens.weight"


# -- the base ----------------------------------------------------------------------------------------------------------


def safetensors(tensors: dict[str, torch.Tensor]) -> bytes:
    """A file of the format, in bfloat16."""
    header, values = {}, b""
    for name, tensor in tensors.items():
        held = tensor.to(torch.bfloat16).contiguous().view(torch.uint8).numpy().tobytes()
        header[name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [len(values), len(values + held)]}
        values += held
    head = json.dumps(header).encode()
    return len(head).to_bytes(8, "little") + head + values


@pytest.mark.parametrize("ending", ["pt", "safetensors"])
def test_the_base_counts_by_what_it_holds_and_is_found_again(tmp_path: Path, ending: str) -> None:
    within = made(Recipe.from_plain(recipe(tmp_path, seed=8, model=GPT))).module.state_dict()
    file = tmp_path / f"base.{ending}"
    if ending == "pt":
        torch.save(within, file)
    else:
        file.write_bytes(safetensors(within))
    given = recipe(tmp_path, rounds=1, model={"use": "std.lora", "rank": 2, "base": str(file), "around": GPT})
    plain = Recipe.from_plain(given)
    digest, written = plain.digest, plain.to_plain()["model"]["base"]
    assert written["file"] == f"base.{ending}"
    assert len(written["sha256"]) == 64
    found = fedplug.run(plain, output=tmp_path / "runs", quiet=True, engine="processes", workers=1)
    loaded = found.model.state_dict()["tokens.weight"]
    assert torch.equal(loaded, within["tokens.weight"].to(loaded.dtype if ending == "pt" else torch.bfloat16).float())
    file.unlink()
    assert load_recipe(found.folder / "recipe.yaml").digest == digest
    assert torch.equal(found.model.state_dict()["tokens.weight"], loaded)
    file.write_bytes(b"other")
    assert Recipe.from_plain(given).digest != digest


def test_a_base_that_does_not_fit_says_why(tmp_path: Path) -> None:
    other = made(Recipe.from_plain(recipe(tmp_path, model={**GPT, "width": 8}))).module.state_dict()
    torch.save(other, tmp_path / "narrow.pt")
    model = {"use": "std.lora", "base": str(tmp_path / "narrow.pt"), "around": GPT}
    with pytest.raises(FedplugError, match=r"base narrow.pt does not fit this model: it has other shapes"):
        run(tmp_path, model=model)
    (tmp_path / "broken.safetensors").write_bytes(b"no tensors at all")
    with pytest.raises(FedplugError, match=r"base broken.safetensors cannot be read"):
        run(tmp_path, model={**model, "base": str(tmp_path / "broken.safetensors")})
    with pytest.raises(RecipeError, match=r"there is no file .*gone.pt"):
        Recipe.from_plain(recipe(tmp_path, model={**model, "base": "gone.pt"}))
    with pytest.raises(RecipeError, match=r"base=weights.npz must end in \.safetensors, \.pt"):
        Recipe.from_plain(recipe(tmp_path, model={**model, "base": "weights.npz"}))


def test_a_base_may_leave_out_what_is_tied() -> None:
    held = {name: tensor for name, tensor in Tied().state_dict().items() if name != "head.weight"}
    module = Tied()
    weights.put(module, weights.read("base.safetensors", safetensors(held), "base"), "base", "")
    torch.testing.assert_close(module.head.weight, held["tokens.weight"].to(torch.bfloat16).float())


# -- around other models -----------------------------------------------------------------------------------------------

OWN = """
from torch import nn

class Net(nn.Module):
    def __init__(self, shape, num_classes, hidden: int = 8):
        super().__init__()
        size = shape[0] * shape[1] * shape[2]
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(size, hidden), nn.ReLU(), nn.Linear(hidden, num_classes))

    def forward(self, images):
        return self.layers(images)
"""
DIGITS = {"use": "std.digits", "clients": 3, "partition": {"use": "std.iid"}, "train_size": 60, "test_size": 30}


def test_it_goes_around_a_model_of_a_file_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(OWN, encoding="utf-8")
    around = {"use": f"{tmp_path}/net.py:Net", "hidden": 6}
    found = run(tmp_path, data=DIGITS, model={"use": "std.lora", "rank": 2, "around": around})
    assert (found.folder / "net.py").is_file()
    (tmp_path / "net.py").unlink()
    assert "layers.1.lora_A.weight" in found.model.state_dict()


TOKENS = """
from torch import nn

class Net(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.tokens, self.head = nn.Embedding(num_classes, 8), nn.Linear(8, num_classes)

    def forward(self, tokens):
        return self.head(self.tokens(tokens))
"""


@pytest.mark.parametrize("around", [False, True])
def test_a_file_of_ones_own_may_hold_a_language_model(tmp_path: Path, around: bool) -> None:
    (tmp_path / "net.py").write_text(TOKENS, encoding="utf-8")
    own = {"use": f"{tmp_path}/net.py:Net"}
    found = run(tmp_path, model={"use": "std.lora", "rank": 2, "around": own} if around else own)
    first, last = (found.metrics[at].leading for at in (0, -1))
    assert first is not None
    assert last is not None
    assert last < first < 260


def test_it_goes_around_an_object_of_a_session(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    model = {"use": "std.lora", "rank": 2, "around": module}
    plain = {key: value for key, value in recipe(tmp_path, data=DIGITS).items() if key != "model"}
    found = fedplug.run({**plain, "model": "std.mlp"}, model=model, output=tmp_path / "runs", quiet=True)
    assert torch.equal(found.model.state_dict()["1.base_layer.weight"], module[1].weight)


def test_the_model_within_says_what_it_refuses_and_what_is_wrong_with_it(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"std.lora needs 'around', a component; for model there is"):
        Recipe.from_plain(recipe(tmp_path, model={"use": "std.lora"}))
    with pytest.raises(RecipeError, match=r"unknown option 'widht' of std.gpt; did you mean width"):
        Recipe.from_plain(recipe(tmp_path, model={"use": "std.lora", "around": {"use": "std.gpt", "widht": 8}}))
    with pytest.raises(RecipeError, match=r"it takes tokens"):
        Recipe.from_plain(recipe(tmp_path, data=DIGITS))
    named = Recipe.from_plain(recipe(tmp_path, model={"use": "std.lora", "around": "std.gpt"}))
    assert Recipe.from_plain(named.to_plain()).digest == named.digest


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"targets": ["atend"]}, r"targets: 'atend': no layer has a name like that; layers that can be adapted:"),
        ({"targets": ["norm"]}, r"targets: 'norm': norm is a LayerNorm"),
        ({"trained": ["hed.*"]}, r"trained: no parameter has a name like 'hed\.\*'"),
    ],
)
def test_names_of_nothing_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SetupError, match=message):
        run(tmp_path, model={"use": "std.lora", "around": GPT, **options})


def test_adapters_that_the_model_passes_by_are_refused() -> None:
    module = nn.Sequential(nn.TransformerEncoderLayer(6, 2, 8, batch_first=True), nn.Linear(6, 2))
    with pytest.raises(SetupError, match=r"does not call 0\.linear1, 0\.linear2 in evaluation"):
        lora(module, (4, 6), rank=1)
    other = nn.Sequential(nn.TransformerEncoderLayer(6, 2, 8, batch_first=True), nn.Linear(6, 2))
    lora(other, (4, 6), rank=1, targets=("1",))


def test_statistics_of_batch_norm_are_left_as_they_were() -> None:
    module = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    before = module[1].running_mean.clone()
    adapted = lora(module, rank=1)
    assert torch.equal(adapted[1].running_mean, before)
    assert int(adapted[1].num_batches_tracked) == 0


# -- privacy -----------------------------------------------------------------------------------------------------------


def test_gradients_of_single_examples_are_those_of_the_adapters(tmp_path: Path) -> None:
    from fedplug.api.data import ClientData, Examples
    from fedplug_std.tasks import LanguageModel

    model = made(Recipe.from_plain(recipe(tmp_path)))
    model.set_vector(model.get_vector() + np.float32(0.02))
    tokens = np.random.default_rng(0).integers(0, 256, (5, 16))
    examples = Examples(tokens, np.zeros(5, np.int64), tokens)
    names = tuple(map(str, range(256)))
    task = LanguageModel(LanguageModel.Options())
    data = ClientData(examples, examples, examples, classes=names, mean=(), std=(), task=task)
    each = torch.cat(list(per_sample_gradients(model, examples, data)))
    assert each.shape == (5, model.layout.size)
    for number in range(5):
        losses = task.losses(model.module.eval()(torch.from_numpy(tokens[number : number + 1])), torch.from_numpy(
            tokens[number : number + 1]))  # fmt: skip
        alone = torch.autograd.grad(losses.sum(), model.parameters)
        torch.testing.assert_close(each[number], torch.cat([part.reshape(-1) for part in alone]), atol=1e-5, rtol=1e-3)
    squares = mean_squared_gradients(model, examples, data)
    np.testing.assert_allclose(squares, each.square().mean(0).numpy(), rtol=1e-3, atol=1e-9)


ALONE = pytest.param(GPT, marks=pytest.mark.slow)


@pytest.mark.parametrize("model", [ALONE, {"use": "std.lora", "rank": 2, "dropout": 0.1, "around": GPT}])
def test_dp_sgd_trains_it_and_says_epsilon(tmp_path: Path, model: dict[str, Any]) -> None:
    train = {"use": "baselines.dp_sgd", "epochs": 1, "batch_size": 16, "lr": 0.5, "noise_multiplier": 0.5}
    found = run(tmp_path, model=model, train=train)
    first, last = found.metrics[0].leading, found.metrics[-1].leading
    assert first is not None
    assert last is not None
    assert last < first < 260


@pytest.mark.parametrize("model", [ALONE, {"use": "std.lora", "rank": 2, "around": GPT}])
def test_central_noise_and_scores_of_single_examples_work_with_it(tmp_path: Path, model: dict[str, Any]) -> None:
    noised = {
        "negotiate_mask": {"use": "std.single_zone", "zone": "noised"},
        "protect": {"noised": [{"use": "std.clip", "norm": 1.0}]},
        "postprocess": {"noised": [{"use": "std.central_gaussian", "norm": 1.0, "noise_multiplier": 0.1}]},
    }
    assert run(tmp_path, model=model, rounds=1, **noised).metrics[-1].leading is not None
    scored = {
        "score_parameters": [{"use": "selectiveshield.fisher"}],
        "negotiate_mask": {"use": "selectiveshield.consensus", "tau": 0.05, "rho": 0.3},
        "protect": {"encrypted": [{"use": "std.bfv"}], "noised": []},
        "postprocess": {"encrypted": ["std.bfv"], "retained": [{"use": "selectiveshield.merge"}]},
    }
    assert run(tmp_path, model=model, rounds=1, **scored).metrics[-1].leading is not None
