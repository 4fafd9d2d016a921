"""Clover: clients send the k largest values of an update, and no server learns their positions or their size.

Xu, Zheng and Hua, Harnessing sparsification in federated learning: a secure, efficient, and differentially private
realization, ACM CCS 2025 (arXiv:2511.07123).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import fedplug
import numpy as np
from fedplug import Client, Facts, Field, FixedPoint, Known, Opened, Post, Reveals, Seal, Sealed, Total, Words
from fedplug.api import secrets
from fedplug.api.errors import MessageError
from fedplug_std.gaussian import CentralGaussian
from numpy.typing import NDArray

from fedplug_clover import points

LETTER = points.SEED + 48
"""Bytes of a seed for the key server alone: HPKE's key of one use, and its tag."""


class SparseShares(fedplug.Sealer):
    """Send a client's k largest values in two shares: one for the aggregation server, one for the key server (Clover).

    A client keeps the k = `keep` n values of the n in the zone that are largest in magnitude, clips them to `norm`, and
    shares the vector that has zeros elsewhere by distributed point functions: 8 k bytes and 18 k log2(n) for the
    positions, which neither share shows. The aggregation server expands and adds its shares, and hands the sum on with
    the other halves, each locked for the key server. That adds them, adds Gaussian noise, and gives the noisy sum.

    Use it in `protect`, with the options, and by name in `postprocess`. The two servers must not collude.
    """

    class Options(CentralGaussian.Options):
        keep: float = Field(0.01, gt=0, le=1, description="share of a client's values that it sends, the largest ones")

    options: Options
    site = "key_server"

    def count(self, size: int) -> int:
        """k, of a zone of `size` scalars."""
        return max(1, round(self.options.keep * size))

    # -- keys ----------------------------------------------------------------------------------------------------------

    def setup(self, cohort: Any, key_server: Any, facts: Facts) -> None:
        """Everybody learns the public key of the key server."""
        cohort.publish(self, {"key": key_server.ask(self.make_key)}, covered_by="nothing to pay")

    @fedplug.at_key_server
    def make_key(self, key_server: Any) -> bytes:
        """Makes a key pair (X25519); gives the public half."""
        key_server.memory(self)["private"], public = secrets.key_pair()
        return public

    def purpose(self, zone: str, facts: Facts) -> bytes:
        """What a letter is bound to: it opens in no other round."""
        return f"{facts.digest} {facts.round} {self.name} {zone}".encode()

    # -- the zone ------------------------------------------------------------------------------------------------------

    def protect(self, known: Known, facts: Facts) -> tuple[Post, fedplug.Clip, Seal]:
        """The largest values, clipped, in shares."""
        norm = self.options.norm
        numbers = FixedPoint(range=norm, step=norm * 2.0**-20)
        scheme = f"point functions for {self.options.keep:.2%} of the values, AES-128, modulo 2^64"
        return Post(self.sparse), fedplug.Clip(norm), Seal(scheme=scheme, opened_by="key_server", numbers=numbers)

    def sparse(self, values: NDArray[np.float32], public: Any) -> NDArray[np.float32]:
        """The k largest values where they are, and zeros (top-k sparsification)."""
        kept, chosen = np.zeros_like(values), largest(values, self.count(len(values)))
        kept[chosen] = values[chosen]
        return kept

    def seal(self, words: Words, client: Client, facts: Facts) -> Sealed:
        """The seed of the aggregation server; that of the key server in a letter, and what both need."""
        chosen = largest(words.values, self.count(words.values.size))
        mine, other, corrections = points.share(chosen, words.values[chosen], words.values.size)
        letter = secrets.seal(other, facts.of(self)["key"], self.purpose(words.zone, facts))
        return Sealed((mine, letter + corrections))

    def add(self, uploads: Sequence[Total], server: Any, facts: Facts) -> tuple[bytes, bytes]:
        """The sum of the aggregation server's shares, (n,), and all letters one after the other."""
        shares = sum(self.at_server(each) for each in uploads)
        return np.asarray(shares).tobytes(), b"".join(each.parts[1] for each in uploads)

    def at_server(self, total: Total) -> NDArray[np.int64]:
        """The aggregation server's share of an upload, or of a sum."""
        own, rest = total.parts
        count, size = self.count(total.size), LETTER + points.key_size(self.count(total.size), total.size)
        if len(own) == points.SEED and len(rest) == size:
            return points.expand(0, own, rest[LETTER:], count, total.size)
        if len(own) == 8 * total.size and len(rest) % size == 0:
            return np.frombuffer(own, np.int64)
        raise MessageError(f"its share of zone {total.zone} has {len(own)} and {len(rest)} bytes: it was cut")

    def open(self, total: Total, party: Any, facts: Facts) -> Opened:
        """The sum of both shares, at the party with the private key, and how many clients are in it."""
        found, count, rest = self.at_server(total), self.count(total.size), total.parts[1]
        size = LETTER + points.key_size(count, total.size)
        purpose, private = self.purpose(total.zone, facts), party.memory(self).get("private", b"")
        letters = [rest[start : start + size] for start in range(0, len(rest), size)]
        for letter in letters:
            seed = secrets.unseal(letter[:LETTER], private, purpose)
            found = found + points.expand(1, seed, letter[LETTER:], count, total.size)
        return Opened(found, np.array([len({letter[:LETTER] for letter in letters})]))

    def postprocess(self, known: Known, facts: Facts) -> Any:
        """Opened, and with noise before anybody else sees it."""
        opening, noise = fedplug.Open(), CentralGaussian(self.options)
        return opening, *noise.postprocess(known.after(opening), facts)

    # -- in words ------------------------------------------------------------------------------------------------------

    def reveals(self, facts: Facts) -> list[Reveals]:
        """Both servers see how many values a client sends, which everybody knows, and not where these lie."""
        alone = "at a position that one client alone has sent, the sum is its value; it does not show whose"
        return [
            Reveals("public key", ("server",), covered_by="nothing to pay", asked=("make_key",), note="of no data"),
            Reveals("single values, in the sum without noise", ("key_holder",), note=alone),
        ]

    def describe(self) -> str:
        """One line for the plan of the run."""
        kept = f"the largest {self.options.keep:.2%} of a client's values, clipped to {self.options.norm:g}"
        return f"{kept}, in two shares; noise at the key server, {self.options.words()}"


def largest(values: NDArray[Any], count: int) -> NDArray[np.int64]:
    """Positions of the `count` values of largest magnitude; of equal ones the first."""
    return np.argsort(-np.abs(values), kind="stable")[:count]
