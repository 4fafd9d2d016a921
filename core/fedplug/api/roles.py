"""The roles that a component can have: one typed class each, with everything the core may ever ask of it.

A component subclasses the role, or the roles, that it serves, and overrides what it needs. What it declares is one
frozen record a role. A class with a public name close to one of the role's, or with another signature, is refused when
it is imported, with the nearest name, and so is one that has such a name from a plain base class: a misspelt statement
must never count as a statement that was not made. This is the only module of the core that looks members up by name.
"""

from __future__ import annotations

import abc
import dataclasses
import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args

from fedplug.api.component import Options
from fedplug.api.effects import Effects, Learns, Opens, Reveals
from fedplug.api.errors import cause_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedplug.api.context import Client, Context, Server
    from fedplug.api.effects import Known
    from fedplug.api.events import Event
    from fedplug.api.model import Model
    from fedplug.api.observation import Needs
    from fedplug.api.truth import Truth
    from fedplug.api.types import Block, Dataset, Scores
    from fedplug.api.views import AttackReport, View
    from fedplug.recipe.recipe import Recipe
    from fedplug.wire.cohort import Cohort, KeyServerLine

Site = Literal["client", "server", "key_server"]


class Component(abc.ABC):
    """What every component is: built from typed options, named by the run, and answerable for what it shows.

    Attributes:
        name: under which recipes, messages and state refer to it; set by the run.
        options: as validated.
    """

    Options: ClassVar[type[Options]] = Options
    name: str
    options: Any

    def __init__(self, options: Any) -> None:
        self.options = options

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if cls.__module__ != __name__ and (problems := list(misspelt(cls))):
            raise TypeError(f"{cls.__module__}.{cls.__qualname__}: " + "; ".join(problems))

    @property
    def cohort_secret(self) -> bool:
        """Whether the clients must agree on a secret before round 1 (`client.secret`)."""
        return False

    def check(self, recipe: Recipe) -> Iterable[str]:
        """Further complaints about the recipe as a whole, each a sentence with its remedy."""
        return ()

    def setup(self, cohort: Cohort, key_server: KeyServerLine, ctx: Context) -> None:  # noqa: B027
        """Runs at the server, once, before round 1: keys, parameters."""

    def reveals(self, ctx: Context) -> Sequence[Reveals]:
        """What it makes visible beside the protected values."""
        return ()

    def describe(self) -> str:
        """One line for the plan of the run; by default its options."""
        given = [(key, value) for key, value in self.options if value is not None]
        if given:
            shown = (f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in given)
            return ", ".join(shown)
        return (type(self).__doc__ or "").strip().partition("\n")[0]

    def assess(self, server: Server, truth: Mapping[str, Any]) -> Mapping[str, float]:
        """After the run, outside every party: facts that need what no party knows.

        Args:
            server: the aggregation server.
            truth: "classes", "examples" {client: [count per class]}, "categories" of the clients or None.
        """
        return {}


# -- scores and plans --------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scoring:
    """What a scorer's scores are.

    Attributes:
        per: one a `scalar`, (P,), or one a `layer`, (L,).
        public: whether they follow from public facts alone, so that everybody can work them out.
    """

    per: Literal["scalar", "layer"] = "scalar"
    public: bool = False


class Scorer(Component):
    """Says how much each scalar, or each layer, matters; at the client, after local training."""

    @property
    def scoring(self) -> Scoring:
        """What its scores are; may be a plain attribute, as every record of a role."""
        return Scoring()

    @abc.abstractmethod
    def score_parameters(self, client: Client, ctx: Context) -> Scores:
        """float32, (P,) or (L,). The core keeps it as `client.scores[name]`; it is not sent anywhere by itself."""

    def public_scores(self, model: Model, vector: NDArray[np.float32], ctx: Context) -> Mapping[int, Scores]:
        """Where `scoring.public`: the scores of a round by client id, as everybody works them out. By default none.

        Where the ledger goes by them, a client whose `score_parameters` gave others refuses to upload.

        Args:
            model: to try the vector with; left as it is.
            vector: float32 (P,), the global model that the round starts from.
            ctx: of the round, with the public examples.
        """
        return {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reads:
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plans:
    """What a negotiation's plans are.

    Attributes:
        zones: the zones that they can hold.
        own: of those, the zones whose positions are a client's own.
        public: whether plans follow from public facts alone: not from data, nor from who takes part.
    """

    zones: frozenset[str]
    own: frozenset[str] = frozenset()
    public: bool = False

    def __post_init__(self) -> None:
        for name, zones in (("zones", self.zones), ("own", self.own)):
            if not isinstance(zones, frozenset) or not all(isinstance(zone, str) for zone in zones):
                rule = "it must be a frozenset of names: frozenset({'clear'})"
                raise TypeError(f"Plans.{name} is {zones!r:.60}; {rule}")
        if strange := sorted(self.own - self.zones):
            there = ", ".join(sorted(self.zones))
            raise TypeError(f"Plans.own names the zone {strange[0]}, which zones do not: {there}")


class Negotiation(Component):
    """Makes sure that every client of the cohort has a plan: which scalar is in which zone."""

    @property
    @abc.abstractmethod
    def plans(self) -> Plans:
        """What its plans are."""

    @property
    def reads(self) -> Reads | None:
        """Which scores it reads; None: none."""
        return None

    @abc.abstractmethod
    def negotiate_mask(self, cohort: Cohort, ctx: Context) -> None:
        """Runs at the server, once a group, and drives the clients with methods marked `@at_client`."""

    def open_reply(self, client: Client, method: str, asked: tuple[Any, ...], reply: Any) -> Any:
        """What a reply says, as anybody reads it who has the clients' secret: for the views of attacks. None: as it is.

        Args:
            client: with the secret, in the round of the reply.
            method: that answered.
            asked: what the question said.
            reply: the answer.
        """
        return None

    def ballots(self, round: int, ctx: Context) -> Effects:
        """What clients send with noise for a round's negotiation, as a bound and a noise; the ledger charges it."""
        return ()


class Groups(Component):
    """Forms groups of clients with a model each."""

    @property
    def reads(self) -> Reads | None:
        """Which scores it reads; None: none."""
        return None

    @abc.abstractmethod
    def form_groups(self, cohort: Cohort, ctx: Context) -> None:
        """Runs at the server in every round, after the clients were told to train and before the negotiation.

        May ask the clients and, in round 1, call `cohort.regroup({name: [client ids]})`, which stays in force.
        """

    def ballots(self, round: int, ctx: Context) -> Effects:
        """What clients send with noise so that groups can be formed, as a bound and a noise; the ledger charges it."""
        return ()


# -- links of a zone's chain -------------------------------------------------------------------------------------------


class Protector(Component):
    """Protects one zone of one client's update, as one link of the zone's chain; at the client."""

    @property
    def reads(self) -> Reads | None:
        """Which scores it reads; None: none."""
        return None

    @abc.abstractmethod
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        """The block to hand on; that of the last link is sent to the server. `ctx.known` says what is known of it."""

    def effects(self, known: Known, ctx: Context) -> Effects | None:
        """What `protect` does to the values. None, the default: nothing is said, and nothing is promised behind it.

        Args:
            known: what is known before it; asks for order with `known.before` and `known.need_norm`.
            ctx: the round; before a run its layout may be empty and its party without memory.

        Raises:
            Misplaced: it cannot stand where it stands.
        """
        return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wants:
    """What an aggregator needs to work.

    Attributes:
        num_examples: clients tell how many examples they have, and weights follow from it.
        positions: clients send positions with every zone that is not encrypted, so the server sees the masks.
        model: `ctx.party.model` and `ctx.party.vector` at the server.
    """

    num_examples: bool = False
    positions: bool = False
    model: bool = False


class Aggregator(Component):
    """Sums one zone over the clients of one group; at the aggregation server, which holds no secret key."""

    @property
    def wants(self) -> Wants:
        """What it needs to work."""
        return Wants()

    @abc.abstractmethod
    def aggregate(self, blocks: dict[int, Block], weights: dict[int, float], ctx: Context) -> Block:
        """The weighted sum, with `divisor` and `contributors` set; `fedplug.add_blocks` does it for all blocks."""

    def client_weight(self, num_examples: int, max_examples: int) -> float:
        """A client's weight, in (0, 1]; asked where `wants.num_examples`."""
        return 1.0

    def sums(self, known: Known, ctx: Context) -> Effects | None:
        """What `aggregate` does to the values: `(Adds(),)` for a weighted sum. None, the default: no promise."""
        return None


class Opener(Component):
    """Undoes or completes the protection of an aggregated zone, where its `site` says."""

    @property
    def site(self) -> Site:
        """The party at which `postprocess` runs."""
        return "client"

    @abc.abstractmethod
    def postprocess(self, block: Block, ctx: Context) -> Block:
        """The block with plain values, or with whatever the next link needs; `ctx.party` is the party it runs in."""

    def opens(self, known: Known, ctx: Context) -> Effects | None:
        """What `postprocess` does to the values. None, the default: nothing is said, and nothing is promised behind it.

        Raises:
            Misplaced: it cannot stand where it stands.
        """
        return None


class Sealer(Protector, Opener):
    """Closes a zone's values at the clients, adds them up closed, and opens the sum: an encryption, or a scrambling."""

    @abc.abstractmethod
    def add_blocks(self, blocks: dict[int, Block], ctx: Context) -> Block:
        """The sum of blocks that this component sealed; at the server."""

    def opens(self, known: Known, ctx: Context) -> Effects | None:
        """It undoes its own seal."""
        return (Opens(),)

    def open_upload(self, block: Block, ctx: Context) -> Block:
        """One upload, opened by a party with the key: for the views of insiders. By default as a sum of one."""
        return self.postprocess(block, ctx)


# -- data, model, training ---------------------------------------------------------------------------------------------


class DataSource(Component):
    """Loads a data set."""

    @abc.abstractmethod
    def load(self, root: str | None) -> Dataset:
        """The data set. `root` is the folder of data sets, or None where the user named none."""


class Partition(Component):
    """Says which examples each client has."""

    @abc.abstractmethod
    def assign(self, labels: NDArray[np.int64], num_clients: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
        """For each client, the indices of its examples: disjoint, and none empty."""

    def categories(self, num_clients: int) -> Sequence[int] | None:
        """The true category of each client, for `assess`; None where clients have none."""
        return None


class ModelSource(Component):
    """Builds the model."""

    @abc.abstractmethod
    def build(self, shape: tuple[int, ...], num_classes: int, seed: int, device: str) -> Model:
        """The model, with weights that depend on `seed` alone. `shape` is (C, H, W) of one example."""

    def figures(self, counts: Mapping[str, float]) -> dict[str, float]:
        """Figures of the task beside accuracy, by title, from `Evaluation.task` summed over the clients.

        Runs at the server. Counts come from clients, so a name may be missing; what raises is noted and left out.
        """
        return {}


class Trainer(Component):
    """Trains the client's model on its data."""

    @abc.abstractmethod
    def train(self, client: Client, ctx: Context) -> dict[str, float]:
        """Trains `client.model`, which holds `client.start`, on `client.data.train`; gives numbers for the metrics.

        `loss` is the mean training loss of the last epoch. Randomness comes from `client.rng(self, ...)` alone, so that
        engines agree bit for bit.
        """

    def learns(self, ctx: Context) -> Learns | None:
        """How an update of that round follows from data. None, the default: no attack can read gradients off it."""
        return None

    def personalise(self, client: Client, ctx: Context) -> None:
        """Sets `client.personal`, a model of the client's own, whenever the global model has moved."""

    def one_batch(self, client: Client, ctx: Context, batch_size: int) -> Self | None:
        """A trainer that makes one step on one batch as this one would, for probes; None where it cannot."""
        return None


class RecordTrainer(Trainer):
    """A trainer that protects single training records (DP-SGD)."""

    @abc.abstractmethod
    def record_release(self, client: Client, ctx: Context) -> tuple[float, float, float]:
        """(noise multiplier, sampling rate, steps) of the round. Asked for every round before round 1."""

    @abc.abstractmethod
    def record_epsilon(self, releases: list[tuple[float, float, float]], delta: float) -> dict[str, float]:
        """Epsilons of one record after these rounds, by method, the headline first."""


# -- accounts, attacks, metrics, engines, extensions -------------------------------------------------------------------


class Accountant(Component):
    """States epsilon of sampled releases, and of releases that are not Gaussian."""

    @abc.abstractmethod
    def epsilon(self, releases: list[tuple[float, float]], delta: float, adjacency: str) -> dict[str, float]:
        """Epsilon of Gaussian releases, one (noise_multiplier, sampling_rate) a round; one value a method, the headline
        first, such as `{"pld": 5.91, "rdp": 6.61}`. `adjacency` is `zero_out` or `replace_one`.
        """

    def compose(
        self, releases: list[tuple[str, float, float, int]], delta: float, adjacency: str
    ) -> dict[str, float] | None:
        """The same for (mechanism, noise_multiplier, sampling_rate, count) of several mechanisms; None: by Renyi DP."""
        return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finds:
    """What an attack looks for, and how it is judged.

    Attributes:
        needs: of a view; a `fedplug.Needs`.
        what: `images`, `labels`, `members`.
        headline: (number, `high` or `low`): what ranks its forms.
        success: (number, `<=` or `>=`, threshold): what counts as a success.
    """

    needs: Needs
    what: frozenset[str]
    headline: tuple[str, Literal["high", "low"]]
    success: tuple[str, Literal["<=", ">="], float]


class Attack(Component):
    """Tries to learn about clients' data from what one adversary observed; outside every party."""

    @property
    @abc.abstractmethod
    def finds(self) -> Finds:
        """What it looks for."""

    @property
    def form(self) -> Literal["adaptive", "naive"] | None:
        """Its form, where it has several."""
        return None

    @abc.abstractmethod
    def attack(self, view: View, ctx: Context) -> AttackReport:
        """What it found: `AttackReport("finished", ...)`, or `diverged` or `not_applicable` with a reason."""

    def in_form(self, form: Literal["adaptive", "naive"]) -> Self | None:
        """The same attack in another form; None where it has but one."""
        return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measures:
    """What a metric compares and how to read it.

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


class Metric(Component):
    """One or a few numbers about what an attack found, against the truth."""

    @property
    @abc.abstractmethod
    def measures(self) -> Measures:
        """What it compares, and how to read it."""

    @abc.abstractmethod
    def score(self, found: AttackReport, truth: Truth) -> dict[str, Any]:
        """The numbers, by name. Images are in the order of `truth.images`: the scorer has matched them.

        Raises:
            MetricError: it is not defined for these images, counts or scores.
        """


class Extension(Component):
    """Looks on: it hears the events of a run in `observe`, or wraps hooks with methods named after them, marked
    `@hookimpl(wrapper=True)`, which change no block and no score.
    """

    every_run: ClassVar[bool] = False
    """Whether it hears every run of whoever has it installed; `--without NAME` sends it away."""
    hears: ClassVar[tuple[type, ...]] = ()
    """The events that it hears, such as `(RowComplete,)`; none named stands for all. Naming them saves copies."""

    def observe(self, event: Event) -> None:
        """Hears the events of the run (`fedplug.api.events`), at the server, in order, before the run goes on.

        It gets a copy of each, so that nothing it does to one reaches the run.
        A `FedplugError` stops the run: at `RoundStarted` or `Asking`, before anything is released. Anything else that
        is raised is noted once, and the extension hears no more.
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
    "model": ModelSource,
    "trainer": Trainer,
    "metric": Metric,
    "accountant": Accountant,
    "groups": Groups,
    "extension": Extension,
}
"""The role of each entry-point group."""

RECORDS: dict[str, type] = {
    "scoring": Scoring, "plans": Plans, "reads": Reads, "wants": Wants, "finds": Finds, "measures": Measures,
}  # fmt: skip
"""What a role declares, by the member that holds it."""


# -- names that nobody can misspell ------------------------------------------------------------------------------------

_CLOSE = 0.8
"""How alike two names must be for one to be taken for the other, by difflib."""
_MEANT = {
    "effect": "effects", "provides": "effects", "provide": "effects", "requires": "effects", "require": "effects",
    "forbids_before": "effects", "release": "effects", "releases": "effects", "limits": "effects", "adds_up": "effects",
    "side_channel": "reveals", "side_channels": "reveals", "reveal": "reveals", "zones": "plans", "own_zones": "plans",
    "needs_cohort_secret": "cohort_secret", "must_undo": "effects", "descends": "learns", "one_step": "learns",
}  # fmt: skip
"""Words that people reach for, and what says it here."""

_PROMISES = (
    "effects", "sums", "opens", "ballots", "learns", "plans", "reads", "wants", "scoring", "public_scores",
    "client_weight", "record_release", "record_epsilon", "add_blocks", "open_upload", "open_reply",
)  # fmt: skip
"""Members by which a role states or promises something. Other members have everyday names, such as a metric's `score`,
which are free in the roles that lack them."""


@functools.cache
def members(role: type) -> dict[str, Any]:
    """The public names of a role, with what the role itself has there."""
    found: dict[str, Any] = {}
    for base in reversed(role.__mro__):
        if base is object:
            continue
        for name in (*vars(base).get("__annotations__", {}), *vars(base)):
            if not name.startswith("_"):
                found[name] = inspect.getattr_static(base, name, None)
    return found


@functools.cache
def roles_of(cls: type) -> list[type]:
    """The roles that a class serves: those classes of this module that it inherits from."""
    return [base for base in cls.__mro__ if base.__module__ == __name__]


def misspelt(cls: type) -> Iterable[str]:
    """What is wrong with the public names of a component class, as half sentences.

    Names of its bases count as its own, whether these are components or plain classes: nobody else looks at those.
    """
    known: dict[str, Any] = {}
    for role in reversed(roles_of(cls)):
        known |= members(role)
    seen: set[str] = set()
    for base in cls.__mro__:
        if base.__module__ == __name__ or base is object:
            continue
        own = {name for name in (*vars(base), *vars(base).get("__annotations__", {})) if not name.startswith("_")}
        for name in sorted(own - seen):
            yield from _misused(cls, base, name, known)
        seen |= own


def _misused(cls: type, base: type, name: str, known: dict[str, Any]) -> Iterable[str]:
    """What is wrong with one public name that a class has from `base`, which may be the class itself."""
    called = name if base is cls else f"{name} of {base.__qualname__}"
    if name in known:
        first = next(each for each in cls.__mro__ if name in vars(each) or each is base)
        if first is not base:  # a role's own member comes first: what is written here is never asked
            remedy = f"write {base.__name__} before it in class {cls.__name__}"
            yield f"{called} is hidden by that of {first.__name__}; {remedy}"
            return
        yield from _wrong_shape(vars(base).get(name), name, called, known[name])
        return
    close = next(iter(difflib.get_close_matches(name, {**known, **_MEANT}, n=1, cutoff=_CLOSE)), name)
    meant = _MEANT.get(close, close)
    if meant in known:
        of = " and ".join(role.__name__ for role in roles_of(cls)[:-1]) or "component"
        yield f"{called} is no member of a {of}; did you mean {meant}?"
    elif name in _PROMISES and len(roles_of(cls)) > 1:  # a base without a role may be meant for any
        others = [role.__name__ for role in dict.fromkeys(ROLES.values()) if name in members(role)]
        others = others or [role.__name__ for role in (Sealer, RecordTrainer) if name in members(role)]
        yield (
            f"{called} is a member of a {' and a '.join(others)}, which {cls.__name__} does not inherit from: nobody "
            f"asks for it; write class {cls.__name__}(fedplug.{others[0]}), or another name"
        )


def _wrong_shape(found: Any, name: str, called: str, expected: Any) -> Iterable[str]:
    """A method with other arguments than the role's, or a record of another type."""
    if inspect.isfunction(expected):
        if not inspect.isfunction(found):
            yield f"{called} must be a method; did you mean def {name}{_shown(expected)}?"
            return
        wanted, given = list(inspect.signature(expected).parameters), list(inspect.signature(found).parameters)
        rest = list(inspect.signature(found).parameters.values())[len(wanted):]
        if given[: len(wanted)] != wanted or any(p.default is p.empty for p in rest):
            yield f"{called}({', '.join(given)}) has other arguments; did you mean {name}({', '.join(wanted)})?"
    elif name in RECORDS and found is not None and not isinstance(found, property | RECORDS[name]):
        yield f"{called} must be a {RECORDS[name].__name__}, not {type(found).__name__}"


def record_problems(component: Component) -> Iterable[str]:
    """What a built component declares that is not of its type, or fails, as half sentences."""
    known = {name for role in roles_of(type(component)) for name in members(role)}
    for name, kind in {**RECORDS, "site": str}.items():
        if name not in known:
            continue
        try:
            found = getattr(component, name)
        except Exception as error:
            yield f"fails to say its {name}: {cause_of(error)}"
            continue
        if name == "site" and found not in get_args(Site):
            yield f"has the site {found!r:.60}; it must be {', '.join(get_args(Site)[:-1])} or {get_args(Site)[-1]}"
        elif not isinstance(found, kind) and not (name == "reads" and found is None):
            yield f"has {found!r:.60} for its {name}; it must be a {kind.__name__}(...)"


def _shown(method: Callable[..., Any]) -> str:
    return f"({', '.join(inspect.signature(method).parameters)})"


def named(method: Callable[..., Any]) -> tuple[Any, str]:
    """The component that a bound method belongs to, or None, and the method's name."""
    return getattr(method, "__self__", None), getattr(method, "__name__", str(method))


def site_of(method: Any) -> str | None:
    """The party at which a method is marked to run; None where it is not marked."""
    return getattr(method, "__fedplug_site__", None)


def remote_method(component: Any, name: str, site: str) -> Callable[..., Any] | None:
    """The method that a message names, if the component has it and has marked it for that site."""
    method = getattr(component, name, None)
    return method if site_of(method) == site else None


_SAID_IN = {
    "protect": "effects", "aggregate": "sums", "postprocess": "opens", "train": "record_release",
    "score_parameters": "public_scores",
}  # fmt: skip
"""Which member states what a method does."""


def stale_statements(cls: type) -> Iterable[str]:
    """Methods that a class overrides while it inherits what another class said of its own, as half sentences."""
    for method, statement in _SAID_IN.items():
        says = _home(cls, statement)
        if says is None or _home(says, method) in (None, _home(cls, method)):
            continue
        yield (
            f"overrides {method} of {says.__name__} and inherits its {statement}, which says what that one does; "
            f"define {statement} as well, or write {statement} = {says.__name__}.{statement} if all of it still holds"
        )


def _home(cls: type, name: str) -> type | None:
    """The class that defines a member; None where none below the roles does, or leaves it open."""
    mine = (base for base in cls.__mro__ if base.__module__ != __name__)
    found = next((base for base in mine if name in vars(base)), None)
    return None if found is None or name in getattr(found, "__abstractmethods__", ()) else found


def undecided(cls: type) -> list[tuple[type, str]]:
    """Members that a role leaves open and that a class does not give, with the role; methods with their arguments."""
    found = {}
    for role in reversed(roles_of(cls)):
        for name, expected in vars(role).items():
            if getattr(inspect.getattr_static(cls, name, None), "__isabstractmethod__", False):
                shown = _shown(expected).replace("self, ", "") if inspect.isfunction(expected) else ""
                found[name] = role, f"{name}{shown}"
    return list(found.values())


__all__ = [
    "ROLES", "Accountant", "Aggregator", "Attack", "Component", "DataSource", "Extension", "Finds", "Groups",
    "Measures", "Metric", "ModelSource", "Negotiation", "Opener", "Partition", "Plans", "Protector", "Reads",
    "RecordTrainer", "Scorer", "Scoring", "Sealer", "Trainer", "Wants", "members", "misspelt", "named",
    "record_problems", "remote_method", "roles_of", "site_of", "stale_statements", "undecided",
]  # fmt: skip
