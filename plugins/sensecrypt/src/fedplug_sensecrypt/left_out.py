"""Values that clients encrypt in vain, because too few clients encrypted their position and no sum holds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from fedplug.api.links import seal_of

if TYPE_CHECKING:
    from fedplug.api.parties import Server
    from numpy.typing import NDArray


def in_vain(positions: Mapping[int, NDArray[np.uint32]], least: int, position_block: int) -> dict[int, float]:
    """By client, the share of its ciphertexts that hold only values which no sum holds.

    Args:
        positions: positions in a zone that each client of a group encrypted; not empty.
        least: number of clients that must have encrypted a position for a sum to hold it.
        position_block: number of consecutive positions that share a ciphertext.
    """
    known, counts = np.unique(np.concatenate(list(positions.values())), return_counts=True)
    held = np.unique(known[counts >= least] // position_block)
    shares = {}
    for client_id, where in positions.items():
        lost = np.isin(np.unique(where // position_block), held, invert=True)
        shares[client_id] = float(lost.mean()) if len(lost) else 0.0
    return shares


def encrypted_in_vain(server: Server, groups: Mapping[str, Sequence[int]]) -> dict[str, dict[int, float]]:
    """By encrypting operation and client, the share of the uploads at the server that no sum will hold.

    Empty where zones have the same positions at all clients, because then nothing is left out.
    """
    found: dict[str, dict[int, float]] = {}
    facts = server.facts
    for zone in facts.links:
        name, seal = seal_of(facts.steps(zone)) or ("", None)
        for ids in groups.values() if seal is not None and seal.position_block else ():
            blocks = [(c, server.uploads[c][zone]) for c in ids if zone in server.uploads.get(c, {})]
            where = {c: block.positions for c, block in blocks if block.positions is not None}
            if not where or seal is None:
                continue
            of = found.setdefault(f"{name}.encrypt", {})
            for client_id, share in in_vain(where, max(1, facts.min_clients), seal.position_block).items():
                of[client_id] = 1 - (1 - of.get(client_id, 0.0)) * (1 - share)  # over several zones
    return found
