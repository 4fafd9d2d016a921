"""The result of folding the links of a zone."""

from __future__ import annotations

import dataclasses

import numpy as np
from fedplug import Clip, Known, Noise, Open, Operations, Seal, WeightedSum
from fedplug.api.links import Hook, Link, Step, closers, foretold, locked, released, seal_of, uploaded
from fedplug.api.roles import Site

KEYS = Seal(scheme="a test", opened_by="key_server", range=8.0, step=0.5, sums_visible_to="clients")


def steps(*links: tuple[str, Hook, Site, Operations]) -> list[Step]:
    known, found = Known(zone="noised", layers=(10,)), []
    for name, hook, site, operations in links:
        states = [dataclasses.replace(known, link=name)]
        states += [states[0].after(*operations[: number + 1]) for number in range(len(operations))]
        found.append(Step(Link("noised", hook, name, None, site), operations, tuple(states)))
        known = states[-1]
    return found


def test_what_is_uploaded_and_what_is_released() -> None:
    found = steps(
        ("clip", "protect", "client", (Clip(1.0),)), ("lock", "protect", "client", (KEYS,)),
        ("sum", "aggregate", "server", (WeightedSum(),)), ("lock", "postprocess", "key_server", (Open(),)),
    )  # fmt: skip
    sent, given = uploaded(found), released(found)
    assert sent is not None
    assert given is not None
    assert sent.sealed == (KEYS,)
    assert not sent.summed
    assert given.sealed == ()
    assert given.summed
    assert seal_of(found) == ("lock", KEYS)
    assert closers(found) == ["lock"]
    assert locked(found)
    assert not locked(found[:3])
    assert uploaded([]) is None
    assert seal_of(found[:1]) is None


def test_a_fingerprint_follows_what_is_promised_and_not_the_type_of_a_number() -> None:
    def fingerprint(*operations: object) -> bytes:
        return foretold(steps(("both", "protect", "client", operations)))  # type: ignore[arg-type]

    one = fingerprint(Clip(1.0), Noise.gaussian(2.0))
    assert one == fingerprint(Clip(float(np.float64(1.0))), Noise.gaussian(2.0 + 1e-15))
    others = [(1.1, 2.0), (1.0, 2.1)]
    assert len({one, *(fingerprint(Clip(norm), Noise.gaussian(std)) for norm, std in others)}) == 3
    # Facts that follow from scores are not known to all. A client refuses if the cost is above the promise.
    scored = [fingerprint(Clip(1.0), Noise.gaussian(std, scored=True)) for std in (2.0, 3.0)]
    assert scored[0] == scored[1]
    tighter = fingerprint(Clip(1.0, tighter=0.5), Noise.gaussian(1.0, promised=2.0))
    assert tighter == fingerprint(Clip(1.0), Noise.gaussian(None, promised=2.0))
