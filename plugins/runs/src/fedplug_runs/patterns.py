"""What a round sends, in kind: its zones, seals and noise. Rounds of one pattern look alike to whoever reads messages.

A run keeps a checkpoint of one round of each pattern, so that attacks can ask the parties about every kind of round.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

from fedplug.api.facts import published_to
from fedplug.round.base import facts_of

if TYPE_CHECKING:
    from fedplug.api.facts import Facts
    from fedplug.api.known import Known
    from fedplug.round.protocol import Protocol
    from fedplug_ledger.entries import RoundEntry

Sent: TypeAlias = tuple[str, str, str, str]
"""A zone in words: its name, how large it is, what closes its values, and which noise they carry."""
Pattern: TypeAlias = frozenset[Sent]

_SPREAD = 4.0
"""Multipliers of noise that differ by less than about this factor count as alike."""
_UNKNOWN, _MOST, _LESS = "unknown", "half of the model or more", "less than half of the model"


def pattern_of(facts: Iterable[Facts], entry: RoundEntry | None = None, client_id: int | None = None) -> Pattern:
    """The pattern of a round.

    Args:
        facts: of each group of clients.
        entry: of the ledger, for the sizes of zones where plans do not follow from facts alone.
        client_id: a client, where operations name clients; None: what holds of all.
    """
    return frozenset(sent for now in facts for sent in _of_group(now, entry, client_id))


def facts_by_group(protocol: Protocol, round: int) -> dict[str, Facts]:
    """The public facts of a round (0-based) for each group of clients; the protocol stays where it is.

    Args:
        protocol: of the run, at any moment; it knows what was published until then.
        round: which.
    """
    told = protocol.server.remembered.published
    return {
        group: facts_of(protocol.composition, protocol.layout, round, protocol.public, published_to(told, group))
        for group in protocol.server.groups or ("all",)
    }


def words_of(pattern: Pattern) -> str:
    """The pattern for people: `the zone a in the clear, the zone b with gaussian noise of multiplier about 1`."""
    return ", ".join(dict.fromkeys(
        f"the zone {zone}{_part(size)} {' and '.join(filter(None, (closed, noise))) or 'in the clear'}"
        for zone, size, closed, noise in sorted(pattern)
    ))  # fmt: skip


def _part(size: str) -> str:
    if size in ("whole", _UNKNOWN):
        return ""
    if size in (_MOST, _LESS):
        return f" ({size})"
    tensors, comma, share = size.partition(", ")
    return f" (of {len(tensors)} tensors {tensors.count('+')} whole and {tensors.count('~')} in part{comma}{share})"


def _of_group(facts: Facts, entry: RoundEntry | None, client_id: int | None) -> Iterable[Sent]:
    for zone in facts.links:
        size = _UNKNOWN
        try:
            size = _size(facts, zone, entry)
            steps = [step for step in facts.steps(zone) if step.link.hook == "protect"]
            known = steps[-1].after if steps else None
        except Exception:  # it follows from what was published, and is not known here
            yield zone, size, _UNKNOWN, ""
            continue
        if not size:
            continue
        if known is not None and client_id is not None and known.own:
            known = known.own.get(client_id, known.own.get(None, known))
        yield zone, size, *(("", "") if known is None else (_closed(known), _noise(known)))


def _size(facts: Facts, zone: str, entry: RoundEntry | None) -> str:
    """How much of which parameter is in the zone, roughly; empty where nothing is."""
    plan = facts.plan
    if plan is None:
        sent = entry.zones.get(zone) if entry else None
        if entry is None:
            return _UNKNOWN
        share = sent.size / entry.total if sent is not None and entry.total else 0.0
        # No finer: masks that grow or shrink from round to round would be a pattern each.
        return "" if not share else "whole" if share == 1 else _MOST if share >= 0.5 else _LESS
    if plan.whole or not plan.labels.size:
        return "whole" if plan.may_hold(zone) else ""
    if zone not in plan.zones:
        return ""
    inside = plan.labels == plan.zones.index(zone)
    shares = [float(inside[parameter.slice].mean()) for parameter in facts.layout.parameters]
    # Which tensors, and not which scalars: a mask that moves is one pattern. One that shrinks to a sliver is another.
    found = "".join("-" if not share else "+" if share == 1 else "~" for share in shares) if inside.any() else ""
    return f"{found}, {_MOST if inside.mean() >= 0.5 else _LESS}" if "~" in found else found


def _closed(known: Known) -> str:
    if known.closed is None:
        return ""
    by = getattr(known.closed, "opened_by", None)
    return "scrambled" if by is None else f"encrypted, opened by {by.replace('_', ' ')}"


def _noise(known: Known) -> str:
    return " and ".join(f"with {each.mechanism} noise{_about(each.noise_multiplier)}" for each in known.releases)


def _about(multiplier: float) -> str:
    return f" of multiplier about {_rough(multiplier)}" if multiplier > 0 and math.isfinite(multiplier) else ""


def _rough(value: float) -> str:
    """The value to the nearest power of `_SPREAD`."""
    return f"{_SPREAD ** round(math.log(value, _SPREAD)):g}"
