"""What roles declare of themselves: frozen records, one a fact that the core asks for by type."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from fedplug.api.checked import Checked
from fedplug.api.operations import Party
from fedplug.api.record import Record, Text

Site = Literal["client", "server", "key_server"]
"""A party at which methods of components run."""


class Reveals(Checked, Record):
    """Something that follows from clients' data and is visible to somebody beside the protected values.

    Attributes:
        what: for instance `mask`, `vote histogram`, `num_examples`.
        to: who sees it, in the words of the ledger's views.
        covered_by: what pays for it: `epsilon` (a noise in the ledger, such as the negotiation's own), or `nothing to
            pay` where it does not follow from anybody's data, with the note saying why; None: nothing does.
        asked: names of the methods, of clients or of the key server, whose replies carry it to the server. A reply
            that no statement names makes the guarantee of whoever reads it `none`.
        voids: True where it gives so much away that no epsilon says what is lost: the guarantee of those who see it is
            `none`. The rule: what names the classes of a client's data, without noise, does. That is class counts, and
            scores, votes or chosen positions of single scalars that belong to one client and follow from its data.
        note: one sentence.
    """

    whole: ClassVar[bool] = True
    what: Text
    to: tuple[Party, ...]
    _: dataclasses.KW_ONLY
    covered_by: Literal["epsilon", "nothing to pay"] | None = None
    asked: tuple[Text, ...] = ()
    voids: bool = False
    note: Text = ""


class Learns(Checked, kw_only=True):
    """How an update follows from data: what the trainer says of itself, for whoever reads updates.

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
    """What a data set is known to hold before it is loaded: `fedplug check` asks the model whether it takes that.

    Attributes:
        shape: of one example, (C, H, W); None where only the files tell.
        num_classes: how many classes a model of it tells apart; None where only the files tell.
        per: whether a model gives one class an `example`, or one a `pixel` (segmentation).
    """

    shape: tuple[int, ...] | None = None
    num_classes: int | None = None
    per: Literal["example", "pixel"] = "example"

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
    """What a scorer's scores are.

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


class Wants(Checked, kw_only=True):
    """What an aggregator needs to work.

    Attributes:
        num_examples: clients tell how many examples they have, and weights follow from it.
        positions: clients send positions with every zone that is not encrypted, so the server sees the masks.
        model: `ctx.party.model` and `ctx.party.vector` at the server.
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
        terms: the same as the verdict has it, with trust and adjacency: `single records, local, add-remove`.
        trust: who adds the noise, and where.
        covers: for what of a run it holds, and for what not.
    """

    level: str
    release: type[Any]
    unit: str
    terms: str
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
    """What an attack looks for, and how it is judged.

    Attributes:
        needs: of a view; a `fedplug_attacks.Needs`.
        what: `images`, `labels`, `members`.
        headline: (number, `high` or `low`): what ranks its forms.
        success: (number, `<=` or `>=`, threshold): what counts as a success.
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


class GroundTruth(Checked, kw_only=True):
    """What is true of the clients and no party knows: what groups of them are compared with after a run.

    Attributes:
        classes: names of the classes.
        examples: by client, how many training examples it has of each class.
        categories: the true category of each client, where the partition has some.
    """

    classes: Sequence[str]
    examples: Mapping[int, Sequence[int]]
    categories: Sequence[int] | None = None


RECORDS: dict[str, type] = {
    "scoring": Scoring, "plans": Plans, "reads": Reads, "wants": Wants, "finds": Finds, "measures": Measures,
    "account": Account, "declares": Declares,
}  # fmt: skip
"""What a role declares, by the member that holds it."""
