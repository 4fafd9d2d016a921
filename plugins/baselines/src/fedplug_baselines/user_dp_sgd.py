"""DP-SGD at the clients whose unit of protection is a user with several examples."""

from __future__ import annotations

import collections
import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from fedplug import Account, Field, Learns
from fedplug.api.errors import SetupError
from fedplug_ledger.accounting import first_that_holds
from fedplug_std.loss_distributions import Gaussian, Group, Release, epsilon_of

from fedplug_baselines.dp_sgd import DpSgd, StepOptions
from fedplug_baselines.uniform import uniform_source

if TYPE_CHECKING:
    from fedplug import Client, Facts, Recipe
    from fedplug.api.data import Examples
    from numpy.typing import NDArray


class UserSteps(NamedTuple):
    """Noisy steps of one client's training, each on a Poisson batch.

    Attributes:
        noise_multiplier: standard deviation over the norm to which each example's gradient is clipped.
        sampling_rate: q, the probability of each example to be in a batch.
        steps: their number.
        users: of how many users the client has examples.
    """

    noise_multiplier: float
    sampling_rate: float
    steps: int
    users: int


class UserDpSgd(DpSgd):
    """Train with DP-SGD whose unit of protection is a user: all examples of one person.

    Example-level sampling (Charles et al., Fine-tuning large language models with user-level differential privacy,
    2024, Section 3.1): before a round, a client chooses at most `records_per_user` of each user's examples, at random;
    the others take no part in it. A batch holds each chosen example with probability `rate`, each gradient is clipped,
    and noise is added. A user moves a step by a binomial number of clipped gradients, and the price is that of this
    mixture of Gaussians, far below that of the group-privacy theorem. All clients have the same rate and the same
    number of steps, so that a user with examples at several clients pays for as many as `clients_per_user` of them.

    The client enforces `records_per_user`. `clients_per_user` is enforced where the recipe splits the data, by
    `std.by_user`; with data at sites nobody sees it, and the promise rests on the sites' word.
    """

    class Options(StepOptions):
        """With what a user may contribute."""

        rate: float = Field(0.1, gt=0, le=1, description="q, the share of the chosen examples that a batch has")
        records_per_user: int = Field(
            ge=1, le=100, strict=True, description="k, examples of a user that a client trains on in a round, at most"
        )
        clients_per_user: int = Field(
            1, ge=1, strict=True, description="m, clients that may have examples of one user"
        )

    # -- what takes part -----------------------------------------------------------------------------------------------

    def examples(self, client: Client) -> Examples:
        """At most k examples of each user, drawn anew for a round.

        Raises:
            SetupError: the data do not say whose an example is.
        """
        users = self._users(client)
        order = uniform_source(self.options.source, client.rng(self, "bound")).permutation(len(users))
        return client.data.train.take(np.sort(order[first_of_each(users[order], self.options.records_per_user)]))

    def _users(self, client: Client) -> NDArray[np.int64]:
        users = client.data.train.users
        if users is None:
            raise SetupError(
                f"{self.name} needs to know whose each example is, and the data of client {client.client_id} do not "
                "say; name the column with user in a table, give train_users with the arrays, put the data set into "
                "std.simulated_users, or protect single records with baselines.dp_sgd"
            )
        return users

    # -- the account ---------------------------------------------------------------------------------------------------

    @property
    def account(self) -> Account:  # type: ignore[override]
        """Of users, with the bounds that it rests on."""
        most, where = self.options.records_per_user, self.options.clients_per_user
        apart = "one client" if where == 1 else f"{where} clients"
        return Account(
            level="user",
            release=UserSteps,
            unit=f"all examples of one user, added or removed; at most {most} a client and round, at {apart} at most",
            trust="local: the noise is added at the client, during training",
            covers="the update of every round, for every party; not scores, ballots, batch-norm statistics or metrics, "
            "nor how many examples and users a client has, which all may know; where sites hold the data, on their "
            "word that no user is at more clients",
        )

    def round_release(self, client: Client, facts: Facts) -> UserSteps:  # type: ignore[override]
        """The noisy steps of one round of this client, and of how many users it has examples."""
        return UserSteps(*self._steps(facts.rounds), len(np.unique(self._users(client))))

    def _steps(self, rounds: int) -> tuple[float, float, int]:
        """Multiplier, rate and steps of a round, which are those of all clients."""
        options = self.options
        steps = options.epochs * math.ceil(1 / options.rate)
        sigma = options.noise_multiplier
        if sigma is None:  # validation leaves neither epsilon nor delta None here
            bounds = options.records_per_user, steps * rounds * options.clients_per_user
            sigma = _multiplier(options.epsilon or math.nan, options.delta or math.nan, options.rate, *bounds)
        return sigma, options.rate, steps

    def release_problem(self, release: UserSteps) -> str:  # type: ignore[override]
        """Rate and steps, and noise that the recipe gives, must be those of the recipe; users are a number above 0."""
        options = self.options
        stated, (sigma, rate, steps, users) = options.noise_multiplier, release
        expected = options.rate, options.epochs * math.ceil(1 / options.rate)
        if (rate, steps) != expected or (stated is not None and sigma != stated):
            return f"{release} must have sampling_rate={expected[0]:g}, steps={expected[1]:g} and the recipe's noise"
        return "" if users >= 1 and users == int(users) else f"users={users:g} must be a whole number, 1 or more"

    def units(self, release: UserSteps) -> float:  # type: ignore[override]
        """The number of users."""
        return float(release.users)

    def epsilon_of(self, releases: Sequence[UserSteps], delta: float) -> dict[str, float]:  # type: ignore[override]
        """Epsilon of one user at as many clients as the options allow, each of which has released this.

        Noise of a reproducible source protects nobody: epsilon is infinite.
        """
        options = self.options
        if options.source == "reproducible" and releases:
            return {"epsilon_pld": math.inf}
        counts: collections.Counter[tuple[float, float]] = collections.Counter()
        for sigma, rate, steps, _ in releases:
            counts[sigma, rate] += int(steps) * options.clients_per_user
        return {"epsilon_pld": _epsilon(tuple(sorted(counts.items())), options.records_per_user, delta)}

    # -- description ---------------------------------------------------------------------------------------------------

    def learns(self, facts: Facts) -> Learns:
        """As of DP-SGD; a batch is a share of the examples, whose number is the client's."""
        options = self.options
        return Learns(
            descends=facts.descends, lr=options.lr, momentum=options.momentum,
            noise=0.0 if options.noise_multiplier == 0 else None, repeats=options.source == "reproducible",
        )  # fmt: skip

    def one_batch(self, client: Client, facts: Facts, batch_size: int) -> Self:
        """One step on all examples that take part, with the noise of a step of the round."""
        once = {"epochs": 1, "rate": 1.0, "momentum": 0.0, "noise_multiplier": self._steps(facts.rounds)[0]}
        return self.varied(options=self.options.model_copy(update=once | {"epsilon": None, "delta": None}))

    def check(self, recipe: Recipe) -> list[str]:
        """Whether the split keeps users at as few clients as the price counts."""
        partition, most = recipe.data.partition, min(self.options.clients_per_user, recipe.clients)
        if partition is None:  # with data at sites
            return []
        there = recipe.clients
        if partition.use == "std.by_user":
            there = min(partition.options.clients_per_user, recipe.clients)
        if there <= most:
            return []
        spread = f"{partition.use} may put the examples of a user at {there} clients, and the price counts {most}"
        return [
            f"clients_per_user={self.options.clients_per_user}: {spread}; write partition: {{use: std.by_user, "
            f"clients_per_user: {most}}}, or clients_per_user: {there}"
        ]

    def describe(self) -> str:
        """One line for the plan of the run."""
        options = self.options
        return (
            f"DP-SGD, user level: {options.amount}, at most {options.records_per_user} examples of a user at each of "
            f"{options.clients_per_user} clients, gradients clipped to {options.clipping_norm:g}, {options.source} "
            f"source; {options.epochs} epochs of batches of {options.rate:g} of the examples, lr {options.lr:g}"
        )


def first_of_each(users: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """The places of the first `most` examples of each user, ascending."""
    order = np.argsort(users, kind="stable")
    begins = np.flatnonzero(np.diff(users[order], prepend=-1))  # users are numbers from 0
    place = np.arange(len(users)) - np.repeat(begins, np.diff(np.append(begins, len(users))))
    return np.sort(order[place < most])


@functools.lru_cache(maxsize=1024)
def _epsilon(counts: tuple[tuple[tuple[float, float], int], ...], records: int, delta: float) -> float:
    """Epsilon of a user with this many records, of ((multiplier, rate), steps)."""
    kinds: list[tuple[Release, int]] = []
    for (sigma, rate), steps in counts:
        if sigma < _LEAST:
            return math.inf
        kinds.append((Group(sigma, rate, records) if rate < 1 else Gaussian(sigma / records), steps))
    return epsilon_of(kinds, delta) if kinds else 0.0


@functools.cache
def _multiplier(epsilon: float, delta: float, rate: float, records: int, steps: int) -> float:
    """The noise multiplier with which so many steps cost a user epsilon."""
    high = 1.0
    while (found := _epsilon((((high, rate), steps),), records, delta)) > epsilon:
        high *= 2
    low = high / 2 if found > 0 and high > 1 else _LEAST
    holds = functools.partial(_holds, epsilon, delta, rate, records, steps)
    return math.ceil(first_that_holds(holds, low, high) * _DIGITS) / _DIGITS


def _holds(epsilon: float, delta: float, rate: float, records: int, steps: int, multiplier: float) -> bool:
    rounded = math.ceil(multiplier * _DIGITS) / _DIGITS
    return _epsilon((((rounded, rate), steps),), records, delta) <= epsilon


_LEAST, _DIGITS = 1e-2, 1e4
"""The least noise that counts as any, and the steps in which it is found."""
