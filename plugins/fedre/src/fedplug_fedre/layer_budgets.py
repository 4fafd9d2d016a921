"""FedRE's perturbation: each layer clipped and noised by a budget of its own (Sec. 3.2.2, Alg. 1, lines 8 and 9)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

import fedplug
import numpy as np
from fedplug import (
    Block,
    Bound,
    Client,
    Cohort,
    Context,
    Effects,
    Field,
    Known,
    Noise,
    Reads,
    Reveals,
    hookimpl,
)
from fedplug.api.errors import ProtectionError
from fedplug_std.noise_sources import add_noise, check_exact, default_grid, exact_slack
from fedplug_std.scores import unknown_scorer
from pydantic import Discriminator, Tag

from fedplug_fedre.budget_picture import picture
from fedplug_fedre.budgets import FLOOR, Allocation, Budgets, budgets, floored, literal_limit, released_multiplier
from fedplug_fedre.layer_scores import (
    layer_numbers,
    layer_of_scalars,
    public_scores,
    scores_are_public,
    scores_of_layers,
    whole_and_seen,
)

if TYPE_CHECKING:
    from fedplug.api.types import Scores
    from numpy.typing import NDArray

OTHERS = "others"
"""Stands for every layer that a mapping of norms does not name."""
_MACHINES = 1 - 1e-3
"""Scores that two machines work out differ by rounding; the cost by less than this."""
Norm = Annotated[float, Field(gt=0, lt=math.inf)]
# Told apart beforehand, so that a wrong number is not also said not to be a mapping.
Norms = Annotated[
    Annotated[Norm, Tag("one")] | Annotated[dict[str, Norm], Tag("each"), Field(min_length=1)],
    Discriminator(lambda value: "each" if isinstance(value, dict) else "one"),
]


class LayerBudgets(fedplug.Protector):
    """Clip and noise each layer by a budget of its own, least for the layer most sensitive to the region (FedRE).

    Shares epsilon out inversely to the PSI scores (eq. 6), clips each layer to C_l (eq. 7) and adds noise of standard
    deviation C_l sigma_l (eq. 8). epsilon and delta are for all layers and all rounds together; the unit is the client,
    since a whole update is clipped. `fedplug_fedre.budgets` has the allocations: `exact` costs what it says, `sum` adds
    budgets up and costs less, `literal` is eq. 9 as printed, and costs more where a layer's budget is above 7.97.

    A layer whose score is next to 0 takes almost all of epsilon by eq. 6, and leaves the others to noise; `floor` says
    how far below the largest a score may lie. The metrics count the layers that it lifts.

    Where the zone holds part of the model, the layers that have scalars in it share epsilon.

    What the layers cost together in `sum` and `literal` follows from their scores. Where these are public, and the
    server knows the model of the round, the ledger states that cost, after the fact; elsewhere a bound for any scores.
    """

    name: str

    class Options(fedplug.Options):
        """How much each layer may show."""

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
            "exact", description="exact: together (epsilon, delta); sum: eps_l add up; literal: eq. 9 as printed"
        )
        floor: float = Field(
            FLOOR,
            gt=0,
            le=1,
            description="scores count as at least this share of the largest; a layer at 0 would take all of epsilon",
        )
        source: Literal["secure", "exact", "reproducible"] = Field(
            "secure",
            description="secure: AES-256 keyed by the system; exact: discrete Gaussian; reproducible: from the "
            "recipe's seed, which protects nobody",
        )
        figure_client: int | None = Field(
            None, ge=0, description="client whose budgets and signal-to-noise the report shows; null: none"
        )

    def __init__(self, options: Options) -> None:
        self.options: LayerBudgets.Options = options

    @property
    def reads(self) -> Reads:
        """One score a layer; at the server too, where the cost follows from them."""
        return Reads(by=self.options.by, per="layer", at_server=self.options.allocation != "exact")

    def check(self, recipe: Any) -> list[str]:
        """Something must score the layers, and noise from `exact` must be fine enough."""
        options, complaints = self.options, []
        if not recipe.score_parameters:
            complaints.append("layer budgets need scores; add score_parameters: [{use: fedre.psi}]")
        elif problem := unknown_scorer(recipe, options.by):
            complaints.append(problem)
        if (options.figure_client or 0) >= recipe.clients:
            chosen = f"figure_client={options.figure_client}"
            complaints.append(f"{chosen} must be < data.clients={recipe.clients}; clients count from 0")
        if options.source == "exact":
            # No layer has less noise than all together, and less noise needs a finer grid.
            least = released_multiplier(options.epsilon, options.delta, recipe.rounds, options.allocation, 1)
            norms = options.norm.values() if isinstance(options.norm, dict) else [options.norm]
            try:
                for norm in norms:
                    check_exact(least * norm, default_grid(norm, least * norm))
            except ProtectionError as error:
                complaints.append(str(error))
        return complaints

    def setup(self, cohort: Cohort, key_server: Any, ctx: Context) -> None:
        """Refuses norms that do not fit the model, before anything is trained.

        Raises:
            ProtectionError: a layer has no norm, or a norm no layer.
        """
        self._norms(ctx)

    # -- what it states ------------------------------------------------------------------------------------------------

    def effects(self, known: Known, ctx: Context) -> Effects:
        """Every layer clipped to its norm, and noise of its own: of known sizes where the scores are known here.

        Raises:
            Misplaced: something clips or noises the values already, or they are encrypted.
        """
        known.before("clip", f"{self.name} clips each layer itself; leave std.clip out and write norm")
        known.before("noise", "this zone has noise already; keep one noise component in the chain")
        known.before("encryption", "noise is added to plain values; put it before the encryption")
        options = self.options
        if not ctx.layout.layers:  # before a model is known, the largest norm stands for all
            given = options.norm.values() if isinstance(options.norm, dict) else [options.norm]
            return Bound(max(given), per="layer"), self._noise(None, None, ctx)
        norms, found = self._norms(ctx), self._known_budgets(known.zone, ctx)
        if found is None:
            return Bound(tuple(norms.tolist()), per="layer"), self._noise(None, None, ctx)
        present, share = found
        # Layers without a scalar in the zone show nothing, as if their noise had no end.
        scale = np.full(len(norms), math.inf)
        scale[present] = norms[present] * share.sigmas
        return Bound(tuple(norms.tolist()), per="layer"), self._noise(share, scale, ctx, norms[present])

    def _noise(
        self, share: Budgets | None, scale: NDArray[np.float64] | None, ctx: Context,
        clips: NDArray[np.float64] | None = None,
    ) -> Noise:  # fmt: skip
        """The noise of a round: what it costs with these budgets, or at most, whatever the scores are."""
        options, layers = self.options, max(1, len(ctx.layout.layers))
        bound = released_multiplier(rounds=ctx.rounds, layers=layers, **self._budget)
        multiplier, mechanism, slack = bound, "gaussian", 0.0
        if options.allocation == "exact":
            note = "all layers together, whatever their scores"
        elif share is None:
            note = {
                "sum": "a bound: budgets of layers add up to epsilon, and their noise costs less together",
                "literal": "eq. 9 as printed: a bound, reached where one layer has all of epsilon; a layer costs more "
                f"than its eps_l where that exceeds {literal_limit(options.delta / layers):.3g}",
            }[options.allocation]
        else:
            multiplier = max(bound, share.multiplier * _MACHINES)
            note = (
                "what the layers of this round cost together with its public scores, stated after the fact, since "
                f"later scores follow from earlier noise; before it, a bound: a multiplier of {bound:.4g}"
            )
        if options.source == "secure":
            note += "; floating-point samples of a cryptographic stream, rounded to a grid for each layer"
        elif options.source == "exact":
            # The layer with the least noise has the coarsest grid beside it; the default grid may be half as fine.
            steps = bound / (2 * default_grid(1.0, bound))
            slack, mechanism = exact_slack(steps, float(ctx.layout.size) * ctx.rounds), "discrete_gaussian"
            note += f"; discrete Gaussian, over the run delta grows by less than (1 + e^epsilon) * {slack:.0e}"
        else:
            note += "; anyone who knows the seed can subtract this noise"
        grid = 0.0
        if share is not None and clips is not None:
            # Powers of two, so that values of every layer are multiples of the finest.
            grid = min(default_grid(c, c * s) for c, s in zip(clips.tolist(), share.sigmas.tolist(), strict=True))
        return Noise(
            mechanism=mechanism, scale=None if scale is None else tuple(scale.tolist()), multiplier=multiplier,
            source=options.source, grid=grid, slack=slack, calibrated_delta=options.delta, scored=True,
            literal=options.allocation == "literal", note=note,
        )  # fmt: skip

    def _known_budgets(self, zone: str, ctx: Context) -> tuple[NDArray[np.int64], Budgets] | None:
        """The layers that have scalars in the zone, and their budgets in this round, as far as this party knows them.

        A client knows its scores and its plan. Anybody with the model that the round started from works out public
        scores. None where they are not known, or differ between clients.
        """
        party = ctx.party
        if isinstance(party, Client):
            if not party.scores or party.plan is None:
                return None
            scores: Scores | None = scores_of_layers(party, self.options.by)
            holds = np.bincount(layer_numbers(ctx)[party.plan.positions(zone)], minlength=len(ctx.layout.layers))
            present = np.flatnonzero(holds)
        else:
            scores = public_scores(party, ctx, self.options.by) if whole_and_seen(zone, ctx) else None
            present = np.arange(len(ctx.layout.layers))
        if scores is None or not len(present):
            return None
        return present, self._share(floored(scores, self.options.floor), present, ctx)

    def _share(self, scores: NDArray[np.float64], present: NDArray[np.int64], ctx: Context) -> Budgets:
        """Eq. 6 and the noise that follows, of those layers."""
        return budgets(scores[present], layers=len(ctx.layout.layers), rounds=ctx.rounds, **self._budget)

    # -- what it does --------------------------------------------------------------------------------------------------

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        """Alg. 1, lines 8 and 9, for the layers of this zone.

        Raises:
            ProtectionError: there is no score for each layer, or scores or values are not finite.
        """
        raw = scores_of_layers(client, self.options.by)
        scores = floored(raw, self.options.floor)
        values, norms = block.plain().astype(np.float64), self._norms(ctx)
        layer = layer_of_scalars(block, client, ctx)
        present, place = np.unique(layer, return_inverse=True)  # place: of each scalar's layer among those present
        share = self._share(scores, present, ctx)  # eq. 6, 9
        clips = norms[present]

        squares = np.bincount(place, np.square(values), len(present))
        if not np.isfinite(squares).all():
            raise ProtectionError(
                f"client {client.client_id}: the update of zone {block.zone} holds "
                f"{int(np.count_nonzero(~np.isfinite(values)))} NaN or infinite values, which cannot be clipped; "
                "its training diverged: lower lr in train"
            )
        lengths = np.sqrt(squares)
        # eq. 7, by one part in 2^23 more, so that rounding to float32 does not lift a norm over its bound.
        factors = np.where(lengths > clips, clips / np.maximum(lengths, clips) * (1 - 2.0**-23), 1.0)
        clipped = (values * factors[place]).astype(np.float32)

        noised = np.empty_like(clipped)
        stream = client.rng(self, block.zone)
        for where, clip, sigma in zip(_parts(place, len(present)), clips.tolist(), share.sigmas.tolist(), strict=True):
            grid = default_grid(clip, clip * sigma)
            noised[where] = add_noise(clipped[where], clip * sigma, grid, self.options.source, stream)  # eq. 8
        client.log[f"{self.name}.floored"] = float(np.count_nonzero(scores[present] > raw[present]))
        ratios = np.minimum(lengths, clips) / (clips * share.sigmas * np.sqrt(np.bincount(place)))
        self._tell(client, block.zone, share, ratios, [ctx.layout.layers[index] for index in present])
        return block.replace(values=noised)

    @property
    def _budget(self) -> dict[str, Any]:
        """The options that `budgets` and `released_multiplier` share."""
        options = self.options
        return {"epsilon": options.epsilon, "delta": options.delta, "allocation": options.allocation}

    def _norms(self, ctx: Context) -> NDArray[np.float64]:
        """C_l of every layer of the model, (L,)."""
        layers, given = ctx.layout.layers, self.options.norm
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

    def _tell(self, client: Client, zone: str, share: Budgets, ratios: NDArray[np.float64], layers: list[str]) -> None:
        """The signal-to-noise of each layer, norm of the clipped values over that of the noise: metrics and report."""
        options = self.options
        client.log[f"{self.name}.snr_min"] = float(ratios.min())
        client.log[f"{self.name}.snr_median"] = float(np.median(ratios))
        if options.allocation == "literal":
            limit = literal_limit(options.delta / len(client.ctx.layout.layers))
            client.log[f"{self.name}.overspent"] = float(np.count_nonzero(share.epsilons > limit))
        if client.client_id == options.figure_client:
            client.figures[f"{self.name}-{zone}"] = picture(f"client {client.client_id}", zone, share, ratios, layers)

    def reveals(self, ctx: Context) -> list[Reveals]:
        """What the noise itself shows."""
        found = []
        if ctx.bare_zones or not scores_are_public(ctx, self.options.by):
            scale = "it goes by the scores, and can be estimated from an upload; epsilon does not cover them"
            found.append(Reveals("noise scale of each layer", ("aggregator",), note=scale))
        if self.options.figure_client is not None:
            note = f"of client {self.options.figure_client}, in the clear; figure_client: null avoids it"
            found.append(Reveals("pictures of budgets and signal-to-noise", ("aggregator",), note=note))
        return found

    def describe(self) -> str:
        """One line for the plan of the run."""
        options = self.options
        norm = f"{options.norm:g}" if isinstance(options.norm, float) else "norms of their own"
        together = {
            "exact": "together over all rounds", "sum": "as a sum over layers", "literal": "by eq. 9 (literal)"
        }[options.allocation]  # fmt: skip
        return (
            f"layers clipped to {norm}, Gaussian noise by PSI score: epsilon {options.epsilon:g}, delta "
            f"{options.delta:g} {together}, {options.source} source"
        )


def _parts(place: NDArray[np.int64], count: int) -> list[NDArray[np.int64]]:
    """The indices with each place from 0 to `count - 1`, ascending."""
    order = np.argsort(place, kind="stable")
    return np.split(order, np.cumsum(np.bincount(place, minlength=count))[:-1])
