"""The one list of links: what a zone's values pass, in order, with the party at which each link runs, and what it does.

The protocol executes this list; the check, the ledger, the plan of a run and the views of attacks read the same list,
with the same folded effects. Nobody else works out who comes after whom.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from fedplug.api.base import Component
from fedplug.api.effects import (
    Adds,
    CoversSupport,
    Effects,
    Known,
    Misplaced,
    Noise,
    Opens,
    Scramble,
    Seal,
    Uncredited,
    as_effects,
)
from fedplug.api.errors import FedplugError, PluginError, cause_of
from fedplug.api.role_records import Site
from fedplug.api.roles import Aggregator, Opener, Protector
from fedplug.api.types import RETAINED

if TYPE_CHECKING:
    from fedplug.api.context import Context
    from fedplug.recipe.parts import Sampling, Use
    from fedplug.recipe.recipe import Recipe

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
                found = component.effects(known, ctx)
            elif self.hook == "aggregate":
                found = component.sums(known, ctx)
            else:
                found = component.opens(known, ctx)
        except FedplugError:
            raise
        except Exception as error:
            raise PluginError(
                f"component {self.name}: its effects as a link of {self.hook} fail: {cause_of(error)}"
            ) from error
        return None if found is None else as_effects(found, self.name)


@dataclasses.dataclass(frozen=True, eq=False)
class Step:
    """A link with what is known before it, what it states, and what is known behind it."""

    link: Link
    before: Known
    effects: Effects | None
    after: Known


Chains = Mapping[str, tuple[Link, ...]]


def chains(recipe: Recipe, components: Mapping[str, Component]) -> dict[str, tuple[Link, ...]]:
    """The links of every zone that is sent, in the order in which its values pass them."""
    return {
        zone: chain(zone, recipe.protect[zone], recipe.aggregate, recipe.postprocess.get(zone, ()), components)
        for zone in recipe.zones
        if zone in recipe.protect and zone != RETAINED
    }


def chain(
    zone: str,
    protect: Iterable[Use],
    aggregate: Use | None,
    postprocess: Iterable[Use],
    components: Mapping[str, Component],
) -> tuple[Link, ...]:
    """The links of one zone; components that are missing, or of another role, are left out (a check says so)."""
    found = [
        Link(zone, "protect", use.name, part, "client", use.path)
        for use in protect
        if isinstance(part := components.get(use.name), Protector)
    ]
    if aggregate is not None and isinstance(part := components.get(aggregate.name), Aggregator):
        found.append(Link(zone, "aggregate", aggregate.name, part, "server", aggregate.path))
    found += [
        Link(zone, "postprocess", use.name, opener, opener.site, use.path)
        for use in postprocess
        if isinstance(opener := components.get(use.name), Opener)
    ]
    return tuple(found)


def fold(
    links: Iterable[Link], ctx: Context, misplaced: Callable[[Link, str], None] | None = None
) -> tuple[Step, ...]:
    """What is known before and behind each link of a zone.

    Args:
        links: of one zone, in order.
        ctx: of the round; before a run its layout may be empty.
        misplaced: told of links that cannot stand where they stand, which then count as if they changed nothing. None:
            the first one raises.

    Raises:
        Misplaced: a link cannot stand where it stands.
    """
    steps: list[Step] = []
    known: Known | None = None
    for link in links:
        known = known or Known(zone=link.zone, layers=tuple(_layer_sizes(ctx)))
        known = dataclasses.replace(known, link=link.name)
        effects: Effects | None
        try:
            effects = link.effects(known, ctx)
            _check_site(link, known, effects or ())
            after = known.voided(at_client=link.hook == "protect") if effects is None else known.after(effects)
        except FedplugError as error:
            if misplaced is None:
                raise
            misplaced(link, str(error))
            effects, after = (), known
        if link.hook == "aggregate":
            if effects is not None and Adds() not in effects:
                no_sum = f"{link.name} does not add the uploads up, so others' noise earns no credit"
                after = after.after((Uncredited(no_sum),))
            after = dataclasses.replace(after, summed=True)
        steps.append(Step(link, known, effects, after))
        known = after
    return tuple(steps)


def _check_site(link: Link, known: Known, effects: Effects) -> None:
    """Compares who a link says hides or opens something with the party at which it runs.

    Raises:
        Misplaced: noise at a client that counts as noise on the sum, or the other way round; noise on what clients have
            opened; a sum opened by those who do not hold its key.
    """
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


def _layer_sizes(ctx: Context) -> list[int]:
    slices = ctx.layout.layer_slices().values()
    return [sum(part.stop - part.start for part in parts) for parts in slices]


def misplaced_links(links: tuple[Link, ...], ctx: Context) -> list[tuple[Link, str]]:
    """Every link that cannot run, or cannot stand, where it stands, with a sentence; folded without stopping."""
    found: list[tuple[Link, str]] = []
    steps = fold(links, ctx, lambda link, message: found.append((link, message)))
    refused = {link for link, _ in found}  # what those would do to closed values is no second complaint
    at_clients: Link | None = None
    for step in steps:
        link = step.link
        if link.hook == "postprocess":
            if at_clients is not None and link.site != "client":
                where = {"server": "the aggregation server", "key_server": "the key server"}[link.site]
                found.append((
                    link,
                    f"{link.name} runs at {where}, but {at_clients.name} before it runs at the clients, behind which "
                    f"nothing reaches {where}: it would never run; put it before {at_clients.name}, or have "
                    "the sum opened at the key server (key_holder: key_server)",
                ))
            at_clients = at_clients or (link if link.site == "client" else None)
            closed = step.before.sealed[-1] if step.before.sealed else None
            works = step.effects is not None and Opens() not in step.effects and link not in refused
            if works and isinstance(closed, Seal | Scramble):
                found.append((
                    link,
                    f"{link.name} cannot work on the {link.zone} sum, which {step.before.sealers[-1]} has closed; open "
                    f"it first: put {step.before.sealers[-1]} before {link.name} under postprocess",
                ))
    # A link that is misplaced counts as if it did nothing, so what is missing behind others is no news then.
    return found or list(_unfinished_uploads(steps))


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
            # Scrambled words are no ciphertexts that stay closed to the server, so they do not count.
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


def locked(steps: Iterable[Step]) -> bool:
    """Whether the key server tells the opened sum to the clients alone; the server then relays what it cannot read."""
    return any(
        isinstance(closed := step.before.sealed[-1], Seal) and closed.answers == "clients"
        for step in steps
        if step.link.site == "key_server" and Opens() in (step.effects or ()) and step.before.sealed
    )


def seal_of(steps: Iterable[Step]) -> tuple[str, Seal] | None:
    """The encryption of a zone's uploads, with the name of the component; None where they are not encrypted."""
    for step in steps:
        for effect in step.effects or ():
            if step.link.hook == "protect" and isinstance(effect, Seal):
                return step.link.name, effect
    return None


def closers(steps: Iterable[Step]) -> list[str]:
    """Names of the components whose seal or scramble lies on a zone's uploads, the outermost last."""
    return [
        step.link.name
        for step in steps
        if step.link.hook == "protect" and any(isinstance(effect, Seal | Scramble) for effect in step.effects or ())
    ]


def uploaded(steps: Iterable[Step]) -> Known | None:
    """What is known of a zone as the server receives it; None where the zone has no link at all."""
    found = None
    for step in steps:
        if step.link.hook == "protect":
            found = step.after
        elif found is None:
            found = step.before
    return found


def stated_bounds(steps: Iterable[Step]) -> bytes:
    """A fingerprint of the bounds and the noise that a zone's uploads are promised to have.

    Statements may follow from what a party keeps. A client that goes by others than the server would not have the
    privacy that the ledger claims for it.
    """
    known = uploaded(steps)
    assert known is not None  # a zone that is sent has an aggregator
    stated: list[Any] = [[clip.link, clip.bound.norm, clip.bound.order, clip.factor] for clip in known.clips]
    for release, scale in zip(known.releases, known.scales, strict=True):
        # Scales that follow from scores, or that differ between clients, are not known to all.
        same = [] if release.scored or scale is None else [scale, release.noise_multiplier]
        stated.append([release.link, release.clipping_norm, *same])
    return hashlib.blake2b(repr(_rounded(stated)).encode(), digest_size=8).digest()


def _rounded(found: Any) -> Any:
    """With numbers as text of nine digits: those of other types, or of another machine, may differ in the last bits."""
    if isinstance(found, list | tuple):
        return [_rounded(one) for one in found]
    return found if isinstance(found, str) else f"{float(found):.9g}"


def released(steps: Iterable[Step]) -> Known | None:
    """What is known of a zone's sum as clients adopt it."""
    found = None
    for step in steps:
        found = step.after
    return found


def amplified(sampling: Sampling | None, ctx: Context) -> set[str]:
    """The zones whose noise is added to the sum of a Poisson sample, which hides who takes part."""
    if sampling is None or sampling.scheme != "poisson":
        return set()
    behind = {zone: released(ctx.steps(zone)) for zone in ctx.links}
    return {zone for zone, known in behind.items() if known and any(r.trust == "central" for r in known.releases)}
