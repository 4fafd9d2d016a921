"""What the folded links of a zone come to."""

from __future__ import annotations

import dataclasses

import numpy as np
from fedplug import Adds, Bound, Effects, Known, Noise, Opens, Seal
from fedplug.api.folded import closers, locked, released, seal_of, stated_bounds, uploaded
from fedplug.api.links import Hook, Link, Step
from fedplug.api.role_records import Site

KEYS = Seal(scheme="a test", opened_by="key_server", range=8.0, step=0.5, answers="clients")


def steps(*links: tuple[str, Hook, Site, Effects]) -> list[Step]:
    known, found = Known(zone="noised", layers=(10,)), []
    for name, hook, site, effects in links:
        known = dataclasses.replace(known, link=name)
        after = known.after(effects)
        found.append(Step(Link("noised", hook, name, None, site), known, effects, after))
        known = after
    return found


def test_what_is_uploaded_and_what_is_released() -> None:
    found = steps(
        ("clip", "protect", "client", (Bound(1.0),)), ("lock", "protect", "client", (KEYS,)),
        ("sum", "aggregate", "server", (Adds(),)), ("lock", "postprocess", "key_server", (Opens(),)),
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


def test_a_fingerprint_of_bounds_follows_what_is_promised_and_not_the_type_of_a_number() -> None:
    def fingerprint(norm: float, scale: float) -> bytes:
        both: Effects = (Bound(norm), Noise(mechanism="gaussian", scale=scale))
        return stated_bounds(steps(("both", "protect", "client", both)))

    assert fingerprint(1.0, 2.0) == fingerprint(float(np.float64(1.0)), 2.0 + 1e-15)
    assert len({fingerprint(1.0, 2.0), fingerprint(1.1, 2.0), fingerprint(1.0, 2.1)}) == 3
