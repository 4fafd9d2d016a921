"""From a plain block to ciphertexts, to their sum, and back.

Each ciphertext carries one slot that counts contributors. So the party that decrypts learns the true number of added
updates and refuses to open fewer than `min_clients`, whatever the server claims. This detects mistakes, lost and
doubled uploads. It does not stop a server that adds one upload several times on purpose: additive encryption is
malleable, and here as in the papers the server is honest but curious.

A block without positions is gathered: all clients encrypt the same scalars (`he_gathered`). A block with positions is
encrypted in blocks of global positions, so that clients whose masks differ still add up (`he_positions`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from fedplug.api.blocks import unchangeable
from fedplug.api.errors import MessageError, ProtectionError
from fedplug.api.parties import Server
from fedplug.api.records import is_count, shown

from fedplug_std import he_gathered, he_positions
from fedplug_std.he_keys import context_of, opened_of

if TYPE_CHECKING:
    from fedplug import Block, Client, Facts, Party
    from numpy.typing import NDArray

    from fedplug_std.he_blocks import Encryption
    from fedplug_std.he_keys import Terms

_KEPT_BYTES = 1 << 24
"""Largest number of ciphertexts of an opened sum that is kept until the next one; larger sums take too much memory."""


def seal(component: Encryption, block: Block, client: Client, facts: Facts) -> Block:
    """Multiplies the client's weight in and encrypts; an empty block gives no ciphertexts.

    Raises:
        ProtectionError: a value is not finite, or the keys were made for fewer clients than the run has.
    """
    context, terms = context_of(component, client)
    if terms["max_clients"] < facts.num_clients:
        raise ProtectionError(
            f"{component.name}: the keys were made for max_clients={terms['max_clients']}, but {facts.num_clients} "
            f"clients take part; a sum could overflow, so this client does not encrypt"
        )
    codec = component.codec(terms)
    values = block.plain().astype(np.float64)
    if not block.weighted:
        values *= client.weight
    if block.positions is None:
        payload, saturated = he_gathered.payload(component, codec, values)
    else:
        payload, saturated = he_positions.payload(component, codec, values, block.positions)
    client.log[f"{component.name}.saturated"] = saturated
    del values
    rows = np.empty((len(payload), component.slots), payload.dtype)
    rows[:, 0], rows[:, 1:] = codec.count_unit, payload
    del payload
    with client.operation(f"{component.name}.encrypt", len(rows)):
        ciphertexts = component.backend.encrypt(context, rows)
    return block.replace(
        values=None,
        ciphertexts=ciphertexts,
        sealed_by=component.name,
        divisor=block.divisor if block.weighted else client.weight,
        weighted=True,
        meta={**block.meta, "key": terms["key"]},
    )


def add_blocks(component: Encryption, blocks: dict[int, Block], server: Party, facts: Facts) -> Block:
    """Adds ciphertexts of several clients with the bare parameters; the divisor is the sum of their weights.

    Raises:
        ProtectionError: there are more updates than a sum can hold, or blocks of different form, under another key or
            sealed by another component; or an upload claims several contributors, or a wrong weight.
        MessageError: a ciphertext is damaged, missing or of another packing.

    A fault of one client is blamed on it, and the protocol adds again without it.
    """
    context, terms = context_of(component, server)
    blocks = dict(sorted(blocks.items()))
    for client_id, block in blocks.items():
        _check_seal(component, client_id, block, terms)
    scattered = any(block.positions is not None for block in blocks.values())
    if scattered:
        he_positions.check_uploads(component, blocks, facts.layout.size)
    else:
        he_gathered.check_uploads(component, blocks, component.codec(terms))
    _require_room(sum(block.contributors for block in blocks.values()), terms)
    weights = server.weights if isinstance(server, Server) else {}  # other parties that add have none
    for client_id, block in blocks.items():
        weight = weights.get(client_id, block.divisor)
        if block.contributors != 1 or isinstance(block.divisor, np.ndarray) or block.divisor != weight:
            raise ProtectionError(
                f"client {client_id} sent a {block.zone} block of {block.contributors} contributors and another weight "
                f"than {weight}, or of several; an upload holds one update, with its client's weight"
            ).blame(client_id)
    if scattered:
        return he_positions.add(component, context, blocks, server, facts)
    return he_gathered.add(component, context, blocks, server)


def join_sums(component: Encryption, sums: Sequence[Block], server: Party) -> Block:
    """Adds sums of different clients, of gathered blocks.

    Raises:
        ProtectionError: more updates than a sum can hold.
    """
    context, terms = context_of(component, server)
    contributors = sum(block.contributors for block in sums)
    _require_room(contributors, terms)
    with server.operation(f"{component.name}.add", sum(len(block.ciphertexts) for block in sums)):
        parts = [(f"sum {number}", block.ciphertexts) for number, block in enumerate(sums)]
        ciphertexts = component.backend.add(context, parts, component.slots)
    divisor = sum(block.divisor for block in sums)
    return sums[0].replace(ciphertexts=ciphertexts, contributors=contributors, divisor=divisor, meta={})


def open_sum(component: Encryption, block: Block, party: Party, facts: Facts) -> Block:
    """Decrypts a sum, after checking how many updates it really holds; values become the weighted sum.

    Raises:
        ProtectionError: this party holds no secret key, or the sum holds fewer than `min_clients` updates, or another
            number than claimed.
        MessageError: a ciphertext is damaged or missing.

    Parties of a process that hold the same key decrypt a small sum once; each reports the time that it takes.
    """
    if block.sealed_by != component.name:
        raise ProtectionError(f"{component.name} cannot open a {block.zone} block sealed by {block.sealed_by}")
    context, terms = context_of(component, party)
    codec = component.codec(terms)
    if block.positions is None:
        claimed = he_gathered.claimed_counts(component, block, codec)
    else:
        claimed = he_positions.claimed_counts(component, block)
    if len(block.ciphertexts) != len(claimed):
        raise MessageError(f"{len(block.ciphertexts)} ciphertexts for {block.size} values, expected {len(claimed)}")
    opened = opened_of(component, party)
    sum_of = block.ciphertexts, block.zone, block.size, block.contributors, facts.min_clients, terms
    small = block.positions is None and sum(map(len, block.ciphertexts)) <= _KEPT_BYTES
    with party.operation(f"{component.name}.decrypt", len(claimed)):
        if small and opened.sum_of == sum_of:
            party.saved(opened.seconds)
            return block.replace(values=opened.values, ciphertexts=(), sealed_by=None, meta={})
        started = time.perf_counter()
        rows = component.backend.decrypt(context, block.ciphertexts, component.slots)
    _check_counts(component, codec.counts(rows[:, 0]), claimed, block, facts.min_clients)
    if block.positions is None:
        values = he_gathered.values(codec, rows[:, 1:], block)
    else:
        values = he_positions.values(component, codec, rows[:, 1:], claimed, block.positions)
    if small:
        values = unchangeable(values)
        opened.sum_of, opened.values, opened.seconds = sum_of, values, time.perf_counter() - started
    return block.replace(values=values, ciphertexts=(), sealed_by=None, meta={})


def _require_room(contributors: int, terms: Terms) -> None:
    if contributors > terms["max_clients"]:
        raise ProtectionError(
            f"a sum of {contributors} updates could overflow: max_clients={terms['max_clients']}; raise max_clients"
        )


def _check_seal(component: Encryption, client_id: int, block: Block, terms: Terms) -> None:
    if block.sealed_by != component.name or not block.weighted:
        raise ProtectionError(
            f"client {client_id} sent a {block.zone} block sealed by {block.sealed_by}, weighted={block.weighted}; "
            f"{component.name} adds only what it sealed itself, with the weight multiplied in"
        ).blame(client_id)
    key = block.meta.get("key")
    if not is_count(key):
        raise ProtectionError(
            f"client {client_id} sent a {block.zone} block whose meta says key={shown(key)}, which must be the whole "
            f"number of the key that {component.name} encrypted it under"
        ).blame(client_id)
    if key != terms["key"]:
        raise ProtectionError(
            f"client {client_id} encrypted its {block.zone} block under another key than the one of this run, under "
            "which nobody could open the sum; its stored state is of another run: restart it without that state"
        ).blame(client_id)


def _check_counts(
    component: Encryption, counts: NDArray[np.int64], claimed: NDArray[np.int64], block: Block, min_clients: int
) -> None:
    wrong = np.flatnonzero(counts != claimed)
    if len(wrong):
        raise ProtectionError(
            # Without the true number: the message travels to the server, and must not contain decrypted values.
            f"ciphertext {wrong[0]} of the {block.zone} sum does not hold the {claimed[wrong[0]]} updates that are "
            f"claimed; {component.name} does not open it: it was damaged, or badly added"
        )
    fewest = min(block.contributors, int(claimed.min(initial=block.contributors)))
    if len(claimed) and fewest < min_clients:
        raise ProtectionError(
            f"the {block.zone} sum holds {fewest} updates; opening fewer than min_clients={min_clients} would show too "
            "much of each"
        )
