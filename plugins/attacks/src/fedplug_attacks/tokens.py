"""Which tokens a client's texts hold: rows of the embedding that move are theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import fedplug
import numpy as np
from fedplug import Context, Field, Finds, Measures, hookimpl
from fedplug.api.errors import MetricError

from fedplug_attacks._public import sigma_of
from fedplug_attacks.api.needs import FIRST_WEIGHT, Needs, role
from fedplug_attacks.api.report import FINISHED, NOT_APPLICABLE, AttackReport
from fedplug_attacks.api.truth import Truth
from fedplug_attacks.api.view import View

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Tokens(fedplug.Attack):
    """The tokens of a batch, read off the embedding: a token that is not in it has a gradient of 0 (Melis et al. 2019).

    Melis, Song, De Cristofaro and Shmatikov, Exploiting unintended feature leakage in collaborative learning, IEEE S&P
    2019, Sec. 4.1. It finds which tokens there are, not their order. Row t of the first parameter moves where token t
    is an input; with noise, a row counts that is longer than noise alone makes it. A model whose embedding is its last
    layer too moves all rows, and so does weight decay: `least` then tells them apart, or nothing does.
    """

    name: str
    finds = Finds(
        needs=Needs(
            model=False, tensors=((FIRST_WEIGHT, "any"),), batch_size=(1, 256), loss=None, classification=False
        ),
        what=frozenset({"tokens"}), headline=("token_f1", "high"), success=("token_f1", ">=", 0.9),
    )  # fmt: skip

    class Options(fedplug.Options):
        """Which rows count."""

        least: float = Field(
            1e-3, gt=0, lt=1, description="a row counts from this share of the longest row's norm a value on"
        )
        deviations: float = Field(
            4.0, gt=0, description="with noise: how many standard deviations longer a row must be than noise makes it"
        )

    def __init__(self, options: Options) -> None:
        self.options: Tokens.Options = options

    def describe(self) -> str:
        """A line for the plan."""
        return "tokens whose row of the embedding moves"

    @hookimpl
    def attack(self, view: View, ctx: Context) -> AttackReport:
        """Names the tokens; not applicable where the first parameter is no embedding."""
        assert view.update is not None
        update, name = view.update, role(view.update.layout, FIRST_WEIGHT)
        rows = update.tensor(name) if name else None
        if rows is None or rows.states.shape[0] != view.num_classes:
            there = "no matrix" if rows is None else f"a matrix of {rows.states.shape[0]} rows"
            reason = f"the first parameter is {there}, and an embedding has a row for each of {view.num_classes} tokens"
            return AttackReport(NOT_APPLICABLE, reason=reason)
        shown = rows.visible.sum(1)
        # The mean square of a row's visible values is compared with that of noise alone: 2 sigma^4 / n is its variance.
        energy = np.nan_to_num(rows.dense(0.0).astype(np.float64)) ** 2
        means = (energy * rows.visible).sum(1) / np.maximum(shown, 1)
        noise = float(np.median(sigma_of(update) ** 2)) if np.size(sigma_of(update)) else 0.0
        beyond = noise * (1 + self.options.deviations * np.sqrt(2 / np.maximum(shown, 1)))
        there_ = (means > beyond) & (means > self.options.least**2 * means.max(initial=0.0)) & (shown > 0)
        ctx.party.progress(1, 1, None)  # type: ignore[attr-defined]
        metrics = {"rows_hidden": float(np.count_nonzero(shown == 0))}
        return AttackReport(FINISHED, metrics, tokens=np.flatnonzero(there_), seed=view.seed)


class TokensFound(fedplug.Metric):
    """Share of the distinct tokens of the texts that were recovered, and of those named that are there."""

    class Options(fedplug.Options):
        """It has none."""

    measures = Measures(
        kind="tokens",
        better={"tokens_recovered": "high", "tokens_right": "high", "token_f1": "high"},
        conventions="0 to 1; over the distinct tokens of the batch, whatever their order and number; F1 is of both",
        default=True,
    )

    def __init__(self, options: Any) -> None:
        self.options = options

    def score(self, found: AttackReport, truth: Truth) -> dict[str, float]:
        """`tokens_recovered`, `tokens_right`, `token_f1`.

        Raises:
            MetricError: the inputs are no tokens, or the attack found none of them.
        """
        true: NDArray[np.int64] | None = truth.tokens
        if true is None or found.tokens is None:
            raise MetricError("tokens_found compares tokens, and there are none here; use a metric of what was found")
        named = np.unique(found.tokens)
        both = len(np.intersect1d(named, true))
        recall, precision = both / max(1, len(true)), both / max(1, len(named))
        f1 = 2 * both / max(1, len(true) + len(named))
        return {"tokens_recovered": recall, "tokens_right": precision, "token_f1": f1}
