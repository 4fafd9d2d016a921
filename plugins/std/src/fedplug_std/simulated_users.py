"""A data set whose training examples are dealt to simulated users, for data that say of nobody whose they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import fedplug
import numpy as np
from fedplug import Field

if TYPE_CHECKING:
    from fedplug import Dataset
    from fedplug.api.roles import Declares


class SimulatedUsers(fedplug.DataSource):
    """Deal the training examples of a data set to simulated users, who have several each.

    Each example is of user r = 1, 2, ... with a probability in proportion to r^-skew (Zipf's law), as users of real
    services differ in how much they contribute.
    """

    class Options(fedplug.Options):
        """How many there are."""

        users: int = Field(ge=1, strict=True, description="number of users; some may get no example")
        skew: float = Field(
            0.0, ge=0, le=4, description="exponent of Zipf's law; 0: all users have about equally many examples"
        )
        seed: int = Field(1, ge=0, strict=True, description="of the draw, so that all runs have the same users")

    options: Options

    inner: ClassVar[Mapping[str, str]] = {"of": "dataset"}
    of: fedplug.DataSource

    @property
    def declares(self) -> Declares:
        """What the data set inside declares."""
        return self.of.declares

    def load(self, root: str | None) -> Dataset:
        """The data set inside, with a user for each training example."""
        data, options = self.of.load(root), self.options
        shares = np.arange(1, options.users + 1) ** -options.skew
        users = np.random.default_rng(options.seed).choice(options.users, len(data.train), p=shares / shares.sum())
        return dataclasses.replace(data, train=dataclasses.replace(data.train, users=users.astype(np.int64)))

    def describe(self) -> str:
        """One line for the plan of the run."""
        return f"{self.of.name}, dealt to {self.options.users} simulated users"
