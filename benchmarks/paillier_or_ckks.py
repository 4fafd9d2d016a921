"""Seconds and bytes to encrypt values one by one with Paillier and with CKKS (SenseCrypt, App. K, Table 2).

    python benchmarks/paillier_or_ckks.py [--values 10 100] [--bits 2048]

Paillier is phe's, as in the paper, whose 3072 bits by default give the 768 bytes of Table 2. CKKS is TenSEAL's in the
parameters of its tutorial (8192, [60, 40, 40, 60]). The last row encrypts all values in one CKKS ciphertext, which
needs one mask for all clients. Seconds are processor time of one thread, without making the keys.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np
import phe
import tenseal as ts


def ciphers(bits: int) -> dict[str, Callable[[Sequence[float]], int]]:
    """Name -> a function that encrypts values and returns the bytes of the ciphertexts."""
    public, _ = phe.generate_paillier_keypair(n_length=bits)
    context = ts.context(ts.SCHEME_TYPE.CKKS, 8192, coeff_mod_bit_sizes=[60, 40, 40, 60], n_threads=1)
    context.global_scale = 2.0**40

    def paillier(values: Sequence[float]) -> int:
        size = (public.nsquare.bit_length() + 7) // 8
        return sum(len(public.encrypt(value).ciphertext().to_bytes(size, "big")) for value in values)

    def one_by_one(values: Sequence[float]) -> int:
        return sum(len(ts.ckks_vector(context, [value]).serialize()) for value in values)

    def packed(values: Sequence[float]) -> int:
        return len(ts.ckks_vector(context, list(values)).serialize())

    return {f"Paillier, {bits} bits": paillier, "CKKS, one value each": one_by_one, "CKKS, packed": packed}


def main() -> int:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", type=int, nargs="+", default=[10, 100], help="how many values to encrypt")
    parser.add_argument("--bits", type=int, default=2048, help="length of Paillier's modulus")
    options = parser.parse_args()
    if wrong := [count for count in options.values if not 1 <= count <= 4096]:
        parser.error(f"--values {wrong[0]} must be 1 to 4096, what one packed ciphertext holds")
    if not 1024 <= options.bits <= 8192 or options.bits % 2:
        parser.error(f"--bits {options.bits} must be an even number from 1024 to 8192")
    print("| values | cipher | CPU s | bytes | bytes a value |\n| --- | --- | --- | --- | --- |")
    found = ciphers(options.bits)
    for count in options.values:
        values = np.random.default_rng(0).normal(size=count).tolist()
        for name, encrypt in found.items():
            start = time.process_time()
            size = encrypt(values)
            spent = time.process_time() - start
            print(f"| {count} | {name} | {spent:.3g} | {size} | {size / count:.0f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
