"""CKKS with several primes, through TenSEAL's public vectors; TenSEAL is imported for the first computation.

Rows of slots go in, one serialised ciphertext a row comes out; contexts never travel inside them. No Galois and no
relinearisation keys are kept: sums need neither, and a context with them is 35 MB.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.errors import MessageError, ProtectionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

from fedplug_std._seal_streams import Streams

FRESH = 128
"""How many ciphertexts `noise` encrypts; more are simulated by doubling."""


def ckks_context(degree: int, coeff_bits: Sequence[int], scale_bits: int, *, symmetric: bool) -> Any:
    """A CKKS context with new keys. `symmetric` encrypts with the secret key: faster, less noise, no public key."""
    import tenseal as ts

    context = ts.context(
        ts.SCHEME_TYPE.CKKS, degree, coeff_mod_bit_sizes=list(coeff_bits), n_threads=1,
        encryption_type=ts.ENCRYPTION_TYPE.SYMMETRIC if symmetric else ts.ENCRYPTION_TYPE.ASYMMETRIC,
    )  # fmt: skip
    context.global_scale = 2.0**scale_bits
    return context


class TenSeal:
    """The backend of CKKS with several primes, as in tutorials; see `fedplug_std.he_blocks.Backend`."""

    def dump_context(self, context: Any, *, public_key: bool = False, secret_key: bool = False) -> bytes:
        """The parameters as bytes (about 0.1 kB), with the requested keys only."""
        data: bytes = context.serialize(
            save_public_key=public_key, save_secret_key=secret_key, save_galois_keys=False, save_relin_keys=False
        )
        return data

    def load_context(self, data: bytes) -> Any:
        """A context from `dump_context`.

        Raises:
            MessageError: the bytes are not a context.
        """
        import tenseal as ts

        try:
            return ts.context_from(data, 1)  # one thread: parallel work is spread over processes, not threads
        except Exception as error:  # the C++ library raises many types, none of them its own
            what = f"{len(data)} bytes are not an encryption context ({error})"
            raise MessageError(f"{what}; they were damaged") from error

    def encrypt(self, context: Any, rows: NDArray[Any]) -> tuple[bytes, ...]:
        """One serialised ciphertext for each row of slots.

        Args:
            context: with a public key, or a symmetric one with the secret key.
            rows: shape (m, slots). One ciphertext's slots each: longer vectors make TenSEAL print warnings.
        """
        import tenseal as ts

        return tuple(ts.ckks_vector(context, row).serialize() for row in rows)

    def decrypt(self, context: Any, ciphertexts: Sequence[bytes], slots: int) -> NDArray[Any]:
        """Rows of slots, float64, shape (m, slots).

        Raises:
            ProtectionError: the context holds no secret key.
            MessageError: a ciphertext is damaged or of other parameters.
        """
        if not context.has_secret_key():
            raise ProtectionError("this party holds no secret key and cannot decrypt; see key_holder")
        rows = np.empty((len(ciphertexts), slots))
        for index, data in enumerate(ciphertexts):
            vector = _load(context, data, slots, f"ciphertext {index}")
            # The explicit dtype matters: numpy takes 2.5 times as long to convert a list whose type it has to find out.
            rows[index] = np.array(_guarded(vector.decrypt, f"ciphertext {index}"), rows.dtype)
        return rows

    def add(self, context: Any, uploads: Iterable[Sequence[bytes]], slots: int) -> tuple[bytes, ...]:
        """Sums ciphertexts position by position; needs a context with parameters only.

        Args:
            context: may hold no key at all.
            uploads: ciphertexts of each, equally many.
            slots: of one ciphertext.

        Raises:
            MessageError: a ciphertext is damaged or of other parameters, of the upload that was drawn last.
        """
        totals: list[Any] = []
        for ciphertexts in uploads:
            for index, data in enumerate(ciphertexts):
                where = f"ciphertext {index}"
                vector = _load(context, data, slots, where)
                if index < len(totals):
                    _guarded(functools.partial(totals[index].add_, vector), where)
                else:
                    totals.append(vector)
        return tuple(total.serialize() for total in totals)


def key_sizes(context: Any) -> NDArray[np.float64]:
    """|s(z)|^2 of the secret key in every slot, shape (N / 2,).

    SEAL decrypts (0, 1), which gives the key itself.
    """
    import tenseal.sealapi as sealapi

    seal = context.seal_context().data
    parameters = seal.first_context_data().parms()
    degree, primes = parameters.poly_modulus_degree(), len(parameters.coeff_modulus())
    streams = Streams(seal, degree, primes, ntt=True)
    words = np.zeros((2, primes, degree), np.uint64)
    words[1] = 1  # one, transformed
    ciphertext, found = streams.load(sealapi.Ciphertext(), streams.ciphertext(words.tobytes())), sealapi.Plaintext()
    sealapi.Decryptor(seal, context.secret_key().data).decrypt(ciphertext, found)
    sizes: NDArray[np.float64] = np.abs(np.array(sealapi.CKKSEncoder(seal).decode_complex(found))) ** 2
    return sizes


def noise(context: Any, slots: int, updates: int, most: float) -> float:
    """Standard deviation of a coefficient's noise of one fresh encryption, as found in a sum of `updates`.

    Beyond `FRESH` encryptions the sum is doubled instead: noise of independent encryptions grows with the square root
    of their number, so doubling once corresponds to four times as many.

    Args:
        context: with a secret key.
        slots: N / 2.
        updates: in the sum.
        most: the largest value of the sum. The encoding error in float64 counts as noise.
    """
    import tenseal as ts

    fresh = min(updates, FRESH)
    doublings = math.ceil(math.log2(updates / fresh) / 2)
    times = fresh * 2**doublings
    # Of random signs: a row of equal values is one coefficient, and shows nothing of the encoding's rounding.
    row = np.random.default_rng().choice([-1.0, 1.0], slots) * (most / times)
    total = ts.ckks_vector(context, row)
    for _ in range(fresh - 1):
        total.add_(ts.ckks_vector(context, row))
    for _ in range(doublings):
        total.add_(total.copy())
    variance = float(np.mean((np.array(total.decrypt()) - times * row) ** 2))
    # Four deviations of what one row says of it, since slots differ.
    return 1.07 * math.sqrt(variance / (fresh * 4**doublings * slots)) * float(context.global_scale)


def _load(context: Any, data: bytes, slots: int, where: str) -> Any:
    """A ciphertext with the shape of a fresh one: one polynomial pair, all slots."""
    import tenseal as ts

    vector = _guarded(lambda: ts.ckks_vector_from(context, data), where)
    parts = vector.ciphertext()
    if vector.size() != slots or len(parts) != 1 or parts[0].size() != 2:
        raise MessageError(
            f"{where} has {vector.size()} slots in {len(parts)} parts; expected {slots} in one: it was damaged, or its "
            f"sender uses other parameters"
        )
    return vector


def _guarded(call: Callable[[], Any], where: str) -> Any:
    """Turns any error of the C++ library for bad bytes into one error with the place."""
    try:
        return call()
    except Exception as error:
        raise MessageError(f"{where} cannot be used ({error}); it was damaged or its sender uses other keys") from error
