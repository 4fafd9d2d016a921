"""SEAL's stream formats (SEAL 4), as far as `he_seal` needs them, through memory files.

`tenseal.sealapi` loads and saves by path only. A stream is a head of 16 bytes and members, which SEAL compresses with
Zstandard. What is found in a stream is compared with what should be there, so that another version of SEAL ends in an
error here rather than in wrong residues.
"""

from __future__ import annotations

import functools
import os
import struct
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEED_BYTES = 64
"""Of SEAL's random generator."""

_STREAM = struct.Struct("<HBBBBHQ")
"""Magic, its own bytes, major and minor version, compression, nothing, bytes of the stream."""
_MAGIC, _PLAIN, _ZSTANDARD = 0xA15E, 0, 2
_CIPHERTEXT = struct.Struct("<32s?QQQdQ")
"""Parameters' digest, NTT form, polynomials, degree, primes, scale, correction factor."""
_COUNT = struct.Struct("<Q")
_BLAKE2XB = b"\x01"
_OTHER_SEAL = "this TenSEAL writes ciphertexts in another way than SEAL 4 does; use tenseal 0.3.18"


class MemoryFile:
    """A file in memory with a path, for a library that knows nothing else; without `memfd`, an unlinked file.

    What SEAL writes there, ciphertexts of zero and keys, would open messages.
    """

    def __init__(self) -> None:
        if hasattr(os, "memfd_create"):
            self.number = os.memfd_create("fedplug", os.MFD_CLOEXEC)
            self.path = f"/proc/self/fd/{self.number}"
        else:
            with tempfile.TemporaryFile() as file:
                self.number = os.dup(file.fileno())
            self.path = f"/dev/fd/{self.number}"

    def __enter__(self) -> MemoryFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Frees the memory."""
        os.close(self.number)

    def read(self) -> bytes:
        """All of it."""
        return os.pread(self.number, os.fstat(self.number).st_size, 0)

    def write(self, data: bytes) -> None:
        """Replaces what is there."""
        os.ftruncate(self.number, 0)
        os.pwrite(self.number, data, 0)


class Streams:
    """Keys and ciphertexts of one SEAL context, as bytes. `primes` of ciphertexts; `ntt`: they travel transformed."""

    def __init__(self, seal: Any, degree: int, primes: int = 1, *, ntt: bool = False) -> None:
        self.seal, self.degree = seal, degree
        digest = struct.pack("<4Q", *seal.first_parms_id())
        self.members = _CIPHERTEXT.pack(digest, ntt, 2, degree, primes, 1.0, 1)
        with MemoryFile() as file:
            self._empty.save(file.path)
            _, _, self._major, self._minor, _, _, _ = _STREAM.unpack_from(file.read())

    def dump(self, thing: Any) -> bytes:
        """What SEAL saves of a key."""
        with MemoryFile() as file:
            thing.save(file.path)
            return file.read()

    def load(self, thing: Any, data: bytes) -> Any:
        """The key, from its bytes; SEAL checks that it fits the parameters."""
        with MemoryFile() as file:
            file.write(data)
            thing.load(self.seal, file.path)
        return thing

    def ternary(self, secret: Any) -> NDArray[np.int64]:
        """Coefficients of a secret key, shape (N,).

        SEAL decrypts (0, q / t): what it finds is the key itself, modulo t.
        """
        import tenseal.sealapi as sealapi

        parameters = self.seal.first_context_data().parms()
        plain, modulus = parameters.plain_modulus().value(), parameters.coeff_modulus()[0].value()
        c1 = np.zeros((2, self.degree), np.uint64)
        c1[1, 0] = modulus // plain
        ciphertext, found = sealapi.Ciphertext(), sealapi.Plaintext()
        self.load(ciphertext, self.ciphertext(c1.tobytes()))
        sealapi.Decryptor(self.seal, secret).decrypt(ciphertext, found)
        key = np.zeros(self.degree, np.int64)
        key[: found.coeff_count()] = [found.data(index) for index in range(found.coeff_count())]
        key[key > plain // 2] -= plain
        if np.abs(key).max() != 1:
            raise ValueError("the secret key has coefficients other than -1, 0 and 1")
        return key

    def ciphertext(self, words: bytes, tail: bytes = b"") -> bytes:
        """An uncompressed stream of a ciphertext: words of c0 and c1, or those of c0 and a seed."""
        array = self._head(8 + len(words)) + _COUNT.pack(len(words) // 8) + words
        body = self.members + array + tail
        return self._head(len(body)) + body

    def seed(self, seed: bytes) -> bytes:
        """A stream of a seed, as it ends that of a seeded ciphertext."""
        return self._head(1 + len(seed)) + _BLAKE2XB + seed

    def halves(self, data: bytes, polynomials: int) -> tuple[NDArray[np.uint64], memoryview]:
        """The first polynomial of a ciphertext that this SEAL saved, shape (N,), and what comes behind it.

        Raises:
            RuntimeError: it is laid out in another way than that of SEAL 4.
        """
        import zstandard

        magic, _, _, _, compression, _, size = _STREAM.unpack_from(data)
        body = memoryview(data)[_STREAM.size :]
        if compression == _ZSTANDARD:
            body = memoryview(zstandard.ZstdDecompressor().decompress(body))
        start = len(self.members) + _STREAM.size + _COUNT.size
        words = polynomials * self.degree
        found = bytes(body[: len(self.members)]), bytes(body[start - _COUNT.size : start])
        if (magic, size) != (_MAGIC, len(data)) or found != (self.members, _COUNT.pack(words)):
            raise RuntimeError(_OTHER_SEAL)
        return np.frombuffer(body, np.uint64, self.degree, start), body[start + 8 * self.degree :]

    def _head(self, size: int) -> bytes:
        return _STREAM.pack(_MAGIC, _STREAM.size, self._major, self._minor, _PLAIN, 0, _STREAM.size + size)

    @functools.cached_property
    def _empty(self) -> Any:
        import tenseal.sealapi as sealapi

        return sealapi.Ciphertext(self.seal)


class Zeros:
    """Fresh ciphertexts of zero, from SEAL's own generator, which it seeds from the system for every ciphertext."""

    def __init__(self, streams: Streams, encryptor: Any, *, seeded: bool) -> None:
        import tenseal.sealapi as sealapi

        self.streams, self.encryptor, self.seeded = streams, encryptor, seeded
        self.file, self.ciphertext = MemoryFile(), sealapi.Ciphertext()

    def __enter__(self) -> Zeros:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def fill(self, ciphertexts: NDArray[np.uint64]) -> list[bytes]:
        """Fills c0 and c1, shape (m, 2, N), or c0 alone, shape (m, 1, N), where seeds stand for c1.

        Returns:
            The seeds, of `SEED_BYTES`; empty where c1 is there.
        """
        return [self._seeded(one[0]) if self.seeded else self._pair(one) for one in ciphertexts]

    def _seeded(self, first: NDArray[np.uint64]) -> bytes:
        self.encryptor.encrypt_zero_symmetric().save(self.file.path)
        first[:], rest = self.streams.halves(self.file.read(), 1)
        seed = bytes(rest[-SEED_BYTES:])
        if rest != self.streams.seed(seed):
            raise RuntimeError(f"{_OTHER_SEAL}: a seed takes {len(rest)} bytes")
        return seed

    def _pair(self, pair: NDArray[np.uint64]) -> bytes:
        self.encryptor.encrypt_zero(self.ciphertext)
        self.ciphertext.save(self.file.path)
        pair[0], rest = self.streams.halves(self.file.read(), 2)
        pair[1] = np.frombuffer(rest, np.uint64)
        return b""


class Expander:
    """Sums of the polynomials that seeds stand for, by SEAL; any number of sums side by side.

    SEAL draws them with its own generator and rejects what would be biased, so it has to be SEAL that expands them.
    """

    def __init__(self, streams: Streams) -> None:
        import tenseal.sealapi as sealapi

        self.streams, self.totals = streams, dict[int, Any]()
        self.evaluator, self.scratch = sealapi.Evaluator(streams.seal), sealapi.Ciphertext()
        self.file = MemoryFile()
        data = streams.ciphertext(bytes(8 * streams.degree), streams.seed(bytes(SEED_BYTES)))
        self.file.write(data)
        self.offset = len(data) - SEED_BYTES

    def __enter__(self) -> Expander:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def add(self, index: int, seed: bytes) -> None:
        """Adds what a seed stands for to one of the sums."""
        import tenseal.sealapi as sealapi

        os.pwrite(self.file.number, seed, self.offset)
        target = self.scratch if index in self.totals else self.totals.setdefault(index, sealapi.Ciphertext())
        target.load(self.streams.seal, self.file.path)
        if target is self.scratch:
            self.evaluator.add_inplace(self.totals[index], self.scratch)

    def sums(self) -> Iterator[tuple[int, NDArray[np.uint64]]]:
        """(index, sum), shape (N,), for each sum that something was added to."""
        for index, total in self.totals.items():
            total.save(self.file.path)
            _, c1 = self.streams.halves(self.file.read(), 2)
            yield index, np.frombuffer(c1, np.uint64)
