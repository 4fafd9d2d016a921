"""What the owner of a site reads before the party joins: what this recipe has it send, to whom, and what that costs.

The costs are those that the ledger of a whole run would state, at the most that is possible before anything is agreed
on: every client in every round, zones as large as the model, no credit for sampling or for the noise of others.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping

from fedplug.api.blocks import RETAINED, Layout
from fedplug.api.component import site_of
from fedplug.api.links import locked, seal_of
from fedplug.api.parties import Client, Server
from fedplug.privacy.charging import Charging, ledger_of
from fedplug.privacy.ledger import Ledger
from fedplug.privacy.views import level_epsilons
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe, plan_of
from fedplug.round.base import make_context
from fedplug.round.parties import HostedClient
from fedplug.round.set_up import stated_accounts
from fedplug.round.steps import Steps


def planned(
    recipe: Recipe, composition: Composition, layout: Layout, client: Client | None = None, repeats: int = 0
) -> Ledger:
    """The ledger as it would stand after the whole run, and some of its rounds run again.

    Args:
        recipe, composition: this party's own.
        layout: of the model.
        client: whose accounts of other levels count; None: they are not known.
        repeats: how often the costliest round counts once more; the server chooses which rounds it has run again.
    """
    accounts = stated_accounts(composition, client) if client is not None else {}

    def charged(rounds: Iterable[int]) -> Ledger:
        return _charged(recipe, composition, layout, accounts, rounds)

    again = _costliest(charged, recipe.rounds) * repeats if repeats else []
    return charged([*range(recipe.rounds), *again])


def _costliest(charged: Callable[[Iterable[int]], Ledger], rounds: int) -> list[int]:
    """The round that alone costs most: for each figure the first such, so more than one where they do not agree."""
    alone, seen = dict[int, dict[str, float]](), set[str]()
    for round in range(rounds):
        ledger = charged([round])
        kind = repr([dataclasses.replace(entry, round=0) for entry in ledger.log])
        if kind not in seen:  # mostly all rounds are alike
            seen.add(kind)
            alone[round] = _figures(ledger)
    names = set[str]().union(*alone.values())
    costs = [[figures.get(name, 0.0) for figures in alone.values()] for name in names]
    return sorted({[*alone][cost.index(max(cost))] for cost in costs if max(cost) > min(cost)}) or [0]


def _figures(ledger: Ledger) -> dict[str, float]:
    """Epsilon toward each adversary to whom something is promised, and at each level."""
    toward = {name: view.epsilon for name, view in ledger.report().views.items() if view.epsilon is not None}
    return toward | level_epsilons(ledger)


def _charged(
    recipe: Recipe, composition: Composition, layout: Layout, accounts: Mapping[str, list[list[float]]],
    rounds: Iterable[int],
) -> Ledger:  # fmt: skip
    """A ledger in which these rounds stand, in each of which every client took part."""
    ledger = ledger_of(recipe, composition, layout)
    server = Server()
    server.ctx = make_context(recipe, composition, layout, 0, server)
    charging = Charging(recipe, composition, server, ledger, layout.size)
    clients = list(range(recipe.data.clients))
    for round in rounds:
        charging.charge_ballots(round, clients)
        each = {level: dict.fromkeys(clients, told[round]) for level, told in accounts.items()}
        charging.enter(ledger, round, clients, dict.fromkeys(recipe.protect, float(layout.size)), accounts=each)
    return ledger


def agreement(
    recipe: Recipe, composition: Composition, layout: Layout, client: HostedClient | None, repeats: int
) -> str:
    """The text, for a client; of the key server, which sends no data, what it opens.

    Args:
        recipe, composition: this party's own.
        layout: of the model.
        client: this party; None for the key server.
        repeats: how many answers in rounds that were answered before the site allows.
    """
    ledger = planned(recipe, composition, layout, client)
    lines = [f"Recipe {recipe.name} ({recipe.digest[:12]}): {recipe.rounds} rounds, {recipe.data.clients} clients."]
    lines += ["", "What runs:"]
    lines += [f"  {hook}  {name}  {text}".rstrip() for hook, name, text in plan_of(recipe, composition)]
    lines += [
        "",
        "What leaves this site:" if client is not None else "What the key server does with the clients' sums:",
    ]
    lines += [f"  {line}" for line in _sent(recipe, composition, layout, client)]
    what = "this client" if client is not None else "the key server"
    lines += ["", f"What the server can ask {what} to do, and nothing else; each is in code that is installed here:"]
    lines += [f"  {line}" for line in _calls(recipe, composition, "client" if client is not None else "key_server")]
    lines += ["", "What is seen besides:"]
    lines += [
        f"  {shown.what}: by {_listed(shown.to)}; {shown.note or shown.covered_by or 'not covered'}"
        for shown in ledger.reveals
    ]
    lines += ["", "What that guarantees a client after all rounds, at the most that each zone can hold:"]
    lines += [f"  {line}" for line in _guarantees(ledger)]
    if repeats and client is not None:
        again = planned(recipe, composition, layout, client, repeats)
        lines += ["", f"And if rounds are repeated as often as --repeats {repeats} allows, each time the costliest:"]
        lines += [f"  {line}" for line in _guarantees(again)]
    lines += ["", f"Never covered: {'; '.join(ledger.report().never_covered)}."]
    return "\n".join(lines)


def _sent(recipe: Recipe, composition: Composition, layout: Layout, client: HostedClient | None) -> Iterator[str]:
    """A line for each thing that this party sends, in the order in which it is asked for."""
    server = Server()
    ctx = make_context(recipe, composition, layout, 0, server)
    server.ctx = ctx
    steps = {zone: ctx.steps(zone) for zone in recipe.protect}
    if client is None:
        opened = [zone for zone, links in composition.links.items() if any(link.site == "key_server" for link in links)]
        for zone in opened:
            to = "the clients alone, through the server" if locked(ctx.steps(zone)) else "the server"
            yield f"zone {zone}: a sum of {recipe.min_clients} updates or more is opened, once a round, for {to}"
        return
    classes = "how many training examples of each class it has" if client.tells_classes else ""
    size = "its number of examples" if composition.aggregator.wants.num_examples else ""
    secret = any(component.cohort_secret for component in composition.components.values())
    key = "a public key, for a secret of all clients" if secret or any(map(locked, steps.values())) else ""
    keeps = (
        "what each round releases at the levels " + _listed(tuple(composition.keepers)) if composition.keepers else ""
    )
    if hello := [part for part in (size, classes, key, keeps) if part]:
        yield f"once, to the server: {' and '.join(hello)}"
    for zone, chain in steps.items():
        seal = seal_of(chain)
        names = " then ".join(step.link.name for step in chain if step.link.hook == "protect") or "nothing"
        sees = "the server reads it"
        if seal is not None:
            who = {"clients": "the clients", "key_server": "the key server", "shares": "many clients together"}
            sees = f"the server sees ciphertexts; {who[seal[1].opened_by]} can open sums"
        yield f"each round, to the server: the zone {zone} of the update, behind {names}; {sees}"
    if RETAINED in composition.negotiation.plans.zones:
        yield "each round: the zone retained of the update stays here"
    if recipe.buffers == "mean":
        yield "each round, to the server: the model's batch-norm statistics over this client's examples, as they are"
    evaluation = "counts of right answers and losses"
    if recipe.data.at == "sites":
        held_out = "this site's held-out examples, which no noise covers"
        evaluation = f"the share of right answers and the mean loss on {held_out}"
    yield f"each round, to the server: {evaluation}, times, and what components log"
    yield "at the end, to the server: a digest of the model"


def _calls(recipe: Recipe, composition: Composition, site: str) -> Iterator[str]:
    """The calls that a message to this party can hold, with what each does."""
    steps = Steps(recipe, composition)
    for name, component in {steps.name: steps, **composition.components}.items():
        kind = type(component)
        for method in dict.fromkeys(name for base in reversed(kind.__mro__) for name in vars(base)):
            member = inspect.getattr_static(kind, method)
            if site_of(member) == site:
                first = " ".join((inspect.getdoc(member) or "").partition("\n\n")[0].split())
                yield f"{name}.{method}  {first}"


def _guarantees(ledger: Ledger) -> Iterator[str]:
    report = ledger.report()
    yield from report.verdict.text()
    for warning in report.warnings:
        yield f"mind: {warning}"


def _listed(words: tuple[str, ...]) -> str:
    return " and ".join(word.replace("_", " ") for word in words)
