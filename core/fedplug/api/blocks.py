"""Summing blocks, plain or encrypted, so that every position is divided by those who contributed to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedplug.api.errors import ProtectionError
from fedplug.api.typed import is_count
from fedplug.api.types import Block

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedplug.api.context import Context

_AT_ONCE = 1 << 14
"""Scalars of all clients that are added before the next ones: their sum stays in the processor's cache."""


def add_blocks(blocks: dict[int, Block], weights: dict[int, float], ctx: Context) -> Block:
    """The weighted sum of one zone's blocks, with `divisor` the total weight at each position.

    Encrypted blocks are added by the component that sealed them. Plain blocks without positions are added scalar by
    scalar; plain blocks with positions of their own are added into the union of their positions, each divided by the
    weight of those clients that really sent it. Clients are added in ascending id, so the sum does not depend on who
    answered first.

    Args:
        blocks: by client id; not empty.
        weights: by client id, in (0, 1].
        ctx: the server's context.

    Raises:
        ProtectionError: blocks of different zones, kinds or sizes; values or positions that cannot be, which are
            blamed on their client.
    """
    blocks = dict(sorted(blocks.items()))
    first = next(iter(blocks.values()))
    for client_id, block in blocks.items():
        if (block.zone, block.sealed_by) != (first.zone, first.sealed_by):
            raise ProtectionError(
                f"client {client_id} sent a {block.zone} block sealed by {block.sealed_by}, others a {first.zone} "
                f"block sealed by {first.sealed_by}; all clients of a group must protect a zone alike"
            )
    if first.sealed_by is not None:
        return ctx.component(first.sealed_by).add_blocks(blocks, ctx)  # type: ignore[no-any-return]
    if any(block.positions is not None for block in blocks.values()):
        return _add_scattered(blocks, weights, ctx.layout.size)
    for client_id, block in blocks.items():
        if block.size != first.size:
            raise other_size(f"client {client_id}", block, first)
    total = np.zeros(first.size, np.float64)
    weighted = np.empty(min(_AT_ONCE, first.size), np.float64)
    with np.errstate(invalid="ignore"):  # signalling NaN, or infinities of both signs: `_finite` says whose they are
        for start in range(0, first.size, _AT_ONCE):
            part = total[start : start + _AT_ONCE]
            product = weighted[: len(part)]
            for client_id, block in blocks.items():
                np.copyto(product, block.plain()[start : start + _AT_ONCE])
                if not block.weighted and weights[client_id] != 1.0:
                    product *= weights[client_id]
                part += product
    divisor = sum(weights[client_id] for client_id in blocks)
    return first.replace(
        values=_finite(total, blocks), divisor=divisor, weighted=True, contributors=len(blocks),
        meta={},  # what one client's block carried says nothing of the sum
    )  # fmt: skip


def join_sums(sums: Sequence[Block], ctx: Context) -> Block:
    """The sum of one zone over all clients, of the sums over some of them; those of no client may be in two.

    Values, divisors and contributors add up; ciphertexts are added by the component that sealed them. Each join rounds
    plain values to float32 once more.

    Args:
        sums: not empty; without positions of their own, where the fewest updates behind a value cannot be known.
        ctx: the server's context.

    Raises:
        ProtectionError: sums of different zones, kinds or sizes, or with positions.
    """
    first = sums[0]
    for block in sums[1:]:
        if (block.zone, block.sealed_by, block.size) != (first.zone, first.sealed_by, first.size):
            raise other_size("some clients", block, first)
        if block.positions is not None or first.positions is not None:
            raise ProtectionError(
                f"sums of the {block.zone} zone came with positions of their own and cannot be joined; the negotiation "
                "must name the zone in Plans.own"
            )
    if len(sums) == 1:
        return first
    if first.sealed_by is not None:
        return ctx.component(first.sealed_by).join_sums(sums, ctx)  # type: ignore[no-any-return]
    total = np.zeros(first.size, np.float64)
    for block in sums:
        total += block.plain()
    return first.replace(
        values=total.astype(np.float32), divisor=sum(block.divisor for block in sums),
        contributors=sum(block.contributors for block in sums),
    )  # fmt: skip


def other_size(who: str, block: Block, first: Block) -> ProtectionError:
    """What is wrong where a block, or a sum of blocks, has another size or kind than the first one."""
    kind = f" {first.zone} scalars sealed by {first.sealed_by}"
    alike = (block.zone, block.sealed_by) == (first.zone, first.sealed_by)
    return ProtectionError(
        f"{who} sent {block.size} {block.zone} scalars{'' if alike else f' sealed by {block.sealed_by}'}, others "
        f"{first.size}{'' if alike else kind}; a shared zone must have the same positions at every client"
        f"{'' if alike else ', protected alike'}"
    )


def fewest_in(block: Block) -> int:
    """How many updates at least are behind every value that a sum holds, opened or not.

    Ciphertexts may hold more than what comes out of them; who summed them says so in `meta["fewest"]`. What is not a
    count there promises nothing, so that no credit follows from it.
    """
    stated = block.contributors if block.sealed_by is None else block.meta.get("fewest", block.contributors)
    return min(stated, block.contributors) if is_count(stated) else 0


def share_divisors(blocks: dict[str, Block]) -> dict[str, Block]:
    """Sums of several zones of one group, where a position may be in one zone at some clients and in another at others.

    Every such position is divided by the weight of all who sent it, in whichever zone, so that the means of the zones
    add up to the weighted mean. Zones without positions are the same at every client and overlap with nothing. Where an
    aggregator divides by one number, whoever sent what, it stays.

    Args:
        blocks: by zone; plain or sealed sums.
    """
    scattered = {
        zone: block
        for zone, block in blocks.items()
        if block.positions is not None and block.size and isinstance(block.divisor, np.ndarray)
    }
    if len(scattered) < 2:
        return blocks
    total = np.zeros(max(int(block.positions[-1]) for block in scattered.values()) + 1)  # type: ignore[index]
    for block in scattered.values():
        total[block.positions] += block.divisor
    shared = {zone: block.replace(divisor=total[block.positions]) for zone, block in scattered.items()}
    return {zone: shared.get(zone, block) for zone, block in blocks.items()}


def meet(blocks: list[Block]) -> Block:
    """Plain sums with positions, which may overlap, as one sum; the zone is that of the first.

    Values and divisors add up position by position, so that `mean` gives the weighted mean over all who sent a
    position in any of the parts (SenseCrypt, Alg. 3, lines of the DKMS).
    """
    first = blocks[0]
    if len(blocks) == 1:
        return first
    size = max((int(block.positions[-1]) + 1 for block in blocks if block.size), default=0)  # type: ignore[index]
    total, divisor = np.zeros(size), np.zeros(size)
    for block in blocks:
        total[block.positions] += block.plain()
        if isinstance(block.divisor, np.ndarray):
            divisor[block.positions] += block.divisor
        else:  # one number for the whole model, of which the parts do not make several
            divisor[block.positions] = np.maximum(divisor[block.positions], block.divisor)
    positions = np.flatnonzero(divisor).astype(np.uint32)
    return first.replace(
        size=len(positions),
        values=total[positions].astype(np.float32),
        positions=positions,
        divisor=divisor[positions],
        contributors=min(block.contributors for block in blocks),
    )


def _finite(total: NDArray[np.float64], blocks: dict[int, Block]) -> NDArray[np.float32]:
    """The sum as float32, unless one client's values have spoilt it: that client is blamed."""
    with np.errstate(over="ignore", invalid="ignore"):
        values = total.astype(np.float32)
    if np.isfinite(values).all():
        return values
    largest = {}
    for client_id, block in blocks.items():
        magnitudes = np.nan_to_num(np.abs(block.plain()), nan=np.inf, posinf=np.inf)
        largest[client_id] = float(magnitudes.max(initial=0))
    worst = max(largest, key=largest.__getitem__)
    what = "NaN or infinite" if np.isinf(largest[worst]) else "far too large"
    raise ProtectionError(
        f"client {worst} sent {what} values in the {blocks[worst].zone} zone, which no mean survives; its training "
        "diverged: lower lr in train"
    ).blame(worst)


def _add_scattered(blocks: dict[int, Block], weights: dict[int, float], size: int) -> Block:
    total, divisor, counts = np.zeros(size, np.float64), np.zeros(size, np.float64), np.zeros(size, np.uint32)
    for client_id, block in blocks.items():
        if block.positions is None:
            raise ProtectionError(f"client {client_id} sent a {block.zone} block without positions, others with")
        where, weight = block.positions, weights[client_id]
        if where.dtype != np.uint32 or not (where[1:] > where[:-1]).all():
            problem = f"client {client_id} sent {block.zone} positions that are not uint32 and strictly ascending"
            raise ProtectionError(problem).blame(client_id)
        if len(where) and int(where[-1]) >= size:
            problem = f"client {client_id} sent {block.zone} position {int(where[-1])} of {size}"
            raise ProtectionError(problem).blame(client_id)
        with np.errstate(invalid="ignore"):
            total[where] += block.plain() * np.float64(1.0 if block.weighted else weight)
        divisor[where] += weight
        counts[where] += 1
    positions = np.flatnonzero(divisor).astype(np.uint32)
    return Block(
        zone=next(iter(blocks.values())).zone,
        size=len(positions),
        values=_finite(total[positions], blocks),
        positions=positions,
        divisor=divisor[positions],
        weighted=True,
        contributors=int(counts[positions].min(initial=len(blocks))),
    )
