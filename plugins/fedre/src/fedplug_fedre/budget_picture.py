"""A picture of one client's layer budgets for the report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedplug_fedre.budgets import Budgets

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_SHOWN = 200
"""Most layers that a picture can show."""


def picture(whose: str, zone: str, share: Budgets, ratios: NDArray[np.float64], layers: list[str]) -> dict[str, Any]:
    """Budget, noise multiplier and signal-to-noise of each layer, as `fedplug_lab.pictures` describes it.

    Args:
        whose: the client in words.
        zone: of the block.
        share: eps_l and sigma_l.
        ratios: signal-to-noise, (L,).
        layers: their names, (L,).
    """
    shown = {"eps_l": share.epsilons, "sigma_l": share.sigmas, "signal-to-noise": ratios}
    panels = [
        {"title": title, "log_y": bool(numbers.min() > 0), "labels": layers[:_SHOWN],
         "boxes": [[number] * 5 for number in numbers[:_SHOWN].tolist()]}
        for title, numbers in shown.items()
    ]  # fmt: skip
    note = "Signal-to-noise: norm of a layer's clipped values over the norm that its noise has."
    return {"kind": "box", "title": f"Layer budgets of {whose}, zone {zone}", "note": note, "panels": panels}
