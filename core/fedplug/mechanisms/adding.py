"""Adds the clients' blocks of a zone up, as its aggregator says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedplug.api.blocks import Block, add_blocks, check_alike, in_float32
from fedplug.api.blocks import block_problem as fields_problem
from fedplug.api.errors import ProtectionError
from fedplug.api.facts import Facts
from fedplug.api.links import Link, Step
from fedplug.api.operations import Combine, WeightedSum
from fedplug.api.parties import Server
from fedplug.mechanisms.closing import Closing
from fedplug.mechanisms.execution import called, execute, not_finite, refusal


def add_up(step: Step, blocks: dict[int, Block], weights: Mapping[int, float], server: Server, facts: Facts) -> Block:
    """The sum of the clients' blocks of one zone as the aggregator gives it.

    Raises:
        ProtectionError: it cannot be one; blames the client whose upload spoilt it, if one did.
        PluginError: a function fails.
    """
    first, *_ = step.operations
    for client_id in blocks:
        if not 0 < weights[client_id] <= 1:  # sensitivities are those of weights up to 1
            raise ProtectionError(f"client {client_id} weighs {weights[client_id]!r:.20}; it must be in (0, 1]")
    if isinstance(first, Combine):
        total = called(step.link, first, first.function, blocks, dict(weights), facts)
        if problem := shape_problem(total, step.link.zone):
            raise refusal(step.link, first, problem)
        if wrong := not_finite(total):
            spoilt = next((client_id for client_id, block in blocks.items() if not_finite(block)), None)
            if spoilt is not None:
                what = f"client {spoilt} sent values that are NaN or infinite, which would destroy the sum"
                raise ProtectionError(what).blame(spoilt)
            what = f"it made {wrong} of {total.size} values NaN or infinite of uploads that are finite"
            raise refusal(step.link, first, what)
        if total.values is not None:
            total = total.replace(values=total.values.copy())  # the function may keep what it gave
    else:
        assert isinstance(first, WeightedSum)
        total = _weighted_sum(step.link, first, blocks, weights, server, facts)
        if len(step.operations) > 1:
            total = in_float32(total)
    return execute(step, total, server, facts)


def _weighted_sum(
    link: Link, adds: WeightedSum, blocks: dict[int, Block], weights: Mapping[int, float], server: Server, facts: Facts
) -> Block:
    if adds.by is not None:
        return _sum_by_layers(link, adds, blocks, weights, server, facts)
    total = _sum(blocks, weights, server, facts)
    divisor = total.divisor if adds.divided_by == "sent" else float(sum(weights[client_id] for client_id in blocks))
    return total if divisor is total.divisor and adds.rate == 1 else total.replace(divisor=divisor / adds.rate)


def _sum(blocks: dict[int, Block], weights: Mapping[int, float], server: Server, facts: Facts) -> Block:
    """Plain or closed."""
    if next(iter(blocks.values())).sealed_by is None:
        return add_blocks(blocks, weights, facts, rounded=False)
    check_alike(blocks)
    return Closing.of(next(iter(blocks.values())).zone, facts).add(blocks, weights, server)


def _sum_by_layers(
    link: Link, adds: WeightedSum, blocks: dict[int, Block], weights: Mapping[int, float], server: Server, facts: Facts
) -> Block:
    blocks = dict(sorted(blocks.items()))
    add_blocks(blocks, weights, facts)  # blames the sender of what cannot be added
    assert adds.by is not None
    if any(block.positions is None for block in blocks.values()):
        remedy = "ask for Wants(positions=True)"
        problem = f"the {link.zone} blocks came without positions, so nobody knows their layers; {remedy}"
        raise refusal(link, adds, problem)
    shares = called(link, adds, adds.by, blocks, server, facts)
    if problem := _shares_problem(shares, blocks, len(facts.layout.layers)):
        raise refusal(link, adds, problem)
    layer = facts.layout.per_scalar(np.arange(len(facts.layout.layers)))
    divisor, scaled = np.zeros(facts.layout.size), {}
    for client_id, block in blocks.items():
        where, (factor, share) = layer[block.positions], shares[client_id]
        with np.errstate(over="ignore"):  # an infinite result is blamed on its client where blocks are added
            values = (block.plain() * factor[where]).astype(np.float32)
        scaled[client_id] = block.replace(values=values, weighted=True)
        divisor[block.positions] += share[where]
    total = add_blocks(scaled, weights, facts)
    return total.replace(divisor=divisor[total.positions])


def _shares_problem(given: Any, blocks: Mapping[int, Block], layers: int) -> str:
    """What keeps something from being the weights of each client's layers; empty if they are."""
    for client_id in blocks:
        of_client = given.get(client_id) if isinstance(given, Mapping) else None
        pair = of_client if isinstance(of_client, tuple) else ()
        if len(pair) != 2 or not all(np.shape(part) == (layers,) and np.isfinite(part).all() for part in pair):
            return f"its function must give for client {client_id} two arrays of finite floats [{layers}]"
        if (np.asarray(pair[1]) < 0).any():
            return f"it adds less than 0 to the divisor for client {client_id}"
    return ""


def shape_problem(given: Any, zone: str) -> str:
    """What keeps something from being a block of a zone; empty if it is one."""
    if not isinstance(given, Block):
        what = f"an array {given.dtype}{list(given.shape)}" if isinstance(given, np.ndarray) else type(given).__name__
        return f"it gave {what}; it must give a Block (block.replace(values=...) makes one)"
    if given.zone != zone:
        return f"it gave a block of zone {given.zone}; a link gives the zone that it is handed"
    if given.values is None and given.sealed_by is None:
        return "it gave a block without values that nobody has closed"
    return fields_problem(given)
