"""The kit's checks of components that need no round."""

from __future__ import annotations

import math
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
from fedplug import Declares
from fedplug.api.data import Dataset, Examples
from fedplug_kit.parts import Images, TwoLayers
from fedplug_kit.single import accountant_problems, data_problems, model_problems, partition_problems
from fedplug_std.models import LeNet5
from fedplug_std.partitions import Iid


def test_the_kits_own_parts_are_right() -> None:
    assert list(data_problems(Images(Images.Options()), None)) == []
    assert list(partition_problems(Iid(Iid.Options()))) == []
    assert list(model_problems(TwoLayers(TwoLayers.Options()), (1, 8, 8))) == []


def test_data_that_changes_and_labels_beyond_the_classes_are_found() -> None:
    draws = iter(range(100))

    def load(root: Any) -> Dataset:
        labels = np.arange(8) % 4 + next(draws)
        some = Examples(np.zeros((8, 1, 2, 2), np.uint8), labels)
        return Dataset(some, some, classes=tuple("abcd"), mean=(0.5,), std=(0.0,))

    source: Any = SimpleNamespace(load=load, declares=Declares(shape=(1, 4, 4), num_classes=2, per="pixel"))
    list(data_problems(source, None))
    found = "\n".join(data_problems(source, None))
    assert "labels of train must be 0 to 3" in found
    assert "std > 0" in found
    assert "declares says shape=(1, 4, 4), but load gives (1, 2, 2)" in found
    assert "declares says num_classes=2, but load gives 4" in found
    assert "declares says per=pixel, but load gives example" in found
    assert "a second load gives other examples" in found


def test_refusals_that_are_not_true_are_found() -> None:
    class Silent(LeNet5):
        def refuses(self, shape: Any, num_classes: Any, per: Any) -> None:
            return None

    class Loud(LeNet5):
        def refuses(self, shape: Any, num_classes: Any, per: Any) -> str:
            return "no"

    (missing,) = model_problems(Silent(LeNet5.Options()), (1, 12, 12))
    assert missing.startswith("it accepts no examples of shape 1x1x1, but refuses does not say so for fedplug check")
    refused = list(model_problems(Loud(LeNet5.Options()), (1, 12, 12)))
    assert refused == ["refuses rejects examples that the model accepts: no"]


def test_parameters_that_a_model_does_not_have_are_found() -> None:
    class Boasts(LeNet5):
        def num_parameters(self, shape: Any, num_classes: Any) -> int:
            return super().num_parameters(shape, num_classes) + 1

    assert not [*model_problems(LeNet5(LeNet5.Options()), (1, 12, 12))]
    (problem,) = model_problems(Boasts(LeNet5.Options()), (1, 12, 12))
    assert re.match(r"num_parameters gives 1\d+, and the model has 1\d+; fedplug check would refuse models", problem)


def test_shares_that_overlap_are_found() -> None:
    partition: Any = SimpleNamespace(
        assign=lambda labels, clients, rng: [np.arange(3)] * clients, categories=lambda clients: None
    )
    assert "an example is in two shares" in list(partition_problems(partition))


def test_an_epsilon_that_does_not_move_is_found() -> None:
    accountant: Any = SimpleNamespace(compose=lambda releases, delta, adjacency: {"flat": 1.0, "odd": math.inf})
    found = list(accountant_problems(accountant))
    assert "flat does not fall where the noise grows" in found
    assert "flat does not grow with the rounds" in found
    assert "odd of ten releases with multiplier 2 is inf" in found
