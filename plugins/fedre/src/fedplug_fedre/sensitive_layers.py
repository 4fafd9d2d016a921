"""A hybrid: FedRE's PSI scores choose the layers that are encrypted; the other layers get noise."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, Self

import fedplug
import numpy as np
from fedplug import Client, Cohort, Facts, Field, Layout, Plan, Plans, Reads, Reveals, at_client
from fedplug.api.blocks import ENCRYPTED, RETAINED
from fedplug_std.replies import valid
from fedplug_std.scores import scorer_problems
from pydantic import model_validator

from fedplug_fedre.layer_scores import scores_are_public, scores_of_layers

if TYPE_CHECKING:
    from numpy.typing import NDArray


class SensitiveLayers(fedplug.Negotiation):
    """Encrypt the layers whose gradients reveal most about the sensitive regions, by the clients' mean PSI scores.

    Each client sends its L scores. The server normalises them to sum 1 and averages them, so that each client has one
    vote to divide. Whole layers are encrypted from the highest mean down: the first `layers`, or enough of them to
    encrypt at least the share `ratio` of the model. The others go to the zone `other_zone`, with noise by layer if
    fedre.layer_budgets is there. All clients have the same plan.

    FedRE gives the smallest budget to the layers that it finds most sensitive, which costs most accuracy there. The
    paper does not propose to encrypt them instead.
    """

    class Options(fedplug.Options):
        """How many layers."""

        ratio: float | None = Field(None, gt=0, le=1, description="least share of the scalars to encrypt, whole layers")
        layers: int | None = Field(None, ge=1, description="how many layers to encrypt, in place of ratio")
        by: str | None = Field(None, description="scorer with a score for each layer; the recipe's first if unset")
        other_zone: str = Field(
            "noised", json_schema_extra={"formerly": "rest"}, description="zone of the layers that are not encrypted"
        )

        @model_validator(mode="after")
        def _one_way_to_say_how_many(self) -> Self:
            if (self.ratio is None) == (self.layers is None):
                given = "neither" if self.ratio is None else "both"
                raise ValueError(f"{given} of ratio and layers given; write ratio: 0.3, or layers: 2")
            return self

    options: Options

    @property
    def plans(self) -> Plans:
        """Two zones, the same at all clients. They follow from the scores of the clients that take part."""
        return Plans(zones=frozenset({ENCRYPTED, self.options.other_zone}))

    @property
    def reads(self) -> Reads:
        """One score per layer."""
        return Reads(by=self.options.by, per="layer")

    def check(self, recipe: Any) -> list[str]:
        """Something must score the layers, and the other layers need a zone that is sent."""
        missing = "the choice of layers needs scores; add score_parameters: [{use: fedre.psi}]"
        complaints = scorer_problems(recipe, self.options.by, missing)
        if self.options.other_zone in (ENCRYPTED, RETAINED):
            complaints.append(
                f"other_zone: {self.options.other_zone} must be a zone that is sent and not encrypted; write "
                "other_zone: noised"
            )
        return complaints

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        """Scores in, mean, chosen layers out."""
        layers, scores = len(facts.layout.layers), cohort.ask(self.score)  # runs at every client
        ballots = valid(cohort, scores, lambda ballot: ballot_problem(ballot, layers))
        mean = mean_scores(ballots.values(), layers)  # runs here, at the server
        chosen = choose(mean, layer_sizes(facts.layout), self.options.ratio, self.options.layers)
        cohort.server.log[f"{self.name}.layers"] = float(len(chosen))
        cohort.tell(self.adopt, chosen)

    @at_client
    def score(self, client: Client) -> NDArray[np.float32]:
        """This client's ballot: its PSI scores, (L,)."""
        return scores_of_layers(client, self.options.by).astype(np.float32)

    @at_client
    def adopt(self, client: Client, chosen: NDArray[np.int64]) -> None:
        """Sets the plan, the same at every client: the chosen layers are encrypted."""
        layout = client.facts.layout
        encrypted = layout.per_scalar(np.isin(np.arange(len(layout.layers)), chosen))
        client.plan = Plan.of(client.facts, self.options.other_zone, encrypted=encrypted)

    def reveals(self, facts: Facts) -> list[Reveals]:
        """Visible quantities that no epsilon covers."""
        public, bare = scores_are_public(facts, self.options.by), " and ".join(facts.bare_zones)
        if public and not bare:
            follows = "public examples, public preferences and the released model"
        elif public:
            follows = f"public examples at the global model, which the {bare} zone moves without noise"
        else:
            follows = "data, models or files of the client"
        paid: Literal["nothing to pay"] | None = "nothing to pay" if public and not bare else None
        note = f"each client's, in the clear; they follow from {follows}"
        mask = "the encrypted layers follow from the clients' scores"
        return [
            Reveals("layer scores", ("server",), covered_by=paid, asked=("score",), note=note),
            Reveals("mask", ("server", "client"), covered_by=paid, note=mask),
        ]

    def describe(self) -> str:
        """One line for the plan of the run."""
        options = self.options
        many = f"{options.layers} layers" if options.ratio is None else f"layers of {options.ratio:.0%} of the model"
        return f"the most sensitive {many} encrypted, by PSI score; the rest {options.other_zone}"


def ballot_problem(ballot: Any, layers: int) -> str:
    """Why a client's scores are not valid; empty if they are."""
    if not isinstance(ballot, np.ndarray) or ballot.dtype.kind != "f" or ballot.shape != (layers,):
        return f"its ballot is not one score for each of {layers} layers"
    if not (np.isfinite(ballot).all() and (ballot >= 0).all() and ballot.any()):
        return "its scores are not finite, or negative, or all 0"
    return ""


def mean_scores(ballots: Iterable[NDArray[np.floating]], layers: int) -> NDArray[np.float64]:
    """The mean over clients of scores normalised to sum 1, (L,); 0 without any client."""
    shares = [ballot.astype(np.float64) / ballot.sum(dtype=np.float64) for ballot in ballots]
    mean: NDArray[np.float64] = np.mean(shares, 0) if shares else np.zeros(layers)
    return mean


def choose(
    scores: NDArray[np.float64], sizes: NDArray[np.int64], ratio: float | None, layers: int | None
) -> NDArray[np.int64]:
    """Numbers of the layers to encrypt: from the highest score down; of equal scores the first.

    Args:
        scores: (L,).
        sizes: scalars of each layer, (L,).
        ratio: take as many layers as this share of all scalars needs; or None.
        layers: number of layers, at most L; or None.
    """
    order = np.argsort(-scores, kind="stable")
    if ratio is not None:
        # A part in 10^12 less, so that rounding up the ratio does not take another layer.
        covered = np.cumsum(sizes[order]) >= ratio * float(sizes.sum()) * (1 - 1e-12)
        layers = int(np.argmax(covered)) + 1
    return order[:layers]


def layer_sizes(layout: Layout) -> NDArray[np.int64]:
    """Scalars of each layer, (L,)."""
    return np.array([sum(part.stop - part.start for part in parts) for parts in layout.layer_slices().values()])
