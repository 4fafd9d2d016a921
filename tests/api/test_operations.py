"""The vocabulary: the parts of an operation, and what counts as one."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, get_args

import fedplug
import pytest
from fedplug import Clip, Combine, Map, Misplaced, Noise, Round, Scale, Shift, WeightedSum
from fedplug.api.operations import Operation
from fedplug.api.places import as_operations


def test_every_operation_is_public_and_frozen() -> None:
    for kind in get_args(Operation):
        assert getattr(fedplug, kind.__name__) is kind
    with pytest.raises(dataclasses.FrozenInstanceError):
        Clip(1.0).norm = 2.0  # type: ignore[misc]


def test_one_operation_or_a_function_counts_as_a_tuple_of_it() -> None:
    both = (Clip(1.0), Scale(0.5))
    assert as_operations(both, "protect", "odd") is both
    assert as_operations((), "protect", "odd") == ()
    assert as_operations(Clip(1.0), "protect", "odd") == (Clip(1.0),)
    (mapped,) = as_operations(lambda block, client, facts: block, "protect", "odd")
    (combined,) = as_operations(lambda blocks, weights, facts: blocks[0], "aggregate", "odd")
    assert isinstance(mapped, Map)
    assert isinstance(combined, Combine)


@pytest.mark.parametrize("given", [[Clip(1.0)], ("clip",), (1.0,), None, {"clip"}, (Clip,)])
def test_what_is_none_names_component_hook_and_vocabulary(given: Any) -> None:
    with pytest.raises(Misplaced) as caught:
        as_operations(given, "protect", "odd")
    assert str(caught.value).startswith("component odd, hook protect: it gave ")
    assert "give a tuple of operations (Clip, Scale, Shift, Round, Rotate, Widen, Noise, Map, " in str(caught.value)
    assert "an empty tuple changes nothing" in str(caught.value)


def test_noise_says_its_mechanism() -> None:
    assert Noise.gaussian(1.0).mechanism == "gaussian"
    assert Noise.gaussian(1.0, source="exact").mechanism == "discrete_gaussian"
    assert Noise.gaussian(0.0, source="exact").mechanism == "gaussian"  # no noise is of any
    assert (Noise.laplace(1.0).mechanism, Noise.laplace(1.0).order) == ("laplace", 1)
    own = Noise.own("skellam", lambda v, p, s: v, multiplier=2.0, source="secure", order=2)
    assert (own.mechanism, own.at_least, own.std, own.grid) == ("skellam", 2.0, None, 0.0)
    assert WeightedSum().rate == 1.0


@pytest.mark.parametrize("beta", [0.0, 1.0, 2.0])
def test_a_chance_of_drawing_again_is_none_of_always_or_never(beta: float) -> None:
    with pytest.raises(ValueError, match=r"Round\(beta=.*\): it must be above 0 and below 1, or None"):
        Round(1.0, beta=beta)
    with pytest.raises(ValueError, match="the first rounds at random; give one of them"):
        Round(1.0, toward_zero=True, beta=0.5)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Scale(None), "Scale(factor=None): it must be a number"),  # type: ignore[arg-type]
        (lambda: Scale({3: 2.0}), "Scale(factor={3: 2.0}): it must be a number"),  # type: ignore[arg-type]
        (lambda: Clip(None), "Clip(norm=None): it must be a number >= 0, a tuple of them or a dict of them by client"),  # type: ignore[arg-type]
        (lambda: Map(None), "Map(function=None): it must be a function"),  # type: ignore[arg-type]
        (lambda: Map("x"), "Map(function='x'): it must be a function"),  # type: ignore[arg-type]
        (lambda: Shift(None), "Shift(by=None): it must be a function or a number"),  # type: ignore[arg-type]
        (lambda: Round(1.0, toward_zero=2), "Round(toward_zero=2): it must be True or False"),  # type: ignore[arg-type]
        (lambda: Noise.gaussian(1.0, colluders=1.5), "Noise(colluders=1.5): it must be a whole number >= 0"),  # type: ignore[arg-type]
        (lambda: Noise.by(float, reads="num_examples", at_least=None), "Noise.by(at_least=None): it must be a number"),  # type: ignore[arg-type]
        (lambda: Noise.by(None, reads="scores", at_least=1.0), "Noise.by(size=None): it must be a function"),  # type: ignore[arg-type]
        (lambda: Noise.laplace(-1.0), "Noise.laplace(scale=-1.0): it must be a number >= 0"),
        (lambda: Noise.gaussian({3: 0.5}), "others: Noise.gaussian({3: 0.5}, others=1.0)"),
        (lambda: Clip({3: 0.5}), "others: Clip({3: 0.5}, others=1.0)"),
        (lambda: Clip({-1: 0.5}, others=1.0), "Clip: client -1 must be a whole number >= 0; clients are numbered"),
    ],
)  # fmt: skip
def test_what_an_operation_cannot_be_made_of_is_refused_by_name(make: Any, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        make()


def test_numbers_by_client_that_name_nobody_are_those_of_all_others() -> None:
    assert Noise.gaussian({}, others=2.0) == Noise.gaussian(2.0)
    assert Noise.gaussian({}, others=0.0, source="exact") == Noise.gaussian(0.0, source="exact")
    assert Clip({}, others=2.0) == Clip(2.0)
