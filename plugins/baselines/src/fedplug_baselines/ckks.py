"""CKKS-FedAvg with the parameters and the packing of NVIDIA FLARE and of Plato, for comparing costs.

Sources, and what is taken over from them:

    NVFlare  NVIDIA/NVFlare, nvflare/lighter/impl/he.py (degree 8192, modulus [60, 40, 40], scale 2^40, symmetric),
             nvflare/app_opt/he/model_encryptor.py (one vector a tensor, weights multiplied in before encryption)
    Plato    TL-System/plato, plato/utils/homo_enc.py (degree 8192, modulus [60, 40, 40, 60], scale 2^40, public key,
             one flat vector), plato/servers/fedavg_he.py

Not taken over: both servers multiply ciphertexts (by the share of a client, by one over the total). This component only
adds ciphertexts and takes the mean after decryption. Both decrypt at full precision, which gives the key away once a
sum is published (Li & Micciancio, EUROCRYPT 2021). This component rounds sums to a grid, as `std.ckks` does. One slot
of each ciphertext counts contributors. We read two versions of NVFlare's encryptor (commits 1c4bdd3c and 024dab75). The
later one serialises the context with every tensor of an upload (decomposers.py), 0.67 MB each that nobody needs. The
older one sends ciphertexts alone, and so does this component. Plato's server holds the secret key (homo_enc.py,
`get_ckks_context`). Here the server never holds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from fedplug import Field
from fedplug.api.blocks import RETAINED
from fedplug.api.errors import ProtectionError
from fedplug_std import he_keys
from fedplug_std.ckks import GridNumbers, GridSlots, OnGrid
from fedplug_std.tenseal_backend import TenSeal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedplug import Facts, Recipe
    from fedplug_std.he_keys import Terms
    from numpy.typing import NDArray

COEFF_BITS: dict[str, tuple[int, ...]] = {"nvflare": (60, 40, 40), "plato": (60, 40, 40, 60)}
"""Of the modulus; 140 and 200 of the 218 bits that degree 8192 allows at 128-bit security."""


class WithPublicKey(TenSeal):
    """TenSEAL where any party that gets the secret key also gets the public key and encrypts with it, as in Plato."""

    def dump_context(self, context: Any, *, public_key: bool = False, secret_key: bool = False) -> bytes:
        """As `TenSeal.dump_context`."""
        return super().dump_context(context, public_key=public_key or secret_key, secret_key=secret_key)


class Ckks(OnGrid):
    """Encrypt updates with CKKS as NVFlare or Plato does: with their parameters and packing.

    `nvflare` packs every tensor into separate ciphertexts, so the whole model must be in the zone. `plato` packs one
    flat vector and takes any zone. Protocols that need not match theirs should use `std.bfv`, which costs a tenth.
    """

    class Options(he_keys.Options):
        """Which project's parameters, and how fine the sums are."""

        like: Literal["nvflare", "plato"] = Field("nvflare", description="project whose parameters and packing to use")
        range: float = Field(
            1.0, gt=0, le=2**20,
            description="largest |update value x weight| that is represented; larger values saturate, and their share "
            "is logged",
        )  # fmt: skip
        grid_bits: int = Field(17, ge=1, le=22, description="sums are rounded to 2^-grid_bits; in the originals not")

    name: str = "baselines.ckks"
    degree, scale_bits = 8192, 40
    slots = degree // 2
    position_block = slots - 1

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.coeff_bits = COEFF_BITS[options.like]
        # In NVFlare the clients encrypt with the secret key. Here they do so unless the key server holds it.
        self.symmetric = options.like == "nvflare" and self.site == "client"
        self.backend = TenSeal() if self.symmetric else WithPublicKey()
        if options.like == "nvflare":
            self.position_block = 0  # it packs tensors of the whole model, not positions that differ between clients

    def check(self, recipe: Recipe) -> list[str]:
        """NVFlare packs whole models."""
        problems = super().check(recipe)
        sealed = [zone for zone, chain in recipe.protect.items() if self.name in [use.name for use in chain]]
        parts = len(recipe.protect) > 1 or recipe.postprocess.get(RETAINED)
        if self.options.like == "nvflare" and sealed and parts:
            problems.append(
                f"it packs every tensor separately, so zone {sealed[0]} must hold the whole model; write like: plato "
                "to encrypt a part of it"
            )
        return problems

    def scheme(self) -> str:
        """Its parameters in one line."""
        packed = "a vector each tensor" if self.options.like == "nvflare" else "one flat vector"
        return (
            f"CKKS as {self.options.like}: {self.degree} {list(self.coeff_bits)}, {packed}, range "
            f"±{self.options.range:g}, sums rounded to 2^-{self.options.grid_bits}"
        )

    def packing(self, terms: Terms, facts: Facts | None = None) -> GridSlots:
        """How values become slots: in one flat vector, or with `nvflare` tensor by tensor."""
        flat = super().packing(terms, facts)
        tensors = [parameter.size for parameter in facts.layout.parameters] if facts is not None else []
        if self.options.like == "nvflare" and tensors:
            return TensorSlots(flat.numbers, terms["max_clients"], tensors, self.slots - 1)
        return flat


class TensorSlots(GridSlots):
    """`GridSlots` where every tensor begins a new ciphertext."""

    def __init__(self, numbers: GridNumbers, max_clients: int, tensors: Sequence[int], width: int) -> None:
        super().__init__(numbers, max_clients)
        padded = [-(-size // width) * width for size in tensors]
        starts = np.cumsum([0, *padded[:-1]])
        self.total = sum(padded)
        self.where = np.concatenate([np.arange(size) + start for size, start in zip(tensors, starts, strict=True)])

    def pack(self, words: NDArray[np.float64]) -> NDArray[np.float64]:
        self._require(len(words))
        slots = np.zeros(self.total)
        slots[self.where] = words
        return slots

    def num_slots(self, size: int) -> int:
        return self.total

    def unpack(self, slots: NDArray[Any], size: int) -> NDArray[np.float64]:
        self._require(size)
        return super().unpack(slots[self.where], size)

    def _require(self, size: int) -> None:
        if size != len(self.where):
            raise ProtectionError(
                f"every tensor is packed separately, so the zone must hold the whole model of {len(self.where)} "
                f"scalars, not {size}; write like: plato to encrypt a part of it"
            )
