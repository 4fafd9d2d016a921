"""Zones that all clients share: the zone's scalars are gathered in order and fill ciphertext after ciphertext.

The cheapest packing, because a scattered mask takes no more ciphertexts than a contiguous one. It needs every client to
encrypt the same positions, which the server need not know.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.errors import MessageError, ProtectionError

if TYPE_CHECKING:
    from fedplug import Block, Party
    from numpy.typing import NDArray

    from fedplug_std.he_blocks import Codec, Encryption


def payload(component: Encryption, codec: Codec, values: NDArray[np.float64]) -> tuple[NDArray[Any], float]:
    """The content of one update's ciphertexts without the counting slot, shape (m, slots - 1), zeros at the end.

    It also returns the share of saturated values.
    """
    slots, saturated = codec.encode(values)
    width = component.slots - 1
    rows = np.zeros((math.ceil(len(slots) / width), width), slots.dtype)
    rows.reshape(-1)[: len(slots)] = slots
    return rows, saturated


def check_uploads(component: Encryption, blocks: Mapping[int, Block], codec: Codec) -> None:
    """Checks that all clients encrypted equally many scalars, in as many ciphertexts as those take.

    Raises:
        ProtectionError: they did not.
        MessageError: a ciphertext is missing.
    """
    first_id, first = next(iter(blocks.items()))
    expected = num_ciphertexts(component, first.size, codec)
    for client_id, block in blocks.items():
        if block.size != first.size:
            raise ProtectionError(
                f"client {client_id} encrypted {block.size} scalars of the {block.zone} zone, client {first_id} "
                f"{first.size}; all clients must encrypt the same ones because the negotiation shares this zone"
            )
        if len(block.ciphertexts) != expected:
            raise MessageError(
                f"client {client_id} sent {len(block.ciphertexts)} ciphertexts for {block.size} values, expected "
                f"{expected}: the message was cut"
            ).blame(client_id)


def add(component: Encryption, context: Any, blocks: Mapping[int, Block], server: Party) -> Block:
    """The sum of the clients' blocks, ciphertext by ciphertext.

    Raises:
        MessageError: a ciphertext is damaged; its client is blamed.
    """
    first = next(iter(blocks.values()))
    uploads = {client_id: block.ciphertexts for client_id, block in blocks.items()}
    return first.replace(
        ciphertexts=add_ciphertexts(component, context, uploads, server),
        contributors=len(blocks),
        divisor=sum(block.divisor for block in blocks.values()),
        meta={},
    )


def add_ciphertexts(
    component: Encryption, context: Any, uploads: Mapping[int, Sequence[bytes]], server: Party, what: str = ""
) -> tuple[bytes, ...]:
    """Adds equally many ciphertexts of each client; `what` describes them in the message about a damaged one."""
    adding = next(iter(uploads))

    def each() -> Iterator[tuple[str, Sequence[bytes]]]:
        nonlocal adding
        for adding, ciphertexts in uploads.items():
            yield f"client {adding}{what}", ciphertexts

    try:
        with server.operation(f"{component.name}.add", sum(map(len, uploads.values()))):
            return component.backend.add(context, each(), component.slots)
    except MessageError as error:
        raise error.blame(adding) from error.__cause__


def claimed_counts(component: Encryption, block: Block, codec: Codec) -> NDArray[np.int64]:
    """Number of updates that each ciphertext of a sum should hold, shape (m,)."""
    return np.full(num_ciphertexts(component, block.size, codec), block.contributors, np.int64)


def values(codec: Codec, rows: NDArray[Any], block: Block) -> NDArray[np.float32]:
    """The weighted sums, shape (size,), from decrypted payloads, shape (m, slots - 1)."""
    return codec.decode(rows.reshape(-1), block.size, block.contributors)


def num_ciphertexts(component: Encryption, size: int, codec: Codec) -> int:
    """Number of ciphertexts for `size` gathered scalars."""
    return math.ceil(codec.num_slots(size) / (component.slots - 1))
