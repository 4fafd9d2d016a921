"""Zones in which each client has its own positions: ciphertexts of fixed blocks of global positions.

The flat vector is cut into blocks of `position_block` consecutive positions. A client encrypts every block that its
mask touches as a whole, with the code of zero at positions outside the mask. Ciphertexts of one block add up whatever
the masks, and the divisor of a position's sum follows from the masks, which travel in the clear.

A position that fewer than `min_clients` clients covered is left out of the result: its sum would be the value of one or
a few clients. The paper's form, which opens the union of the masks, is `min_clients: 1` in the recipe. The party that
decrypts a ciphertext also sees the positions that are left out, but does not pass them on. The core prevents such
positions by encrypting all `clear` positions in a block that a mask touches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.errors import MessageError, ProtectionError
from fedplug.api.records import shown

from fedplug_std.he_gathered import add_ciphertexts

if TYPE_CHECKING:
    from fedplug import Block, Facts, Party
    from numpy.typing import NDArray

    from fedplug_std.he_blocks import Codec, Encryption


def payload(
    component: Encryption, codec: Codec, values: NDArray[np.float64], positions: NDArray[np.uint32]
) -> tuple[NDArray[Any], float]:
    """One update's ciphertexts without the counting slot, shape (m, slots - 1), in order of their blocks.

    It also returns the share of saturated values among those in the mask.
    """
    width = component.position_block
    touched, row = np.unique(positions // width, return_inverse=True)
    covered = np.zeros((len(touched), width))
    covered[row, positions % width] = values
    encoded = [codec.encode(part) for part in covered]
    if not encoded:
        return np.empty((0, component.slots - 1), codec.encode(values)[0].dtype), 0.0
    saturated = sum(share for _, share in encoded) * width / len(positions)
    return np.stack([slots for slots, _ in encoded]), saturated


def check_uploads(component: Encryption, blocks: Mapping[int, Block], size: int) -> None:
    """Checks that positions are ones of a model of `size` scalars, and that there is a ciphertext for each block.

    Raises:
        ProtectionError: positions are missing, outside this model, or not ascending.
        MessageError: there is not exactly one ciphertext for each position block that the positions touch.
    """
    for client_id, block in blocks.items():
        where = block.positions
        if where is None:
            raise ProtectionError(f"client {client_id} sent a {block.zone} block without positions, others with")
        if where.shape != (block.size,) or not (where[1:] > where[:-1]).all():
            raise ProtectionError(
                f"client {client_id} sent {len(where)} {block.zone} positions for {block.size} scalars, which must be "
                "as many and strictly ascending"
            ).blame(client_id)
        if len(where) and int(where[-1]) >= size:
            raise ProtectionError(
                f"client {client_id} sent {block.zone} position {int(where[-1])}, but the model has {size} scalars"
            ).blame(client_id)
        touched = len(_blocks_of(component, where))
        if len(block.ciphertexts) != touched:
            raise MessageError(
                f"client {client_id} sent {len(block.ciphertexts)} ciphertexts for {block.size} values in {touched} "
                f"blocks of {component.position_block} positions, expected one a block: the message was cut, or its "
                "sender uses a different packing"
            ).blame(client_id)


def add(component: Encryption, context: Any, blocks: Mapping[int, Block], server: Party, facts: Facts) -> Block:
    """The sum over the positions that at least `min_clients` clients encrypted, and their ciphertexts.

    Returns:
        A block whose divisor is the total weight at each position, whose `contributors` are the fewest clients behind
        any position (all, if there is none), and whose meta `counts` says how many clients are in each ciphertext and
        `fewest` how many are behind any position that these hold, left out or not.

    Raises:
        MessageError: a ciphertext is damaged; its client is blamed.
    """
    covers, weight = np.zeros(facts.layout.size, np.uint32), np.zeros(facts.layout.size, np.float64)
    for block in blocks.values():
        covers[block.positions] += 1
        weight[block.positions] += block.divisor
    held = covers >= max(facts.min_clients, 1)
    positions = np.flatnonzero(held).astype(np.uint32)
    parts: dict[int, dict[int, bytes]] = {index: {} for index in _blocks_of(component, positions).tolist()}
    for client_id, block in blocks.items():
        for index, ciphertext in zip(_blocks_of(component, block.positions).tolist(), block.ciphertexts, strict=True):
            if index in parts:
                parts[index][client_id] = ciphertext
    ciphertexts: list[bytes] = []
    for index, part in parts.items():
        uploads = {client_id: [ciphertext] for client_id, ciphertext in part.items()}
        ciphertexts += add_ciphertexts(component, context, uploads, server, f", position block {index},")
    # Values of all clients and groups of the round: number encrypted, and number encrypted in vain.
    log = server.log
    for word, count in (("encrypted", covers.sum()), ("in_no_sum", covers[~held].sum())):
        log[f"{component.name}.{word}"] = log.get(f"{component.name}.{word}", 0.0) + float(count)
    # The party that decrypts also sees the omitted positions of these ciphertexts, which the noise of few clients
    # hides.
    seen = covers[np.isin(np.arange(len(covers)) // component.position_block, list(parts))]
    fewest = int(seen[seen > 0].min(initial=len(blocks)))
    return next(iter(blocks.values())).replace(
        size=len(positions),
        positions=positions,
        ciphertexts=tuple(ciphertexts),
        contributors=int(covers[positions].min(initial=len(blocks))),
        divisor=weight[positions],
        meta={"counts": np.array([len(part) for part in parts.values()], np.uint32), "fewest": fewest},
    )


def claimed_counts(component: Encryption, block: Block) -> NDArray[np.int64]:
    """How many updates each ciphertext of a sum should hold, shape (m,).

    Raises:
        MessageError: the sum does not give it for each.
    """
    expected = len(_blocks_of(component, block.positions))
    counts = block.meta.get("counts")
    if not isinstance(counts, np.ndarray) or counts.shape != (expected,) or counts.dtype != np.uint32:
        found = f"{counts.dtype}{list(counts.shape)}" if isinstance(counts, np.ndarray) else shown(counts)
        raise MessageError(
            f"the {block.zone} sum must give the number of updates in each of its {expected} ciphertexts; meta counts "
            f"is {found}, not uint32[{expected}]"
        )
    return counts.astype(np.int64)


def values(
    component: Encryption, codec: Codec, rows: NDArray[Any], counts: NDArray[np.int64], positions: NDArray[np.uint32]
) -> NDArray[np.float32]:
    """The weighted sums at `positions`, and nowhere else, from decrypted payloads, shape (m, slots - 1)."""
    width = component.position_block
    opened = np.empty(len(positions), np.float32)
    touched, starts = np.unique(positions // width, return_index=True)
    stops = np.append(starts, len(positions))[1:]
    for index, start, stop, row, count in zip(touched, starts, stops, rows, counts, strict=True):
        opened[start:stop] = codec.decode(row, width, int(count))[positions[start:stop] - index * width]
    return opened


def _blocks_of(component: Encryption, positions: NDArray[np.uint32] | None) -> NDArray[np.int64]:
    """The position blocks that positions touch, ascending."""
    assert positions is not None
    return np.unique(positions // component.position_block).astype(np.int64)
