"""SCAFFOLD: c follows from the model's moves, as the paper's second upload would give it; corrected steps by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy_protocol
from fedplug.api.errors import RecipeError
from fedplug.recipe.recipe import Recipe
from fedplug_std.scaffold import Scaffold
from test_std_training import client_with, data_of, mlp, sgd, train
from toy_components import recipe_of, toy_catalog


def made(**options: Any) -> Scaffold:
    trainer = Scaffold(Scaffold.Options(**options))
    trainer.name = "train"
    return trainer


def test_a_step_descends_the_gradient_less_its_own_variate_plus_that_of_all() -> None:
    """Algorithm 1: y = y - lr (g - c_i + c), then c_i = c_i - c + (x - y) / (K lr), here with K 1 and lr 0.1."""
    data, corrected, plain = data_of(20), mlp(), mlp()
    party, start = client_with(corrected, data), plain.get_vector()
    party.vector = start
    rng = np.random.default_rng(3)
    own, of_all = (rng.standard_normal(len(start)).astype(np.float32) for _ in range(2))
    trainer = made(steps=1, batch_size=20, lr=0.1)
    party.memory(trainer).update({"own": own, "all": of_all})
    found = train(trainer, party)
    told = train(sgd(batch_size=20, lr=0.1, micro_batch=20), client_with(plain, data))
    gradient = (start - plain.get_vector()) / 0.1
    after = start - 0.1 * (gradient - own + of_all)
    np.testing.assert_allclose(corrected.get_vector(), after, atol=2e-6)
    np.testing.assert_allclose(party.memory(trainer)["own"], own - of_all + (start - after) / 0.1, atol=5e-5)
    assert found["loss"] == pytest.approx(told["loss"])


def test_every_client_takes_as_many_steps_however_many_examples_it_has() -> None:
    """Without variates K steps are those of SGD: 5 batches of 8 are two and a half epochs of 16 examples."""
    one, other = mlp(), mlp()
    party = client_with(one, data_of(16))
    party.vector = one.get_vector()
    loss = train(made(steps=4, batch_size=8, lr=0.1), party)["loss"]
    told = train(sgd(epochs=2, batch_size=8, lr=0.1), client_with(other, data_of(16)))
    np.testing.assert_allclose(one.get_vector(), other.get_vector(), atol=2e-6)
    assert loss > told["loss"]  # of both epochs, and not of the last
    assert len([*made(steps=5, batch_size=8).batches(party, one, np.random.default_rng(0))]) == 5


def test_the_variate_of_all_is_the_mean_of_those_of_the_clients(tmp_path: Path) -> None:
    """What the paper's server keeps: c = (1/N) sum c_i, in a run where each client works it out of two models."""
    train_with = {"use": "std.scaffold", "steps": 6, "batch_size": 16, "lr": 0.1}
    plain = recipe_of(train=train_with, aggregate={"use": "std.mean", "weighting": "uniform"}, rounds=3)
    outcome = toy_protocol.run_protocol(plain)
    assert outcome.notes == []
    for name, saved in outcome.files.items():
        (tmp_path / name).write_bytes(saved)
    memories = [state["state"]["std.scaffold"] for state in toy_protocol.read_clients(tmp_path).values()]
    assert len(memories) == 4
    for memory in memories:
        np.testing.assert_array_equal(memory["all"], memories[0]["all"])
    mean = np.mean([memory["own"] for memory in memories], axis=0)
    np.testing.assert_allclose(memories[0]["all"], mean, atol=1e-5)
    assert np.abs(mean).max() > 1e-3


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sampling": {"scheme": "poisson", "rate": 0.9}}, "means over all clients, but sampling leaves some out"),
        ({"postprocess": {"clear": ["std.fedopt"]}}, "but std.fedopt moves it differently; leave one of them out"),
        ({"negotiate_mask": {"use": "toy.silent"}}, "lets clients keep scalars to themselves"),
    ],
)
def test_what_would_make_the_variates_wrong_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError) as caught:
        Recipe.from_plain(recipe_of(train={"use": "std.scaffold"}, **changes), toy_catalog())
    assert said in "\n".join(caught.value.problems)


def test_attacks_are_told_that_an_update_is_no_sum_of_gradients() -> None:
    party = client_with(mlp(), data_of(4))
    said = made().learns(party.facts)
    assert said is not None
    assert said.descends == "cross_entropy with control variates"
    solver = made(steps=9).one_batch(party, party.facts, 4)
    assert (solver.options.steps, solver.options.batch_size) == (1, 4)
