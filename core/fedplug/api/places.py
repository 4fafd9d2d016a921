"""Where an operation may be: in which hook, and behind what. Elsewhere it cannot be executed."""

from __future__ import annotations

from typing import Any, Protocol

from fedplug.api.known import Known
from fedplug.api.operations import (
    _KINDS,
    Clip,
    Combine,
    Look,
    Map,
    Misplaced,
    Noise,
    Open,
    Operation,
    Operations,
    Rotate,
    Scramble,
    Seal,
    WeightedSum,
    Widen,
)
from fedplug.api.roles import Closer, Scrambler, Sealer, Site

_WORKS_CLOSED = (Look, Open, WeightedSum)
_OF_UPLOADS = (WeightedSum, Combine)


class Place(Protocol):
    """Of a `Link`, what says where its operations are."""

    @property
    def zone(self) -> str:
        """The zone."""

    @property
    def hook(self) -> str:
        """Which hook of the component gives them."""

    @property
    def name(self) -> str:
        """Of the component."""

    @property
    def component(self) -> Any:
        """That seals, or opens."""

    @property
    def site(self) -> Site:
        """The party at which it runs."""


def check_place(link: Place, known: Known, operation: Operation) -> None:
    """Compares an operation with the hook that gives it, and with what has been done to the values before it.

    Raises:
        Misplaced: it cannot be executed here, or what it releases would be seen without it.
    """
    kind = type(operation).__name__
    where = f"component {link.name}, hook {link.hook}"
    if isinstance(operation, _OF_UPLOADS):
        if link.hook != "aggregate" or known.summed:
            raise Misplaced(f"{where}: {kind} adds the uploads up, once, in the hook aggregate alone")
    elif link.hook == "aggregate" and not known.summed:
        raise Misplaced(
            f"{where}: it gives {kind} before the uploads are added up; give WeightedSum() or Combine(function) first, "
            f"and {kind} of the sum behind it, or let a link of protect do it"
        )
    if known.summed and isinstance(operation, Clip | Noise) and (operation.clients or getattr(operation, "size", None)):
        raise Misplaced(f"{where}: it gives {kind} of clients' own sizes, of a sum; give it in the hook protect")
    if isinstance(operation, Widen) and link.hook != "protect":
        raise Misplaced(f"{where}: Widen covers what a client keeps; give it in the hook protect")
    if isinstance(operation, Widen) and known.releases:
        raise Misplaced(f"{where}: zeros behind noise show what a client keeps; give Widen before the noise")
    if isinstance(operation, Rotate):
        if operation.back and (not known.summed or known.rotated[-1:] != (link.name,)):
            last = f"{known.rotated[-1]} was the last to turn them" if known.rotated else "nothing has turned them"
            raise Misplaced(f"{link.name} turns the {link.zone} values back, but {last}; remove it from postprocess")
        if not operation.back and link.hook != "protect":
            raise Misplaced(f"{where}: Rotate turns uploads; give it in the hook protect, and Rotate(back=True) here")
    if isinstance(operation, Seal | Scramble) and link.hook != "protect":
        raise Misplaced(f"{where}: {kind} closes uploads; give it in the hook protect")
    role = Scrambler if isinstance(operation, Scramble) else Sealer if isinstance(operation, Seal) else Closer
    if isinstance(operation, Seal | Scramble | Open) and not isinstance(link.component, role):
        fitting = [each.__name__ for each in ((Sealer, Scrambler) if role is Closer else (role,))]
        classes = [f"class {type(link.component).__name__}(fedplug.{name})" for name in fitting]
        raise Misplaced(f"{where}: it gives {kind} and is no {' or '.join(fitting)}; write {', or '.join(classes)}")
    if isinstance(operation, Noise) and link.hook == "postprocess" and link.site == "client":
        raise Misplaced(
            f"{link.name} adds noise at the clients to the {link.zone} sum, which they have in hand without it; add "
            "noise before the upload (protect), or where the sum is opened (key_holder: key_server)"
        )
    closed = known.closed
    if closed is not None and isinstance(operation, WeightedSum) and operation.by is not None:
        raise Misplaced(
            f"{where}: it weighs layers of uploads of zone {link.zone}, which {known.closer} has closed; give "
            "WeightedSum() without by, or leave the zone open"
        )
    if closed is not None and isinstance(operation, Seal | Scramble):
        raise Misplaced(
            f"{link.name} must not come after encryption in the chain of zone {link.zone}: {known.closer} has closed "
            "it; keep one of the two"
        )
    if closed is not None and not isinstance(operation, _WORKS_CLOSED):
        what, by = ("sum" if known.summed else "zone"), known.closer
        remedy = f"put {by} before {link.name} under postprocess" if known.summed else f"put {link.name} before {by}"
        raise Misplaced(
            f"{link.name} cannot work on the {link.zone} {what}, which {by} has closed; open it first: {remedy}"
            if known.summed else
            f"{link.name} must not come after encryption in the chain of zone {link.zone}, which {by} has closed; "
            f"{remedy}"
        )  # fmt: skip
    if isinstance(operation, Open):
        if closed is None:
            raise Misplaced(f"{link.name} opens the {link.zone} sum, which nothing has closed; remove it there")
        if isinstance(closed, Seal) and link.site != site_of(closed):
            raise Misplaced(
                f"{link.name} opens the {link.zone} sum at site={link.site!r}, but {known.closer} says that "
                f"{closed.opened_by} open it, which is site={site_of(closed)!r}"
            )


def site_of(closed: Seal) -> Site:
    """Where those run who can open a seal; shares meet at the aggregation server, or at each client."""
    if closed.opened_by == "shares":
        return "client" if closed.sums_visible_to == "clients" else "server"
    return "client" if closed.opened_by == "clients" else "key_server"


def as_operations(given: Any, hook: str, link: str) -> Operations:
    """The return value of a hook as operations: one operation, or a function, counts as a tuple of it.

    Raises:
        Misplaced: it is something else.
    """
    if isinstance(given, _KINDS):
        given = (given,)
    elif callable(given):
        given = (Combine(given) if hook == "aggregate" else Map(given),)
    if not isinstance(given, tuple) or not all(isinstance(operation, _KINDS) for operation in given):
        shown = ", ".join(kind.__name__ for kind in _KINDS)
        raise Misplaced(
            f"component {link}, hook {hook}: it gave {given!r:.80}; give a tuple of operations ({shown}), or a "
            "function, from which no guarantee follows; an empty tuple changes nothing"
        )
    return given
