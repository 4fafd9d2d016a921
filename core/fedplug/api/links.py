"""The one list of links that a zone's values pass, in order, with the party and the operations of each.

Each link gives operations, and the protocol executes them. The check, the ledger, the plan of a run and the views of
attacks read the same operations, folded the same way. Nobody else works out who comes after whom.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Protocol

from fedplug.api import grids
from fedplug.api.errors import FedplugError, of_component
from fedplug.api.facts import Facts
from fedplug.api.known import Known
from fedplug.api.operations import (
    INTEGER,
    Clip,
    Combine,
    Map,
    Misplaced,
    Noise,
    Open,
    Operation,
    Operations,
    Post,
    Scale,
    Scramble,
    Seal,
)
from fedplug.api.places import as_operations, check_place
from fedplug.api.roles import Ballots, Groups, Site


def locked(steps: Iterable[Step]) -> bool:
    """Whether the key server tells the opened sum to the clients alone; the server then relays what it cannot read."""
    return any(
        isinstance(closed := step.before.closed, Seal) and closed.sums_visible_to == "clients"
        for step in steps
        if step.link.site == "key_server" and step.has(Open)
    )


def seal_of(steps: Iterable[Step]) -> tuple[str, Seal] | None:
    """The encryption of a zone's uploads, with the name of the component; None where they are not encrypted."""
    found = closing_of(steps)
    return (found[0].name, found[1]) if found and isinstance(found[1], Seal) else None


def closing_of(steps: Iterable[Step]) -> tuple[Link, Seal | Scramble] | None:
    """What closes a zone's uploads, with its link; None where nothing does."""
    for step in steps:
        for operation in step.operations:
            if isinstance(operation, Seal | Scramble):
                return step.link, operation
    return None


def uploaded(steps: Iterable[Step]) -> Known | None:
    """The known facts about a zone as the server receives it; None where the zone has no link at all."""
    known = None
    for step in steps:
        if step.link.hook == "protect":
            known = step.after
        elif known is None:
            known = step.before
    return known


def released(steps: Iterable[Step]) -> Known | None:
    """The known facts about a zone's sum as clients adopt it."""
    known = None
    for step in steps:
        known = step.after
    return known


Hook = Literal["protect", "aggregate", "postprocess"]


@dataclasses.dataclass(frozen=True, eq=False)
class Link:
    """One step of a zone's chain.

    Attributes:
        zone: the zone.
        hook: which hook of the component it calls.
        name: of the component.
        component: seals, and opens. In facts it is one that was built for them, which nobody else has in hand.
        site: the party at which it runs.
        path: its place in the recipe.
        call: calls a hook of a component as a run does, so that extensions see it; None: the method alone.
    """

    zone: str
    hook: Hook
    name: str
    component: Any
    site: Site
    path: tuple[str | int, ...] = ()
    call: Callable[..., Any] | None = None

    def operations(self, known: Known, facts: Facts) -> Operations:
        """The operations of the link on values of which this is known: of a component that was built from its options
        alone, and of public facts.

        Raises:
            Misplaced: its place is wrong, or it gives something else than operations.
            PluginError: the hook itself fails.
        """
        component = facts.components.get(self.name, self.component)
        with of_component(self.name, f"hook {self.hook}"):
            if self.call is not None:
                given = self.call(self.hook, component, known=known, facts=facts)
            else:
                given = getattr(component, self.hook)(known=known, facts=facts)
        return as_operations(given, self.hook, self.name)

    def fold(self, links: Iterable[Link], facts: Facts) -> tuple[Step, ...]:
        """What the links of its zone do, for facts, which know no more of a link."""
        return fold(links, facts)


@dataclasses.dataclass(frozen=True, eq=False)
class Step:
    """A link with its operations, and what is known before and behind it.

    Attributes:
        link: the link.
        operations: as they are executed and priced.
        states: what is known before each of the operations, and behind the last one.
    """

    link: Link
    operations: Operations
    states: tuple[Known, ...]

    @property
    def before(self) -> Known:
        """The known facts before the link."""
        return self.states[0]

    @property
    def after(self) -> Known:
        """The known facts behind it."""
        return self.states[-1]

    def has(self, *kinds: type) -> bool:
        """Whether one of the operations is of these kinds."""
        return any(isinstance(operation, kinds) for operation in self.operations)

    def of(self, client_id: int, facts: Facts) -> Step:
        """The same as it is at one client, where operations name some."""
        if not self.after.own:
            return self
        states = tuple(known.of(client_id) for known in self.states)
        return Step(self.link, tuple(
            _settled_of(one, client_id, known, facts) if isinstance(one, Noise) and one.clients
            else one.of(client_id) if isinstance(one, Clip) else one
            for one, known in zip(self.operations, states, strict=False)
        ), states)  # fmt: skip


def fold(
    links: Iterable[Link], facts: Facts, misplaced: Callable[[Link, FedplugError], None] | None = None
) -> tuple[Step, ...]:
    """The operations of each link of a zone, and the known facts before and behind each operation.

    Args:
        links: of one zone, in order.
        facts: of the round; before a run its layout may be empty.
        misplaced: called with links whose place is wrong, or whose hook fails, which then count as if they did nothing.
            None: the first one raises.

    Raises:
        Misplaced: the place of a link is wrong.
    """
    steps: list[Step] = []
    known: Known | None = None
    for link in links:
        known = known or Known(zone=link.zone, layers=facts.layout.layer_sizes)
        at_client = link.site == "client" and link.hook == "postprocess"
        known = dataclasses.replace(known, link=link.name, at_client=at_client)
        try:
            step = _step(link, known, facts)
        except FedplugError as error:
            if misplaced is None:
                raise
            misplaced(link, error)
            summed = dataclasses.replace(known, summed=known.summed or link.hook == "aggregate")
            step = Step(link, (), (known, summed))
        steps.append(step)
        known = step.after
    return tuple(steps)


def _step(link: Link, known: Known, facts: Facts) -> Step:
    operations: list[Operation] = []
    states = [known]
    for operation in link.operations(known, facts):
        check_place(link, states[-1], operation)
        if isinstance(operation, Noise):
            given, operation = operation, settled(operation, states[-1], facts)
            # A client that the noise names adds its noise on a grid that fits its size (`Step.of`).
            operations.append(dataclasses.replace(operation, grid=given.grid) if given.clients else operation)
        else:
            operations.append(operation)
        states.append(states[-1].after(operation))
    if link.hook == "aggregate" and not states[-1].summed:
        raise Misplaced(
            f"component {link.name}, hook aggregate: it gives no sum; give WeightedSum(), or Combine(function)"
        )
    return Step(link, tuple(operations), tuple(states) if operations else (known, known))


def settled(noise: Noise, known: Known, facts: Facts) -> Noise:
    """The noise as it is executed at this place: where it is added, on which grid, and what its source takes of delta.

    Args:
        noise: as the component gives it.
        known: what is known before it.
        facts: the round.

    Raises:
        ProtectionError: float32 cannot hold the results, or the grid is too coarse for the source.
        Misplaced: a component states what is the core's to say.
    """
    if known.summed:
        noise = dataclasses.replace(noise, trust="central")
        if noise.source == "exact":
            what = "adds exact noise to a sum, whose values lie on no grid"
            raise Misplaced(f"{known.link} {what}; write source: secure")
    if noise.takes_back is not None and (why := _uncorrelatable(noise, known, facts)):
        raise Misplaced(f"{known.link} gives noise that takes back some of that of earlier rounds, and {why}")
    if any(release.takes_back is not None for release in known.releases):
        raise Misplaced(
            f"{known.link} adds noise behind that of {known.releases[-1].link}, which is correlated over rounds and is "
            "priced as a whole; keep one noise component in the chain"
        )
    if noise.sample is not None:
        if noise.mechanism in INTEGER:
            raise Misplaced(f"{known.link} calls its own sampler {noise.mechanism}, a name of the core; rename it")
        return noise
    if noise.mechanism in INTEGER:
        return _settled_in_steps(noise, known)
    if noise.mechanism not in ("gaussian", "discrete_gaussian", "laplace"):
        raise Misplaced(
            f"{known.link}: the core has no {noise.mechanism} noise; write Noise.gaussian, Noise.laplace, or "
            "Noise.own with a sampler"
        )
    if isinstance(noise.std, Mapping):  # one grid for everybody's account; each executes its own
        each = [settled(noise.of(c), known.own.get(c, known), facts) for c in (None, *sorted(noise.clients))]
        least, *_, most = sorted(each, key=lambda one: one.grid or 0.0)
        return dataclasses.replace(
            noise, grid=least.grid, coarsest=most.grid or 0.0, slack=max(one.slack for one in each), note=least.note
        )
    if isinstance(noise.std, tuple) and known.layers and len(noise.std) != len(known.layers):
        raise Misplaced(
            f"{known.link} gives noise for {len(noise.std)} layers, and the model has {len(known.layers)}; give one "
            "size a layer, or one number for all of them"
        )
    try:
        grids.power_of_two(noise.grid or None)
    except ValueError as error:
        raise Misplaced(f"{known.link}: {error}") from error
    bound = known.sensitivity(noise.order) if noise.trust == "central" else known.norm(noise.order)
    known_size = noise.at_least is not None  # whatever bounds it
    if bound is None or noise.std == 0 or (math.isinf(bound) and not known_size):  # no price, no noise, or no model yet
        return dataclasses.replace(noise, grid=noise.grid or 0.0)
    reach = bound * (facts.num_clients if noise.trust == "central" else 1)  # of a sum: it shows not how many took part
    if isinstance(noise.std, int | float):
        finest = grids.finest(reach, noise.std, noise.mechanism)
        if noise.grid and noise.grid < finest:  # 0 where its size was not known before
            raise grids.too_fine(noise.grid, finest)
        grid = noise.grid or finest
    else:
        # Powers of two, so that values of every layer are multiples of the finest.
        grid = min((g for g in grids_of_layers(noise, known) if g), default=0.0)
    slack, note = 0.0, noise.note
    if noise.source == "exact" and isinstance(noise.std, int | float):
        grids.check_exact(noise.std, grid)
        # A view of a sum rests on the samples of all clients in it, so each of theirs may be off.
        slack = grids.exact_slack(noise.std / grid, float(facts.layout.size) * facts.rounds * facts.num_clients)
    elif noise.source == "exact" and noise.at_least:
        # The layer, or client, with the least noise has the coarsest grid relative to it. The default grid may be half
        # as fine, and a grid that the recipe sets may be as coarse as allowed.
        coarsest = 2 * grids.finest(1.0, noise.at_least, noise.mechanism)
        grids.check_exact(noise.at_least, coarsest)
        steps = grids.FEWEST_EXACT if noise.grid else noise.at_least / coarsest
        slack = grids.exact_slack(steps, float(facts.layout.size) * facts.rounds)
    said = grids.note_of(noise.source, noise.mechanism, slack)
    return dataclasses.replace(noise, grid=grid, slack=slack, note=f"{note}; {said}" if note and said else note or said)


def _settled_of(noise: Noise, client_id: int, known: Known, facts: Facts) -> Noise:
    """The noise of one client, on a grid that float32 holds for its size: of all clients it has the finest."""
    own = settled(dataclasses.replace(noise.of(client_id), grid=None), known, facts)
    coarser = (noise.grid or 0.0) > (own.grid or 0.0)
    return settled(noise.of(client_id), known, facts) if coarser else dataclasses.replace(own, note=noise.note)


def _settled_in_steps(noise: Noise, known: Known) -> Noise:
    """The same of noise in whole numbers.

    Raises:
        Misplaced: values do not lie on its grid, or it is added to a sum.
        ProtectionError: it is too small, or too large, for its grid.
    """
    if known.summed:
        raise Misplaced(
            f"{known.link} adds {noise.mechanism} noise to a sum; clients share it out: give it in the hook protect"
        )
    try:
        grids.power_of_two(noise.grid or None)
    except ValueError as error:
        raise Misplaced(f"{known.link}: {error}") from error
    if not isinstance(noise.std, int | float) or not noise.grid:
        raise Misplaced(f"{known.link} gives {noise.mechanism} noise without one std and a grid; write Noise.integer")
    if known.grid < noise.grid or known.grid % noise.grid:
        raise Misplaced(
            f"{known.link} adds noise in whole steps of {noise.grid:g}, and the {known.zone} values before it do not "
            f"lie on that grid; give Round({noise.grid:g}, beta=...) before it"
        )
    if noise.source == "exact" and noise.mechanism == "skellam_sum":
        raise Misplaced(f"{known.link}: no exact sampler of Skellam noise is here; write source: secure")
    bound = known.norm()
    if bound is not None and math.isfinite(bound) and noise.std > 0:
        grids.check_integer(noise.std, noise.grid)
        least = grids.finest(bound, noise.std)
        if noise.grid < least:
            raise grids.too_fine(noise.grid, least)
    said = grids.note_of(noise.source, noise.mechanism, 0.0)
    return dataclasses.replace(noise, note=f"{noise.note}; {said}" if noise.note and said else noise.note or said)


def _uncorrelatable(noise: Noise, known: Known, facts: Facts) -> str:
    """Why noise cannot be correlated over rounds at this place; empty if it can."""
    if not known.summed and noise.trust != "distributed":
        return "this is no sum: give it on the sum, or trust='distributed' where uploads are closed behind it"
    if not known.summed and known.releases:
        return "the zone has noise already; keep one noise component in the chain"
    if noise.mechanism != "gaussian" or noise.sample is not None or not isinstance(noise.std, int | float):
        return "it must be Gaussian, of one size, and drawn by the core: write Noise.gaussian(std, takes_back=...)"
    if any(release.trust == "central" for release in known.releases):
        return "the sum has noise already; keep one noise component of the server in the chain"
    if any(isinstance(each, Groups) for each in facts.components.values()):
        return "there is a sum for each group, in which clients differ from round to round; leave out groups"
    if facts.components and not facts.plans_are_public:
        return "other parameters come from other clients and in other rounds; use negotiate_mask: std.single_zone"
    return ""


def ballots_of(name: str, facts: Facts) -> Operations:
    """The operations of a component's ballots in a round; none where it has no ballots.

    Raises:
        PluginError: it fails to say.
    """
    component = facts.components.get(name)
    if not isinstance(component, Ballots):
        return ()

    def stated(now: Facts) -> Operations:
        # All pay before anybody is asked, so that nothing of the round is public yet, nor does a group have its own.
        return as_operations(component.ballots(dataclasses.replace(now, published={})), "ballots", name)

    with of_component(name, "ballots"):
        return facts.once(f"ballots {name}", stated)


def ballot_states(name: str, operations: Operations, facts: Facts) -> tuple[Operations, tuple[Known, ...]]:
    """A ballot's operations as they are executed, and what is known before each and behind the last.

    Raises:
        Misplaced: one of them does not release values, or says something of each layer or scalar: how many a ballot has
            the ledger does not know.
    """
    made: list[Operation] = []
    states = [Known(zone="ballots", link=name)]
    for operation in as_operations(operations, "ballots", name):
        if not isinstance(operation, Clip | Scale | Noise | Post):
            raise Misplaced(
                f"the ballots of {name} give {type(operation).__name__}; give Clip and Noise, with Scale or Post"
            )
        if isinstance(operation, Noise) and operation.takes_back is not None:
            told = "noise that takes back some of that of earlier rounds"
            raise Misplaced(f"the ballots of {name} give {told}; leave takes_back out")
        if isinstance(operation, Clip | Noise) and (operation.clients or getattr(operation, "size", None)):
            what = f"{type(operation).__name__} of another size for some clients"
            raise Misplaced(f"the ballots of {name} give {what}, and all ballots cost the same; give one for all")
        each = isinstance(operation, Noise) and isinstance(operation.std, tuple)
        if each or (isinstance(operation, Clip) and (operation.per != "update" or math.isinf(operation.order))):
            raise Misplaced(
                f"the ballots of {name} give {type(operation).__name__} of each layer or scalar, and how many a ballot "
                "has the ledger does not know; give one norm of all values, and one size of the noise"
            )
        operation = settled(operation, states[-1], facts) if isinstance(operation, Noise) else operation
        made.append(operation)
        states.append(states[-1].after(operation))
    return tuple(made), tuple(states)


def grids_of_layers(noise: Noise, known: Known) -> tuple[float, ...]:
    """The finest grid of each layer, where layers are bounded one by one; 0 for layers without noise of a size."""
    if not isinstance(noise.std, tuple):
        return ()
    bounds = known.layer_norms(noise.order) or (known.norm(noise.order) or 0.0,) * len(noise.std)
    return tuple(
        grids.finest(bound, std, noise.mechanism) if 0 < std < math.inf else 0.0
        for bound, std in zip(bounds, noise.std, strict=True)
    )


class Sampled(Protocol):
    """How cohorts are drawn."""

    @property
    def scheme(self) -> str:
        """Its name, such as `poisson`."""

    @property
    def turns(self) -> int:
        """The fewest rounds from one in which a client may be drawn to its next."""


def amplified(sampling: Sampled | None, facts: Facts) -> set[str]:
    """The zones whose noise is added to the sum of a Poisson sample, which hides who takes part.

    None where a function of the sum comes before the noise: what it remembers of the clients of one round would be in
    the releases of others, and sampling a round hides nobody then. Nor where noise takes back that of so many rounds
    that a client could be in two of them.
    """
    if sampling is None or sampling.scheme != "poisson":
        return set()
    # As early as noise reaches that far back, so that the zones are the same in every round.
    later = facts.at(min(sampling.turns, facts.rounds - 1)) if correlated(facts, "server", "key_server") else facts
    far = correlated(later, "server", "key_server", reach=sampling.turns)
    return {zone for zone, first in _central(facts).items() if first} - far


def correlated(facts: Facts, *sites: Site, reach: int = 0) -> set[str]:
    """The zones in which a party of these adds noise that takes back some of that of earlier rounds, of `reach` rounds
    before or more.
    """
    return {
        zone for zone in facts.links for step in facts.steps(zone) for each in step.operations
        if isinstance(each, Noise) and each.takes_back is not None and step.link.site in sites
        and len(each.takes_back) >= reach
    }  # fmt: skip


def remembered(facts: Facts) -> set[str]:
    """The zones in which a function of the sum comes before the noise of the server: who was in the sum of one round
    may be in the releases of all that follow, and pays for these too.
    """
    return {zone for zone, first in _central(facts).items() if not first}


def _central(facts: Facts) -> dict[str, bool]:
    """By zone with noise at the server, whether that is added before a function of a plugin gets the sum."""
    folded = {zone: facts.steps(zone) for zone in facts.links}
    behind = {zone: released(steps) for zone, steps in folded.items()}
    return {
        zone: _noised_first(folded[zone]) for zone, known in behind.items()
        if known and any(each.trust == "central" for each in known.releases)
    }  # fmt: skip


def _noised_first(steps: Iterable[Step]) -> bool:
    """Whether noise is added to the sum before a function of a plugin gets it."""
    for step in steps:
        for operation, known in zip(step.operations, step.states, strict=False):
            if isinstance(operation, Combine) or (isinstance(operation, Post | Map) and known.summed):
                return False
            if isinstance(operation, Noise) and known.summed:
                return True
    return True
