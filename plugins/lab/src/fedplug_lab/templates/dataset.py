"""Sketch: a data set."""

import fedplug
import numpy as np
from fedplug import Dataset, Declares, Examples, Field


class Thing(fedplug.DataSource):
    """Two kinds of pictures: bright above, or bright below."""

    declares = Declares(shape=(1, 4, 4), num_classes=2)

    class Options(fedplug.Options):
        count: int = Field(120, ge=2, description="examples for training; a third as many for testing")

    def load(self, root: str | None) -> Dataset:
        """Made up here; read files below `root`, the folder of data sets, instead."""
        rng = np.random.default_rng(0)

        def split(count: int) -> Examples:
            labels = np.arange(count, dtype=np.int64) % 2
            inputs = rng.integers(0, 128, (count, 1, 4, 4), np.uint8)
            inputs[labels == 0, :, :2] += 100
            inputs[labels == 1, :, 2:] += 100
            return Examples(inputs, labels)

        # The mean and the standard deviation are public constants, not measured on the clients' data.
        train, test = split(self.options.count), split(self.options.count // 3 + 1)
        return Dataset(train, test, classes=("above", "below"), mean=(0.5,), std=(0.3,))
