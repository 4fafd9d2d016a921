"""Sums whose shares meet at the clients: the server relays data that it cannot read, on every engine."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest
from fedplug.recipe.recipe import Recipe
from fedplug.round.sums import Sums
from fedplug_ledger.charging import Charging
from fedplug_runs import execution
from fedplug_runs.settings import Settings
from toy_components import recipe_of, toy_catalog
from toy_protocol import run_protocol


def recipe(**changes: Any) -> dict[str, Any]:
    plain = recipe_of("encrypted", [{"use": "toy.at_clients"}], min_clients=3, train={"use": "toy.push"})
    return plain | {"postprocess": {"encrypted": ["toy.at_clients"]}} | changes


@pytest.mark.parametrize("engine", ["local", pytest.param("processes", marks=pytest.mark.slow)])
def test_each_client_opens_the_sum_and_the_server_never_does(engine: str) -> None:
    outcome = run_protocol(recipe(), engine)
    assert outcome.notes == []
    plain = run_protocol(recipe_of(train={"use": "toy.push"}))
    assert np.abs(outcome.vectors[0] - plain.vectors[0]).max() < 2e-6
    views = outcome.protocol.ledger.report().views
    assert views["server"].state == "guaranteed"  # ciphertexts only
    assert views["server"].epsilon == 0
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


@pytest.mark.parametrize(("owner", "method", "told"), [(Charging, "_released", True), (Sums, "open", False)])
def test_a_repeated_round_opens_no_second_sum_and_costs_what_was_released(
    owner: type, method: str, told: bool, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in round 2 after the clients told each other their part, and before."""
    settings = Settings.load().replace({"engine": "local", "output": tmp_path / "runs", "quiet": True})
    real, calls = getattr(owner, method), itertools.count()

    def killed(self: Any, *given: Any, **named: Any) -> Any:
        if next(calls) == 1:
            raise ZeroDivisionError
        return real(self, *given, **named)

    noise = {"use": "std.distributed_gaussian", "noise_multiplier": 2.0}
    chain = [{"use": "std.clip", "norm": 8.0}, noise, "toy.at_clients"]
    equal = {"use": "std.mean", "weighting": "uniform"}
    noised = recipe(rounds=3, min_clients=4, protect={"encrypted": chain}, aggregate=equal)
    plain = Recipe.from_plain(noised, toy_catalog())
    with monkeypatch.context() as patch:
        patch.setattr(owner, method, killed)
        with pytest.raises(ZeroDivisionError):
            execution.start(plain, settings, toy_catalog())
    (folder,) = (tmp_path / "runs").iterdir()
    assert execution.resume(folder, settings, None, toy_catalog()) == 0
    ledger = json.loads((folder / "ledger.json").read_text())
    closed = [(entry["round"], bool(entry["zones"]["encrypted"].get("closed"))) for entry in ledger["log"]]
    assert closed == [(1, False), (2, not told), (2, told), (3, False)]
    said = "round 2 was repeated; zone encrypted was not opened a second time"
    assert (said in ledger["warnings"]) == told
