"""Before round 1: clients join, agree on secrets, tell what weights and accounts follow from; components make keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fedplug.api import secrets
from fedplug.api.cohort import Cohort, KeyServerLine
from fedplug.api.component import at_client, at_key_server
from fedplug.api.errors import ProtectionError, TooFewClients, of_component
from fedplug.api.facts import Facts
from fedplug.api.links import locked
from fedplug.api.parties import Client, KeyServer, ServerMemory
from fedplug.api.records import shown
from fedplug.api.roles import AccountKeeper, Aggregator, Closer
from fedplug.recipe.composition import Composition
from fedplug.round.base import PartySteps
from fedplug.round.hosted import HostedClient
from fedplug.round.uploads import Hello, read_dealt, read_hello
from fedplug.round.world import class_counts
from fedplug.wire.post_office import PostOffice


def stated_accounts(composition: Composition, client: Client) -> dict[str, list[list[float]]]:
    """By level, what each round of the recipe will release of a client, as the level's keeper says now."""
    rounds = range(client.facts.rounds)
    return {
        level: [_release(keeper, client, round) for round in rounds] for level, keeper in composition.keepers.items()
    }


def require_as_stated(composition: Composition, client: Client) -> None:
    """Compares what the client's round is to release with what it stated before round 1.

    Raises:
        ProtectionError: a keeper says something else now, or nobody asked before round 1.
    """
    round = client.facts.round
    for level, keeper in composition.keepers.items():
        if level not in client.remembered.accounts:
            raise ProtectionError(
                f"client {client.client_id} was not asked before round 1 what {keeper.name} releases, so no ledger "
                "knows; it does not train"
            )
        said, now = client.remembered.accounts[level][round], _release(keeper, client, round)
        if now != said:
            raise ProtectionError(
                f"component {keeper.name}, round_release: round {round + 1} is {_shown(now)}, and was {_shown(said)} "
                "when the ledger was told before round 1; what it says may depend on the round, the options and the "
                "number of examples alone"
            )


def _release(keeper: AccountKeeper, client: Client, round: int) -> list[float]:
    """What a round releases of this client at the level of which a component keeps account."""
    here = client.facts
    client.facts = dataclasses.replace(here, round=round)
    try:
        with of_component(keeper.name, "round_release"):
            return [float(number) for number in keeper.round_release(client, client.facts)]
    finally:
        client.facts = here


def _shown(told: list[float]) -> str:
    return f"({', '.join(f'{number:g}' for number in told)})"


_COHORT, _ANSWERS = "cohort secret", "answer key"


class Joining(PartySteps):
    """What clients and the key server do once, before round 1."""

    @at_client
    def join(self, client: HostedClient, wants_secret: bool, wants_size: bool) -> dict[str, Any]:
        """Sends a public key for the secret of all clients, and the number of examples if weights use it.

        Sends the number of examples in each class only if the site allows that. Where a component accounts for a unit
        other than the client, such as a record, this also states what every round will release.
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
        """Where clients share a secret: draws it and encrypts a copy for each client. One client does this."""
        return _copies(secrets.draw(), public_keys, _COHORT, client.facts.digest)

    @at_client
    def take_secret(self, client: HostedClient, sealed: bytes) -> None:
        """Where clients share a secret: decrypts this client's copy."""
        client.remembered.cohort_secret = _own_copy(client, sealed, _COHORT)

    @at_key_server
    def deal_answer_key(self, key_server: KeyServer, public_keys: dict[int, bytes]) -> dict[int, bytes]:
        """Where sums are hidden from the server: draws the key for that, and encrypts a copy for each client."""
        key = key_server.remembered.answer_key = secrets.draw()
        return _copies(key, public_keys, _ANSWERS, key_server.facts.digest)

    @at_client
    def take_answer_key(self, client: HostedClient, sealed: bytes) -> None:
        """Where sums are hidden from the server: decrypts this client's copy of the key for that."""
        client.remembered.answer_key = _own_copy(client, sealed, _ANSWERS)

    @at_client
    def take_weight(self, client: HostedClient, max_examples: int) -> None:
        """Where weights use sizes: computes this client's weight from the size of the largest data set.

        Raises:
            ProtectionError: it was told of another size before; clients who weigh by unlike sizes hide nobody.
        """
        memory = client.remembered
        if memory.most_examples not in (None, max_examples):
            raise ProtectionError(
                f"the largest data set is said to have {shown(max_examples)} examples, and was said to have "
                f"{memory.most_examples} before"
            )
        memory.most_examples = max_examples
        client.remembered.weight = weight_of(self.composition.aggregator, client.num_examples, max_examples)

    @at_client
    def ready(self, client: HostedClient) -> bool:
        """Confirms that every step of the set-up succeeded."""
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
    purpose = _purpose(what, client.facts.digest, client.client_id)
    return secrets.unseal(sealed, client.cache["hpke"], purpose)


def _purpose(what: str, digest: str, client_id: int) -> bytes:
    """Binds a sealed copy to its kind, to the recipe and to its receiver."""
    return f"{what} of {digest} for client {client_id}".encode()


class SetUp:
    """What happens once, before round 1.

    Args:
        composition: the server's own.
        steps: what the parties are asked.
        office: sends it.
        key_server: the line to the key server.
    """

    def __init__(self, composition: Composition, steps: Joining, office: PostOffice, key_server: KeyServerLine) -> None:
        self.composition, self.steps, self.office, self.key_server = composition, steps, office, key_server

    def run(self, everyone: Cohort, facts: Facts) -> None:
        """Clients join, agree on the cohort secret if a component needs one, and components make their keys.

        Raises:
            TooFewClients: a client is missing; every one of them is needed.
        """
        hellos = self._join(everyone, facts)
        everyone.server.remembered = ServerMemory(
            weights=self._weigh(everyone, hellos),
            accounts={c: hello.accounts for c, hello in hellos.items() if hello.accounts is not None},
            classes={c: hello.classes for c, hello in hellos.items() if hello.classes is not None},
        )
        components = self.composition.components.values()
        # Keys first: others may want something encrypted in their own set-up.
        for component in sorted(components, key=lambda component: not isinstance(component, Closer)):
            try:
                with of_component(component.name, "setup"):
                    component.setup(everyone.of(component), self.key_server, everyone.server.facts)
            except TooFewClients as error:
                raise TooFewClients(f"{error}. Dropped out: {self.office.reasons()}") from error
        ready = everyone.ask(self.steps.ready)  # delivers what was held back, so that set-up errors show here
        self._require(ready, self.office.client_ids)

    def _join(self, everyone: Cohort, facts: Facts) -> Mapping[int, Hello]:
        """The hellos of all clients, if any is needed or may tell more; with their keys, secrets are agreed on."""
        ids = self.office.client_ids
        wants_size = self.composition.aggregator.wants.num_examples
        wants_secret = any(component.cohort_secret for component in self.composition.components.values())
        wants_answers = any(locked(facts.steps(zone)) for zone in self.composition.links)
        wants_key = wants_secret or wants_answers
        keepers, agreed = self.composition.keepers, self.composition.recipe.data.agreed
        classes = len(agreed.kinds or agreed.classes) if agreed is not None else 0
        if not (wants_size or wants_key or keepers or classes):
            return {}
        hellos = self.office.usable(
            everyone.ask(self.steps.join, wants_key, wants_size),
            lambda _, hello: read_hello(hello, wants_key, wants_size, keepers, facts.rounds, classes),
        )
        self._require(hellos, ids)
        keys = {c: hello.public_key for c, hello in hellos.items() if hello.public_key is not None}
        if wants_answers:
            answer_keys = self.key_server.ask(self.steps.deal_answer_key, keys)
            everyone.tell_each(self.steps.take_answer_key, read_dealt(answer_keys, ids, "answer key"))
        if wants_secret:
            copies = everyone.only(ids[:1]).ask(self.steps.deal, keys)
            dealt = self.office.usable(copies, lambda _, sealed: read_dealt(sealed, ids))
            self._require(dealt, ids[:1])
            everyone.tell_each(self.steps.take_secret, dealt[ids[0]])
        return hellos

    def _weigh(self, everyone: Cohort, hellos: Mapping[int, Hello]) -> dict[int, float]:
        """The aggregator's weight of each client; each works out its own when it is told the largest size."""
        sizes = {c: hello.num_examples for c, hello in hellos.items() if hello.num_examples is not None}
        if not sizes:
            return dict.fromkeys(self.office.client_ids, 1.0)
        most = max(sizes.values())
        everyone.tell(self.steps.take_weight, most)
        return {client_id: weight_of(self.composition.aggregator, size, most) for client_id, size in sizes.items()}

    def _require(self, replies: Mapping[int, Any], expected: Iterable[int]) -> None:
        missing = sorted(set(expected) - set(replies))
        if missing:
            reasons = "; ".join(f"client {c}: {self.office.dropped.get(c, 'no answer')}" for c in missing)
            raise TooFewClients(f"set-up needs every client once; missing: {reasons}")
