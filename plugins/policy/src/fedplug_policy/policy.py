"""A site's policy: what a study must be to get an answer from it, as a file of YAML.

    least_clients: 10
    epsilon: {server: 8, released_model: 4}       # of one study, after all its rounds
    budget: {epsilon: 10, delta: 1.0e-5}          # of all studies that touch the same data

Costs are those that a site can know before any agreement: every client takes part in every round, zones are as large as
the model, and neither sampling nor the noise of others earns credit.
"""

from __future__ import annotations

import fnmatch
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import fedplug
from fedplug import Field
from fedplug.api.errors import SetupError
from fedplug.api.links import released, seal_of
from fedplug.recipe.reader import validated
from fedplug.round.base import facts_of
from fedplug_runs import yaml_source
from pydantic import field_validator

from fedplug_policy.budget import CLIENT, Charge, party_words, spent

if TYPE_CHECKING:
    from fedplug import Facts
    from fedplug.api.blocks import Layout
    from fedplug.recipe.composition import Composition
    from fedplug.recipe.recipe import Recipe

PartyName = Literal["server", "key_holder", "client", "client_and_server", "released_model"]


class BudgetOptions(fedplug.Options):
    """Of all studies that touched the same data."""

    epsilon: float = Field(gt=0, allow_inf_nan=False, description="of all studies together, add-or-remove")
    delta: float = Field(gt=0, lt=1, description="of all studies together")
    toward: list[PartyName] = Field(
        ["server", "released_model"], min_length=1, description="parties that this epsilon holds for, each by itself"
    )
    shared_by: Literal["same files", "all studies"] = Field(
        "same files",
        description="same files: studies meet where a file of theirs is the same, to the byte; all studies: of this "
        "account, also where files have changed",
    )
    folder: str = Field("budget", min_length=1, description="of the account; relative to the policy's folder")


class Policy(fedplug.Options):
    """What a site allows a study."""

    least_clients: int | None = Field(None, ge=2, description="fewest clients in a sum (min_clients of a recipe)")
    rounds: int | None = Field(None, ge=1, description="most rounds")
    unit: str = Field(CLIENT, description="whose data an epsilon is about: client, or a level such as record")
    epsilon: dict[PartyName, float] = Field(
        {}, description="largest epsilon of a study toward each party, after all rounds, add-or-remove"
    )
    delta: float | None = Field(None, gt=0, lt=1, description="largest delta of a study")
    budget: BudgetOptions | None = Field(None, description="of all studies on the same data; null: none is kept")
    encryptions: list[str] | None = Field(
        None, description="sealers that may be used, such as std.bfv or secagg.*; null: any"
    )
    openers: list[Literal["key_server", "clients", "shares"]] | None = Field(
        None, description="who may open sums: a key server, every client, or shares of several clients; null: any"
    )
    bare: bool = Field(True, description="whether the server may read a zone that has no noise")
    planted_models: bool = Field(
        True, description="whether to go on after a model that no training explains; a party warns in any case"
    )
    engines: list[str] | None = Field(
        None, min_length=1, description="that may carry requests (parties, flower, nvflare), on the word of the relay "
        "at this site; null: any"
    )  # fmt: skip
    code: Literal["any", "shipped"] = Field(
        "any", description="shipped: no component or extension that is not of fedplug itself"
    )

    @field_validator("epsilon")
    @classmethod
    def _above_zero(cls, value: dict[str, float]) -> dict[str, float]:
        for party, epsilon in value.items():
            if not 0 < epsilon < math.inf:
                raise ValueError(f"epsilon.{party}={epsilon} must be above 0 and finite; leave it out for no limit")
        return value

    def needs(self, recipe: Recipe, composition: Composition, layout: Layout) -> Iterator[str]:
        """What of this policy a recipe breaks, apart from what it costs."""
        if self.least_clients is not None and recipe.min_clients < self.least_clients:
            yield f"least_clients: {self.least_clients}, and the recipe has min_clients: {recipe.min_clients}"
        if self.rounds is not None and recipe.rounds > self.rounds:
            yield f"rounds: {self.rounds}, and the recipe has rounds: {recipe.rounds}"
        if self.delta is not None and recipe.delta > self.delta:
            yield f"delta: {self.delta:g}, and the recipe has delta: {recipe.delta:g}"
        facts = facts_of(composition, layout, 0)
        of_rounds = (self._zones(recipe, facts.at(round)) for round in range(recipe.rounds))
        yield from dict.fromkeys(itertools.chain.from_iterable(of_rounds))
        if self.code == "shipped":
            brought = (name for name in composition.components if not composition.shipped(name))
            if others := sorted({*brought, *composition.strangers}):
                yield f"code: shipped, and {', '.join(others)} does not ship with fedplug"

    def _zones(self, recipe: Recipe, facts: Facts) -> Iterator[str]:
        """What the zones of a round break."""
        for zone in recipe.protect:
            steps = facts.steps(zone)
            found, known = seal_of(steps), released(steps)
            if found is None:
                if not self.bare and (known is None or not known.releases):
                    yield f"bare: false, and the server reads the zone {zone} without noise"
                continue
            name, seal = found
            use = recipe.components[name].use
            if self.encryptions is not None and not any(fnmatch.fnmatch(use, each) for each in self.encryptions):
                yield f"encryptions: {', '.join(self.encryptions) or 'none'}, and {use} encrypts the zone {zone}"
            if self.openers is not None and seal.opened_by not in self.openers:
                allowed = ", ".join(self.openers) or "none"
                yield f"openers: {allowed}, and {_BY[seal.opened_by]} can open sums of the zone {zone}"

    def costs(self, charge: Charge, before: Sequence[Charge]) -> Iterator[str]:
        """What of this policy a study breaks by its cost.

        Args:
            charge: of the study, after all that is to be allowed.
            before: of other studies on the same data.
        """
        for party, most in self.epsilon.items():
            if party in charge.toward or self.unit != CLIENT:
                this = spent([charge], party, self.unit, charge.delta)
                if this > most:
                    yield f"epsilon.{party}: {most:g}, and {_cost(charge, party, this)}"
        if self.budget is not None:
            for party in self.budget.toward:
                if party not in charge.toward and self.unit == CLIENT:
                    continue
                total = spent([*before, charge], party, self.unit, self.budget.delta)
                if total > self.budget.epsilon:
                    already = spent(before, party, self.unit, self.budget.delta)
                    yield self._over(self.budget, party, before, already, total)

    def _over(
        self, budget: BudgetOptions, party: str, before: Sequence[Charge], already: float, total: float
    ) -> str:  # fmt: skip
        names = ", ".join(dict.fromkeys(each.study for each in before))
        others = f" after {already:.3g} by {names}" if before else ""
        reached = "no guarantee is left" if math.isinf(total) else f"epsilon reaches {total:.3g}"
        allowed = f"epsilon {budget.epsilon:g} at delta {budget.delta:g} toward {party_words(party)}"
        return f"budget: {allowed}, and with this study {reached}{others}"


_BY: Mapping[str, str] = {
    "key_server": "a key server", "clients": "every client", "shares": "shares of several clients",
}  # fmt: skip


def _cost(charge: Charge, party: str, this: float) -> str:
    """What one study costs, or why nothing bounds that."""
    if not math.isinf(this):
        return f"the study costs epsilon {this:.3g} toward {party_words(party)}"
    cost = charge.toward.get(party)
    why = f": {cost.reason}" if cost is not None and cost.reason else ""
    return f"toward {party_words(party)} nothing bounds what the study costs{why}"


def read_policy(file: Path) -> Policy:
    """A policy of a file.

    Raises:
        SetupError: it cannot be read, or something in it is wrong; names every place.
    """
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(f"the policy {file} cannot be read ({error}); name a file of YAML") from error
    source = yaml_source.read_text(text, str(file))
    found = None if source.problems else validated(source, Policy, source.data or {}, (), "the policy")
    if source.problems or not isinstance(found, Policy):
        raise SetupError("\n".join(map(str, source.problems)))
    return found
