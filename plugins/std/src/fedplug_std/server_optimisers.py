"""Server optimisers: momentum, Adagrad, Adam or Yogi with the mean update of a round as the gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import fedplug
import numpy as np
from fedplug import Facts, Field, Known, Misplaced, Operations, Post, Public
from fedplug.api.blocks import RETAINED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fedplug import Plans, Recipe
    from numpy.typing import NDArray

_NAMES = {"momentum": "FedAvgM", "adagrad": "FedAdagrad", "adam": "FedAdam", "yogi": "FedYogi"}


class FedOpt(fedplug.Opener):
    """Move the model by an optimiser whose gradient is the mean update (FedAdam, FedYogi, FedAdagrad, FedAvgM).

    Reddi et al. 2021, Adaptive federated optimization, Algorithm 2. With the round's mean update d, scalar by scalar:

    * m = beta1 m + (1 - beta1) d, from m = 0;
    * Adagrad: v = v + m^2; Adam: v = beta2 v + (1 - beta2) m^2; Yogi: v = v - (1 - beta2) m^2 sign(v - m^2), each from
      v = tau^2;
    * the model moves by lr m / (sqrt(v) + tau). There is no correction of the bias, as in the paper.

    `momentum` is FedAvgM (Hsu et al. 2019): m = beta1 m + d, and the model moves by lr m.

    It belongs at the end of `postprocess`, after decryption and after noise on the sum. It receives the mean alone, so
    the guarantee of the noise does not change. m and v belong to one scalar each, so masks must not move between
    rounds: `check` refuses those that may. A round whose sum does not open does not change m and v.

    `at: server` keeps m and v once; `at: client` makes every client do the same with the mean that it opened, for sums
    that only clients open, and for groups with separate models.
    """

    class Options(fedplug.Options):
        """The optimiser, and its place."""

        optimiser: Literal["momentum", "adagrad", "adam", "yogi"] = Field("adam", description="kind of the step")
        lr: float = Field(0.1, gt=0, allow_inf_nan=False, description="learning rate of the server, eta")
        beta1: float | None = Field(
            None, ge=0, lt=1, description="kept share of the first moment, or momentum; null: 0.9, or 0 for adagrad, "
            "as in the paper"
        )  # fmt: skip
        beta2: float = Field(0.99, ge=0, lt=1, description="share of the second moment that adam and yogi keep")
        tau: float = Field(
            1e-3, gt=0, allow_inf_nan=False, description="degree of adaptivity: larger is closer to plain momentum"
        )
        at: Literal["server", "client"] = Field(
            "server", description="its place: client if clients open the sum, or if groups have separate models"
        )

        @property
        def first(self) -> float:
            """The effective beta1."""
            if self.beta1 is None:
                return 0.0 if self.optimiser == "adagrad" else 0.9
            return self.beta1

    options: Options

    @property
    def site(self) -> Literal["server", "client"]:
        """The place in the options."""
        return self.options.at

    def postprocess(self, known: Known, facts: Facts) -> Operations:
        """The step, which keeps the price of noise before it.

        Raises:
            Misplaced: clients keep the zone to themselves.
        """
        if known.zone == RETAINED:
            raise Misplaced(f"{self.name} steps along a mean, but zone {RETAINED} has none; remove it from there")
        return (Post(self.step),)

    def step(self, mean: NDArray[np.float32], public: Public) -> NDArray[np.float32]:
        """The movement of the model, (n,); stores the moments of the next round in the memory of this zone."""
        options, memory = self.options, public.memory
        before = memory.get("first", np.zeros_like(mean))
        if options.optimiser == "momentum":
            memory["first"] = first = _scaled(before, options.first) + mean
            return _scaled(first, options.lr)
        first = _scaled(before, options.first) + _scaled(mean, 1 - options.first)
        second = self._second(memory.get("second", np.full_like(mean, options.tau**2)), np.square(first))
        memory.update(first=first, second=second)
        root: NDArray[np.float32] = np.sqrt(second) + np.float32(options.tau)
        return _scaled(first, options.lr) / root

    def _second(self, before: NDArray[np.float32], square: NDArray[np.float32]) -> NDArray[np.float32]:
        beta2 = self.options.beta2
        match self.options.optimiser:
            case "adagrad":
                return before + square
            case "yogi":
                sign: NDArray[np.float32] = np.sign(before - square)
                return before - _scaled(square, 1 - beta2) * sign
        return _scaled(before, beta2) + _scaled(square, 1 - beta2)

    def check(self, recipe: Recipe) -> Iterable[str]:
        """Checks that masks do not move, and that a server with moments has one model and sees the means."""
        use = recipe.negotiate_mask
        plans: Plans = use.made_of(use.options).plans  # type: ignore[misc]
        if plans.moves:
            yield (
                f"it remembers a mean and a square of each scalar of a zone, but {use.name} may move scalars between "
                "zones and so mix them; choose a negotiation whose plans are fixed, such as std.single_zone or "
                "std.by_name"
            )
        if self.options.at == "server" and recipe.groups:
            yield f"{recipe.groups.name} forms groups with separate models, whose moments would mix; write at: client"

    def describe(self) -> str:
        """One line for the plan of the run."""
        options: Any = self.options
        second = "" if options.optimiser == "momentum" else f", tau {options.tau:g}"
        if options.optimiser in ("adam", "yogi"):
            second = f", beta2 {options.beta2:g}{second}"
        where = "the server" if options.at == "server" else "each client"
        return f"{_NAMES[options.optimiser]} at {where}: lr {options.lr:g}, beta1 {options.first:g}{second}"


def _scaled(values: NDArray[np.float32], factor: float) -> NDArray[np.float32]:
    found: NDArray[np.float32] = values * np.float32(factor)
    return found
