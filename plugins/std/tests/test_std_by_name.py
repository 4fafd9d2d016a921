"""Zones by names: which parameters go where, clients that go on with what they retain, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import toy_protocol
from fedplug import Layout
from fedplug.api.errors import RecipeError, SetupError
from fedplug.recipe.recipe import Recipe
from fedplug_std.by_name import ByName
from toy_components import pushed, recipe_of, toy_catalog

LAYOUT = Layout.of([
    ("conv1.weight", (2, 1, 3, 3)), ("conv1.bias", (2,)), ("norm1.weight", (2,)), ("norm1.bias", (2,)),
    ("down.1.weight", (2,)), ("down.1.bias", (2,)), ("fc.weight", (3, 2)), ("fc.bias", (3,)),
])  # fmt: skip


def placed(**options: Any) -> dict[str, str]:
    made = ByName(ByName.Options(**options))
    made.name = "std.by_name"
    return made.placed(LAYOUT)


def test_a_parameter_goes_to_the_first_zone_that_names_it() -> None:
    found = placed(zones={"retained": ("fc.*",), "encrypted": ("*.bias", "conv1.weight")})
    assert found == {
        "conv1.weight": "encrypted", "conv1.bias": "encrypted", "norm1.weight": "clear", "norm1.bias": "encrypted",
        "down.1.weight": "clear", "down.1.bias": "encrypted", "fc.weight": "retained", "fc.bias": "retained",
    }  # fmt: skip


def test_fedbn_keeps_every_normalisation_whatever_its_name() -> None:
    found = placed(norm="retained")
    kept = [name for name, zone in found.items() if zone == "retained"]
    assert kept == ["norm1.weight", "norm1.bias", "down.1.weight", "down.1.bias"]
    assert placed(norm="retained", zones={"encrypted": ("norm1.*",)})["norm1.bias"] == "encrypted"


KEPT = {"use": "std.by_name", "zones": {"retained": ["*.bias"]}}


def recipe(**changes: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {"negotiate_mask": KEPT, "postprocess": {"retained": ["std.by_name"]}}
    return recipe_of(**{"train": {"use": "toy.push"}, "rounds": 2, **plain, **changes})


def test_clients_go_on_with_what_they_retain_and_share_the_rest() -> None:
    outcome = toy_protocol.run_protocol(recipe())
    assert outcome.notes == []
    start = toy_protocol.initial_vector(recipe())
    np.testing.assert_array_equal(outcome.vector[640:], start[640:])  # the bias of a linear model on 8x8 images
    assert (outcome.vector[:640] != start[:640]).all()
    assert [row.zones["retained"] for row in outcome.rows] == [pytest.approx(10 / 650)] * 2


def test_the_retained_values_of_a_round_are_where_the_next_one_starts(tmp_path: Any) -> None:
    outcome = toy_protocol.run_protocol(recipe(rounds=1))
    for name, saved in outcome.files.items():
        (tmp_path / name).write_bytes(saved)
    start = toy_protocol.initial_vector(recipe())
    for client_id, state in toy_protocol.read_clients(tmp_path).items():
        retained = state["remembered"]["retained"]
        expected = start + pushed(start, 7, client_id, 0)
        np.testing.assert_allclose(retained.plain(), expected[640:], atol=1e-6)


def problems(plain: Any) -> str:
    with pytest.raises(RecipeError) as caught:
        Recipe.from_plain(plain, toy_catalog())
    return "\n".join(caught.value.problems)


def test_what_would_be_lost_or_sent_is_refused() -> None:
    assert "retained values are lost after a round; write postprocess: {retained: [std.by_name]}" in problems(
        recipe(postprocess={})
    )
    norms = {"use": "std.by_name", "norm": "retained"}
    assert "buffers: mean sends its statistics" in problems(recipe(negotiate_mask=norms, buffers="mean"))
    assert "restores a client's retained values, not zone clear" in problems(
        recipe(postprocess={"retained": ["std.by_name"], "clear": ["std.by_name"]})
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"zones": {"retained": ["head.*"]}}, "no parameter has a name like 'head.*'; the model has fc1.weight, fc1."),
        ({"norm": "retained"}, "no layer of the model is a normalisation"),
        ({"zones": {"retained": ["*"]}}, "all parameters stay with the clients, so none is sent"),
    ],
)
def test_names_that_the_model_does_not_have_are_told(options: dict[str, Any], said: str) -> None:
    with pytest.raises(SetupError) as caught:
        toy_protocol.run_protocol(recipe(negotiate_mask={"use": "std.by_name", **options}))
    assert said in str(caught.value)


def test_a_server_optimiser_takes_zones_by_name() -> None:
    outcome = toy_protocol.run_protocol(
        recipe(postprocess={"retained": ["std.by_name"], "clear": [{"use": "std.fedopt"}]})
    )
    assert outcome.notes == []
