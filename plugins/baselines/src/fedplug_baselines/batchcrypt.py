"""BatchCrypt: many quantised updates per Paillier plaintext, with a clip that the clients agree on each round.

Zhang et al., "BatchCrypt: Efficient Homomorphic Encryption for Cross-Silo Federated Learning" (USENIX ATC 2020);
code of the authors: marcoszh/BatchCrypt, FATE_plugin/federatedml/secureprotol (batch_encryption.py, aciq.py) and
accuracy_eval/test_10parties (the clients' common clip, and the range of the quantiser).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import fedplug
import numpy as np
from fedplug import (
    Client,
    Cohort,
    Facts,
    Field,
    Layout,
    Plan,
    Plans,
    Reveals,
    at_client,
)
from fedplug.api.blocks import ENCRYPTED
from fedplug.api.errors import ProtectionError
from fedplug_std import he_keys
from fedplug_std.he_blocks import Encryption
from fedplug_std.paillier import OnePerSlot, PackedPaillier
from fedplug_std.replies import valid

from fedplug_baselines.batches import TwosComplement, code_limit, dynamic_clip, field_bits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedplug import Opened, Party, Recipe, Sealed, Total, Words
    from fedplug_std.he_keys import Terms
    from numpy.typing import NDArray


class BatchCrypt(Encryption, fedplug.PublicPlan):
    """Encrypt quantised updates with Paillier, with as many as fit in each ciphertext (BatchCrypt).

    Values are clipped, quantised to `bits` bits with room for the sum of all clients, and written in two's complement
    with two sign bits. These show a sum that overflows, which is then not opened. Padding keeps carries from the
    neighbours.

    With `clip: daciq` the clients agree on the clip of each tensor each round. The component must then be under
    `negotiate_mask` too. It encrypts the whole model, and asks each client for the extremes of every tensor. With
    `clip: range` the clip is the option, and the component serves any zone whose positions the clients share.
    """

    class Options(he_keys.Options):
        """How values become numbers, and how long the key is."""

        clip: Literal["daciq", "range"] = Field(
            "daciq", description="alpha: agreed each round for each tensor (dACIQ), or the option range"
        )
        range: float = Field(
            1.0, gt=0, allow_inf_nan=False,
            description="with clip: range, the largest |update value x weight|; larger values are clipped, and their "
            "share is logged",
        )  # fmt: skip
        bits: int = Field(16, ge=3, le=32, description="r, of a quantised value, and of the sum over all clients")
        rounding: Literal["stochastic", "nearest"] = Field(
            "stochastic", description="stochastic: up or down by chance, without bias, as the authors do"
        )
        key_bits: Literal[2048, 3072] = Field(2048, description="length of Paillier's modulus; the paper: 2048")

    name: str = "baselines.batchcrypt"
    slots = 2
    position_block = 0  # no blocks of positions: the clients must share the zone

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.backend = self._backend(1)  # the keys state for how many clients a field must have room

    def _backend(self, max_clients: int) -> PackedPaillier:
        return PackedPaillier(field_bits(self.options.bits, max_clients), self.options.key_bits)

    def _roomy(self, facts: Facts) -> BatchCrypt:
        """This component with fields that have room for the sums of its keys."""
        backend = self._backend((facts.of(self).get("terms") or self.coarsest(1))["max_clients"])
        return self.varied(backend=backend, slots=backend.most_slots())

    @property
    def plans(self) -> Plans:
        """The whole model is encrypted. The agreed clips also follow from data, and from who takes part."""
        return Plans(zones=frozenset({ENCRYPTED}), fixed=True)

    def plan(self, facts: Facts) -> str | None:
        """One zone; where the clip is agreed, clients are told it with the plan."""
        return ENCRYPTED if self.options.clip == "range" else None

    def scheme(self) -> str:
        """Its parameters in one line."""
        options = self.options
        clip = "clip agreed each round" if options.clip == "daciq" else f"clip ±{options.range:g}"
        return f"{options.bits}-bit codes in Paillier {options.key_bits}, {clip}"

    def step(self, num_clients: int) -> float:
        """Grid step of the weighted values; NaN, unknown, where the clip is agreed later, or rounding moves 0."""
        return self.packing(self.coarsest(num_clients)).numbers.step

    def check(self, recipe: Recipe) -> list[str]:
        """Obstacles to encrypting for that many clients, and to agreeing on the clip."""
        problems = super().check(recipe)
        protects = any(use.name == self.name for chain in recipe.protect.values() for use in chain)
        if not protects:
            problems.append(f"it protects nothing; write protect: {{encrypted: [{self.name}]}}, by its name alone")
        elif self.options.clip == "daciq" and recipe.negotiate_mask.name != self.name:
            problems.append(
                "clip: daciq is agreed in the negotiation; write negotiate_mask: {use: baselines.batchcrypt}, or "
                "clip: range and a range"
            )
        return problems

    def reveals(self, facts: Facts) -> list[Reveals]:
        """Quantities that no guarantee covers."""
        found = super().reveals(facts)
        if self.options.clip == "daciq":
            note = "each client's smallest and largest update of every tensor, in the clear, to agree on the clip"
            extremes = Reveals("extremes of updates", ("server",), asked=("extremes",), voids=True, note=note)
            found.append(extremes)
            note = "of each tensor, from the extremes of all clients' updates; the party that opens a sum learns it too"
            found.append(Reveals("clip of the round", ("client", "key_holder"), note=note))
        return found

    def agree(self, max_clients: int) -> None:
        """Checks that there is a code for sums of that many clients.

        Raises:
            ProtectionError: a client's share of the codes is nothing but zero.
        """
        if code_limit(self.options.bits, max_clients) < 1:
            raise ProtectionError(
                f"bits={self.options.bits} leaves each of max_clients={max_clients} no code but 0; raise bits to "
                f"{max_clients.bit_length() + 1}"
            )

    def new_keys(self, max_clients: int) -> tuple[Any, Terms]:
        """A new key pair. The terms state for how many clients the fields have room."""
        from fedplug_std.paillier_scheme import generate

        return generate(self.options.key_bits), {"max_clients": max_clients}

    def packing(self, terms: Terms, facts: Facts | None = None) -> OnePerSlot:
        """How values become fields, with the clip of this round."""
        options, clip = self.options, None if self.options.clip == "daciq" else self.options.range
        agreed: Any = clip
        if clip is None and facts is not None and (clips := facts.of(self).get("clips")) is not None:
            agreed = np.repeat(clips, tensor_sizes(facts.layout))
        return OnePerSlot(TwosComplement(options.bits, terms["max_clients"], agreed, options.rounding == "stochastic"))

    # -- the clip, agreed each round (dACIQ) ---------------------------------------------------------------------------

    def negotiate_mask(self, cohort: Cohort, facts: Facts) -> None:
        """Extremes in, common clips out. The whole model is encrypted."""
        if facts.plan is not None:
            return
        tensors = len(facts.layout.parameters)
        extremes = valid(cohort, cohort.ask(self.extremes), lambda found: extremes_problem(found, tensors))
        if not extremes:
            return
        lowest, highest = (np.array([found[i] for found in extremes.values()]) for i in (0, 1))
        counts = np.array(tensor_sizes(facts.layout)) * len(extremes)
        clips = dynamic_clip(lowest.min(0), highest.max(0), counts, self.options.bits)
        cohort.publish(self, {"terms": facts.of(self)["terms"], "clips": clips})
        cohort.tell(self.adopt)

    @at_client
    def extremes(self, client: Client) -> NDArray[np.float64]:
        """Smallest and largest weighted update of each tensor, (2, T)."""
        if client.update is None:
            raise ProtectionError("the extremes are those of an update; the client has not trained in this round")
        starts = np.cumsum([0, *tensor_sizes(client.facts.layout)[:-1]])
        values = client.update.astype(np.float64) * client.weight
        return np.stack([np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)])

    @at_client
    def adopt(self, client: Client) -> None:
        """Sets the plan."""
        client.plan = Plan.single(ENCRYPTED, client.facts.layout.size, client.facts.zones)

    # -- a round -------------------------------------------------------------------------------------------------------

    def seal(self, words: Words, client: Client, facts: Facts) -> Sealed:
        """Packs and encrypts the words."""
        return Encryption.seal(self._roomy(facts), words, client, facts)

    def add(self, uploads: Sequence[Total], server: Party, facts: Facts) -> tuple[bytes, ...]:
        """Adds the ciphertexts at the server, which holds no key."""
        return Encryption.add(self._roomy(facts), uploads, server, facts)

    def open(self, total: Total, party: Party, facts: Facts) -> Opened:
        """Decrypts the sum at the key holder."""
        return Encryption.open(self._roomy(facts), total, party, facts)


def tensor_sizes(layout: Layout) -> list[int]:
    """Scalars of each of the T tensors of the model."""
    return [parameter.size for parameter in layout.parameters]


def extremes_problem(found: Any, tensors: int) -> str:
    """Why this is not a finite smallest and largest value for each tensor; empty if it is."""
    is_array = isinstance(found, np.ndarray) and found.dtype == np.float64 and found.shape == (2, tensors)
    fits = is_array and np.isfinite(found).all() and (found[0] <= found[1]).all()
    return "" if fits else "the extremes of its update are not a finite pair for each tensor"
