"""What the fold of a zone's links leaves for its readers: the noises that the ledger enters, and the clips."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from fedplug.api.operations import NoiseTerms
from fedplug.api.record import Number, Text

if TYPE_CHECKING:
    from fedplug.api.operations import Bound


class Release(NoiseTerms):
    """One noise of a zone's chain as the ledger enters it: what it costs each client in one round.

    Attributes:
        noise_multiplier: of Gaussian noise its standard deviation over the L2 sensitivity (zero-out); of Laplace noise
            its scale over the L1 sensitivity; of a pure mechanism 1 / epsilon. 0 where no bound was known.
        clipping_norm: the sensitivity; NaN where it is not one number.
        range, step: what the values can hold and how they are rounded from this noise on, of one client's weighted
            values.
        uncredited: why the noise of others earns no credit, apart from what `range` and `step` say; empty if it may.
        link: who added it.
        word: on whose word it has this price, where the core did not execute what it prices.
    """

    noise_multiplier: Number
    clipping_norm: Number
    _: dataclasses.KW_ONLY
    uncredited: Text = ""
    range: Number = math.inf
    step: Number = 0.0
    link: Text = ""
    word: Text = ""


@dataclasses.dataclass(frozen=True)
class Clipped:
    """A public bound that a client's values were scaled down to, for whoever reads them.

    Attributes:
        link: who clipped.
        bound: to what.
        noised: True where noise was added afterwards, so that the length of what is seen says nothing.
        factor: the public number that values had been multiplied by when they were clipped.
    """

    link: str
    bound: Bound
    noised: bool = False
    factor: float = 1.0
