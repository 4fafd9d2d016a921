"""What the folded links of a zone come to: what is uploaded, who closed it, who opens it, what is known of it."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from fedplug.api.operations import Open, Scramble, Seal

if TYPE_CHECKING:
    from fedplug.api.known import Known
    from fedplug.api.links import Step


def locked(steps: Iterable[Step]) -> bool:
    """Whether the key server tells the opened sum to the clients alone; the server then relays what it cannot read."""
    return any(
        isinstance(closed := step.before.sealed[-1], Seal) and closed.answers == "clients"
        for step in steps
        if step.link.site == "key_server" and step.has(Open) and step.before.sealed
    )


def seal_of(steps: Iterable[Step]) -> tuple[str, Seal] | None:
    """The encryption of a zone's uploads, with the name of the component; None where they are not encrypted."""
    for step in steps:
        for operation in step.operations:
            if isinstance(operation, Seal):
                return step.link.name, operation
    return None


def closers(steps: Iterable[Step]) -> list[str]:
    """Names of the components whose seal or scramble lies on a zone's uploads, the outermost last."""
    return [
        step.link.name
        for step in steps
        if step.has(Seal, Scramble)
    ]


def uploaded(steps: Iterable[Step]) -> Known | None:
    """What is known of a zone as the server receives it; None where the zone has no link at all."""
    known = None
    for step in steps:
        if step.link.hook == "protect":
            known = step.after
        elif known is None:
            known = step.before
    return known


def foretold(steps: Iterable[Step]) -> bytes:
    """A fingerprint of the bounds that a zone's uploads are clipped to, and of what their noise costs.

    Operations may follow from what a party keeps. A client that goes by others than the server would not have the
    privacy that the ledger claims for it.
    """
    return _foretold(tuple(steps))


@functools.lru_cache(maxsize=8)  # the clients of a process share their steps
def _foretold(steps: tuple[Step, ...]) -> bytes:
    known = uploaded(steps)
    assert known is not None  # a zone that is sent has an aggregator
    stated: list[Any] = [[clip.link, clip.bound.norm, clip.bound.order, clip.factor] for clip in known.clips]
    for release in known.releases:
        # What follows from scores is not known to all; a client refuses if its noise costs more than was promised.
        same = [] if release.scored else [release.noise_multiplier]
        stated.append([release.link, *same])
    return hashlib.blake2b(repr(_rounded(stated)).encode(), digest_size=8).digest()


def _rounded(value: Any) -> Any:
    """With numbers as text of nine digits: those of other types, or of another machine, may differ in the last bits."""
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    return value if isinstance(value, str) else f"{float(value):.9g}"


def released(steps: Iterable[Step]) -> Known | None:
    """What is known of a zone's sum as clients adopt it."""
    known = None
    for step in steps:
        known = step.after
    return known
