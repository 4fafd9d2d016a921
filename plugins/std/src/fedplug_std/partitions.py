"""Partitions of the training examples over clients: even, with skewed mixes, with a few classes each, in categories.

Every partition is complete and disjoint, gives each client at least one example, and depends only on its generator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import fedplug
import numpy as np
from fedplug import Field
from fedplug.api.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Indices: TypeAlias = "NDArray[np.int64]"

_RESAMPLES = 100  # draws of a Dirichlet partition before it is repaired instead


class Iid(fedplug.Partition):
    """Spread examples evenly and at random; sizes differ by at most one."""

    def assign(self, labels: Indices, num_clients: int, rng: np.random.Generator) -> list[Indices]:
        """For each client, the ascending indices of its examples.

        Raises:
            DataError: fewer examples than clients.
        """
        _need(len(labels), num_clients, 1)
        return [np.sort(part) for part in np.array_split(rng.permutation(len(labels)), num_clients)]


class Dirichlet(fedplug.Partition):
    """Split every class over the clients in proportions drawn from a symmetric Dirichlet distribution.

    The smaller alpha, the fewer classes a client has (Hsu, Qi & Brown 2019, arXiv:1909.06335; in the per-class form of
    Li et al. 2022, arXiv:2102.02079): alpha 0.1 gives most clients one or two classes, alpha 100 is close to iid.
    """

    class Options(fedplug.Options):
        """How skewed the split is."""

        alpha: float = Field(
            0.5, gt=0, le=1e6, description="concentration of the Dirichlet distribution; smaller is more skewed"
        )
        min_examples: int = Field(
            10, ge=1, description="fewest examples of a client; draws that give a client fewer are repeated"
        )

    def assign(self, labels: Indices, num_clients: int, rng: np.random.Generator) -> list[Indices]:
        """For each client, the ascending indices of its examples.

        Draws again until every client has `min_examples`. If 100 draws do not reach that (a small alpha with many
        clients), the last draw is repaired: the largest clients give examples to those with too few.

        Raises:
            DataError: fewer than `min_examples` examples a client.
        """
        need = self.options.min_examples
        _need(len(labels), num_clients, need)
        for _ in range(_RESAMPLES):
            parts = self._draw(labels, num_clients, rng)
            if min(map(len, parts)) >= need:
                break
        else:
            parts = _repaired(parts, need)
        return [np.sort(part) for part in parts]

    def _draw(self, labels: Indices, num_clients: int, rng: np.random.Generator) -> list[Indices]:
        owner = np.empty(len(labels), np.int64)
        for label in np.unique(labels):
            members = rng.permutation(np.flatnonzero(labels == label))
            shares = rng.dirichlet(np.full(num_clients, self.options.alpha))
            cuts = np.rint(np.cumsum(shares)[:-1] * len(members)).astype(np.int64)
            owner[members] = np.searchsorted(cuts, np.arange(len(members)), side="right")
        return [np.flatnonzero(owner == client) for client in range(num_clients)]


class ClassesPerClient(fedplug.Partition):
    """Give every client examples of k classes only; the clients that share a class split it evenly.

    The pathological split of McMahan et al. 2017 (Sec. 3), with classes instead of shards. Classes are assigned so that
    each is held by about K k / classes clients. With `others: 1` a client also has one example of every other class, as
    in SenseCrypt's attacks (Sec. 4.2, Fig. 7 and 8).
    """

    class Options(fedplug.Options):
        """How many classes."""

        k: int = Field(2, ge=1, description="classes a client holds")
        others: int = Field(0, ge=0, description="examples of each class that a client does not hold")

    def assign(self, labels: Indices, num_clients: int, rng: np.random.Generator) -> list[Indices]:
        """For each client, the ascending indices of its examples.

        Raises:
            DataError: k exceeds the number of classes, the clients together hold too few classes to cover all, a class
                has too few examples for `others`, or fewer than the clients that share it, so that one gets nothing.
        """
        _need(len(labels), num_clients, 1)
        k, others, classes = self.options.k, self.options.others, np.unique(labels)
        if k > len(classes):
            raise DataError(f"k={k} must be at most the number of classes, {len(classes)}; for all of them use std.iid")
        if num_clients * k < len(classes):
            raise DataError(
                f"{num_clients} clients with k={k} classes hold at most {num_clients * k} of {len(classes)} classes, "
                f"and some examples would have no owner; set k to at least {-(-len(classes) // num_clients)}"
            )
        holders: list[list[int]] = [[] for _ in classes]
        for client in range(num_clients):
            # The k classes held least so far, ties at random: all counts stay within one of each other.
            held = np.array([len(clients) for clients in holders])
            for position in np.lexsort((rng.random(len(classes)), held))[:k]:
                holders[position].append(client)
        parts: list[list[Indices]] = [[] for _ in range(num_clients)]
        for label, clients in zip(classes, holders, strict=True):
            members = rng.permutation(np.flatnonzero(labels == label))
            if others:
                strangers = [client for client in range(num_clients) if client not in clients]
                if len(members) < others * len(strangers) + len(clients):
                    raise DataError(
                        f"class {label} has {len(members)} examples, but others={others} gives {others} to each of "
                        f"{len(strangers)} clients and leaves fewer than one for each of {len(clients)}; lower others"
                    )
                for client in strangers:
                    given, members = members[:others], members[others:]
                    parts[client].append(given)
            for client, share in zip(clients, np.array_split(members, len(clients)), strict=True):
                parts[client].append(share)
        joined = [np.sort(np.concatenate(part)) for part in parts]
        empty = [client for client, part in enumerate(joined) if not len(part)]
        if empty:
            raise DataError(
                f"clients {empty} get no example with k={k}: their classes have fewer examples than clients that "
                "share them; use fewer clients or a larger k"
            )
        return joined


class Categories(fedplug.Partition):
    """Put the clients into equal categories that share no class; within a category the data are iid.

    The statistical heterogeneity of SenseCrypt, Sec. 4.1: with 20 clients and 4 categories, clients 0 to 4 are the
    first category. The classes are dealt out in order, so with 10 classes the first two categories have three each and
    the others two, and as many examples as these classes have.
    """

    class Options(fedplug.Options):
        """How many categories."""

        categories: int = Field(4, ge=1, description="number of equally large groups of clients, each with its own "
                                                     "classes")

    def check(self, recipe: Any) -> list[str]:
        """The clients must divide evenly."""
        try:
            self.categories(recipe.clients)
        except DataError as error:
            return [str(error)]
        return []

    def categories(self, num_clients: int) -> list[int]:
        """The category of each client, 0 to categories - 1: the first K / categories clients are category 0, and so on.

        Raises:
            DataError: the clients do not divide evenly.
        """
        count = self.options.categories
        if num_clients % count:
            divisors = [n for n in range(1, num_clients + 1) if num_clients % n == 0]
            raise DataError(
                f"{num_clients} clients do not divide into categories={count} equal ones; set categories to one of "
                f"{divisors}, or clients to {-(-num_clients // count) * count}"
            )
        return [client // (num_clients // count) for client in range(num_clients)]

    def assign(self, labels: Indices, num_clients: int, rng: np.random.Generator) -> list[Indices]:
        """For each client, the ascending indices of its examples; sizes within a category differ by at most one.

        Raises:
            DataError: the clients do not divide evenly, there are fewer classes than categories, or a category has
                fewer examples than clients.
        """
        category, classes = np.array(self.categories(num_clients)), np.unique(labels)
        count = self.options.categories
        if len(classes) < count:
            raise DataError(f"{len(classes)} classes do not give each of categories={count} one; lower categories")
        parts: list[Indices] = []
        for number, own in enumerate(np.array_split(classes, count)):
            members = rng.permutation(np.flatnonzero(np.isin(labels, own)))
            clients = int(np.count_nonzero(category == number))
            _need(len(members), clients, 1)
            parts += [np.sort(part) for part in np.array_split(members, clients)]
        return parts


class ByUser(fedplug.Partition):
    """Keep the examples of a user together: at one client, or at so many at most.

    Users are dealt to the clients at random, so that their numbers of users differ by at most one. With
    `clients_per_user` above 1 a user's examples are dealt to that many clients, evenly.
    """

    class Options(fedplug.Options):
        """How far a user's examples are spread."""

        clients_per_user: int = Field(1, ge=1, strict=True, description="at how many clients a user's examples may be")

    by = "users"

    def assign(self, labels: Indices | None, num_clients: int, rng: np.random.Generator) -> list[Indices]:
        """For each client, the ascending indices of its examples; `labels` are the users, int64 (n,). Each client is
        the first of a user, so that it has an example.

        Raises:
            DataError: the data name no users, or there are fewer users than clients.
        """
        if labels is None:
            raise DataError(
                "a partition by users needs to know whose each example is; name the column with user in a table, give "
                "train_users with the arrays, or put the data set into std.simulated_users"
            )
        users = np.unique(labels)
        if len(users) < num_clients:
            raise DataError(f"{len(users)} users are too few for {num_clients} clients; use fewer clients")
        owner = np.empty(len(labels), np.int64)
        for turn, user in enumerate(rng.permutation(users)):
            there = (turn + np.arange(min(self.options.clients_per_user, num_clients))) % num_clients
            members = rng.permutation(np.flatnonzero(labels == user))
            owner[members] = np.resize(there, len(members))
        return [np.flatnonzero(owner == client) for client in range(num_clients)]


def _need(examples: int, num_clients: int, each: int) -> None:
    if examples < num_clients * each:
        raise DataError(
            f"{examples} examples cannot give {each} to each of {num_clients} clients; use fewer clients"
            + (", a smaller min_examples" if each > 1 else "")
            + " or more data"
        )


def _repaired(parts: list[Indices], need: int) -> list[Indices]:
    """Moves examples from the largest client to each one that has fewer than `need`, until none has."""
    parts = list(parts)
    while True:
        sizes = [len(part) for part in parts]
        poor, rich = int(np.argmin(sizes)), int(np.argmax(sizes))
        if sizes[poor] >= need:
            return parts
        # Never take the giver below `need` (there are enough examples for all, so the largest has some to spare).
        moved = min(need - sizes[poor], sizes[rich] - need)
        # Evenly spaced: indices are ascending and may be sorted by class, and the giver should keep its class mix.
        taken = np.linspace(0, sizes[rich] - 1, moved).astype(np.int64)
        parts[poor] = np.concatenate([parts[poor], parts[rich][taken]])
        parts[rich] = np.delete(parts[rich], taken)
