"""Which tokens a client's texts hold, from the rows of the embedding that move; and metrics of tokens and texts."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import fedplug
import numpy as np
from fedplug import Field, Finds, Measures
from fedplug.api.errors import MetricError, ViewError

from fedplug_attacks import Attacker, AttackReport, Needs, ObservedUpdate, TensorView, Truth, View
from fedplug_attacks._forms import OnView
from fedplug_attacks._public import sigma_of
from fedplug_attacks.api.needs import FIRST_WEIGHT, role

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Tokens(OnView):
    """The tokens of a batch, read off the embedding: a token that is not in it has a gradient of 0 (Melis et al. 2019).

    Melis, Song, De Cristofaro and Shmatikov, Exploiting unintended feature leakage in collaborative learning, IEEE S&P
    2019, Sec. 4.1. It finds the tokens, not their order. Row t of the first parameter moves if token t is an input.
    With noise, a row counts if it is longer than noise alone makes it. All rows move if the embedding is also the last
    layer, or with weight decay: then only `least` can separate them.
    """

    finds = Finds(
        needs=Needs(
            model=False, tensors=((FIRST_WEIGHT, "any"),), batch_size=(1, 256), loss=None, classification=False
        ),
        what=frozenset({"tokens"}), headline=("token_f1", "high"), success=("token_f1", ">=", 0.9),
    )  # fmt: skip

    class Options(fedplug.Options):
        """Which rows count."""

        least: float = Field(
            1e-3, gt=0, lt=1, description="smallest norm a value of a row that counts, as a share of the longest row's"
        )
        deviations: float = Field(
            4.0, gt=0, description="with noise: standard deviations by which a row must be longer than noise alone"
        )

    def describe(self) -> str:
        """A line for the plan."""
        return "tokens whose row of the embedding moves"

    def learn(self, view: View, attacker: Attacker) -> AttackReport:
        """Finds the tokens; not applicable if the first parameter is not an embedding."""
        update, name = view.observed, role(view.observed.layout, FIRST_WEIGHT)
        rows = update.tensor(name) if name else None
        if rows is None or rows.states.shape[0] != view.num_classes:
            instead = "no matrix" if rows is None else f"a matrix of {rows.states.shape[0]} rows"
            rows_of = f"an embedding has a row for each of {view.num_classes} tokens"
            raise ViewError(f"the first parameter is {instead}, but {rows_of}")
        there = moving(update, rows, self.options.least, self.options.deviations)
        attacker.progress(1, 1, None)
        metrics = {"rows_hidden": float(np.count_nonzero(~rows.visible.any(1)))}
        return AttackReport("finished", metrics, tokens=np.flatnonzero(there), seed=view.seed)


def moving(update: ObservedUpdate, rows: TensorView, least: float, deviations: float) -> NDArray[np.bool_]:
    """Which rows of an embedding move, (V,): neither hidden ones, nor those that noise alone may explain.

    Args:
        update: the update that contains the embedding.
        rows: the rows of the embedding, (V, d).
        least: smallest size of a row that counts, as a share of the longest one's.
        deviations: how many standard deviations longer than noise alone a row must be.
    """
    shown = rows.visible.sum(1)
    # The mean square of a row's visible values is compared with that of noise alone: 2 sigma^4 / n is its variance.
    energy = np.nan_to_num(rows.dense(0.0).astype(np.float64)) ** 2
    means = (energy * rows.visible).sum(1) / np.maximum(shown, 1)
    noise = float(np.median(sigma_of(update) ** 2)) if np.size(sigma_of(update)) else 0.0
    beyond = noise * (1 + deviations * np.sqrt(2 / np.maximum(shown, 1)))
    found: NDArray[np.bool_] = (means > beyond) & (means > least**2 * means.max(initial=0.0)) & (shown > 0)
    return found


class TokensFound(fedplug.Metric):
    """Share of the texts' distinct tokens that were recovered, and share of the reported tokens that are right."""

    measures = Measures(
        kind="tokens",
        better={"tokens_recovered": "high", "tokens_right": "high", "token_f1": "high"},
        conventions="0 to 1; over the distinct tokens of the batch, whatever their order and number; F1 is of both",
        default=True,
    )

    def score(self, found: AttackReport, truth: Truth) -> dict[str, float]:
        """`tokens_recovered`, `tokens_right`, `token_f1`.

        Raises:
            MetricError: the inputs are not tokens, or the attack found none of them.
        """
        true: NDArray[np.int64] | None = truth.tokens
        if true is None or found.tokens is None:
            raise MetricError("tokens_found compares tokens, but there are none here; use a metric for the findings")
        named = np.unique(found.tokens)
        both = len(np.intersect1d(named, true))
        recall, precision = both / max(1, len(true)), both / max(1, len(named))
        f1 = 2 * both / max(1, len(true) + len(named))
        return {"tokens_recovered": recall, "tokens_right": precision, "token_f1": f1}


class TextFound(fedplug.Metric):
    """Share of the texts that was recovered: whole texts, tokens in their places, and runs of one and two tokens."""

    measures = Measures(
        kind="texts",
        better={"text_in_place": "high", "texts_exact": "high", "rouge_1": "high", "rouge_2": "high"},
        conventions="0 to 1; each true text is compared with the found one that has most tokens in their places, each "
        "used once; ROUGE-1 and -2 are the F1 of the tokens and of the pairs of neighbours, with their numbers (Lin "
        "2004), over all texts together, of tokens rather than words",
        default=True,
    )

    def score(self, found: AttackReport, truth: Truth) -> dict[str, float]:
        """`text_in_place`, the share of all tokens; `texts_exact`, the share of all texts; `rouge_1`, `rouge_2`.

        Raises:
            MetricError: the inputs are not tokens, or the attack found no texts.
        """
        if truth.texts is None or found.texts is None:
            raise MetricError("text compares texts, but there are none here; use a metric for the findings")
        true, named = truth.texts, found.texts
        right = agreeing(true, named)
        size = max(1, true.size)
        exact = np.count_nonzero(right == true.shape[1]) / len(true)
        scores = {"text_in_place": right.sum() / size, "texts_exact": exact}
        for length in (1, 2):
            ours, theirs = _pieces(named, length), _pieces(true, length)
            both = sum((ours & theirs).values())
            scores[f"rouge_{length}"] = 2 * both / max(1, sum(ours.values()) + sum(theirs.values()))
        return {name: float(score) for name, score in scores.items()}


def agreeing(true: NDArray[np.int64], named: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each true text (n, T), the number of tokens that agree with its partner among the found ones (k, T); (n,).
    The pairing is the one with most agreements."""
    from scipy.optimize import linear_sum_assignment

    alike = (true[:, None] == named[None]).sum(2)
    rows, columns = linear_sum_assignment(-alike)
    right = np.zeros(len(true), np.int64)
    right[rows] = alike[rows, columns]
    return right


def _pieces(texts: NDArray[np.int64], length: int) -> Counter[tuple[int, ...]]:
    """How often each run of this many tokens occurs in the texts."""
    shifted = ([text[start:] for start in range(length)] for text in texts.tolist())
    return Counter(run for each in shifted for run in zip(*each, strict=False))
