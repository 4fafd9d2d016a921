"""Participation: samples, rounds with too few clients, and the visible effects of a secret cohort."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from faulty_clients import PUSH
from fedplug.recipe.recipe import Recipe
from fedplug.round.protocol import sample
from toy_components import paraaegis, pushed, recipe_of, toy_catalog
from toy_protocol import build, initial_vector, run_protocol, weights_of


@pytest.mark.parametrize("scheme", ["poisson", "fixed"])
def test_clients_that_were_not_drawn_catch_up(scheme: str) -> None:
    sampling = {"scheme": scheme, "rate": 0.6, "source": "reproducible"}
    plain = paraaegis(rounds=6, sampling=sampling)
    plain["data"]["clients"] = 6
    outcome = run_protocol(plain)
    asked = [row.clients.asked for row in outcome.rows]
    assert outcome.vector.size  # all agree
    assert min(asked) < 6
    if scheme == "fixed":
        assert asked == [4] * 6
    else:
        assert len(set(asked)) > 1
    heard = {m.receiver for m in outcome.sent(round=0) if m.sender == "server"}
    assert len(heard) == asked[0]


def test_a_round_with_too_few_clients_is_skipped() -> None:
    """Poisson sampling may draw no client. Then nothing is released, and the model does not change."""
    sampling = {"scheme": "poisson", "rate": 0.5, "source": "reproducible"}
    for seed in range(100):
        plain = recipe_of(rounds=5, seed=seed, sampling=sampling)
        recipe = Recipe.from_plain(plain, toy_catalog())
        sizes = [len(sample(recipe, range(recipe.data.clients), round)) for round in range(5)]
        if 0 in sizes[1:] and 1 in sizes[1:]:
            break
    outcome = run_protocol(plain)
    answered = [row.clients.answered for row in outcome.rows]
    assert answered == [size if size >= 2 else 0 for size in sizes]
    assert [entry.round for entry in outcome.protocol.ledger.log] == [r + 1 for r in range(5) if answered[r]]
    for round, size in enumerate(sizes):
        assert outcome.wire.requests[round] == (size if size >= 2 else 0)
    assert f"round {sizes.index(0) + 1}: clients drawn: 0, min_clients is 2; it is skipped" in outcome.notes
    assert outcome.vector.size


def central(rate: float, **changes: Any) -> dict[str, Any]:
    plain = recipe_of("noised", [{"use": "std.clip", "norm": 100.0}], train=PUSH, rounds=3, **changes)
    plain["data"]["clients"] = 12
    noise = {"use": "std.central_gaussian", "norm": 100.0, "noise_multiplier": 1e-7, "source": "reproducible"}
    return plain | {
        "sampling": {"scheme": "poisson", "rate": rate, "source": "reproducible"},
        "postprocess": {"noised": [noise]},
    }


def test_sums_of_a_secret_cohort_are_divided_by_a_constant() -> None:
    """McMahan et al. 2018, estimator f_f: sum of w_k u_k over the sample, by q times the weight of all clients."""
    plain = central(0.5)
    outcome = run_protocol(plain)
    weights = weights_of(outcome)
    assert len(set(weights.values())) > 1
    vector = initial_vector(plain)
    protocol, _, _ = build(plain)
    samples = [sample(protocol.recipe, protocol.client_ids, round) for round in range(3)]
    assert {len(drawn) for drawn in samples} != {6}
    for round, drawn in enumerate(samples):
        total = sum(weights[c] * pushed(vector, 7, c, round).astype(np.float64) for c in drawn)
        vector = (vector + total / (0.5 * sum(weights.values()))).astype(np.float32)
    assert np.allclose(outcome.vector, vector, atol=1e-4)
    told = [
        call[4][0]["noised"]
        for message in outcome.sent(sender="server")
        for call in message.decode()["calls"]
        if call[2:4] == ["fedplug", "adopt"]
    ]
    assert {(block.contributors, block.divisor) for block in told} == {(1, 1.0)}
    assert all(entry.secret_cohort for entry in outcome.protocol.ledger.log)


def test_what_shows_the_cohort_is_told_to_the_ledger() -> None:
    buffers = central(0.5, model={"use": "std.cnn"}, buffers="mean")
    bare = central(0.5) | {"postprocess": {}}
    local = central(0.5)
    local["protect"]["noised"].append({"use": "std.gaussian", "noise_multiplier": 1.0})
    for plain, secret in ((bare, False), (buffers, False), (central(0.5), True), (local, True)):
        log = run_protocol(plain | {"rounds": 1}).protocol.ledger.log
        assert [entry.secret_cohort for entry in log] == [secret]
