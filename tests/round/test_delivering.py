"""The result of a round for each group, and for a group that is too small."""

from __future__ import annotations

import numpy as np
from faulty_clients import PUSH
from toy_components import pushed, recipe_of
from toy_protocol import initial_vector, run_protocol, weights_of


def test_each_group_adopts_its_own_mean_and_one_that_is_too_small_keeps_its_model() -> None:
    """`toy.groups` has even and odd clients apart; one of the two odd ones fails."""
    fail = {"use": "toy.fail", "clients": [3], "rounds": [0]}
    plain = recipe_of(train=PUSH, negotiate_mask={"use": "toy.groups"}, rounds=1, score_parameters=[fail])
    outcome = run_protocol(plain)
    start, weights = initial_vector(plain), weights_of(outcome)
    mean = sum(weights[c] * pushed(start, 7, c, 0) for c in (0, 2)) / sum(weights[c] for c in (0, 2))
    for client_id in (0, 2):
        assert np.allclose(outcome.vectors[client_id] - start, mean, atol=1e-7)
    for client_id in (1, 3):
        assert np.array_equal(outcome.vectors[client_id], start)
    assert any("is skipped: clients that sent an update: 1; min_clients is 2" in note for note in outcome.notes)
    assert not outcome.rows[0].skipped, "the other group went on"
