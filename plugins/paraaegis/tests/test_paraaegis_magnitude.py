"""ParaAegis' scores: the size of the update, and the alternatives of the ablation."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fedplug import Client, Facts, Layout
from fedplug_kit.static import check_component
from fedplug_paraaegis.magnitude import Magnitude

LAYOUT = Layout.of([("fc1.weight", (2, 2)), ("fc1.bias", (2,)), ("fc2.weight", (3,))])
UPDATE = np.array([3, -4, 0, 0, -1, 2, 0.5, -2, 1], np.float32)


def score(round: int = 0, client_id: int = 0, **options: Any) -> np.ndarray:
    component = Magnitude(Magnitude.Options(**options))
    component.name = "paraaegis.magnitude"
    client = Client(client_id=client_id, update=UPDATE.copy())
    client.facts = Facts(round, 3, LAYOUT, (), 2, 2, 7, "")
    result = component.score_parameters(client, client.facts)
    assert result.dtype == np.float32
    assert result.shape == (9,)
    assert client.update is not None
    assert np.array_equal(client.update, UPDATE)  # scoring must not touch the update
    return result


def test_conforms() -> None:
    check_component("paraaegis.magnitude")


def test_max_is_the_absolute_update_and_min_its_opposite() -> None:
    assert score().tolist() == np.abs(UPDATE).tolist()
    assert score(strategy="min").tolist() == (-np.abs(UPDATE)).tolist()


def test_a_tensor_has_one_score() -> None:
    expected = [5.0] * 4 + [np.sqrt(5)] * 2 + [np.sqrt(5.25)] * 3
    assert score(granularity="tensor") == pytest.approx(expected)
    assert score(granularity="tensor", strategy="min") == pytest.approx([-value for value in expected])


def test_random_depends_on_client_and_round_and_is_reproducible() -> None:
    first = score(strategy="random")
    assert np.array_equal(first, score(strategy="random"))
    assert not np.array_equal(first, score(strategy="random", round=1))
    assert not np.array_equal(first, score(strategy="random", client_id=1))
    assert ((first >= 0) & (first < 1)).all()


def test_there_is_nothing_to_score_before_training() -> None:
    component = Magnitude(Magnitude.Options())
    with pytest.raises(ValueError, match="after training"):
        component.score_parameters(SimpleNamespace(update=None), None)  # type: ignore[arg-type]


def test_it_says_what_it_does() -> None:
    assert Magnitude(Magnitude.Options(strategy="min")).describe() == "min |update|, per element"
    assert component_of(strategy="random", granularity="tensor") == "random scores, whatever the update"


def component_of(**options: Any) -> str:
    """The description of a component with these options."""
    return Magnitude(Magnitude.Options.model_validate(options)).describe()
