"""BFV under a joint key of which every client has a share (Mouchet et al., PoPETs 2021 and J. Cryptology 2023).

    joint key     b = sum b_i,  b_i = -a s_i + e_i,  secret s = sum s_i, which no party ever has
    shares        S_j = sum_i f_i(j + 1), f_i Shamir's polynomial of s_i
    ciphertext    c0 = b u + e0 + Delta m,  c1 = a u + e1,  and ciphertexts are added modulo q
    opening       h_j = lambda_j S_j c1 + smudging + masks that cancel,  by the t clients of one set
                  c0 + sum h_j = Delta m + noise

Only sums are needed, so there is no relinearisation and no plaintext modulus. Messages are fields of whole numbers at
fixed places of the mixed-radix digits modulo q (`fedplug_threshold.ring.Chain.digits`). The first digit holds noise
alone. The second digit holds noise in its lowest `guard` bits. The rest of it and all other digits hold fields.

The masks of an opening are shares of zero, one for each pair of clients in the set. Without them the server could form
a set, have part of it answer, and ask the same clients as members of another set. Then lambda_j S_j c1 + e and
lambda'_j S_j c1 + e' with known lambdas are two equations that reveal S_j c1, since both noises are small (a test
demonstrates it). With the masks, the answers of an incomplete set are uniform numbers, and those of a complete one show
s c1 + noise and nothing else.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.errors import MessageError, ProtectionError
from fedplug_std.he_random import Secrets
from fedplug_std.prime_field import times
from fedplug_std.shamir import Sharing

from fedplug_threshold import smudging
from fedplug_threshold.ring import Chain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from fedplug_threshold.parameters import Parameters
    from fedplug_threshold.ring import Residues

_CHUNK = 8
"""Number of ciphertexts processed at once: a megabyte or two."""
_TRIES = 8
"""Secrets are drawn until one fits the bound of `Ring.fixed`. One in millions does not."""


@dataclasses.dataclass(frozen=True)
class Scheme:
    """All operations of parties on keys and ciphertexts, under one choice of parameters."""

    parameters: Parameters

    @functools.cached_property
    def chain(self) -> Chain:
        """The ring modulo q."""
        return Chain(self.parameters.degree, self.parameters.primes)

    # -- keys ----------------------------------------------------------------------------------------------------------

    def contribution(self, common: Residues, holders: Sequence[int]) -> tuple[Residues, Residues]:
        """One client's part of the key: b_i, shape (L, N), and shares of s_i, shape (holders, L, N).

        s_i is drawn here and dropped. Only its shares remain.

        Args:
            common: a, shape (L, N).
            holders: the clients that get a share, including this client.
        """
        chain, secrets = self.chain, Secrets()
        for _ in range(_TRIES):
            secret = secrets.ternary(1, chain.degree)[0]
            try:
                key = chain.rings[0].fixed(-secret)
            except ValueError as error:
                problem = error
            else:
                break
        else:
            raise ProtectionError(f"none of {_TRIES} secrets could be used ({problem})")
        errors = secrets.errors(1, chain.degree)
        public = np.empty_like(common)
        for place, ring in enumerate(chain.rings):
            public[place] = ring.phase(errors, common[None, place], key)[0].view(np.uint64)
        shared = zip(self._sharings, chain.of(secret.astype(np.int64)), strict=True)
        return public, np.stack([sharing.deal(part[None], holders) for sharing, part in shared], axis=1)

    @functools.cached_property
    def _sharings(self) -> list[Sharing]:
        """A polynomial is a vector of coefficients modulo each prime p of q, and each is shared over the field of p."""
        return [Sharing(prime, self.parameters.threshold) for prime in self.chain.primes]

    def secret(self, shares: Mapping[int, Residues]) -> Residues:
        """The secret key that t colluding clients reconstruct from their shares S_j, shape (L, N).

        Raises:
            ProtectionError: there are fewer than t shares, or they do not belong together.
        """
        parts = enumerate(self._sharings)
        return np.concatenate([sharing.open({j: share[i] for j, share in shares.items()}) for i, sharing in parts])

    def public_key(self, joint: Residues, common: Residues) -> list[NDArray[np.complex128]]:
        """Transforms of b and a for products, by prime: shape (2, 2, N / 2)."""
        keys = []
        for place, ring in enumerate(self.chain.rings):
            both = np.stack([joint[place], common[place]])
            keys.append(ring.fixed(ring.centred_halves(both), 1 << ring.low_bits))
        return keys

    # -- messages ------------------------------------------------------------------------------------------------------

    def count(self, size: int) -> int:
        """Number of ciphertexts for that many values."""
        return -(-size // (self.chain.degree * self.parameters.per_coefficient))

    def _scales(self) -> list[list[int]]:
        """By field, its factor modulo each prime."""
        found, below = [], self.chain.primes[0] << self.parameters.guard
        product = self.chain.primes[0]
        for many, prime in zip(self.parameters.fields, self.chain.primes[1:], strict=True):
            for field in range(many):
                found.append([(below << field * self.parameters.bits) % p for p in self.chain.primes])
            product *= prime
            below = product
        return found

    def _messages(self, numbers: NDArray[np.int64]) -> Residues:
        """Delta m of ciphertexts, shape (m, L, N), of fields, shape (m, K, N)."""
        total = np.zeros((len(numbers), len(self.chain.primes), self.chain.degree), np.uint64)
        for field, scales in enumerate(self._scales()):
            for place, prime in enumerate(self.chain.primes):
                if scales[place]:
                    total[:, place] += times(numbers[:, field].view(np.uint64), scales[place], prime)
        self.chain.reduce(total)
        return total

    def encrypt(self, key: Sequence[NDArray[np.complex128]], numbers: NDArray[np.int64]) -> Residues:
        """Ciphertexts of non-negative numbers below 2^bits, shape (m, 2, L, N) for (size,).

        Args:
            key: the result of `public_key`.
            numbers: value after value, field by field within a coefficient's place.
        """
        chain, fields = self.chain, self.parameters.per_coefficient
        rows = self.count(len(numbers))
        padded = np.zeros((rows, fields, chain.degree), np.int64)
        padded.reshape(-1)[: len(numbers)] = numbers
        pairs = np.empty((rows, 2, len(chain.primes), chain.degree), np.uint64)
        secrets = Secrets()
        for start in range(0, rows, _CHUNK):
            part = pairs[start : start + _CHUNK]
            small = chain.rings[0].spectrum(secrets.ternary(len(part), chain.degree))[:, None]
            errors = [secrets.errors(len(part), chain.degree) for _ in range(2)]
            for place, ring in enumerate(chain.rings):
                for half in range(2):
                    product = ring.products(small, key[place][half])
                    part[:, half, place] = ring.joined(product, errors[half]).view(np.uint64)
            part[:, 0] = chain.plus(part[:, 0], self._messages(padded[start : start + _CHUNK]))
        return pairs

    def read(self, phases: Residues, size: int) -> NDArray[np.int64]:
        """The sums of fields that phases c0 + s c1 hold, shape (size,) for (m, L, N).

        Raises:
            ProtectionError: they hold more noise than possible: a share or a ciphertext was wrong.
        """
        chain, guard, bits = self.chain, self.parameters.guard, self.parameters.bits
        middle = chain.primes[0] << guard - 1
        shift = np.array([middle % prime for prime in chain.primes], np.uint64)[:, None]
        digits = chain.digits(chain.plus(phases, np.broadcast_to(shift, phases.shape)))
        noise = digits[:, 1] & np.uint64((1 << guard) - 1)
        low, high = 1 << guard - 2, 3 << guard - 2
        found = np.empty((len(phases), self.parameters.per_coefficient, chain.degree), np.int64)
        digits[:, 1] >>= np.uint64(guard)
        field, mask = 0, np.uint64((1 << bits) - 1)
        spilled = np.zeros(phases.shape[-1], bool)
        for place, many in enumerate(self.parameters.fields, 1):
            rest = digits[:, place]
            for _ in range(many):
                found[:, field] = (rest & mask).view(np.int64)
                rest = rest >> np.uint64(bits)
                field += 1
            spilled |= rest.any(axis=0)
        flat = found.reshape(-1)
        inside = bool(((noise >= low) & (noise < high)).all())
        if not inside or spilled.any() or flat[size:].any():
            raise ProtectionError(
                "the opened sum does not lie on its grid, as it would with the right shares: a share or an upload was "
                "wrong; the sum is not used"
            )
        return flat[:size]

    # -- opening -------------------------------------------------------------------------------------------------------

    def partial(
        self, share: Residues, me: int, holders: Sequence[int], c1: Residues, noise: bytes, masks: Mapping[int, bytes]
    ) -> Residues:
        """h_j: a client's part of an opening by a set of clients, shape (m, L, N).

        Args:
            share: S_j, shape (L, N).
            me: j.
            holders: the set, t clients.
            c1: of the ciphertexts, shape (m, L, N).
            noise: 32 bytes, for this set and these ciphertexts alone. The smudging noise is drawn from them.
            masks: 16 bytes that this client shares with each other client of the set, for this set and these
                ciphertexts alone. The client with the lower number adds the polynomial they seed, the other subtracts
                it.
        """
        chain = self.chain
        weighted = zip(share, self._sharings, strict=True)
        scaled = np.stack([times(part, sharing.weight(me, holders), sharing.prime) for part, sharing in weighted])
        total = chain.product(c1, chain.limbs(scaled))
        total = chain.plus(total, smudging.draw(chain, noise, len(c1), self.parameters.smudge_bits))
        added = (chain.uniform(masks[other], len(c1)) for other in holders if other > me)
        taken = (chain.uniform(masks[other], len(c1)) for other in holders if other < me)
        total = chain.plus(total, chain.total(added, (len(c1),)))
        return chain.minus(total, chain.total(taken, (len(c1),)))

    def decrypt(self, secret: Residues, pairs: Residues, size: int) -> NDArray[np.int64]:
        """The content of ciphertexts, by the secret key.

        Raises:
            ProtectionError: it is another key.
        """
        phases = self.chain.plus(pairs[:, 0], self.chain.product(pairs[:, 1], self.chain.limbs(secret)))
        return self.read(phases, size)

    # -- bytes ---------------------------------------------------------------------------------------------------------

    def pack_pairs(self, pairs: Residues) -> tuple[bytes, ...]:
        """Ciphertexts of shape (m, 2, L, N) as bytes."""
        halves = [self.chain.pack(pairs[:, half]) for half in range(2)]
        return tuple(first + second for first, second in zip(*halves, strict=True))

    def unpack_pairs(self, ciphertexts: Sequence[Any], what: str) -> Residues:
        """Inverse of `pack_pairs`.

        Raises:
            MessageError: bytes are not a ciphertext; the message names it by `what`.
        """
        cut = self.chain.packed
        if any(not isinstance(data, bytes) for data in ciphertexts):
            raise MessageError(f"{what}: a ciphertext is not bytes")
        halves = ([data[:cut] for data in ciphertexts], [data[cut:] for data in ciphertexts])
        return np.stack([self.chain.unpack(half, what) for half in halves], axis=1)
