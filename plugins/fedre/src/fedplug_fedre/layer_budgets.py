"""FedRE's perturbation: each layer clipped and noised by its own budget (Sec. 3.2.2, Alg. 1, lines 8 and 9)."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Annotated, Any, cast

import fedplug
import numpy as np
from fedplug import (
    Block,
    Client,
    Clip,
    Cohort,
    Facts,
    Field,
    Known,
    Look,
    Noise,
    Operations,
    Party,
    Reads,
    Reveals,
)
from fedplug.api.errors import ProtectionError
from fedplug_std.options import ExactSource
from fedplug_std.scores import scorer_problems
from pydantic import Discriminator, Tag

from fedplug_fedre.budget_picture import picture
from fedplug_fedre.budgets import FLOOR, Allocation, Budgets, budgets, floored, literal_limit, released_multiplier
from fedplug_fedre.layer_scores import (
    layer_of_scalars,
    scores_are_public,
    scores_of_layers,
)

if TYPE_CHECKING:
    from fedplug.api.blocks import Scores
    from numpy.typing import NDArray

OTHERS = "others"
"""Key for every layer that a mapping of norms does not name."""
Norm = Annotated[float, Field(gt=0, lt=math.inf)]
# Tested beforehand, so that a wrong number is not also reported as not being a mapping.
Norms = Annotated[
    Annotated[Norm, Tag("one")] | Annotated[dict[str, Norm], Tag("each"), Field(min_length=1)],
    Discriminator(lambda value: "each" if isinstance(value, dict) else "one"),
]


class LayerBudgets(fedplug.Protector):
    """Clip and noise each layer by its own budget. The layer most sensitive to the region gets the least (FedRE).

    Divides epsilon in inverse proportion to the PSI scores (eq. 6), clips each layer to C_l (eq. 7) and adds noise of
    standard deviation C_l sigma_l (eq. 8). epsilon and delta are for all layers and all rounds together. The unit is
    the client, since a whole update is clipped. `fedplug_fedre.budgets` has the allocations: `exact` costs exactly
    epsilon, `sum` adds budgets up and costs less, `as_published` is eq. 9 as printed, and costs more where a layer's
    budget is above 7.97.

    A layer with a score close to 0 takes almost all of epsilon by eq. 6, and leaves the others to noise. `floor` limits
    how far below the largest a score may be. The metrics count the layers that it lifts.

    Where the zone holds part of the model, the layers that have scalars in it share epsilon.

    In `sum` and `as_published`, the joint cost of the layers follows from their scores. Where these are public and the
    server knows the model of the round, the ledger states that cost afterwards. Elsewhere it states a bound for any
    scores.
    """

    class Options(fedplug.Options):
        """How much each layer may reveal."""

        epsilon: float = Field(
            gt=0,
            lt=math.inf,
            description="privacy loss of all layers and rounds together, at q=1",
            json_schema_extra={"remedy": "to switch the noise off, write noised: []"},
        )
        delta: float = Field(gt=0, lt=1, description="failure probability that epsilon is calibrated for")
        norm: Norms = Field(
            description="C_l, largest L2 norm of a layer's values; one number, or {layer: number, others: number}"
        )
        by: str | None = Field(None, description="scorer with a score for each layer; the recipe's first if unset")
        allocation: Allocation = Field(
            "exact", json_schema_extra={"renamed": {"literal": "as_published"}},
            description="exact: together (epsilon, delta); sum: eps_l add up; as_published: eq. 9 as printed",
        )  # fmt: skip
        floor: float = Field(
            FLOOR,
            gt=0,
            le=1,
            description="scores count as at least this share of the largest; a layer at 0 would take all of epsilon",
        )
        source: ExactSource = "secure"
        figure_client: int | None = Field(
            None, ge=0, description="client whose budgets and signal-to-noise the report shows; null: none"
        )

    options: Options

    @property
    def reads(self) -> Reads:
        """One score per layer. The server reads them too, because the cost follows from them."""
        return Reads(by=self.options.by, per="layer", at_server=self.options.allocation != "exact")

    def check(self, recipe: Any) -> list[str]:
        """Something must score the layers."""
        options = self.options
        missing = "layer budgets need scores; add score_parameters: [{use: fedre.psi}]"
        complaints = scorer_problems(recipe, options.by, missing)
        if (options.figure_client or 0) >= recipe.clients:
            chosen = f"figure_client={options.figure_client}"
            complaints.append(f"{chosen} must be < data.clients={recipe.clients}; clients count from 0")
        return complaints

    def setup(self, cohort: Cohort, key_server: Any, facts: Facts) -> None:
        """Refuses norms that do not fit the model, before anything is trained.

        Raises:
            ProtectionError: a layer has no norm, or a norm has no layer.
        """
        self._norms(facts)

    def protect(self, known: Known, facts: Facts) -> Operations:
        """Alg. 1, lines 8 and 9: every layer of the zone clipped to its norm, and noise by its budget.

        Each client works out its noise by its own scores. The price is an upper bound for any scores, or what public
        scores make of it.

        Raises:
            Misplaced: something clips or noises the values already.
        """
        known.before("clip", f"{self.name} clips each layer itself; leave std.clip out and write norm")
        known.before("noise", "this zone has noise already; keep one noise component in the chain")
        if not facts.layout.layers:  # before a model is known, the largest norm counts for all
            given = self.options.norm.values() if isinstance(self.options.norm, dict) else [self.options.norm]
            return Clip(max(given), per="layer"), self._noise(np.array([max(given)]), facts)
        norms = self._norms(facts)
        tell = functools.partial(self._tell, norms)
        return Clip(tuple(norms.tolist()), per="layer"), Look(tell), self._noise(norms, facts)  # eqs. 7 and 8

    def _noise(self, norms: NDArray[np.float64], facts: Facts) -> Noise:
        """The noise of a round, with the largest cost for any scores."""
        options, layers = self.options, max(1, len(facts.layout.layers))
        note = {
            "exact": "all layers together, whatever their scores",
            "sum": "a bound: budgets of layers add up to epsilon, and their noise costs less together",
            "as_published": "eq. 9 as printed: a bound, reached where one layer has all of epsilon; a layer costs "
            f"more than its eps_l where that exceeds {literal_limit(options.delta / layers):.3g}",
        }[options.allocation]
        return Noise.by(
            functools.partial(self._stds, norms, facts.rounds), reads="scores", scorer=options.by,
            at_least=released_multiplier(rounds=facts.rounds, layers=layers, **self._budget), source=options.source,
            calibrated_delta=options.delta, as_published=options.allocation == "as_published", note=note,
        )  # fmt: skip

    def _stds(
        self, norms: NDArray[np.float64], rounds: int, scores: Scores, present: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """C_l sigma_l of every layer, (L,). Those without a scalar in the zone reveal nothing, as if their noise were
        infinite.

        Raises:
            ProtectionError: the scores are not those of layers.
        """
        stds = np.full(len(norms), math.inf)
        if len(scores) != len(norms):
            raise ProtectionError(
                f"{self.name} is given {len(scores)} scores where one for each of {len(norms)} layers is needed; add "
                "{use: fedre.psi} to score_parameters and write by: fedre.psi"
            )
        stds[present] = norms[present] * self._shares(scores, present, len(norms), rounds).sigmas
        return stds

    def _shares(self, scores: Scores, present: NDArray[np.int64], layers: int, rounds: int) -> Budgets:
        """The budgets of the layers with scalars in the zone."""
        return budgets(floored(scores, self.options.floor)[present], layers=layers, rounds=rounds, **self._budget)

    @property
    def _budget(self) -> dict[str, Any]:
        """The options that `budgets` and `released_multiplier` share."""
        options = self.options
        return {"epsilon": options.epsilon, "delta": options.delta, "allocation": options.allocation}

    def _norms(self, facts: Facts) -> NDArray[np.float64]:
        """C_l of every layer of the model, (L,)."""
        layers, given = facts.layout.layers, self.options.norm
        if not isinstance(given, dict):
            return np.full(len(layers), given)
        unknown = sorted(set(given) - {*layers, OTHERS})
        missing = [] if OTHERS in given else [layer for layer in layers if layer not in given]
        if unknown or missing:
            wrong = f"names no layer: {', '.join(unknown)}" if unknown else f"leaves out: {', '.join(missing)}"
            raise ProtectionError(
                f"norm of {self.name} {wrong}; the model has the layers {', '.join(layers)}; name all of them, or some "
                f"and {OTHERS}"
            )
        return np.array([given[layer] if layer in given else given[OTHERS] for layer in layers])

    def _tell(self, norms: NDArray[np.float64], block: Block, party: Party, facts: Facts) -> None:
        """The signal-to-noise of each layer, the norm of the clipped values over that of the noise: metrics and report.
        """
        options, client = self.options, cast("Client", party)
        raw, layer = scores_of_layers(client, options.by), layer_of_scalars(block, client, facts)
        present, place = np.unique(layer, return_inverse=True)
        if not len(present):
            return
        share = self._shares(raw, present, len(norms), facts.rounds)
        client.log[f"{self.name}.floored"] = float(np.count_nonzero((floored(raw, options.floor) > raw)[present]))
        lengths = np.sqrt(np.bincount(place, np.square(block.plain(), dtype=np.float64), len(present)))
        ratios = lengths / (norms[present] * share.sigmas * np.sqrt(np.bincount(place, minlength=len(present))))
        client.log[f"{self.name}.snr_min"] = float(ratios.min())
        client.log[f"{self.name}.snr_median"] = float(np.median(ratios))
        if options.allocation == "as_published":
            limit = literal_limit(options.delta / len(facts.layout.layers))
            client.log[f"{self.name}.overspent"] = float(np.count_nonzero(share.epsilons > limit))
        if client.client_id == options.figure_client:
            names = [facts.layout.layers[number] for number in present]
            whose, zone = f"client {client.client_id}", block.zone
            client.figures[f"{self.name}-{zone}"] = picture(whose, zone, share, ratios, names)

    def reveals(self, facts: Facts) -> list[Reveals]:
        """What the noise itself reveals."""
        found = []
        if facts.bare_zones or not scores_are_public(facts, self.options.by):
            scale = "it goes by the scores, and can be estimated from an upload; epsilon does not cover them"
            found.append(Reveals("noise scale of each layer", ("server",), note=scale))
        if self.options.figure_client is not None:
            note = f"of client {self.options.figure_client}, in the clear; figure_client: null avoids it"
            found.append(Reveals("pictures of budgets and signal-to-noise", ("server",), note=note))
        return found

    def describe(self) -> str:
        """One line for the plan of the run."""
        options = self.options
        norm = f"{options.norm:g}" if isinstance(options.norm, float) else "separate norms"
        together = {
            "exact": "together over all rounds", "sum": "as a sum over layers",
            "as_published": "by eq. 9 (as published)",
        }[options.allocation]  # fmt: skip
        return (
            f"layers clipped to {norm}, Gaussian noise by PSI score: epsilon {options.epsilon:g}, delta "
            f"{options.delta:g} {together}, {options.source} source"
        )
