"""The roles: what scores, plans, protects, sums, opens and trains in a round, and what is around the rounds.

A component subclasses the role, or the roles, that it serves, and overrides what it needs. A role has everything that
the core may ever ask of it; what it declares is one frozen record a fact. Where the absence of a statement would
promise more, the role leaves it open, so that a class without it cannot be made. All other names are the author's.
"""

from __future__ import annotations

import abc
import contextlib
import copy
import dataclasses
import math
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from fedplug.api.component import Options
from fedplug.api.errors import FedplugError, PluginError, ProtectionError, of_component
from fedplug.api.operations import Cover, Open, Operations, Party
from fedplug.api.records import Checked, Record, Text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedplug.api.blocks import Plan, Scores
    from fedplug.api.cohort import Cohort, KeyServerLine
    from fedplug.api.data import About, Dataset, Examples, Figure, Model
    from fedplug.api.events import Event
    from fedplug.api.facts import Facts
    from fedplug.api.known import Known
    from fedplug.api.parties import Client, Server
    from fedplug.api.parties import Party as AnyParty
    from fedplug.api.words import Opened, Sealed, Total, Words


Site = Literal["client", "server", "key_server"]
"""A party at which methods of components run."""


MASKS = ("mask", "masks", "support of the retained zone")
"""How statements call what plans show; no other says who sees them."""


class Reveals(Checked, Record):
    """Something that follows from clients' data and that somebody sees in addition to the protected values.

    Attributes:
        what: for instance `vote histogram`, `num_examples`; of plans one of `MASKS`.
        to: who sees it, in the words of the ledger's views.
        covered_by: what pays for it: `epsilon` (a noise in the ledger, such as the negotiation's own), or `nothing to
            pay` where it does not follow from anybody's data, with the note saying why; None: nothing does.
        asked: names of the methods, of clients or of the key server, whose replies carry it to the server. A reply
            that no statement names makes the guarantee of its readers `none`. A reply that is sealed for others has
            them alone in `to`.
        voids: True where it gives so much away that no epsilon says what is lost: the guarantee of those who see it is
            `none`. The rule: what names the classes of a client's data, without noise, does. That is class counts, and
            scores, votes or chosen positions of single scalars that belong to one client and follow from its data.
        note: one sentence.
    """

    whole: ClassVar[bool] = True
    what: Text
    to: tuple[Party, ...]
    _: dataclasses.KW_ONLY
    covered_by: Cover | None = None
    asked: tuple[Text, ...] = ()
    voids: bool = False
    note: Text = ""


class Learns(Checked, kw_only=True):
    """How an update follows from data: what the trainer says of itself, for readers of updates.

    Attributes:
        descends: what the steps descend; `cross_entropy` where updates are sums of gradients of its mean over a batch,
            else in words, and attacks that need that loss do not apply.
        lr: learning rate of the round; None where there is no such number.
        batch_size: examples of a step; None: all.
        epochs: times through the examples; None where a round is not counted so.
        one_step: True where a round is one step on one batch.
        momentum, weight_decay: of the optimiser.
        class_weights: of the loss, one a class; None: all alike.
        training_mode: False where gradients are computed in evaluation mode.
        noise: standard deviation of what the trainer adds to an update; None: unknown, 0: nothing.
        repeats: whether the same update can be made again from the same model and data.
    """

    descends: str = "cross_entropy"
    lr: float | None = None
    batch_size: int | None = None
    epochs: int | None = None
    one_step: bool = False
    momentum: float = 0.0
    weight_decay: float = 0.0
    class_weights: tuple[float, ...] | None = None
    training_mode: bool = True
    noise: float | None = 0.0
    repeats: bool = True


class Declares(Checked, kw_only=True):
    """The known shape of a data set before it is loaded: `fedplug check` asks the model whether it takes that.

    Attributes:
        shape: of one example, (C, H, W); None where only the files tell.
        num_classes: how many classes a model of it tells apart, or numbers it answers; None where only the files tell.
        per: whether a model gives one class an `example`, or one a `pixel` (segmentation).
        task: the task of a recipe that names none, such as `std.regression`; empty: one class an example, or a pixel.
    """

    shape: tuple[int, ...] | None = None
    num_classes: int | None = None
    per: Literal["example", "pixel"] = "example"
    task: str = ""

    def __post_init__(self) -> None:
        """Raises TypeError where it is no shape, or no number of classes; ValueError where `per` is another word."""
        super().__post_init__()
        shape = self.shape
        if shape is not None and not (isinstance(shape, tuple) and shape and all(map(_length, shape))):
            raise TypeError(f"Declares.shape is {self.shape!r:.60}; it must be a tuple of sizes: (1, 28, 28)")
        if self.num_classes is not None and not _length(self.num_classes):
            raise TypeError(f"Declares.num_classes is {self.num_classes!r:.60}; it must be a whole number >= 1")


def _length(value: Any) -> bool:
    return type(value) is int and value >= 1


class Scoring(Checked, kw_only=True):
    """The kind of a scorer's scores.

    Attributes:
        per: one a `scalar`, (P,), or one a `layer`, (L,).
        public: whether they follow from public facts alone, so that everybody can work them out.
    """

    per: Literal["scalar", "layer"] = "scalar"
    public: bool = False


class Reads(Checked, kw_only=True):
    """Which scores a component reads.

    Attributes:
        by: the scorer's name; None: the recipe's first.
        per: what it needs one score for; `any`: it takes either.
        at_server: whether the aggregation server works out public scores too, because what the ledger states follows
            from them; it then keeps a model.
    """

    by: str | None = None
    per: Literal["scalar", "layer", "any"] = "any"
    at_server: bool = False


class Plans(Checked, kw_only=True):
    """The kind of a negotiation's plans.

    Attributes:
        zones: the zones that they can hold.
        own: of those, the zones whose positions are a client's own.
        fixed: whether a client's plan is the same in every round; one that moves is refused.
    """

    zones: frozenset[str]
    own: frozenset[str] = frozenset()
    fixed: bool = False

    @property
    def moves(self) -> bool:
        """Whether a scalar may be in one zone in this round and in another in the next."""
        return len(self.zones) > 1 and not self.fixed

    def __post_init__(self) -> None:
        for name, zones in (("zones", self.zones), ("own", self.own)):
            if not isinstance(zones, frozenset) or not all(isinstance(zone, str) for zone in zones):
                rule = "it must be a frozenset of names: frozenset({'clear'})"
                raise TypeError(f"Plans.{name} is {zones!r:.60}; {rule}")
        if strange := sorted(self.own - self.zones):
            there = ", ".join(sorted(self.zones))
            raise TypeError(f"Plans.own names the zone {strange[0]}, which zones do not: {there}")


class Wants(Checked, kw_only=True):
    """The needs of an aggregator.

    Attributes:
        num_examples: clients tell how many examples they have, and weights follow from it.
        positions: clients send positions with every zone that is not encrypted, so the server sees the masks.
        model: `server.model` and `server.vector` at the server.
    """

    num_examples: bool = False
    positions: bool = False
    model: bool = False


class Account(Checked, kw_only=True):
    """An account of privacy at another level than the client, which the component that protects there keeps itself.

    Attributes:
        level: in one word, such as `record`; the ledger, the metrics (`level_epsilons`) and the verdict name it so.
        release: a NamedTuple of finite numbers >= 0: what one round releases of one client at that level.
        unit: what is protected: `one training example of a client, added or removed`.
        trust: who adds the noise, and where.
        covers: for what of a run it holds, and for what not.
    """

    level: str
    release: type[Any]
    unit: str
    trust: str
    covers: str

    def __post_init__(self) -> None:
        if not (isinstance(self.level, str) and self.level.isidentifier() and self.level.islower()):
            raise TypeError(f"Account.level is {self.level!r:.60}; it must be one word in small letters, as record is")
        if self.level == "client":
            raise TypeError("Account.level is client, of which the ledger keeps account; give operations instead")
        if not (isinstance(self.release, type) and hasattr(self.release, "_fields")):
            raise TypeError(f"Account.release is {self.release!r:.60}; it must be a NamedTuple of numbers")

    @property
    def size(self) -> int:
        """How many numbers a release has."""
        return len(self.release._fields)


class Finds(Checked, kw_only=True):
    """The goal of an attack, and how it is judged.

    Attributes:
        needs: of a view; a `fedplug_attacks.Needs`.
        what: `images`, `labels`, `members`.
        headline: (number, `high` or `low`): what ranks its forms.
        success: (number, `<=` or `>=`, threshold): the number that is judged, and from where on it is large.
    """

    needs: Any
    what: frozenset[str]
    headline: tuple[str, Literal["high", "low"]]
    success: tuple[str, Literal["<=", ">="], float]

    def __post_init__(self) -> None:
        """Raises ValueError where a number is ranked or judged by another word: results could not be read back."""
        if self.headline[1] not in ("high", "low"):
            raise ValueError(f"Finds(headline={self.headline!r}): it must be (number, 'high' or 'low')")
        if self.success[1] not in ("<=", ">="):
            raise ValueError(f"Finds(success={self.success!r}): it must be (number, '<=' or '>=', threshold)")


class Measures(Checked, kw_only=True):
    """The inputs of a metric, and how to read it.

    Attributes:
        kind: `images`, `labels`, `members` or `update`.
        better: name of each number -> `high` or `low`, whichever means that the attack learnt more.
        conventions: one line: range, smallest image, padding, how colour is treated.
        default: whether it is computed unless the recipe names metrics.
    """

    kind: str
    better: Mapping[str, str]
    conventions: str
    default: bool = False


class GroundTruth(Checked, kw_only=True):
    """The true groups of the clients, which no party knows. After a run, its groups are compared with them.

    Attributes:
        classes: names of the classes.
        examples: by client, how many training examples it has of each class.
        categories: the true category of each client, where the partition has some.
    """

    classes: Sequence[str]
    examples: Mapping[int, Sequence[int]]
    categories: Sequence[int] | None = None


_ROLES: list[type] = []
"""Every role, in the order of definition."""


def roles_of(cls: type) -> list[type]:
    """The roles that a class serves, `Component` the last of them."""
    return [base for base in cls.__mro__ if base in _ROLES]


class Component(abc.ABC):
    """The base of every component: built from typed options, named by the run, and responsible for what it shows.

    Attributes:
        name: under which recipes, messages and state refer to it; set by the run.
        options: as validated.
    """

    Options: ClassVar[type[Options]] = Options
    inner: ClassVar[Mapping[str, str]] = {}
    """Keys of its mapping in a recipe that each name a component within it, and the group of each: with
    `{"around": "model"}` a recipe says `around: {use: std.gpt}`, and `self.around` is that component."""
    name: str
    options: Any

    def __init__(self, options: Any) -> None:
        self.options = options

    def __init_subclass__(cls, role: bool = False, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if role:
            _ROLES.append(cls)

    def __setattr__(self, name: str, value: Any) -> None:
        if self.__dict__.get("_frozen"):
            raise ProtectionError(
                f"component {self.name} keeps {name} on itself, where the other clients of its process would find it; "
                "keep it in client.memory(self), or in client.cache where it can be made again"
            )
        super().__setattr__(name, value)

    def freeze(self) -> None:
        """From here on nothing can be kept on the component: it is the same for all clients and in all processes.

        Raises:
            TypeError: it holds a generator of random numbers, which would remember what was drawn.
        """
        for name, value in vars(self).items():
            if hasattr(value, "bit_generator") or hasattr(value, "getrandbits"):
                remedy = "draw from client.rng(self) or facts.rng(self.name)"
                raise TypeError(f"{name} is a generator of random numbers; {remedy}")
            self.__dict__[name] = _fixed(value)
        self.__dict__["_frozen"] = True

    def varied(self, **changes: Any) -> Self:
        """A copy of the component with other attributes."""
        other = copy.copy(self)
        other.__dict__.update(changes)
        return other

    @property
    def cohort_secret(self) -> bool:
        """Whether the clients must agree on a secret before round 1 (`client.secret`)."""
        return False

    def check(self, recipe: Any) -> Iterable[str]:
        """Further complaints about the recipe as a whole, each a sentence with its remedy."""
        return ()

    def setup(self, cohort: Cohort, key_server: KeyServerLine, facts: Facts) -> None:  # noqa: B027
        """Runs at the server, once, before round 1: keys, parameters."""

    def prepare(self, cohort: Cohort, facts: Facts) -> None:  # noqa: B027
        """Runs at the server in every round, once a group, between the negotiation and the uploads.

        For what a round's uploads need and no plan says: fresh keys, shares of them, a challenge. It drives the clients
        with methods marked `@at_client`; what they answer is stated by `reveals` as any other answer is.

        Args:
            cohort: the clients of one group that have a plan and are still in the round.
            facts: of the round, at the server.

        Raises:
            TooFewClients: fewer are left than the component needs. The group is left out of this round.
        """

    def reveals(self, facts: Facts) -> Sequence[Reveals]:
        """What it makes visible in addition to the protected values."""
        return ()

    def describe(self) -> str:
        """One line for the plan of the run; by default its options."""
        given = [(key, value) for key, value in self.options if value is not None]
        if given:
            shown = (f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in given)
            return ", ".join(shown)
        return (type(self).__doc__ or "").strip().partition("\n")[0]


def stated_reveals(component: Component, facts: Facts) -> list[Reveals]:
    """What a component says that it makes visible in a round.

    Raises:
        PluginError: it fails to say, or gives something else.
    """
    def stated(now: Facts) -> list[Reveals]:
        asked = now.components.get(component.name, component)  # an extension is in no facts
        with of_component(component.name, "reveals"):
            given = asked.reveals(now.at(facts.round))
            if not isinstance(given, list | tuple) or not all(isinstance(shown, Reveals) for shown in given):
                raise TypeError(f"it gave {given!r:.80}; give a list of Reveals(...), and [] where nobody sees more")
        return list(given)

    return list(facts.once(f"reveals {component.name}", stated))  # many ask, of one round


def _fixed(value: Any) -> Any:
    """The value, or of a container one with the same in it that cannot be changed."""
    match value:
        case dict():
            return types.MappingProxyType({key: _fixed(inner) for key, inner in value.items()})
        case list():
            return tuple(map(_fixed, value))
        case set():
            return frozenset(value)
    if hasattr(value, "__array_interface__") and value.dtype.kind != "O":
        from fedplug.api.blocks import unchangeable  # where there is an array, numpy is imported

        return unchangeable(value)
    return value


_ROLES.append(Component)


class Scorer(Component, role=True):
    """Says how much each scalar, or each layer, matters; at the client, after local training."""

    @property
    def scoring(self) -> Scoring:
        """The kind of its scores; may be a plain attribute, as every record of a role."""
        return Scoring()

    @abc.abstractmethod
    def score_parameters(self, client: Client, facts: Facts) -> Scores:
        """float32, (P,) or (L,). The core keeps it as `client.scores[name]`; the core does not send it."""

    def public_scores(self, model: Model, vector: NDArray[np.float32], facts: Facts) -> Mapping[int, Scores]:
        """Where `scoring.public`: the scores of a round by client id, as everybody works them out. By default none.

        Where the ledger goes by them, a client whose `score_parameters` gave others refuses to upload.

        Args:
            model: to try the vector with; left as it is.
            vector: float32 (P,), the global model that the round starts from.
            facts: of the round, with the public examples.
        """
        return {}


class Ballots(Component, role=True):
    """Has clients release noised values in a round's negotiation; next to another role."""

    @abc.abstractmethod
    def ballots(self, facts: Facts) -> Operations:
        """The operations on the values that clients release in this round: a clip and a noise; none: nothing.

        `client.release(self, values)` executes them, or `cohort.server.release` where the server adds the noise;
        the ledger charges everybody who was asked. They follow from options and the round: `facts` has nothing that was
        published.
        """


class Negotiation(Component, role=True):
    """Makes sure that every client of the cohort has a plan: which scalar is in which zone."""

    @property
    @abc.abstractmethod
    def plans(self) -> Plans:
        """The kind of its plans."""

    @property
    def reads(self) -> Reads | None:
        """Which scores it reads; None: none."""
        return None

    @abc.abstractmethod
    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        """Runs at the server, once a group, and drives the clients with methods marked `@at_client`.

        Those set `client.plan`, where plans live; nothing is returned.
        """

    @abc.abstractmethod
    def reveals(self, facts: Facts) -> Sequence[Reveals]:
        """What the answers of the clients show, and what their plans do."""

    def open_reply(self, client: Client, method: str, asked: tuple[Any, ...], reply: Any) -> Any:
        """A reply as any party with the clients' secret reads it, for the views of attacks. None: as it is.

        Args:
            client: with the secret, in the round of the reply.
            method: that answered.
            asked: the payload of the question.
            reply: the answer.
        """
        return None


class PublicPlan(Negotiation, role=True):
    """A negotiation without a conversation: plans follow from public facts, and everybody works them out."""

    @abc.abstractmethod
    def plan(self, facts: Facts) -> Plan | str | None:
        """The plan of a round, or the name of the zone that holds the whole model. None where the clients negotiate it
        all the same: then the component overrides `negotiate_mask` and `reveals` as well.
        """

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        """Asks nobody anything."""

    def reveals(self, facts: Facts) -> Sequence[Reveals]:
        """Nothing: everybody knows the plans."""
        return ()

    def planned(self, facts: Facts) -> Plan | None:
        """The plan of a round, which all parties share. Before a model is known, an empty one where it needs a model.

        Raises:
            PluginError: it fails, or gives no plan.
        """
        from fedplug.api.blocks import Plan, shared_plan

        given = stated_plan(self, facts)
        with of_component(self.name, "plan"):
            if isinstance(given, str):
                given = Plan.single(given, facts.layout.size, facts.zones)
            return None if given is None else shared_plan(given)


def stated_plan(part: PublicPlan, facts: Facts) -> Plan | str | None:
    """What its `plan` gives for a round; before a model is known, a plan without one where it needs a model.

    Raises:
        PluginError: it fails, or gives no plan.
    """
    from fedplug.api.blocks import Plan

    with of_component(part.name, "plan"):
        try:
            given: Any = part.plan(facts)
        except Exception:
            if facts.layout.size:
                raise
            given = Plan.of(facts, facts.zones[0])
    if not isinstance(given, Plan | str | None):
        what = type(given).__name__
        raise PluginError(f"component {part.name}, plan: it gave a {what}; give a fedplug.Plan, or a zone's name")
    if given is None and type(part).negotiate_mask is PublicPlan.negotiate_mask:
        raise PluginError(
            f"component {part.name}, plan: it gave None, and no client negotiates a plan; give a fedplug.Plan, or a "
            "zone's name, or override negotiate_mask and reveals as well"
        )
    return given


class Groups(Component, role=True):
    """Forms groups of clients with a model each."""

    @property
    def reads(self) -> Reads | None:
        """Which scores it reads; None: none."""
        return None

    @abc.abstractmethod
    def form_groups(self, cohort: Cohort, facts: Facts) -> None:
        """Runs at the server in every round, after the clients were told to train and before the negotiation.

        May ask the clients and, in round 1, call `cohort.regroup({name: [client ids]})`, which stays in force.
        """

    @abc.abstractmethod
    def reveals(self, facts: Facts) -> Sequence[Reveals]:
        """What the answers of the clients show, and what the groups do."""

    def assess(self, server: Server, truth: GroundTruth) -> Mapping[str, float]:
        """After the run, outside every party: how well the groups match what no party knows. The summary has it."""
        return {}


class Protector(Component, role=True):
    """Protects one zone of one client's update, as one link of the zone's chain; at the client."""

    @property
    def reads(self) -> Reads | None:
        """Which scores it reads; None: none."""
        return None

    @abc.abstractmethod
    def protect(self, known: Known, facts: Facts) -> Operations:
        """The operations on the zone's values (`fedplug.api.operations`), which the core executes, prices and shows.

        A function of the options and of these arguments: the core asks before a run, and once a round at each process.
        What differs between clients is a value by client in an operation, or a function in it. A function alone counts
        as `Map(function)`.

        Args:
            known: what is known of the values; asks for order with `known.before` and `known.need_norm`.
            facts: the round; before a run its layout may be empty.

        Raises:
            Misplaced: its place is wrong.
        """


class Aggregator(Component, role=True):
    """Sums one zone over the clients of one group; at the aggregation server, which holds no secret key."""

    @property
    def wants(self) -> Wants:
        """Its needs."""
        return Wants()

    @abc.abstractmethod
    def aggregate(self, known: Known, facts: Facts) -> Operations:
        """How the uploads become one: `WeightedSum()`, which the core adds up, or `Combine(function)`, which earns no
        credit; then what is done to the sum.
        """

    def client_weight(self, num_examples: int, max_examples: int) -> float:
        """A client's weight, in (0, 1]; asked where `wants.num_examples`."""
        return 1.0


class Opener(Component, role=True):
    """Undoes or completes the protection of an aggregated zone, where its `site` says."""

    @property
    def site(self) -> Site:
        """The party at which `postprocess` runs."""
        return "client"

    @abc.abstractmethod
    def postprocess(self, known: Known, facts: Facts) -> Operations:
        """The operations on the sum of a zone at this site, which the core executes.

        For the zone `retained` it runs at each client after the global model has moved, on the client's own values; a
        `Map(function)` there may set `client.personal`, the model with which this client continues.

        Raises:
            Misplaced: its place is wrong.
        """


class Closer(Protector, Opener, role=True):
    """What closes a zone's uploads, and opens their sum: a `Sealer`, or a `Scrambler`. Once a zone, as the last link of
    its protection.

    It is handed words and gives words (`fedplug.api.words`). The core keeps weights, the number of updates, divisors
    and positions.
    """

    @abc.abstractmethod
    def reveals(self, facts: Facts) -> Sequence[Reveals]:
        """What uploads show in spite of it, and what the answers show that keys and openings need."""

    @abc.abstractmethod
    def seal(self, words: Words, client: Client, facts: Facts) -> Sealed:
        """A client's words, closed. Its `protect` gives the `Seal` or `Scramble` that says how values become words."""

    @abc.abstractmethod
    def open(self, total: Total, party: AnyParty, facts: Facts) -> Opened:
        """The words of a sum, at the party that opens it.

        Raises:
            TooFewClients: too few clients help; the sum stays closed.
            ProtectionError: this party cannot open it.
        """

    def postprocess(self, known: Known, facts: Facts) -> Operations:
        """It undoes its own seal."""
        return (Open(),)


class Sealer(Closer, role=True):
    """Encrypts a zone: the server adds uploads up that it cannot read."""

    @abc.abstractmethod
    def add(self, uploads: Sequence[Total], server: AnyParty, facts: Facts) -> tuple[bytes, ...]:
        """The parts of the sum of uploads, or of sums; at the server.

        Args:
            uploads: not empty, equally large. Of words with an index it is asked for one block of positions after the
                other.
            server: that adds.
            facts: the round.

        Raises:
            MessageError: an upload is damaged: that which was drawn last from `uploads`, whose client is blamed.
        """

    def gather(self, total: Total, server: Server, facts: Facts) -> Total:
        """At the server, a closed sum as it is sent to those who open it: with what they need in addition, or as
        clients have put it together for them (`Seal(opened_by="shares", sums_visible_to="clients")`).

        Raises:
            TooFewClients: too few clients help; the sum stays closed.
            ProtectionError: what they answer does not open it.
        """
        return total

    def open_upload(self, upload: Total, parties: Sequence[AnyParty], facts: Facts) -> Opened | None:
        """One upload, as parties who pool what they hold could open it: for the views of insiders.

        By default each tries alone. An error that is not fedplug's own is a mistake of the component, and is told as
        one.

        Args:
            upload: as a sum of one.
            parties: with their keys and memories.
            facts: of the round, in which parties keep no rule that honest ones keep.

        Returns:
            None where they cannot open it.
        """
        for party in parties:
            with contextlib.suppress(FedplugError):  # another key, or none
                return self.open(upload, party, facts)
        return None


class Scrambler(Closer, role=True):
    """Closes a zone against others than the server, which reads uploads, adds values, and closes the sum again."""

    @abc.abstractmethod
    def unseal(self, upload: Total, party: AnyParty, facts: Facts) -> Opened:
        """The words of one upload; at the server.

        Raises:
            MessageError: it does not open; its client is blamed.
        """

    @abc.abstractmethod
    def reseal(self, words: Words, server: AnyParty, facts: Facts) -> tuple[bytes, ...]:
        """The words of the sum, closed for those who `open` it; at the server."""


class Trainer(Component, role=True):
    """Trains the client's model on its data."""

    @abc.abstractmethod
    def train(self, client: Client, facts: Facts) -> dict[str, float]:
        """Trains `client.model`, which holds `client.start`, on `client.data.train`; gives numbers for the metrics.

        `loss` is the mean training loss of the last epoch. Randomness comes from `client.rng(self, ...)` alone, so that
        engines agree bit for bit.
        """

    def reads_examples(self, facts: Facts) -> bool:
        """Whether it trains on clients' examples in this round. False: it is handed a client without any, nor a memory
        of other rounds, so that its update is public and costs nothing.
        """
        return True

    def learns(self, facts: Facts) -> Learns | None:
        """How an update of that round follows from data. None, the default: no attack can read gradients off it."""
        return None

    def personalise(self, client: Client, facts: Facts) -> None:
        """Sets `client.personal`, a model of the client's own, whenever the global model has moved."""

    def one_batch(self, client: Client, facts: Facts, batch_size: int) -> Self | None:
        """A trainer that makes one step on one batch as this one would, for probes; None where it cannot."""
        return None


class AccountKeeper(Component, role=True):
    """Protects another unit than the client, such as single records, and keeps its account; next to another role.

    Every client states, before round 1, what each of its rounds will release. A client that is about to train by
    another statement than it gave refuses. The ledger keeps what every client that was asked to upload has released,
    lost and repeated rounds included.
    """

    @property
    @abc.abstractmethod
    def account(self) -> Account:
        """The account that it keeps."""

    @abc.abstractmethod
    def round_release(self, client: Client, facts: Facts) -> tuple[float, ...]:
        """The release of this client in the round of `facts`, as an `account.release`. It follows from the round, the
        options and the number of examples alone.
        """

    def release_problem(self, release: Any) -> str:
        """Why no round of any client can release this, as far as the server knows; empty if one can, the default.

        Asked of what clients state, an `account.release` of finite numbers >= 0. A client that states something else
        does not join. `epsilon_of` has an answer for everything that passes.
        """
        return ""

    def units(self, release: Any) -> float:
        """How many units a client has at most that states this release, > 0; infinity, the default, where nobody knows.

        Delta is compared with their number over all clients: without it, epsilon is no guarantee.
        """
        return math.inf

    @abc.abstractmethod
    def epsilon_of(self, releases: Sequence[Any], delta: float) -> dict[str, float]:
        """Epsilons of one unit after these releases, by method, the headline first; the methods for no releases too."""


class DataSource(Component, role=True):
    """Loads a data set."""

    @property
    def declares(self) -> Declares:
        """Its known shape before it is loaded. By default none, so that only a run tells what fits."""
        return Declares()

    @abc.abstractmethod
    def load(self, root: str | None) -> Dataset:
        """The data set. `root` is the folder of data sets, or None where the user named none; with data at sites, the
        folder of one client's site.
        """


class Partition(Component, role=True):
    """Says which examples each client has, by their labels, or by their users."""

    by: ClassVar[Literal["labels", "users"]] = "labels"

    @abc.abstractmethod
    def assign(self, labels: NDArray[np.int64], num_clients: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
        """For each client, the indices of its examples: disjoint, and none empty. `labels` are what it goes `by`."""

    def categories(self, num_clients: int) -> Sequence[int] | None:
        """The true category of each client, for `Groups.assess`; None where clients have none."""
        return None


class Task(Component, role=True):
    """The purpose of a model: the kind of its answers, the loss that it minimises, and the figures that judge it.

    A client's data has its task, as `data.task`: trainers, scorers and models ask it, with tensors of torch on the
    model's device. The server makes figures of the clients' counts. It keeps nothing between calls.
    """

    @property
    @abc.abstractmethod
    def judged_by(self) -> tuple[Figure, ...]:
        """The figures that `figures` gives, with direction and unit; the first leads: it takes the place that accuracy
        has for classification, and a search looks for it.

        One named `accuracy` is the share of right answers, for which `counts` gives `correct` and `answers`. Where none
        is, no run, report or comparison shows an accuracy.
        """

    @property
    def descends(self) -> str:
        """Its loss, in words, for `Learns.descends`; `cross_entropy` where it is that over one class an answer. Empty:
        nothing is trained.

        Attacks that need cross entropy do not apply to another.
        """
        return f"the loss of {self.name}"

    @abc.abstractmethod
    def losses(self, outputs: Any, answers: Any) -> Any:
        """The loss of each example, (n,), a mean over its positions where it has several; differentiable.

        Args:
            outputs: what the model gives for n examples, (n, ...).
            answers: theirs, as `Examples.answers` has them, (n, ...).
        """

    @abc.abstractmethod
    def counts(self, outputs: Any, answers: Any) -> Mapping[str, float]:
        """What `figures` needs of a batch, by name; counts of batches and of clients are added up.

        Args:
            outputs, answers: as for `losses`.
        """

    @abc.abstractmethod
    def figures(self, counts: Mapping[str, float]) -> dict[str, float]:
        """Figures by name, the leading one first, from `counts` summed over the clients.

        Runs at the server. Counts come from clients, so a name may be missing; what raises is noted and left out.
        """

    def guesses(self, answers: NDArray[Any]) -> Mapping[str, float]:
        """Figures by name of the best guess that looks at no input, such as the mean of all answers; by default none.

        A run shows them with those of the model, and says where a model is no better. Balanced accuracy and AUC have
        theirs, and accuracy has, where an answer is one class.

        Args:
            answers: of the common test set, as `Examples.answers` has them, at least one.
        """
        return {}

    def refuses(self, examples: Examples, about: About) -> str | None:
        """Why it cannot be the task of this data, and the remedy; None: it can. Asked before the first round.

        Args:
            examples: some of the data.
            about: the names of its outputs, and what it is standardised with.
        """
        return None


class ModelSource(Component, role=True):
    """Builds the model."""

    @abc.abstractmethod
    def build(self, shape: tuple[int, ...], num_classes: int, seed: int, device: str) -> Model:
        """The model, with weights that depend on `seed` alone. `shape` is (C, H, W) of one example."""

    def refuses(self, shape: tuple[int, ...], num_classes: int | None, per: Literal["example", "pixel"]) -> str | None:
        """Why it takes no examples of this shape, and the remedy: `it takes images of at least 12x12; use larger ones`.

        `fedplug check` asks before any data is loaded, and a run before the model is built, so nothing heavy is
        imported here. None where it takes them, or only `build` tells.

        Args:
            shape: (C, H, W) of one example.
            num_classes: as `build` is told; None where it is not known yet.
            per: whether the data has one class an `example`, or one a `pixel`.
        """
        return None

    def num_parameters(self, shape: tuple[int, ...], num_classes: int) -> int | None:
        """How many parameters the model has, frozen ones too, or a lower bound; None where only `build` tells.

        Asked when `refuses` is: a model that does not fit into memory is refused before anybody builds it.

        Args:
            shape: (C, H, W) of one example.
            num_classes: as `build` is told; 1 where it is not known yet.
        """
        return None

    @property
    def judged_by(self) -> tuple[Figure, ...]:
        """Each figure that `figures` gives, with which way is better and its unit; by default none.

        A figure that is not among them is shown all the same; a search has to be told which way it is better.
        """
        return ()

    def figures(self, counts: Mapping[str, float]) -> dict[str, float]:
        """Figures of the task besides accuracy, by name, from `Evaluation.task` summed over the clients.

        Runs at the server. Counts come from clients, so a name may be missing; what raises is noted and left out.
        """
        return {}


class Accountant(Component, role=True):
    """States epsilon of sampled releases, and of releases that are not Gaussian."""

    @abc.abstractmethod
    def compose(
        self, releases: list[tuple[str, float, float, int]], delta: float, adjacency: str
    ) -> dict[str, float] | None:
        """Epsilon of releases together, each (mechanism, noise_multiplier, sampling_rate, count).

        Args:
            releases: those that are sampled are `gaussian`; others `laplace` or `pure` too. Multipliers are those of
                zero-out, whichever the adjacency.
            delta: failure probability, 0 < delta < 1.
            adjacency: `zero_out` or `replace_one`.

        Returns:
            One value a method, the headline first, such as `{"pld": 5.91, "rdp": 6.61}`. None where it does not know
            one of the mechanisms: the ledger then composes them by Renyi DP, without credit for sampling.
        """


class Attack(Component, role=True):
    """Tries to learn about clients' data from what one adversary observed; outside every party."""

    @property
    @abc.abstractmethod
    def finds(self) -> Finds:
        """Its goal."""

    @property
    def form(self) -> Literal["adaptive", "naive"] | None:
        """Its form, where it has several."""
        return None

    @abc.abstractmethod
    def attack(self, view: Any, attacker: Any) -> Any:
        """Its result from a `fedplug_attacks.View`: `fedplug_attacks.AttackReport("finished", ...)`, or `diverged` or
        `not_applicable` with a reason.

        Args:
            view: what the adversary saw.
            attacker: a `fedplug_attacks.Attacker`: the public facts, a device, and where it tells its progress.
        """

    def in_form(self, form: Literal["adaptive", "naive"]) -> Self | None:
        """The same attack in another form; None where it has but one."""
        return None


class Metric(Component, role=True):
    """One or a few numbers about what an attack found, against the truth."""

    @property
    @abc.abstractmethod
    def measures(self) -> Measures:
        """Its inputs, and how to read it."""

    @abc.abstractmethod
    def score(self, found: Any, truth: Any) -> dict[str, Any]:
        """The numbers, by name, of an `AttackReport` against a `fedplug_attacks.Truth`.

        Images are in the order of `truth.images`: the scorer has matched them.

        Raises:
            MetricError: it is not defined for these images, counts or scores.
        """


class Poison(Component, role=True):
    """Has a client lie, of which no message tells the server: a `fedplug_robust.Lie`."""


class Extension(Component, role=True):
    """Looks on: it hears the events of a run in `observe`, or wraps hooks with methods named after them, marked
    `@hookimpl(wrapper=True)`, which change no block and no score.
    """

    every_run: ClassVar[bool] = False
    """Whether it hears every run where it is installed; `--without NAME` leaves it out."""
    hears: ClassVar[tuple[type, ...]] = ()
    """The events that it hears, such as `(RowComplete,)`; none named means all. Naming them saves copies."""

    def observe(self, event: Event) -> Iterable[str] | None:
        """Hears the events of the run (`fedplug.api.events`), at the server, in order, before the run continues; gives
        what people should read of it, as notes, or None.

        It gets a copy of each, so that nothing it does to one reaches the run.
        A `FedplugError` stops the run: at `RoundStarted` or `Asking`, before anything is released. Anything else that
        is raised is noted once, and the extension gets no further events.
        """


ROLES: dict[str, type[Component]] = {
    "score_parameters": Scorer,
    "negotiate_mask": Negotiation,
    "protect": Protector,
    "aggregate": Aggregator,
    "postprocess": Opener,
    "attack": Attack,
    "dataset": DataSource,
    "partition": Partition,
    "task": Task,
    "model": ModelSource,
    "trainer": Trainer,
    "metric": Metric,
    "accountant": Accountant,
    "groups": Groups,
    "poison": Poison,
    "extension": Extension,
}
"""The role of each entry-point group."""


def place_of(component: Any, method: str) -> str:
    """Where a method that runs at another party belongs, for errors: `component a.b, hook protect, method share: `.

    Empty for the protocol's own, which name themselves what they ran.
    """
    hooks = [group for group, role in ROLES.items() if isinstance(component, role)]
    return f"component {component.name}, hook {' and '.join(hooks)}, method {method}: " if hooks else ""
