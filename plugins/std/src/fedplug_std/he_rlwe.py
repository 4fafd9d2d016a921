"""Additive encryption under one prime, in numpy: the backend of BFV and of CKKS.

Both schemes add the scaled message to c0 of an encryption of zero (Fan & Vercauteren 2012, Sec. 4; Cheon et al. 2017,
Sec. 3.4), with the parameters and the distributions of Microsoft SEAL, which makes the secret keys, refuses parameters
below 128 bits of security, and decrypts these ciphertexts in the tests. Messages are coefficients, or values of the
canonical embedding, and not slots of SEAL's batch encoder, which sums do not need. If clients hold the secret key, they
encrypt with it: c1 is drawn, c0 is m + e - c1 s, and a seed replaces c1, which halves the bytes. The lowest bits of
this c0 do not travel if the scheme has room for the rounding, as for noise. For encryption with a public key see
`he_public`.

A message holds a head of `_HEAD`, the packed residues of c0, and those of c1 or the seed.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.errors import MessageError, ProtectionError

from fedplug_std.he_contexts import RingContext
from fedplug_std.he_packing import pack, packed_bytes, unpack
from fedplug_std.he_public import make_key
from fedplug_std.he_random import SEED_BYTES, Secrets, new_seed, uniform

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedplug_std.he_ring import Residues

VERSION = 2
"""Of ciphertexts on the wire; raise it when their bytes change."""

_HEAD = struct.Struct("<2sBBHHQ")
"""Of a ciphertext: magic, version, kind, degree, bits of a residue of c0, sum of all words behind it modulo 2^64.

The sum detects damage, which would silently change single values. It is not a signature.
"""
_MAGIC, _SEEDED, _PAIR = b"FR", 1, 2
_KEYS_TRIED = 3
_CHUNK = 8
"""Number of ciphertexts processed at once: half a megabyte, which stays in the cache."""


def dropped_variance(bits: int) -> float:
    """Of what leaving out that many of the lowest bits adds to a coefficient of c0."""
    return (4**bits + 2) / 12 if bits else 0.0


@dataclasses.dataclass(frozen=True)
class Rlwe:
    """The backend of `std.bfv`, and of `std.ckks` with one prime; see `fedplug_std.he_blocks.Backend`.

    Rows of slots are N numbers: integers for `bfv`, reals for `ckks` (real parts of N / 2 values, then imaginary ones).

    Attributes:
        scheme: `bfv` (integers) or `ckks` (real numbers).
        degree: N, of the ring.
        coeff_bits: of the prime of the ciphertexts, and of the one that only keys have.
    """

    scheme: str
    degree: int
    coeff_bits: tuple[int, int]

    def new_context(self, scale: float, *, symmetric: bool) -> RingContext:
        """A context with new keys from SEAL, without a public key if the secret key encrypts."""
        bare = RingContext(self.scheme, self.degree, self.coeff_bits, scale)
        context = self._with_secret(bare)
        if symmetric:
            return context
        return dataclasses.replace(context, public_key=make_key(bare.ring, bare.special, context.key_spectrum))

    def dump_context(self, context: RingContext, *, public_key: bool = False, secret_key: bool = False) -> bytes:
        """The parameters as bytes (29), with the requested keys only."""
        return context.dump(public_key=public_key, secret_key=secret_key)

    def load_context(self, data: bytes) -> RingContext:
        """A context from `dump_context`.

        Raises:
            MessageError: the bytes are not a context, or one of other parameters.
        """
        context = RingContext.load(data)
        if (context.scheme, context.degree, context.coeff_bits) != (self.scheme, self.degree, self.coeff_bits):
            raise MessageError(
                f"an encryption context of {context.scheme} {context.degree} {list(context.coeff_bits)}, not of "
                f"{self.scheme} {self.degree} {list(self.coeff_bits)}"
            )
        context.use_keys()
        return context

    def encrypt(self, context: RingContext, rows: NDArray[Any]) -> tuple[bytes, ...]:
        """One ciphertext for each row of slots, shape (m, N), or (m, n) for n < N, of which the others are zero.

        Raises:
            ProtectionError: the context holds no key.
        """
        if not (context.public_key or context.secret_key):
            raise ProtectionError("this party holds no key of the encryption, so it cannot encrypt; it can only add")
        found: list[bytes] = []
        for start in range(0, len(rows), _CHUNK):
            message = self._scaled(context, self._whole(rows[start : start + _CHUNK]))
            if context.public_key:
                pairs = context.encrypts.encrypt(message)
                found += self._sealed(context, pairs[:, 0], pairs[:, 1])
            else:
                seeds = [new_seed() for _ in message]
                found += self._sealed(context, self._under_secret(context, message, seeds), seeds)
        return tuple(found)

    def add(self, context: RingContext, uploads: Iterable[Sequence[bytes]], slots: int) -> tuple[bytes, ...]:
        """Sums ciphertexts position by position; needs a context with parameters only.

        Raises:
            MessageError: a ciphertext is damaged or of other parameters, of the upload that was drawn last.
        """
        ring = context.ring
        totals, terms = np.empty((0, 2, self.degree), np.uint64), 0
        for ciphertexts in uploads:
            if not len(totals):
                totals = np.zeros((len(ciphertexts), 2, self.degree), np.uint64)
            if (terms := terms + 1) == ring.most_terms:
                ring.reduce(totals)
                terms = 2
            for start in range(0, len(ciphertexts), _CHUNK):
                pairs = self._parse(context, ciphertexts[start : start + _CHUNK], start)
                totals[start : start + len(pairs)] += pairs
        found: list[bytes] = []
        for start in range(0, len(totals), _CHUNK):
            pairs = totals[start : start + _CHUNK]
            ring.reduce(pairs)
            found += self._sealed(context, pairs[:, 0], pairs[:, 1])
        return tuple(found)

    def decrypt(self, context: RingContext, ciphertexts: Sequence[bytes], slots: int) -> NDArray[Any]:
        """Rows of the first `slots` slots, shape (m, slots): int64, of at least 0, for `bfv`; float64 for `ckks`.

        Raises:
            ProtectionError: the context holds no secret key.
            MessageError: a ciphertext is damaged or of other parameters.
        """
        if not context.has_secret_key():
            raise ProtectionError("this party holds no secret key and cannot decrypt; see key_holder")
        rows = np.empty((len(ciphertexts), self.degree), np.int64 if self.scheme == "bfv" else np.float64)
        for start in range(0, len(rows), _CHUNK):
            rows[start : start + _CHUNK] = self._opened(context, ciphertexts[start : start + _CHUNK], start)
        return rows[:, :slots]

    def noise(self, context: RingContext, repeats: int = 8) -> float:
        """Standard deviation of the noise of one fresh encryption, in coefficients, from `repeats` times N of them."""
        zeros = self.encrypt(context, np.zeros((repeats, self.degree), np.int64))
        phases = self._phases(context, zeros, 0, -context.ring.modulus // 2)
        return float(np.sqrt(np.mean(phases.astype(np.float64) ** 2)))

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _with_secret(self, bare: RingContext) -> RingContext:
        """With a secret key that `Ring.products` has a bound for, which one in ten million is not."""
        import tenseal.sealapi as sealapi

        for _ in range(_KEYS_TRIED):
            secret = bare.streams.dump(sealapi.KeyGenerator(bare.seal).secret_key())
            context = dataclasses.replace(bare, secret_key=secret)
            try:
                context.key_spectrum  # noqa: B018
            except ValueError as error:
                problem = error
            else:
                return context
        raise ProtectionError(f"SEAL made {_KEYS_TRIED} secret keys, none of use here ({problem}); use tenseal 0.3.18")

    def _under_secret(self, context: RingContext, message: NDArray[np.int64], seeds: list[bytes]) -> Residues:
        """c0 of ciphertexts with c1 from these seeds; the message becomes m + e."""
        message += Secrets().errors(*message.shape)
        c1 = np.empty(message.shape, np.uint64)
        for row, seed in zip(c1, seeds, strict=True):
            uniform(seed, 0, context.ring.modulus, row)
        c0 = context.ring.phase(message, c1, -context.key_spectrum).view(np.uint64)
        return self._shortened(context, c0, c1)

    def _shortened(self, context: RingContext, c0: Residues, c1: Residues) -> Residues:
        """c0 without its lowest bits, rounded without bias.

        A bit of c1, which is uniform, makes up for there being as many numbers above the middle as below it and one
        more: half a step too many in every coefficient would be a large number in some slots of a sum.
        """
        if not context.dropped:
            return c0
        rounded = c0 + np.uint64(1 << context.dropped - 1)
        rounded -= c1 & np.uint64(1)
        rounded >>= np.uint64(context.dropped)
        return rounded

    def _sealed(self, context: RingContext, c0: Residues, others: Residues | list[bytes]) -> list[bytes]:
        """Serialised ciphertexts: c0, and c1 or its seeds."""
        kind, bits = _SEEDED, context.ring.bits - context.dropped
        if isinstance(others, np.ndarray):
            kind, bits, others = _PAIR, context.ring.bits, [row.tobytes() for row in pack(others, context.ring.bits)]
        found = []
        for first, second in zip(pack(c0, bits), others, strict=True):
            total = int(first.view(np.uint64).sum()) + int(np.frombuffer(second, np.uint64).sum()) & 2**64 - 1
            head = _HEAD.pack(_MAGIC, VERSION, kind, self.degree, bits, total)
            found.append(head + first.tobytes() + second)
        return found

    def _whole(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Rows of all N slots."""
        return rows if rows.shape[1] == self.degree else np.pad(rows, ((0, 0), (0, self.degree - rows.shape[1])))

    def _scaled(self, context: RingContext, rows: NDArray[Any]) -> NDArray[np.int64]:
        if self.scheme == "bfv":
            return rows << int(context.scale).bit_length() - 1
        return np.rint(context.ring.embed(rows) * context.scale).astype(np.int64)

    def _opened(self, context: RingContext, ciphertexts: Sequence[bytes], start: int) -> NDArray[Any]:
        if self.scheme == "ckks":
            phases = self._phases(context, ciphertexts, start, -context.ring.modulus // 2)
            return context.ring.slots(phases.astype(np.float64)) / context.scale
        half = int(context.scale) // 2
        phases = self._phases(context, ciphertexts, start, -half)
        phases += half
        phases >>= half.bit_length()
        return phases

    def _phases(self, context: RingContext, ciphertexts: Sequence[bytes], start: int, lowest: int) -> NDArray[np.int64]:
        pairs = self._parse(context, ciphertexts, start)
        return context.ring.phase(pairs[:, 0].view(np.int64), pairs[:, 1], context.key_spectrum, lowest)

    def _parse(self, context: RingContext, ciphertexts: Sequence[bytes], start: int) -> Residues:
        """c0 and c1, shape (m, 2, N): numbers with as many bits as the modulus, each of which represents a residue.

        Raises:
            MessageError: bytes are not a ciphertext of these parameters.
        """
        ring = context.ring
        pairs = np.empty((len(ciphertexts), 2, self.degree), np.uint64)
        kinds = [self._kind(context, data, f"ciphertext {start + index}") for index, data in enumerate(ciphertexts)]
        for kind in set(kinds):  # usually they are all equal
            alike = [index for index, one in enumerate(kinds) if one == kind]
            packed = np.stack([np.frombuffer(ciphertexts[index], np.uint8, -1, _HEAD.size) for index in alike])
            target, bits = pairs if len(alike) == len(pairs) else pairs[alike], ring.bits
            if kind == _SEEDED:
                bits -= context.dropped
            cut = packed_bytes(self.degree, bits)
            unpack(packed[:, :cut], bits, target[:, 0])
            if kind == _PAIR:
                unpack(packed[:, cut:], bits, target[:, 1])
            else:
                target[:, 0] <<= np.uint64(context.dropped)
                for c1, seed in zip(target[:, 1], packed[:, cut:], strict=True):
                    uniform(seed.tobytes(), 0, ring.modulus, c1)
            if target is not pairs:
                pairs[alike] = target
        return pairs

    def _kind(self, context: RingContext, data: Any, which: str) -> int:
        """The kind of a ciphertext.

        Raises:
            MessageError: it is not a ciphertext of these parameters.
        """
        wrong = "it is not a ciphertext"
        if isinstance(data, bytes) and len(data) >= _HEAD.size:
            magic, version, kind, degree, bits, total = _HEAD.unpack_from(data)
            most = context.ring.bits - (context.dropped if kind == _SEEDED else 0)
            rest = SEED_BYTES if kind == _SEEDED else packed_bytes(self.degree, most)
            expected = _HEAD.size + packed_bytes(self.degree, most) + rest
            if magic != _MAGIC or kind not in (_SEEDED, _PAIR):
                pass
            elif version != VERSION:
                wrong = f"it is of version {version}, but this fedplug reads {VERSION}"
            elif (degree, bits) != (self.degree, most):
                wrong = f"it is of degree {degree} and {bits} bits, not {self.degree} and {most}"
            elif len(data) != expected:
                wrong = f"it has {len(data)} bytes, not {expected}"
            elif int(np.frombuffer(data, np.uint64, -1, _HEAD.size).sum()) != total:
                wrong = "its checksum is wrong"
            else:
                return int(kind)
        raise MessageError(f"{which} cannot be used ({wrong}); it was damaged or its sender uses other parameters")
