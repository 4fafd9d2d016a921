"""Rules for recipes that would fail in a run: the cohort, evaluation, references, scores (`fedplug.rules`)."""

from __future__ import annotations

from collections.abc import Iterator

from fedplug.api.roles import (
    AccountKeeper,
    Groups,
    Negotiation,
    Protector,
    Reads,
    Scorer,
    Trainer,
)
from fedplug.recipe.check import Complaint, Rules
from fedplug.recipe.composition import hook_problems


def problems(rules: Rules) -> Iterator[Complaint]:
    """Complaints, each with its place."""
    yield from hooks(rules)
    yield from clients(rules)
    yield from evaluation(rules)
    yield from scores(rules)


def notes(rules: Rules) -> list[str]:
    """Nothing."""
    return []


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
