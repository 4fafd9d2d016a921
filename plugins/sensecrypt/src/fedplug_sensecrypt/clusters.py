"""SenseCrypt's groups: clients whose sensitivity vectors are alike share a model (Sec. 3.1, App. G, Alg. 2)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import fedplug
import numpy as np
from fedplug import (
    Client,
    Clip,
    Cohort,
    Facts,
    Field,
    GroundTruth,
    Noise,
    Operations,
    Reads,
    Reveals,
    Server,
    at_client,
    gaussian_noise_multiplier,
)
from fedplug.api.errors import ProtectionError, TooFewClients
from fedplug_std.scores import scorer_problems
from pydantic import field_validator, model_validator

from fedplug_sensecrypt.affinity import cluster, distances, silhouette

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Clusters(fedplug.Groups, fedplug.Ballots):
    """Group clients with similar data by affinity propagation on noised sensitivity vectors (SenseCrypt, Alg. 2).

    In round 1 only, each client clips its sensitivity vector to the norm G, adds Gaussian noise and sends it. The
    server clusters the vectors, without a given number of clusters. A cluster of fewer than `min_cluster` clients joins
    the nearest one, because its opened sums would reveal too much about each member. Each cluster then has its own
    model.

    The noise hides the replacement of one client's data by any other, which moves the clipped vector by at most 2G. It
    is exact for every epsilon. The paper's formula holds for epsilon < 1 and takes G (`calibration: classical`). At
    epsilon 1 the noise drowns the vectors of every model measured here, and clusters are a matter of chance (README).
    """

    class Options(fedplug.Options):
        norm: float | None = Field(
            0.001, gt=0, allow_inf_nan=False,
            description="G, L2 norm to which vectors are clipped; below all norms that occur, so that only directions "
            "count. null: unchanged, as in Sec. 3.1 (as published), without noise",
        )  # fmt: skip
        epsilon: float | None = Field(
            1.0, gt=0, description="privacy loss of a client's vector; null: no noise",
            json_schema_extra={"remedy": "to switch the noise off, write epsilon: null"},
        )  # fmt: skip
        delta: float = Field(1e-5, gt=0, lt=1, description="failure probability that epsilon is calibrated for")
        calibration: Literal["analytic", "classical"] = Field(
            "analytic",
            description="analytic: exact, for sensitivity 2G; classical: sqrt(2 ln(1.25/delta)) G / epsilon (as "
            "published)",
        )
        source: Literal["secure", "reproducible"] = Field(
            "secure", description="secure: noise from the system's randomness; reproducible: from the recipe's seed"
        )
        similarity: Literal["negative_squared_distance", "distance"] = Field(
            "negative_squared_distance",
            description="quantity that affinity propagation maximises; distance, as published, groups unlike clients",
        )
        damping: float = Field(0.5, ge=0.5, lt=1, description="of affinity propagation")
        min_cluster: int = Field(3, description="smaller clusters join the nearest one; 3 or more")
        by: str | None = Field(None, description="scorer that gives the sensitivities; the recipe's first if unset")

        @field_validator("min_cluster")
        @classmethod
        def _three_or_more(cls, value: int) -> int:
            if value < 3:
                raise ValueError(
                    f"min_cluster={value} must be 3 or more; the sum of a cluster of two shows each member the update "
                    "of the other, and that of one is an update"
                )
            return value

        @model_validator(mode="after")
        def _noise_needs_a_norm(self) -> Clusters.Options:
            if self.norm is None and self.epsilon is not None:
                raise ValueError("noise is scaled to a norm: write norm: 0.001, or epsilon: null for no noise")
            return self

    options: Options

    @property
    def reads(self) -> Reads:
        """One sensitivity per scalar."""
        return Reads(by=self.options.by, per="scalar")

    def check(self, recipe: Any) -> list[str]:
        """Sums of two clients are refused, and round 1 must include every client."""
        options = self.options
        missing = "the clusters need sensitivities; add score_parameters: [{use: sensecrypt.sensitivity}]"
        found = scorer_problems(recipe, options.by, missing)
        if recipe.clients < options.min_cluster:
            found.append(f"{recipe.clients} clients are fewer than min_cluster={options.min_cluster}; use more clients")
        if recipe.min_clients < 3:
            found.append(
                f"min_clients={recipe.min_clients} must be 3 or more with clusters: a sum of two updates shows each "
                "member the update of the other"
            )
        if recipe.sampling is not None:
            found.append("clusters are formed once, in round 1, and need every client then; remove sampling")
        return found

    def stddev(self) -> float:
        """sigma G of Alg. 2, line 3: the noise of each entry, in units of the sensitivities; 0 without noise."""
        options = self.options
        if options.epsilon is None or options.norm is None:
            return 0.0
        if options.calibration == "classical":
            return math.sqrt(2 * math.log(1.25 / options.delta)) / options.epsilon * options.norm
        return 2 * options.norm * gaussian_noise_multiplier(options.epsilon, options.delta)

    def form_groups(self, cohort: Cohort, facts: Facts) -> None:
        """Alg. 1, line 3, and Alg. 2, lines 5 to 10: vectors in, clusters out; in round 1 only."""
        if facts.round > 0:
            return
        vectors, problem = cohort.ask(self.vector), ""
        for client_id, vector in list(vectors.items()):
            if problem := vector_problem(vector, facts.layout.size):
                cohort.drop(client_id, problem)
                del vectors[client_id]
        if not vectors:
            raise TooFewClients(
                f"no client sent sensitivities to cluster ({problem or 'no answer'}); the scorer must give one a "
                "scalar, as sensecrypt.sensitivity does"
            )
        options, present = self.options, list(vectors)
        apart = distances([vectors.pop(client_id) for client_id in present])
        found = cluster(
            apart, options.min_cluster, as_published=options.similarity == "distance", damping=options.damping,
            seed=facts.seed,
        )  # fmt: skip
        members = [[present[index] for index in np.flatnonzero(found.labels == label)] for label in range(found.count)]
        # A client that sent no valid vector must share some model: that of the largest cluster.
        absent = sorted(set(range(facts.num_clients)) - set(present))
        max(members, key=len).extend(absent)
        cohort.regroup({f"cluster-{number}": ids for number, ids in enumerate(members, start=1)})
        numbers = {
            "clusters": float(found.count),
            "clusters_before_merging": float(found.before_merging),
            "converged": float(found.converged),
            "unclustered_clients": float(len(absent)),
        }
        cohesion = silhouette(apart, found.labels)
        if cohesion is not None:
            numbers["silhouette"] = cohesion
        cohort.server.memory(self)["facts"] = numbers
        cohort.server.log.update({f"{self.name}.{key}": value for key, value in numbers.items()})

    @at_client
    def vector(self, client: Client) -> NDArray[np.float32]:
        """Alg. 2, lines 1 to 4: this client's sensitivities, clipped and noised; once in a run."""
        memory, options = client.memory(self), self.options
        if client.facts.round > 0 or memory.get("sent"):
            raise ProtectionError(
                f"client {client.client_id} sends its sensitivities once, in round 1; from more of them the noise "
                "could be averaged away"
            )
        memory["sent"] = True
        gamma = client.scores_by(options.by)
        if self.stddev() > 0:
            return client.release(self, gamma)
        clipped = clip(gamma, math.inf if options.norm is None else options.norm)
        client.log[f"{self.name}.clipped"] = float(clipped is not gamma)
        return clipped

    # -- its cost and what it reveals ----------------------------------------------------------------------------------

    def ballots(self, facts: Facts) -> Operations:
        """The vectors of round 1: clipped to G, then noised. Without noise they have no cost that can be counted."""
        options, std = self.options, self.stddev()
        if facts.round > 0 or std == 0 or options.norm is None:
            return ()
        note = "sensitivity vectors, sent once"
        as_published = options.calibration == "classical"
        if as_published:
            note += "; the classical formula for sensitivity G, which a replaced client exceeds twofold"
        return (
            Clip(options.norm),
            Noise.gaussian(
                std, source=options.source, as_published=as_published, note=note, calibrated_delta=options.delta
            ),
        )  # fmt: skip

    def reveals(self, facts: Facts) -> list[Reveals]:
        """Which parties see the vectors and the clusters."""
        if self.stddev() > 0:
            paid, groups = "sent once, clipped and noised", "they follow from noised vectors"
            return [
                Reveals(
                    "noised sensitivity vectors", ("server",), covered_by="epsilon", asked=("vector",), note=paid
                ),
                Reveals("clusters", ("server", "client"), covered_by="epsilon", note=groups),
            ]
        # Some vectors name every class that a client has. Hiding other values from the server does not help.
        shown = (
            "|w * gradient| of each client, by name and without noise, which tells the classes of its data; write "
            "groups: {epsilon: 1} to add noise"
        )
        return [
            Reveals("sensitivity vectors", ("server",), asked=("vector",), voids=True, note=shown),
            Reveals("clusters", ("server", "client"), note="which clients have like data"),
        ]

    def assess(self, server: Server, truth: GroundTruth) -> dict[str, float]:
        """Statistics of round 1 and, where the true categories are known, the adjusted Rand index (Eq. 11)."""
        groups = server.groups
        numbers: dict[str, float] = dict(server.memory(self).get("facts", {}))
        if truth.categories is not None and groups:
            from sklearn.metrics import adjusted_rand_score

            label = {client_id: number for number, ids in enumerate(groups.values()) for client_id in ids}
            found = [label[client_id] for client_id in range(len(truth.categories))]
            numbers["adjusted_rand_index"] = float(adjusted_rand_score(truth.categories, found))
        return numbers

    def describe(self) -> str:
        """One line for the plan of the run."""
        options = self.options
        bound = "" if options.norm is None else f" clipped to {options.norm:g}"
        noise = "without noise"
        if options.epsilon is not None:
            noise = f"noise for epsilon {options.epsilon:g}, delta {options.delta:g}, {options.source} source"
            noise += " (classical formula, as published)" if options.calibration == "classical" else ""
        sign = " on +distance (as published)" if options.similarity == "distance" else ""
        return (
            f"affinity propagation{sign} in round 1 on sensitivities{bound}, {noise}; {options.min_cluster} clients or "
            "more a cluster"
        )


def clip(gamma: NDArray[np.float32], norm: float) -> NDArray[np.float32]:
    """Gamma / max(1, |Gamma| / G), Alg. 2, line 2; never longer than `norm`, rounding included.

    Raises:
        ProtectionError: a sensitivity is NaN or infinite.
    """
    length = float(np.linalg.norm(gamma.astype(np.float64)))
    if not math.isfinite(length):
        raise ProtectionError("a sensitivity is NaN or infinite: the local training diverged; lower lr in train")
    if length <= norm:
        return gamma
    # A little less than the norm, so that rounding to float32 does not lift the vector over it.
    clipped: NDArray[np.float32] = (gamma * (norm / length * (1 - 2.0**-22))).astype(np.float32)
    return clipped


def vector_problem(vector: Any, size: int) -> str:
    """Why a client's vector is not valid; empty if it is."""
    if not isinstance(vector, np.ndarray) or vector.dtype != np.float32 or vector.shape != (size,):
        kind = f"{vector.dtype}{list(vector.shape)}" if isinstance(vector, np.ndarray) else type(vector).__name__
        return f"its sensitivity vector is {kind}, which must be float32[{size}]"
    return "" if np.isfinite(vector).all() else "its sensitivity vector holds NaN or infinite values"
