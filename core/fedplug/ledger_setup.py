"""The ledger of a run before its first round: what the recipe's links and components say of themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedplug.context import Server
from fedplug.effects import Noise, Reveals
from fedplug.ledger import Ledger
from fedplug.links import locked, seal_of
from fedplug.parties import make_context
from fedplug.roles import Accountant, RecordTrainer

if TYPE_CHECKING:
    from fedplug.composition import Composition
    from fedplug.context import Context
    from fedplug.recipe import Recipe
    from fedplug.types import Layout


def ledger_of(recipe: Recipe, composition: Composition, layout: Layout) -> Ledger:
    """An empty ledger that knows who holds keys, who is told sums, and what is visible besides.

    Raises:
        Misplaced: a link cannot stand where it stands.
    """
    ctx = make_context(recipe, composition, layout, 0, Server())
    ctx.party.ctx = ctx
    steps = {zone: ctx.steps(zone) for zone in composition.links}
    seals = {zone: found for zone, chain in steps.items() if (found := seal_of(chain)) is not None}
    sites = {zone: {link.site for link in links if link.hook == "postprocess"} for zone, links in ctx.links.items()}
    trainer = composition.trainer
    return Ledger(
        recipe_name=recipe.name,
        num_clients=recipe.data.clients,
        rounds=recipe.rounds,
        min_clients=recipe.min_clients,
        delta=recipe.delta,
        sampling=recipe.sampling.model_dump() if recipe.sampling else {"scheme": "all"},
        key_holders={zone: seal.opened_by for zone, (_, seal) in seals.items()},
        schemes={zone: {"component": name, "parameters": seal.scheme} for zone, (name, seal) in seals.items()},
        published=[zone for zone in seals if {"server", "key_server"} & sites[zone] and not locked(steps[zone])],
        accountant=composition.part(recipe.accountant.name, Accountant) if recipe.accountant else None,
        record_accountant=trainer if isinstance(trainer, RecordTrainer) else None,
        reveals=reveals_of(recipe, composition, ctx),
        curves={
            effect.mechanism: effect.curve
            for chain in steps.values()
            for step in chain
            for effect in step.effects or ()
            if isinstance(effect, Noise) and effect.curve is not None
        },
    )


def reveals_of(recipe: Recipe, composition: Composition, ctx: Context) -> list[Reveals]:
    """What the components say that they show, and what the protocol itself shows."""
    found = [shown for component in composition.components.values() for shown in component.reveals(ctx)]
    note = "training loss, accuracy counts, component logs and pictures, sent in the clear for the report"
    found.append(Reveals("client metrics", ("aggregator",), note=note))
    if own := sorted(composition.negotiation.plans.own & ctx.links.keys()):
        # Positions are summed one by one, and so is what each sum is divided by, closed or not.
        note = (
            f"each position of the {' and '.join(own)} sums comes with the total weight of the clients that sent it "
            "there, which says how many of them chose it"
        )
        sealed = any(seal_of(ctx.steps(zone)) for zone in own)
        found.append(Reveals("divisors of positions", ("client", "key_holder") if sealed else ("client",), note=note))
    if recipe.profiles:
        note = "how many examples it trains on, how many values it encrypts, and how long that took, in every round"
        found.append(Reveals("operation counts of each client", ("aggregator",), note=note))
    if recipe.buffers == "mean":
        note = "means and variances of activations, averaged in the clear; buffers: local keeps them at the client"
        found.append(Reveals("batch-norm statistics", ("aggregator", "client"), note=note))
    return found
