"""Recipes whose clients have their own zones, and a client's saved state of its zones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedplug.api import codec
from fedplug_runs.checkpoint import read_file
from toy_components import recipe_of
from toy_protocol import read_clients

CLIP = {"use": "std.clip", "norm": 1.0}
HALVES = {"use": "toy.halves"}


def shield(**changes: Any) -> dict[str, Any]:
    """SelectiveShield: zones of each client's own, with positions in the clear, and a zone that clients keep."""
    plain = recipe_of(
        score_parameters=[{"use": "selectiveshield.fisher"}],
        negotiate_mask={"use": "selectiveshield.consensus", "tau": 0.3, "rho": 0.3},
        protect={
            "encrypted": [{"use": "std.ckks", "key_holder": "key_server", "sums_visible_to": "clients"}],
            "noised": [CLIP, {"use": "selectiveshield.noise", "epsilon": 8, "delta": 1e-5, "source": "reproducible"}],
        },
        aggregate={"use": "selectiveshield.two_server"},
        postprocess={"encrypted": ["std.ckks"], "retained": [{"use": "selectiveshield.merge"}]},
    )
    return plain | changes


def saved(folder: Path, round: int, client_id: int) -> dict[str, Any]:
    """A client's saved state after this number of rounds: plan (labels, zones), vector."""
    path = folder / "checkpoint" / f"round-{round:04d}"
    found = read_clients(path)[client_id]
    found["vector"] = codec.decode(read_file(path / found["vector"]))
    found["labels"] = codec.decode(read_file(path / found["plan"]["labels"]))
    return found


def zone(folder: Path, name: str, round: int = 1, client_id: int = 0) -> Any:
    """Where a zone of a client lies: bool (P,)."""
    found = saved(folder, round, client_id)
    return found["labels"] == found["plan"]["zones"].index(name)
