"""Before round 1, at the parties: hellos, the cohort secret, the key of answers, weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fedplug.api import secrets
from fedplug.api.component import at_client, at_key_server
from fedplug.api.errors import ProtectionError, of_component
from fedplug.round.accounts import stated_accounts
from fedplug.round.base import PartySteps
from fedplug.round.sites import class_counts
from fedplug.round.uploads import Hello

if TYPE_CHECKING:
    from fedplug.api.context import KeyServer
    from fedplug.api.roles import Aggregator
    from fedplug.round.hosted import HostedClient

_COHORT, _ANSWERS = "cohort secret", "answer key"


class Joining(PartySteps):
    """What clients and the key server do once, before round 1."""

    @at_client
    def join(self, client: HostedClient, wants_secret: bool, wants_size: bool) -> dict[str, Any]:
        """Says hello before round 1: a public key for the cohort secret, the number of examples if weights need it,
        how many there are of each class if its site lets that be told, and what every round releases at levels of which
        a component keeps account, so that it is known before anything is lost.
        """
        key = None
        if wants_secret:
            client.cache["hpke"], key = secrets.key_pair()
        accounts = client.remembered.accounts = stated_accounts(self.composition, client)
        size = client.num_examples if wants_size else None
        classes = class_counts(client.data) if client.tells_classes else None
        return Hello(accounts or None, size, key, classes).to_plain()

    @at_client
    def deal(self, client: HostedClient, public_keys: dict[int, bytes]) -> dict[int, bytes]:
        """Draws the cohort secret and seals a copy for each client; runs at one client."""
        return _copies(secrets.draw(), public_keys, _COHORT, client.ctx.digest)

    @at_client
    def take_secret(self, client: HostedClient, sealed: bytes) -> None:
        """Opens this client's copy of the cohort secret."""
        client.remembered.cohort_secret = _own_copy(client, sealed, _COHORT)

    @at_key_server
    def deal_answer_key(self, key_server: KeyServer, public_keys: dict[int, bytes]) -> dict[int, bytes]:
        """Draws the key under which sums are answered to the clients alone, and seals a copy for each client."""
        key = key_server.remembered.answer_key = secrets.draw()
        return _copies(key, public_keys, _ANSWERS, key_server.ctx.digest)

    @at_client
    def take_answer_key(self, client: HostedClient, sealed: bytes) -> None:
        """Opens this client's copy of the key server's answer key."""
        client.remembered.answer_key = _own_copy(client, sealed, _ANSWERS)

    @at_client
    def take_weight(self, client: HostedClient, max_examples: int) -> None:
        """Learns the largest data set's size, from which the aggregator's weight of this client follows."""
        client.weight = weight_of(self.composition.aggregator, client.num_examples, max_examples)

    @at_client
    def ready(self, client: HostedClient) -> bool:
        """The end of the set-up: everything that was asked for so far has worked."""
        client.cache.pop("hpke", None)
        return True


def weight_of(aggregator: Aggregator, num_examples: int, max_examples: int) -> float:
    """A client's weight in the sums, as the aggregator has it.

    Raises:
        ProtectionError: it is not a number in (0, 1], which the cost of noise is reckoned with.
    """
    with of_component(aggregator.name, "client_weight"):
        given: Any = aggregator.client_weight(num_examples, max_examples)
    if not isinstance(given, int | float | np.integer | np.floating) or not 0 < given <= 1:
        raise ProtectionError(
            f"component {aggregator.name}, client_weight: it gave {given!r:.60} for {num_examples} examples, where the "
            f"most are {max_examples}; a weight is a number in (0, 1], such as num_examples / max_examples"
        )
    return float(given)


def _copies(secret: bytes, public_keys: Mapping[int, bytes], what: str, digest: str) -> dict[int, bytes]:
    """A secret, sealed for each client."""
    return {
        client_id: secrets.seal(secret, key, _purpose(what, digest, client_id))
        for client_id, key in public_keys.items()
    }


def _own_copy(client: HostedClient, sealed: bytes, what: str) -> bytes:
    purpose = _purpose(what, client.ctx.digest, client.client_id)
    return secrets.unseal(sealed, client.cache["hpke"], purpose)


def _purpose(what: str, digest: str, client_id: int) -> bytes:
    """Binds a sealed copy to what it is, to the recipe and to its receiver."""
    return f"{what} of {digest} for client {client_id}".encode()
