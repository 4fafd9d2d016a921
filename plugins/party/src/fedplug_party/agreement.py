"""The text that the owner of a site reads before the party joins: what the party sends, to whom, and at what cost.

The costs are those in the ledger of a whole run in the worst case that is possible before any agreement: every client
takes part in every round, zones that may be sent in it are as large as the model, and there is no credit for sampling
or others' noise.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from fedplug.api.blocks import RETAINED, Layout
from fedplug.api.component import site_of
from fedplug.api.links import locked, seal_of
from fedplug.api.operations import Party
from fedplug.api.parties import Server
from fedplug.api.roles import Task
from fedplug.recipe.catalog import Catalog, Own
from fedplug.recipe.composition import Composition, instantiate
from fedplug.recipe.parts import leaves
from fedplug.recipe.reader import Draft, places
from fedplug.recipe.recipe import Recipe
from fedplug.recipe.source import Source
from fedplug.round.base import facts_of
from fedplug.round.hosted import HostedClient
from fedplug.round.set_up import stated_accounts
from fedplug.round.steps import Steps
from fedplug_ledger.charging import Charging, class_counts_of, ledger_of
from fedplug_ledger.grades import PARTIES
from fedplug_ledger.ledger import Ledger
from fedplug_ledger.spent import level_epsilons
from fedplug_ledger.verdict_words import named
from fedplug_runs.by_class import is_by_class
from fedplug_runs.plan import plan_of
from fedplug_runs.trust import may_run
from fedplug_runs.units import many


def planned(
    recipe: Recipe, composition: Composition, layout: Layout, client: HostedClient | None = None, repeats: int = 0
) -> Ledger:
    """The ledger after the whole run, with the costliest round repeated.

    Args:
        recipe, composition: this party's copy.
        layout: of the model.
        client: the client whose accounts at other levels are charged, and what it lets the server know; None: they are
            unknown.
        repeats: how often the costliest round is charged again. The server chooses which rounds it repeats.
    """
    accounts = stated_accounts(composition, client) if client is not None else {}
    tells_classes = client is not None and client.tells_classes

    def after(rounds: Iterable[int]) -> Ledger:
        worst = Worst(recipe, composition, layout, accounts, tells_classes)
        for round in rounds:
            worst.enter(round)
        return worst.ledger

    again = _costliest(after, recipe.rounds) * repeats if repeats else []
    return after([*range(recipe.rounds), *again])


def _costliest(after: Callable[[Iterable[int]], Ledger], rounds: int) -> list[int]:
    """The round that costs most: the first such round for each figure, so several rounds if the figures disagree."""
    alone, seen = dict[int, dict[str, float]](), set[str]()
    for round in range(rounds):
        ledger = after([round])
        kind = repr([dataclasses.replace(entry, round=0) for entry in ledger.log])
        if kind not in seen:  # usually all rounds are alike
            seen.add(kind)
            alone[round] = _figures(ledger)
    names = set[str]().union(*alone.values())
    costs = [[figures.get(name, 0.0) for figures in alone.values()] for name in names]
    return sorted({[*alone][cost.index(max(cost))] for cost in costs if max(cost) > min(cost)}) or [0]


def _figures(ledger: Ledger) -> dict[str, float]:
    """Epsilon toward each adversary against whom there is a guarantee, and at each level."""
    toward = {name: view.epsilon for name, view in ledger.report().views.items() if view.epsilon is not None}
    return toward | level_epsilons(ledger)


class Worst:
    """A ledger in which every client takes part in every round.

    Args:
        recipe, composition, layout: as in `planned`.
        accounts: by level, what each round of the recipe releases of a client.
        tells_classes: whether the server may be told how many examples of each class a client has.
    """

    def __init__(
        self, recipe: Recipe, composition: Composition, layout: Layout, accounts: Mapping[str, list[list[float]]],
        tells_classes: bool,
    ) -> None:  # fmt: skip
        self.ledger, self._server = ledger_of(recipe, composition, layout), Server()
        if tells_classes:
            self.ledger.reveals.append(class_counts_of(1, recipe.clients))
        self._server.facts = facts_of(composition, layout, 0)
        self._charging = Charging(recipe, composition, self._server, self.ledger, layout.size)
        self._recipe, self._size, self._accounts = recipe, layout.size, accounts

    def enter(self, round: int) -> None:
        """Charges a round, from 0, once more."""
        clients = list(range(self._recipe.data.clients))
        self._charging.charge_ballots(round, clients)
        each = {level: dict.fromkeys(clients, told[round]) for level, told in self._accounts.items()}
        sent = [zone for zone in self._recipe.protect if self._server.facts.at(round).sent(zone)]
        sizes = dict.fromkeys(sent, float(self._size))
        self._charging.enter(self.ledger, round, clients, sizes, accounts=each)


def agreement(
    recipe: Recipe, composition: Composition, layout: Layout, client: HostedClient | None, repeats: int
) -> str:
    """The text for a client or for the key server. The key server sends no data, so its text says what it opens.

    Args:
        recipe, composition: this party's copy.
        layout: of the model.
        client: this party; None for the key server.
        repeats: how many repeated rounds the site allows.
    """
    ledger = planned(recipe, composition, layout, client)
    size = f"{many(recipe.rounds, 'round')}, {many(recipe.data.clients, 'client')}"
    lines = [f"Recipe {recipe.name} ({recipe.digest[:12]}): {size}."]
    lines += ["", "What runs:"]
    lines += [f"  {hook}  {name}  {text}".rstrip() for hook, name, text in plan_of(recipe, composition)]
    lines += [
        "",
        "What leaves this site:" if client is not None else "What the key server opens:",
    ]
    lines += [f"  {line}" for line in _sent(recipe, composition, layout, client)]
    what = "this client" if client is not None else "the key server"
    lines += ["", f"What the server can ask {what} to do (nothing else, and only code that is installed here):"]
    lines += [f"  {line}" for line in _calls(recipe, composition, "client" if client is not None else "key_server")]
    lines += ["", "What else can be seen:"]
    lines += [
        f"  {shown.what}, visible to {_seers(shown.to)}: {shown.note or shown.covered_by or 'not covered'}"
        for shown in ledger.reveals
    ]
    lines += ["", "What this guarantees a client after all rounds, if every zone is as large as the model:"]
    lines += [f"  {line}" for line in _guarantees(ledger)]
    if repeats and client is not None:
        again = planned(recipe, composition, layout, client, repeats)
        lines += ["", f"The same if the costliest round is repeated as often as --repeats {repeats} allows:"]
        # Without its warnings: nothing has been repeated yet.
        lines += [f"  {line}" for line in again.report().verdict.text()]
    lines += ["", f"Never covered: {'; '.join(ledger.report().never_covered)}."]
    return "\n".join(lines)


def preview(source: Source, catalog: Catalog, files: Iterable[Own]) -> str:
    """What can be said of a recipe without running code that it brings, for the owner of a site who has to allow that.

    Args:
        source: the recipe.
        catalog: the components on offer.
        files: of code, which the recipe names.
    """
    draft = Draft(source, catalog)
    general, split = draft.general, draft.split
    size = f": {many(general.rounds, 'round')}, {many(split.clients, 'client')}" if general and split else ""
    lines = [f"Recipe {source.data.get('name')}{size}.", "", "What runs:"]
    known = {use.path: use for use in draft.uses if use.made_of is not None and use.options is not None}
    for place in leaves(places(source, {})):
        use, where = known.get(place.path), ".".join(map(str, place.path))
        written = place.raw.get("use") if isinstance(place.raw, Mapping) else place.raw
        text = "code that the recipe brings" if use is None else instantiate(use).describe()
        lines.append(f"  {where}  {written}  {text}".rstrip())
    lines += [f"  {key}" for key in source.data if key in catalog.sections]
    lines += ["", "Code that has not run here before, and would run with all your rights:"]
    lines += [f"  {own.path or own.name}  sha256 {own.sha256}" for own in files if not may_run(own)]
    lines += [
        "",
        "Read these files: they run as soon as you say yes. They decide what leaves this site, what the server can "
        "ask, and what is guaranteed. The program shows all that next, and asks again whether to join.",
    ]
    return "\n".join(lines)


def _sent(recipe: Recipe, composition: Composition, layout: Layout, client: HostedClient | None) -> Iterator[str]:
    """One line for each thing that this party sends, in the order in which the server asks for it."""
    facts = facts_of(composition, layout, 0)
    steps = {zone: facts.steps(zone) for zone in recipe.protect}
    if client is None:
        opened = [zone for zone, links in composition.links.items() if any(link.site == "key_server" for link in links)]
        for zone in opened:
            to = "the clients only (through the server)" if locked(facts.steps(zone)) else "the server"
            yield f"zone {zone}: once a round, it opens a sum of at least {recipe.min_clients} updates for {to}"
        return
    classes = "its number of training examples of each class" if client.tells_classes else ""
    size = "its number of examples" if composition.aggregator.wants.num_examples else ""
    secret = any(component.cohort_secret for component in composition.components.values())
    key = "a public key for a secret of all clients" if secret or any(map(locked, steps.values())) else ""
    keeps = (
        "what each round releases at the levels " + named(level.replace("_", " ") for level in composition.keepers)
        if composition.keepers
        else ""
    )
    if hello := [part for part in (size, classes, key, keeps) if part]:
        yield f"once, to the server: {named(hello)}"
    for zone, chain in steps.items():
        seal = seal_of(chain)
        names = [step.link.name for step in chain if step.link.hook == "protect"]
        protected = f"protected by {' then '.join(names)}" if names else "unprotected"
        sees = "the server can read it"
        if seal is not None:
            several = f"{seal[1].opens_with} clients together"
            who = {"clients": "the clients", "key_server": "the key server", "shares": several}
            sees = f"the server sees ciphertexts; {who[seal[1].opened_by]} can open sums"
        yield f"each round, to the server: the zone {zone} of the update, {protected}; {sees}"
    if RETAINED in composition.plans.zones:
        yield "never: the zone retained of the update, which stays here"
    if recipe.buffers == "mean":
        yield "each round, to the server: the model's batch-norm statistics over this client's examples, unprotected"
    by_class = is_by_class(composition.part(recipe.task.name, Task) if recipe.task else None)
    on_common = ", on the common test set by class" if by_class else ""
    evaluation = f"counts of correct predictions{on_common}, losses"
    if recipe.data.at == "sites":
        held_out = "this site's held-out examples (no noise covers them)"
        further = ", the balanced accuracy, the AUC, whether a class is rare," if by_class else ""
        evaluation = f"the accuracy{further} and the mean loss on {held_out}"
    yield f"each round, to the server: {evaluation}, times, and what components log"
    yield "at the end, to the server: a digest of the model"


def _calls(recipe: Recipe, composition: Composition, site: str) -> Iterator[str]:
    """The calls that a message to this party can contain, each with its description."""
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
        yield f"warning: {warning}"


def _seers(parties: Sequence[Party]) -> str:
    """Who sees something, in the words of the guarantees."""
    words = PARTIES | {"client": "other clients"}
    return named(words[party] for party in parties) if parties else "nobody"
