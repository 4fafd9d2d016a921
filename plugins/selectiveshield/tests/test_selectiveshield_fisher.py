"""Fisher scores: equations by hand, scaling, where they are evaluated, and the pictures of Appendix C."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from examples import examples
from fedplug import Client, Facts, Layout
from fedplug.api.blocks import BASE_ZONES
from fedplug.api.data import ClientData, Examples
from fedplug.api.errors import ProtectionError, SetupError
from fedplug_kit.static import check_component
from fedplug_lab import pictures
from fedplug_selectiveshield.consensus import Consensus
from fedplug_selectiveshield.fisher import Fisher, normalised
from fedplug_std.torch_model import TorchModel
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import nn

CONSENSUS = Consensus(Consensus.Options(tau=(0.2, 0.3)))


def fisher(**options: Any) -> Fisher:
    component = Fisher(Fisher.Options(**options))
    component.name = "selectiveshield.fisher"
    return component


def client_of(module: nn.Module, inputs: list[list[float]], labels: list[int], client_id: int = 0) -> Client:
    """A client that has trained, with inputs that become tensors unchanged."""
    examples = Examples(np.array(inputs, np.float32)[:, :, None, None], np.array(labels))
    count = examples.inputs.shape[1]
    data = ClientData(examples, examples, examples, classes=("a", "b"), mean=(0.0,) * count, std=(1.0,) * count)
    model = TorchModel(nn.Sequential(nn.Flatten(), module))
    client = Client(client_id=client_id, data=data, model=model, vector=model.get_vector())
    client.update = np.zeros(model.layout.size, np.float32)
    components = {"selectiveshield.consensus": CONSENSUS}
    client.facts = Facts(0, 5, model.layout, BASE_ZONES, 2, 2, 7, "", components)
    return client


def two_examples(**changes: Any) -> Client:
    """A linear model with all weights 0, so both classes have probability 1/2, and two opposed examples."""
    module = nn.Linear(2, 2)
    nn.init.zeros_(module.weight)
    nn.init.zeros_(module.bias)
    return client_of(module, [[2.0, 0.0], [-2.0, 1.0]], [0, 0], **changes)


def test_conforms() -> None:
    check_component("selectiveshield.fisher")


def test_equation_3_by_hand() -> None:
    """Gradients (p - onehot) x^T: -1/2 x and +1/2 x; x is (2, 0) and (-2, 1). In eq. 12 the two cancel."""
    client = two_examples()
    information = fisher().information(client)
    assert information.tolist() == [1.0, 0.125, 1.0, 0.125, 0.25, 0.25]
    squared_mean = fisher(kind="batch_sq").information(client)
    assert squared_mean.tolist() == [0.0, 0.0625, 0.0, 0.0625, 0.25, 0.25]


def test_scores_by_hand() -> None:
    """Each tensor is scaled alone. The bias, whose values are equal, scores 0. Together with the weight it does not."""
    client = two_examples()
    assert fisher().score_parameters(client, client.facts).tolist() == [1, 0, 1, 0, 0, 0]
    by_layer = fisher(normalise="layer").score_parameters(client, client.facts)
    np.testing.assert_allclose(by_layer, [1, 0, 1, 0, 1 / 7, 1 / 7], rtol=1e-6)


def test_a_batch_of_one_example_makes_both_kinds_equal() -> None:
    torch.manual_seed(1)
    client = client_of(nn.Linear(2, 2), [[1.5, -0.5]], [1])
    np.testing.assert_allclose(fisher().information(client), fisher(kind="batch_sq").information(client), rtol=1e-5)


def test_it_is_evaluated_where_the_option_says_and_leaves_the_model_alone() -> None:
    torch.manual_seed(1)
    client = client_of(nn.Linear(2, 2), [[1.5, -0.5], [0.5, 1.0]], [1, 0])
    assert client.update is not None
    client.update = client.update + np.float32(0.5) * np.arange(6, dtype=np.float32)
    client.personal = client.vector + np.float32(0.25)
    before = client.model.get_vector()
    for at, point in (("after", client.local), ("before", client.start)):
        there = client_of(nn.Linear(2, 2), [[1.5, -0.5], [0.5, 1.0]], [1, 0])
        there.vector = point
        there.model.set_vector(point)
        expected = fisher().score_parameters(there, there.facts)
        np.testing.assert_array_equal(fisher(at=at).score_parameters(client, client.facts), expected)
    assert not np.array_equal(fisher().information(client), fisher(at="before").information(client))
    np.testing.assert_array_equal(client.model.get_vector(), before)
    assert client.operations["fisher information"][0] == 8  # two examples, four times: what the clock counts


# Multiples of 1/1024, so that a shift and a scale are exact: 1e-30 + 64 is 64, and no score can tell it from 0 then.
values = hnp.arrays(np.float32, st.integers(1, 30), elements=st.integers(0, 102_400).map(lambda n: n / 1024))


@given(values, values, st.sampled_from([0.25, 0.5, 2.0, 1024.0]), st.sampled_from([0.0, 1.0, 64.0]))
@settings(max_examples=examples(100))
def test_scores_lie_in_0_to_1_and_do_not_change_with_scale(
    first: np.ndarray, second: np.ndarray, scale: float, shift: float
) -> None:
    """Spec 9. Each tensor is scaled alone: the values of the other do not matter."""
    raw = np.concatenate([first, second])
    groups = [[slice(0, len(first))], [slice(len(first), len(raw))]]
    scores = normalised(raw, groups)
    assert scores.dtype == np.float32
    assert ((scores >= 0) & (scores <= 1)).all()
    for part, (own,) in zip((first, second), groups, strict=True):
        if part.min() == part.max():
            assert not scores[own].any()
        else:
            assert scores[own][part.argmin()] == 0
            assert scores[own][part.argmax()] == 1
            np.testing.assert_array_equal(scores[own], normalised(part, [[slice(0, len(part))]]))
    moved = raw.astype(np.float64)
    moved[: len(first)] = moved[: len(first)] * scale + shift
    np.testing.assert_allclose(normalised(moved, groups), scores, atol=1e-6)


@pytest.mark.parametrize("constant", [0.0, 3.5, 3e38])
def test_a_constant_tensor_scores_0_and_never_nan(constant: float) -> None:
    assert normalised(np.full(5, constant, np.float32), [[slice(0, 5)]]).tolist() == [0] * 5
    assert normalised(np.array([constant], np.float32), [[slice(0, 1)]]).tolist() == [0]


def test_values_at_the_ends_of_float32_are_scaled() -> None:
    largest, least = float(np.finfo(np.float32).max), 2.0**-149
    for raw in ([-largest, 0, largest], [0, least, 2 * least]):
        assert normalised(np.array(raw, np.float32), [[slice(0, 3)]]).tolist() == [0, 0.5, 1]


@pytest.mark.parametrize("kind", ["per_sample", "batch_sq"])
def test_a_diverged_model_is_reported(kind: str) -> None:
    client = two_examples()
    client.update = np.full(6, np.nan, np.float32)
    with pytest.raises(ProtectionError, match=r"Fisher information of scalars: 6 of 6 are NaN or infinite.* lower lr"):
        fisher(kind=kind).score_parameters(client, client.facts)


def test_other_models_than_torch_models_are_refused() -> None:
    client = two_examples()
    client.model = object()  # type: ignore[assignment]
    with pytest.raises(SetupError, match="need a torch model, not object"):
        fisher().score_parameters(client, client.facts)


# -- pictures ----------------------------------------------------------------------------------------------------------


def test_one_client_draws_once_and_says_so() -> None:
    component = fisher(figure_client=1)
    other, client = two_examples(), two_examples(client_id=1)
    component.score_parameters(other, other.facts)
    assert not other.figures
    component.score_parameters(client, client.facts)
    assert set(client.figures) == {"fisher-raw", "fisher-normalised", "fisher-boxes"}
    for name, picture in client.figures.items():
        assert pictures.checked(name, picture)["title"]
    client.figures.clear()
    component.score_parameters(client, client.facts)
    assert not client.figures
    (shown,) = component.reveals(client.facts)
    assert (shown.to, shown.covered_by) == (("server",), None)
    assert "of client 1, once" in shown.note
    assert fisher().reveals(client.facts) == []


def test_the_pictures_show_the_values() -> None:
    client = two_examples(client_id=1)
    fisher(figure_client=1).score_parameters(client, client.facts)
    raw, scaled, boxes = (client.figures[name] for name in ("fisher-raw", "fisher-normalised", "fisher-boxes"))
    for picture, ends in ((raw, (0, 1)), (scaled, (0, 1))):
        (panel,) = picture["panels"]  # one layer
        assert (panel["title"], panel["edges"][0], panel["edges"][-1]) == ("1", *ends)
        assert sum(panel["counts"]) == 6
    assert raw["panels"][0]["mark"] is None
    assert scaled["panels"][0]["mark"] == 0.3  # its own tau
    assert [scaled["panels"][0]["counts"][i] for i in (0, -1)] == [4, 2]
    assert boxes["panels"][0]["boxes"] == [[0.125, 0.15625, 0.25, 0.8125, 1.0]]
    assert boxes["panels"][1]["boxes"] == [[0, 0, 0, 0.75, 1]]


def test_a_deep_model_gets_one_histogram_and_constant_values_get_one_too() -> None:
    layout = Layout.of((f"l{n}.weight", (2,)) for n in range(30))
    client = two_examples(client_id=1)
    facts = Facts(0, 5, layout, BASE_ZONES, 2, 2, 7, "", {})
    from fedplug_selectiveshield.pictures import fisher_pictures

    found = fisher_pictures(np.zeros(60), np.zeros(60, np.float32), client, facts)
    assert [panel["title"] for panel in found["fisher-raw"]["panels"]] == ["all layers"]
    assert found["fisher-normalised"]["panels"][0]["mark"] is None  # the recipe has no consensus
    for name, picture in found.items():
        assert pictures.checked(name, picture)["kind"]


def test_it_says_what_it_does() -> None:
    assert "squared batch gradient (as published) before training" in fisher(kind="batch_sq", at="before").describe()
    assert "min-max per layer" in fisher(normalise="layer").describe()
    assert math.isclose(CONSENSUS.threshold(1), 0.3)
