"""Shamir's t-of-n sharing of 32-byte secrets among clients; see `fedplug_std.shamir`.

A secret is cut into 12 limbs of 22 bits. Each limb is shared separately over the field of the prime p = 2^23 - 15, with
independent coefficients. So fewer than t shares are independent of the secret, by Shamir's theorem limb by limb.

The small prime makes it fast: products have 46 bits, so all shares of a dealer are one matrix product of BLAS. With a
prime above 2^256 each coefficient and holder needs a multiplication of big integers, which takes 12 ms through gmpy2
for two secrets, 200 holders and t = 101. GF(2^128) in two limbs, as in PyCryptodome, takes over a second.

A share has 36 bytes per secret; the minimum is 32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from fedplug.api.errors import ProtectionError
from fedplug_std.shamir import Sharing, strangers

if TYPE_CHECKING:
    from numpy.typing import NDArray

P = 2**23 - 15
"""The prime."""
SECRET = 32
"""Bytes of a secret."""
SHARE = 36
"""Bytes of a share of one secret."""
_LIMBS, _LIMB_BITS = 12, 22


def deal(secrets: Sequence[bytes], holders: Sequence[int], threshold: int) -> dict[int, bytes]:
    """Shares of a dealer's secrets, one string for each holder; `part` cuts out the share of one secret.

    Args:
        secrets: 32 bytes each.
        holders: numbers of the clients that get a share; includes the dealer if it keeps one.
        threshold: t; this many shares open a secret, and fewer reveal nothing about it.

    Returns:
        By holder, 36 bytes for each secret, in their order.

    Raises:
        ProtectionError: no such sharing exists.
    """
    if any(len(secret) != SECRET for secret in secrets):
        lengths = ", ".join(str(len(secret)) for secret in secrets)
        raise ProtectionError(f"secrets of {lengths} bytes cannot be shared; each must have {SECRET}")
    values = Sharing(P, threshold).deal(_limbs(secrets).reshape(1, -1), holders)
    # Three of the four bytes of an element: the highest is zero.
    data = np.ascontiguousarray(values.astype("<u4").view(np.uint8).reshape(len(holders), -1, 4)[:, :, :3])
    return {holder: row.tobytes() for holder, row in zip(holders, data, strict=True)}


def part(share: bytes, which: int) -> bytes:
    """The share of secret number `which`, 36 bytes, of the string that a holder got from a dealer.

    Raises:
        ProtectionError: the string has no such part.
    """
    if which < 0 or len(share) % SHARE or (which + 1) * SHARE > len(share):
        raise ProtectionError(
            f"{len(share)} bytes hold no share of secret {which}; there must be {SHARE} for each secret"
        )
    return share[which * SHARE : (which + 1) * SHARE]


def combine(parts: Mapping[int, bytes], threshold: int) -> bytes:
    """The secret, 32 bytes, behind shares of one secret of one dealer.

    Args:
        parts: by holder, as `part` cuts them; at least `threshold`. Additional ones are checked against the others.
        threshold: t of the dealer.

    Raises:
        ProtectionError: there are too few shares, or one is malformed, and its holder is blamed, or the shares have no
            common polynomial, so at least one is wrong.
    """
    (limbs,) = Sharing(P, threshold).open({holder: _elements(holder, share) for holder, share in parts.items()})
    # 20 of the 276 bits of a sharing are not part of the secret. With random shares they are zero once in a million.
    bits = (limbs[:, None] >> np.arange(_LIMB_BITS, dtype=np.uint64) & np.uint64(1)).reshape(-1).astype(np.uint8)
    if (limbs >> np.uint64(_LIMB_BITS)).any() or bits[8 * SECRET :].any():
        raise strangers(sorted(parts))
    return np.packbits(bits[: 8 * SECRET], bitorder="little").tobytes()


def _limbs(secrets: Sequence[bytes]) -> NDArray[np.uint64]:
    """Shape (secrets, limbs)."""
    bits = np.zeros((len(secrets), _LIMBS * _LIMB_BITS), np.uint64)
    data = np.frombuffer(b"".join(secrets), np.uint8).reshape(len(secrets), SECRET)
    bits[:, : 8 * SECRET] = np.unpackbits(data, axis=1, bitorder="little")
    limbs: NDArray[np.uint64] = bits.reshape(len(secrets), _LIMBS, _LIMB_BITS) @ (
        np.uint64(1) << np.arange(_LIMB_BITS, dtype=np.uint64)
    )
    return limbs


def _elements(holder: int, share: bytes) -> NDArray[np.uint32]:
    """The elements of the share of one secret, which have three bytes each.

    Raises:
        ProtectionError: it is no share; blames its holder.
    """
    if len(share) != SHARE:
        raise ProtectionError(f"the share of client {holder} has {len(share)} bytes, expected {SHARE}").blame(holder)
    wide = np.zeros((_LIMBS, 4), np.uint8)
    wide[:, :3] = np.frombuffer(share, np.uint8).reshape(-1, 3)
    found: NDArray[np.uint32] = wide.view("<u4").reshape(-1)
    if found.max() >= P:
        raise ProtectionError(f"the share of client {holder} holds a number of 2^23 - 15 or more").blame(holder)
    return found
