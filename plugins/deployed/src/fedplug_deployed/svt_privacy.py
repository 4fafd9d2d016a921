"""NVFlare's filter `SVTPrivacy`: a sparse vector technique that chooses values, and Laplace noise on those.

Source: NVIDIA/NVFlare 2.9.0, nvflare/app_common/filters/svt_privacy.py. The technique and its mistakes: Lyu, Su and Li,
"Understanding the Sparse Vector Technique for Differential Privacy" (VLDB 2017), Algorithm 7 and its Theorem 4.
"""

from __future__ import annotations

import itertools
import math
import os
from typing import TYPE_CHECKING, Literal

import fedplug
import numpy as np
from fedplug import Clip, Facts, Field, Known, Noise, Operations, Round
from fedplug.api.grids import finest
from fedplug_std.options import Positive
from pydantic import model_validator

from fedplug_deployed.tensors import Of, filtering, in_zone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedplug import Public
    from numpy.typing import NDArray

CHUNK = 1_000_000
"""Values that NVFlare looks at together; it draws noise chunk by chunk."""


class Amounts(fedplug.Options):
    """The arguments of NVFlare's filter, under its names."""

    fraction: float = Field(0.1, gt=0, le=1, description="share of the values that is sent")
    epsilon: Positive = Field(0.1, description="what NVFlare states for choosing the values, in each round")
    noise_var: Positive = Field(
        0.1, description="privacy loss of each value that is sent; its Laplace noise has the scale 2 gamma / noise_var"
    )
    gamma: Positive = Field(1e-5, description="values are cut off at this magnitude, per local step")
    tau: float = Field(1e-6, allow_inf_nan=False, description="threshold of magnitudes, before its noise")
    replace: bool = Field(True, description="whether those sent are drawn from those above it with replacement")
    epsilon_threshold: Positive | None = Field(
        None, description="share of epsilon for the threshold; null: 1 to (2c)^(2/3), of c values that are sent"
    )
    epsilon_query: Positive | None = Field(None, description="share of epsilon for the comparisons; null: the rest")
    epsilon_release: Positive | None = Field(
        None, description="privacy loss of all values that are sent; null: noise_var for each"
    )

    @model_validator(mode="after")
    def _shares_add_up(self) -> Amounts:
        one, other = self.epsilon_threshold, self.epsilon_query
        if one is not None and other is not None and not np.isclose(one + other, self.epsilon):
            raise ValueError(
                f"epsilon_threshold={one:g} and epsilon_query={other:g} must add up to epsilon={self.epsilon:g}; leave "
                "one of them out"
            )
        for name, share in (("epsilon_threshold", one), ("epsilon_query", other)):
            if share is not None and (one is None or other is None) and share >= self.epsilon:
                raise ValueError(f"{name}={share:g} must be below epsilon={self.epsilon:g}, of which it is a share")
        return self

    def sent(self, size: int) -> int:
        """c, how many of `size` values are drawn for sending."""
        return int(min(np.ceil(float(size) * self.fraction), float(size)))

    def split(self, sent: int) -> tuple[float, float]:
        """epsilon_1 and epsilon_2, for the threshold and for the comparisons with it."""
        one, other = self.epsilon_threshold, self.epsilon_query
        if one is None:
            ratio = (2.0 * sent) ** (2.0 / 3.0)
            one = self.epsilon / (1.0 + ratio) if other is None else self.epsilon - other
        return one, self.epsilon - one if other is None else other

    def release(self, sent: int) -> float:
        """epsilon_3, for the values themselves, which are in [-gamma, gamma]."""
        return sent * self.noise_var if self.epsilon_release is None else self.epsilon_release


class SvtPrivacy(fedplug.Protector):
    """Send a random choice of large values with Laplace noise (NVFlare's `SVTPrivacy`), at the price that is proved.

    As NVFlare 2.9.0 does it, bit for bit from the same random numbers but for a last rounding. Values are divided by
    the local steps. Each magnitude, cut off at gamma and with noise, is compared with a noised threshold, again and
    again until at least c = fraction * n values have been above it. c of these are drawn, and are sent with Laplace
    noise; all others are 0.

    The option `epsilon` is for the choice alone. NVFlare's account states epsilon + c * noise_var for a round. The
    proof of the first term (Lyu, Su and Li, VLDB 2017) is for an algorithm that stops once c comparisons have come out
    above the threshold. The filter compares all n values before it counts, so up to n may. That proof then gives
    epsilon_1 + (n / c) epsilon_2, nearly epsilon / fraction, and we know of none that gives less. The second term is
    the price of the noise on values in [-gamma, gamma], half of that toward an absent client. The ledger states the sum
    for each round. With the defaults, 1000 parameters cost 1.0 + 5.0 (NVFlare states 0.1 + 10), and a million cost
    5,001, which protects nobody.

    What NVFlare sends shows the last bits of noise in floating point, which no proof covers (Mironov, CCS 2012). Here
    it is rounded to the public grid of the core's noise. Parameters that are one number are treated like the others;
    NVFlare sends them as they are.
    """

    class Options(Amounts):
        """Options of `deployed.svt_privacy`."""

        steps: int = Field(
            1, ge=1, description="local steps by which values are divided: NVFlare's NUM_STEPS_CURRENT_ROUND, which is "
            "1 where the client's code does not send it",
        )  # fmt: skip
        of: Of = "update"
        source: Literal["secure", "reproducible"] = Field(
            "secure", description="secure: ChaCha20 keyed by the system, where NVFlare has a Mersenne Twister; "
            "reproducible: from the recipe's seed, which protects nobody",
        )  # fmt: skip

    options: Options

    def protect(self, known: Known, facts: Facts) -> Operations:
        """A cut-off at gamma, the mechanism, and a grid; priced by the most values that may be above the threshold.

        Raises:
            Misplaced: there is noise already, or the values are encrypted.
        """
        known.before("noise", "this zone has noise already; keep one noise component in the chain")
        known.before("encryption", f"it compares plain values; put {self.name} before the encryption")
        options, size = self.options, max(1, known.size)
        sent, stated = options.sent(size), options.epsilon + options.release(options.sent(size))
        note = (
            f"NVFlare states epsilon {stated:.4g} for a round, by a proof for {sent} comparisons above the threshold; "
            f"all {size} may be above it"
        )
        # The mechanism cuts off in float64; the next float32 leaves it all values that it would cut off.
        reach = float(np.nextafter(np.float32(options.gamma * options.steps), np.float32(np.inf)))
        scale = 2 * options.gamma * options.steps * sent / options.release(sent)
        return filtering(
            options.of,
            Clip(reach, order=math.inf, per="scalar"),
            Noise.own(
                "pure", self.drawn, order=math.inf, multiplier=1 / zero_out_epsilon(options, size),
                source=options.source, as_published=True, note=note,
            ),
            Round(finest(reach, scale, "laplace")),
        )  # fmt: skip

    def drawn(
        self, values: NDArray[np.float32], public: Public, stream: np.random.Generator
    ) -> NDArray[np.float32]:
        """What is sent, float32 (n,)."""
        tensors = [where for _, where in sorted(in_zone(public, len(values)), key=lambda part: part[0])]
        return sparse_vector(values, tensors, self.options, uniform(self.options.source, stream))

    def describe(self) -> str:
        """One line for the plan of the run."""
        options = self.options
        chosen = f"{options.fraction:.0%} of the values by a sparse vector technique, with Laplace noise"
        return f"{chosen}; NVFlare states epsilon {options.epsilon:g} a round for the choice, beyond its proof"


def zero_out_epsilon(options: Amounts, size: int) -> float:
    """The epsilon of one call on up to `size` values, compared with zeros in their place.

    A transcript of comparisons of which T are above the threshold costs epsilon_1 + T epsilon_2 / c (Lyu, Su and Li
    2017, proof of Theorem 4); T is at most n, and n / c at most 1 / fraction. The scale of the noise on values is 2
    gamma c / epsilon_3; c values of up to gamma have an L1 norm of half of that times epsilon_3. Both grow with n.
    """
    sent = options.sent(size)
    threshold, query = options.split(sent)
    return threshold + query / options.fraction + options.release(sent) / 2


def uniform(source: str, stream: np.random.Generator) -> np.random.RandomState:
    """`secure`: ChaCha20 under a key from the operating system; `reproducible`: a Mersenne Twister of the stream.

    With numpy's older samplers, which NVFlare uses, so that equal words give equal noise.
    """
    if source == "reproducible":
        return np.random.RandomState(int(stream.integers(2**32)))
    from randomgen import ChaCha

    return np.random.RandomState(ChaCha(key=int.from_bytes(os.urandom(32), "little"), rounds=20))


def sparse_vector(
    values: NDArray[np.float32], tensors: Sequence[slice], options: SvtPrivacy.Options, random: np.random.RandomState,
    chunk: int = CHUNK,
) -> NDArray[np.float32]:  # fmt: skip
    """NVFlare's mechanism: those values that are sent, with noise, and 0 elsewhere, float32 (n,).

    Args:
        values: float32 (n,).
        tensors: where each tensor lies in them, sorted by name; noise is drawn in this order.
        options: of the mechanism.
        random: the draws, in NVFlare's order.
        chunk: values of a tensor that are looked at together.
    """
    size, gamma = len(values), options.gamma
    if not size:
        return values
    sent = options.sent(size)
    epsilon_threshold, epsilon_query = options.split(sent)
    threshold = options.tau + random.laplace(scale=gamma / epsilon_threshold)
    of_query = gamma * 2.0 * sent / epsilon_query
    of_value = gamma * 2.0 * sent / options.release(sent)
    clipped = np.clip(values.astype(np.float64) / np.float64(options.steps), -gamma, gamma)
    chunks = [
        [slice(start, min(start + chunk, tensor.stop)) for start in range(tensor.start, tensor.stop, chunk)]
        for tensor in tensors
    ]

    above = np.zeros(size, np.bool_)
    while np.count_nonzero(above) < sent:  # a whole pass each time, whatever is above by then
        for part in itertools.chain(*chunks):
            left = np.flatnonzero(~above[part])
            if left.size:
                noised = np.abs(clipped[part][left]) + random.laplace(scale=of_query, size=left.size)
                above[part][left[noised >= threshold]] = True

    made = np.zeros(size, np.float32)
    counts = _shares([int(np.count_nonzero(above[tensor])) for tensor in tensors], sent, options.replace, random)
    for tensor, parts, count in zip(tensors, chunks, counts, strict=True):
        waiting, drawn = int(np.count_nonzero(above[tensor])), count
        for part in parts:
            here = int(np.count_nonzero(above[part]))
            chosen = drawn if part is parts[-1] else _share(here, waiting, drawn, options.replace, random)
            if chosen:
                which = random.choice(np.flatnonzero(above[part]), size=chosen, replace=options.replace)
                noise = random.laplace(scale=of_value, size=chosen)
                # Of a value that is drawn twice, the last noise counts.
                made[part][which] = (clipped[part][which] + noise) * np.float64(options.steps)
            waiting, drawn = waiting - here, drawn - chosen
    return made


def _shares(counts: Sequence[int], drawn: int, replace: bool, random: np.random.RandomState) -> list[int]:
    """How many of the draws fall into each tensor, by the values above the threshold that each has."""
    found: list[int] = []
    for place, count in enumerate(counts):
        waiting, left = sum(counts[place:]), drawn - sum(found)
        last = place == len(counts) - 1
        found.append(left if last else _share(count, waiting, left, replace, random))
    return found


def _share(here: int, waiting: int, drawn: int, replace: bool, random: np.random.RandomState) -> int:
    """How many of the draws that are left fall on the next `here` of the `waiting` values."""
    if not (here and drawn):
        return 0
    if replace:
        return int(random.binomial(drawn, here / waiting))
    return int(random.hypergeometric(ngood=here, nbad=waiting - here, nsample=drawn))
