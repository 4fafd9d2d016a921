"""Transport of secret shares: a dealer seals them, the server relays them, a receiver opens and adds them up."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.errors import MessageError, ProtectionError
from fedplug.api.letters import SEALED
from fedplug.api.records import shown

from fedplug_baselines.lwe_field import Q

if TYPE_CHECKING:
    from fedplug import Block, Client, Facts, Server
    from numpy.typing import NDArray

    from fedplug_baselines.lwe import Lwe

def seal(component: Lwe, client: Client, zone: str, shares: NDArray[np.uint32]) -> dict[int, bytes]:
    """A sealed share for each client, by its number; `shares` has one row per client. Runs at the dealer."""
    contents = {receiver: share.astype("<u4").tobytes() for receiver, share in enumerate(shares)}
    return component.write_letters(client, contents, zone)


def step_of(block: Block) -> float | None:
    """The grid step in a block's meta; None unless it is a finite number > 0."""
    step = block.meta.get("step")
    return step if isinstance(step, float) and 0 < step < math.inf else None


def problem(component: Lwe, block: Block, size: int, step: float, facts: Facts) -> str:
    """Why the server cannot add an upload to others of `size` scalars and that step; empty if it can."""
    if block.positions is not None or block.size != size or not block.weighted:
        return f"its {block.zone} block of {block.size} scalars is not like those of {size} of others"
    if [len(data) for data in block.ciphertexts] != [4 * size]:
        return f"its {block.zone} block does not hold {size} masked values"
    if int(np.frombuffer(block.ciphertexts[0], "<u4").max(initial=0)) >= Q:
        return f"its {block.zone} block holds a number that is not a residue modulo 2^31 - 1"
    if step_of(block) != step:
        return f"its meta says step={shown(block.meta.get('step'))}, which must be that of the others, {step!r}"
    shares, length = block.meta.get("shares"), 4 * share_length(component, facts) + SEALED
    numbers = isinstance(shares, dict) and all(type(receiver) is int for receiver in shares)
    if not isinstance(shares, dict) or not numbers or set(shares) != set(range(facts.num_clients)):
        return "it sent no sealed share for each client"
    if not all(isinstance(share, bytes) and len(share) == length for share in shares.values()):
        return f"its sealed shares are not of {length} bytes each"
    return ""


def answers(component: Lwe, block: Block, server: Server, facts: Facts) -> dict[int, NDArray[Any]]:
    """Replies of the clients whose updates are in a sum. Each client receives only its own shares.

    Runs at the server. A round continues with fewer replies than uploads if the shares are enough.
    """
    cohort, length = server.cohort, share_length(component, facts)
    assert cohort is not None  # while a sum is opened
    found: dict[int, NDArray[Any]] = {}
    questions = {client_id: [block.zone, block.meta["shares"][client_id]] for client_id in cohort.client_ids}
    for client_id, answer in cohort.ask_each(component.sum_of_shares, questions).items():
        if isinstance(answer, np.ndarray) and answer.dtype == np.uint32 and answer.shape == (length,):
            found[client_id] = answer
        else:
            cohort.drop(client_id, f"its sum of shares is not {length} residues")
    return found


def sum_of_shares(component: Lwe, client: Client, zone: str, boxes: dict[int, bytes]) -> NDArray[np.uint32]:
    """The sum of this client's opened shares from all dealers; residues, shape (length,). Runs at the receiver.

    Raises:
        OpenedBefore: it has answered for other dealers or other shares in this round, even before a restart.
        ProtectionError: too few dealers are named.
        MessageError: a box does not open, or holds no share.
    """
    facts = client.facts
    if len(boxes) < max(2, facts.min_clients) or not set(boxes) <= set(range(facts.num_clients)):
        raise ProtectionError(
            f"shares of {len(boxes)} clients were asked for; opening fewer than min_clients={facts.min_clients} would "
            "show too much of each"
        )
    total = np.zeros(share_length(component, facts), np.uint64)
    # Whatever groups the server names, a client is in one group.
    with client.openings.once(facts.round, zone, "", boxes, (boxes[dealer] for dealer in sorted(boxes))):
        for dealer, content in component.read_letters(client, boxes, zone).items():
            share = np.frombuffer(content, "<u4")
            if share.shape != total.shape:
                raise MessageError(f"client {dealer} dealt {len(share)} numbers as a share, expected {len(total)}")
            total += share
    return (total % Q).astype(np.uint32)


def share_length(component: Lwe, facts: Facts) -> int:
    """Residues in one share."""
    return component.options.sharing(facts.num_clients).length(component.options.dimension)

