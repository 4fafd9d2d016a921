"""Additive encryption under one prime, by Microsoft SEAL through `tenseal.sealapi`: the backend of BFV and of CKKS.

SEAL encrypts zero, which is where all randomness is, and the scaled message is added to c0: that is how both schemes
are defined (Fan & Vercauteren 2012, Sec. 4; Cheon et al. 2017, Sec. 3.4). Messages are coefficients, or values of the
canonical embedding, and not slots of SEAL's batch encoder, which sums do not need. Where clients hold the secret key
they encrypt with it, and SEAL's seed stands for c1: half the bytes. Everything after that is addition of residues and
`Ring.phase`; ciphertexts of other parties meet SEAL only as a seed of 64 bytes to expand.

What travels is a head of `_HEAD`, the packed residues of c0, and those of c1 or the seed.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.errors import MessageError, ProtectionError

from fedplug_std._seal_streams import SEED_BYTES, Expander, Zeros
from fedplug_std.he_contexts import RingContext
from fedplug_std.he_ring import Residues

if TYPE_CHECKING:
    from numpy.typing import NDArray

VERSION = 1
"""Of ciphertexts on the wire; raise it when their bytes change."""

_HEAD = struct.Struct("<2sBBHHQ")
"""Of a ciphertext: magic, version, kind, degree, bits of a residue, sum of all words behind it modulo 2^64.

The sum finds damage, which otherwise changes single values without notice. It is not a signature.
"""
_MAGIC, _SEEDED, _PAIR = b"FR", 1, 2
_CHUNK = 8
"""Ciphertexts worked on at once: half a megabyte, which stays in the cache."""


@dataclasses.dataclass(frozen=True)
class Seal:
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
        """A context with new keys from SEAL, without a public key if the secret key is what encrypts."""
        import tenseal.sealapi as sealapi

        bare = RingContext(self.scheme, self.degree, self.coeff_bits, scale)
        generator = sealapi.KeyGenerator(bare.seal)
        secret = bare.streams.dump(generator.secret_key())
        if symmetric:
            return dataclasses.replace(bare, secret_key=secret)
        public = sealapi.PublicKey()
        generator.create_public_key(public)
        return dataclasses.replace(bare, secret_key=secret, public_key=bare.streams.dump(public))

    def dump_context(self, context: RingContext, *, public_key: bool = False, secret_key: bool = False) -> bytes:
        """The parameters as bytes (24), with those keys that are asked for and no others."""
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
        ring, seeded = context.ring, not context.public_key
        fresh = np.empty((_CHUNK, 1 if seeded else 2, self.degree), np.uint64)
        with Zeros(context.streams, context.encryptor, seeded=seeded) as source:
            for start in range(0, len(rows), _CHUNK):
                message = self._scaled(context, self._whole(rows[start : start + _CHUNK]))
                zeros = fresh[: len(message)]
                seeds = source.fill(zeros)
                ring.add_to(zeros[:, 0], message)
                packed = ring.pack(zeros.reshape(-1, self.degree)).reshape(len(zeros), -1)
                found += [self._sealed(context, words, seed) for words, seed in zip(packed, seeds, strict=True)]
        return tuple(found)

    def add(
        self, context: RingContext, uploads: Iterable[tuple[str, Sequence[bytes]]], slots: int
    ) -> tuple[bytes, ...]:
        """Sums ciphertexts position by position; needs a context with parameters only.

        Raises:
            MessageError: a ciphertext is damaged or of other parameters; the message says whose.
        """
        totals, terms = np.empty((0, 2, self.degree), np.uint64), 0
        with Expander(context.streams) as expander:
            for whose, ciphertexts in uploads:
                if not len(totals):
                    totals = np.zeros((len(ciphertexts), 2, self.degree), np.uint64)
                if (terms := terms + 1) == context.ring.most_terms:
                    context.ring.reduce(totals)
                    terms = 2
                for start in range(0, len(ciphertexts), _CHUNK):
                    pairs, seeds = self._parse(context, ciphertexts[start : start + _CHUNK], start, f" of {whose}")
                    totals[start : start + len(pairs)] += pairs
                    for index, seed in seeds.items():
                        expander.add(index, seed)
            context.ring.reduce(totals)
            for index, c1 in expander.sums():
                context.ring.add_to(totals[index, 1], c1)
        found: list[bytes] = []
        for start in range(0, len(totals), _CHUNK):
            packed = context.ring.pack(totals[start : start + _CHUNK].reshape(-1, self.degree))
            found += [self._sealed(context, words) for words in packed.reshape(-1, 2 * context.ring.num_words)]
        return tuple(found)

    def decrypt(self, context: RingContext, ciphertexts: Sequence[bytes], slots: int) -> NDArray[Any]:
        """Rows of the first `slots` slots, shape (m, slots): int64, of at least 0, for `bfv`; float64 for `ckks`.

        Raises:
            ProtectionError: the context holds no secret key.
            MessageError: a ciphertext is damaged or of other parameters.
        """
        if not context.has_secret_key():
            raise ProtectionError("this party holds no secret key and cannot decrypt; key_holder says who does")
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

    def _sealed(self, context: RingContext, words: Residues, seed: bytes = b"") -> bytes:
        """A ciphertext as it travels."""
        total = int(words.sum()) + int(np.frombuffer(seed, np.uint64).sum()) & 2**64 - 1
        head = _HEAD.pack(_MAGIC, VERSION, _SEEDED if seed else _PAIR, self.degree, context.ring.bits, total)
        return head + words.tobytes() + seed

    def _whole(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Rows of all N slots."""
        return rows if rows.shape[1] == self.degree else np.pad(rows, ((0, 0), (0, self.degree - rows.shape[1])))

    def _scaled(self, context: RingContext, rows: NDArray[Any]) -> Residues:
        if self.scheme == "bfv":
            scaled = rows << int(context.scale).bit_length() - 1
        else:
            scaled = np.rint(context.ring.embed(rows) * context.scale).astype(np.int64)
        return context.ring.residues_of(scaled)

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
        pairs, seeds = self._parse(context, ciphertexts, start, "")
        if seeds:  # an upload, and no sum
            with Expander(context.streams) as expander:
                for index, seed in seeds.items():
                    expander.add(index, seed)
                for index, c1 in expander.sums():
                    pairs[index - start, 1] = c1
        return context.ring.phase(pairs[:, 0], pairs[:, 1], context.key_spectrum, lowest)

    def _parse(
        self, context: RingContext, ciphertexts: Sequence[bytes], start: int, where: str
    ) -> tuple[Residues, dict[int, bytes]]:
        """Residues, shape (m, 2, N), zero where c1 is a seed; and seeds by the number of their ciphertext.

        Raises:
            MessageError: bytes are not a ciphertext of these parameters.
        """
        ring, words = context.ring, context.ring.num_words
        packed = np.zeros((len(ciphertexts), 2, words), np.uint64)
        seeds: dict[int, bytes] = {}
        for index, data in enumerate(ciphertexts):
            wrong, parts = self._wrong(context, data)
            if not wrong:
                body = np.frombuffer(data, np.uint64, -1, _HEAD.size)
                packed[index, :parts] = body[: parts * words].reshape(parts, words)
                if parts == 1:
                    seeds[start + index] = data[-SEED_BYTES:]
                if int(body.sum()) != _HEAD.unpack_from(data)[-1]:
                    wrong = "its words are not those that were sent"
            if wrong:
                raise MessageError(
                    f"ciphertext {start + index}{where} cannot be used ({wrong}); it was damaged or its sender uses "
                    "other parameters"
                )
        pairs = ring.unpack(packed.reshape(-1, words)).reshape(len(packed), 2, -1)
        if pairs.size and pairs.max() >= ring.modulus:
            index = int(np.argmax(pairs.max((1, 2)) >= ring.modulus))
            raise MessageError(f"ciphertext {start + index}{where} cannot be used (a residue is not below the modulus)")
        return pairs, seeds

    def _wrong(self, context: RingContext, data: Any) -> tuple[str, int]:
        """What is wrong with the head of a ciphertext, or nothing, and how many polynomials are in it."""
        if not isinstance(data, bytes) or len(data) < _HEAD.size:
            return "it is not a ciphertext", 0
        magic, version, kind, degree, bits, _ = _HEAD.unpack_from(data)
        if magic != _MAGIC or kind not in (_SEEDED, _PAIR):
            return "it is not a ciphertext", 0
        if version != VERSION:
            return f"it is of version {version}, where this fedplug reads {VERSION}", 0
        if (degree, bits) != (self.degree, context.ring.bits):
            return f"it is of degree {degree} and {bits} bits, not {self.degree} and {context.ring.bits}", 0
        parts = 1 if kind == _SEEDED else 2
        expected = _HEAD.size + 8 * parts * context.ring.num_words + (SEED_BYTES if kind == _SEEDED else 0)
        return "" if len(data) == expected else f"it has {len(data)} bytes, not {expected}", parts
