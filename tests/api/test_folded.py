"""The result of folding the links of a zone."""

from __future__ import annotations

import dataclasses

from fedplug import Clip, Known, Open, Operations, Seal, WeightedSum
from fedplug.api.links import Hook, Link, Step, closers, locked, released, seal_of, uploaded
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
