"""From a plain block to ciphertexts, to their sum, and back: what the encryption components share.

Each ciphertext carries one slot that counts contributors, so whoever decrypts learns how many updates were really added
and refuses to open fewer than `min_clients`, whatever the server claims. This finds mistakes, lost and doubled uploads.
It does not stop a server that adds one upload several times on purpose: additive encryption is malleable, and here as
in the papers the server is honest but curious.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug import Block
from fedplug.errors import MessageError, ProtectionError

from fedplug_std.he_keys import context_of

if TYPE_CHECKING:
    from fedplug import Client, Context
    from numpy.typing import NDArray

    from fedplug_std.he_keys import Encryption

ENCRYPT_ONCE = "encrypt once: a zone's chain holds one encryption, as its last link"


def protect(component: Encryption, block: Block, client: Client, ctx: Context) -> Block:
    """Multiplies the client's weight in and encrypts; an empty block gives no ciphertexts.

    Raises:
        ProtectionError: a value is not finite, or the keys were made for fewer clients than the run has.
    """
    from fedplug_std import _tenseal

    context, terms = context_of(component, client)
    if terms["max_clients"] < ctx.num_clients:
        raise ProtectionError(
            f"{component.name}: the keys were made for max_clients={terms['max_clients']}, but {ctx.num_clients} "
            f"clients take part; a sum could overflow, so this client does not encrypt"
        )
    codec = component.codec(terms)
    values = block.plain().astype(np.float64)
    if not block.weighted:
        values *= client.weight
    slots, saturated = codec.encode(values)
    client.log[f"{component.name}.saturated"] = saturated
    rows = _rows(slots, component.slots, codec.count_unit)
    return block.replace(
        values=None,
        ciphertexts=_tenseal.encrypt(component.scheme, context, rows),
        sealed_by=component.name,
        divisor=block.divisor if block.weighted else client.weight,
        weighted=True,
    )


def add_blocks(component: Encryption, blocks: dict[int, Block], ctx: Context) -> Block:
    """Adds ciphertexts of several clients with the bare parameters; the divisor is the sum of theirs.

    Raises:
        ProtectionError: more updates than a sum can hold, blocks that are not alike, or sealed by something else; an
            upload that claims several contributors, or another weight than its client has.
        MessageError: a ciphertext is damaged.

    Whatever is one client's fault alone is blamed on it, and the protocol adds again without it.
    """
    from fedplug_std import _tenseal

    context, terms = context_of(component, ctx.party)
    blocks = dict(sorted(blocks.items()))
    first = next(iter(blocks.values()))
    expected = _num_ciphertexts(component, first.size, terms)
    for client_id, block in blocks.items():
        if block.sealed_by != component.name or not block.weighted:
            raise ProtectionError(
                f"client {client_id} sent a {block.zone} block sealed by {block.sealed_by}, weighted={block.weighted}; "
                f"{component.name} adds only what it sealed itself, with the weight multiplied in"
            ).blame(client_id)
        if block.size != first.size or not _same_positions(block, first):
            raise ProtectionError(
                f"client {client_id} encrypted {block.size} other positions of the {block.zone} zone than client "
                f"{next(iter(blocks))} ({first.size}); {component.name} adds gathered values, so let the negotiation "
                f"share this zone"
            )
        if len(block.ciphertexts) != expected:
            raise MessageError(
                f"client {client_id} sent {len(block.ciphertexts)} ciphertexts for {block.size} values, expected "
                f"{expected}: the message was cut"
            ).blame(client_id)
    contributors = sum(block.contributors for block in blocks.values())
    if contributors > terms["max_clients"]:
        raise ProtectionError(
            f"a sum of {contributors} updates could overflow: max_clients={terms['max_clients']}; raise max_clients"
        )
    weights = ctx.party.state.get("fedplug", {}).get("weights", {})
    for client_id, block in blocks.items():
        weight = weights.get(client_id, block.divisor)
        if block.contributors != 1 or isinstance(block.divisor, np.ndarray) or block.divisor != weight:
            raise ProtectionError(
                f"client {client_id} sent a {block.zone} block of {block.contributors} contributors and another weight "
                f"than {weight}, or of several; an upload holds one update, with its client's weight"
            ).blame(client_id)
    adding = next(iter(blocks))

    def uploads() -> Iterator[tuple[str, tuple[bytes, ...]]]:
        nonlocal adding
        for adding, block in blocks.items():
            yield f"client {adding}", block.ciphertexts

    try:
        ciphertexts = _tenseal.add(component.scheme, context, uploads(), component.slots)
    except MessageError as error:
        raise error.blame(adding) from error.__cause__
    return first.replace(
        ciphertexts=ciphertexts,
        contributors=contributors,
        divisor=sum(block.divisor for block in blocks.values()),
        l2_bound=None,
        meta={},
    )


def postprocess(component: Encryption, block: Block, ctx: Context) -> Block:
    """Decrypts a sum, after checking how many updates it really holds; values become the weighted sum.

    Raises:
        ProtectionError: this party holds no secret key, or the sum holds fewer than `min_clients` updates, or another
            number than claimed.
        MessageError: a ciphertext is damaged or missing.
    """
    from fedplug_std import _tenseal

    if block.sealed_by != component.name:
        raise ProtectionError(f"{component.name} cannot open a {block.zone} block sealed by {block.sealed_by}")
    context, terms = context_of(component, ctx.party)
    codec = component.codec(terms)
    expected = _num_ciphertexts(component, block.size, terms)
    if len(block.ciphertexts) != expected:
        raise MessageError(f"{len(block.ciphertexts)} ciphertexts for {block.size} values, expected {expected}")
    rows = _tenseal.decrypt(component.scheme, context, block.ciphertexts, component.slots)
    _check_counts(component, codec.counts(rows[:, 0]), block, ctx.min_clients)
    values = codec.decode(rows[:, 1:].reshape(-1), block.size, block.contributors)
    return block.replace(values=values, ciphertexts=(), sealed_by=None)


def _check_counts(component: Encryption, counts: NDArray[np.int64], block: Block, min_clients: int) -> None:
    wrong = np.flatnonzero(counts != block.contributors)
    if len(wrong):
        raise ProtectionError(
            # Not how many it does hold: the message travels to the server, and must not carry what was decrypted.
            f"ciphertext {wrong[0]} of the {block.zone} sum does not hold the {block.contributors} updates that are "
            f"claimed; {component.name} does not open it: it was damaged, or badly added"
        )
    if len(counts) and block.contributors < min_clients:
        raise ProtectionError(
            f"the {block.zone} sum holds {block.contributors} updates; opening fewer than min_clients={min_clients} "
            f"would show too much of each"
        )


def _rows(slots: NDArray[Any], width: int, count_unit: float) -> NDArray[Any]:
    """Rows of `width` slots: first what each contributor counts for, then payload, zeros at the end."""
    rows = np.zeros((math.ceil(len(slots) / (width - 1)), width), slots.dtype)
    full, rest = divmod(len(slots), width - 1)
    rows[:, 0] = count_unit
    rows[:full, 1:] = slots[: full * (width - 1)].reshape(full, width - 1)
    if rest:
        rows[full, 1 : rest + 1] = slots[full * (width - 1) :]
    return rows


def _num_ciphertexts(component: Encryption, size: int, terms: dict[str, int]) -> int:
    return math.ceil(component.codec(terms).num_slots(size) / (component.slots - 1))


def _same_positions(one: Block, other: Block) -> bool:
    if one.positions is None or other.positions is None:
        return one.positions is other.positions
    return bool(np.array_equal(one.positions, other.positions))
