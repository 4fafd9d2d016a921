"""Judges results: which examples are recovered, and whether numbers are more than a guess has.

One criterion holds for the images of all attacks (`recovered`). Other findings are judged by `Evidence`: the attack's
measure, and what a guess that looks at nothing has of it, with the spread of that guess. The evidence of all targets of
an attack by an adversary is put together, and the interval of the measure is compared with the guess, at a level that
is divided by the number of looks.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedplug_attacks.api.report import FAILED, INCONCLUSIVE, NOT_APPLICABLE, SUCCESS, Status
from fedplug_attacks.image_metrics import similarity
from fedplug_attacks.tokens import agreeing
from fedplug_attacks.workshop.records import Evidence, Judged, Outcome, Success

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEVEL = 0.05
"""Probability at which any of the intervals of a run, taken together, misses its measure."""
STRANGERS = 200
"""Largest number of other people's images that a recovered image is compared with."""
IN_PLACE, EXACT_ROW = 0.9, 1e-3
"""Share of the tokens of a recovered text that are in place, and largest mean squared error of a recovered row of a
table, in squared spreads of its columns."""


def recovered(
    true: NDArray[np.float32], found: NDArray[np.float32], mean: NDArray[np.float32], strangers: NDArray[np.float32]
) -> NDArray[np.bool_]:
    """Which images are recovered: by these, people who look at the found image would know the true one again.

    The found image is nearer to the true one than the mean image, by structural similarity and by squared error. Its
    error is 10% below that of the mean image, of one flat colour and of every stranger. For a batch it is half of
    these, since each found image had several true ones to be near to.

    Args:
        true, found: (n, C, H, W) in [0, 1], in pairs.
        mean: (1, C, H, W), the mean image.
        strangers: (k, C, H, W), images of people who are not in the client's data; k may be 0.
    """
    flat_colour = np.broadcast_to(mean.mean(axis=(2, 3), keepdims=True), mean.shape)
    guesses = np.concatenate([mean, flat_colour, strangers]).astype(np.float64).reshape(len(strangers) + 2, -1)
    flat, own = (side.astype(np.float64).reshape(len(side), -1) for side in (true, found))
    nearest = np.array([np.square(guesses - one).mean(1).min() for one in flat])
    error = np.square(own - flat).mean(1) * (1.1 if len(true) == 1 else 2)
    like = similarity(found, true) > similarity(np.broadcast_to(mean, true.shape), true)
    both: NDArray[np.bool_] = (error < nearest) & like
    return both


def recovered_rows(
    true: NDArray[np.float64], found: NDArray[np.float64], mean: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Which rows of a table are recovered: to 0.03 spreads of a column on average, and nearer than the mean row.

    Args:
        true, found: (n, d), in units of the columns' spreads, in pairs.
        mean: (1, d), the mean row.
    """
    error = np.square(found - true).mean(1)
    exact: NDArray[np.bool_] = (error <= EXACT_ROW) & (error < np.square(mean - true).mean(1))
    return exact


def recovered_texts(true: NDArray[np.int64], found: NDArray[np.int64], dull: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which texts are recovered: nine tokens of ten in place, and more than of a text of the commonest token.

    Args:
        true, found: (n, T) and (m, T) tokens, in any order.
        dull: (1, T), that text.
    """
    share = agreeing(true, found) / max(1, true.shape[1])
    right: NDArray[np.bool_] = (share >= IN_PLACE) & (share > (true == dull).mean(1))
    return right


# ---- evidence


def of_area(metric: str, area: float, members: int, others: int, common: float = 0.0) -> Evidence:
    """Evidence of an area under the ROC curve, whose guess has the normal distribution of Mann and Whitney (1947).

    `common` is the share of the others that are the same for all targets. What these add is the same for all, too.
    """
    spread = math.sqrt((members + others + 1) / (12 * members * others))
    return Evidence(metric, area, 0.5, spread, shared=math.sqrt(common / (12 * others)))


def of_rate(metric: str, rate: float, members: int, others: int, one_in: int, common: float = 0.0) -> Evidence:
    """Evidence of a true-positive rate at one false alarm in `one_in`.

    The threshold is the score of a non-member. So of members who score like non-members the number above it has a
    negative hypergeometric distribution. Its skewness is that of the negative binomial distribution, its limit.
    `common` is as in `of_area`: targets then have much the same threshold.
    """
    allowed = others // one_in + 1
    expected = members * allowed / (others + 1)
    spread = math.sqrt(
        members * allowed * (others + 1 - allowed) * (others + 1 + members) / ((others + 1) ** 2 * (others + 2))
    )
    share = members / (members + others)
    skew = (1 + share) / math.sqrt(allowed * share)
    guess = expected / members
    of_threshold = max(0.0, (spread / members) ** 2 - guess * (1 - guess) / members)
    return Evidence(metric, rate, guess, spread / members, skew, math.sqrt(common * of_threshold))


def of_draws(metric: str, value: float, draws: Sequence[float], least: Iterable[float], high: bool) -> Evidence | None:
    """Evidence of a number, from the numbers of random guesses; None where nothing is known of guesses.

    Args:
        metric, value: the number.
        draws: of random guesses.
        least: of guesses that are no draws, such as the mean: the best of all guesses counts.
        high: whether high values mean that the attack learnt more.
    """
    known = np.array([draw for draw in draws if math.isfinite(draw)])
    best = ([float(known.mean())] if len(known) else []) + [one for one in least if math.isfinite(one)]
    if not best or not math.isfinite(value):
        return None
    std = float(known.std()) if len(known) else 0.0
    skew = float(np.mean((known - known.mean()) ** 3)) / std**3 if std > 0 else 0.0
    return Evidence(metric, value, (max if high else min)(best), std, skew)


def judged(outcomes: Sequence[Outcome], success: Success | None, looks: int = 1) -> Judged:
    """The outcome of an attack on all its targets together.

    Any recovered example is a success, because it belongs to a person. Else the first measure whose interval is better
    than the guess is one. Without, an attack has failed where its measure, with its interval, stays nearer to the guess
    than to the attack's threshold. Otherwise the targets are too few to tell, or the searches did not fit.

    Args:
        outcomes: of the targets, in one form.
        success: the attack's number and its threshold, which says how large is much; None: no number decides.
        looks: number of measures, of all attacks, that are looked at together.
    """
    applied = [one for one in outcomes if one.status != NOT_APPLICABLE]
    if not applied:
        return Judged(NOT_APPLICABLE)
    measured = [_together([one for outcome in applied for one in outcome.evidence if one.metric == metric])
                for metric in dict.fromkeys(one.metric for outcome in applied for one in outcome.evidence)]  # fmt: skip
    found = [_interval(one, success, looks) for one in measured]
    state = next((one for one in found if one.state == SUCCESS), found[0] if found else None)
    if any(outcome.recovered for outcome in applied) or (not found and any(o.status == SUCCESS for o in applied)):
        return Judged(SUCCESS) if state is None else _as(state, SUCCESS)
    # Half of the searches say nothing: the others are too few to speak for all.
    unfit = 2 * sum(outcome.status == INCONCLUSIVE and bool(outcome.reason) for outcome in applied) >= len(applied)
    if state is None:
        return Judged(INCONCLUSIVE if unfit else FAILED)
    if state.state != SUCCESS and (unfit or any(one.state == INCONCLUSIVE for one in found)):
        return _as(next((one for one in found if one.state == INCONCLUSIVE), state), INCONCLUSIVE)
    return state


def _together(evidence: Sequence[Evidence]) -> Evidence:
    """The mean over targets, which are taken as independent but for what their guesses share."""
    count, variance = len(evidence), sum(one.std**2 for one in evidence)
    shared = float(np.mean([one.shared for one in evidence]))
    third = sum(one.skew * one.std**3 for one in evidence)
    value, guess = np.mean([(one.value, one.guess) for one in evidence], axis=0).tolist()
    std = math.sqrt(variance)
    spread = math.sqrt(max(0.0, variance - sum(one.shared**2 for one in evidence)) / count**2 + shared**2)
    return Evidence(evidence[0].metric, value, guess, spread, third / std**3 if std > 0 else 0.0)


FEW = 0.05
"""Share of the members that an attack must find at low rates of false alarms, for that to be much."""


def _interval(one: Evidence, success: Success | None, looks: int) -> Judged:
    """The interval of a measure by the spread of its guess, with the skewness of that (Cornish and Fisher 1938)."""
    from scipy.stats import norm

    z = float(norm.ppf(1 - LEVEL / (2 * max(1, looks))))
    low, high = one.value - one.std * _deviations(z, one.skew), one.value + one.std * _deviations(z, -one.skew)
    low_is_better = success is not None and success.metric == one.metric and success.relation == "<="
    much = success.threshold if success is not None and success.metric == one.metric else FEW
    middle = (one.guess + much) / 2
    if low_is_better:
        state: Status = SUCCESS if high < one.guess else FAILED if low > middle else INCONCLUSIVE
    else:
        state = SUCCESS if low > one.guess else FAILED if high < middle else INCONCLUSIVE
    return Judged(state, one.metric, one.value, low, high, one.guess, 1 - LEVEL, looks)


def _deviations(z: float, skew: float) -> float:
    """The quantile of a skewed distribution by that of the normal one, `z`; never less than that of a smaller `z`."""
    z = min(z, 3 / -skew) if skew < 0 else z  # beyond, the expansion turns back
    return z + skew / 6 * (z * z - 1)


def _as(one: Judged, state: Status) -> Judged:
    return dataclasses.replace(one, state=state)
