"""The ledger's rules for recipes (`fedplug.rules`): one curve a mechanism, one account a level, noise with a price or a
note.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fedplug.api.known import Known
from fedplug.api.links import Link, Step
from fedplug.api.operations import Map, Noise
from fedplug.api.roles import AccountKeeper
from fedplug.recipe.check import Complaint, Rules
from fedplug.recipe.source import KeyPath

from fedplug_ledger.curves import Stated, curve_problems, curves_of, stated_in


def problems(rules: Rules) -> Iterator[Complaint]:
    """Complaints, each with its place."""
    yield from _curves(rules)
    yield from _levels(rules)


def notes(rules: Rules) -> list[str]:
    """Sentences on what is right and promises nothing."""
    chains = (rules.steps(zone) for zone in rules.foldable)
    return [*dict.fromkeys(message for steps in chains for _, message in unpriced(steps)), *_deltas(rules)]


def _curves(rules: Rules) -> Iterator[Complaint]:
    """Every mechanism that only a plugin knows has one cost, in the first round and the last."""
    stated: list[Stated] = []
    paths: dict[str, KeyPath] = {}
    for round in (0, rules.last):  # also where both are one: a curve must equal itself when it is stated again
        chains = [rules.steps(zone, round, anew=True) for zone in rules.foldable]
        now = stated_in(chains)
        steps = (step for chain in chains for step in chain)
        paths |= {who: step.link.path for (who, _), step in zip(now, steps, strict=True)}
        stated += now
    for who, message in dict(curve_problems(stated, curves_of(stated))).items():
        yield paths[who], message


def _levels(rules: Rules) -> Iterator[Complaint]:
    """One component at most keeps account of a level: nobody composes what two of them say."""
    kept: dict[str, str] = {}
    for use, part in rules.defined:
        if not isinstance(part, AccountKeeper):
            continue
        if (other := kept.setdefault(part.account.level, use.name)) != use.name:
            level = f"the level {part.account.level}, as {other} does"
            yield use.path, f"{use.name} keeps account of {level}; nobody adds the two up: leave one out"


_TELLING = 0.1
"""Chance of publishing one client's data that a delta should stay below."""


def _deltas(rules: Rules) -> list[str]:
    """Noise that is calibrated for another delta than the ledger's: its epsilon is not the one that is stated. And a
    delta that is too large for so few clients, though below one over their number.
    """
    if rules.recipe is None:
        return []
    stated, clients = rules.recipe.delta, rules.recipe.clients
    found = [
        f"{use.name} calibrates its noise for delta={delta:g}, but the ledger states epsilon at "
        f"delta={stated:g}; write delta: {delta:g} at the top of the recipe, or delta: {stated:g} in {use.name}"
        for use, _ in rules.defined
        if (delta := getattr(use.options, "delta", None)) not in (None, stated)
    ]
    if _TELLING <= stated * clients < 1:
        found.append(
            f"delta={stated:g} lets a protocol pass that publishes the data of one of the {clients} clients with a "
            f"chance of {stated * clients:.0%}; choose a smaller delta"
        )
    return found


def unpriced(steps: Iterable[Step]) -> Iterator[tuple[Link, str]]:
    """Links whose noise has no price, or takes that of noise before it away, each with a sentence."""
    for step in steps:
        for number, operation in enumerate(step.operations):
            before, behind = step.states[number : number + 2]
            if isinstance(operation, Noise) and operation.std != 0 and _is_unbounded(operation, before):
                yield step.link, (
                    f"nothing bounds the L{operation.order:g} norm of the {step.link.zone} values before the noise of "
                    f"{step.link.name}, so it has no price and gives no guarantee; put a clip of that norm before it"
                )
            elif isinstance(operation, Map) and len(behind.freed) > len(before.freed):
                yield step.link, (
                    f"{step.link.name} changes {step.link.zone} values behind the noise with the data in hand, so the "
                    "noise counts for nothing; give Post(function), which is handed values alone, or put it before "
                    "the noise"
                )


def _is_unbounded(noise: Noise, known: Known) -> bool:
    return (known.sensitivity(noise.order) if noise.trust == "central" else known.norm(noise.order)) is None
