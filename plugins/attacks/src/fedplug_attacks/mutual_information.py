"""Mutual information, in bits an entry, between an update and an adversary's view of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import fedplug
import numpy as np
from fedplug import Field, Measures, MetricError, stream

from fedplug_attacks import AttackReport, Seen, Truth

if TYPE_CHECKING:
    from numpy.typing import NDArray


class MutualInformation(fedplug.Metric):
    """Bits of information about an entry of an update in the adversary's view, minus those expected by chance.

    X is an entry of the true update, S its state in the view and V its value there, if it has one; every entry counts
    as one draw of (X, S, V). The adversary knows the states, so what it learns is I(X; (V, S)) = I(X; S) + P(visible)
    I(X; V | visible). The mask is informative too if it follows from the values. The estimate is the plug-in formula on
    a histogram. Its bias is about that of the same histogram with X shuffled, which is subtracted.

    SenseCrypt (Sec. 2.2, eq. 3) has the plug-in formula with a logarithm to base 2 for the parameters before and after
    selective encryption, and names neither bins nor tensors. Its decrease to almost 0 once the largest entries are
    encrypted (Fig. 18) is an effect of bins of equal width: these entries set the range, so all others share a few
    bins.

    Entries are not independent: if single entries show little information, many of them together may still reveal
    labels. Low values prove nothing.
    """

    class Options(fedplug.Options):
        """The histogram, and the shuffles that measure chance."""

        bins: int = Field(64, ge=2, le=1024, description="number of bins of each axis of the histogram")
        bins_by: Literal["quantile", "width"] = Field(
            "quantile", description="bins with equally many entries, or of equal width from the least to the greatest"
        )
        permutations: int = Field(20, ge=1, description="shuffles that the baseline is the mean of")
        entries: int = Field(
            1_000_000, ge=1000, description="number of entries drawn at random from larger updates, the same each time"
        )
        seed: int = Field(0, ge=0, description="seed of the shuffles and the draw")

    measures = Measures(
        kind="update",
        better={
            "mutual_information": "high",
            "mutual_information_net": "high",
            "mi_visible": "high",
            "mi_mask": "high",
            "mi_naive": "high",
        },
        conventions=(
            "bits an entry, 0 to log2(bins); plug-in on a histogram; net and mi_ numbers are minus the mean over "
            "shuffles; mi_naive treats hidden entries as 0"
        ),
        default=True,
    )

    def score(self, found: AttackReport, truth: Truth) -> dict[str, Any]:
        """The numbers of one view; they do not depend on the attack's findings.

        Returns:
            `mutual_information`: I(X; (V, S)), the plug-in estimate. `permutation_baseline`: its mean over shuffles of
            X. `mutual_information_net`: the first minus the second, and of this `mi_mask`, I(X; S), and `mi_visible`,
            P(visible) I(X; V | visible). `mi_naive`: net as well, of X and the value with 0 where it is hidden.

        Raises:
            MetricError: the true update is not known, the adversary saw nothing, or a number is not finite.
        """
        if truth.update is None:
            raise MetricError("the true update of this target is not known, so nothing can be compared with it")
        if truth.observed is None:
            raise MetricError("the adversary saw no update of this target")
        if truth.update.shape != truth.observed.states.shape:
            raise MetricError(f"an update of {truth.update.size} entries, and a view of {truth.observed.states.size}")
        true, states, seen = truth.update, truth.observed.states, truth.observed.dense(np.nan)
        visible = truth.observed.visible
        if not np.isfinite(true).all() or not np.isfinite(seen[visible]).all():
            raise MetricError("the update or what was seen of it holds values that are not finite; training diverged")
        rng = stream(self.options.seed, "mutual_information")
        if true.size > self.options.entries:
            drawn = np.sort(rng.choice(true.size, self.options.entries, replace=False))
            true, states, seen, visible = true[drawn], states[drawn], seen[drawn], visible[drawn]
        return self._numbers(true, states, seen, visible, rng)

    def _numbers(self, true: NDArray[np.float32], states: NDArray[np.uint8], seen: NDArray[np.float32],
                 visible: NDArray[np.bool_], rng: np.random.Generator) -> dict[str, float]:  # fmt: skip
        # Clear values go into the bins of the truth, since slightly different bins would look like noise. Noised values
        # go into bins of their own range.
        edges = self._edges(true)
        noised = states == Seen.NOISED
        edges_noised = self._edges(seen[noised]) if noised.any() else edges
        x = _binned(true, edges)
        # A column for each state and bin, since a value means something different with and without noise.
        known = states.astype(np.int64) * self.options.bins
        for state, cuts in ((Seen.CLEAR, edges), (Seen.NOISED, edges_noised)):
            known[states == state] += _binned(seen[states == state], cuts)
        whole = np.unique(known, return_inverse=True)[1]
        mask = np.unique(states, return_inverse=True)[1]
        naive = _binned(np.where(visible, seen, np.float32(0)), self._edges(seen[visible]) if noised.any() else edges)
        plug_in = np.array([information(x, y) for y in (whole, mask, naive)])
        baseline = np.zeros(3)
        for _ in range(self.options.permutations):
            shuffled = rng.permutation(x)
            baseline += [information(shuffled, y) for y in (whole, mask, naive)]
        baseline /= self.options.permutations
        net, of_mask, of_naive = plug_in - baseline
        return {
            "mutual_information": float(plug_in[0]), "permutation_baseline": float(baseline[0]),
            "mutual_information_net": float(net), "mi_visible": float(net - of_mask), "mi_mask": float(of_mask),
            "mi_naive": float(of_naive),
        }  # fmt: skip

    def _edges(self, values: NDArray[np.float32]) -> NDArray[np.float64]:
        """Where the bins meet; fewer of them are filled where many values are equal."""
        bins = self.options.bins
        if self.options.bins_by == "width":
            return np.linspace(float(values.min()), float(values.max()), bins + 1)[1:-1]
        return np.quantile(values.astype(np.float64), np.linspace(0, 1, bins + 1)[1:-1])


def _binned(values: NDArray[np.float32], edges: NDArray[np.float64]) -> NDArray[np.int64]:
    """The bin of each value; those beyond the outer edges are in the outer bins."""
    return np.searchsorted(edges, values, "right")


def information(x: NDArray[np.int64], y: NDArray[np.int64]) -> float:
    """The plug-in mutual information of two sequences of bins, in bits: sum of p(x, y) log2(p(x, y) / (p(x) p(y)))."""
    columns = int(y.max()) + 1
    counts = np.bincount(x * columns + y, minlength=(int(x.max()) + 1) * columns).reshape(-1, columns)
    # In whole numbers as long as possible, so that the logarithm is exactly 0 where x and y are independent.
    expected = counts.sum(1, keepdims=True) * counts.sum(0, keepdims=True)
    filled = counts > 0
    times_expected = counts[filled] * len(x) / expected[filled]
    return float(np.sum(counts[filled] * np.log2(times_expected)) / len(x))
