"""NbAFL: clients clip their weights and add noise before they send them; the server adds more before it broadcasts.

Wei et al., "Federated Learning with Differential Privacy: Algorithms and Performance Analysis" (IEEE TIFS 2020,
arXiv:1911.00222), Algorithm 1, Theorem 1, and the scheduling of K random clients. We recovered it from public notes on
the paper, not from its full text. Its proximal term is `baselines.blur` with norm 0. We did not follow implementations
that replace the model by the noise, or clip each coordinate.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import fedplug
import numpy as np
from fedplug import Block, Client, Clip, Facts, Field, Known, Map, Misplaced, Noise, Operations, Post, Shift
from fedplug.api.errors import ProtectionError
from fedplug.api.grids import finest
from fedplug.mechanisms.noise import add_noise
from fedplug_std.options import Source

if TYPE_CHECKING:
    from fedplug import Public, Recipe
    from numpy.typing import NDArray


class NbAFL(fedplug.Protector):
    """Clip the local weights to a norm and add Gaussian noise to them (NbAFL, the uplink).

    The standard deviation is c * L * (2C / m) / epsilon with c = sqrt(2 ln(1.25 / delta)): clipping norm C, L
    exposures, and at least m examples at every client. A client sends the noised weights minus the global model, which
    the server already has.

    2C / m would be the sensitivity to one record if the weights were the average of weights that each record gives
    alone. Trained weights are not. The clip does guarantee that a client moves its upload by at most C compared with
    zero, and the ledger states epsilon for that. Where you want a guarantee, use std.clip and std.gaussian.
    """

    class Options(fedplug.Options):
        """The constants of the paper's formula."""

        norm: float = Field(gt=0, allow_inf_nan=False, description="C: largest L2 norm of a client's weights")
        epsilon: float = Field(gt=0, allow_inf_nan=False, description="the paper's claim; c holds below 1 only")
        delta: float = Field(1e-5, gt=0, lt=1, description="failure probability in the paper's claim")
        min_examples: int = Field(
            ge=1, description="m: the fewest examples a client may have; a public constant, which clients check"
        )
        exposures: int | None = Field(
            None,
            ge=1,
            description="L: how often a client's upload is exposed; null: in every round of the run, the most that a "
            "client can be drawn under client sampling",
        )
        source: Source = "secure"

    options: Options

    def constants(self, rounds: int) -> tuple[float, float, int, float, int]:
        """C, epsilon, m, c and L of a run."""
        options = self.options
        exposures = rounds if options.exposures is None else options.exposures
        return options.norm, options.epsilon, options.min_examples, gaussian_constant(options.delta), exposures

    def std(self, rounds: int) -> float:
        """Standard deviation of a client's noise, sigma_U, in units of the weights."""
        norm, epsilon, examples, constant, exposures = self.constants(rounds)
        return uplink_std(norm, epsilon, examples, constant, exposures)

    def protect(self, known: Known, facts: Facts) -> Operations:
        """The update becomes the client's weights, which are clipped and noised, and then becomes a difference again
        (Algorithm 1, at the clients).

        The bound is one of the weights: a client moves its upload by at most C compared with one whose weights are
        zero. Then the global model, which all parties have, is subtracted. So the model moves to the mean of noised
        weights.

        Raises:
            Misplaced: there is noise already, or a clip of the update, or the values are encrypted.
        """
        known.before("noise", "this zone has noise already; keep one noise component in the chain")
        known.before("encryption", "noise is added to plain values; put it before the encryption")
        known.before("clip", "it clips the weights itself; remove the clip of the update")
        options = self.options
        note = (
            f"the paper claims epsilon {options.epsilon:g} by a sensitivity of 2C/m = "
            f"{2 * options.norm / options.min_examples:.3g}, as if weights were averages over records; the sensitivity "
            "of a client's clipped weights is C"
        )
        if options.epsilon >= 1:
            note += f"; and its constant c holds below epsilon 1, not at {options.epsilon:g}"
        return (
            Map(self.weights),
            Clip(options.norm),
            Noise.gaussian(self.std(facts.rounds), source=options.source, as_published=True, note=note),
            Shift.model(-1),
        )

    def weights(self, block: Block, client: Client, facts: Facts) -> NDArray[np.float32]:
        """The local weights of the zone, (n,), of a client with at least `min_examples` examples.

        Raises:
            ProtectionError: the client has fewer than `min_examples`.
        """
        if client.num_examples < self.options.min_examples:
            raise ProtectionError(
                f"client {client.client_id} has {client.num_examples} examples, and min_examples="
                f"{self.options.min_examples} in {self.name} promises more of every client; lower it"
            )
        assert client.plan is not None  # nobody is asked for an upload without one
        found: NDArray[np.float32] = client.start[client.plan.positions(block.zone)] + block.plain()
        return found

    def describe(self) -> str:
        """One line for the plan of the run."""
        options = self.options
        warning = "" if options.epsilon < 1 else "; its formula holds below epsilon 1"
        return f"weights clipped to {options.norm:g}, noise for the paper's epsilon {options.epsilon:g}{warning}"


class NbAFLDownlink(fedplug.Opener):
    """Add Gaussian noise to the mean before the broadcast, where the noise of the uploads is not enough (NbAFL).

    By the paper, T broadcasts need more noise than L uploads of N clients carry into the mean if T > L sqrt(N). Then
    the server adds 2cC sqrt(T^2 - L^2 N) / (m N epsilon), with the constants of the uplink component. Where K clients
    are drawn each round, by `sampling: {scheme: fixed}`, the paper's formula for scheduled clients applies instead.

    The server sees the uploads before it adds this noise, and the formula inherits the uplink's sensitivity: the ledger
    gives no credit for it.
    """

    class Options(fedplug.Options):
        """Which uplink it complements, and how many clients take part."""

        uplink: str = Field("baselines.nbafl", description="name of the component whose constants are used")
        scheduled: int | None = Field(None, ge=1, description="K: clients drawn each round; null: all N take part")

    site = "server"

    options: Options

    def check(self, recipe: Recipe) -> list[str]:
        """K must be the size of the sample."""
        scheduled, clients = self.options.scheduled, recipe.clients
        problems, drawn = [], clients
        if recipe.sampling is not None:
            drawn = max(1, int(recipe.sampling.rate * clients + 0.5))
            if recipe.sampling.scheme != "fixed":
                problems.append("its formula is for samples of a fixed size; write sampling: {scheme: fixed, ...}")
        if (scheduled or clients) != drawn:
            problems.append(
                f"scheduled={scheduled} must be {drawn}, as many of the {clients} clients are drawn each round; write "
                f"scheduled: {drawn}"
            )
        return problems

    def postprocess(self, known: Known, facts: Facts) -> Operations:
        """Noise on the mean of the uploads (Algorithm 1, at the server; Theorem 1), where the paper asks for it.

        It earns no credit, because the server has seen the uploads. So the server adds it itself.

        Raises:
            Misplaced: there is no uplink whose noise it could top up.
        """
        name, zone = self.options.uplink, known.zone
        uplinks = [link.name for link in facts.links.get(zone, ()) if isinstance(link.component, NbAFL)]
        if not uplinks:
            raise Misplaced(
                f"{self.name} needs noise earlier in the chain of zone {zone}: it adds to the noise of the uploads; "
                f"put {{use: baselines.nbafl, ...}} into protect.{zone}"
            )
        if name not in uplinks:
            raise Misplaced(
                f"{self.name}: uplink: {name!r} protects no zone {zone} as baselines.nbafl does; name the component of "
                f"protect.{zone}: {', '.join(uplinks)}"
            )
        std = self.std(facts)
        return (Post(functools.partial(noised, std, self.uplink(facts).options.source)),) if std else ()

    def uplink(self, facts: Facts) -> NbAFL:
        """The component whose constants are used.

        Raises:
            ProtectionError: the named component is not a `NbAFL`.
        """
        found = facts.component(self.options.uplink)
        if not isinstance(found, NbAFL):
            raise ProtectionError(f"{self.name}: uplink: {self.options.uplink!r} is not a baselines.nbafl; name one")
        return found

    def std(self, facts: Facts) -> float:
        """Standard deviation of the noise on the mean, sigma_D, in units of the weights."""
        constants, clients = self.uplink(facts).constants(facts.rounds), facts.num_clients
        return scheduled_std(*constants, rounds=facts.rounds, clients=clients, drawn=self.options.scheduled or clients)

    def describe(self) -> str:
        """One line for the plan of the run."""
        who = "all clients" if self.options.scheduled is None else f"{self.options.scheduled} clients a round"
        return f"noise on the broadcast mean of {who}, where the paper asks for it; no credit in the ledger"


def noised(std: float, source: str, mean: NDArray[np.float32], public: Public) -> NDArray[np.float32]:
    """The mean with Gaussian noise, (n,)."""
    reach = float(np.abs(mean).max(initial=0.0))  # of values that are already noised, so the grid reveals nothing
    return add_noise(mean, std, finest(reach, std), source, public.stream)


def gaussian_constant(delta: float) -> float:
    """c = sqrt(2 ln(1.25 / delta)) of the classical Gaussian mechanism, which holds for epsilon below 1."""
    return math.sqrt(2 * math.log(1.25 / delta))


def uplink_std(norm: float, epsilon: float, examples: int, constant: float, exposures: int) -> float:
    """sigma_U = c L (2C / m) / epsilon."""
    return constant * exposures * 2 * norm / (examples * epsilon)


def downlink_std(
    norm: float, epsilon: float, examples: int, constant: float, exposures: int, *, rounds: int, clients: int
) -> float:
    """sigma_D = 2cC sqrt(T^2 - L^2 N) / (m N epsilon) if T > L sqrt(N), else 0 (Theorem 1)."""
    missing = rounds**2 - exposures**2 * clients
    return 2 * constant * norm * math.sqrt(max(0, missing)) / (examples * clients * epsilon)


def scheduled_std(
    norm: float,
    epsilon: float,
    examples: int,
    constant: float,
    exposures: int,
    *,
    rounds: int,
    clients: int,
    drawn: int,
) -> float:
    """sigma_D where K of N clients are drawn each round: 2cC sqrt(T^2 / b^2 - L^2 K) / (m K epsilon), or 0.

    b = -(T / epsilon) ln(1 - N/K + (N/K) exp(-epsilon / T)), and there is noise if T > epsilon / gamma with
    gamma = -ln(1 - K/N + (K/N) exp(-epsilon / (L sqrt(K)))). Whenever T is that large, b exists.
    """
    if drawn == clients:  # b is 1, and gamma epsilon / (L sqrt(N))
        return downlink_std(norm, epsilon, examples, constant, exposures, rounds=rounds, clients=clients)
    share = drawn / clients
    gamma = -math.log1p(share * math.expm1(-epsilon / (exposures * math.sqrt(drawn))))
    inside = math.expm1(-epsilon / rounds) / share
    if rounds <= epsilon / gamma or inside <= -1:  # the second by rounding only
        return 0.0
    b = -rounds / epsilon * math.log1p(inside)
    missing = (rounds / b) ** 2 - exposures**2 * drawn
    return 2 * constant * norm * math.sqrt(max(0.0, missing)) / (examples * drawn * epsilon)
