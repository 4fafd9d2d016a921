"""PDA-PAM: the weights that scores give, sums by layer, what only some clients show, and where it is the mean."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import fedplug_fedre.pda_pam
import numpy as np
import pytest
from fedplug import (
    Adds,
    Block,
    Bound,
    Context,
    Examples,
    Known,
    Layout,
    Noise,
    Seal,
    Server,
    add_blocks,
)
from fedplug.api.data import PublicData
from fedplug.api.errors import DataError, ProtectionError, RecipeError
from fedplug.api.types import BASE_ZONES
from fedplug.recipe.recipe import Recipe
from fedplug_fedre.jacobian import psi_scores
from fedplug_fedre.pda_pam import PdaPam, layer_weights
from fedplug_kit.static import check_component
from fedplug_lab import pictures  # fmt: skip
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from toy_components import recipe_of
from toy_protocol import initial_vector, run_protocol

LAYOUT = Layout.of([("a.weight", (4,)), ("b.weight", (3,)), ("a.bias", (2,)), ("c.weight", (1,))])
LAYER = np.array([0, 0, 0, 0, 1, 1, 1, 0, 0, 2])
LN = math.log
matrices = st.integers(1, 6).flatmap(
    lambda k: st.lists(st.lists(st.floats(-20, 20), min_size=3, max_size=3), min_size=k, max_size=k)
).map(np.array)  # fmt: skip


def everything(scores: NDArray[Any]) -> NDArray[np.bool_]:
    return np.ones(scores.shape, np.bool_)


def softmax(values: NDArray[Any]) -> NDArray[np.float64]:
    powers = np.exp(values - values.max(0))
    return powers / powers.sum(0)


# -- the weights -------------------------------------------------------------------------------------------------------


@given(matrices)
def test_normalised_weights_are_the_softmax_of_minus_the_scores(scores: Any) -> None:
    """And so the normalised inverses of alpha-hat (eq. 10)."""
    factors, shares = layer_weights(scores, everything(scores))
    assert np.array_equal(factors, shares)
    count = len(scores)
    assert factors / count == pytest.approx(softmax(-scores), abs=1e-11)
    inverse = 1 / softmax(scores)
    assert factors / count == pytest.approx(inverse / inverse.sum(0), rel=1e-9, abs=1e-11)
    assert (factors / count).sum(0) == pytest.approx(np.ones(3))


@given(matrices)
def test_a_higher_score_never_weighs_more(scores: Any) -> None:
    for weighting in ("normalised", "literal"):
        factors, _ = layer_weights(scores, everything(scores), weighting)
        for layer in range(3):
            order = np.argsort(scores[:, layer], kind="stable")
            assert (np.diff(factors[order, layer]) <= 1e-9 * factors[:, layer].max()).all()


@given(st.integers(1, 9), st.floats(0, 1e6))
def test_equal_scores_are_the_mean_to_the_bit(count: int, score: float) -> None:
    """1 / K each; factors are K times that."""
    for standardise in (False, True):
        factors, shares = layer_weights(
            np.full((count, 3), score), np.ones((count, 3), np.bool_), standardise=standardise
        )
        assert np.array_equal(factors, np.ones((count, 3)))
        assert np.array_equal(shares, factors)


def test_eq_11_with_scores_0_ln_2_ln_4_multiplies_by_4_08_in_all() -> None:
    """alpha-hat is 1/7, 2/7, 4/7; the coefficients 1 / (3 alpha-hat) add up to 4.08 where a mean has 1."""
    scores = np.array([[0.0], [LN(2)], [LN(4)]])
    factors, shares = layer_weights(scores, everything(scores), "literal")
    assert factors[:, 0].tolist() == pytest.approx([7, 3.5, 1.75])
    assert (factors / shares.sum(0)).sum() == pytest.approx(4.0833, abs=1e-4)
    normalised, _ = layer_weights(scores, everything(scores))
    assert (normalised[:, 0] / 3).tolist() == pytest.approx([4 / 7, 2 / 7, 1 / 7])


@given(matrices)
def test_the_coefficients_of_eq_11_add_up_to_the_number_of_clients_at_least(scores: Any) -> None:
    factors, shares = layer_weights(scores, everything(scores), "literal")
    assert ((factors / shares.sum(0)).sum(0) >= len(scores) * (1 - 1e-9)).all()


@given(matrices, st.floats(0.1, 10), st.floats(-5, 5))
def test_standardised_scores_have_no_unit(scores: Any, factor: float, shift: float) -> None:
    if (scores.std(0) < 1e-3).any():
        return
    one, other = (layer_weights(s, everything(scores), standardise=True)[0] for s in (scores, factor * scores + shift))
    assert one == pytest.approx(other, rel=1e-6)


def test_a_layer_counts_over_those_who_show_it() -> None:
    scores = np.array([[0.0, 5.0], [LN(2), math.nan], [LN(4), 5.0]])
    shows = np.array([[True, True], [True, False], [False, True]])
    factors, shares = layer_weights(scores, shows)
    assert factors[:, 0].tolist() == pytest.approx([4 / 3, 2 / 3, 0])
    assert factors[:, 1].tolist() == [1, 0, 1]  # the score that is not a number is of nobody who counts
    assert np.array_equal(factors, shares)
    literal, ones = layer_weights(scores, shows, "literal")
    assert literal[:, 0].tolist() == pytest.approx([3, 1.5, 0])
    assert np.array_equal(ones, shows)


def test_a_layer_that_cannot_be_scored_counts_all_alike() -> None:
    scores = np.array([[math.inf, 1.0], [1.0, 2.0]])
    for weighting in ("normalised", "literal"):
        factors, shares = layer_weights(scores, everything(scores), weighting)
        assert factors[:, 0].tolist() == shares[:, 0].tolist() == [1, 1]
        assert factors[0, 1] > factors[1, 1]


# -- sums --------------------------------------------------------------------------------------------------------------


SOME = Examples(np.zeros((4, 1, 2, 2), np.uint8), np.arange(4) % 2)
PUBLIC = PublicData(SOME, classes=("x", "y"), mean=(0.5,), std=(0.5,))


def pda_pam(**options: Any) -> PdaPam:
    component = PdaPam(PdaPam.Options.model_validate(options))
    component.name = "fedre.pda_pam"
    return component


def server_at(public: PublicData | None = PUBLIC, round: int = 0) -> tuple[Server, Context]:
    """A server that knows a model of zeros."""
    server = Server(vector=np.zeros(LAYOUT.size, np.float32), model=SimpleNamespace())  # type: ignore[arg-type]
    server.ctx = Context(round, 3, LAYOUT, BASE_ZONES, 3, 2, 7, "", server, public=public)
    return server, server.ctx


def blocks_of(values: dict[int, Any], where: dict[int, Any] | None = None, zone: str = "noised") -> dict[int, Block]:
    found = {}
    for client_id, one in values.items():
        at = np.asarray((where or {}).get(client_id, np.arange(LAYOUT.size)), np.uint32)
        found[client_id] = Block(zone, len(at), np.asarray(one, np.float32)[at], at)
    return found


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Scores by the first value of the vector that is scored, in place of Jacobians; and what was scored."""
    facts: dict[str, Any] = {"scores": {}, "calls": []}

    def fake(model: Any, examples: Examples, regions: Any, data: Any, *, vector: Any, **options: Any) -> Any:
        facts["calls"].append({"vector": vector, "examples": examples, "regions": regions, **options})
        return SimpleNamespace(mean=np.array(facts["scores"][float(vector[0])]))

    monkeypatch.setattr(fedplug_fedre.pda_pam, "psi_scores", fake)
    return facts


def summed(blocks: dict[int, Block], server: Server, ctx: Context, **options: Any) -> Block:
    server.uploads = {client_id: {block.zone: block} for client_id, block in blocks.items()}
    return pda_pam(**options).aggregate(blocks, dict.fromkeys(blocks, 1.0), ctx)


SCORES = {1.0: [0.0, 1.0, 2.0], 2.0: [LN(2), 1.0, 0.0], 3.0: [LN(4), 1.0, 2.0]}


def test_each_layer_is_the_mean_by_its_own_weights(scored: dict[str, Any]) -> None:
    scored["scores"] = SCORES
    server, ctx = server_at()
    values = {k: np.arange(LAYOUT.size) + k + 1.0 for k in range(3)}
    found = summed(blocks_of(values), server, ctx)
    weights = softmax(-np.array(list(SCORES.values())))[:, LAYER]
    assert found.mean() == pytest.approx(sum(weights[k] * values[k] for k in range(3)), rel=1e-6)
    assert found.positions.tolist() == list(range(LAYOUT.size))  # type: ignore[union-attr]
    assert found.contributors == 3
    assert server.log == {
        "fedre.pda_pam.scored_layers": 1.0,
        "fedre.pda_pam.weight_min": pytest.approx(3 * softmax(np.array([-2.0, 0, -2]))[0]),
        "fedre.pda_pam.weight_max": pytest.approx(3 * softmax(np.array([-2.0, 0, -2]))[1]),
    }
    picture = pictures.checked("weights", server.figures["fedre.pda_pam"])
    assert picture["panels"][0]["labels"] == ["a", "b", "c"]
    assert picture["panels"][0]["boxes"][1] == [1.0] * 5


def test_eq_11_moves_by_its_coefficients(scored: dict[str, Any]) -> None:
    scored["scores"] = SCORES
    server, ctx = server_at()
    values = {k: np.full(LAYOUT.size, k + 1.0) for k in range(3)}
    found = summed(blocks_of(values), server, ctx, weighting="literal").mean()
    alpha = softmax(np.array(list(SCORES.values())))
    assert found == pytest.approx(sum((k + 1) / (3 * alpha[k]) for k in range(3))[LAYER], rel=1e-6)
    assert found[4] == pytest.approx(1 + 2 + 3)  # equal scores: the sum of all updates


def test_equal_scores_give_fedavg_to_the_bit(scored: dict[str, Any]) -> None:
    scored["scores"] = {first: [0.25, 3.0, 0.0] for first in (1.0, 2.0, 3.0)}
    rng = np.random.default_rng(3)
    values = {k: np.r_[k + 1.0, rng.standard_normal(LAYOUT.size - 1)] for k in range(3)}
    server, ctx = server_at()
    found = summed(blocks_of(values), server, ctx)
    assert np.array_equal(found.mean(), add_blocks(blocks_of(values), dict.fromkeys(values, 1.0), ctx).mean())


def test_models_are_scored_as_far_as_they_are_seen(scored: dict[str, Any]) -> None:
    """The global model, moved where the client shows something, in whichever zone that is not encrypted."""
    scored["scores"] = {0.0: [1.0, 1.0, 1.0], 3.5: [0.0, 0.0, 0.0]}
    server, ctx = server_at()
    server.vector = np.linspace(0, 1, LAYOUT.size, dtype=np.float32)
    noised = blocks_of({0: np.full(LAYOUT.size, 3.5), 1: np.ones(LAYOUT.size)}, {0: [0, 1, 2], 1: [4, 5]})
    clear = blocks_of({0: np.full(LAYOUT.size, 2.0)}, {0: [9]}, "clear")
    sealed = Block("encrypted", 2, None, None, (b"?",), "std.bfv")
    server.uploads = {0: {"noised": noised[0], "clear": clear[0], "encrypted": sealed}, 1: {"noised": noised[1]}}
    component = pda_pam()
    found = component.aggregate(noised, {0: 1.0, 1: 1.0}, ctx)
    component.aggregate(clear, {0: 1.0, 1: 1.0}, ctx)
    assert len(scored["calls"]) == 2  # once a client and round, for all zones
    expected = server.vector.copy()
    expected[:3] += 3.5
    expected[9] += 2
    assert np.array_equal(scored["calls"][0]["vector"], expected)
    assert found.positions.tolist() == [0, 1, 2, 4, 5]  # type: ignore[union-attr]
    assert found.mean().tolist() == [3.5, 3.5, 3.5, 1.0, 1.0]  # each layer is shown by one client alone
    later = server_at(round=1)[1]
    server.uploads = {1: {"noised": noised[1]}}
    component.aggregate({1: noised[1]}, {1: 1.0}, Context(**vars(later) | {"party": server}))
    assert len(scored["calls"]) == 3
    assert scored["calls"][0]["seed"] == scored["calls"][1]["seed"] != scored["calls"][2]["seed"]


def test_positions_are_divided_by_the_weights_of_those_who_sent_them(scored: dict[str, Any]) -> None:
    scored["scores"] = {1.0: [0.0, 0.0, 0.0], 2.0: [LN(3), 0.0, 0.0]}
    server, ctx = server_at()
    values = {0: np.full(LAYOUT.size, 1.0), 1: np.full(LAYOUT.size, 2.0)}
    found = summed(blocks_of(values, {0: [0, 1, 4], 1: [0, 2, 4]}), server, ctx)
    assert found.positions.tolist() == [0, 1, 2, 4]  # type: ignore[union-attr]
    assert found.mean() == pytest.approx([1.25, 1.0, 2.0, 1.5])
    assert found.divisor == pytest.approx(np.array([2.0, 1.5, 0.5, 2.0]))  # 1 a client on average, as elsewhere


def test_a_position_of_a_client_that_hardly_counts_is_moved_by_what_it_sent(scored: dict[str, Any]) -> None:
    scored["scores"] = {1.0: [0.0, 0.0, 0.0], 2.0: [5000.0, 0.0, 0.0]}
    server, ctx = server_at()
    values = {0: np.full(LAYOUT.size, 1.0), 1: np.full(LAYOUT.size, 2.0)}
    assert summed(blocks_of(values, {0: [0], 1: [0, 1]}), server, ctx).mean() == pytest.approx([1.0, 2.0])


# -- where nothing can be scored ---------------------------------------------------------------------------------------


def test_without_public_examples_it_is_the_mean_and_says_so(scored: dict[str, Any]) -> None:
    server, ctx = server_at(public=None)
    blocks = blocks_of({k: np.full(LAYOUT.size, k + 1.0) for k in range(3)})
    found = summed(blocks, server, ctx)
    assert found.contributors == 3
    assert np.array_equal(found.mean(), add_blocks(blocks, dict.fromkeys(blocks, 1.0), ctx).mean())
    assert server.log == {"fedre.pda_pam.scored_layers": 0.0}
    assert not scored["calls"]
    pda_pam().setup(None, None, ctx)  # type: ignore[arg-type]


def test_an_encrypted_zone_is_added_by_what_sealed_it(scored: dict[str, Any]) -> None:
    server, ctx = server_at()
    total = Block("encrypted", 3, None, None, (b"sum",), "seal", contributors=2, divisor=2.0)
    ctx.components["seal"] = SimpleNamespace(add_blocks=lambda blocks, ctx: total)
    blocks = {k: Block("encrypted", 3, None, None, (b"?",), "seal") for k in range(2)}
    assert summed(blocks, server, ctx) is total
    assert server.log == {"fedre.pda_pam.scored_layers": 0.0}


def test_scores_that_overflow_leave_the_layer_to_the_mean(scored: dict[str, Any]) -> None:
    scored["scores"] = {1.0: [math.inf, 0.0, 0.0], 2.0: [0.0, 1.0, 0.0]}
    server, ctx = server_at()
    found = summed(blocks_of({k: np.full(LAYOUT.size, k + 1.0) for k in range(2)}), server, ctx)
    assert found.mean()[LAYER == 0].tolist() == [1.5] * 6
    assert found.mean()[4] < 1.5
    assert server.log["fedre.pda_pam.scored_layers"] == 1.0  # of client 1, whose score is finite


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_a_client_whose_other_zone_is_spoilt_is_blamed(scored: dict[str, Any]) -> None:
    scored["scores"] = {1.0: [0.0, 0.0, 0.0]}
    server, ctx = server_at()
    good = blocks_of({0: np.ones(LAYOUT.size), 1: np.ones(LAYOUT.size)})
    for spoilt, problem in (
        (blocks_of({1: np.full(LAYOUT.size, np.nan)}, zone="clear")[1], "NaN or infinite values"),
        (Block("clear", 2, np.ones(2, np.float32), np.array([5, 4], np.uint32)), "strictly ascending and below 10"),
        (Block("clear", 1, np.ones(1, np.float32), np.array([10], np.uint32)), "strictly ascending and below 10"),
        (Block("clear", 1, np.ones(1, np.float32), np.array([-1])), "positions that are not uint32"),
    ):
        server.cache.clear()
        server.uploads = {0: {"noised": good[0]}, 1: {"noised": good[1], "clear": spoilt}}
        with pytest.raises(ProtectionError, match=f"client 1 sent clear .*{problem}") as error:
            pda_pam().aggregate(good, {0: 1.0, 1: 1.0}, ctx)
        assert error.value.client_id == 1


def test_values_that_are_not_finite_are_blamed_on_their_client(scored: dict[str, Any]) -> None:
    server, ctx = server_at()
    with pytest.raises(ProtectionError, match="client 1 sent NaN or infinite values") as error:
        summed(blocks_of({0: np.ones(LAYOUT.size), 1: np.full(LAYOUT.size, np.inf)}), server, ctx)
    assert error.value.client_id == 1


def test_blocks_without_positions_are_refused(scored: dict[str, Any]) -> None:
    server, ctx = server_at()
    blocks = {k: Block("noised", LAYOUT.size, np.ones(LAYOUT.size, np.float32)) for k in range(2)}
    with pytest.raises(ProtectionError, match="came without positions, which wants asks for"):
        summed(blocks, server, ctx)


def test_scores_too_far_apart_for_eq_11(scored: dict[str, Any]) -> None:
    for apart in (40.0, 5000.0):
        scored["scores"] = {1.0: [0.0, 0.0, 0.0], 2.0: [0.0, apart, 0.0]}
        server, ctx = server_at()
        blocks = blocks_of({k: np.full(LAYOUT.size, k + 1.0) for k in range(2)})
        with pytest.raises(ProtectionError, match=r"layer b .* times: .*write weighting: normalised, or st") as error:
            summed(blocks, server, ctx, weighting="literal")
        assert error.value.client_id is None
        assert np.isfinite(summed(blocks, server, ctx, weighting="literal", standardise=True).plain()).all()
        assert summed(blocks, server, ctx).mean()[4] == pytest.approx(1.0)


def public_with(**changes: Any) -> PublicData:
    examples = Examples(**{"inputs": PUBLIC.examples.inputs, "labels": PUBLIC.examples.labels} | changes)
    return PublicData(examples, classes=("x", "y"), mean=(0.5,), std=(0.5,))


@pytest.mark.parametrize(
    ("public", "options", "problem"),
    [
        (public_with(labels=np.full(4, -1)), {}, "4 labels of the public examples are none of 0 to 1, such as -1"),
        (public_with(labels=np.array([0, 1, 2, 0])), {}, "1 labels of the public examples are none .* such as 2"),
        (PUBLIC, {"preference": {"fields": ["date"]}}, "fields"),
        (PUBLIC, {"preference": {"box": [0, 0, 3, 3]}}, "lies outside"),
        (public_with(regions=np.zeros((4, 2, 2), np.uint8)), {}, "marks no pixel in any of 4 examples"),
    ],
)  # fmt: skip
def test_public_examples_that_cannot_be_scored_are_refused_before_training(
    public: PublicData, options: Any, problem: str
) -> None:
    with pytest.raises(DataError, match=problem):
        pda_pam(**options).setup(None, None, server_at(public)[1])  # type: ignore[arg-type]


def test_examples_with_a_region_are_chosen_once(scored: dict[str, Any]) -> None:
    regions = np.zeros((4, 2, 2), np.uint8)
    regions[[1, 3], 0, 1] = 2
    scored["scores"] = {1.0: [0.0, 0.0, 0.0]}
    server, ctx = server_at(public_with(regions=regions))
    summed(blocks_of({0: np.ones(LAYOUT.size)}), server, ctx, samples=3)
    call = scored["calls"][0]
    assert len(call["examples"]) == 2
    assert call["regions"].sum() == 2
    assert call["batch_norm"] == "examples"


OURS = {"use": "fedre.pda_pam", "preference": {"box": [2, 2, 6, 6]}, "samples": 2}
NOISE = {"use": "fedre.layer_budgets", "epsilon": 100, "delta": 1e-5, "norm": 0.3, "source": "reproducible"}
GAUSSIAN = {"use": "std.gaussian", "noise_multiplier": 0.1, "source": "reproducible"}
PSI = {"use": "fedre.psi", "preference": {"box": [2, 2, 6, 6]}, "samples": 2}


def recipe(aggregate: Any = OURS, public: int = 16, **changes: Any) -> dict[str, Any]:
    plain = recipe_of("noised", [], aggregate=aggregate, model={"use": "std.mlp", "hidden": [8]})
    plain["data"] = {**plain["data"], "public": public}
    return plain | changes


def test_noise_at_the_server_is_refused() -> None:
    central = {"use": "std.central_gaussian", "norm": 1.0, "noise_multiplier": 1.0}
    plain = recipe(protect={"noised": [{"use": "std.clip", "norm": 1.0}]}, postprocess={"noised": [central]})
    with pytest.raises(RecipeError) as error:
        Recipe.from_plain(plain)
    assert (
        "std.central_gaussian needs a bound of the L2 norm earlier in the chain of zone noised; the weights of "
        "fedre.pda_pam follow from single clients' values, which noise on the sum does not cover; add noise at the"
    ) in str(error.value)
    assert "or write aggregate: {use: std.mean}" in str(error.value)


def test_what_is_known_of_a_sum_by_scores() -> None:
    """Local noise stays, alone; no bound does. Zones that arrive encrypted are plain sums."""
    ctx = server_at()[1]
    noised = Known(zone="noised").after((Bound(1.0), Noise(mechanism="gaussian", scale=2.0)))
    behind = noised.after(pda_pam().sums(noised, ctx))
    (release,) = behind.releases
    assert release.noise_multiplier == 2.0
    assert "one client's noise may be almost all that a sum has" in release.uncredited
    clipped = Known(zone="noised", bounds=(Bound(1.0),))
    assert clipped.after(pda_pam().sums(clipped, ctx)).norm() is None
    seal = Seal(scheme="BFV", opened_by="clients", range=1.0, step=0.1)
    sealed = Known(zone="encrypted", sealed=(seal,), sealers=("std.bfv",))
    assert pda_pam().sums(sealed, ctx) == (Adds(),)


def test_a_preference_in_a_file_is_refused() -> None:
    with pytest.raises(RecipeError, match="preference: mask names a file in a client's folder, which the"):
        Recipe.from_plain(recipe(OURS | {"preference": {"mask": "mask.png"}}))


def test_conforms() -> None:
    check_component("fedre.pda_pam")


# -- in a run ----------------------------------------------------------------------------------------------------------


def test_a_run_scores_the_models_of_the_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """FedRE whole: scores, layer budgets, PDA-PAM. The weights are those of the vectors that the server must see."""
    calls: list[tuple[Any, Any]] = []

    def watched(model: Any, *args: Any, **options: Any) -> Any:
        calls.append((options["vector"], psi_scores(model, *args, **options)))
        return calls[-1][1]

    monkeypatch.setattr(fedplug_fedre.pda_pam, "psi_scores", watched)
    plain = recipe(score_parameters=[PSI], protect={"noised": [NOISE]}, rounds=1)
    outcome = run_protocol(plain)
    assert len(calls) == 4
    factors, _ = layer_weights(np.array([one.mean for _, one in calls]), np.ones((4, 2), np.bool_))
    log, layer = outcome.rows[0].log, np.repeat([0, 1], [64 * 8 + 8, 8 * 10 + 10])
    assert log["fedre.pda_pam.weight_min"] == pytest.approx(factors.min())
    assert log["fedre.pda_pam.weight_max"] == pytest.approx(factors.max()) != 1
    start = initial_vector(plain)
    expected = start + sum(factors[k][layer] / 4 * (vector - start) for k, (vector, _) in enumerate(calls))
    assert outcome.vector == pytest.approx(expected, abs=1e-5)
    assert outcome.protocol.ledger.epsilon() == pytest.approx(100)


def test_both_engines_give_the_same_model() -> None:
    plain = recipe(protect={"noised": [{"use": "std.clip", "norm": 0.3}, GAUSSIAN]}, rounds=1)
    outcome, other = run_protocol(plain), run_protocol(plain, "processes")
    assert np.array_equal(outcome.vector, other.vector)
    assert outcome.rows[0].log == other.rows[0].log


def test_nothing_to_score_gives_the_uniform_mean() -> None:
    mean = {"use": "std.mean", "weighting": "uniform"}
    assert np.array_equal(run_protocol(recipe(public=0)).vector, run_protocol(recipe(mean, public=0)).vector)
    sealed = {
        "negotiate_mask": {"use": "std.single_zone", "zone": "encrypted"},
        "protect": {"encrypted": [{"use": "std.bfv"}]}, "postprocess": {"encrypted": ["std.bfv"]},
    }  # fmt: skip
    outcome = run_protocol(recipe(**sealed))
    assert outcome.rows[0].log["fedre.pda_pam.scored_layers"] == 0
    assert outcome.vector == pytest.approx(run_protocol(recipe(mean)).vector, abs=1e-3)
