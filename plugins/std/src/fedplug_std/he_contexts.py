"""Contexts of the ring-based encryptions: parameters and the keys of one party, in memory and as bytes."""

from __future__ import annotations

import dataclasses
import functools
import math
import struct
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.errors import MessageError

from fedplug_std._seal_streams import Streams
from fedplug_std.he_public import PublicKey
from fedplug_std.he_ring import Ring

if TYPE_CHECKING:
    from numpy.typing import NDArray

VERSION = 2
"""Of contexts on the wire; raise it when their bytes change."""

_HEAD = struct.Struct("<2sBBHBBBdIII")
"""Magic, version, scheme, degree, bits of both primes, dropped bits, scale, bytes of the public and of the secret key,
and the CRC of everything before and after it."""
_MAGIC = b"FC"
_SCHEMES = {1: "bfv", 2: "ckks"}


@dataclasses.dataclass(frozen=True, eq=False)
class RingContext:
    """Parameters, and the keys of its holder.

    Attributes:
        scheme: `bfv` or `ckks`.
        degree: of the ring.
        coeff_bits: of the prime of the ciphertexts, and of the one that only keys have.
        scale: the factor on messages; a power of two for `bfv`.
        dropped: lowest bits of c0 that uploads of clients with the secret key leave out, for which the scheme has room.
        public_key: key of `he_public`; empty for a party that does not hold it.
        secret_key: SEAL's serialised key; empty likewise.
    """

    scheme: str
    degree: int
    coeff_bits: tuple[int, int]
    scale: float
    dropped: int = 0
    public_key: bytes = dataclasses.field(default=b"", repr=False)
    secret_key: bytes = dataclasses.field(default=b"", repr=False)

    @functools.cached_property
    def seal(self) -> Any:
        """SEAL's context, at 128-bit security.

        Raises:
            ValueError: SEAL refuses the parameters.
        """
        return _seal_context(self.degree, self.coeff_bits)

    @functools.cached_property
    def ring(self) -> Ring:
        """Of the ciphertexts."""
        return Ring(self.degree, _primes(self.degree, self.coeff_bits)[0])

    @functools.cached_property
    def special(self) -> Ring:
        """Of what only keys have."""
        return Ring(self.degree, _primes(self.degree, self.coeff_bits)[1])

    @functools.cached_property
    def streams(self) -> Streams:
        """SEAL's formats."""
        return Streams(self.seal, self.degree)

    @functools.cached_property
    def encrypts(self) -> PublicKey:
        """The public key."""
        return PublicKey(self.ring, self.special, self.public_key)

    @functools.cached_property
    def key_spectrum(self) -> NDArray[np.complex128]:
        """Of the secret key, whose coefficients are -1, 0 and 1.

        Raises:
            ValueError: the bound of `Ring.products` does not hold for it, which happens for one key in ten million.
        """
        return self.ring.fixed(self.streams.ternary(self._secret))

    @functools.cached_property
    def _secret(self) -> Any:
        import tenseal.sealapi as sealapi

        return self.streams.load(sealapi.SecretKey(), self.secret_key)

    def has_secret_key(self) -> bool:
        """Whether its holder can decrypt."""
        return bool(self.secret_key)

    def use_keys(self) -> None:
        """Prepares the available keys.

        Raises:
            MessageError: they are not keys, or not of these parameters.
        """
        try:
            if self.public_key:
                self.encrypts  # noqa: B018
            if self.secret_key:
                self.key_spectrum  # noqa: B018
        except Exception as error:  # the C++ library raises many types, none of them its own
            raise MessageError(f"an encryption context whose keys cannot be used ({error}); it was damaged") from error

    def dump(self, *, public_key: bool = False, secret_key: bool = False) -> bytes:
        """The parameters as bytes (29), with the requested keys only."""
        public, secret = self.public_key * public_key, self.secret_key * secret_key
        scheme = next(number for number, name in _SCHEMES.items() if name == self.scheme)
        numbers = self.degree, *self.coeff_bits, self.dropped, self.scale, len(public), len(secret)
        fields = _MAGIC, VERSION, scheme, *numbers
        head = _HEAD.pack(*fields, 0)
        return _HEAD.pack(*fields, zlib.crc32(head + public + secret)) + public + secret

    @classmethod
    def load(cls, data: bytes) -> RingContext:
        """A context from `dump`; its keys are not checked.

        Raises:
            MessageError: the bytes are not a context.
        """
        fields = _HEAD.unpack_from(data) if len(data) >= _HEAD.size else (b"", 0, 0, 0, 0, 0, 0, 0.0, 0, 0, 0)
        magic, version, scheme, degree, first, second, dropped, scale, public, secret, check = fields
        if magic != _MAGIC or len(data) != _HEAD.size + public + secret or scheme not in _SCHEMES:
            raise MessageError(f"{len(data)} bytes are not an encryption context; they were damaged")
        if version != VERSION:
            raise MessageError(f"an encryption context of version {version}, but this fedplug reads {VERSION}")
        if not 2 <= scale < 2.0**first or (_SCHEMES[scheme] == "bfv" and math.frexp(scale)[0] != 0.5):
            rule = f"2 to 2^{first}, for bfv a power of two"
            raise MessageError(f"an encryption context with scale {scale:g}, which must be {rule}")
        if not 0 <= dropped <= most_dropped(degree):
            most = most_dropped(degree)
            raise MessageError(f"an encryption context that drops {dropped} bits, which must be at most {most}")
        if zlib.crc32(_HEAD.pack(*fields[:-1], 0) + data[_HEAD.size :]) != check:
            raise MessageError("an encryption context with a wrong checksum; it was damaged")
        keys = data[_HEAD.size : _HEAD.size + public], data[_HEAD.size + public :]
        return cls(_SCHEMES[scheme], degree, (first, second), scale, dropped, *keys)


def most_dropped(degree: int) -> int:
    """Number of bits of c0 that may be left out: primes are 2 N or more below a power of two, which rounding
    respects."""
    return degree.bit_length()


@functools.cache
def _seal_context(degree: int, coeff_bits: tuple[int, int]) -> Any:
    """SEAL's tables for these parameters, one for each process; they hold no key."""
    import tenseal.sealapi as sealapi

    parameters = sealapi.EncryptionParameters(sealapi.SCHEME_TYPE.BFV)
    parameters.set_poly_modulus_degree(degree)
    parameters.set_coeff_modulus(sealapi.CoeffModulus.Create(degree, list(coeff_bits)))
    # Sums do not depend on it. With this one std.bfv is SEAL's BFV: 2^14 is the quotient of both moduli.
    parameters.set_plain_modulus(2**46 - 1 if coeff_bits[0] == 60 else 2**20)
    context = sealapi.SEALContext(parameters, True, sealapi.SEC_LEVEL_TYPE.TC128)
    if not context.parameters_set():
        why = context.parameters_error_message()
        raise ValueError(f"SEAL refuses degree {degree} with modulus {list(coeff_bits)}: {why}")
    return context


@functools.cache
def _primes(degree: int, coeff_bits: tuple[int, int]) -> tuple[int, int]:
    import tenseal.sealapi as sealapi

    first, second = sealapi.CoeffModulus.Create(degree, list(coeff_bits))
    return int(first.value()), int(second.value())
