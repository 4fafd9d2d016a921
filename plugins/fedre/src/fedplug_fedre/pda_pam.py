"""PDA-PAM, FedRE's aggregation: layers of sensitive, noisy models count less (Sec. 3.2.3, Alg. 1, lines 11 and 12)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import fedplug
import numpy as np
from fedplug import (
    Block,
    Cohort,
    Examples,
    Facts,
    Field,
    Known,
    Look,
    Negotiation,
    Operations,
    Reveals,
    Server,
    Wants,
    WeightedSum,
    stream,
)
from fedplug.api.errors import DataError, ProtectionError

from fedplug_fedre.jacobian import PROJECTIONS, psi_scores
from fedplug_fedre.preferences import Preference
from fedplug_fedre.samples import sensitive

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Shares = dict[int, tuple[NDArray[np.float64], NDArray[np.float64]]]

_LARGEST = 1e12
"""Largest weight of eq. 11 that is still used. With a larger one, float32 loses the other clients' values."""
_LEAST = 1e-12
"""Least weight of a client, in place of one that rounds to 0."""
_SHOWN = 200
"""Most layers that a picture can show."""


class PdaPam(fedplug.Aggregator):
    """Average the clients' updates; layers whose gradients reveal less about the region count more (FedRE, PDA-PAM).

    For every client the server adds the update, as far as it can read it, to the global model, and scores each layer
    with the PSI score on public examples. alpha-hat of eq. 10 is the softmax of a layer's scores over the clients.
    Eq. 11 weights client k by 1 / (K alpha-hat_k). These factors favour low scores, as intended, but add up to K or
    more: with equal scores the step is the sum of all updates. By default they are normalised, which gives the softmax
    of the negative scores. `as_published` takes them as printed.

    A layer's weights are over the clients that send some of it in the clear. Where nothing can be scored all clients
    weigh the same: in zones that arrive encrypted, without public examples, and for layers with a score that is not
    finite.

    The weights follow from values that the server sees anyway and from public data, so the clients' noise covers them.
    They differ from client to client, so a sum may have almost only one client's noise. So no sum earns credit for the
    noise of others.
    """

    wants = Wants(model=True, positions=True)

    class Options(fedplug.Options):
        """What to score, how, and how scores become weights."""

        preference: Preference | None = Field(
            None,
            description="the sensitive regions of the public examples; null: the fields they mark, or whole images",
        )
        samples: int = Field(
            10, ge=1, description="number of public examples with a sensitive region over which scores are averaged"
        )
        method: Literal["auto", "exact", "projections"] = Field(
            "auto", description="of the Jacobian's norms: exact, estimated by random projections, or the cheaper one"
        )
        projections: int = Field(PROJECTIONS, ge=2, description="random projections per layer and example")
        weighting: Literal["normalised", "as_published"] = Field(
            "normalised", json_schema_extra={"renamed": {"literal": "as_published"}},
            description="1 / alpha-hat, normalised over the clients; or eq. 11 as printed, which adds up to more",
        )  # fmt: skip
        standardise: bool = Field(
            False, description="bring each layer's scores to mean 0 and deviation 1 over the clients before the softmax"
        )

    options: Options

    def check(self, recipe: Any) -> list[str]:
        """The server has no folder of preferences."""
        complaints = []
        if self.options.preference is not None and self.options.preference.in_file:
            complaints.append(
                f"preference: {self.options.preference.marks} names a file in a client's folder, which the server does "
                "not have; write a box, kinds or fields"
            )
        return complaints

    def setup(self, cohort: Cohort, key_server: Any, facts: Facts) -> None:
        """Refuses public examples that cannot be scored, before anything is trained.

        Raises:
            DataError: they have no labels, or the preference does not fit them.
        """
        if facts.public is None:
            return
        answers, classes = facts.public.examples.answers, len(facts.public.classes)
        wrong = answers[(answers < 0) | (answers >= classes)]
        if len(wrong):
            raise DataError(
                f"{len(wrong)} labels of the public examples are none of 0 to {classes - 1}, such as {wrong[0]}; "
                "without labels there is no gradient to score: label the public set, or leave it out"
            )
        self._task(cohort.server, facts)

    def aggregate(self, known: Known, facts: Facts) -> Operations:
        """Alg. 1, lines 11 and 12, for one zone. If it arrives encrypted, nothing is scored and all weigh the same."""
        if known.closed:
            return WeightedSum(), Look(self._tell_unscored)
        return (WeightedSum(by=self.weigh),)

    def weigh(self, blocks: Mapping[int, Block], server: Server, facts: Facts) -> Shares:
        """The weight of each client's update in each layer, and its addition to the divisor (eqs. 10 and 11).

        Raises:
            ProtectionError: values of another zone are not valid, and their client is blamed; or float32 cannot hold
                the weights of eq. 11.
        """
        layers, options = facts.layout.layers, self.options
        zone, scores = next(iter(blocks.values())).zone, np.full((len(blocks), len(layers)), np.nan)
        if facts.public is not None:
            scores = np.array([self._scores(client_id, server, facts) for client_id in blocks])  # S_l(w^k; D)
        numbers = np.arange(len(layers))
        layer = facts.layout.per_scalar(numbers)  # of each position
        shows = np.array([np.isin(numbers, layer[block.positions]) for block in blocks.values()])
        factors, shares = layer_weights(scores, shows, options.weighting, options.standardise)  # eq. 10
        if factors.max(initial=0.0) > _LARGEST:
            worst = layers[int(factors.max(0).argmax())]
            raise ProtectionError(
                f"eq. 11 counts an update of layer {worst} {factors.max():.1e} times: the scores differ too much; "
                f"write weighting: normalised, or standardise: true, in {self.name}"
            )
        self._tell(server, facts, zone, min(blocks), np.where(shows & np.isfinite(scores), factors, np.nan))
        return dict(zip(blocks, zip(factors, shares, strict=True), strict=True))

    def _scores(self, client_id: int, server: Server, facts: Facts) -> NDArray[np.float64]:
        """S_l(w^k; D) of eq. 10, (L,), for the client's model as far as the server can read it; once a round."""
        public = facts.public
        assert public is not None, "only called where there are public examples"
        known = self._of_round(server, facts)["scores"]
        if client_id not in known:
            if server.model is None or server.vector is None:
                raise ProtectionError(f"{self.name} scores models at the server, and there is none")
            vector = server.vector.copy()
            for block in server.uploads[client_id].values():
                if block.values is not None:
                    _require_usable(client_id, block, facts.layout.size)
                    vector[block.positions] += block.plain()
            examples, regions = self._task(server, facts)
            seed = int(stream(facts.seed, self.name, "projections", facts.round).integers(2**63))
            with server.operation(f"{self.name}.score", len(examples)):
                known[client_id] = psi_scores(
                    server.model, examples, regions, public, method=self.options.method,
                    projections=self.options.projections, seed=seed, vector=vector, batch_norm="examples",
                ).mean  # fmt: skip
        found: NDArray[np.float64] = known[client_id]
        return found

    def _task(self, server: Server, facts: Facts) -> tuple[Examples, NDArray[np.bool_]]:
        """The public examples to score on, the same for every client and round, and their regions."""
        cache, public, key = server.cache, facts.public, f"{self.name}.task"
        assert public is not None, "only called where there are public examples"
        if key not in cache:
            preference = self.options.preference or Preference()
            order = stream(facts.seed, self.name, "samples").permutation(len(public.examples))
            cache[key] = sensitive(preference, public.examples, public, None, order, self.options.samples)
        task: tuple[Examples, NDArray[np.bool_]] = cache[key]
        return task

    def _of_round(self, server: Server, facts: Facts) -> dict[str, Any]:
        """Values kept from zone to zone: scores by client, and weights by zone and group."""
        kept: dict[str, Any] = server.cache.setdefault(self.name, {})
        if kept.get("round") != facts.round:
            kept.update(round=facts.round, scores={}, weights={})
        return kept

    def _tell_unscored(self, block: Block, server: Any, facts: Facts) -> None:
        self._tell(server, facts, block.zone, -1, np.full((1, len(facts.layout.layers)), np.nan))

    def _tell(
        self, server: Server, facts: Facts, zone: str, group: int, factors: NDArray[np.float64]
    ) -> None:
        """Weights for the metrics and the report: 1 is the weight in the plain mean.

        Args:
            server: keeps them.
            facts: of the round.
            zone, group: of the sum; the group is named by its first client.
            factors: (clients, L); NaN where nothing was scored, or a client shows nothing.
        """
        told = self._of_round(server, facts)["weights"]
        told[zone, group] = factors
        every = np.vstack(list(told.values()))
        scored = np.isfinite(every).any(0)
        log = server.log
        log[f"{self.name}.scored_layers"] = float(scored.mean())
        if scored.any():
            log[f"{self.name}.weight_min"] = float(np.nanmin(every))
            log[f"{self.name}.weight_max"] = float(np.nanmax(every))
            names = [layer for layer, known in zip(facts.layout.layers, scored, strict=True) if known]
            server.figures[self.name] = picture(names, every[:, scored])

    def reveals(self, facts: Facts) -> list[Reveals]:
        """Positions, and the information in the weights."""
        weighed = "they follow from public examples and from what the server sees, which noise of the clients covers"
        found = [Reveals("weights of clients", ("server",), covered_by="epsilon", note=weighed)]
        negotiations = [part for part in facts.components.values() if isinstance(part, Negotiation)]
        if any(len(part.plans.zones) != 1 for part in negotiations):
            note = "positions of all values that are not encrypted"
            found.append(Reveals("mask", ("server", "client"), note=note))
        return found

    def describe(self) -> str:
        """One line for the plan of the run."""
        options = self.options
        rule = {
            "normalised": "the softmax of minus their PSI scores",
            "as_published": "1 / (K alpha-hat) of eq. 11 (as published)",
        }[options.weighting]  # fmt: skip
        scores = "standardised scores" if options.standardise else "scores"
        return (
            f"mean with weights for each layer by {rule}, {scores} on {options.samples} public examples; alike in "
            "zones that are encrypted, or without public examples"
        )


def layer_weights(
    scores: NDArray[np.float64], shows: NDArray[np.bool_], weighting: str = "normalised", standardise: bool = False
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Eq. 10 and the weights of eq. 11, layer by layer over those clients that send some of it in the clear.

    Args:
        scores: S_l of each client's model, (K, L). In a layer with a score that is not finite all clients count alike.
        shows: which clients send values of which layers in the clear, (K, L).
        weighting: `normalised`, to softmax(-S); or `as_published`, 1 / alpha-hat unchanged.
        standardise: first to mean 0 and deviation 1 over the clients.

    Returns:
        For each client and layer, the factor of its update and the addition to the divisor of the sum. Both are 1 where
        all weigh alike, so that the sum over the divisor is sum over k of softmax(-S)_k u_k or, by eq. 11, sum over k
        of u_k / (K alpha-hat_k).
    """
    count = shows.sum(0)
    scored = np.isfinite(np.where(shows, scores, 0.0)).all(0)
    known = np.where(shows & scored, scores, 0.0)
    if standardise:
        mean = known.sum(0) / np.maximum(count, 1)
        deviation = np.sqrt(np.where(shows, np.square(known - mean), 0.0).sum(0) / np.maximum(count, 1))
        known = (known - mean) / np.where(deviation > 0, deviation, 1.0)
    if weighting == "as_published":
        high = np.where(shows, known, -np.inf).max(0, initial=-np.inf)
        with np.errstate(over="ignore", invalid="ignore"):
            total = np.where(shows, np.exp(known - high), 0.0).sum(0)
            inverse = np.where(shows, total * np.exp(high - known), 0.0)  # 1 / alpha-hat
        return np.where(scored, inverse, shows), shows.astype(np.float64)
    low = np.where(shows, known, np.inf).min(0, initial=np.inf)
    with np.errstate(invalid="ignore"):
        powers = np.where(shows, np.exp(low - known), 0.0)
    # Never quite 0: a position that only one client sends moves by that client's value.
    factors = np.where(shows, np.maximum(powers * (count / np.maximum(powers.sum(0), 1.0)), _LEAST), 0.0)
    return factors, factors


def picture(layers: list[str], factors: NDArray[np.float64]) -> dict[str, Any]:
    """The clients' weights in each layer, as `fedplug_lab.pictures` describes it.

    Args:
        layers: names, (L,).
        factors: (K, L), each column with a number; NaN where a client has no weight.
    """
    boxes = np.nanquantile(factors[:, :_SHOWN], (0, 0.25, 0.5, 0.75, 1), axis=0).T.tolist()
    note = "1 is the weight of the mean; low scores on public examples weigh more."
    panel = {"labels": layers[:_SHOWN], "boxes": boxes}
    return {"kind": "box", "title": "PDA-PAM weights of the clients, by layer", "note": note, "panels": [panel]}


def _require_usable(client_id: int, block: Block, size: int) -> None:
    """Blames a client whose values cannot be put on the model. Zones that are summed later are not checked yet.

    Raises:
        ProtectionError: positions are not ascending, or beyond the model, or values are not finite.
    """
    where, problem = block.positions, ""
    if where is None or where.dtype != np.uint32 or (where[1:] <= where[:-1]).any() or (where >= size).any():
        problem = f"positions that are not uint32, strictly ascending and below {size}"
    elif not np.isfinite(block.plain()).all():
        problem = "NaN or infinite values; its training diverged: lower lr in train"
    if problem:
        raise ProtectionError(f"client {client_id} sent {block.zone} {problem}").blame(client_id)
