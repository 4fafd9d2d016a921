"""Operations on a zone's values: a small vocabulary, which the core executes and prices.

A hook of a link (`protect`, `aggregate`, `postprocess`) or a ballot gives a tuple of operations, as a function of what
is `Known` before it and of the round. The core executes that tuple (`fedplug.mechanisms`), and the same tuple is what
the check of a recipe folds, the ledger prices, the plan of a run prints and the views of attacks read. What a plugin
computes itself is a function in it (`Map`, `Post`, `Combine`), which earns nothing.

Norms and standard deviations are in units of the update, before the client's weight, which lies in (0, 1] and shortens
only.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, cast, get_args

from fedplug.api.errors import FedplugError
from fedplug.api.norms import Bound
from fedplug.api.records import (
    Checked,
    Count,
    Number,
    Record,
    Text,
    at_least,
    named_clients,
    positive,
    require_kind,
    take_numbers,
    take_others,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedplug.api.blocks import Block, Layout
    from fedplug.api.facts import Facts
    from fedplug.api.parties import Server
    from fedplug.api.words import Numbers

    Vector = NDArray[np.float32]
    Handed = Callable[[Block, Any, Facts], Block | Vector]  # of a client, a server or a key server, as the hook runs
    Looking = Callable[[Block, Any, Facts], None]
    Blind = Callable[[Vector, "Public"], Vector]
    OfFacts = Callable[["Public"], Vector]
    Sampler = Callable[[Vector, "Public", np.random.Generator], Vector]
    Shares = Mapping[int, tuple[NDArray[np.float64], NDArray[np.float64]]]
    OfLayers = Callable[[Mapping[int, Block], Server, Facts], Shares]
    OfScores = Callable[[NDArray[np.floating], NDArray[np.int64]], Sequence[float] | NDArray[np.float64]]
    OfCount = Callable[[int], float]
    OfBlocks = Callable[[dict[int, Block], dict[int, float], Facts], Block]
else:  # a record looks its types up, and needs no more of these
    Numbers = Any
    Handed = Looking = Blind = OfFacts = Sampler = OfLayers = OfBlocks = OfScores = OfCount = Callable

Cover = Literal["epsilon", "nothing to pay"]
"""What pays for something that is seen."""
Party = Literal["server", "key_holder", "client", "client_and_server", "released_model"]
"""Who sees something, in the words of the ledger's views."""
GAUSSIAN = ("gaussian", "discrete_gaussian")
IntegerNoise = Literal["discrete_gaussian_sum", "skellam_sum"]
INTEGER: tuple[IntegerNoise, ...] = ("discrete_gaussian_sum", "skellam_sum")
"""Noise in whole steps of a coarse grid, for sums of several clients: see `integers` of the ledger."""
OF_EPSILON = ("laplace", "pure")
"""The other mechanisms whose cost is known here: each has an epsilon without a delta."""
Source = Literal["secure", "exact", "reproducible"]
"""Where noise comes from: a cryptographic stream of the system, the same with an exact sampler of discrete Gaussian
noise, or the recipe's seed, which protects nobody."""


class Misplaced(FedplugError):
    """The place of a link is wrong; the message says why and what to do. Raised by hooks of links."""


class Curve(Protocol):
    """The cost of a mechanism of a plugin's own, as the ledger composes it."""

    def rdp(self, orders: NDArray[np.float64], multiplier: float) -> NDArray[np.float64]:
        """Renyi DP of one release at several orders > 1.

        Args:
            orders: the Renyi orders.
            multiplier: scale of the noise over the sensitivity; half of it under replace-one adjacency.
        """
        ...


@dataclasses.dataclass(frozen=True, eq=False)
class Public:
    """The second argument of a function of values: facts that everybody may know, and a memory of such values.

    Attributes:
        zone: of the values.
        round, rounds: 0-based number of the round, and how many are planned.
        layout: of the model.
        positions: uint32 (n,), where the values lie in the model; None where this party does not know.
        start: float32 (n,), the global model of the round at these positions; None where this party does not know it.
        memory: plain data that earlier calls at this party have kept here, and no other function can reach.
        stream: reproducible random numbers, which hide nothing.
    """

    zone: str
    round: int
    rounds: int
    layout: Layout
    positions: NDArray[np.uint32] | None
    start: NDArray[np.float32] | None
    memory: dict[str, Any]
    stream: np.random.Generator


# -- what the core does itself ---------------------------------------------------------------------------------------


class Clip(Checked):
    """Scales values down to a norm where they exceed it; within it they pass unchanged, bit for bit.

    v * min(1, norm / ||v||), with one part in 2^23 less, so that rounding to float32 does not lift the norm again;
    `per="scalar"` cuts each value off at the norm.

    Attributes:
        norm: the largest norm. One for each layer of the model where it is `per="layer"`, or public norms by client.
        order, per: as of `Bound`.
        others: the norm of all clients that `norm` does not name, where it names some.
    """

    norm: float | tuple[float, ...] | Mapping[int, float] = at_least(0)
    order: float = at_least(1, default=2)
    per: Literal["update", "layer", "scalar"] = "update"
    _: dataclasses.KW_ONLY
    others: float | None = at_least(0, default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        take_others(self, "norm", "Clip")

    @property
    def clients(self) -> frozenset[int]:
        """The clients that it names."""
        return named_clients(self.norm)

    def of(self, client_id: int | None) -> Clip:
        """The clip of one client; of None, that of all whom it does not name."""
        return dataclasses.replace(self, norm=_share(self.norm, self.others, client_id), others=None)

    @property
    def bound(self) -> Bound:
        """What holds of every client behind it."""
        return Bound(_most(self.norm, self.others), self.order, self.per)


class Scale(Checked):
    """Multiplies every value by a public number.

    Attributes:
        factor: the number; may be 0, or less.
    """

    factor: float = at_least(-math.inf)


class Shift(Checked):
    """Adds a public vector.

    Large numbers take the last bits of others with them, in each upload by itself: behind a function's vector the noise
    of other clients earns no credit, and no bound is left for noise to come. `Shift.model(factor)` adds a multiple of
    the global model, which keeps the credit.

    Attributes:
        by: gives it, float32 (n,), of the public facts; it is not handed the values. Or the multiple of the model.
    """

    by: OfFacts | float

    @classmethod
    def model(cls, factor: float) -> Self:
        """Adds this multiple, 1 or -1, of the global model that the round starts from, which everybody has."""
        if factor not in (1, -1):
            raise ValueError(f"Shift.model({factor!r}): it must be 1 or -1")
        return cls(float(factor))


class Round(Checked):
    """Takes every value to the nearest multiple of a step, or with `toward_zero` to the next one toward 0.

    A value moves by at most step/2, and at most doubles, since what is shorter than step/2 becomes 0. So a norm over n
    scalars grows by at most step/2 * n^(1/order), and at most doubles. Toward zero no norm grows.

    With `beta` rounding is random and keeps the mean: each value goes to one of the two multiples around it, to the
    upper one with the chance that its distance from the lower one gives, and all are drawn anew until their L2 norm is
    most what `norms.rounded` says (Kairouz, Liu & Steinke, ICML 2021). A draw fails with probability beta at most; the
    smaller beta, the larger the norm.

    Attributes:
        step: distance of neighbouring results, in units of the update.
        toward_zero: whether values go to the next multiple toward 0.
        beta: the chance of drawing again, in (0, 1); None: rounding is not random.
    """

    step: float = positive()
    toward_zero: bool = False
    beta: float | None = at_least(0, default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beta is not None and not 0 < self.beta < 1:
            raise ValueError(f"Round(beta={self.beta}): it must be above 0 and below 1, or None, which draws nothing")
        if self.beta is not None and self.toward_zero:
            raise ValueError(f"Round(beta={self.beta}, toward_zero=True): the first rounds at random; give one of them")


class Rotate(Checked):
    """Turns the vector of all values, so that each of the results has a like share of its length; or turns it `back`.

    Walsh-Hadamard transforms with random signs from a public stream of the round (see
    `fedplug.mechanisms.rotation`). Lengths stay as they are, in L2 alone, and sums of turned vectors turn back to sums.
    No norm grows, float32 included: results are one part in 2^23 shorter.

    Attributes:
        back: whether a sum of vectors that the same component has turned is turned back.
    """

    back: bool = False


class Widen(Checked):
    """Puts zeros where the client keeps values to itself, so that the block's positions no longer show that.

    Noise has to follow, or the zeros would show it.
    """


class NoiseKind(Checked, Record):
    """The kind of a noise: in the statement of a link, in the ledger, and in its report.

    Attributes:
        mechanism: `gaussian`, `discrete_gaussian`, `laplace`, `pure` (any other with an epsilon and no delta, which
            replacing a client by another instead of zero at most doubles), or a plugin's own name, with a curve.
        trust: `local` (added before upload), `central` (added to the sum by a trusted party), or `distributed` (local,
            but calibrated for the sum).
        source: `secure`, `exact`, or `reproducible` (from the recipe's seed, which protects nobody).
        as_published: True where the paper's own formula is used although it does not give what it claims.
        note: one sentence for the ledger; may be empty.
    """

    mechanism: Text
    _: dataclasses.KW_ONLY
    trust: Literal["local", "central", "distributed"] = "local"
    source: Literal["secure", "exact", "reproducible"] = "secure"
    as_published: bool = False
    note: Text = ""


class Buffered(Record, frozen=True):
    """What noise takes back as a buffered linear Toeplitz matrix says (BLT, Dvijotham et al. 2024, Section 2).

    It takes back, of the noise of k rounds before, the sum over all buffers of omega theta^(k - 1), for `lags` rounds.
    The core keeps one array a buffer, in place of the noise of all rounds.

    Attributes:
        buffers: omega and theta of each.
        lags: how far it goes back; the rounds of the run less one.
    """

    buffers: tuple[tuple[Number, Number], ...]
    lags: Count

    def __len__(self) -> int:
        return self.lags

    def __iter__(self) -> Iterator[float]:
        return (sum(omega * theta**k for omega, theta in self.buffers) for k in range(self.lags))


class NoiseTerms(NoiseKind, kw_only=True):
    """The same with what its epsilon depends on in addition to its size.

    Attributes:
        slack: the share of delta that the mechanism itself takes for all rounds of the recipe: delta grows by (1 +
            e^epsilon) times this, and by as much again where rounds that are repeated make more releases.
        calibrated_delta: the delta that an epsilon among the options is meant for; None without one.
        scored: True where the scale follows from scores of a model, so that it tells of whatever moved that model.
        colluders: this many clients know their own noise and may collude, so that it does not count;
            whatever is said here, that of one client does not.
        takes_back: of noise that is correlated over rounds, how much of the noise of the round before it takes away
            again, of that before, and so on; none in the first. `Buffered` is short for as many numbers as rounds. None
            where the noise of each round is independent.
        spread: standard deviation of all the noise of this round over that of what is drawn anew.
    """

    slack: Number = at_least(0, default=0.0)
    calibrated_delta: Number | None = None
    scored: bool = False
    colluders: Count = at_least(0, default=0)
    takes_back: tuple[Number, ...] | Buffered | None = None
    spread: Number = at_least(1, default=1.0)


class Noise(NoiseTerms, kw_only=True):
    """Random noise, independent for each scalar, which the core draws from a separate stream; priced by the size that
    is used over the bound that is enforced before it. Without such a bound it has no price, and no guarantee follows.

    With `takes_back=(a_1, a_2, ...)` the noise n_t of round t is what is drawn anew, of `std`, less the sum of a_k
    n_(t-k): the core remembers the noise that it has added. Where z are independent and C is lower triangular, that is
    n = C^-1 z for a_k = C[t, t-k] / C[t, t] (matrix factorisation: Denisov et al., NeurIPS 2022). A party that has
    y_t = x_t + n_t of all rounds has y_t + sum of a_k y_(t-k), in which the fresh noise lies over x_t + sum of a_k
    x_(t-k), and nothing more. So a round costs each client the sum of 1 and |a_k| over the rounds in which it took
    part: the ledger goes by those, whatever was planned. Where clients add it (`trust="distributed"`), the noise of
    those counts that are in the sums of all rounds so far, and of nobody else.

    Written `Noise.gaussian(...)`, `Noise.laplace(...)`, or `Noise.own(...)` for a mechanism of a plugin's own. In
    `protect` noise is `local`, or `distributed` where it is enough for a sum alone; on a sum it is `central`.

    Attributes:
        std: standard deviation (of Laplace noise: its b): one number, one for each layer, or public numbers by client.
            None where each client works out its own by `size`.
        others: the standard deviation of all clients that `std` does not name, where it names some.
        size: gives a client's own standard deviation; see `by`.
        reads: what `size` is handed.
        scorer: whose scores; None: those of the recipe's first.
        at_least: of noise whose size a client works out, or that a plugin draws, the least multiplier, scale over
            sensitivity, of any client: the price. The party that executes it refuses noise that has less.
        grid: results are multiples of it, a power of two; None: the finest that float32 can hold.
        sample: of a plugin's own mechanism: gives the values anew, of the values, the public facts and a reproducible
            stream.
        curve: the cost of a mechanism that the core does not know.
        order: of the norm that bounds the values before a mechanism of a plugin's own.
        coarsest: of sizes by client, the largest grid of any; for the core to say.
    """

    std: float | tuple[float, ...] | Mapping[int, float] | None = at_least(0, default=None)
    others: float | None = at_least(0, default=None)
    size: OfScores | OfCount | None = None
    reads: Literal["scores", "num_examples"] | None = None
    scorer: str | None = None
    grid: float | None = at_least(0, default=None)
    sample: Sampler | None = None
    curve: Curve | None = None
    order: float = at_least(1, default=2)
    at_least: float | None = at_least(0, default=None)
    coarsest: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        take_others(self, "std", "Noise.gaussian")
        given = [name for name in ("std", "size", "sample") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"Noise({given[0]}=..., {given[1]}=...): each says how noise is drawn; give one of them")
        order = {**dict.fromkeys((*GAUSSIAN, *INTEGER), 2), "laplace": 1}.get(self.mechanism, self.order)
        if self.sample is None and self.order != order:
            what = f"Noise(mechanism={self.mechanism!r}, order={self.order:g})"
            raise ValueError(f"{what}: its price goes by the L{order:g} norm; write order={order:g}")
        if not all(map(math.isfinite, self.takes_back or ())):
            raise ValueError(f"Noise(takes_back={self.takes_back!r:.80}): it must be finite numbers")

    @property
    def clients(self) -> frozenset[int]:
        """The clients that it names."""
        return named_clients(self.std)

    def of(self, client_id: int | None) -> Noise:
        """The noise of one client; of None, that of all whom it does not name."""
        if not isinstance(self.std, Mapping):
            return self
        return dataclasses.replace(self, std=_share(self.std, self.others, client_id), others=None)

    @classmethod
    def gaussian(
        cls, std: float | tuple[float, ...] | Mapping[int, float], *, others: float | None = None,
        source: Source = "secure", grid: float | None = None, calibrated_delta: float | None = None,
        trust: Literal["local", "central", "distributed"] = "local", as_published: bool = False, note: str = "",
        colluders: int = 0,
        takes_back: tuple[float, ...] | Buffered | None = None, spread: float = 1.0,
    ) -> Self:  # fmt: skip
        """Gaussian noise; discrete where `source` is `exact`.

        Args:
            std: standard deviation: one number, one a layer, or public numbers by client.
            others: the standard deviation of all clients that `std` does not name, where it names some.
            source: where it comes from.
            grid: a power of two of which results are multiples; None: the finest that float32 can hold.
            calibrated_delta: the delta that an epsilon among the options is meant for.
            trust: `distributed` where it is enough for the sum of several clients alone, so that the zone has to be
                closed behind it; `central` in ballots whose noise the server adds. In `postprocess` all noise is.
            as_published: the paper's own formula, which does not give what it claims.
            note: one sentence for the ledger.
            colluders: clients whose noise does not count in a sum.
            takes_back, spread: of noise that is correlated over rounds; see the class.
        """
        require_kind("Noise.gaussian", "std", std, float, tuple, Mapping)
        if not std and isinstance(std, Mapping) and others is not None:
            std, others = others, None
        mechanism = "discrete_gaussian" if source == "exact" and std != 0 else "gaussian"
        return cls(
            mechanism=mechanism, std=std, others=others, source=source, grid=grid,
            trust=trust, calibrated_delta=calibrated_delta,
            as_published=as_published, note=note, colluders=colluders, takes_back=takes_back, spread=spread,
        )  # fmt: skip

    @classmethod
    def by(
        cls, size: OfScores | OfCount, *, reads: Literal["scores", "num_examples"], at_least: float,
        scorer: str | None = None, source: Source = "secure", calibrated_delta: float | None = None,
        as_published: bool = False, note: str = "",
    ) -> Self:  # fmt: skip
        """Gaussian noise whose size follows from a client's own scores, or from how many examples it has.

        Args:
            size: gives the standard deviation. With `reads="scores"` it is handed the scores, (L,) or (P,), and the
                numbers of the layers with values in the zone, and gives one number a layer of the model, infinite for
                layers without values; with `reads="num_examples"` it is handed that number, and gives one number.
            reads: what it is handed, and nothing else.
            at_least: the least multiplier of any client, which is the price of the release.
            scorer: whose scores; None: those of the recipe's first.
            source, calibrated_delta, as_published, note: as of `gaussian`.
        """
        require_kind("Noise.by", "size", size, Callable)
        require_kind("Noise.by", "at_least", at_least, float)
        mechanism = "discrete_gaussian" if source == "exact" else "gaussian"
        return cls(
            mechanism=mechanism, size=size, reads=reads, at_least=at_least, scorer=scorer, source=source,
            calibrated_delta=calibrated_delta, scored=reads == "scores", as_published=as_published, note=note,
        )  # fmt: skip

    @classmethod
    def integer(
        cls, mechanism: IntegerNoise, std: float, *, grid: float, source: Source = "secure",
        calibrated_delta: float | None = None, note: str = "", colluders: int = 0,
    ) -> Self:  # fmt: skip
        """Noise in whole steps of a grid, of which many clients add a share each: enough in their sum alone.

        Values have to lie on that grid before it: put `Round(grid, beta=...)` there. Whatever closes them must add up
        whole steps, all of the same weight.

        Args:
            mechanism: `skellam_sum`, the difference of two Poisson variables, whose sums are Skellam again; or
                `discrete_gaussian_sum`.
            std: of one client's noise, in units of the update.
            grid: the step, a power of two.
            source: where it comes from; `exact` (OpenDP) for discrete Gaussian noise alone.
            calibrated_delta, note, colluders: as of `gaussian`.
        """
        require_kind("Noise.integer", "std", std, float)
        return cls(
            mechanism=mechanism, std=std, source=source, grid=grid, trust="distributed",
            calibrated_delta=calibrated_delta, note=note, colluders=colluders,
        )  # fmt: skip

    @classmethod
    def laplace(
        cls, scale: float, *, source: Literal["secure", "reproducible"] = "secure", grid: float | None = None,
        calibrated_delta: float | None = None, as_published: bool = False, note: str = "",
    ) -> Self:  # fmt: skip
        """Laplace noise of density exp(-|x| / scale) / (2 scale), behind a bound of the L1 norm.

        Args:
            scale: b, in units of the update.
            source, grid, calibrated_delta, as_published, note: as of `gaussian`.
        """
        require_kind("Noise.laplace", "scale", scale, float)
        return cls(
            mechanism="laplace", std=scale, source=source, grid=grid, calibrated_delta=calibrated_delta,
            as_published=as_published, note=note, order=1,
        )  # fmt: skip

    @classmethod
    def own(
        cls, mechanism: str, sample: Sampler, *, multiplier: float, source: Source,
        order: float, curve: Curve | None = None, grid: float = 0.0, calibrated_delta: float | None = None,
        as_published: bool = False, note: str = "",
    ) -> Self:  # fmt: skip
        """A mechanism that the plugin executes; every verdict says that its price is on the component's word.

        Args:
            mechanism: `gaussian` or `pure` where it costs the same, else a name that the plugin chooses.
            sample: see the class.
            multiplier: scale over sensitivity; of a pure mechanism 1 / epsilon.
            source: where `sample` draws from, as it says itself.
            order: of the norm that has to be bounded before it.
            curve: its cost, under a name of the plugin's own.
            grid: what the results are multiples of; 0: unknown.
            calibrated_delta, as_published, note: as of `gaussian`.
        """
        require_kind("Noise.own", "sample", sample, Callable)
        require_kind("Noise.own", "multiplier", multiplier, float)
        return cls(
            mechanism=mechanism, sample=sample, at_least=multiplier, source=source, order=order, curve=curve, grid=grid,
            calibrated_delta=calibrated_delta, as_published=as_published, note=note,
        )  # fmt: skip


# -- what a plugin's function does -----------------------------------------------------------------------------------


class Map(Checked):
    """A function of the plugin that has the party in hand. Values change freely: every bound before it is lost, and so
    is the credit for noise before it, over which it may put anything. A `Clip` behind it makes a new bound.

    Attributes:
        function: of the block, the party and the round; gives the values, (n,), or a block.
        examples: True where it needs the client's examples also where a component keeps an account of single records,
            which does not cover what it takes from them.
    """

    function: Handed
    examples: bool = False


class Post(Checked):
    """A function of the plugin that is handed values, public facts and nothing else. So it keeps the price of noise
    before it: a sign, a momentum, half of the values. Of a sum it is handed the mean.

    Attributes:
        function: of the values, float32 (n,), and the public facts; gives values (n,).
    """

    function: Blind


class Look(Checked):
    """A function of the plugin that looks at the values, with the party in hand, and hands nothing on.

    Attributes:
        function: of a copy of the block, the party and the round.
    """

    function: Looking


class Seal(Checked, kw_only=True):
    """The component makes ciphertexts of weighted values, which can be added and not read; see `Sealer`.

    Attributes:
        scheme: its parameters in a line, for the record.
        opened_by: `clients` or `key_server`, who hold a key; `shares`, which many clients would have to put together.
        opens_with: how many of those together open a sum, or an upload: 1 where each holds a key. A view with so many
            clients who collude sees uploads.
        sums_visible_to: who learns the opened sum: the aggregation `server` too, or the `clients` alone. The key server
            locks its answer for them; shares are put together at the server, or at each client (`Sealer.gather`).
        numbers: how values become words.
        range, step: those of the numbers, or their largest where keys decide.
        position_block: how many consecutive global positions share a ciphertext where each client has its own mask;
            0 where they must share the mask.
    """

    scheme: str
    opened_by: Literal["clients", "key_server", "shares"]
    numbers: Numbers
    opens_with: int = at_least(1, default=1)
    sums_visible_to: Literal["server", "clients"] = "server"
    range: float = at_least(0, nan=True, default=cast("float", None))
    step: float = at_least(0, nan=True, default=cast("float", None))
    position_block: int = 0

    def __post_init__(self) -> None:
        take_numbers(self, self.numbers)
        super().__post_init__()


class Scramble(Checked, kw_only=True):
    """The component makes bytes that parties with a key turn back, the server among them; no encryption whose sums stay
    closed to a server. See `Scrambler`.

    Attributes:
        hides: `values` from everybody else; `nothing proved` where no argument says so.
        numbers, range, step: as in `Seal`.
    """

    hides: Literal["values", "nothing proved"]
    numbers: Numbers
    range: float = at_least(0, nan=True, default=cast("float", None))
    step: float = at_least(0, nan=True, default=cast("float", None))

    def __post_init__(self) -> None:
        take_numbers(self, self.numbers)
        super().__post_init__()


class Open(Checked):
    """The component's `open` undoes the last seal or scramble of the zone: the sum is plain where this link runs."""


class WeightedSum(Checked, kw_only=True):
    """The core adds the clients' blocks up, plain or through what closed them, each times its weight in (0, 1].

    Attributes:
        divided_by: each position by the weight of the clients that `sent` it, or of `all` whose blocks are added.
        rate: public factor on the mean, > 0; divisors are smaller by this factor.
        by: gives what the update of each client counts in each layer, and what that adds to the divisor, by client: two
            arrays (L,); of the blocks, the server and the round. One client's values then move the weights of others,
            so that noise on the sum is measured by nothing, while that of the clients keeps its price.
    """

    divided_by: Literal["sent", "all"] = "sent"
    rate: float = positive(default=1.0)
    by: OfLayers | None = None


class Combine(Checked):
    """A function of the plugin that makes one block of the clients' blocks, such as a trimmed mean. It earns no credit:
    one client may move it by any amount.

    Attributes:
        function: of the blocks and the weights by client, and the round; gives a block with its divisor.
    """

    function: OfBlocks


Operation = (
    Clip | Scale | Shift | Round | Rotate | Widen | Noise | Map | Post | Look | Seal | Scramble | Open | WeightedSum
    | Combine
)
Operations = tuple[Operation, ...]
"""In the order in which they are executed. Empty: the values pass as they came."""

_KINDS = get_args(Operation)


def _share(value: Any, others: float | None, client_id: int | None) -> Any:
    """A client's own number of those by client."""
    return value.get(client_id, others) if isinstance(value, Mapping) else value


def _most(value: Any, others: float | None) -> Any:
    """The largest of numbers by client."""
    return max([others, *value.values()]) if isinstance(value, Mapping) else value
