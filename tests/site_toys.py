"""Sites in a folder: their files, a recipe that reads them, and a data set that notes the loading process.

A separate module, because worker processes import the data set by name.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from fedplug import Dataset
from fedplug_std.arrays import Arrays
from toy_components import recipe_of

SHAPE, CLASSES = [1, 4, 4], ["low", "high"]
AGREED: dict[str, Any] = {"shape": SHAPE, "classes": CLASSES, "mean": [0.5], "std": [0.25]}
SIZES = (12, 30, 18)


class Noted(Arrays):
    """Arrays in one file, and a note of each process that reads one. Processes read only a client's folder."""

    def load(self, root: str | None) -> Dataset:
        """Notes, and loads."""
        folder = Path(root or "nowhere")
        if not folder.name.startswith("client-"):
            raise AssertionError(f"somebody loads {folder}, which is not a site")
        with (folder.parent / "loads.txt").open("a") as file:
            file.write(f"{os.getpid()} {folder.name}\n")
        return super().load(root)


def arrays(size: int, seed: int = 0, **changes: Any) -> dict[str, Any]:
    """A site's arrays: dark and bright images, a third as many for testing."""
    rng, found = np.random.default_rng(seed), {"classes": CLASSES}
    for split, count in (("train", size), ("test", size // 3)):
        labels = np.arange(count) % 2
        images = rng.integers(0, 100, (count, *SHAPE)) + 150 * labels[:, None, None, None]
        found |= {f"{split}_images": images.astype(np.uint8), f"{split}_labels": labels}
    return {name: array for name, array in (found | changes).items() if array is not None}


def write_sites(folder: Path, sizes: tuple[int, ...] = SIZES, **changes: Any) -> Path:
    """A folder for each client, with that number of training examples."""
    for client_id, size in enumerate(sizes):
        site = folder / f"client-{client_id}"
        site.mkdir(parents=True, exist_ok=True)
        np.savez(site / "data.npz", **arrays(size, client_id, **changes))
    return folder


def at_sites(use: str = "std.arrays", agreed: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A small recipe with data at three sites."""
    data = {"use": use, "at": "sites", "clients": len(SIZES), "agreed": AGREED | (agreed or {})}
    return recipe_of(data=data) | changes
