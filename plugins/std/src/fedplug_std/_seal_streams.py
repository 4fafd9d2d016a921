"""Keys and ciphertexts in SEAL's stream formats (SEAL 4), through memory files.

`tenseal.sealapi` loads and saves by path only. A stream is a head of 16 bytes and members. Those that are made here are
not compressed; SEAL checks them on loading.
"""

from __future__ import annotations

import functools
import os
import struct
import tempfile
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_STREAM = struct.Struct("<HBBBBHQ")
"""Magic, its own bytes, major and minor version, compression, nothing, bytes of the stream."""
_MAGIC, _PLAIN = 0xA15E, 0
_CIPHERTEXT = struct.Struct("<32s?QQQdQ")
"""Parameters' digest, NTT form, polynomials, degree, primes, scale, correction factor."""
_COUNT = struct.Struct("<Q")


class MemoryFile:
    """A file in memory with a path, for a library that accepts only paths; without `memfd`, an unlinked file.

    SEAL writes keys there.
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
        """Replaces the content."""
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
        """SEAL's serialised key."""
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

        SEAL decrypts (0, q / t), which gives the key itself modulo t.
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

    def ciphertext(self, words: bytes) -> bytes:
        """An uncompressed stream of a ciphertext: words of c0 and c1."""
        body = self.members + self._head(8 + len(words)) + _COUNT.pack(len(words) // 8) + words
        return self._head(len(body)) + body

    def _head(self, size: int) -> bytes:
        return _STREAM.pack(_MAGIC, _STREAM.size, self._major, self._minor, _PLAIN, 0, _STREAM.size + size)

    @functools.cached_property
    def _empty(self) -> Any:
        import tenseal.sealapi as sealapi

        return sealapi.Ciphertext(self.seal)
