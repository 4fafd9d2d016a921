"""Rules for recipes that would fail in a run: the cohort, evaluation, references, scores, plans, what must be undone.

The entry point is of the group `fedplug.rules`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from fedplug.api.errors import FedplugError
from fedplug.api.operations import Clip, Noise, Seal
from fedplug.api.roles import (
    AccountKeeper,
    Closer,
    Groups,
    Negotiation,
    Protector,
    PublicPlan,
    Reads,
    Scorer,
    Trainer,
    stated_plan,
)
from fedplug.recipe.check import Complaint, Rules
from fedplug.recipe.composition import hook_problems
from fedplug.recipe.parts import Use

from fedplug_runs import fitting

_LONGEST = 100
"""Characters of a zone's name."""


def problems(rules: Rules) -> Iterator[Complaint]:
    """Complaints, each with its place."""
    yield from hooks(rules)
    yield from clients(rules)
    yield from evaluation(rules)
    yield from scores(rules)
    yield from public_plan(rules)
    yield from absent_clients(rules)
    yield from undone(rules)
    yield from masks(rules)
    yield from public_examples(rules)
    yield from long_names(rules)
    yield from fitting.problems(rules)


def notes(rules: Rules) -> list[str]:
    """What is right and may surprise."""
    return [*draws(rules), *thresholds(rules)]


def thresholds(rules: Rules) -> Iterator[str]:
    """A `min_clients` below what a seal takes to open: a round with so few ends the run instead of going on."""
    least = rules.draft.general.min_clients if rules.draft.general else math.inf
    seals = {
        step.link.name: operation for zone in rules.foldable for step in rules.steps(zone)
        for operation in step.operations if isinstance(operation, Seal)
    }  # fmt: skip
    for name, seal in seals.items():
        if least < seal.opens_with:
            yield (
                f"min_clients={least} is below the {seal.opens_with} clients that open a sum with {name}: a round of "
                f"fewer cannot be opened, and the run stops there; write min_clients: {seal.opens_with}, or lower "
                "threshold"
            )


def draws(rules: Rules) -> list[str]:
    """A draw that no guarantee needs, and that nobody can repeat."""
    sampling = rules.draft.general.sampling if rules.draft.general else None
    if sampling is None or sampling.source != "secure" or sampling.scheme == "cyclic" or sampling.rate == 1:
        return []
    if any(step.has(Noise) for zone in rules.foldable for step in rules.steps(zone)):
        return []  # where noise is on a sum, nobody may foresee who is in it
    said = "who takes part in a round does not follow from the seed: it is drawn from the system's randomness"
    return [f"sampling: {said}, so two runs differ. To repeat a run, write source: reproducible in sampling"]


def hooks(rules: Rules) -> Iterator[Complaint]:
    """A component that a place refers to implements what that section calls, too."""
    for use in rules.draft.uses:
        if use.is_reference and use.made_of is not None:
            for problem in hook_problems(use.made_of, use.group):
                lacks = problem.partition(";")[0]
                remedy = f"name a component of the group {use.group}"
                yield use.path, f"{use.name} ({use.use}) cannot be under {use.section}: it {lacks}; {remedy}"


def clients(rules: Rules) -> Iterator[Complaint]:
    """The cohort is never smaller than `min_clients` by design."""
    general, clients = rules.draft.general, rules.num_clients
    if general is None or clients is None:
        return
    if general.min_clients > clients:
        rule = f"must be <= data.clients={clients}"
        yield ("min_clients",), f"min_clients={general.min_clients} {rule}; lower it, or split the data among more"
    elif (
        general.sampling and (general.sampling.resting == "away" or rules.bare_uploads())
        and general.sampling.rate * clients < general.min_clients
    ):  # fmt: skip
        expected = f"{general.sampling.rate * clients:g} of {clients} clients a round"
        yield (
            ("sampling", "rate"),
            f"rate={general.sampling.rate:g} gives {expected}, fewer than min_clients={general.min_clients}; "
            f"raise it to {general.min_clients / clients:g} or more",
        )
    chosen = rules.negotiation()
    if general.sampling and general.sampling.resting == "noise" and chosen and not rules.plans_are_public():
        rule = "plans follow from data, and clients with noise alone have none"
        problem = f"resting=noise: {chosen[0].name}'s {rule}; write negotiate_mask: std.single_zone"
        yield ("sampling", "resting"), problem


def evaluation(rules: Rules) -> Iterator[Complaint]:
    """Clusters of clients that there are, and a trainer for fine-tuning that leaves training as it is."""
    clusters = rules.draft.general.clusters if rules.draft.general else {}
    for name, ids in clusters.items():
        beyond = [client_id for client_id in ids if rules.num_clients is not None and client_id >= rules.num_clients]
        if beyond or not ids:
            there = f"client {beyond[0]}" if beyond else "no client"
            yield ("clusters", name), f"cluster {name} has {there}; name some of the recipe's clients, from 0"
    use = rules.draft.known.get("fine_tune")
    part = rules.parts.get(use.name) if use else None
    if use is None or not isinstance(part, Trainer):
        return
    if use.is_reference:
        yield use.path, f"{use.use} would share what it remembers with train; write fine_tune: {{use: {use.use}}}"
    elif isinstance(part, AccountKeeper):
        yield use.path, f"{use.use} keeps an account, and a fine-tuned model never travels; choose std.sgd, say"
    elif type(part).personalise is not Trainer.personalise:
        yield use.path, f"{use.use} keeps models of the clients' own; choose a trainer such as std.sgd"


def scores(rules: Rules) -> Iterator[Complaint]:
    """Each reader of scores gets some, one a layer or a scalar as it needs."""
    found = ((use.name, part) for use, part in rules.placed if use.section == "score_parameters")
    scorers = {name: part for name, part in found if isinstance(part, Scorer)}
    for use, part in rules.defined:
        if not isinstance(part, Groups | Negotiation | Protector):
            continue
        reads: Reads | None = part.reads
        if reads is None or reads.per == "any":
            continue
        name = reads.by or next(iter(scorers), None)
        if name not in scorers or scorers[name].scoring.per == reads.per:
            continue
        fitting = [other for other, scorer in scorers.items() if scorer.scoring.per == reads.per]
        remedy = f"write by: {fitting[0]}" if fitting else f"add a scorer of {reads.per}s"
        other = "scalar" if reads.per == "layer" else "layer"
        message = f"{use.name} needs a score for each {reads.per}, but {name} scores {other}s"
        yield use.path, f"{message}; {remedy}"


def public_examples(rules: Rules) -> Iterator[Complaint]:
    """What everybody has is not what the clients have."""
    public, data = rules.draft.known.get("public"), rules.draft.known.get("data")
    if public and data and public.use == data.use and _source(public) == _source(data):
        remedy = "name another data set, or set examples aside: data: {public: 32, ...}"
        yield public.path, f"public: {public.use} is the data of the clients, which nobody else has; {remedy}"


_CHOOSES = ("file", "path", "dataset", "train_split", "part", "seed")


def _source(use: Use) -> Any:
    """What the examples of a data set are read from, where its options say that; else all of them. Scales, and names of
    classes, make other values of the same people.
    """
    said = {name: getattr(use.options, name, None) for name in _CHOOSES}
    return said if said["file"] or said["path"] else use.options


def long_names(rules: Rules) -> Iterator[Complaint]:
    """Names that files and pages can hold."""
    for section, zones in (("protect", rules.protect), ("postprocess", rules.postprocess)):
        for zone in zones:
            if len(zone) > _LONGEST:
                yield (section, zone), f"zone {zone[:20]}... has {len(zone)} characters, and {_LONGEST} at most fit"


def public_plan(rules: Rules) -> Iterator[Complaint]:
    """Plans that everybody works out are some, in the first round and the last."""
    use, part = rules.negotiation() or (None, None)
    if use is None or not isinstance(part, PublicPlan) or not part.plans.zones <= set(rules.zone_names):
        return
    for round in dict.fromkeys((0, rules.last)):
        facts = rules.context(round)
        try:
            if stated_plan(part, facts) not in facts.zones:  # numpy, which takes a while, builds the others
                part.planned(facts)
        except FedplugError as error:
            yield use.path, str(error)
            return


def absent_clients(rules: Rules) -> Iterator[Complaint]:
    """Operations name clients that there are."""
    if rules.num_clients is None:
        return
    told = set()
    for step in (step for zone in rules.foldable for round in (0, rules.last) for step in rules.steps(zone, round)):
        for operation in step.operations:
            named = operation.clients if isinstance(operation, Clip | Noise) else frozenset[int]()
            beyond = [client for client in sorted(named) if client >= rules.num_clients]
            if beyond and step.link.path not in told:
                told.add(step.link.path)
                there = f"the recipe has clients 0 to {rules.num_clients - 1}"
                what = f"{type(operation).__name__} names client {beyond[0]}"
                where = f"component {step.link.name}, hook {step.link.hook}"
                yield step.link.path, f"{where}: {what}, and {there}; leave it out, or name one of those"


def undone(rules: Rules) -> Iterator[Complaint]:
    """What closes a zone is undone by the same zone's postprocess."""

    def closers(chain: Iterable[Use]) -> list[Use]:
        return [use for use in chain if isinstance(rules.parts.get(use.name), Closer)]

    for zone in rules.readable:
        closed = [use.name for use in closers(rules.protect[zone])]
        if not closed and zone in rules.foldable:
            continue  # the order of links is wrong where they open what nothing has closed
        opening = rules.postprocess.get(zone, [])
        opened = closers(opening)
        strangers = [use for use in opened if use.name not in closed]
        for use in strangers:
            named = next((own.name for own in rules.protect[zone] if own.use == use.use), "")
            hint = f"refer to that of this zone by its name, {named}" if named else "remove it"
            yield use.path, f"{use.name} does not protect the zone {zone}, so it cannot open it; {hint}"
        missing = [name for name in closed if name not in {use.name for use in opened}]
        if missing and not strangers:
            at = ("postprocess", zone) if opening else ("protect", zone)
            remedy = f"write postprocess: {{{zone}: [{', '.join(closed)}]}}"
            yield at, f"{missing[0]} protects the zone {zone}, but nothing opens the sum; {remedy}"


def masks(rules: Rules) -> Iterator[Complaint]:
    """Encryptions that need a zone to lie alike at all clients are only where it does."""
    use, part = rules.negotiation() or (None, None)
    if use is None or part is None:
        return
    for zone in (zone for zone in rules.foldable if zone in part.plans.own):
        for step in rules.steps(zone):
            seals = [one for one in step.operations if isinstance(one, Seal)]
            if step.link.hook == "protect" and any(not seal.position_block for seal in seals):
                message = f"{step.link.name} needs a zone that lies alike at all clients, but {use.name} lets"
                remedy = "choose another negotiation or protector"
                yield step.link.path, f"{message} each have a different zone {zone}; {remedy}"
