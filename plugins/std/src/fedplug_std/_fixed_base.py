"""Many powers of one base: Lim and Lee's comb (CRYPTO 1994), which trades a table for multiplications.

The exponent's bits are laid out as a box of `TEETH` x `PARTS` x columns. For every part a table holds the products of
all subsets of its teeth, so that one multiplication covers a tooth's bit of each of them, and squarings are needed
within a part only. With 12 teeth and 8 parts, an exponent of 1536 bits modulo a number of 6144 bits (Paillier with 3072
bits) takes 142 multiplications, 1.1 ms where plain exponentiation takes 13 ms. Measured against that choice:

    teeth x parts       8 x 8     10 x 8    11 x 8    12 x 8    13 x 8    8-bit windows without a comb
    table, MB           1.6       6.3       12.6      25.2      50.3      37.7
    building it, s      0.03      0.07      0.13      0.25      0.49      0.35
    one power, ms       1.6       1.3       1.2       1.1       1.0       1.4

With 2048 bits the table has 16.8 MB, is built in 0.13 s, and one power takes 0.44 ms.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import gmpy2
import numpy as np
from gmpy2 import mpz

TEETH, PARTS = 12, 8


class FixedBase:
    """Powers of `base` modulo `modulus`, with exponents of up to `exponent_bits` bits. The table is built here."""

    def __init__(self, base: int, modulus: int, exponent_bits: int) -> None:
        self.modulus, self.exponent_bits = mpz(modulus), exponent_bits
        self.columns = math.ceil(exponent_bits / (TEETH * PARTS))
        # corners[i * PARTS + s] = base^(2^((i * PARTS + s) * columns)): the lowest bit of tooth i in part s.
        corners = [mpz(base)]
        while len(corners) < TEETH * PARTS:
            corners.append(gmpy2.powmod(corners[-1], 1 << self.columns, self.modulus))
        self.tables: list[list[Any]] = []
        for part in range(PARTS):
            products = [mpz(1)]  # over all subsets of the teeth, in binary order
            for corner in corners[part::PARTS]:
                products += [product * corner % self.modulus for product in products]
            self.tables.append(products)

    def powers(self, exponents: Sequence[int]) -> list[Any]:
        """The base to each of the exponents.

        Raises:
            ValueError: an exponent is negative or too long.
        """
        if any(not 0 <= exponent < 1 << self.exponent_bits for exponent in exponents):
            raise ValueError(f"an exponent must be >= 0 and have at most {self.exponent_bits} bits")
        powers = []
        for columns in self._digits(exponents):
            power = mpz(1)
            for column in columns:
                power = power * power % self.modulus
                for table, digit in zip(self.tables, column, strict=True):
                    power = power * table[digit] % self.modulus
            powers.append(power)
        return powers

    def _digits(self, exponents: Sequence[int]) -> Any:
        """The entries to take from each part's table, highest column first: nested lists (n, columns, PARTS)."""
        num_bits = TEETH * PARTS * self.columns
        num_bytes = math.ceil(num_bits / 8)
        data = b"".join(int(exponent).to_bytes(num_bytes, "little") for exponent in exponents)
        packed = np.frombuffer(data, np.uint8).reshape(len(exponents), num_bytes)
        bits = np.unpackbits(packed, axis=1, bitorder="little")[:, :num_bits]
        box = bits.reshape(len(exponents), TEETH, PARTS, self.columns)
        return np.einsum("mtpc,t->mcp", box, 1 << np.arange(TEETH))[:, ::-1].tolist()


@functools.lru_cache(maxsize=4)
def fixed_base(base: int, modulus: int, exponent_bits: int) -> FixedBase:
    """The table of a base, built when it is first needed and shared by all parties of a process; the last four stay."""
    return FixedBase(base, modulus, exponent_bits)
