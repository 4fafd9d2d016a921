"""The key server goes by the same statements as the ledger: what is known of a sum follows from the model's layers."""

from __future__ import annotations

import os
from typing import Any

import fedplug
import numpy as np
import pytest
import toy_components
from fedplug import Block, Bound, Client, Context, Effects, Known, Noise, Opener, Protector, hookimpl
from fedplug.api import codec
from toy_components import recipe_of
from toy_protocol import run_protocol


class Layers(Protector):
    """Clip each layer to 1."""

    class Options(fedplug.Options):
        """None."""

    def effects(self, known: Known, ctx: Context) -> Effects:
        return (Bound(1.0, per="layer"),)

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        values = block.plain().copy()
        for parts in ctx.layout.layer_slices().values():
            norm = np.sqrt(sum(np.square(values[part], dtype=np.float64).sum() for part in parts))
            for part in parts:
                values[part] *= min(1.0, 0.99 / norm)
        return block.replace(values=values)


class KeyNoise(Opener):
    """Add noise to the opened sum, of five times what one client moves it by."""

    site = "key_server"

    class Options(fedplug.Options):
        """None."""

    def opens(self, known: Known, ctx: Context) -> Effects:
        std = 5 * known.need_norm("clip first", central=True)
        return (Noise(mechanism="gaussian", scale=std, trust="central"),)

    @hookimpl
    def postprocess(self, block: Block, ctx: Context) -> Block:
        assert ctx.known is not None
        std = 5 * ctx.known.need_norm("clip first", central=True)
        ctx.party.memory(self)["std"] = std
        noise = np.random.default_rng(list(os.urandom(16))).normal(0, std, block.size)
        return block.replace(values=(block.plain() + noise).astype(np.float32))


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
    assert saved["state"]["toy.keynoise"]["std"] == pytest.approx(stated)
