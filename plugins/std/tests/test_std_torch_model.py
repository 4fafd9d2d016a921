"""`TorchModel` and its helpers: exact round trips, evaluation by hand, devices, seeds."""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from fedplug.api.blocks import unchangeable
from fedplug.api.data import ClientData, Evaluation, Examples
from fedplug_std.tasks import LanguageModel
from fedplug_std.torch_model import TorchModel, as_tensor, modeless, seeded, set_mode, to_tensor, use_one_thread
from forked import ran
from torch import nn


def small() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2 * 16, 3))


def examples(count: int, seed: int = 0) -> Examples:
    rng = np.random.default_rng(seed)
    return Examples(rng.integers(0, 256, (count, 1, 4, 4), np.uint8), rng.integers(0, 3, count))


def client_data(part: Examples) -> ClientData:
    return ClientData(part, part, part, classes=("a", "b", "c"), mean=(0.25,), std=(0.5,))


def test_layout_follows_named_parameters_and_skips_frozen_ones() -> None:
    module: Any = small()
    module[0].bias.requires_grad_(False)
    model = TorchModel(module)
    assert [(p.name, p.shape, p.layer) for p in model.layout.parameters] == [
        ("0.weight", (2, 1, 3, 3), "0"),
        ("1.weight", (2,), "1"),
        ("1.bias", (2,), "1"),
        ("3.weight", (3, 32), "3"),
        ("3.bias", (3,), "3"),
    ]
    assert model.get_vector().shape == (model.layout.size,) == (18 + 4 + 96 + 3,)


def test_vector_round_trip_is_exact_and_a_copy() -> None:
    module: Any = small()
    model = TorchModel(module)
    vector = np.random.default_rng(1).normal(size=model.layout.size).astype(np.float32)
    vector[0] = np.nan  # a diverged model travels as it is
    vector.setflags(write=False)  # as arrays that come out of a message
    model.set_vector(vector)
    np.testing.assert_array_equal(model.get_vector(), vector)
    place = model.layout.parameters[4]
    np.testing.assert_array_equal(module[3].weight.detach().numpy().ravel(), vector[place.slice])
    model.get_vector()[:] = 0
    np.testing.assert_array_equal(model.get_vector(), vector)
    one = TorchModel(nn.Linear(2, 1, bias=False))
    one.get_vector()[:] = 7
    assert not (one.get_vector() == 7).any()


@pytest.mark.parametrize("bad", [np.zeros(5, np.float32), np.zeros(125, np.float64), np.zeros((125, 1), np.float32)])
def test_a_vector_of_another_shape_or_type_is_refused(bad: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"must be float32\[123\]"):
        TorchModel(small()).set_vector(bad)


def test_buffers_round_trip_and_rounding_of_the_counter() -> None:
    model = TorchModel(small())
    assert set(model.get_buffers()) == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    before = model.get_buffers()
    mean = np.array([1.5, -2.0])
    model.set_buffers({"1.running_mean": mean, "1.num_batches_tracked": np.array(7.6)})
    after = model.get_buffers()
    np.testing.assert_array_equal(after["1.running_mean"], mean.astype(np.float32))
    assert after["1.num_batches_tracked"].dtype == np.int64
    assert int(after["1.num_batches_tracked"]) == 7
    np.testing.assert_array_equal(after["1.running_var"], before["1.running_var"])
    after["1.running_mean"][:] = 0
    assert model.get_buffers()["1.running_mean"][0] == 1.5
    model.set_buffers(before)
    for name, values in model.get_buffers().items():
        np.testing.assert_array_equal(values, before[name])
    with pytest.raises(ValueError, match="no buffer 'x'"):
        model.set_buffers({"x": mean})
    with pytest.raises(ValueError, match="must have shape"):
        model.set_buffers({"1.running_mean": np.zeros(3)})


def test_models_that_cannot_be_trained_are_refused() -> None:
    with pytest.raises(ValueError, match="no trainable parameter"):
        TorchModel(nn.ReLU())
    with pytest.raises(ValueError, match="float64"):
        TorchModel(nn.Linear(2, 2).double())


def test_to_tensor_standardises_per_channel_and_leaves_its_input_alone() -> None:
    stored = np.array([[[[0, 255]], [[51, 102]]]], np.uint8)
    stored.setflags(write=False)
    expected = np.array([[[[-1.0, 1.0]], [[0.0, 0.8]]]])
    np.testing.assert_allclose(to_tensor(stored, (0.5, 0.2), (0.5, 0.25)).numpy(), expected, atol=1e-6)
    floats = stored.astype(np.float32) / 255
    kept = floats.copy()
    np.testing.assert_allclose(to_tensor(floats, (0.5, 0.2), (0.5, 0.25)).numpy(), expected, atol=1e-6)
    np.testing.assert_array_equal(floats, kept)


def test_as_tensor_takes_views_that_torch_does_not() -> None:
    np.testing.assert_array_equal(as_tensor(np.arange(6)[::-2]).numpy(), [5, 3, 1])


def test_evaluation_equals_a_computation_by_hand_whatever_the_batches() -> None:
    part = examples(2500)  # three batches
    model = TorchModel(small())
    model.module.train()
    got = model.evaluate(part, client_data(part))
    assert model.module.training, "evaluation leaves the mode as it was"
    assert int(model.get_buffers()["1.num_batches_tracked"]) == 0, "evaluation does not touch running statistics"
    model.module.eval()
    with torch.no_grad():
        logits = model.module(torch.tensor((part.inputs / 255 - 0.25) / 0.5, dtype=torch.float32)).double().numpy()
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    assert got.count == 2500
    assert got.correct == int((logits.argmax(1) == part.labels).sum())
    assert got.loss == pytest.approx(-log_p[np.arange(2500), part.labels].sum(), rel=1e-5)


def test_several_sets_are_each_counted_as_if_alone_and_what_is_kept_is_used() -> None:
    model = TorchModel(small())
    kept: dict[str, torch.Tensor] = {}
    for sizes in ((5, 40, 0), (1000, 900, 1)):  # in one batch, and in several
        sets = [examples(size, seed) for seed, size in enumerate(sizes)]
        alone = [model.evaluate(each, client_data(each)) for each in sets]
        together = model.evaluate_each(sets, client_data(sets[0]))
        assert [(each.correct, each.count) for each in together] == [(each.correct, each.count) for each in alone]
        np.testing.assert_allclose([each.loss for each in together], [each.loss for each in alone], rtol=1e-5)
    sets = [examples(5), examples(7, 1)]
    first = model.evaluate_each(sets, client_data(sets[0]), kept)
    model.set_vector(model.get_vector() + np.float32(0.1))
    moved = model.evaluate_each(sets, client_data(sets[0]), kept)
    assert [each.loss for each in moved] == [each.loss for each in model.evaluate_each(sets, client_data(sets[0]))]
    assert [each.loss for each in moved] != [each.loss for each in first]


def test_a_module_that_writes_to_its_inputs_is_handed_them_anew() -> None:
    class Writes(torch.nn.Module):
        def __init__(self, inner: torch.nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            inputs.view(-1).add_(1.0).mul_(-1.5)
            return self.inner(inputs)  # type: ignore[no-any-return]

    model, sets = TorchModel(Writes(small())), [examples(5), examples(7, 1)]
    kept: dict[str, torch.Tensor] = {}
    first, second = (model.evaluate_each(sets, client_data(sets[0]), kept) for _ in range(2))
    assert [each.loss for each in second] == [each.loss for each in first]


class Centred(torch.nn.Module):
    """Take the mean of all that are there off each."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.inner(inputs)
        return found - found.mean(0)


def test_sets_do_not_meet_in_a_module_that_answers_by_the_batch() -> None:
    sets = [examples(5), examples(7, 1)]
    model = TorchModel(Centred(small()))
    alone = [model.evaluate(each, client_data(each)).loss for each in sets]
    assert [each.loss for each in model.evaluate_each(sets, client_data(sets[0]))] == alone


class Stateful(torch.nn.Module):
    """Assigns its buffers anew in every pass, and draws in evaluation too."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("passes", torch.zeros(()), persistent=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.seen = self.seen + len(inputs)
        self.passes = self.passes + 1
        drawn: torch.Tensor = torch.nn.functional.dropout(self.inner(inputs), 0.5, training=True)
        return drawn + self.passes + self.seen


def test_nothing_of_one_client_stays_in_a_module_for_the_next() -> None:
    model, part = TorchModel(Stateful(small())), examples(9)
    fresh = model.get_buffers()
    fresh["seen"] += 5
    results = []
    for _ in range(2):  # as one client after the other finds the module
        model.set_buffers(fresh)
        results.append(model.evaluate(part, client_data(part)).loss)
        assert model.get_buffers()["seen"] == 14
    assert results[0] == results[1]
    assert not any("passes" in name for name in fresh)


def test_a_model_with_an_evaluation_of_its_own_is_asked_for_each_set() -> None:
    class Picky(TorchModel):
        def evaluate(self, part: Examples, data: ClientData) -> Evaluation:
            return Evaluation(0, len(part), 7.0)

    part = examples(4)
    assert [each.loss for each in Picky(small()).evaluate_each([part, part], client_data(part))] == [7.0, 7.0]


def test_the_sets_of_a_task_pass_the_model_together_and_are_counted_alone() -> None:
    module = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7))
    passes: list[int] = []
    model, rng = TorchModel(module), np.random.default_rng(2)
    sets = []
    for count in (3, 0, 5):
        tokens, answers = rng.integers(0, 7, (2, count, 6))
        sets.append(Examples(tokens, np.zeros(count, np.int64), answers))
    task = LanguageModel(LanguageModel.Options())
    data = ClientData(sets[0], sets[0], sets[0], classes=tuple("abcdefg"), mean=(), std=(), task=task)
    alone = [model.evaluate(each, data) for each in sets]
    model.evaluate_each(sets, data)  # tries whether the module answers each example alike
    module.register_forward_pre_hook(lambda _, given: passes.append(len(given[0])))
    together = model.evaluate_each(sets, data)
    assert passes == [8]
    for one, other in zip(together, alone, strict=True):
        assert (one.count, one.correct) == (other.count, other.correct)
        assert one.loss == pytest.approx(other.loss, rel=1e-5)
        assert one.task == pytest.approx(other.task, rel=1e-5)


def test_modes_reach_every_part_and_parts_that_set_theirs_are_asked() -> None:
    class Fixed(nn.BatchNorm2d):
        def train(self, mode: bool = True) -> Any:
            return super().train(False)

    module = nn.Sequential(nn.Sequential(nn.Dropout(), Fixed(2)), nn.ReLU())
    for training in (True, False, True):
        set_mode(module, training)
        assert {type(part).__name__: part.training for part in module.modules()} == {
            "Sequential": training, "Dropout": training, "Fixed": False, "ReLU": training,
        }  # fmt: skip


def test_a_module_without_modes_has_no_part_that_is_not_known_and_no_hook() -> None:
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.AvgPool2d(2), nn.Tanh(), nn.Flatten(), nn.Linear(2, 3))
    assert modeless(module)
    assert not modeless(nn.Sequential(module, nn.Dropout()))
    assert not modeless(nn.Sequential(module, nn.Embedding(3, 2, max_norm=1.0))), "it writes to its weights"
    module[2].register_forward_hook(lambda part, given, found: found * part.training)
    assert not modeless(module)


def test_evaluation_of_nothing() -> None:
    part = examples(0)
    got = TorchModel(small()).evaluate(part, client_data(part))
    assert (got.correct, got.count, got.loss) == (0, 0, 0.0)


def test_seeded_repeats_and_restores() -> None:
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    with seeded(5):
        first = torch.rand(3)
    assert torch.equal(torch.rand(3), expected), "the global generator must be where it was"
    with seeded(5):
        assert torch.equal(torch.rand(3), first)
    with seeded(6):
        assert not torch.equal(torch.rand(3), first)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_agrees_with_the_cpu() -> None:
    part = examples(100)
    on_cpu, on_cuda = TorchModel(small()), TorchModel(small(), "cuda")
    np.testing.assert_array_equal(on_cpu.get_vector(), on_cuda.get_vector())
    expected, got = (model.evaluate(part, client_data(part)) for model in (on_cpu, on_cuda))
    assert got.loss == pytest.approx(expected.loss, rel=1e-3)


def test_one_thread() -> None:
    torch.set_num_threads(2)
    use_one_thread()
    assert torch.get_num_threads() == 1
    torch.set_num_threads(2)
    TorchModel(small())
    assert torch.get_num_threads() == 1


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library does as it likes")
def test_what_a_step_frees_is_there_for_the_next() -> None:
    code = """
import resource, torch
from fedplug_std.torch_model import keep_freed_memory
keep_freed_memory()
for step in range(6):
    if step == 1:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [torch.ones(1 << 19) for _ in range(16)]  # 32 MiB in all
    del blocks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    done = ran(code)
    assert done.returncode == 0, done.stderr
    faults = int(done.stdout)
    assert faults < 5 * 8192 / 2, "page faults of five steps, each of 8,192 pages that the step before had"


def test_a_vector_that_the_model_holds_is_not_written_again_unless_somebody_had_the_model_in_hand() -> None:
    model = TorchModel(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(2, 2)))
    first, second = (unchangeable(np.full(6, value, np.float32)) for value in (1, 2))
    weight = model.parameters[0]

    def changed_and_set(change: Callable[[], Any]) -> bool:
        model.set_vector(first)
        change()
        model.set_vector(first)
        return bool((model.get_vector() != first).any())

    assert not changed_and_set(lambda: model.parameters[0].data.add_(1))
    assert not changed_and_set(lambda: model.flat.numpy().__iadd__(1))
    assert not changed_and_set(lambda: model.module[1].bias.data.zero_())
    assert not changed_and_set(lambda: model.set_vector(second))
    with torch.no_grad():
        assert not changed_and_set(lambda: weight.add_(1))  # by an earlier holder
    writable = np.ones(6, np.float32)
    model.set_vector(writable)
    writable[:] = 3
    model.set_vector(writable)
    assert np.array_equal(model.moved_from(first), np.full(6, 2, np.float32))


def test_an_update_is_given_as_it_was_whatever_holds_the_vector_before() -> None:
    """A client's own model lies in other memory once it was read from a checkpoint; its updates are the same."""
    model = TorchModel(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(2, 2)))
    update = np.full(6, 1e-9, np.float32)
    for start in (np.ones(6, np.float32), unchangeable(np.ones(6, np.float32))):
        model.set_vector(start)
        model.move_by(update)
        assert model.moved_from(start) is update
        model.set_vector(start)
        model.module  # noqa: B018
        model.move_by(update)
        assert np.array_equal(model.moved_from(start), np.zeros(6))


@pytest.mark.parametrize("look", ["get_vector", "flat", "parameters", "module", "noted", "evaluate"])
def test_an_update_moves_the_model_when_somebody_looks(look: str) -> None:
    model = TorchModel(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(2, 2)))
    first, update = unchangeable(np.ones(6, np.float32)), np.arange(6, dtype=np.float32)
    weight = model.parameters[0]
    model.set_vector(first)
    model.move_by(update)
    assert model.moved_from(first) is update
    model.set_vector(first)
    model.move_by(update)
    if look == "noted":
        model.noted(lambda module: 0)
    elif look == "evaluate":
        model.evaluate(Examples(np.zeros((1, 2), np.float32), np.zeros(1, np.int64)), client_data(examples(1)))
    elif look == "get_vector":
        assert np.array_equal(model.get_vector(), first + update)
    else:
        getattr(model, look)
    assert np.array_equal(weight.detach().numpy().reshape(-1), (first + update)[:4])
    assert np.array_equal(model.moved_from(first), update)
    model.move_by(update)
    model.move_by(update)
    assert np.array_equal(model.get_vector(), first + 3 * update)
    model.move_by(update)
    model.set_vector(first)
    assert np.array_equal(model.get_vector(), first)


def test_what_is_noted_of_a_module_holds_until_somebody_has_it_in_hand_or_adds_a_hook() -> None:
    model = TorchModel(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(2, 2)))
    asked: list[int] = []

    def look(module: torch.nn.Module) -> int:
        asked.append(len(list(module.modules())))
        return len(asked)

    assert [model.noted(look), model.noted(look)] == [1, 1]
    module = model.module
    assert [model.noted(look), model.noted(look)] == [2, 2]
    module[1].register_forward_hook(lambda *_: None)  # by a holder that kept it
    assert [model.noted(look), model.noted(look)] == [3, 3]
