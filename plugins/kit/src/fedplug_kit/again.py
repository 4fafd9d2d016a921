"""Checks that a component answers equal facts with equal operations, whatever ran before.

The hooks of facts run on a component that was built from its options, and are handed public facts alone. So what
differs follows from something else: a module's variable, a file, the clock, a generator of random numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fedplug.api.blocks import Layout
from fedplug.api.errors import FedplugError
from fedplug.api.links import ballots_of, fold
from fedplug.api.operations import Look, Post, Shift
from fedplug.recipe.composition import Composition
from fedplug.round.base import facts_of

from fedplug_kit.functions import awkward, public_of, within
from fedplug_kit.leaves import changed, leaves

if TYPE_CHECKING:
    from fedplug.api.facts import Facts, Snapshots
    from fedplug.api.links import Step
    from fedplug.round.protocol import Protocol

Answers = dict[str, Any]


def answers(protocol: Protocol, name: str, published: Snapshots) -> Answers:
    """What a component that is built anew answers in every round, number by number.

    Args:
        protocol: has the recipe and the layout.
        name: of the component.
        published: what components have published by then.
    """
    found: Answers = {}
    composition = Composition(protocol.recipe)
    for round in range(protocol.recipe.rounds):
        facts = facts_of(composition, protocol.layout, round, protocol.public, published)
        try:
            for step in steps_of(composition, facts, name):
                place = f"hook {step.link.hook}, zone {step.link.zone}, round {round + 1}:"
                found |= leaves(step.operations, place) | _given(step, facts, place)
            found |= leaves(ballots_of(name, facts), f"ballots of round {round + 1}:")
            if facts.plan is not None:
                found |= leaves(facts.plan.labels, f"plan of round {round + 1}")
        except FedplugError as error:  # it wants what is published only later
            found[f"round {round + 1}"] = str(error)
    return found


def steps_of(composition: Composition, facts: Facts, name: str) -> list[Step]:
    """Links of a component in the round of these facts."""
    steps = [step for zone in facts.links for step in facts.steps(zone)]
    return [step for step in (*steps, *fold(composition.retained, facts)) if step.link.name == name]


def _given(step: Step, facts: Facts, place: str) -> Answers:
    """What functions give that are handed values and public facts alone."""
    found: Answers = {}
    public = public_of(facts, step, facts.layout.size)
    values = within(awkward(facts.layout.size)["random values"], step.before)
    for number, operation in enumerate(step.operations):
        try:
            if isinstance(operation, Post):
                given = operation.function(values.copy(), public)
            elif isinstance(operation, Shift) and callable(operation.by):
                given = operation.by(public)
            else:
                continue
        except Exception:  # it needs what only a run has, where it has been checked
            continue
        found |= leaves(given, f"{place}[{number}] {type(operation).__name__} of the same values")
    return found


def again_problems(name: str, asked: dict[str, Answers]) -> Iterator[str]:
    """Checks that answers to equal facts are equal.

    Args:
        name: of the component.
        asked: by when it was asked, the first one first.
    """
    (_, first), *later = asked.items()
    for when, answer in later:
        if at := changed(first, answer):
            yield (
                f"component {name}: asked again with equal facts {when}, it answers differently, {at}; what it answers "
                "follows from its options and the facts alone, not from a module's variable, a file or the clock: have "
                "the server make it a fact with cohort.publish, and functions draw from public.stream"
            )
            return


def early_problems(protocol: Protocol, name: str) -> Iterator[str]:
    """Before a run, while no model is known, a link must give the same kinds of operations as it gives later."""
    composition = Composition(protocol.recipe)
    asked = (steps_of(composition, facts_of(composition, layout, 0), name) for layout in (Layout(()), protocol.layout))
    for early, later in zip(*asked, strict=True):
        if _kinds(early) != _kinds(later):
            yield (
                f"component {name}, hook {early.link.hook}: before a run, while no model is known, it gives "
                f"{_kinds(early)}, and in round 1 {_kinds(later)}; give the same operations before a run as during it"
            )


def _kinds(step: Step) -> str:
    kinds = [type(operation).__name__ for operation in step.operations if not isinstance(operation, Look)]
    return ", ".join(kinds) or "nothing"
