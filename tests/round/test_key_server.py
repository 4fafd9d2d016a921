"""The key server executes what the ledger prices: facts about a sum follow from the model's layers."""

from __future__ import annotations

import math
from typing import Any

import fedplug
import numpy as np
import pytest
import toy_components
from fedplug import Block, Clip, Facts, KeyServer, Known, Look, Noise, Opener, Operations, Protector
from fedplug.api import codec
from toy_components import recipe_of
from toy_protocol import run_protocol


class Layers(Protector):
    """Clip each layer to 1."""

    class Options(fedplug.Options):
        """None."""

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Clip(1.0, per="layer"),)


class KeyNoise(Opener):
    """Add noise to the opened sum, five times as large as one client's effect on it."""

    site = "key_server"

    class Options(fedplug.Options):
        """None."""

    def postprocess(self, known: Known, facts: Facts) -> Operations:
        std = 5 * known.need_norm("clip first", central=True)

        def keep(block: Block, key_server: KeyServer, facts: Facts) -> None:
            before = key_server.memory(self).get("values")
            key_server.memory(self).update({"std": std, "values": block.plain().copy(), "before": before})

        return Look(keep), Noise.gaussian(std), Look(keep)


@pytest.mark.parametrize("engine", ["local", pytest.param("processes", marks=pytest.mark.slow)])
def test_noise_at_the_key_server_is_scaled_as_the_ledger_has_it(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for group, found in {"protect": Layers, "postprocess": KeyNoise}.items():
        there = toy_components.TOYS[group]
        monkeypatch.setitem(toy_components.TOYS, group, {**there, f"toy.{found.__name__.lower()}": found})
    plain = recipe_of(
        "encrypted", [{"use": "toy.layers"}, {"use": "std.bfv"}], rounds=1, train={"use": "toy.push"},
        model={"use": "std.mlp", "hidden": [4, 4]}, postprocess={"encrypted": ["std.bfv", {"use": "toy.keynoise"}]},
    )  # fmt: skip
    outcome = run_protocol(plain, engine)
    (stated,) = outcome.protocol.ledger.report().zones["encrypted"].std
    assert stated > 5 * np.sqrt(3)  # three layers of norm 1
    saved = codec.decode(codec.unframe(outcome.files["key_server.state"]))
    kept = saved["state"]["toy.keynoise"]
    assert kept["std"] == pytest.approx(stated)
    noise = kept["values"] - kept["before"]
    assert noise.std() == pytest.approx(stated, rel=6 / math.sqrt(2 * noise.size))
