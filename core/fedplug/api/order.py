"""The order of a zone's links: which cannot run in their place, and which leave noise without a price."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedplug.api.errors import FedplugError
from fedplug.api.facts import Facts
from fedplug.api.known import Known
from fedplug.api.links import Link, Step, fold, locked, uploaded
from fedplug.api.operations import Misplaced, Noise, Seal, Widen


def misplaced_links(links: tuple[Link, ...], facts: Facts) -> list[tuple[Link, str]]:
    """Every link that cannot run in its place, with a sentence; folded without stopping.

    Nobody knows what a link does whose hook fails: of links behind it only those whose hook fails too are told.
    """
    failed: dict[Link, FedplugError] = {}
    steps = fold(links, facts, failed.__setitem__)
    problems: list[tuple[Link, str]] = []
    unknown = False
    for link, error in failed.items():
        broken = not isinstance(error, Misplaced)
        if broken or not unknown:
            problems.append((link, str(error)))
        unknown = unknown or broken
    at_clients: Link | None = None
    for number, step in enumerate(steps):
        link = step.link
        if link.hook == "postprocess":
            if link.site == "server" and locked(steps[:number]):
                problems.append((
                    link,
                    f"{link.name} runs at the aggregation server, which relays the {link.zone} sum and cannot read it: "
                    "the key server answers the clients alone; write sums_visible_to: server, or have it run at the "
                    "clients",
                ))
            if at_clients is not None and link.site != "client":
                where = {"server": "the aggregation server", "key_server": "the key server"}[link.site]
                problems.append((
                    link,
                    f"{link.name} runs at {where}, but {at_clients.name} before it runs at the clients, behind which "
                    f"nothing reaches {where}: it would never run; put it before {at_clients.name}, have the sum "
                    "opened at the key server (key_holder: key_server), or have it run at the clients too",
                ))
            at_clients = at_clients or (link if link.site == "client" else None)
    # A link that is misplaced counts as if it did nothing, so what is missing behind others is not reported again.
    return problems or list(_unfinished_uploads(steps))


def _unfinished_uploads(steps: Sequence[Step]) -> Iterator[tuple[Link, str]]:
    """Links that take another link behind them, which they cannot see themselves, and which is not there."""
    known = uploaded(steps)
    if known is None:
        return
    for step in steps:
        link, zone = step.link, step.link.zone
        for operation in step.operations if link.hook == "protect" else ():
            if isinstance(operation, Widen) and not _noise_everywhere(known):
                yield link, (
                    f"zone {zone} gets no noise, so the zeros would show what a client retains; put noise after "
                    f"{link.name}, for instance {{use: std.gaussian, epsilon: 8, delta: 1.0e-5}}"
                )
            # Scrambled words are not ciphertexts that stay closed to the server, so they do not count.
            sealed = isinstance(known.closed, Seal)
            if isinstance(operation, Noise) and operation.trust == "distributed" and not sealed:
                yield link, (
                    f"the noise of {link.name} is enough for a sum, not for an upload, and uploads of zone {zone} are "
                    f"visible; encrypt the zone after {link.name}, or let it add as much as one upload needs "
                    "(choice: local)"
                )


def _noise_everywhere(known: Known) -> bool:
    """Whether some noise lies on every value; a size that differs between clients counts, one of 0 does not."""
    return any(
        min(scale, default=1.0) > 0 if isinstance(scale, tuple)
        else release.noise_multiplier != 0 if scale is None
        else scale > 0
        for release, scale in zip(known.releases, known.scales, strict=True)
    )  # fmt: skip
