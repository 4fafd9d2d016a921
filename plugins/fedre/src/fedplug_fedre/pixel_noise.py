"""Noise on the training images instead of on the update: the alternative that FedRE argues against (Fig. 5)."""

from __future__ import annotations

import dataclasses
import secrets
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from fedplug import Client, Examples, Facts, Field, Learns
from fedplug.api.errors import DataError
from fedplug_std.training import Sgd

from fedplug_fedre.preferences import Preference, marked

if TYPE_CHECKING:
    from fedplug import Recipe
    from numpy.typing import NDArray


class PixelNoise(Sgd):
    """Train with SGD on images whose sensitive pixels carry Gaussian noise (FedRE, Fig. 5: noise on raw data).

    Each client adds the noise to its training images once, before round 1, and learns from these in every round. Noise
    redrawn each time would average out. Results are not cut off at black and white. Test images are unchanged.

    It promises nothing. An update follows from all images of a client together, over many steps, so noise on pixels
    implies no bound on the influence of one client or one image. So the ledger has no epsilon for it, and updates go
    out as the recipe's zones specify. The paper sets both noises so that they withstand DLG equally well.
    """

    class Options(Sgd.Options):
        """The options of `std.sgd`, and the noise."""

        std: float = Field(
            ge=0, allow_inf_nan=False,
            description="standard deviation on each sensitive pixel and channel, black being 0 and white 1; 0: none",
        )  # fmt: skip
        preference: Preference | None = Field(
            None, description="pixels that all clients find sensitive; null: the fields that the data marks, or whole "
            "images"
        )
        source: Literal["secure", "reproducible"] = Field(
            "secure",
            description="secure: a key that each client draws from the system and keeps; reproducible: from the "
            "recipe's seed, so that any party can subtract it",
        )

    def check(self, recipe: Recipe) -> list[str]:
        """Refuses boxes in files: they would be numbered like the client's own images, which no other party knows."""
        preference = self.options.preference
        if preference is not None and preference.boxes is not None:
            return ["boxes are numbered by public examples; give the region by fields, box, kinds or mask"]
        return []

    def learns(self, facts: Facts) -> Learns | None:
        """As SGD learns, from images that no party has. How far the update is from that of the real ones is unknown."""
        learns = super().learns(facts)
        if learns is None or self.options.std == 0:
            return learns
        return dataclasses.replace(learns, noise=None)

    def train(self, client: Client, facts: Facts) -> dict[str, float]:
        """As `std.sgd`, on the noised images.

        Raises:
            DataError: the preference does not fit the images, or its file cannot be read.
            SetupError: the model is not a torch model.
        """
        held = client.data
        client.data = dataclasses.replace(held, train=self.noised(client))
        try:
            return super().train(client, facts)
        finally:
            client.data = held

    def noised(self, client: Client) -> Examples:
        """The client's training examples with noise on their sensitive pixels, float32; the same in every call.

        Raises:
            DataError: as `train`.
        """
        train, data, kept = client.data.train, client.data, f"{self.name}.examples"
        if self.options.std == 0:
            return train
        if kept not in client.cache:
            # A batch of a probe may have no sensitive pixel. The metrics have the total number.
            if train.inputs.ndim != 4:
                raise DataError(f"{self.name} noises the pixels of images, and these examples have none; noise updates")
            region = marked(self.options.preference or Preference(), train, data, client.data_root)
            client.log[f"{self.name}.noised_pixels"] = float(region.mean())
            images = unit_range(train.inputs)
            noise = self._stream(client).standard_normal(images.shape, np.float32)
            noise *= np.float32(self.options.std)
            images += noise * region[:, None]
            client.cache[kept] = dataclasses.replace(train, inputs=images)
        found: Examples = client.cache[kept]
        return found

    def _stream(self, client: Client) -> np.random.Generator:
        """The stream of this client's pixels. Its key survives in the checkpoints, so the noise is never redrawn."""
        memory = client.memory(self)
        if "key" not in memory:
            reproducible = self.options.source == "reproducible"
            memory["key"] = client.rng(self, "pixels").bytes(16) if reproducible else secrets.token_bytes(16)
        return np.random.Generator(np.random.Philox(key=int.from_bytes(memory["key"], "little")))

    def describe(self) -> str:
        """One line for the plan of the run."""
        options, of = self.options, "sensitive pixels" if self.options.preference else "pixels"
        where = f"noise of std {options.std:g} on {of}, which promises nothing for the update"
        return f"SGD, {options.epochs} epochs, on images with {where}"


def unit_range(inputs: NDArray[Any]) -> NDArray[np.float32]:
    """Stored images as float32 in [0, 1], a copy: from uint8 of 0 to 255, or floats unchanged."""
    if inputs.dtype == np.uint8:
        inputs = inputs / np.float32(255)
    found: NDArray[np.float32] = inputs.astype(np.float32)
    return found
