"""Recipes of SelectiveShield, and the files of a run."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from fedplug import Block
from fedplug.api import codec
from fedplug_runs.checkpoint import read_file
from numpy.typing import NDArray
from toy_components import recipe_of
from toy_protocol import Outcome, read_clients

CLIP = {"use": "std.clip", "norm": 0.05}
SEAL = {"use": "std.bfv", "range": 2.0}
NOISE = {"use": "selectiveshield.noise", "noise_multiplier": 0.2, "source": "reproducible"}
HIDE = {"use": "selectiveshield.hide_support"}
UNIFORM = {"use": "std.mean", "weighting": "uniform"}


def shield(noised: list[Any] | None = None, *, tau: Any = 0.4, rho: float = 0.5, **changes: Any) -> dict[str, Any]:
    """SelectiveShield on digits: 4 clients, 650 scalars, 2 rounds, BFV, reproducible noise."""
    plain: dict[str, Any] = recipe_of(
        score_parameters=[{"use": "selectiveshield.fisher"}],
        negotiate_mask={"use": "selectiveshield.consensus", "tau": tau, "rho": rho},
        protect={"encrypted": [SEAL], "noised": [CLIP, NOISE] if noised is None else noised},
        aggregate={"use": "selectiveshield.two_server"},
        postprocess={"encrypted": ["std.bfv"], "retained": [{"use": "selectiveshield.merge"}]},
    )
    return plain | changes


@dataclasses.dataclass
class Saved:
    """A client's state at the end of a run."""

    vector: NDArray[np.float32]
    personal: NDArray[np.float32] | None
    positions: NDArray[np.uint32]
    values: NDArray[np.float32]
    labels: NDArray[np.uint8]


def saved(outcome: Outcome, folder: Path) -> dict[int, Saved]:
    """The clients' states, from the files that the engine wrote."""
    for name, data in outcome.files.items():
        (folder / name).write_bytes(data)
    found = {}
    for client_id, state in read_clients(folder).items():
        vector, personal, labels = (
            key and codec.decode(read_file(folder / key))
            for key in (state["vector"], state["personal"], state["plan"]["labels"])
        )
        kept = state["remembered"]["retained"] or Block("retained", 0, np.array([]), np.array([]))
        found[client_id] = Saved(vector, personal, kept.positions, kept.values, labels)
    return found


def uploads(outcome: Outcome, round: int) -> dict[str, dict[str, Block]]:
    """Each client's upload, by its address."""
    replies = {m.sender: m.decode().get("value") for m in outcome.sent("server", round=round) if m.phase == "upload"}
    return {sender: value["blocks"] for sender, value in replies.items() if sender.startswith("client")}
