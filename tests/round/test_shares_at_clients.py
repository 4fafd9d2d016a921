"""Sums whose shares meet at the clients: the server relays what it cannot read, on every engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from toy_components import recipe_of
from toy_protocol import run_protocol


def recipe(**changes: Any) -> dict[str, Any]:
    plain = recipe_of("encrypted", [{"use": "toy.at_clients"}], min_clients=3, train={"use": "toy.push"})
    return plain | {"postprocess": {"encrypted": ["toy.at_clients"]}} | changes


@pytest.mark.parametrize("engine", ["local", "processes"])
def test_each_client_opens_the_sum_and_the_server_never_does(engine: str) -> None:
    outcome = run_protocol(recipe(), engine)
    assert outcome.notes == []
    plain = run_protocol(recipe_of(train={"use": "toy.push"}))
    assert np.abs(outcome.vectors[0] - plain.vectors[0]).max() < 2e-6
    views = outcome.protocol.ledger.report().views
    assert views["aggregator"].state == "guaranteed"  # ciphertexts only
    assert views["aggregator"].epsilon == 0
    assert views["client"].state == "none"
    assert views["key_holder"].reason == "nobody holds the key: 2 clients together could open an upload"
    full = run_protocol(recipe(min_clients=4), engine).protocol.ledger.report().views
    assert full["key_holder"].reason == "nobody holds the key: 3 clients together could open an upload"


def test_a_client_that_does_not_help_costs_the_round_its_sum(tmp_path: Any) -> None:
    trace = tmp_path / "away.csv"
    trace.write_text("round,client\n1,2\n")
    outcome = run_protocol(recipe(rounds=3, availability={"trace": str(trace), "when": "opening"}))
    assert any("zone encrypted is skipped: 3 of 4 clients told their part" in note for note in outcome.notes)
    assert [entry.zones["encrypted"].closed for entry in outcome.protocol.ledger.log] == [True, False, False]
