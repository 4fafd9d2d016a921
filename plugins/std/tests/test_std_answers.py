"""The common test set, each example of which passes a model once, whoever asks first: equal bits, and how often."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from fedplug.api.data import ClientData, Evaluation, Examples
from fedplug_std import _answers, tasks, torch_model
from fedplug_std.torch_model import TorchModel

TOTAL, BATCH = 23, 8


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_model, "BATCH", BATCH)


def images(task: Any = None) -> ClientData:
    rng = np.random.default_rng(0)
    test = Examples(rng.integers(0, 256, (TOTAL, 1, 4, 4)).astype(np.uint8), rng.integers(0, 3, TOTAL))
    return ClientData(test, test, test, classes=("a", "b", "c"), mean=(0.4,), std=(0.3,), task=task)


def convolutional() -> torch.nn.Module:
    torch.manual_seed(1)
    layers = torch.nn.Conv2d(1, 3, 3), torch.nn.BatchNorm2d(3), torch.nn.ReLU(), torch.nn.Flatten()
    return torch.nn.Sequential(*layers, torch.nn.Linear(12, 3))


def perceptron() -> torch.nn.Module:
    torch.manual_seed(1)
    layers = torch.nn.Flatten(), torch.nn.Linear(16, 7), torch.nn.ReLU()
    return torch.nn.Sequential(*layers, torch.nn.Linear(7, 3))


class Counting(torch.nn.Module):
    """A module that counts the examples that pass it, outside of itself."""

    def __init__(self, module: torch.nn.Module, passed: list[int]) -> None:
        super().__init__()
        self.module, self._count = module, passed.append

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self._count(len(inputs))
        answered: torch.Tensor = self.module(inputs)
        return answered


def parts_of(data: ClientData, *places: list[int]) -> tuple[list[Examples], list[Any]]:
    every = [np.array(each, np.int64) for each in places]
    return [data.shared_test.take(each) for each in every], every


def asked(model: TorchModel, data: ClientData, *places: list[int]) -> list[Evaluation]:
    answered = model.evaluate_parts(*parts_of(data, *places), data)
    assert answered is not None
    assert answered[1] > 0
    return answered[0]


@pytest.mark.parametrize("made", [perceptron, convolutional])
def test_answers_are_equal_to_the_bit_whoever_asks_first_and_those_of_the_model(made: Any) -> None:
    data = images()
    parts = [[0, 9, 22], [9, 1, 17], [*range(TOTAL)], [5]]
    found: dict[int, list[Any]] = {number: [] for number in range(len(parts))}
    for order in itertools.permutations(range(len(parts))):
        model = TorchModel(made())
        for number in order:
            (one,) = asked(model, data, parts[number])
            assert one.outputs is not None
            found[number].append((one.correct, one.count, one.loss, one.outputs.tobytes()))
    assert all(len(set(each)) == 1 for each in found.values())
    for number, places in enumerate(parts):
        alone = TorchModel(made()).evaluate(data.shared_test.take(np.array(places)), data)
        correct, count, loss, _ = found[number][0]
        assert (correct, count) == (alone.correct, alone.count)
        assert loss == pytest.approx(alone.loss, rel=1e-5)


def test_every_example_passes_the_model_once_and_a_client_alone_asks_for_few() -> None:
    data, passed = images(), list[int]()
    model = TorchModel(Counting(convolutional(), passed))
    asked(model, data, [3], [4, 13])
    assert passed[:2] == [BATCH, BATCH]  # whether it answers each alike
    assert passed[2:] == [BATCH]
    for place in range(TOTAL):
        asked(model, data, [place], [])
    assert passed[2:] == [BATCH] * 3
    # In one place of a batch, and so one after the other.
    alone = TorchModel(Counting(convolutional(), passed := []))
    asked(alone, data, [4, 12, 20])
    assert passed[2:] == [BATCH] * 3


def test_other_parameters_and_buffers_have_other_answers_and_those_before_are_kept() -> None:
    data, passed = images(), list[int]()
    model = TorchModel(Counting(convolutional(), passed))
    first = model.get_vector()
    vectors = [first, first + np.float32(0.1), first - np.float32(0.2)]
    outputs = []
    for vector in vectors * 2:
        model.set_vector(vector)
        (found,) = asked(model, data, [*range(TOTAL)])
        assert found.outputs is not None
        outputs.append(found.outputs.tobytes())
    assert outputs[:3] == outputs[3:]
    assert len({*outputs}) == 3
    assert passed == [BATCH] * (2 + 3 * 3)
    buffers = model.get_buffers()
    model.set_buffers({**buffers, "module.1.running_mean": buffers["module.1.running_mean"] + 1})
    (found,) = asked(model, data, [*range(TOTAL)])
    assert found.outputs is not None
    assert found.outputs.tobytes() not in outputs


def test_a_model_that_answers_for_a_batch_together_is_asked_for_each_part() -> None:
    class Ranked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(3))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return (inputs - inputs.mean(0)).flatten(1)[:, :3] * self.scale

    data = images()
    assert TorchModel(Ranked()).evaluate_parts(*parts_of(data, [0, 1], [2]), data) is None


def test_a_task_counts_the_outputs_of_each_part_as_long_as_they_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    data = images(tasks.Classification(tasks.Classification.Options()).varied(name="std.classification"))
    (found,) = asked(TorchModel(perceptron()), data, [2, 7, 8, 21])
    alone = TorchModel(perceptron()).evaluate(data.shared_test.take(np.array([2, 7, 8, 21])), data)
    assert (found.correct, found.count, found.task) == (alone.correct, alone.count, alone.task)
    assert found.loss == pytest.approx(alone.loss, rel=1e-5)
    monkeypatch.setattr(_answers, "_MOST_JUDGED", 3 * TOTAL - 1)
    assert TorchModel(perceptron()).evaluate_parts(*parts_of(data, [0]), data) is None


def test_counts_of_a_models_own_are_those_of_each_part() -> None:
    def count(predicted: torch.Tensor, answers: torch.Tensor) -> dict[str, float]:
        return {"of the first class": int((predicted == 0).sum()), "answers": len(answers)}

    (first, second) = asked(TorchModel(perceptron(), count=count), images(), [0, 1, 2, 3], [4])
    alone = TorchModel(perceptron(), count=count).evaluate(images().shared_test.take(np.arange(4)), images())
    assert first.task == alone.task
    assert second.task["answers"] == 1


def test_an_empty_part_has_nothing_and_texts_are_counted_by_position() -> None:
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 5, (TOTAL, 3))
    test = Examples(tokens, np.zeros(TOTAL, np.int64), tokens)
    data = ClientData(test, test, test, classes=tuple("abcde"), mean=(), std=())

    class Next(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(5, 5)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.table(inputs).movedim(-1, 1)
            return found

    torch.manual_seed(0)
    model = TorchModel(Next())
    found, empty = asked(model, data, [1, 4, 6], [])
    alone = model.evaluate(test.take(np.array([1, 4, 6])), data)
    assert (found.correct, found.count, found.outputs) == (alone.correct, 9, None)
    assert found.loss == pytest.approx(alone.loss, rel=1e-5)
    assert (empty.correct, empty.count, empty.loss) == (0, 0, 0.0)


class Kept(torch.nn.Module):
    """A module that keeps how often it was called where nobody resets it, and answers for a batch together."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(3))
        self._calls = 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self._calls += 1
        given = inputs.flatten(1)[:, :3]
        return (given - given.mean(0)) * self.scale * (1 + 1e-5 * self._calls)


def test_a_client_finds_the_same_whoever_asked_before_it_in_its_process() -> None:
    """Copies share what was tried of their code. The first client tried it for all, with its module and its examples.
    """
    varied, alike = images(), images()
    alike.shared_test.inputs[:] = 7  # in a batch of these, each is the mean
    sets = [np.arange(3), np.arange(3, 8)]
    found = []
    for order in ((varied, alike), (alike, varied)):
        model = TorchModel(Kept())
        told = {id(data): copy.deepcopy(model).evaluate_each([data.shared_test.take(some) for some in sets], data)
                for data in order}  # fmt: skip
        found.append(told[id(varied)][1].outputs)
    alone = TorchModel(Kept()).evaluate(varied.shared_test.take(sets[1]), varied).outputs
    assert found[0] is not None
    assert found[1] is not None
    assert alone is not None
    assert found[0].tobytes() == found[1].tobytes()
    assert np.allclose(found[1], alone, rtol=1e-4)
