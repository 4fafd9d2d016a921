"""Pictures of SelectiveShield's Appendix C: the distribution of Fisher information, raw and scaled (Fig. 5 to 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedplug_selectiveshield.consensus import Consensus

if TYPE_CHECKING:
    from fedplug import Client, Facts, Layout
    from numpy.typing import NDArray

_BINS = 50
_FEW_LAYERS = 12
"""Up to this number, each layer gets its own histogram."""


def fisher_pictures(
    information: NDArray[np.float64], scores: NDArray[np.float32], client: Client, facts: Facts
) -> dict[str, dict[str, Any]]:
    """Histograms of the raw (Fig. 6) and the scaled values (Fig. 7, tau marked), and box plots per layer (Fig. 5).

    Args:
        information: eq. 3, (P,), finite.
        scores: eq. 13, (P,), in [0, 1].
        client: the client whose values are drawn.
        facts: knows the negotiation, and so the client's tau.

    Returns:
        Pictures by name, as `fedplug_lab.pictures` describes them.
    """
    taus = [c.threshold(client.client_id) for c in facts.components.values() if isinstance(c, Consensus)]
    whose = f"client {client.client_id}, round {facts.round + 1}"
    mark = taus[0] if len(taus) == 1 else None
    return {
        "fisher-raw": {
            "kind": "histogram", "title": f"Fisher information of {whose} (Fig. 6)", "x_label": "Fisher information",
            "log_y": True, "panels": _histograms(information, facts.layout, None),
        },
        "fisher-normalised": {
            "kind": "histogram", "title": f"Normalised Fisher information of {whose} (Fig. 7)",
            "x_label": "normalised Fisher information", "log_y": True, "mark_label": "tau",
            "panels": _histograms(scores, facts.layout, mark),
        },
        "fisher-boxes": {
            "kind": "box", "title": f"Fisher information of {whose}, by layer (Fig. 5)",
            "y_label": "Fisher information",
            "panels": [_boxes("raw", information, facts.layout), _boxes("normalised", scores, facts.layout)],
        },
    }  # fmt: skip


def _of_layers(values: NDArray[Any], layout: Layout) -> dict[str, NDArray[Any]]:
    return {layer: np.concatenate([values[s] for s in parts]) for layer, parts in layout.layer_slices().items()}


def _histograms(values: NDArray[Any], layout: Layout, mark: float | None) -> list[dict[str, Any]]:
    """One panel per layer; for a model with many layers one panel for all. Scores, which have a mark, lie in [0, 1]."""
    layers = _of_layers(values, layout)
    panels = []
    for title, part in layers.items() if len(layers) <= _FEW_LAYERS else [("all layers", values)]:
        largest = 1.0 if mark is not None else float(part.max(initial=0)) or 1.0
        counts, edges = np.histogram(part.astype(np.float64), bins=_BINS, range=(0.0, largest))
        panels.append({"title": title, "edges": edges.tolist(), "counts": counts.tolist(), "mark": mark})
    return panels


def _boxes(title: str, values: NDArray[Any], layout: Layout) -> dict[str, Any]:
    layers = _of_layers(values, layout)
    boxes = [np.quantile(part.astype(np.float64), (0, 0.25, 0.5, 0.75, 1)).tolist() for part in layers.values()]
    return {"title": title, "labels": list(layers), "boxes": boxes, "log_y": True}
