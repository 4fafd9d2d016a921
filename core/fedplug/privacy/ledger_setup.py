"""The ledger of a run before its first round: what the recipe's links and components say of themselves."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fedplug.api.context import Server
from fedplug.api.folded import locked, released, seal_of
from fedplug.api.operations import Map, Misplaced, Party, WeightedSum
from fedplug.api.outer_roles import Accountant
from fedplug.api.role_records import Reveals
from fedplug.api.types import RETAINED
from fedplug.privacy.charging import believed
from fedplug.privacy.ledger import Ledger
from fedplug.privacy.ledger_record import EncryptionReport
from fedplug.recipe.curves import curve_problems, curves_of, stated_in
from fedplug.round.base import make_context

if TYPE_CHECKING:
    from fedplug.api.context import Context
    from fedplug.api.types import Layout
    from fedplug.recipe.composition import Composition
    from fedplug.recipe.recipe import Recipe


def ledger_of(recipe: Recipe, composition: Composition, layout: Layout) -> Ledger:
    """An empty ledger that knows who holds keys, who gets sums, and what is visible besides.

    Raises:
        Misplaced: a link cannot stand where it stands, or states a cost that another has under the same name.
    """
    ctx = make_context(recipe, composition, layout, 0, Server())
    ctx.party.ctx = ctx
    steps = {zone: ctx.steps(zone) for zone in composition.links}
    seals = {zone: closed for zone, chain in steps.items() if (closed := seal_of(chain)) is not None}
    seen = {link.zone for links in ctx.links.values() for link in links
            if link.hook == "postprocess" and link.site != "client"}  # fmt: skip
    stated = stated_in(steps.values())
    curves = curves_of(stated)
    for _, problem in curve_problems(stated, curves):
        raise Misplaced(problem)
    return Ledger(
        recipe_name=recipe.name,
        num_clients=recipe.data.clients,
        rounds=recipe.rounds,
        min_clients=recipe.min_clients,
        delta=recipe.delta,
        sampling=recipe.sampling,
        encryption={
            zone: EncryptionReport(
                seal.opened_by, zone in seen and not locked(steps[zone]), name, seal.scheme, seal.opens_with
            )
            for zone, (name, seal) in seals.items()
        },
        accountant=composition.part(recipe.accountant.name, Accountant) if recipe.accountant else None,
        keepers=composition.keepers,
        reveals=reveals_of(recipe, composition, ctx),
        curves=curves,
        presence=math.prod(section.presence for section in recipe.sections.values()),
    )


def reveals_of(recipe: Recipe, composition: Composition, ctx: Context) -> list[Reveals]:
    """What components and sections of the recipe say that they show, and what the protocol itself shows."""
    channels = [shown for component in composition.components.values() for shown in believed(component, ctx)]
    channels += _plans(composition, ctx)
    if composition.aggregator.wants.num_examples:
        note = (
            "each client's, sent once, in the clear; clients are told the largest, and see the total of a sum as its "
            "divisor where they open it; equal weights avoid it"
        )
        channels.append(Reveals("number of examples", ("aggregator", "client"), note=note))
    note = "training loss, accuracy counts, component logs and pictures, sent in the clear for the report"
    channels.append(Reveals("client metrics", ("aggregator",), note=note))
    channels += [*_divisors(composition, ctx), *_senders(composition, ctx), *_examples(composition, ctx)]
    channels += [shown for section in recipe.sections.values() for shown in section.reveals(recipe)]
    if recipe.buffers == "mean":
        note = "means and variances of activations, averaged in the clear; buffers: local keeps them at the client"
        everybody: tuple[Party, ...] = ("aggregator", "client", "released_model")
        # Images come back from them however much noise the update has (docs/edges/attacks.md).
        channels.append(Reveals("batch-norm statistics", everybody, voids=True, note=note))
    return channels


def _plans(composition: Composition, ctx: Context) -> list[Reveals]:
    """Plans that do not follow from public facts alone, where the component does not say who sees them.

    What a component says of replies says nothing about plans. One zone holds everything, so its plans say nothing. A
    plan that all clients share may be hidden from the server; positions of a client's own are sent to it.
    """
    negotiation = composition.negotiation
    plans = negotiation.plans
    if plans.public or len(plans.zones) < 2:
        return []
    named = {party for shown in negotiation.reveals(ctx) if not shown.asked for party in shown.to}
    if named & {"aggregator", "released_model"} or (named and not plans.own):
        return []
    note = (
        "which scalars each client put into which zone follows from data or from who takes part, and shows in "
        f"positions and sizes; {negotiation.name} does not say who sees it"
    )
    return [Reveals("plans of clients", ("aggregator", "client"), note=note)]


def _divisors(composition: Composition, ctx: Context) -> list[Reveals]:
    """What closed sums show beside their values where clients chose the positions: what each is divided by.

    Whoever opens such a sum, and whoever hands it on, gets the total weight of the clients behind each position. The
    aggregation server, which sees the masks themselves, divides the sums that it can read before it hands them on.
    """
    to: dict[Party, list[str]] = {}
    for zone in sorted(composition.negotiation.plans.own & ctx.links.keys()):
        steps = ctx.steps(zone)
        if seal := seal_of(steps):
            by_clients = seal[1].opened_by != "key_server"
            for party in ("client",) if by_clients else ("key_holder", "client") if locked(steps) else ("key_holder",):
                to.setdefault(party, []).append(zone)  # type: ignore[arg-type]
    if not to:
        return []
    zones = " and ".join(dict.fromkeys(zone for named in to.values() for zone in named))
    note = (
        f"the total weight of the clients behind each position of the {zones} sum: how many of them chose it, unless "
        "what the others sent there is counted too"
    )
    return [Reveals("divisors of positions", tuple(to), note=note)]


def _senders(composition: Composition, ctx: Context) -> list[Reveals]:
    """What noised means show beside their values where clients chose the positions: how many sent each.

    A sum on a public grid, divided by a number of clients, gives that number away to the bit. It is public where every
    sum is divided by all clients, or where clients cover what they keep and share all other positions.
    """
    plans = composition.negotiation.plans
    to: tuple[Party, ...] = ("key_holder", "client", "released_model")
    found = []
    for zone in sorted(plans.own & ctx.links.keys()) if not plans.public else ():
        steps = ctx.steps(zone)
        known = released(steps)
        adds = [one for step in steps for one in step.operations if isinstance(one, WeightedSum)]
        constant = all(one.divided_by == "all" and one.layers is None for one in adds) and bool(adds)
        covered = known is not None and known.covers_support and plans.own <= {zone, RETAINED}
        if known is None or not known.releases or constant or covered:
            continue
        note = (
            f"the {zone} mean is a sum on a public grid over the number of clients that sent each position: it gives "
            "that number away, which follows from data. Divide by all clients, or have all send the same positions"
        )
        found.append(Reveals("how many clients sent each position", to, voids=True, note=note))
    return found


def _examples(composition: Composition, ctx: Context) -> list[Reveals]:
    """What links take from single examples that no account of records covers."""
    note = "its function is handed the examples (Map(function, examples=True)), and the account covers training alone"
    everybody: tuple[Party, ...] = ("aggregator", "client", "released_model")
    takers = {
        step.link.name for zone in ctx.links for step in ctx.steps(zone) for one in step.operations
        if isinstance(one, Map) and one.examples
    } if composition.keepers else set()  # fmt: skip
    return [Reveals(f"what {name} takes from examples", everybody, voids=True, note=note) for name in sorted(takers)]
