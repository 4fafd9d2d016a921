"""Links of noise and clipping at a client, without a run."""

from __future__ import annotations

import dataclasses
from typing import Any

import fedplug.api.releases
import numpy as np
from fedplug import Block, Bound, Client, Context, Known, Layout, Server
from fedplug.api.releases import Release
from fedplug_std.clip import Clip
from fedplug_std.gaussian import CentralGaussian, Gaussian

SIZE = 20_000


def named(component: Any, name: str) -> Any:
    component.name = name
    return component


def context(*components: Any, round: int = 0, rounds: int = 10, seed: int = 7) -> Context:
    by_name = {component.name: component for component in components}
    layout = Layout.of([("weight", (SIZE,))])
    return Context(round, rounds, layout, ("noised",), 4, 2, seed, "digest", Server(), by_name)


def client(client_id: int = 0, **where: Any) -> Client:
    return Client(client_id=client_id, ctx=context(**where))


def known(norm: float | None = None, zone: str = "noised") -> Known:
    """What a link knows of values that are at most `norm` long, or of values that nothing bounds."""
    bounds = () if norm is None else (Bound(norm),)
    clips = () if norm is None else (fedplug.api.releases.Clip("std.clip", Bound(norm)),)
    return Known(zone=zone, link="this", layers=(SIZE,), bounds=bounds, clips=clips)


def after(ctx: Context, norm: float | None) -> Context:
    """The context of a link behind a clip."""
    return dataclasses.replace(ctx, known=known(norm))


def stated(component: Any, ctx: Context, before: Known) -> Release:
    """What the ledger is told of one noise."""
    effects = component.opens if isinstance(component, CentralGaussian) else component.effects
    (release,) = before.after(effects(before, ctx)).releases
    return release


def block(values: Any) -> Block:
    values = np.asarray(values, np.float32)
    return Block("noised", len(values), values)


def clip(norm: float) -> Clip:
    return named(Clip(Clip.Options(norm=norm)), "std.clip")  # type: ignore[no-any-return]


def gaussian(**options: Any) -> Gaussian:
    return named(Gaussian(Gaussian.Options(**options)), "std.gaussian")  # type: ignore[no-any-return]


def noised(values: Any, client_id: int = 0, round: int = 0, norm: float = 2.0, **options: Any) -> np.ndarray[Any, Any]:
    party = client(client_id, round=round)
    return gaussian(**options).protect(block(values), party, after(party.ctx, norm)).plain()


def central(**options: Any) -> CentralGaussian:
    return named(CentralGaussian(CentralGaussian.Options(**options)), "std.central_gaussian")  # type: ignore[no-any-return]
