"""The parties as components see them: what each has, remembers and has opened."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import hashlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Protocol, Self

import numpy as np
from pydantic import Field, PlainValidator

from fedplug.api.blocks import RETAINED, Block, Plan
from fedplug.api.data import ClientData, Model
from fedplug.api.errors import MessageError, OpenedBefore, ProtectionError
from fedplug.api.facts import Facts
from fedplug.api.records import MOST, Count, Record, Text, shown
from fedplug.api.streams import stream

if TYPE_CHECKING:
    from numpy.typing import NDArray


SERVER, KEY_SERVER = "server", "key_server"


def client_address(client_id: int) -> str:
    """The address of a client: `client:3`."""
    return f"client:{client_id}"


def file_name(address: str) -> str:
    """Of the file in which a party is saved: `client:3` -> `client-3.state`."""
    return address.replace(":", "-") + ".state"


_threads = 1


def threads_of_a_party() -> int:
    """With how many threads the parties of this process compute: a setting of the machine, which components read.

    One, unless somebody asks for more: a library that splits a sum over threads may round it otherwise, and then
    results depend on the machine.
    """
    return _threads


def set_threads_of_a_party(count: int) -> None:
    """From here on parties of this process compute with this many threads; for a process that has no other use."""
    global _threads
    _threads = count


def _array(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        raise ValueError("it must be an array")
    return value


def _vector(value: Any) -> Any:
    if not isinstance(value, np.ndarray) or value.dtype != np.float32 or value.ndim != 1:
        raise ValueError("it must be a vector of float32")
    return value


def _retained(value: Any) -> Any:
    block = isinstance(value, Block) and value.zone == RETAINED
    if value is not None and not (block and value.values is not None and value.positions is not None):
        raise ValueError("it must be None, or a block of the retained zone, with values and positions")
    return value


# The validators above say all there is to say of arrays and blocks; `Any` keeps pydantic from looking into their types.
_Round = Annotated[int, Field(strict=True, ge=-1, lt=MOST)]
_Weight = Annotated[float, Field(strict=True, gt=0, le=1, allow_inf_nan=False)]
_Size = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
_Key = Annotated[bytes, Field(strict=True, min_length=32, max_length=32)]
_Snapshots = dict[_Round, dict[Text, dict[Text, Any]]]
_Releases = list[list[Annotated[float, Field(strict=True, ge=0)]]]


class PartyMemory(Record, eq=False):
    """Nothing: for parties of which the protocol remembers nothing."""

    def to_plain(self, for_json: bool = False) -> dict[str, Any]:
        """Plain data that `fedplug.api.codec` can save, every field of it."""
        return {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}

    @classmethod
    def from_plain(cls, plain: Any) -> Self:
        """Inverse of `to_plain`. Raises as `Record.from_plain`, also where a field is missing that has a default."""
        if not isinstance(plain, dict) or plain.keys() != {each.name for each in dataclasses.fields(cls)}:
            raise ValueError(f"{shown(plain)} does not have the fields of a {cls.__name__}")
        return super().from_plain(plain)


class CalledMemory(PartyMemory, eq=False):
    """The memory of a party that answers calls.

    Attributes:
        done: the last lasting call it has run; 0 before any.
        saved: the last one it had run when it was last saved: the server need not keep that and what was before.
        round: the latest round that any call belonged to, from 0; -1 is the set-up.
        opened: how many sums it had opened when it was last saved.
        next: the first round of which it still answers a question; -1 is the set-up.
    """

    done: Count = 0
    saved: Count = 0
    round: _Round = -1
    opened: Count = 0
    next: _Round = -1

    def end_round(self, opened: int) -> None:
        """To be called before a party is saved, which ends every round that it has been in.

        Masks, keys of letters and noise of a round are in its state. A server that has a party saved in the middle of a
        round, and later sent back, would get a second upload under the same masks: the difference shows the updates.

        Args:
            opened: how many sums it has opened so far.
        """
        self.saved, self.opened, self.next = self.done, opened, max(self.next, self.round + 1)


class ClientMemory(CalledMemory, eq=False):
    """The memory of a client.

    Attributes:
        trained, protected, evaluated: the last round in which it did so, from 0; -1: in none.
        weight: the aggregator's weight of this client, in (0, 1]; 1 before the server says otherwise.
        buffers: the batch-norm statistics of its model, by name.
        retained: the zone it kept to itself in the last round, where the recipe makes a personal model of it.
        accounts: by level, what a component that keeps an account there stated before round 1 that each round releases;
            empty where none does.
        most_examples: of any client, as the server told it once; None where weights do not go by sizes.
        cohort_secret: 32 bytes that all clients share and no server knows; None where nobody needs them.
        answer_key: 32 bytes under which the key server answers to the clients alone; None where it does not.
        published: what components have made public, by round (`Cohort.publish`).
    """

    trained: _Round = -1
    protected: _Round = -1
    evaluated: _Round = -1
    weight: _Weight = 1.0
    buffers: dict[Text, Annotated[Any, PlainValidator(_array)]] = field(default_factory=dict)
    retained: Annotated[Any, PlainValidator(_retained)] = None
    accounts: dict[Text, _Releases] = field(default_factory=dict)
    most_examples: Count | None = None
    cohort_secret: _Key | None = None
    answer_key: _Key | None = None
    published: _Snapshots = field(default_factory=dict)


class KeyServerMemory(CalledMemory, eq=False):
    """The memory of the key server.

    Attributes:
        answer_key: 32 bytes under which it answers to the clients alone; None where it answers to the server.
        published: what components have made public, by group and round.
    """

    answer_key: _Key | None = None
    published: dict[Text, _Snapshots] = field(default_factory=dict)


class ServerMemory(PartyMemory, eq=False):
    """The memory of the aggregation server. No key that opens a ciphertext is in it.

    Attributes:
        weights: the aggregator's weight of each client; empty before the set-up.
        accounts: by client, what it stated as `ClientMemory.accounts`; empty where no component keeps an account.
        classes: by client, how many training examples of each class it has; of sites alone that let it be told.
        groups: group -> all its clients, ascending; empty where all clients are one group.
        zone_sizes: scalars of each zone in the last round that was charged, mean over the uploads; empty before.
        secret_cohort: whether nothing in that round showed who took part; None before.
        vectors: float32 (P,), the global model of each group as far as the server knows it; empty where it has none.
        repeated: rounds of which uploads were asked for more than once, since the run was cut off in between.
        short: how many rounds in a row, the last one among them, fell short of clients.
        published: what components have made public, by group and round (`Cohort.publish`).
        noised: by client, the last round from which its upload came, from 0; where clients add noise that goes on from
            one round to the next.
    """

    weights: dict[Count, _Weight] = field(default_factory=dict)
    accounts: dict[Count, dict[Text, _Releases]] = field(default_factory=dict)
    classes: dict[Count, list[Count]] = field(default_factory=dict)
    groups: dict[Text, list[Count]] = field(default_factory=dict)
    zone_sizes: dict[Text, _Size] = field(default_factory=dict)
    secret_cohort: Annotated[bool, Field(strict=True)] | None = None
    vectors: dict[Text, Annotated[Any, PlainValidator(_vector)]] = field(default_factory=dict)
    repeated: list[Count] = field(default_factory=list)
    short: Count = 0
    published: dict[Text, _Snapshots] = field(default_factory=dict)
    noised: dict[Count, Count] = field(default_factory=dict)


_KEPT_BYTES = 1 << 24
"""Ciphertexts of a sum whose digest is kept until later ones: those of a large model would take too much memory."""


class Opening(Record, frozen=True):
    """One sum that was opened.

    Attributes:
        round: 0-based.
        zone: of the sum.
        group: of the clients.
        clients: whose uploads are in the sum, ascending.
        digest: of its ciphertexts.
    """

    round: Count
    zone: Text
    group: Text
    clients: list[Count]
    digest: Text

    def bars(self, other: Opening) -> bool:
        """Whether the other sum must stay closed because of this one: same round and zone, and a client in both."""
        if (self.round, self.zone) != (other.round, other.zone) or self == other:
            return False
        return self.group == other.group or not set(self.clients).isdisjoint(other.clients)


class Openings:
    """The sums that one party has opened, and the secrets of one use that it has used.

    Args:
        noted: those of before.
        keep: keeps the line of a note where it survives the process; None: nobody does.
    """

    def __init__(self, noted: Iterable[Opening] = (), keep: Callable[[bytes], None] | None = None) -> None:
        self._noted, self._keep = defaultdict[tuple[int, str], list[Opening]](list), keep
        for each in noted:
            self._noted[each.round, each.zone].append(each)

    def __len__(self) -> int:
        return sum(map(len, self._noted.values()))

    @contextlib.contextmanager
    def once(
        self, round: int, zone: str, group: str, clients: Iterable[int], ciphertexts: Iterable[bytes]
    ) -> Iterator[None]:
        """Inside, the sum is opened; at the end it is noted, unless that failed. The answer must come after that.

        Args:
            round: 0-based.
            zone: of the sum.
            group: of the clients; a client is in one.
            clients: whose uploads are in the sum.
            ciphertexts: of the sum. The same bytes from the same clients may be opened again: they show nothing new.

        Raises:
            OpenedBefore: another sum of the round and zone was opened, of this group or with a client of this one.
        """
        this, line = _noting(round, zone, group, tuple(clients), _digest(tuple(ciphertexts)))
        for noted in self._noted[round, zone]:
            if noted.bars(this):
                differs = "with other ciphertexts" if noted.clients == this.clients else "from other clients"
                raise OpenedBefore(
                    f"a sum of zone {zone} in round {round + 1} was opened before, {differs}; the difference of the "
                    "two could show a single update"
                ).of(zone)
        yield
        self._note(this, line)

    def use(self, round: int, what: str, content: Iterable[bytes], most: int = 1) -> None:
        """Notes that a secret is used for this content; to be called before the answer that shows it.

        What a secret serves for once is noted here, and not in the party's state, which goes back with a checkpoint.

        Args:
            round: 0-based.
            what: names the secret.
            content: what it hides. The same may leave again: that shows nothing new.
            most: how many different contents it serves.

        Raises:
            ProtectionError: it has served so many others in this round.
        """
        this, line = _noting(round, what, "", (), _digest(tuple(content)))
        noted = self._noted[round, what]
        if this not in noted and sum(each.bars(this) for each in noted) >= most:
            times = f"{most} times" if most > 1 else "before"
            raise ProtectionError(
                f"{what} in round {round + 1} was used {times}, for something else; together, its uses would show what "
                "it hides"
            )
        self._note(this, line)

    def _note(self, this: Opening, line: bytes) -> None:
        noted = self._noted[this.round, this.zone]
        if this not in noted:
            if self._keep is not None:
                self._keep(line)
            noted.append(this)


@functools.lru_cache(maxsize=4)
def _noting(round: int, zone: str, group: str, clients: tuple[int, ...], digest: str) -> tuple[Opening, bytes]:
    """The note of a sum, and its line; made once for the clients of a process, which open the same sums.

    Raises:
        MessageError: the line could not be read again, so that it would damage the file.
    """
    line = Opening(round, zone, group, sorted(set(clients)), digest).to_json()
    try:
        return Opening.from_json(line), f"{line}\n".encode()
    except ValueError as error:
        raise MessageError(f"there is no such sum: {error}") from error


def _digest(ciphertexts: tuple[bytes, ...]) -> str:
    small = sum(map(len, ciphertexts)) <= _KEPT_BYTES
    return _small_digest(ciphertexts) if small else _whole_digest(ciphertexts)


def _whole_digest(ciphertexts: tuple[bytes, ...]) -> str:
    total = hashlib.blake2b(digest_size=32)
    for ciphertext in ciphertexts:
        total.update(len(ciphertext).to_bytes(8, "big"))
        total.update(ciphertext)
    return total.hexdigest()


_small_digest = functools.lru_cache(maxsize=2)(_whole_digest)


@dataclasses.dataclass(eq=False)
class Party:
    """State shared by every kind of party.

    Attributes:
        state: persistent plain data, one dictionary per component name; saved in every checkpoint.
        remembered: what the protocol itself remembers of the party; saved with `state`. Components have no business in
            it; what they may know of it has an attribute of the party.
        cache: objects that can be rebuilt from `state` (encryption contexts, tables), under the name of a component or
            its name, a space, and more; never saved.
        facts: the public facts of the round it is in.
        log: numbers a component wants in the metrics of this round, e.g. the share of saturated values.
        figures: pictures a component wants in the report, by name: whatever JSON can hold, and arrays.
        operations: name -> [count, seconds] of costly operations since they were last collected; see `operation`.
    """

    state: dict[str, Any] = dataclasses.field(default_factory=dict)
    remembered: PartyMemory = dataclasses.field(default_factory=PartyMemory)
    cache: dict[str, Any] = dataclasses.field(default_factory=dict)
    facts: Facts = None  # type: ignore[assignment]
    log: dict[str, float] = dataclasses.field(default_factory=dict)
    figures: dict[str, Any] = dataclasses.field(default_factory=dict)
    operations: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    _inside: float = dataclasses.field(default=0.0, init=False, repr=False)
    _saved: float = dataclasses.field(default=0.0, init=False, repr=False)

    def memory(self, component: Any) -> dict[str, Any]:
        """The component's own corner of `state`."""
        return self.state.setdefault(component.name, {})  # type: ignore[no-any-return]

    def to_plain(self) -> dict[str, Any]:
        """The part of every party that a checkpoint keeps; of a client, also its model and its plan."""
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

    def release(self, component: Any, values: Any) -> NDArray[np.float32]:
        """Values with the noise of a component's ballots in this round, which the ledger charges: once a round.

        Args:
            component: whose `ballots` state the operations on them.
            values: float32 (n,), of this client; at the server, which adds noise to their sum, such values by client.

        Raises:
            ProtectionError: its ballots have no noise that this party adds, or values of a client were released in this
                round before.
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
            name: the work, `encrypt` or `train`; the same name means the same cost for each.
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


class Asks(Protocol):
    """What a sealer needs of the cohort that has a sum opened: see `Cohort`."""

    @property
    def client_ids(self) -> list[int]:
        """Clients still in this round, ascending."""

    def ask(self, method: Callable[..., Any], *payload: Any) -> dict[int, Any]:
        """Runs a method at every client."""

    def ask_each(self, method: Callable[..., Any], payloads: Mapping[int, Any]) -> dict[int, Any]:
        """Runs a method at each client that has a payload."""

    def drop(self, client_id: int, reason: str) -> None:
        """Leaves a client out of the rest of this round."""


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
    cohort: Asks | None = None
    model: Model | None = None
    vector: NDArray[np.float32] | None = None

    @property
    def weights(self) -> Mapping[int, float]:
        """The aggregator's weight of each client, in (0, 1]; empty before the set-up."""
        return MappingProxyType(self.remembered.weights)

    @property
    def groups(self) -> Mapping[str, list[int]]:
        """Group -> all its clients, ascending; empty where no groups were formed."""
        return MappingProxyType(self.remembered.groups)


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
        personal: float32 (P,), the personal model that this client trains from and uses, where the recipe's
            `postprocess.retained` makes one; None where it uses the global model.
        update: float32 (P,), local model minus the one training started from: from training until it is protected; None
            before and after.
        scores: what each scorer gave this round, by its name.
        plan: this round's plan; set by the negotiation.
        said: what sections of the recipe say of this client, by key; see `fedplug.Section.of_client`.
        data_root: the folder of data sets at this client, or None.
        openings: the sums it has opened with its own key or share, also before a restart.
        went_by: what its upload of this round follows from that the server told it: public facts, weights, the model,
            positions. Clients in one sum were told the same, so where they sign something, they sign `told` too.
        signing_key: the private half, 32 bytes, of the Ed25519 key by which others know this client beforehand; None
            where its site was given none. For `fedplug_std.letters`.
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
    went_by: tuple[bytes | NDArray[Any], ...] = ()
    signing_key: bytes | None = dataclasses.field(default=None, repr=False)
    _examples: int | None = dataclasses.field(default=None, init=False, repr=False)

    @property
    def weight(self) -> float:
        """The aggregator's weight of this client, in (0, 1]."""
        return self.remembered.weight

    @property
    def told(self) -> bytes:
        """A digest of `went_by`."""
        digest = hashlib.sha256()
        for part in self.went_by:
            each = part if isinstance(part, bytes) else part.tobytes()
            digest.update(len(each).to_bytes(8, "big") + each)
        return digest.digest()

    @property
    def num_examples(self) -> int:
        """How many training examples it has."""
        return len(self.data.train) if self._examples is None else self._examples

    def without_examples(self) -> Self:
        """The same client for a function that must not read its data: with no examples, and no scores of them."""
        none = np.empty(0, np.int64)
        other = copy.copy(self)
        other._examples = self.num_examples
        # What is shared by name may be what a site alone has.
        parts = {name: getattr(self.data, name).take(none) for name in ("train", "own_test", "shared_test")}
        other.data, other.data_root = dataclasses.replace(self.data, own_places=None, **parts), None
        other.scores = {}
        return other

    @property
    def start(self) -> NDArray[np.float32]:
        """The model that training starts from: this client's own, or else the global one."""
        return self.vector if self.personal is None else self.personal

    def put_back(self, positions: Any, values: Any) -> None:
        """Sets `personal`: the global model, with these values of the client's own in their places.

        Args:
            positions: where they belong, as numpy takes indices of (P,).
            values: float32, one a position.
        """
        self.personal = self.vector.copy()
        self.personal[positions] = values

    @property
    def local(self) -> NDArray[np.float32]:
        """The model this client has now: where it started, moved by its update if it has trained in this round."""
        return self.start if self.update is None else self.start + self.update

    def scores_by(self, scorer: str | None) -> NDArray[np.float32]:
        """A scorer's scores of this round, (P,) or (L,); None takes the recipe's first.

        Raises:
            ProtectionError: there are none.
        """
        if not (self.scores if scorer is None else scorer in self.scores):
            wanted = f"no scores of {scorer}" if scorer else "no scores"
            raise ProtectionError(f"client {self.client_id} has {wanted} in this round; name one in score_parameters")
        return self.scores[scorer] if scorer else next(iter(self.scores.values()))

    def rng(self, component: Any, *purpose: object) -> np.random.Generator:
        """Reproducible stream for this client, round, component and purpose."""
        return stream(self.facts.seed, self.client_id, self.facts.round, component.name, *purpose)

    def secret(self, component: Any, *purpose: object) -> bytes:
        """32 secret bytes that all clients share and no server knows, different for each component and purpose.

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
