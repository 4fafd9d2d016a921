"""The parties as components see them, and the public facts of a round."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fedplug.api.errors import ProtectionError
from fedplug.api.openings import Openings
from fedplug.api.party_memory import ClientMemory, KeyServerMemory, PartyMemory, ServerMemory
from fedplug.api.streams import stream

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedplug.api.data import ClientData, PublicData
    from fedplug.api.known import Known
    from fedplug.api.links import Link, Step
    from fedplug.api.model import Model
    from fedplug.api.types import Block, Layout, Plan
    from fedplug.wire.cohort import Cohort


@dataclasses.dataclass(eq=False)
class Party:
    """State shared by every kind of party.

    Attributes:
        state: persistent plain data, one dictionary per component name; saved in every checkpoint.
        remembered: what the protocol itself remembers of the party; saved with `state`. Components have no business in
            it; what they may know of it has an attribute of the party.
        cache: objects that can be rebuilt from `state` (encryption contexts, tables), under the name of a component or
            its name, a space, and more; never saved.
        ctx: the public facts of the round it is in.
        log: numbers a component wants in the metrics of this round, e.g. the share of saturated values.
        figures: pictures a component wants in the report, by name: whatever JSON can hold, and arrays.
        operations: name -> [count, seconds] of costly operations since they were last collected; see `operation`.
    """

    state: dict[str, Any] = dataclasses.field(default_factory=dict)
    remembered: PartyMemory = dataclasses.field(default_factory=PartyMemory)
    cache: dict[str, Any] = dataclasses.field(default_factory=dict)
    ctx: Context = None  # type: ignore[assignment]
    log: dict[str, float] = dataclasses.field(default_factory=dict)
    figures: dict[str, Any] = dataclasses.field(default_factory=dict)
    operations: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    _inside: float = dataclasses.field(default=0.0, init=False, repr=False)
    _saved: float = dataclasses.field(default=0.0, init=False, repr=False)

    def memory(self, component: Any) -> dict[str, Any]:
        """The component's own corner of `state`."""
        return self.state.setdefault(component.name, {})  # type: ignore[no-any-return]

    def to_plain(self) -> dict[str, Any]:
        """What a checkpoint keeps of every party; a client keeps its model and its plan beside it."""
        return {"state": self.state, "remembered": self.remembered.to_plain()}

    def restore(self, plain: Any) -> None:
        """Inverse of `to_plain`.

        Raises:
            ValueError: it is not what `to_plain` gives; the party is left as it was.
        """
        state = plain.get("state") if isinstance(plain, dict) else None
        if not isinstance(state, dict) or not all(isinstance(corner, dict) for corner in state.values()):
            raise ValueError("it lacks the state of the components")
        self.remembered = type(self.remembered).from_plain(plain.get("remembered"))
        self.state = state

    def release(self, component: Any, what: str, values: Any) -> NDArray[np.float32]:
        """Values with the noise of a component's ballots in this round, which the ledger charges.

        Args:
            component: whose `ballots` say what is done to them.
            what: names the values: noise of each name is drawn from a stream of its own.
            values: float32 (n,), of this client; at the server, which adds noise to their sum, such values by client.

        Raises:
            ProtectionError: its ballots have no noise that this party adds.
        """
        raise ProtectionError(f"{component.name}: nothing can be released outside a run")

    def saved(self, seconds: float) -> None:
        """Another party of this process has done work for both, which this one alone would take so long for; an
        operation, and what a client reports, count it.
        """
        self._saved += seconds

    @contextlib.contextmanager
    def operation(self, name: str, count: float) -> Iterator[None]:
        """Measures `count` equal operations, for sections that ask for it (`Section.counts_operations`), such as a
        simulated clock. The seconds of an operation inside another are the inner one's.

        Args:
            name: what is done, `encrypt` or `train`; the same name means the same cost for each.
            count: how many are done inside: ciphertexts, examples.
        """
        started, before, self._inside = time.perf_counter() + self._saved, self._inside, 0.0
        try:
            yield
        finally:
            took = time.perf_counter() + self._saved - started
            total = self.operations.setdefault(name, [0.0, 0.0])
            total[0] += count
            total[1] += took - self._inside
            self._inside = before + took


@dataclasses.dataclass(eq=False)
class Server(Party):
    """The aggregation server. Holds no secret key and no client data.

    Attributes:
        uploads: what arrived in this round, by client and zone; from before `aggregate` on. Empty where the aggregator
            adds uploads up as they arrive, as weighted sums may be.
        cohort: while a sum is opened, the clients whose updates are in it: secret shares are asked for here.
        model: a model to try vectors with, where a component needs one (`Wants.model`, `Reads.at_server`).
        vector: float32 (P,), the global model as far as the server knows it; only where it has a model. The first one
            is public; later ones move by what the server sees of opened sums and knows the positions of.
    """

    remembered: ServerMemory = dataclasses.field(default_factory=ServerMemory)
    uploads: dict[int, dict[str, Block]] = dataclasses.field(default_factory=dict)
    cohort: Cohort | None = None
    model: Model | None = None
    vector: NDArray[np.float32] | None = None

    @property
    def weights(self) -> Mapping[int, float]:
        """The aggregator's weight of each client, in (0, 1]; empty before the set-up."""
        return self.remembered.weights

    @property
    def groups(self) -> Mapping[str, list[int]]:
        """Group -> all its clients, ascending; empty where no groups were formed."""
        return self.remembered.groups


@dataclasses.dataclass(eq=False)
class KeyServer(Party):
    """The party that holds the secret key when a recipe says `key_holder: key_server`. Sees only sums.

    Attributes:
        openings: the sums it has opened, also before a restart.
    """

    remembered: KeyServerMemory = dataclasses.field(default_factory=KeyServerMemory)
    openings: Openings = dataclasses.field(default_factory=Openings)


@dataclasses.dataclass(eq=False)
class Client(Party):
    """One client, as the methods marked `@at_client` and the client-side hooks see it.

    Attributes:
        client_id: 0 to K-1.
        data: its examples.
        model: the trainable model; after training it holds the local model.
        vector: float32 (P,), the global model this client last adopted.
        personal: float32 (P,), the model of its own that this client trains from and uses, where the recipe's
            `postprocess.retained` makes one; None where it uses the global model.
        update: float32 (P,), local model minus the one training started from: from training until it is protected; None
            before and after.
        scores: what each scorer gave this round, by its name.
        plan: this round's plan; set by the negotiation.
        said: what sections of the recipe say of this client, by key; see `fedplug.Section.of_client`.
        data_root: the folder of data sets at this client, or None.
        openings: the sums it has opened with a key or a share of its own, also before a restart.
    """

    remembered: ClientMemory = dataclasses.field(default_factory=ClientMemory)
    client_id: int = -1
    data: ClientData = None  # type: ignore[assignment]
    model: Model = None  # type: ignore[assignment]
    vector: NDArray[np.float32] = None  # type: ignore[assignment]
    personal: NDArray[np.float32] | None = None
    update: NDArray[np.float32] | None = None
    scores: dict[str, NDArray[np.float32]] = dataclasses.field(default_factory=dict)
    plan: Plan | None = None
    said: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    data_root: str | None = None
    openings: Openings = dataclasses.field(default_factory=Openings)

    @property
    def weight(self) -> float:
        """The aggregator's weight of this client, in (0, 1]."""
        return self.remembered.weight

    @weight.setter
    def weight(self, weight: float) -> None:
        self.remembered.weight = weight

    @property
    def num_examples(self) -> int:
        """How many training examples it has."""
        return len(self.data.train)

    @property
    def start(self) -> NDArray[np.float32]:
        """The model that training starts from: this client's own, or else the global one."""
        return self.vector if self.personal is None else self.personal

    @property
    def local(self) -> NDArray[np.float32]:
        """The model this client has now: where it started, moved by its update if it has trained in this round."""
        return self.start if self.update is None else self.start + self.update

    def scores_by(self, scorer: str | None) -> NDArray[np.float32]:
        """A scorer's scores of this round, (P,) or (L,); None takes the recipe's first."""
        return self.scores[scorer] if scorer else next(iter(self.scores.values()))

    def rng(self, component: Any, *purpose: object) -> np.random.Generator:
        """Reproducible stream for this client, round, component and purpose."""
        return stream(self.ctx.seed, self.client_id, self.ctx.round, component.name, *purpose)

    def secret(self, component: Any, *purpose: object) -> bytes:
        """32 secret bytes that all clients share and no server knows, of its own for each component and purpose.

        Derived with HKDF from the cohort secret that the clients agreed on before round 1 (`fedplug.api.secrets`).

        Raises:
            ProtectionError: they agreed on none, since no component has `cohort_secret = True`.
        """
        from fedplug.api.secrets import derive

        if self.remembered.cohort_secret is None:
            raise ProtectionError(
                f"{component.name} derives from the cohort secret, and client {self.client_id} has none; a component "
                "that does so says cohort_secret = True"
            )
        return derive(self.remembered.cohort_secret, component.name, *purpose)


@dataclasses.dataclass(frozen=True, eq=False)
class Context:
    """The public facts of a round, as one party sees them.

    Attributes:
        round: 0-based round number (people are shown `round + 1`).
        rounds: how many rounds are planned, T.
        layout: where parameters live in the flat vector.
        zones: the zone names of this recipe, in label order.
        num_clients: K, all clients of the run.
        min_clients: the fewest updates a sum may hold.
        seed: of the recipe.
        digest: of the resolved recipe.
        party: the party in which this context lives.
        components: every component of the recipe by name.
        public: examples that everybody has, where the recipe names some; None at the key server.
        links: for each zone that is sent, the links that its values pass, in order (`fedplug.api.links`).
        known: inside a function of a link's operation, what is known of the block that it is handed; None elsewhere.
    """

    round: int
    rounds: int
    layout: Layout
    zones: tuple[str, ...]
    num_clients: int
    min_clients: int
    seed: int
    digest: str
    party: Party
    components: dict[str, Any] = dataclasses.field(default_factory=dict)
    public: PublicData | None = None
    links: Mapping[str, tuple[Link, ...]] = dataclasses.field(default_factory=dict)
    known: Known | None = None

    def steps(self, zone: str) -> tuple[Step, ...]:
        """The links of a zone with what they do in this round, and what is known before and behind each operation.

        Raises:
            Misplaced: a link cannot stand where it stands.
        """
        from fedplug.api.links import fold

        # Before round 1 what holds in round 1 is asked for.
        return fold(self.links.get(zone, ()), dataclasses.replace(self, round=0) if self.round < 0 else self)

    @property
    def bare_zones(self) -> tuple[str, ...]:
        """Zones that are sent, and whose sum carries no noise that counts: the model is moved by them as they are."""
        return tuple(zone for zone in self.links if not any(step.after.releases for step in self.steps(zone)[-1:]))

    def component(self, name: str) -> Any:
        """The component of that name.

        Raises:
            KeyError: the recipe has no such component.
        """
        try:
            return self.components[name]
        except KeyError:
            raise KeyError(f"the recipe has no component named {name!r}; it has {sorted(self.components)}") from None

    def rng(self, *purpose: object) -> np.random.Generator:
        """Reproducible stream for this round and purpose."""
        return stream(self.seed, "server", self.round, *purpose)

    def public_rng(self, *purpose: object) -> np.random.Generator:
        """The same for what hides nothing, such as rotations or samples that all parties draw alike."""
        return self.rng("public", *purpose)
