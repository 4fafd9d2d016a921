"""PDA-PAM: sums by layer, values that only some clients send, and where it is the mean."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import fedplug_fedre.pda_pam
import numpy as np
import pytest
from fedplug import Block, Examples, add_blocks
from fedplug.api.errors import ProtectionError
from fedplug_lab import pictures  # fmt: skip
from pda_pam_toys import (
    LAYER,
    LAYOUT,
    LN,
    SCORES,
    Sealing,
    blocks_of,
    pda_pam,
    public_with,
    server_at,
    softmax,
    summed,
    total_of,
)

# -- sums --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Scores by the first value of the vector that is scored, in place of Jacobians, and a record of the calls."""
    facts: dict[str, Any] = {"scores": {}, "calls": []}

    def fake(model: Any, examples: Examples, regions: Any, data: Any, *, vector: Any, **options: Any) -> Any:
        facts["calls"].append({"vector": vector, "examples": examples, "regions": regions, **options})
        return SimpleNamespace(mean=np.array(facts["scores"][float(vector[0])]))

    monkeypatch.setattr(fedplug_fedre.pda_pam, "psi_scores", fake)
    return facts


def test_each_layer_is_the_mean_by_its_own_weights(scored: dict[str, Any]) -> None:
    scored["scores"] = SCORES
    server, facts = server_at()
    values = {k: np.arange(LAYOUT.size) + k + 1.0 for k in range(3)}
    found = summed(blocks_of(values), server, facts)
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
    server, facts = server_at()
    values = {k: np.full(LAYOUT.size, k + 1.0) for k in range(3)}
    found = summed(blocks_of(values), server, facts, weighting="as_published").mean()
    alpha = softmax(np.array(list(SCORES.values())))
    assert found == pytest.approx(sum((k + 1) / (3 * alpha[k]) for k in range(3))[LAYER], rel=1e-6)
    assert found[4] == pytest.approx(1 + 2 + 3)  # equal scores: the sum of all updates


def test_equal_scores_give_fedavg_to_the_bit(scored: dict[str, Any]) -> None:
    scored["scores"] = {first: [0.25, 3.0, 0.0] for first in (1.0, 2.0, 3.0)}
    rng = np.random.default_rng(3)
    values = {k: np.r_[k + 1.0, rng.standard_normal(LAYOUT.size - 1)] for k in range(3)}
    server, facts = server_at()
    found = summed(blocks_of(values), server, facts)
    assert np.array_equal(found.mean(), add_blocks(blocks_of(values), dict.fromkeys(values, 1.0), facts).mean())


def test_models_are_scored_as_far_as_they_are_seen(scored: dict[str, Any]) -> None:
    """The global model, moved where the client sends values in any zone that is not encrypted."""
    scored["scores"] = {0.0: [1.0, 1.0, 1.0], 3.5: [0.0, 0.0, 0.0]}
    server, facts = server_at()
    server.vector = np.linspace(0, 1, LAYOUT.size, dtype=np.float32)
    noised = blocks_of({0: np.full(LAYOUT.size, 3.5), 1: np.ones(LAYOUT.size)}, {0: [0, 1, 2], 1: [4, 5]})
    clear = blocks_of({0: np.full(LAYOUT.size, 2.0)}, {0: [9]}, "clear")
    sealed = Block("encrypted", 2, None, None, (b"?",), "std.bfv")
    server.uploads = {0: {"noised": noised[0], "clear": clear[0], "encrypted": sealed}, 1: {"noised": noised[1]}}
    component = pda_pam()
    found = total_of(component, noised, server, facts)
    total_of(component, clear, server, facts)
    assert len(scored["calls"]) == 2  # once per client and round, for all zones
    expected = server.vector.copy()
    expected[:3] += 3.5
    expected[9] += 2
    assert np.array_equal(scored["calls"][0]["vector"], expected)
    assert found.positions.tolist() == [0, 1, 2, 4, 5]  # type: ignore[union-attr]
    assert found.mean().tolist() == [3.5, 3.5, 3.5, 1.0, 1.0]  # each layer is shown by one client alone
    later = facts.at(1)
    server.uploads = {1: {"noised": noised[1]}}
    total_of(component, {1: noised[1]}, server, later)
    assert len(scored["calls"]) == 3
    assert scored["calls"][0]["seed"] == scored["calls"][1]["seed"] != scored["calls"][2]["seed"]


def test_positions_are_divided_by_the_weights_of_their_senders(scored: dict[str, Any]) -> None:
    scored["scores"] = {1.0: [0.0, 0.0, 0.0], 2.0: [LN(3), 0.0, 0.0]}
    server, facts = server_at()
    values = {0: np.full(LAYOUT.size, 1.0), 1: np.full(LAYOUT.size, 2.0)}
    found = summed(blocks_of(values, {0: [0, 1, 4], 1: [0, 2, 4]}), server, facts)
    assert found.positions.tolist() == [0, 1, 2, 4]  # type: ignore[union-attr]
    assert found.mean() == pytest.approx([1.25, 1.0, 2.0, 1.5])
    assert found.divisor == pytest.approx(np.array([2.0, 1.5, 0.5, 2.0]))  # 1 per client on average, as elsewhere


def test_a_position_of_a_client_that_hardly_counts_is_moved_by_what_it_sent(scored: dict[str, Any]) -> None:
    scored["scores"] = {1.0: [0.0, 0.0, 0.0], 2.0: [5000.0, 0.0, 0.0]}
    server, facts = server_at()
    values = {0: np.full(LAYOUT.size, 1.0), 1: np.full(LAYOUT.size, 2.0)}
    assert summed(blocks_of(values, {0: [0], 1: [0, 1]}), server, facts).mean() == pytest.approx([1.0, 2.0])


# -- where nothing can be scored ---------------------------------------------------------------------------------------


def test_without_public_examples_it_is_the_mean_and_says_so(scored: dict[str, Any]) -> None:
    server, facts = server_at(public=None)
    blocks = blocks_of({k: np.full(LAYOUT.size, k + 1.0) for k in range(3)})
    found = summed(blocks, server, facts)
    assert found.contributors == 3
    assert np.array_equal(found.mean(), add_blocks(blocks, dict.fromkeys(blocks, 1.0), facts).mean())
    assert server.log == {"fedre.pda_pam.scored_layers": 0.0}
    assert not scored["calls"]
    pda_pam().setup(None, None, facts)  # type: ignore[arg-type]


def test_an_encrypted_zone_is_added_by_what_sealed_it(scored: dict[str, Any]) -> None:
    server, facts = server_at()
    facts.components["seal"] = Sealing()  # type: ignore[index]
    blocks = {k: Block("encrypted", 3, None, None, (b"%d" % k,), "seal", weighted=True) for k in range(2)}
    total = summed(blocks, server, facts)
    assert (total.ciphertexts, total.contributors, total.divisor) == ((b"01",), 2, 2.0)
    assert server.log == {"fedre.pda_pam.scored_layers": 0.0}


def test_scores_that_overflow_leave_the_layer_to_the_mean(scored: dict[str, Any]) -> None:
    scored["scores"] = {1.0: [math.inf, 0.0, 0.0], 2.0: [0.0, 1.0, 0.0]}
    server, facts = server_at()
    found = summed(blocks_of({k: np.full(LAYOUT.size, k + 1.0) for k in range(2)}), server, facts)
    assert found.mean()[LAYER == 0].tolist() == [1.5] * 6
    assert found.mean()[4] < 1.5
    assert server.log["fedre.pda_pam.scored_layers"] == 1.0  # of client 1, whose score is finite


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_a_client_whose_other_zone_is_spoilt_is_blamed(scored: dict[str, Any]) -> None:
    scored["scores"] = {1.0: [0.0, 0.0, 0.0]}
    server, facts = server_at()
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
            total_of(pda_pam(), good, server, facts)
        assert error.value.client_id == 1


def test_values_that_are_not_finite_are_blamed_on_their_client(scored: dict[str, Any]) -> None:
    server, facts = server_at()
    with pytest.raises(ProtectionError, match="client 1 sent NaN or infinite values") as error:
        summed(blocks_of({0: np.ones(LAYOUT.size), 1: np.full(LAYOUT.size, np.inf)}), server, facts)
    assert error.value.client_id == 1


def test_blocks_without_positions_are_refused(scored: dict[str, Any]) -> None:
    server, facts = server_at()
    blocks = {k: Block("noised", LAYOUT.size, np.ones(LAYOUT.size, np.float32)) for k in range(2)}
    with pytest.raises(ProtectionError, match="came without positions, so nobody knows their layers"):
        summed(blocks, server, facts)


def test_scores_too_far_apart_for_eq_11(scored: dict[str, Any]) -> None:
    for apart in (40.0, 5000.0):
        scored["scores"] = {1.0: [0.0, 0.0, 0.0], 2.0: [0.0, apart, 0.0]}
        server, facts = server_at()
        blocks = blocks_of({k: np.full(LAYOUT.size, k + 1.0) for k in range(2)})
        with pytest.raises(ProtectionError, match=r"layer b .* times: .*write weighting: normalised, or st") as error:
            summed(blocks, server, facts, weighting="as_published")
        assert error.value.client_id is None
        assert np.isfinite(summed(blocks, server, facts, weighting="as_published", standardise=True).plain()).all()
        assert summed(blocks, server, facts).mean()[4] == pytest.approx(1.0)


def test_examples_with_a_region_are_chosen_once(scored: dict[str, Any]) -> None:
    regions = np.zeros((4, 2, 2), np.uint8)
    regions[[1, 3], 0, 1] = 2
    scored["scores"] = {1.0: [0.0, 0.0, 0.0]}
    server, facts = server_at(public_with(regions=regions))
    summed(blocks_of({0: np.ones(LAYOUT.size)}), server, facts, samples=3)
    call = scored["calls"][0]
    assert len(call["examples"]) == 2
    assert call["regions"].sum() == 2
    assert call["batch_norm"] == "examples"
