"""Links of noise and clipping, executed as the core executes them, without a run."""

from __future__ import annotations

from typing import Any

import fedplug.api.known
import numpy as np
from fedplug import Block, Client, Facts, Known, Layout, Server
from fedplug.api.known import Release
from fedplug.api.links import Link, fold
from fedplug.api.norms import Bound
from fedplug.api.operations import Noise
from fedplug.mechanisms.execution import execute
from fedplug_std.clip import Clip, ClipL1
from fedplug_std.gaussian import CentralGaussian, Gaussian
from fedplug_std.laplace import Laplace
from fedplug_std.mean import Mean

SIZE = 20_000


def named(component: Any, name: str) -> Any:
    component.name = name
    return component


def facts_of(*components: Any, round: int = 0, rounds: int = 10, seed: int = 7) -> Facts:
    by_name = {component.name: component for component in components}
    layout = Layout.of([("weight", (SIZE,))])
    return Facts(round, rounds, layout, ("noised",), 4, 2, seed, "digest", by_name, chains={"noised": ()})


def client(client_id: int = 0, **where: Any) -> Client:
    return Client(client_id=client_id, facts=facts_of(**where))


def known(norm: float | None = None, zone: str = "noised", order: float = 2) -> Known:
    """What a link knows of values that are at most `norm` long, or of values that nothing bounds."""
    bounds = () if norm is None else (Bound(norm, order=order),)
    clips = () if norm is None else (fedplug.api.known.Clipped("std.clip", bounds[0]),)
    return Known(zone=zone, link="this", layers=(SIZE,), bounds=bounds, clips=clips)


def passed(values: Any, party: Client, *chain: Any) -> np.ndarray[Any, Any]:
    """What a chain of components makes of a client's values."""
    given = values if isinstance(values, Block) else block(values)
    for step in fold([Link(given.zone, "protect", each.name, each, "client") for each in chain], party.facts):
        given = execute(step, given, party, party.facts)
    return given.plain()


def on_sum(total: Block, noise: CentralGaussian, norm: float = 0.5) -> Block:
    """A sum of clipped values with noise of the server."""
    mean = named(Mean(Mean.Options(weighting="uniform")), "std.mean")
    facts = facts_of(noise)
    *_, step = fold(
        [
            Link("noised", "protect", "std.clip", clip(norm), "client"),
            Link("noised", "aggregate", "std.mean", mean, "server"),
            Link("noised", "postprocess", noise.name, noise, "server"),
        ],
        facts,
    )
    return execute(step, total, Server(), facts)


def noise_of(*chain: Any, facts: Facts | None = None) -> Noise:
    """The noise of a chain, as the core executes it."""
    links = [Link("noised", "protect", each.name, each, "client") for each in chain]
    steps = fold(links, facts_of() if facts is None else facts)
    (noise,) = (one for step in steps for one in step.operations if isinstance(one, Noise))
    return noise


def stated(*chain: Any, facts: Facts | None = None) -> Release:
    """What the ledger is told of the noise of a chain."""
    links = [Link("noised", "protect", each.name, each, "client") for each in chain]
    *_, step = fold(links, facts_of() if facts is None else facts)
    (release,) = step.after.releases
    return release


def block(values: Any) -> Block:
    values = np.asarray(values, np.float32)
    return Block("noised", len(values), values)


def clip(norm: float) -> Clip:
    return named(Clip(Clip.Options(norm=norm)), "std.clip")  # type: ignore[no-any-return]


def clip_l1(norm: float) -> ClipL1:
    return named(ClipL1(ClipL1.Options(norm=norm)), "std.clip_l1")  # type: ignore[no-any-return]


def gaussian(**options: Any) -> Gaussian:
    return named(Gaussian(Gaussian.Options(**options)), "std.gaussian")  # type: ignore[no-any-return]


def laplace(**options: Any) -> Laplace:
    return named(Laplace(Laplace.Options(**options)), "std.laplace")  # type: ignore[no-any-return]


def noised(values: Any, client_id: int = 0, round: int = 0, norm: float = 2.0, **options: Any) -> np.ndarray[Any, Any]:
    """Values behind a clip and Gaussian noise."""
    return passed(values, client(client_id, round=round), clip(norm), gaussian(**options))


def central(**options: Any) -> CentralGaussian:
    return named(CentralGaussian(CentralGaussian.Options(**options)), "std.central_gaussian")  # type: ignore[no-any-return]
