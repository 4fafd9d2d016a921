"""The one list of links: what a zone's values pass, in order, with the party at which each link runs, and what it does.

The protocol executes this list; the check, the ledger, the plan of a run and the views of attacks read the same list,
with the same folded effects. Nobody else works out who comes after whom.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from fedplug.api.effects import (
    Adds,
    Changes,
    CoversSupport,
    Effects,
    Misplaced,
    Noise,
    Opens,
    Rounding,
    Scales,
    Scramble,
    Seal,
    Uncredited,
    as_effects,
)
from fedplug.api.errors import FedplugError, PluginError, cause_of
from fedplug.api.folded import uploaded
from fedplug.api.known import Known
from fedplug.api.role_records import Site

if TYPE_CHECKING:
    from fedplug.api.context import Context

Hook = Literal["protect", "aggregate", "postprocess"]


@dataclasses.dataclass(frozen=True, eq=False)
class Link:
    """One step of a zone's chain.

    Attributes:
        zone: the zone.
        hook: which hook of the component it calls.
        name: of the component.
        component: the instance.
        site: the party at which it runs.
        path: where in the recipe it stands.
    """

    zone: str
    hook: Hook
    name: str
    component: Any
    site: Site
    path: tuple[str | int, ...] = ()

    def effects(self, known: Known, ctx: Context) -> Effects | None:
        """What the component states of this link; None where it states nothing.

        Raises:
            Misplaced: it cannot stand here.
            PluginError: what it states fails by itself.
        """
        component = self.component
        try:
            if self.hook == "protect":
                stated = component.effects(known, ctx)
            elif self.hook == "aggregate":
                stated = component.sums(known, ctx)
            else:
                stated = component.opens(known, ctx)
        except FedplugError:
            raise
        except Exception as error:
            raise PluginError(
                f"component {self.name}: its effects as a link of {self.hook} fail: {cause_of(error)}"
            ) from error
        return None if stated is None else as_effects(stated, self.name)


@dataclasses.dataclass(frozen=True, eq=False)
class Step:
    """A link with what is known before it, what it states, and what is known behind it."""

    link: Link
    before: Known
    effects: Effects | None
    after: Known


def fold(
    links: Iterable[Link], ctx: Context, misplaced: Callable[[Link, str], None] | None = None
) -> tuple[Step, ...]:
    """What is known before and behind each link of a zone.

    Args:
        links: of one zone, in order.
        ctx: of the round; before a run its layout may be empty.
        misplaced: called with links that cannot stand where they stand, which then count as if they changed nothing.
            None: the first one raises.

    Raises:
        Misplaced: a link cannot stand where it stands.
    """
    steps: list[Step] = []
    known: Known | None = None
    for link in links:
        known = known or Known(zone=link.zone, layers=ctx.layout.layer_sizes)
        known = dataclasses.replace(known, link=link.name)
        effects: Effects | None
        try:
            effects = link.effects(known, ctx)
            _check_site(link, known, effects or ())
            after = known.voided(at_client=link.site == "client") if effects is None else known.after(effects)
            if effects is not None and link.hook == "aggregate":
                no_sum = _no_sum(link, effects)
                loose = any(isinstance(effect, Changes) for effect in (*effects, *no_sum))
                after = dataclasses.replace(after.after(no_sum), loose=loose)
        except FedplugError as error:
            if misplaced is None:
                raise
            misplaced(link, str(error))
            effects, after = (), known
        if link.hook == "aggregate":
            after = dataclasses.replace(after, summed=True)
        steps.append(Step(link, known, effects, after))
        known = after
    return tuple(steps)


def _no_sum(link: Link, effects: Effects) -> Effects:
    """What follows where an aggregator does not give the sum of the uploads as they came, or of their multiples.

    Then one client's data may move it by more than the client's own values are long.
    """
    why = ""
    if not any(isinstance(effect, Adds) for effect in effects):
        why = f"{link.name} does not add the uploads up"
    elif any(isinstance(effect, Changes) and effect.norms == "kept" for effect in _of_uploads(effects)):
        why = f"{link.name} changes uploads before it adds them up"
    if not why:
        return ()
    return Uncredited(f"{why}, so others' noise earns no credit"), Changes(why=f"{why}; add the noise at the clients")


def _of_uploads(effects: Effects) -> Effects:
    """What an aggregator states of single uploads, before it adds them up."""
    return tuple(itertools.takewhile(lambda effect: not isinstance(effect, Adds), effects))


def _check_site(link: Link, known: Known, effects: Effects) -> None:
    """Compares what a link says that it does, and who hides or opens something, with its hook and with where it runs.

    Raises:
        Misplaced: an aggregator bounds single uploads, or adds noise to them; noise at a client that counts as noise on
            the sum, or the other way round; noise on what clients have opened; a sum opened by those who do not hold
            its key.
    """
    for effect in _of_uploads(effects) if link.hook == "aggregate" else ():
        if not isinstance(effect, Scales | Rounding | Uncredited | Changes):
            raise Misplaced(
                f"{link.name} states {type(effect).__name__} of single uploads, which nothing compares; state it "
                "behind Adds(), of the sum, or have a link of protect do it"
            )
    for effect in effects:
        if isinstance(effect, Noise):
            if link.hook == "postprocess" and link.site == "client":
                raise Misplaced(
                    f"{link.name} adds noise at the clients to the {link.zone} sum, which they have in hand without "
                    "it; add noise before the upload (protect), or where the sum is opened (key_holder: key_server)"
                )
            rule = ("local", "distributed") if link.hook == "protect" else ("central",)
            if effect.trust not in rule:
                where = "at the client, before the upload" if link.hook == "protect" else "to the sum, at a server"
                raise Misplaced(
                    f"{link.name} adds noise {where}, and states trust={effect.trust!r}; that is "
                    f"{' or '.join(map(repr, rule))} noise"
                )
        closed = known.sealed[-1] if known.sealed else None
        if isinstance(effect, Opens) and isinstance(closed, Seal) and link.site != _SITES[closed.opened_by]:
            raise Misplaced(
                f"{link.name} opens the {link.zone} sum at site={link.site!r}, but {known.sealers[-1]} states that "
                f"{closed.opened_by} open it, which is site={_SITES[closed.opened_by]!r}"
            )


_SITES = {"clients": "client", "key_server": "key_server", "shares": "server"}
"""Where those run who can open a seal; shares meet at the aggregation server."""


def misplaced_links(links: tuple[Link, ...], ctx: Context) -> list[tuple[Link, str]]:
    """Every link that cannot run, or cannot stand, where it stands, with a sentence; folded without stopping."""
    problems: list[tuple[Link, str]] = []
    steps = fold(links, ctx, lambda link, message: problems.append((link, message)))
    refused = {link for link, _ in problems}  # what those would do to closed values is not a second complaint
    at_clients: Link | None = None
    for step in steps:
        link = step.link
        if link.hook == "postprocess":
            if at_clients is not None and link.site != "client":
                where = {"server": "the aggregation server", "key_server": "the key server"}[link.site]
                problems.append((
                    link,
                    f"{link.name} runs at {where}, but {at_clients.name} before it runs at the clients, behind which "
                    f"nothing reaches {where}: it would never run; put it before {at_clients.name}, or have "
                    "the sum opened at the key server (key_holder: key_server)",
                ))
            at_clients = at_clients or (link if link.site == "client" else None)
            closed = step.before.sealed[-1] if step.before.sealed else None
            works = step.effects is not None and Opens() not in step.effects and link not in refused
            if works and isinstance(closed, Seal | Scramble):
                problems.append((
                    link,
                    f"{link.name} cannot work on the {link.zone} sum, which {step.before.sealers[-1]} has closed; open "
                    f"it first: put {step.before.sealers[-1]} before {link.name} under postprocess",
                ))
    # A link that is misplaced counts as if it did nothing, so what is missing behind others is not reported again.
    return problems or list(_unfinished_uploads(steps))


def _unfinished_uploads(steps: Sequence[Step]) -> Iterator[tuple[Link, str]]:
    """Links whose promise takes another link behind them, which they cannot see themselves, and which is not there."""
    known = uploaded(steps)
    if known is None:
        return
    for step in steps:
        link, zone = step.link, step.link.zone
        for effect in (step.effects or ()) if link.hook == "protect" else ():
            if isinstance(effect, CoversSupport) and not _noise_everywhere(known):
                yield link, (
                    f"zone {zone} gets no noise, so the zeros would show what a client retains; put noise after "
                    f"{link.name}, for instance {{use: std.gaussian, epsilon: 8, delta: 1.0e-5}}"
                )
            # Scrambled words are not ciphertexts that stay closed to the server, so they do not count.
            sealed = any(isinstance(closed, Seal) for closed in known.sealed)
            if isinstance(effect, Noise) and effect.trust == "distributed" and not sealed:
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
