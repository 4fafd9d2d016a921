"""Opening sums, at whoever holds a key: of enough updates, once a round, and for those alone who may read them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fedplug.api import codec, secrets
from fedplug.api.blocks import meet
from fedplug.api.component import at_key_server
from fedplug.api.context import Client, KeyServer
from fedplug.api.errors import MessageError, ProtectionError
from fedplug.api.folded import locked
from fedplug.api.types import Block
from fedplug.mechanisms.execution import execute
from fedplug.round.base import NAME, PartySteps

if TYPE_CHECKING:
    from fedplug.api.context import Party
    from fedplug.recipe.composition import Composition


class Opening(PartySteps):
    """What the key server does with a sum."""

    @at_key_server
    def open(
        self,
        key_server: KeyServer,
        component: str,
        block: Block,
        plain: Sequence[Block],
        group: str,
        senders: list[int],
    ) -> Block:
        """Opens a sum. Refuses sums of fewer than `min_clients` updates, and a second one of the same round.

        Args:
            key_server: this party.
            component: what sealed the sum.
            block: the sum.
            plain: sums of other zones, which hold what some clients sent in the clear at positions that others
                encrypted; the parts meet here, after decryption.
            group: of the clients.
            senders: whose uploads are in the sum.

        Returns:
            The sum for the server to hand on; locked for the clients where the component answers to them alone.
        """
        least = key_server.ctx.min_clients
        if block.contributors < least:
            raise ProtectionError(
                f"a sum of {block.contributors} updates would show too much of each; min_clients is {least}"
            )
        steps = key_server.ctx.steps(block.zone)
        step = next((s for s in steps if s.link.site == "key_server" and s.link.name == component), None)
        if step is None:
            raise MessageError(f"{component} opens no sum of zone {block.zone} at the key server")
        with opened_once(key_server, block, group, senders):
            opened = meet([execute(step, block, key_server, key_server.ctx), *plain])
        if not locked(steps):
            return opened
        # Where values belong and what they are divided by follows from the uploads, so the server knows it. Positions
        # may lie in other zones too, whose sums it knows: the divisor that all of them share is its to make.
        content = codec.encode(opened.replace(positions=None, divisor=1.0))
        box = secrets.lock(_answer_key(key_server), content, _box_purpose(key_server.ctx.round, opened.zone))
        return opened.replace(values=None, ciphertexts=(box,), sealed_by=NAME)


def needs_key_server(composition: Composition) -> bool:
    """Whether some zone is opened by the key server."""
    return any(link.site == "key_server" for links in composition.links.values() for link in links)


@contextlib.contextmanager
def opened_once(party: Client | KeyServer, block: Block, group: str, senders: Sequence[int]) -> Iterator[None]:
    """Inside, a party opens a sum with its key, and remembers it; a block that is not sealed needs no key.

    Raises:
        OpenedBefore: the party has opened another sum of that zone in this round.
        ProtectionError: the clients that are named are fewer than the updates in the sum, or the recipe has no such
            round.
    """
    if block.sealed_by is None:
        yield
        return
    if not 0 <= party.ctx.round < party.ctx.rounds:
        raise ProtectionError(f"a sum of round {party.ctx.round + 1}, and the recipe has {party.ctx.rounds} rounds")
    if len(set(senders)) < block.contributors:
        raise ProtectionError(
            f"a sum of {block.contributors} updates came with the numbers of {len(set(senders))} clients; each update "
            "has a client"
        )
    with party.openings.once(party.ctx.round, block.zone, group, senders, block.ciphertexts):
        yield


def unsealed(block: Block, party: Party) -> Block:
    """What the key server locked for the clients; other blocks as they are.

    Raises:
        ProtectionError: the party has no key for it.
        MessageError: it does not open.
    """
    if block.sealed_by != NAME:
        return block
    purpose = _box_purpose(party.ctx.round, block.zone)
    inside = codec.decode(secrets.unlock(_answer_key(party), block.ciphertexts[0], purpose))
    if not isinstance(inside, Block) or (inside.zone, inside.size) != (block.zone, block.size):
        raise MessageError(f"the key server's answer for zone {block.zone} holds something else")
    return inside.replace(positions=block.positions, divisor=block.divisor)


def _answer_key(party: Party) -> bytes:
    """The key of answers to the clients alone, at the key server or at a client."""
    key = party.remembered.answer_key if isinstance(party, Client | KeyServer) else None
    if key is None:
        raise ProtectionError("this party has no key for what the key server answers to the clients")
    return key


def _box_purpose(round: int, zone: str) -> bytes:
    return f"sum of zone {zone} in round {round + 1}".encode()
