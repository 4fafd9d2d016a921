"""Noise that does not match its declaration, and a catalog that has it."""

from __future__ import annotations

from typing import Any

import fedplug
import numpy as np
from fedplug import Facts, Field, Known, Noise, Operations, Public
from fedplug.recipe.catalog import Catalog, Entry
from numpy.typing import NDArray


class Word(fedplug.Protector):
    """Declare Gaussian noise of a multiplier, and add a share of it."""

    class Options(fedplug.Options):
        """The declared noise, and the added one."""

        noise_multiplier: float = Field(gt=0, description="as stated")
        share: float = Field(1.0, ge=0, description="share of the noise that is added")
        fixed: bool = Field(False, description="whether it comes from one public seed")
        equal: bool = Field(False, description="whether all clients draw the same")

    options: Any

    def protect(self, known: Known, facts: Facts) -> Operations:
        """The noise, declared by this component."""
        norm = known.need_norm("put std.clip before it")
        multiplier = self.options.noise_multiplier

        def sample(values: NDArray[np.float32], public: Public, stream: np.random.Generator) -> NDArray[np.float32]:
            drawn = stream if self.options.fixed else np.random.default_rng(3 if self.options.equal else None)
            std = self.options.share * multiplier * norm
            return values + (std * drawn.standard_normal(len(values))).astype(np.float32)

        return (Noise.own("gaussian", sample, multiplier=multiplier, source="secure", order=2),)


def catalog() -> Catalog:
    """What is installed, and the toy."""
    installed = Catalog.discover()
    entry = Entry("toy.word", "protect", f"{Word.__module__}:Word", "toys", "0", Word)
    groups = {**installed.groups, "protect": {**installed.groups["protect"], entry.name: entry}}
    return Catalog(groups, installed.strays, installed.sections)


def recipe_of(chain: list[Any], **changes: Any) -> dict[str, Any]:
    """A linear model on digits, 200 clients, one round; the whole model in the zone `noised`."""
    plain: dict[str, Any] = {
        "name": "toy", "seed": 7, "rounds": 1,
        "data": {"use": "std.digits", "clients": 200, "partition": "std.iid"},
        "model": {"use": "std.mlp", "hidden": []},
        "train": {"use": "std.sgd", "epochs": 1, "batch_size": 32, "lr": 0.05},
        "negotiate_mask": {"use": "std.single_zone", "zone": "noised"},
        "protect": {"noised": [{"use": "std.clip", "norm": 1.0}, *chain]},
        "aggregate": {"use": "std.mean", "weighting": "uniform"},
    }  # fmt: skip
    return plain | changes
