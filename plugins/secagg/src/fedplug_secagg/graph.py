"""Which clients mask with each other: random k-regular graphs (SecAgg+), with k and t from failure probabilities.

Bell, Bonawitz, Gascón, Lepoint and Raykova, "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead" (CCS
2020, ePrint 2020/704). Clients are put on a ring in random order. The neighbours of each are the k / 2 before it and
the k / 2 behind it (a Harary graph). Of n clients, C = floor(gamma n) are corrupt and D = floor(delta n) drop out, all
chosen without knowledge of the order. Three events must hold:

    E1    no client has t or more corrupt neighbours, which could open its secrets
    E2    the graph of honest clients that stay is connected, so that only their whole sum can be unmasked
    E3    every client keeps t or more neighbours, so that its secrets can be opened

A protocol is secure if E1 and E2 hold but for a probability of 2^-sigma, and correct if E3 holds but for 2^-eta. Union
bounds over the random order:

    not E1    n * P[Hypergeometric(n - 1, C, k) >= t]
    not E2    pairs of gaps * P[the k clients in them are all corrupt or gone]
              = n (n - k - 1) / 2 * binomial(n - k, C + D - k) / binomial(n, C + D)
    not E3    sum over clients of P[Hypergeometric(n - 1, neighbours that stay, k) < t]

A Harary graph falls apart only if k / 2 successive clients are missing at two places of the ring. Exponential bounds of
these tails give k = O(log n). Here the exact tails are computed, as in the code of the authors' group
(google-parfait/federated-compute, fcp/secagg/server/graph_parameter_finder.cc), for all even k from below. That code
allots 2^-sigma evenly to E1 and E2. Here their sum counts, so a degree is up to 2.5% smaller.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from fedplug.api.errors import ProtectionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

SIGMA, ETA = 40.0, 30.0
"""Statistical security and correctness in bits."""


# -- the graph ---------------------------------------------------------------------------------------------------------


def draw(client_ids: Sequence[int], degree: int, seed: bytes) -> dict[int, tuple[int, ...]]:
    """The neighbours of each client, in rising order; symmetric.

    All parties compute the same from the same arguments. The seed must not be known before it is settled which clients
    are corrupt, and no party may choose it.

    Args:
        client_ids: the clients, in any order.
        degree: k; from n - 1 on the graph is complete. A smaller degree must be even.
        seed: 32 public bytes.

    Raises:
        ProtectionError: no such graph exists.
    """
    ids = sorted(set(client_ids))
    if len(ids) < len(client_ids):
        raise ProtectionError("a client is named twice; a graph has each once")
    if degree >= len(ids) - 1:
        return {each: tuple(other for other in ids if other != each) for each in ids}
    if degree < 2 or degree % 2:
        raise ProtectionError(
            f"degree={degree} must be even and >= 2: half the neighbours are on either side of a ring"
        )
    stream = Cipher(algorithms.AES256(seed), modes.CTR(bytes(16))).encryptor()
    ring = np.array(ids)[np.argsort(np.frombuffer(stream.update(bytes(8 * len(ids))), "<u8"), kind="stable")]
    away = np.concatenate([np.arange(-(degree // 2), 0), np.arange(1, degree // 2 + 1)])
    table = np.sort(ring[(np.arange(len(ids))[:, None] + away) % len(ids)], axis=1)
    return dict(sorted(zip(ring.tolist(), map(tuple, table.tolist()), strict=True)))


# -- its parameters ----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Parameters:
    """A graph's degree and the threshold of shares, with the remaining failure probabilities.

    Attributes:
        clients: n.
        degree: k; n - 1 means the complete graph.
        threshold: t, of the k shares that a client deals to its neighbours.
        log2_insecure: log2 of the bound of P[not E1 or not E2]; -inf where it cannot happen.
        log2_incorrect: log2 of the bound of P[not E3].
    """

    clients: int
    degree: int
    threshold: int
    log2_insecure: float
    log2_incorrect: float

    def describe(self) -> str:
        """All of it in one line."""
        some = f"{self.degree} of {self.clients - 1} others, whom the server names"
        graph = "all others" if self.degree == self.clients - 1 else some
        return (
            f"masks with {graph}, {self.threshold} shares open; insecure {_chance(self.log2_insecure)}, "
            f"stuck {_chance(self.log2_incorrect)}"
        )


def _chance(log2: float) -> str:
    return "never" if log2 == -math.inf else f"with at most 2^{math.ceil(10 * log2) / 10:.1f}"


@functools.lru_cache(maxsize=64)
def smallest(
    clients: int,
    corrupt: float,
    dropped: float,
    sigma: float = SIGMA,
    eta: float = ETA,
) -> Parameters:
    """The smallest degree that is secure and correct, with its smallest threshold. If none is, the complete graph.

    Args:
        clients: n.
        corrupt: gamma, the share of clients that collude with the server.
        dropped: delta, the share that may drop out in a round.
        sigma: statistical security in bits.
        eta: correctness in bits.

    Raises:
        ProtectionError: a share is out of range, or too many clients are corrupt and gone for any threshold.
    """
    for name, share in (("corrupt", corrupt), ("dropped", dropped)):
        if not 0 <= share < 1:
            raise ProtectionError(f"{name}={share} must be a share of the clients, >= 0 and < 1")
    if clients < 3:
        raise ProtectionError(f"{clients} clients cannot hide in a sum with shares; there must be 3 or more")
    # A share such as 0.29 of 100 clients is slightly below 29 in binary.
    bad, gone = (math.floor(share * clients + 1e-9) for share in (corrupt, dropped))
    if clients - bad - gone < 2:
        raise ProtectionError(
            f"of {clients} clients {bad} may be corrupt and {gone} gone: fewer than two honest ones are left, so there "
            "is no sum to hide in; lower corrupt or dropped"
        )
    for degree in range(_first_connected(clients, bad + gone, sigma), clients - 1, 2):
        if found := _with_degree(clients, bad, gone, degree, sigma, eta):
            return found
    if found := _with_degree(clients, bad, gone, clients - 1, sigma, eta):
        return found
    raise ProtectionError(
        f"no threshold t of {clients - 1} shares is secure and correct: t >= {max(2, bad + 1)} with {bad} corrupt "
        f"clients, and t <= {clients - gone - 1}, the neighbours left of a client when {gone} are gone; lower corrupt "
        "or dropped"
    )


def _with_degree(clients: int, bad: int, gone: int, degree: int, sigma: float, eta: float) -> Parameters | None:
    apart = _disconnected(clients, bad + gone, degree)
    # By threshold, 0 to k + 1.
    opened = math.log(clients) + _at_least(clients - 1, bad, degree)
    insecure = np.minimum(np.logaddexp(opened, apart), 0.0) / math.log(2)
    # A client that stays has one fewer neighbour to choose among those that stay.
    stuck = math.log(clients - gone) + _below(clients - 1, clients - gone - 1, degree)
    if gone:
        stuck = np.logaddexp(stuck, math.log(gone) + _below(clients - 1, clients - gone, degree))
    incorrect = np.minimum(stuck, 0.0) / math.log(2)
    # From t = 2, because a single share would be the secret.
    fits = np.flatnonzero((insecure <= -sigma) & (incorrect <= -eta) & (np.arange(degree + 2) >= 2))
    fits = fits[fits <= degree]
    if not fits.size:
        return None
    threshold = int(fits[0])
    return Parameters(clients, degree, threshold, float(insecure[threshold]), float(incorrect[threshold]))


def _disconnected(clients: int, missing: int, degree: int) -> float:
    """Log of the bound of P[not E2]."""
    if degree > missing or degree >= clients - 1:
        return -math.inf
    pairs = math.log(clients) + math.log(clients - degree - 1) - math.log(2)
    return pairs + float(_falling(missing, degree)[degree] - _falling(clients, degree)[degree])


def _first_connected(clients: int, missing: int, sigma: float) -> int:
    """The smallest even degree with which P[not E2] is within sigma. The bound falls with the degree."""
    degrees = itertools.count(2, 2)
    return next(degree for degree in degrees if _disconnected(clients, missing, degree) <= -sigma * math.log(2))


def _at_least(population: int, marked: int, draws: int) -> NDArray[np.float64]:
    """Log of P[Hypergeometric >= x] for x = 0 to draws + 1."""
    tails = np.logaddexp.accumulate(_log_chances(population, marked, draws)[::-1])[::-1]
    return np.append(np.minimum(tails, 0.0), -np.inf)


def _below(population: int, marked: int, draws: int) -> NDArray[np.float64]:
    """Log of P[Hypergeometric < x] for x = 0 to draws + 1."""
    tails = np.logaddexp.accumulate(_log_chances(population, marked, draws))
    return np.insert(np.minimum(tails, 0.0), 0, -np.inf)


def _log_chances(population: int, marked: int, draws: int) -> NDArray[np.float64]:
    """Log of P[x of the draws are marked], without replacement, for x = 0 to draws."""
    # binomial(draws, x) * marked falling x * unmarked falling (draws - x) / population falling draws
    ways = _falling(draws, draws)[draws] - _log_factorials(draws) - _log_factorials(draws)[::-1]
    found: NDArray[np.float64] = (
        ways + _falling(marked, draws) + _falling(population - marked, draws)[::-1] - _falling(population, draws)[draws]
    )
    return found


def _log_factorials(count: int) -> NDArray[np.float64]:
    """Log of 0! to count!."""
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, count + 1)))])


def _falling(value: int, count: int) -> NDArray[np.float64]:
    """Log of value (value - 1) ... with x factors, for x = 0 to count; -inf where a factor is 0."""
    factors = np.maximum(value - np.arange(count), 0).astype(np.float64)
    with np.errstate(divide="ignore"):
        return np.concatenate([[0.0], np.cumsum(np.log(factors))])
