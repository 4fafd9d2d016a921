"""Which zones were released with noise and which without."""

from __future__ import annotations

from toy_components import build, recipe_of


def test_zones_without_noise_are_known_to_components() -> None:
    noise = [{"use": "std.clip", "norm": 1.0}, {"use": "std.gaussian", "noise_multiplier": 1}]
    protocol, engine, _ = build(recipe_of("noised", noise))
    engine.close()
    assert protocol.server.ctx.bare_zones == ()
    protocol, engine, _ = build(recipe_of())
    engine.close()
    assert protocol.server.ctx.bare_zones == ("clear",)
