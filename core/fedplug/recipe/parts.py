"""The parts of a recipe: its sections, the keys that are not components, and the places that name a component."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BaseModel, Field, model_validator

from fedplug.api.blocks import BASE_ZONES
from fedplug.api.component import Options
from fedplug.api.roles import Declares
from fedplug.api.streams import stream
from fedplug.recipe.catalog import Own
from fedplug.recipe.source import KeyPath


class Form(NamedTuple):
    """How a section is written.

    Attributes:
        group: the entry-point group that it draws from.
        holds: one component, a list of them, or a list for each zone.
        required: whether no recipe can do without it.
    """

    group: str
    holds: Literal["one", "list", "zones"] = "one"
    required: bool = False


SECTIONS: dict[str, Form] = {
    "data": Form("dataset", required=True),
    "public": Form("dataset"),
    "task": Form("task"),
    "model": Form("model", required=True),
    "train": Form("trainer", required=True),
    "fine_tune": Form("trainer"),
    "score_parameters": Form("score_parameters", "list"),
    "groups": Form("groups"),
    "negotiate_mask": Form("negotiate_mask", required=True),
    "protect": Form("protect", "zones", required=True),
    "aggregate": Form("aggregate", required=True),
    "postprocess": Form("postprocess", "zones"),
    "accountant": Form("accountant"),
    "extensions": Form("extension", "list"),
}
"""The sections that every recipe can have; plugins register further ones."""

_Finite = Annotated[float, Field(allow_inf_nan=False)]
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Length = Annotated[int, Field(ge=1, strict=True)]


class Agreed(Options):
    """The common facts about the data of all sites. A site with different data cannot join."""

    shape: tuple[_Length, ...] = Field(min_length=1, description="of one example: channels, height, width")
    classes: tuple[str, ...] = Field(min_length=1, description="their names, in the order of the labels")
    mean: tuple[_Finite, ...] = Field(
        description="subtracted from inputs in [0, 1], one a channel; a public constant; none: inputs stay as they are"
    )
    std: tuple[_Positive, ...] = Field(description="inputs are then divided by it, one a channel; public as well")
    kinds: tuple[str, ...] = Field((), description="names of the labels, where classes are those of pixels")
    regions: tuple[str, ...] = Field((), description="names of the privacy-sensitive fields that are marked")

    @property
    def holds(self) -> Declares:
        """The same as a data set declares it."""
        per: Literal["example", "pixel"] = "pixel" if self.kinds and len(self.shape) > 2 else "example"
        return Declares(shape=self.shape, num_classes=len(self.classes), per=per)

    @model_validator(mode="after")
    def _one_a_channel(self) -> Self:
        for name in ("mean", "std"):
            if (given := getattr(self, name)) and len(given) != self.shape[0]:
                raise ValueError(
                    f"agreed.{name} has {len(given)} numbers, but examples of shape={list(self.shape)} have "
                    f"{self.shape[0]} channels; write one a channel"
                )
        return self


class Split(Options):
    """The keys of `data` that are the recipe's own, whatever the data set."""

    clients: int = Field(ge=1, le=1_000_000, strict=True, description="among how many clients it is split")
    public: int = Field(
        0, ge=0, strict=True,
        description="how many training examples are set aside as public ones; others that equal one are left out",
    )  # fmt: skip
    at: Literal["here", "sites"] = Field(
        "here", description="here: one data set, split among the clients; sites: each client has what lies at its site"
    )
    agreed: Agreed | None = Field(None, description="what the data of all sites has in common; null where at is here")

    @model_validator(mode="after")
    def _fits_where_it_lies(self) -> Self:
        if self.at == "here" and self.agreed is not None:
            raise ValueError("agreed is for data at sites; write at: sites, or leave agreed out")
        if self.at == "sites" and self.agreed is None:
            raise ValueError(
                "at: sites needs 'agreed', what the data of all sites has in common, such as "
                "agreed: {shape: [1, 28, 28], classes: [normal, pneumonia], mean: [0.5], std: [0.25]}"
            )
        if self.at == "sites" and self.public:
            raise ValueError(
                f"public={self.public}, but nobody has the examples of all sites, to set some aside; name a data set "
                "that everybody has: a section public: {use: ...}"
            )
        return self


_UNSAID = {("resting", "away"), ("separation", 1)}
"""Keys of sampling that recipes did not always have, with what they say where they are left out."""
OF_DATA = (*Split.model_fields, "partition")
"""The keys of `data` that stay when another data set takes its place."""


class Sampling(Options):
    """Which clients take part in a round."""

    scheme: Literal["poisson", "fixed", "cyclic"] = Field(
        "poisson",
        description="poisson: each client by its own coin; fixed: always the same number; cyclic: in turn, each client "
        "once in 1 / rate rounds, in an order that follows from the seed",
    )
    rate: float = Field(gt=0, le=1, description="share of the clients that take part in a round")
    source: Literal["secure", "reproducible"] = Field(
        "secure", description="secure: drawn from the system's randomness; reproducible: follows from the seed"
    )
    separation: int = Field(
        1, ge=1, strict=True,
        description="poisson: the clients are split into so many cohorts, which take turns: a coin falls only in the "
        "rounds of the client's cohort, with probability rate x separation",
    )  # fmt: skip
    resting: Literal["away", "noise"] = Field(
        "away", json_schema_extra={"formerly": "rest"},
        description="what clients do in the rounds of others: away: nothing; noise (cyclic): they send zeros with the "
        "noise that all clients share out among them",
    )  # fmt: skip

    @model_validator(mode="after")
    def _in_turn(self) -> Self:
        if self.resting == "noise" and self.scheme != "cyclic":
            raise ValueError(f"resting=noise is for clients that take part in turn, not {self.scheme}; leave it out")
        if self.separation > 1 and (self.scheme != "poisson" or self.rate * self.separation > 1 + 1e-9):
            what = f"separation={self.separation}, scheme={self.scheme}, rate={self.rate:g}"
            raise ValueError(f"{what}: separation is for poisson, with a rate of at most 1 / separation; change one")
        return self

    def to_plain(self) -> dict[str, Any]:
        """Plain data; without `resting` and `separation` where they are as in recipes from before there were any."""
        plain = self.model_dump(mode="json")
        return {key: value for key, value in plain.items() if (key, value) not in _UNSAID}

    @property
    def coin(self) -> float:
        """With what probability the coin of a client falls in a round of its cohort, under poisson."""
        return min(1.0, self.rate * self.separation)

    @property
    def turns(self) -> int:
        """In how many rounds each client takes part once at most where they do so in turn; 1 where nothing keeps them
        apart.
        """
        return max(1, math.floor(1 / self.rate + 1e-9)) if self.scheme == "cyclic" else self.separation

    def cohort(self, seed: int, client_ids: Sequence[int], round: int) -> list[int]:
        """The clients whose turn it is in a 0-based round, ascending, where they take part in turn.

        Each is in one of `turns` cohorts, whose sizes differ by at most one, and these come one after the other: a
        client's rounds lie exactly so many apart.
        """
        order = stream(seed, "turns").permutation(len(client_ids))
        return sorted(client_ids[place] for place in order[round % self.turns :: self.turns])


class General(Options):
    """The keys of a recipe that are not components."""

    name: str = Field(max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", description="names the run folder")
    description: str = Field("", description="one sentence for people; not part of the digest")
    seed: int = Field(ge=0, lt=2**64, description="all reproducible randomness follows from it")
    rounds: int = Field(ge=1, le=1_000_000, description="number of rounds, T")
    min_clients: int = Field(2, ge=1, description="the fewest updates that a sum may hold")
    sampling: Sampling | None = Field(None, description="null: every client takes part in every round")
    buffers: Literal["local", "mean"] = Field(
        "local", description="batch-norm statistics: local stays at the client, mean is averaged in the clear"
    )
    delta: float = Field(1e-5, gt=0, lt=1, description="failure probability for which the ledger states epsilon")
    clusters: dict[str, tuple[Annotated[int, Field(ge=0, strict=True)], ...]] = Field(
        default_factory=dict,
        description="names of clusters, and the clients of each: figures are stated for each cluster, and training "
        "stays as it is",
    )


def plain_options(options: BaseModel) -> dict[str, Any]:
    """Options as plain data; sets, which have another order in every process, are sorted."""
    plain = options.model_dump(mode="json")
    return plain | {key: sorted(plain[key]) for key, value in options if isinstance(value, set | frozenset)}


@dataclasses.dataclass(frozen=True)
class Use:
    """One place of a recipe that names a component.

    Attributes:
        use: the component, `<plugin>.<thing>`.
        name: the instance's own name, unique in the recipe.
        group: the entry-point group that this place draws from.
        options: its validated options; None in a draft, where they are wrong.
        is_reference: True where this place refers to a component that another place defines.
        path: its place in the recipe, for messages.
        place: the same for people, `file:line:column`; of a recipe that is no file, its key.
        own: the file that it is in, where that is one of the user's own.
        files: those that its options name.
        inner: the components within it, by key.
        made_of: its class; None in a draft, where it cannot be had.
        distribution: the installed package that offers it; empty of a file of the user's own.
    """

    use: str
    name: str
    group: str
    options: Any
    is_reference: bool = False
    path: KeyPath = dataclasses.field(default=(), compare=False, repr=False)
    place: str = dataclasses.field(default="", compare=False, repr=False, kw_only=True)
    own: Own | None = None
    files: tuple[Own, ...] = ()
    inner: tuple[tuple[str, Use], ...] = ()
    made_of: type | None = dataclasses.field(default=None, compare=False, repr=False)
    distribution: str = dataclasses.field(default="", compare=False, repr=False, kw_only=True)

    @property
    def section(self) -> str:
        """The key of the recipe it is under; `partition` for that of `data`."""
        return "partition" if self.path == ("data", "partition") else str(self.path[0])

    @property
    def nested(self) -> Iterator[Use]:
        """Itself, and what is within it, at any depth."""
        yield self
        for _, use in self.inner:
            yield from use.nested

    def to_plain(self) -> Any:
        """Plain data that reads back as this place."""
        if self.is_reference:
            return self.name
        held = {"sha256": self.own.sha256} if self.own else {}
        within = {key: use.to_plain() for key, use in self.inner}
        return {"use": self.use, "name": self.name, **held, **plain_options(self.options), **within}


@dataclasses.dataclass(frozen=True)
class DataUse(Use):
    """The data set, among how many clients it is split, and how; `public` training examples are set aside first.

    With data at sites nothing is split or set aside: `partition` is None, and `agreed` is not.
    """

    clients: int = 1
    partition: Use | None = None
    public: int = 0
    at: Literal["here", "sites"] = "here"
    agreed: Agreed | None = None

    def to_plain(self) -> Any:
        plain = super().to_plain() | {"clients": self.clients}
        if self.agreed is not None:
            return plain | {"at": self.at, "agreed": plain_options(self.agreed)}
        return plain | {"public": self.public, "partition": self.partition and self.partition.to_plain()}


def zone_order(names: Iterable[str]) -> tuple[str, ...]:
    """The base zones, then the other names, sorted."""
    return (*BASE_ZONES, *sorted({*names} - {*BASE_ZONES}))


def leaves(value: Any) -> Iterator[Any]:
    """The components of a section in order, whether it is one, a list of them, or a list for each zone."""
    if isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from leaves(inner)
    elif value is not None:
        yield value


def mapped(value: Any, change: Callable[[Any], Any], many: type = tuple) -> Any:
    """A section with something else in place of each component; what is not there stays None. Lists become `many`."""
    if isinstance(value, Mapping):
        return {key: mapped(inner, change, many) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return many(mapped(inner, change, many) for inner in value)
    return None if value is None else change(value)
