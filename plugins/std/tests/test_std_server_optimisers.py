"""Server optimisers: a worked example each, the same at the server and at clients; masks that move are refused."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import toy_protocol
from fedplug import Layout, Public
from fedplug.api.errors import RecipeError
from fedplug.api.operations import Misplaced
from fedplug.recipe.recipe import Recipe
from fedplug_std.server_optimisers import FedOpt
from noise_toys import facts_of, known
from toy_components import paraaegis, recipe_of, toy_catalog

MEANS = np.array([[0.5, -0.25], [-0.5, 0.75]], np.float32)


def optimiser(**options: Any) -> FedOpt:
    made = FedOpt(FedOpt.Options(**options))
    made.name = "std.fedopt"
    return made


def moves(made: FedOpt) -> np.ndarray[Any, Any]:
    """What two rounds with these means move the model by."""
    memory: dict[str, Any] = {}
    public = Public("clear", 0, 2, Layout(()), None, None, memory, np.random.default_rng(0))
    return np.stack([made.step(mean, public) for mean in MEANS])


@pytest.mark.parametrize(
    ("options", "second"),
    [
        # m_1 = d_1 / 2 = (1/4, -1/8), m_2 = m_1 / 2 + d_2 / 2 = (-1/8, 5/16); v_0 = 1/4.
        ({"optimiser": "adam", "beta2": 0.75}, [[0.203125, 0.19140625], [0.15625, 0.16796875]]),
        ({"optimiser": "adagrad"}, [[0.3125, 0.265625], [0.328125, 0.36328125]]),
        # v_1 = 1/4 - m_1^2/4, since v_0 > m_1^2; then v_2 = v_1 - m_2^2/4, since v_1 > m_2^2.
        ({"optimiser": "yogi", "beta2": 0.75}, [[0.234375, 0.24609375], [0.23046875, 0.2216796875]]),
    ],
)
def test_two_rounds_are_those_of_algorithm_2(options: dict[str, Any], second: list[list[float]]) -> None:
    """Reddi et al. 2021, by hand, with numbers that float32 holds."""
    first = np.array([[0.25, -0.125], [-0.125, 0.3125]])
    found = moves(optimiser(**options, lr=0.5, beta1=0.5, tau=0.5))
    np.testing.assert_allclose(found, 0.5 * first / (np.sqrt(second) + 0.5), rtol=1e-6)


def test_momentum_is_that_of_torch_optim_sgd() -> None:
    import torch

    parameter = torch.zeros(2, requires_grad=True)
    torch_optimiser = torch.optim.SGD([parameter], lr=0.3, momentum=0.6)
    for mean in MEANS:
        parameter.grad = -torch.tensor(mean)
        torch_optimiser.step()
    found = moves(optimiser(optimiser="momentum", lr=0.3, beta1=0.6))
    np.testing.assert_allclose(found.sum(0), parameter.detach().numpy(), rtol=1e-6)


def test_yogi_lets_a_second_moment_grow_no_faster_than_its_gap() -> None:
    """Where m^2 exceeds v, v grows by (1 - beta2) m^2: with tau 1/4, v = 1/16 and m = d = 1/2, to 1/16 + 1/16."""
    made = optimiser(optimiser="yogi", lr=1.0, beta1=0.0, beta2=0.75, tau=0.25)
    assert moves(made)[0, 0] == pytest.approx(0.5 / (np.sqrt(0.125) + 0.25))


def test_first_moments_are_the_papers_unless_they_are_given() -> None:
    assert [optimiser(optimiser=name).options.first for name in ("adam", "yogi", "momentum", "adagrad")] == [
        0.9, 0.9, 0.9, 0.0
    ]  # fmt: skip
    assert optimiser(optimiser="adagrad", beta1=0.5).options.first == 0.5
    said = optimiser(lr=0.03).describe()
    assert said == "FedAdam at the server: lr 0.03, beta1 0.9, beta2 0.99, tau 0.001"
    assert optimiser(optimiser="momentum", at="client").describe() == "FedAvgM at each client: lr 0.1, beta1 0.9"


def recipe(zone: str = "clear", chain: list[Any] | None = None, opening: list[Any] | None = None, **more: Any) -> Any:
    return recipe_of(
        zone, chain or [], train={"use": "toy.push"}, rounds=3, postprocess={zone: opening or []}, **more
    )


def final(plain: Any) -> Any:
    outcome = toy_protocol.run_protocol(plain)
    assert outcome.notes == []
    return outcome.vector


def fedopt(at: str = "server", **options: Any) -> dict[str, Any]:
    return {"use": "std.fedopt", "at": at, **options}


def test_a_run_moves_the_model_as_the_algorithm_says_at_the_server_or_at_every_client() -> None:
    plain, server, client = (
        final(recipe(opening=opening)) for opening in ([], [fedopt(tau=0.1)], [fedopt("client", tau=0.1)])
    )
    np.testing.assert_array_equal(server, client)
    assert not np.allclose(plain, server)
    # Updates of this trainer do not follow from the model, so the means are those of the plain run of the same length.
    start = toy_protocol.initial_vector(recipe())
    path = [start, *(final({**recipe(), "rounds": rounds}) for rounds in (1, 2, 3))]
    first, second, expected = np.zeros_like(start), np.full_like(start, 0.01), start.astype(np.float64)
    for before, after in itertools.pairwise(path):
        first = 0.9 * first + 0.1 * (after - before)
        second = 0.99 * second + 0.01 * first**2
        expected += 0.1 * first / (np.sqrt(second) + 0.1)
    np.testing.assert_allclose(server, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("seal", "at"),
    [({"key_holder": "key_server"}, "server"), ({"key_holder": "clients"}, "client"),
     ({"key_holder": "key_server", "sums_visible_to": "clients"}, "client")],
)  # fmt: skip
def test_it_works_behind_encryption_wherever_the_sum_is_opened(seal: dict[str, Any], at: str) -> None:
    sealed = final(recipe("encrypted", [{"use": "std.bfv", **seal}], ["std.bfv", fedopt(at, tau=0.1)]))
    plain = final(recipe(opening=[fedopt(tau=0.1)]))
    np.testing.assert_allclose(sealed, plain, atol=1e-3)


def problems(plain: Any) -> list[str]:
    with pytest.raises(RecipeError) as caught:
        Recipe.from_plain(plain, toy_catalog())
    return list(caught.value.problems)


def test_it_is_refused_where_it_would_not_see_the_sum() -> None:
    bfv = {"use": "std.bfv", "key_holder": "clients"}
    (said,) = problems(recipe("encrypted", [bfv], ["std.bfv", fedopt()]))
    assert "it would never run" in said
    assert said.endswith("or have it run at the clients too")
    (said,) = problems(recipe("encrypted", [{**bfv, "key_holder": "key_server", "sums_visible_to": "clients"}],
                              ["std.bfv", fedopt()]))  # fmt: skip
    assert "which relays the encrypted sum and cannot read it" in said
    (said,) = problems(recipe("encrypted", [{**bfv, "key_holder": "key_server"}], [fedopt(), "std.bfv"]))
    assert "which std.bfv has closed; open it first" in said


def test_masks_that_move_and_groups_at_the_server_are_refused() -> None:
    plain = paraaegis(seal={"use": "std.bfv", "key_holder": "key_server"})
    (said,) = problems(plain | {"postprocess": {"encrypted": ["std.bfv", fedopt()]}})
    assert "paraaegis.vote may move scalars between zones and so mix them" in said
    assert "choose a negotiation whose plans are fixed, such as std.single_zone" in said
    (said,) = problems(recipe(opening=[fedopt()], groups={"use": "toy.halves"}))
    assert "groups with separate models, whose moments would mix; write at: client" in said
    with pytest.raises(Misplaced, match="steps along a mean, but zone retained has none"):
        optimiser().postprocess(known(zone="retained"), facts_of())


def test_noise_on_the_sum_keeps_its_price() -> None:
    noise = {"use": "std.central_gaussian", "norm": 0.5, "noise_multiplier": 4}
    chain = [{"use": "std.clip", "norm": 0.5}]
    views = []
    for opening in ([noise, fedopt()], [noise]):
        plain = recipe("noised", chain, opening, aggregate={"use": "std.mean", "weighting": "uniform"})
        views.append(toy_protocol.run_protocol(plain).protocol.ledger.report().views)
    with_it, without = ({party: line.epsilon for party, line in found.items()} for found in views)
    assert with_it == without
    released = with_it["released_model"]
    assert released is not None
    assert released < 10


@pytest.mark.parametrize("at", ["server", "client"])
@pytest.mark.parametrize(
    ("zone", "chain", "opening"),
    [
        ("noised", [], [{"use": "std.central_gaussian", "norm": 0.5}]),
        ("encrypted", [{"use": "std.gaussian"}, {"use": "std.bfv"}], ["std.bfv"]),
    ],
)
def test_behind_sums_of_sampled_clients_it_is_handed_their_mean_and_moves_by_what_it_gives(
    zone: str, chain: list[Any], opening: list[Any], at: str
) -> None:
    """With lr 1 and without momentum FedAvgM is FedAvg; sums of sampled clients are divided by a constant, once.

    Who is sampled is secret and differs from run to run, so the rate is such that all are.
    """
    drawn = {"noise_multiplier": 0.01, "source": "reproducible"}
    chain, opening = (
        [{**use, **drawn} if isinstance(use, dict) and "gaussian" in use["use"] else use for use in uses]
        for uses in ([{"use": "std.clip", "norm": 0.5}, *chain], opening)
    )
    sampled: dict[str, Any] = {
        "sampling": {"scheme": "poisson", "rate": 1 - 1e-12}, "aggregate": {"use": "std.mean", "weighting": "uniform"},
    }  # fmt: skip
    same = fedopt(at, optimiser="momentum", lr=1.0, beta1=0.0)
    np.testing.assert_array_equal(
        final(recipe(zone, chain, [*opening, same], **sampled)), final(recipe(zone, chain, opening, **sampled))
    )
