"""A party that obeys its site's policy: before it joins, and before every answer that costs something."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedplug.api.errors import DataError, MessageError, SetupError
from fedplug.api.links import ballots_of
from fedplug.recipe.composition import Composition
from fedplug.round.base import facts_of
from fedplug.round.set_up import stated_accounts
from fedplug.round.steps import Steps
from fedplug.round.world import World
from fedplug_party.agreement import Worst, planned
from fedplug_runs.fitting import missing_files

from fedplug_policy.budget import Budget, Charge, charge_of, touching
from fedplug_policy.policy import Policy, read_policy

if TYPE_CHECKING:
    from fedplug.api.blocks import Layout
    from fedplug.recipe.recipe import Recipe
    from fedplug.round.hosted import HostedClient
    from fedplug_ledger.ledger import Ledger


def site_policy(file: Path) -> SitePolicy:
    """The policy of a file, ready to be obeyed: the service `site_policy`.

    Raises:
        SetupError: it cannot be read, or something in it is wrong.
    """
    return SitePolicy(file)


class SitePolicy:
    """A policy, with the budget that it names.

    Args:
        file: of the policy.
    """

    def __init__(self, file: Path) -> None:
        self.file, self.policy = file, read_policy(file)

    @property
    def budget(self) -> Budget | None:
        """The account of all studies; None where the policy keeps none."""
        kept = self.policy.budget
        return None if kept is None else Budget(self.file.parent / kept.folder)

    def beforehand(self, recipe: Recipe, root: str | None) -> list[str]:
        """All reasons why this site would refuse a recipe, as far as a researcher can know them: without its data, and
        without what other studies have spent.

        Args:
            recipe: the recipe.
            root: folder of data sets, or None.

        Raises:
            DataError: the model cannot be built without data that are not here.
        """
        composition = Composition(recipe)
        if any(missing_files(recipe, root)):
            raise DataError("; ".join(missing_files(recipe, root)))
        layout = World(recipe, composition, root).model("cpu").layout
        found = [*self.policy.needs(recipe, composition, layout)]
        study = Study(self.policy, recipe, layout, 0, None, [], "")
        return [*found, *self.policy.costs(study.whole(0), [])]

    def study(
        self, recipe: Recipe, layout: Layout, client: HostedClient, root: str | None, rows: str, repeats: int,
        run: str,
    ) -> Guard:  # fmt: skip
        """A study that wants to join.

        Args:
            recipe: this party's copy.
            layout: of the model.
            client: with its data.
            root: folder of this site's data, or None.
            rows: digest of the client's examples, for data without files.
            repeats: how many repeated rounds the site allows.
            run: of the server, that this party goes on in; empty: a new one.

        Raises:
            SetupError: the policy refuses it, with all reasons.
        """
        composition, budget = Composition(recipe), self.budget
        data = [] if budget is None else budget.identify(_files(root), rows)
        study = Study(self.policy, recipe, layout, client.client_id, client, data, run)
        problems = [*self.policy.needs(recipe, composition, layout)]
        before = [] if budget is None else study.others(budget)
        problems += self.policy.costs(study.whole(repeats), before)
        if problems:
            said = "\n".join(f"  {self.file}, {problem}" for problem in problems)
            raise SetupError(f"this site's policy refuses the study {recipe.name}:\n{said}")
        return Guard(self, study, budget)


class Study:
    """What one study costs its client at this site.

    Args:
        policy: of the site.
        recipe, layout: of the study.
        client_id: as which the site takes part.
        client: with its data, which tell accounts at other levels; None: they are unknown.
        data: keyed digests.
        run: of the server; empty before one has named itself.
    """

    def __init__(
        self, policy: Policy, recipe: Recipe, layout: Layout, client_id: int, client: HostedClient | None,
        data: list[str], run: str,
    ) -> None:  # fmt: skip
        self.policy, self.recipe, self.layout, self.client_id, self.data = policy, recipe, layout, client_id, data
        self.composition, self._client = Composition(recipe), client
        self._accounts = {} if client is None else stated_accounts(self.composition, client)
        self.run = run
        self._worst, self._entered = self._nothing(), list[int]()

    def _nothing(self) -> Worst:
        tells_classes = self._client is not None and self._client.tells_classes
        return Worst(self.recipe, self.composition, self.layout, self._accounts, tells_classes)

    def whole(self, repeats: int) -> Charge:
        """After all rounds, with the costliest one repeated as often as the site allows."""
        return self._charge(planned(self.recipe, self.composition, self.layout, self._client, repeats), [])

    def after(self, rounds: Sequence[int]) -> Charge:
        """After these rounds, from 1, each as often as it was asked for."""
        if [*rounds[: len(self._entered)]] != self._entered:
            self._worst, self._entered = self._nothing(), []
        for round in rounds[len(self._entered) :]:
            self._worst.enter(round - 1)
        self._entered = [*rounds]
        return self._charge(self._worst.ledger, rounds)

    def others(self, budget: Budget) -> list[Charge]:
        """Other studies, and other runs of this one, on the same data."""
        own = self.recipe.digest, self.run, self.client_id
        kept = self.policy.budget
        everything = kept is not None and kept.shared_by == "all studies"
        return [charge for charge in touching(budget.charges(), self.data, everything) if charge.key != own]

    def _charge(self, ledger: Ledger, rounds: Sequence[int]) -> Charge:
        toward, levels = charge_of(ledger, self.client_id, self.recipe.components)
        return Charge(
            self.recipe.name, self.recipe.digest, self.run, self.client_id, [*rounds], self.data, ledger.delta, toward,
            levels,
        )  # fmt: skip


class Guard:
    """Charges a study, round by round, before the party answers.

    Args:
        site: the policy.
        study: that has joined.
        budget: of the site; None where the policy keeps none.
    """

    def __init__(self, site: SitePolicy, study: Study, budget: Budget | None) -> None:
        self.site, self.study, self._budget = site, study, budget
        self._upload = f"{Steps(study.recipe, study.composition).name}.{Steps.protect.__name__}"
        self._charged: tuple[int, int] | None = None  # the last round and attempt

    def reached(self, engine: str) -> None:
        """Before the party obeys a request that this engine carries.

        Raises:
            MessageError: the policy allows others only.
        """
        allowed = self.site.policy.engines
        if allowed is not None and engine not in allowed:
            raise MessageError(f"{self.site.file}, engines: {', '.join(allowed)}, and {engine} carries this request")

    def asked(self, run: str, round: int, attempt: int, question: str) -> None:
        """Charges the round, from 0, before an answer, if it is the first of an attempt that costs anything.

        Raises:
            MessageError: the policy allows no further round.
        """
        costs = round >= 0 and (question == self._upload or self._is_ballot(round, question))
        if costs and self._charged != (round, attempt):
            self._charge(run, round + 1)
            self._charged = round, attempt

    def noticed(self, odd: str) -> None:
        """After a model that no training explains.

        Raises:
            MessageError: the policy does not go on after one.
        """
        if not self.site.policy.planted_models:
            raise MessageError(f"{self.site.file}, planted_models: false, and the server sent an unusual model ({odd})")

    def _is_ballot(self, round: int, question: str) -> bool:
        name = question.rpartition(".")[0]
        facts = facts_of(self.study.composition, self.study.layout, round)
        return name in self.study.composition.components and bool(ballots_of(name, facts))

    def _charge(self, run: str, round: int) -> None:
        study, budget = self.study, self._budget
        if budget is None:
            return
        study.run = run
        with budget.alone():
            key = study.recipe.digest, run, study.client_id
            own = next((each for each in budget.charges() if each.key == key), None)
            charge = study.after([*(own.rounds if own else ()), round])
            if problems := [*self.site.policy.costs(charge, study.others(budget))]:
                raise MessageError(f"this site's policy allows no further round: {'; '.join(problems)}")
            budget.append(charge)


def _files(root: str | None) -> list[Path]:
    """The files of a site's data folder, in order.

    Raises:
        SetupError: the folder cannot be read.
    """
    if root is None:
        return []
    try:
        place = Path(root).expanduser()
        return sorted(each for each in place.rglob("*") if each.is_file()) if place.is_dir() else [place]
    except OSError as error:
        raise SetupError(f"--data {root} cannot be read ({error.strerror or error})") from error
