"""BLUR keeps updates within the clip, LUS zeroes the values that matter least, and noise hides which they were."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from examples import examples
from fedplug import Block, Client, ClientData, Examples, FixedPoint, Known, Layout, Map, Misplaced, Noise, Plan, Seal
from fedplug.api.blocks import BASE_ZONES
from fedplug.api.errors import ProtectionError, RecipeError
from fedplug.recipe.recipe import Recipe
from fedplug_baselines.blur import excess_penalty
from fedplug_baselines.lus import Lus, kept, tensors
from fedplug_std.torch_model import TorchModel
from hypothesis import given, settings
from hypothesis import strategies as st
from link_toys import behind, clip, passed
from toy_components import recipe_of
from toy_protocol import initial_vector, run_protocol

LAYOUT = Layout.of([("fc.weight", (2, 3)), ("fc.bias", (4,))])
NOISE = {"use": "std.gaussian", "noise_multiplier": 0.01, "source": "reproducible"}
CLIP = {"use": "std.clip", "norm": 1.0}
SOME = {"use": "std.digits", "clients": 4, "train_size": 400, "test_size": 20, "partition": "std.iid"}


def lus(**options: Any) -> Lus:
    made = Lus(Lus.Options(**{"by": "magnitude"} | options))
    made.name = "baselines.lus"
    return made


def chain(*, again: bool = False, **options: Any) -> list[Any]:
    return [{"use": "baselines.lus", **options}, CLIP, NOISE, *(["baselines.lus"] if again else [])]


def trained(model: dict[str, Any] | None = None, **train: Any) -> Any:
    use = {"use": "std.sgd", "name": "trainer", "epochs": 2, "batch_size": 32, "lr": 0.05}  # one name, one order
    return run_protocol(recipe_of(train=use | train, data=SOME, rounds=1, **({"model": model} if model else {})))


def uploads(outcome: Any, client_id: int = 1) -> list[Any]:
    """The noised values that a client sent, one array a round."""
    sent = [message for message in outcome.sent("server", f"client:{client_id}") if message.phase == "upload"]
    return [message.decode()["value"]["blocks"]["noised"].plain() for message in sent]


# -- BLUR --------------------------------------------------------------------------------------------------------------


def test_the_penalty_of_a_worked_example() -> None:
    """Moved by (3, 0) and (0, 4): ||.||^2 is 25. With S = 3 and lambda 0.5: 0.25 * 16 = 4, and 0.5 times the move."""
    start = [torch.zeros(2), torch.ones(2)]
    parameters = [torch.tensor([3.0, 0.0], requires_grad=True), torch.tensor([1.0, 5.0], requires_grad=True)]
    found = excess_penalty(parameters, start, 0.5, 3.0)
    assert found.item() == pytest.approx(4.0)
    gradients = torch.autograd.grad(found, parameters)
    assert [g.tolist() for g in gradients] == [[1.5, 0.0], [0.0, 2.0]]
    within = excess_penalty(parameters, start, 0.5, 5.0)
    assert within.item() == 0
    assert all(not g.any() for g in torch.autograd.grad(within, parameters))


def test_within_the_bound_training_is_plain_sgd_bit_for_bit() -> None:
    cnn = {"use": "std.cnn", "hidden": 4}  # a perceptron's steps are written out in plain SGD: other rounding
    plain = trained(cnn).vector
    assert np.array_equal(trained(cnn, use="baselines.blur", norm=1e3, penalty=5.0).vector, plain)
    assert np.array_equal(trained(cnn, use="baselines.blur", norm=0.0, penalty=0.0).vector, plain)
    close = trained(use="baselines.blur", norm=1e3, penalty=5.0).vector
    np.testing.assert_allclose(close, trained().vector, atol=1e-6)


def test_beyond_the_bound_updates_are_held_back() -> None:
    def moves(**train: Any) -> Any:
        outcome = run_protocol(recipe_of("noised", [CLIP | {"norm": 1e6}], rounds=1, data=SOME, train={
            "epochs": 5, "batch_size": 8, "lr": 0.05, **train,
        }))  # fmt: skip
        return [float(np.linalg.norm(uploads(outcome, client_id)[0])) for client_id in range(4)]

    free = moves(use="std.sgd")
    bound = min(free) / 2
    held = moves(use="baselines.blur", penalty=20.0, norm=bound)
    assert all(low < high for low, high in zip(held, free, strict=True))
    assert max(held) < 1.2 * bound


@pytest.mark.parametrize("options", [{"penalty": -1}, {"norm": -0.1}, {"penalty": "inf"}])
def test_a_penalty_that_is_none_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match=r"penalty|norm"):
        Recipe.from_plain(recipe_of(train={"use": "baselines.blur", **options}))


# -- LUS ---------------------------------------------------------------------------------------------------------------


def test_the_least_of_each_tensor_are_zeroed(make_client: Callable[..., Client]) -> None:
    values = np.array([5, -1, 2, -9, 3, 4, 10, 30, -20, 40], np.float32)
    client = make_client(LAYOUT, plan=Plan.single("noised", 10, BASE_ZONES))
    out = passed(Block("noised", 10, values=values), client, lus(sparsity=0.5))
    assert out.plain().tolist() == [5, 0, 0, -9, 0, 4, 0, 30, 0, 40]
    assert client.log["baselines.lus.zeroed"] == 0.5
    part = Plan.of(client.facts, "clear", noised=np.array([1, 2, 3, 8, 9]))  # 3 of one tensor, 2 of the other
    client.plan = part
    out = passed(Block("noised", 5, values=values[[1, 2, 3, 8, 9]]), client, lus(sparsity=0.5))
    assert out.plain().tolist() == [0, 2, -9, 0, 40]


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=60), st.floats(0, 0.99))
def test_each_tensor_keeps_its_share_and_no_value_below_a_zeroed_one(pairs: Any, sparsity: float) -> None:
    costs = np.array([cost for cost, _ in pairs], np.float32)
    groups = np.sort(np.array([group for _, group in pairs], np.intp))
    keep = kept(costs, groups, sparsity)
    for group in np.unique(groups):
        mine, which = keep[groups == group], costs[groups == group]
        assert np.count_nonzero(~mine) == int(sparsity * len(mine) + 1e-9)
        if not mine.all():
            assert which[mine].min() >= which[~mine].max()
            tied = mine[which == which[~mine].max()]  # of equal ones the first survive
            assert (np.diff(tied.astype(int)) <= 0).all()


def test_utility_is_the_first_order_change_of_the_loss(make_client: Callable[..., Client]) -> None:
    """Zeroing one small value of the update changes the client's mean loss at its local model by its cost."""
    rng = np.random.default_rng(0)
    part = Examples(rng.random((12, 1, 2, 3), np.float32), rng.integers(0, 4, 12))
    data = ClientData(part, part, part, classes=tuple("abcd"), mean=(0.5,), std=(0.3,))
    model = TorchModel(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(6, 4)))
    client = make_client(model.layout, data=data, model=model)
    client.vector = model.get_vector()
    client.update = (1e-3 * rng.standard_normal(model.layout.size)).astype(np.float32)
    where = np.arange(5, 28).astype(np.uint32)
    costs = lus(by="utility").costs(Block("noised", len(where), values=client.update[where]), client, where)

    def loss(vector: Any) -> float:
        model.set_vector(vector)
        with torch.no_grad():
            inputs = (torch.from_numpy(part.inputs) - 0.5) / 0.3
            logits = model.module(inputs).double()
            return float(torch.nn.functional.cross_entropy(logits, torch.from_numpy(part.labels)))

    local = client.local
    for index, cost in zip(where, costs, strict=True):
        zeroed = local.copy()
        zeroed[index] = client.vector[index]
        assert abs(loss(zeroed) - loss(local)) == pytest.approx(cost, abs=1e-6, rel=0.05)


def test_tensors_are_numbered_by_the_layout() -> None:
    assert tensors(LAYOUT).tolist() == [0] * 6 + [1] * 4


def test_a_diverged_update_is_refused(make_client: Callable[..., Client]) -> None:
    client = make_client(LAYOUT, plan=Plan.single("noised", 10, BASE_ZONES))
    with pytest.raises(ProtectionError, match="NaN and cannot be ranked"):
        passed(Block("noised", 10, values=np.full(10, np.nan, np.float32)), client, lus())


# -- noise -------------------------------------------------------------------------------------------------------------


def test_noise_hides_what_was_zeroed() -> None:
    outcome = run_protocol(recipe_of("noised", chain(sparsity=0.8)))
    for values in uploads(outcome):
        assert np.count_nonzero(values == 0) < 5  # a zero comes by chance, on a fine grid
    assert lus(sparsity=0.8).reveals(outcome.protocol.server.facts) == []


def test_the_literal_form_shows_what_was_zeroed() -> None:
    outcome = run_protocol(recipe_of("noised", chain(sparsity=0.8, noise="kept", again=True)))
    for client_id in range(4):
        for values in uploads(outcome, client_id):
            zeroed = int(0.8 * 640) + int(0.8 * 10)
            assert zeroed <= np.count_nonzero(values == 0) < zeroed + 5
    facts = outcome.protocol.server.facts
    (shown,) = outcome.protocol.composition.components["baselines.lus"].reveals(facts)
    assert (shown.what, shown.covered_by) == ("support of the update", None)
    # Any party with the model sees the scalars that all clients zeroed: they do not move.
    assert {"server", "released_model"} <= set(shown.to)
    assert np.count_nonzero(outcome.vector == initial_vector(recipe_of("noised"))) > 100


def test_the_literal_form_promises_nothing() -> None:
    """The positions of the zeros follow from the data, and no noise covers them."""

    def report(chain: list[Any]) -> Any:
        noise = NOISE | {"noise_multiplier": 3.0, "source": "secure"}
        plain = recipe_of("noised", [noise if use is NOISE else use for use in chain], rounds=1)
        return run_protocol(plain).protocol.ledger.report()

    as_published = report(chain(noise="kept", again=True))
    assert as_published.verdict.status == "no_protection"
    assert all(view.epsilon is None for view in as_published.views.values())
    covered = report(chain())
    assert covered.views["released_model"].epsilon < covered.views["server"].epsilon


def test_zeroing_follows_from_data_and_a_clip_comes_after(make_client: Callable[..., Client]) -> None:
    facts, noise = make_client(LAYOUT).facts, Noise.gaussian(0.1)
    assert behind(facts, "noised", clip(1.0), lus()).norm() is None
    known = behind(facts, "noised", lus(), clip(1.0))
    assert known.norm() == 1.0
    assert len(known.after(noise).releases) == 1
    noised = dataclasses.replace(known.after(noise), link="baselines.lus")
    as_published = noised.after(*lus(noise="kept").protect(noised, facts))
    assert (as_published.releases, as_published.freed) == ((), ("baselines.lus",))
    sealed = known.after(Seal(scheme="any", opened_by="clients", numbers=FixedPoint(1.0, 0.0)))
    for component in (lus(), lus(noise="kept")):
        with pytest.raises(Misplaced, match=r"put baselines.lus before the encryption"):
            component.protect(sealed, facts)


def test_examples_are_read_for_the_utility_alone(make_client: Callable[..., Client]) -> None:
    """Even with an account of single records, which then states that it does not cover these."""
    facts = make_client(LAYOUT).facts
    for by in ("magnitude", "utility"):
        (operation,) = lus(by=by).protect(Known(zone="noised"), facts)
        assert isinstance(operation, Map)
        assert operation.examples == (by == "utility")
    accounts = {"use": "baselines.dp_sgd", "noise_multiplier": 1.0, "batch_size": 32, "lr": 0.1}
    found = {}
    for by in ("magnitude", "utility"):
        outcome = run_protocol(recipe_of("noised", chain(by=by), train=accounts, data=SOME, rounds=1))
        found[by] = {shown.what for shown in outcome.protocol.ledger.reveals}
    assert found["utility"] - found["magnitude"] == {"zeroed values", "what baselines.lus takes from examples"}


def test_no_sparsity_is_no_change() -> None:
    plain = run_protocol(recipe_of("noised", [CLIP, NOISE]))
    assert np.array_equal(run_protocol(recipe_of("noised", chain(sparsity=0.0))).vector, plain.vector)


@pytest.mark.parametrize(
    ("protect", "says"),
    [
        (chain(sparsity=1.0), "sparsity"),
        (chain(sparsity=0.5, noise="kept"), "once more at the end of the chain"),
        (chain(sparsity=0.5, again=True), "put baselines.lus before the noise"),
        ([CLIP, NOISE, {"use": "baselines.lus"}], "put baselines.lus before the noise"),
    ],
)
def test_a_chain_that_cannot_be_is_refused(protect: list[Any], says: str) -> None:
    with pytest.raises(RecipeError, match=says):
        Recipe.from_plain(recipe_of("noised", protect))
