"""Before round 1: clients join, agree on secrets, tell what weights and accounts follow from; components make keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fedplug.api.errors import TooFewClients, of_component
from fedplug.api.folded import locked
from fedplug.api.party_memory import ServerMemory
from fedplug.api.roles import Sealer
from fedplug.round.joining import weight_of
from fedplug.round.uploads import Hello, read_dealt, read_hello

if TYPE_CHECKING:
    from fedplug.api.context import Context
    from fedplug.recipe.composition import Composition
    from fedplug.round.steps import Steps
    from fedplug.wire.cohort import Cohort
    from fedplug.wire.key_server_line import KeyServerLine
    from fedplug.wire.post_office import PostOffice


class SetUp:
    """What happens once, before round 1.

    Args:
        composition: the server's own.
        steps: what the parties are asked.
        office: sends it.
        key_server: the line to the key server.
    """

    def __init__(self, composition: Composition, steps: Steps, office: PostOffice, key_server: KeyServerLine) -> None:
        self.composition, self.steps, self.office, self.key_server = composition, steps, office, key_server

    def run(self, everyone: Cohort, ctx: Context) -> None:
        """Clients join, agree on the cohort secret if a component needs one, and components make their keys.

        Raises:
            TooFewClients: a client is missing; every one of them is needed.
        """
        hellos = self._join(everyone, ctx)
        everyone.server.remembered = ServerMemory(
            weights=self._weigh(everyone, hellos),
            accounts={c: hello.accounts for c, hello in hellos.items() if hello.accounts is not None},
            classes={c: hello.classes for c, hello in hellos.items() if hello.classes is not None},
        )
        components = self.composition.components.values()
        # Keys first: others may want something encrypted in their own set-up.
        for component in sorted(components, key=lambda component: not isinstance(component, Sealer)):
            try:
                with of_component(component.name, "setup"):
                    component.setup(everyone, self.key_server, ctx)
            except TooFewClients as error:
                raise TooFewClients(f"{error}. Dropped out: {self.office.reasons()}") from error
        ready = everyone.ask(self.steps.ready)  # delivers what was held back, so that set-up errors show here
        self._require(ready, self.office.client_ids)

    def _join(self, everyone: Cohort, ctx: Context) -> Mapping[int, Hello]:
        """The hellos of all clients, if any is needed or may tell more; with their keys, secrets are agreed on."""
        ids = self.office.client_ids
        wants_size = self.composition.aggregator.wants.num_examples
        wants_secret = any(component.cohort_secret for component in self.composition.components.values())
        wants_answers = any(locked(ctx.steps(zone)) for zone in self.composition.links)
        wants_key = wants_secret or wants_answers
        keepers, agreed = self.composition.keepers, self.composition.recipe.data.agreed
        classes = len(agreed.kinds or agreed.classes) if agreed is not None else 0
        if not (wants_size or wants_key or keepers or classes):
            return {}
        hellos = self.office.usable(
            everyone.ask(self.steps.join, wants_key, wants_size),
            lambda _, hello: read_hello(hello, wants_key, wants_size, keepers, ctx.rounds, classes),
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
