"""A private choice: what is drawn, and what it costs toward each party; see `laws`."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.errors import RecipeError, SetupError
from fedplug.recipe.composition import Composition
from fedplug.round.world import World
from fedplug_ledger.accounting import ORDERS, renyi, renyi_epsilon
from fedplug_ledger.grades import PARTIES, quoted
from fedplug_ledger.views import Guarantee, guaranteed, verdict
from fedplug_party.agreement import planned
from fedplug_runs.archive import Charges
from fedplug_runs.files import read_bytes, write_bytes
from fedplug_runs.overlay import load_recipe

from fedplug_search.laws import Law

if TYPE_CHECKING:
    from fedplug.recipe.catalog import Catalog
    from fedplug.recipe.recipe import Recipe
    from numpy.typing import NDArray

    from fedplug_search.question import Params, Question

FILE = "private.json"


def drawn(folder: Path, question: Question, law: Law) -> list[Params]:
    """The values of all trials of a search, in order: drawn once, then kept in its folder, for its owner alone.

    Raises:
        SetupError: the file is damaged.
    """
    file, space = folder / FILE, question.space
    if not file.is_file():
        settings, coin = [*space.combinations()], random.SystemRandom()
        write_bytes(file, json.dumps([coin.choice(settings) for _ in range(law.draw())]).encode())
    try:
        found: list[Params] = json.loads(read_bytes(file))
        for params in found:
            space.key(params)
    except (ValueError, LookupError, TypeError) as error:
        raise SetupError(f"{file} is damaged ({error}); take another --output, and draw anew") from error
    return found


def made_again(folder: Path) -> int:
    """How often one run of a search asked a client again for what it had sent in that round, at most: a run that is
    killed and goes on does.

    Raises:
        CheckpointError: what a run noted of that is damaged.
    """
    most = 0
    for file in folder.glob("*/*/charging.jsonl"):
        asked = Counter((each.what, each.round, who) for each in Charges(file.parent).since(0) for who in each.charged)
        times: dict[str, dict[int, int]] = {}
        for (what, round, _), count in asked.items():
            of_round = times.setdefault(what, {})
            of_round[round] = max(of_round.get(round, 0), count - 1)
        most = max([most, *(sum(each.values()) for each in times.values())])
    return most


@dataclasses.dataclass(frozen=True, eq=False)
class Cost:
    """What a run costs toward a party at most.

    Attributes:
        rdp: Renyi DP at each of `ORDERS`.
        epsilon: as its ledger states it.
        rests_on, not_covered: as in a line of its verdict.
    """

    rdp: NDArray[np.float64]
    epsilon: float
    rests_on: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()

    def most(self, other: Cost) -> Cost:
        """What bounds both."""
        rests, bare = ((*a, *b) for a, b in ((self.rests_on, other.rests_on), (self.not_covered, other.not_covered)))
        rdp, epsilon = np.maximum(self.rdp, other.rdp), max(self.epsilon, other.epsilon)
        return Cost(rdp, epsilon, tuple(dict.fromkeys(rests)), tuple(dict.fromkeys(bare)))

    def terms(self) -> str:
        """On what it rests, and what it leaves out, in sentences; empty where there is neither."""
        rests = f" It rests on this: {'; '.join(self.rests_on)}." if self.rests_on else ""
        return rests + (f" Not covered: {'; '.join(self.not_covered)}." if self.not_covered else "")


@dataclasses.dataclass(frozen=True, eq=False)
class Choice:
    """What a private choice costs.

    Attributes:
        law: of the number of trials.
        toward: by party, the cost of a run, whichever setting is drawn, or why it promises nothing.
        delta: at which epsilon is stated.
        at_sites: whether the figure that decides is of examples that sites hold out.
    """

    law: Law
    toward: Mapping[str, Cost | str]
    delta: float
    at_sites: bool

    @classmethod
    def of(
        cls, question: Question, law: Law, catalog: Catalog, data_root: str | Path | None, repeats: int = 0
    ) -> Choice:
        """Prices every setting that may be drawn, by its worst run, in which each client takes part in each round, and
        so many are made again.

        Raises:
            RecipeError: a client has other examples with one setting than with another.
        """
        toward: dict[str, Cost | str] = {}
        delta, at_sites, first = question.base.delta, False, b""
        for params in question.space.combinations():
            changes = question.changes(question.space.values(params), question.seeds[0])
            try:
                recipe = load_recipe(question.recipe, changes, catalog)
            except RecipeError:  # a trial with these values ends before anything is released
                continue
            delta, at_sites = max(delta, recipe.delta), at_sites or recipe.data.at != "here"
            composition = Composition(recipe)
            world = World(recipe, composition, None if data_root is None else str(data_root))
            held = _holdings(recipe, world)
            first = first or held
            if held != first:
                raise RecipeError([
                    f"--private: with {question.space.label(question.space.values(params))} clients have other "
                    "examples than with values before it, and epsilon is that of one client in all trials; leave out "
                    "of --over what splits the data, such as data.clients"
                ])  # fmt: skip
            for party, cost in _costs(recipe, composition, world, repeats).items():
                worst = toward.setdefault(party, cost)
                if not isinstance(worst, str):
                    toward[party] = cost if isinstance(cost, str) else worst.most(cost)
        return cls(law, toward, delta, at_sites)

    def sentences(self, trials: int) -> list[str]:
        """What the search costs, after so many trials."""
        return [self._of_chosen(), *self._of_trials(trials)]

    def _of_chosen(self) -> str:
        """Toward somebody who gets the chosen model and learns nothing of the other trials, nor how many there were."""
        cost = self.toward.get("released_model", "nobody gets the model")
        knows = "learns nothing else of the search, not even the number of trials"
        who = f"The chosen model alone, toward anyone who {knows}"
        if self.at_sites:
            why = "sites count the figure that decides on examples of theirs, in the clear; no noise covers the choice"
            return f"{who}: no guarantee: {why}."
        if isinstance(cost, str):
            return f"{who}: no guarantee: a run has none: {cost}."
        chosen = renyi_epsilon(self.law.renyi(cost.rdp), self.delta)
        theorem = 6 if self.law.eta is None else 2
        return (
            f"{who}: epsilon {chosen:.2f} for each client at delta {self.delta:g}, with the choice. A run costs up to "
            f"{cost.epsilon:.2f}; their number was drawn: {self.law} (Papernot and Steinke 2022, Theorem {theorem}). "
            f"Test examples count as public.{cost.terms()}"
        )

    def _of_trials(self, trials: int) -> Iterator[str]:
        """Toward those who take part in every trial."""
        for party, cost in self.toward.items():
            if party == "released_model":
                continue
            who = f"All {trials} trials, toward {next(words for name, words in PARTIES.items() if name == party)}"
            if isinstance(cost, str):
                yield f"{who}: no guarantee: {cost}."
            else:
                epsilon = renyi_epsilon(trials * cost.rdp, self.delta)
                yield f"{who}: epsilon {epsilon:.2f} for each client at delta {self.delta:g}.{cost.terms()}"


def _holdings(recipe: Recipe, world: World) -> bytes:
    """Equal where each client has the same examples, whatever features of them a model sees. At sites they have their
    own.
    """
    found = hashlib.blake2b(repr((recipe.clients, recipe.data.agreed)).encode())
    if world.data is not None:
        train = world.data.train
        for array in (train.labels, train.targets, *world.assignment):
            found.update(b"" if array is None else repr(array.shape).encode() + np.ascontiguousarray(array).tobytes())
    return found.digest()


def _costs(recipe: Recipe, composition: Composition, world: World, repeats: int) -> dict[str, Cost | str]:
    """By party, the cost of the worst run, or why it promises nothing; parties that are not there are left out."""
    ledger = planned(recipe, composition, world.model("cpu").layout, repeats=repeats)
    found: dict[str, Cost | str] = {}
    lines = {line.party: line for line in verdict(ledger).lines}
    for party, view in guaranteed(ledger).items():
        line = lines[party]
        if isinstance(view, Guarantee) and line.state == "none":  # a seed that all trials share gives their noise
            found[party] = line.reason or "no finite epsilon is known"
        elif isinstance(view, Guarantee) and not view.zero_out.slack:
            spent: Any = view.zero_out
            kinds = [(name, multiplier, int(counts.max())) for (name, multiplier), counts in spent.others.items()]
            rdp = renyi(float(spent.gaussian.max()), kinds, ledger.curves)
            if spent.concentrated:  # known at whole orders alone
                rdp = np.where(np.rint(ORDERS) == ORDERS, rdp, np.inf)
            found[party] = Cost(
                rdp, quoted(ledger.epsilons_of(spent)), tuple(line.rests_on), tuple(line.not_covered)
            )  # fmt: skip
        elif isinstance(view, Guarantee):
            found[party] = "its noise takes a part of delta, which the theorem leaves out; write source: secure"
        elif not view.absent:
            found[party] = view.reason
    return found
