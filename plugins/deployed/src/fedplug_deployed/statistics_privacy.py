"""NVFlare's filter of statistics: sums of few records, and histograms of many cells, are left out.

Source: NVIDIA/NVFlare 2.9.0, nvflare/app_common/filters/statistics_privacy_filter.py with
nvflare/app_common/statistics/{min_count_cleanser,histogram_bins_cleanser,statistics_privacy_cleanser}.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import fedplug
from fedplug import Field
from fedplug_analytics.cells import Histogram
from fedplug_analytics.local import LocalSums
from fedplug_analytics.moments import Count, Mean
from fedplug_analytics.statistic import Statistic, placed
from fedplug_analytics.statistics import Statistics, statistics_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from fedplug import Client, Facts, Recipe
    from numpy.typing import NDArray

_KNOWN = Count, Mean, Histogram


class StatisticsPrivacy(LocalSums):
    """Leave out a client's sums of few records, and histograms of many cells (NVFlare's `StatisticsPrivacyFilter`): no
    guarantee.

    As NVFlare 2.9.0 does it: where a column has fewer than `min_count` records, its sums and its histogram become 0;
    where a histogram has at least round(records * max_bins_percent / 100) cells, it becomes 0. The number of records is
    always sent, however small it is. What is left is exact: no noise is added, so no guarantee follows, and a record
    less or more in the next question shows what it holds.

    The total of records still counts those of clients that left their sums out, as in NVFlare. So the mean of a column
    is too near to the middle of its bounds here, and to 0 there.

    NVFlare also moves minima and maxima by a random share of their size. `analytics.statistics` has neither.
    """

    class Options(fedplug.Options):
        """As NVFlare's arguments, with the values that `StatsJob` uses."""

        min_count: float = Field(10, ge=0, description="columns of fewer records are left out")
        max_bins_percent: float = Field(10, ge=0, le=100, description="cells of a histogram, in percent of its records")

    options: Options

    unsaid = "leaves sums of clients out whose records still count, so that means are too near to the middle of bounds"

    def made(self, sums: NDArray[np.float64], client: Client, facts: Facts) -> NDArray[np.float64]:
        """The client's sums without those that NVFlare leaves out."""
        return self.cleansed(sums, statistics_of(facts).statistics)

    def cleansed(self, sums: NDArray[np.float64], statistics: Sequence[Statistic]) -> NDArray[np.float64]:
        """The sums of these statistics, (n,), with 0 for those that NVFlare leaves out."""
        sent = sums.copy()
        for each, place in placed(statistics):
            if isinstance(each, Mean) and sums[place][0] < self.options.min_count:
                sent[place][1:] = 0.0  # the number of records stays
            if isinstance(each, Histogram) and self._leaves_out(float(sums[place].sum()), each.size):
                sent[place] = 0.0
        return sent

    def _leaves_out(self, records: float, cells: int) -> bool:
        options = self.options
        return records < options.min_count or cells >= round(records * options.max_bins_percent / 100)

    def check(self, recipe: Recipe) -> list[str]:
        """The filter knows the statistics."""
        asked = recipe.model.options.of if isinstance(recipe.model.options, Statistics.Options) else ()
        strange = dict.fromkeys(each.statistic for each in asked if not isinstance(each, _KNOWN))
        return [f"it knows count, mean and histogram; remove {', '.join(strange)}"] if strange else []

    def describe(self) -> str:
        """One line for the plan of the run."""
        options = self.options
        few = f"columns of fewer than {options.min_count:g} records"
        many = f"histograms of {options.max_bins_percent:g} or more cells per 100 records"
        return f"leaves out {few} and {many}; NVFlare calls it privacy: it adds no noise, so no guarantee follows"
