"""Ordinary rounds of shipped recipes cause no warning in a client's program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug.round.parties import ClientHost
from fedplug_party.program import Noticing
from fedplug_runs.overlay import load_recipe
from fedplug_std import accountants
from fedplug_std.handed import signs

RECIPES = Path(__file__).resolve().parents[3] / "recipes"


@pytest.mark.parametrize("name", ["fedavg", "central-dp-fedavg", "breast-cancer-dp-sgd", "fedre-digits"])
def test_no_ordinary_round_is_warned_of(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They include noise, tables, linear models that start at zero, and few clients."""
    seen: dict[str, Noticing] = {}
    models: dict[str, list[np.ndarray[Any, Any]]] = {}
    said: list[str] = []
    deliver = ClientHost.deliver

    def delivered(host: ClientHost, address: str, data: Any) -> Any:
        reply = deliver(host, address, data)
        client = host.clients[address]
        alone = ClientHost.__new__(ClientHost)  # a site's host has only its own client
        alone.clients = {address: client}
        said.extend(seen.setdefault(address, Noticing(client.facts.layout))(alone))
        handed = models.setdefault(address, [client.vector])
        if client.vector is not handed[-1]:
            handed.append(client.vector)
            found = signs(handed[-1], handed[-2], client.facts.layout)
            assert found["parallel_rows"] == found["emptied_rows"] == 0.0
        return reply

    monkeypatch.setattr(ClientHost, "deliver", delivered)
    monkeypatch.setattr(accountants, "_rdp", lambda *_: None)  # which takes most of the time and is not asked for
    plain = load_recipe(str(RECIPES / f"{name}.yaml")).to_plain() | {"rounds": 2}
    if plain["data"]["use"] == "std.digits":
        plain["data"]["train_size"] = 400
    if plain["train"]["use"] == "baselines.dp_sgd":  # the multiplier of an epsilon takes a second to find
        plain["train"] |= {"epsilon": None, "delta": None, "noise_multiplier": 1.0}
    fedplug.run(plain, output=str(tmp_path), quiet=True, muted=["lab.report"])
    assert said == []
    assert max(map(len, models.values())) >= 2  # some model was compared
