"""What a link says it does to a zone's values: a small vocabulary of typed facts.

Each link of a zone's chain (`fedplug.api.links`) states its effects as a function of what is `Known` before it. Order
rules, sensitivities, the releases of the ledger, credit for the noise of other clients, what an encryption can hold and
what an attacker may know all follow from folding these statements over the links. A link that states nothing voids
every bound and every credit: what is not stated is not promised.

Norms and scales are in units of the update, before the client's weight, which lies in (0, 1] and shortens only.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, get_args

from fedplug.api.checked import Checked, at_least
from fedplug.api.errors import FedplugError
from fedplug.api.record import Number, Record, Text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Party = Literal["aggregator", "key_holder", "client", "client_and_aggregator", "released_model"]
"""Who sees something, in the words of the ledger's views."""
GAUSSIAN = ("gaussian", "discrete_gaussian")
OF_EPSILON = ("laplace", "pure")
"""The other mechanisms whose cost is known here: each has an epsilon without a delta."""


class Misplaced(FedplugError):
    """A link cannot stand where it stands; the message says why and what to do. Raised by `effects`."""


class Curve(Protocol):
    """The cost of a mechanism of a plugin's own, as the ledger composes it."""

    def rdp(self, orders: NDArray[np.float64], multiplier: float) -> NDArray[np.float64]:
        """Renyi DP of one release at several orders > 1.

        Args:
            orders: the Renyi orders.
            multiplier: scale of the noise over the sensitivity; half of it under replace-one adjacency.
        """
        ...


class Bound(Checked):
    """From here on, one client's values are at most this long, whatever they were (a clip).

    Attributes:
        norm: the largest norm; one for each layer of the model where it is `per="layer"`.
        order: 2 or 1, of the norm; infinity for magnitudes.
        per: of the whole zone (`update`), of each layer's values in it, or of each scalar.
    """

    norm: float | tuple[float, ...] = at_least(0)
    order: float = at_least(1, default=2)
    per: Literal["update", "layer", "scalar"] = "update"


class Scales(Checked):
    """Values are multiplied by a public number."""

    factor: float = at_least(-math.inf)


class Shifts(Checked):
    """To every value a public number is added, so that two clients' values lie apart as they did."""


class Rounding(Checked):
    """Every value goes to the nearest multiple of a step.

    It moves by at most step/2, and at most doubles, since what is shorter than step/2 becomes 0. So a norm over n
    scalars grows by at most step/2 * n^(1/order), and at most doubles.
    """

    step: float = at_least(0)


class Changes(Checked):
    """Values change, as a function of the block, of public facts and (before any noise) of the client alone.

    Attributes:
        norms: `kept` where no norm can grow; `lost` where nothing is known of them afterwards.
        why: where they are lost, the reason and what to do, for whoever needs a norm afterwards.
    """

    norms: Literal["kept", "lost"] = "lost"
    why: str = ""


class CoversSupport(Checked):
    """The block is widened by zeros over what the client keeps to itself, so that its positions no longer show that."""


class Uncredited(Checked):
    """The noise of other clients hides less of one of them than its size says; `why` is a sentence."""

    why: str


class NoiseKind(Checked, Record):
    """What a noise is: of what a link states, of what the ledger enters, and in its report.

    Attributes:
        mechanism: `gaussian`, `discrete_gaussian`, `laplace`; `pure` (any other with an epsilon and no delta, which
            replacing a client by another instead of zero at most doubles); or a name of the plugin's own, with a curve.
        trust: `local` (added before upload), `central` (added to the sum by a trusted party), or `distributed` (local,
            but calibrated for the sum).
        source: `secure`, `exact`, or `reproducible` (from the recipe's seed, which protects nobody).
        literal: True where the paper's own formula is used although it does not give what it claims.
        note: one sentence for the ledger; may be empty.
    """

    mechanism: Text
    _: dataclasses.KW_ONLY
    trust: Literal["local", "central", "distributed"] = "local"
    source: Literal["secure", "exact", "reproducible"] = "secure"
    literal: bool = False
    note: Text = ""


class NoiseTerms(NoiseKind, kw_only=True):
    """The same with what its epsilon depends on beside its size.

    Attributes:
        slack: the share of delta that the mechanism itself takes for all rounds of the recipe: delta grows by (1 +
            e^epsilon) times this, and by as much again where rounds that are repeated make more releases.
        calibrated_delta: the delta that an epsilon among the options is meant for; None without one.
        scored: True where the scale follows from scores of a model, so that it tells of whatever moved that model.
    """

    slack: Number = at_least(0, default=0.0)
    calibrated_delta: Number | None = None
    scored: bool = False


class Noise(NoiseTerms, kw_only=True):
    """Random noise, independent for each scalar, or another mechanism with a known cost.

    Attributes:
        scale: standard deviation (of Laplace noise: its b), one number or one for each layer; None where it differs
            between clients or is unknown.
        multiplier: scale over sensitivity; of a pure mechanism 1 / epsilon. None: the scale over the bound that is
            known here. To be given where the scale is not. Of Gaussian and Laplace noise whose scale is stated, no more
            is believed than that scale over that bound.
        grid: results are multiples of it; 0: of nothing coarser than float32.
        curve: the cost of a mechanism that the core does not know.
    """

    scale: float | tuple[float, ...] | None = at_least(0, default=None)
    multiplier: float | None = at_least(0, default=None, nan=True)
    grid: float = at_least(0, default=0.0)
    curve: Curve | None = None


class Seal(Checked, kw_only=True):
    """The client's weight is multiplied in, and values become ciphertexts that can be added and not read.

    Attributes:
        scheme: its parameters in a line, for the record.
        opened_by: `clients` or `key_server`, who hold a key; `shares`, which many clients would have to put together.
        answers: whom the key server tells what it opened: the aggregation `server`, or the `clients` alone.
        range: largest magnitude of a weighted value; larger ones saturate. Infinity: none does; NaN: unknown.
        step: distance of neighbouring values; values are rounded to it. 0: none is; NaN: unknown.
        position_block: how many consecutive global positions share a ciphertext where clients have masks of their own;
            0 where they must share the mask.
    """

    scheme: str
    opened_by: Literal["clients", "key_server", "shares"]
    range: float = at_least(0, nan=True)
    step: float = at_least(0, nan=True)
    answers: Literal["server", "clients"] = "server"
    position_block: int = 0


class Scramble(Checked, kw_only=True):
    """Values become bytes that parties with a key turn back; no encryption whose sums stay closed to a server.

    Attributes:
        hides: `values` from everybody else; `nothing proved` where no argument says so.
        range, step: as in `Seal`.
    """

    hides: Literal["values", "nothing proved"]
    range: float = at_least(0, nan=True)
    step: float = at_least(0, nan=True)


class Opens(Checked):
    """Undoes the last seal or scramble of the zone: the sum is plain where this link runs."""


class Adds(Checked, kw_only=True):
    """The weighted sum of the clients' blocks, weights in (0, 1] that do not follow from the blocks themselves.

    What the sum is divided by gets no noise, so it follows from those weights too.

    Attributes:
        divided_by: each position by the weight of the clients that `sent` it, or of `all` whose blocks are added.
        rate: public factor on the mean; divisors are so many times smaller.
    """

    divided_by: Literal["sent", "all"] = "sent"
    rate: float = at_least(0, default=1.0)


Effect = (
    Bound | Scales | Shifts | Rounding | Changes | CoversSupport | Uncredited | Noise | Seal | Scramble | Opens | Adds
)
Effects = tuple[Effect, ...]
"""In the order in which they happen. Empty: the values leave as they came."""


class Reveals(Checked, Record):
    """Something that follows from clients' data and is visible to somebody beside the protected values.

    Attributes:
        what: for instance `mask`, `vote histogram`, `num_examples`.
        to: who sees it, in the words of the ledger's views.
        covered_by: what pays for it: `epsilon` (a noise in the ledger, such as the negotiation's own), or `nothing to
            pay` where it does not follow from anybody's data, with the note saying why; None: nothing does.
        asked: names of the methods, of clients or of the key server, whose replies carry it to the server. A reply
            that no statement names makes the guarantee of whoever reads it `none`.
        voids: True where it gives so much away that no epsilon can stand beside it: the guarantee of those who see it
            is `none`.
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


def as_effects(stated: Any, link: str) -> Effects:
    """What a component gave as its effects, checked.

    Raises:
        Misplaced: it is not a tuple of effects.
    """
    kinds = get_args(Effect)
    if not isinstance(stated, tuple) or not all(isinstance(effect, kinds) for effect in stated):
        shown = ", ".join(kind.__name__ for kind in kinds)
        raise Misplaced(f"{link} states {stated!r:.80} as its effects; give a tuple of {shown}; empty: no change")
    return stated
