"""What an outsider learns from FAS' messages: the tests of its Table 2, and model inversion from tapped lines.

    python benchmarks/fas_outsider.py
    python benchmarks/fas_outsider.py --timing
    FEDPLUG_DATA=... python benchmarks/fas_outsider.py --invert [--seeds 1 2 3]

Table 2 names nine tests and defines none. Eight are defined here, on one message of 4,095 values, for CKKS on
everything (the paper's FHE), for `fas.scramble` by default, and as published: `style: static`, without the noise and
with it. Alg. 1 prints neither a clip nor a scale. The noise has the scale of epsilon 8 for an L1 norm of 0.01, and no
clip bounds the values that an outsider chooses. The outsider has no key:

* integrity: of 200 messages with one altered byte, how many the receiver notices;
* chosen plaintexts: of 200 games in which one of two chosen messages is sent, and further ones on demand, how many are
  won by comparing bits; a guess wins half. Chosen ciphertexts: the same, where the receiver opens any other message;
* precision: the largest error of a value that is read back; homomorphism: of a sum that is added up without a key;
* differential: the share of a message's bits that change when one value changes by 1e-3; statistical distribution: the
  entropy of its bytes, in bits, of 8; leakage: the correlation of the values with what is read without a key.

The ninth, timing (`--timing`), needs a machine with nothing else to do: 200 messages of small and 200 of large values
in turn, and the share of pairs in which the large ones took longer; a guess is half. FAS at 10% is 10% of the first
column and 90% of another. With --invert an eavesdropper attacks `recipes/paper/fas/attacks.yaml` in three forms:
unchanged, as published (`order: prefix`, `style: static`, `framing: hex`, `key_holder: clients`), and that with noise
for epsilon 8. It reads static words by `read_without_key`.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch

import fedplug
import numpy as np
from fedplug import Block
from fedplug.api.errors import FedplugError
from fedplug_attacks.views.observer import Observer
from fedplug_attacks.workshop.results import read_summary
from fedplug_fas.words import FixedWords, Scrambler
from fedplug_runs.overlay import load_recipe
from fedplug_std.ckks import Ckks
from numpy.typing import NDArray

RECIPE = Path(__file__).parents[1] / "recipes/paper/fas/attacks.yaml"
COUNT, FRACTION_BITS, GAMES = 4095, 32, 200
NUMBERS = FixedWords(FRACTION_BITS)
NORM, EPSILON = 0.01, 8.0
Values = NDArray[np.float32]


# -- without a key -----------------------------------------------------------------------------------------------------


def read_without_key(message: bytes) -> Values:
    """The values of words whose bits one unknown permutation has moved, as far as their statistics tell.

    In fixed-point numbers that are small compared with the range, bits before the first significant one all equal the
    sign, and later bits do so ever less often. So the bits that are always equal are the sign, and the others follow
    in the order of how often they equal it.
    """
    words = np.frombuffer(message[: len(message) // 8 * 8], np.uint8).reshape(-1, 8)
    bits = np.unpackbits(words, axis=1, bitorder="little")
    ones = bits.astype(np.float32)
    alike = np.rint(ones.T @ ones + (1 - ones).T @ (1 - ones)).astype(np.int64) == len(bits)
    sign = bits[:, np.argmax(alike.sum(1))].astype(np.bool_)
    differ = bits.astype(np.bool_) ^ sign[:, None]
    order = np.argsort(differ.mean(0), kind="stable")  # the most significant first
    sizes = differ[:, order].astype(np.float64) @ 2.0 ** (63 - FRACTION_BITS - np.arange(64))
    return np.where(sign, -sizes, sizes).astype(np.float32)


# -- Table 2 -----------------------------------------------------------------------------------------------------------


class Sender(Protocol):
    """Converts values into a message and back, and adds messages up as a party without a key would."""

    def send(self, values: Values) -> bytes: ...
    def read(self, message: bytes) -> Values: ...
    def add(self, messages: Sequence[bytes]) -> bytes: ...


class Encrypted:
    """CKKS, one ciphertext."""

    def __init__(self, num_clients: int) -> None:
        self.component = Ckks(Ckks.Options())
        self.key, terms = self.component.new_keys(num_clients)
        backend, self.packing = self.component.backend, self.component.packing(terms)
        self.public = backend.load_context(backend.dump_context(self.key, public_key=True))
        self.adding = backend.load_context(backend.dump_context(self.key))

    def send(self, values: Values) -> bytes:
        slots = self.packing.pack(self.packing.numbers.encode(values.astype(np.float64))[0])
        row = np.concatenate([[self.packing.count_unit], slots])[None, :]
        return self.component.backend.encrypt(self.public, row)[0]

    def read(self, message: bytes) -> Values:
        slots = self.component.backend.decrypt(self.key, [message], self.component.slots)[0]
        words, count = self.packing.unpack(slots[1:], COUNT), int(self.packing.counts(slots[:1])[0])
        return self.packing.numbers.decode(words, count).astype(np.float32)

    def add(self, messages: Sequence[bytes]) -> bytes:
        return self.component.backend.add(self.adding, [[one] for one in messages], self.component.slots)[0]


class Scrambled:
    """`fas.scramble`. Words are added directly, which is all that a party without the key can do."""

    def __init__(self, style: Any) -> None:
        self.scrambler = Scrambler(bytes(range(32)), style)

    def send(self, values: Values) -> bytes:
        return self.scrambler.scramble(NUMBERS.encode(values.astype(np.float64))[0], "upload")

    def read(self, message: bytes) -> Values:
        return NUMBERS.decode(self.scrambler.unscramble(message, COUNT, "upload")).astype(np.float32)

    def add(self, messages: Sequence[bytes]) -> bytes:
        words = [np.frombuffer(one, "<u8") for one in messages]
        return np.sum(words, axis=0, dtype=np.uint64).tobytes()


class Noised:
    """A sender behind Laplace noise that is worth `EPSILON` for values that differ by twice `NORM` in all."""

    def __init__(self, sender: Sender) -> None:
        self.sender, self.rng = sender, np.random.default_rng(1)
        self.read, self.add = sender.read, sender.add

    def send(self, values: Values) -> bytes:
        noise = self.rng.laplace(0, 2 * NORM / EPSILON, len(values))
        return self.sender.send((values + noise).astype(np.float32))


def noticed(sender: Sender, values: Values, rng: np.random.Generator) -> float:
    """The share of altered messages that cannot be read. One that opens to other values was not noticed."""
    found = 0
    for _ in range(GAMES):
        message = bytearray(sender.send(values))
        message[rng.integers(len(message))] ^= int(rng.integers(1, 256))
        try:
            sender.read(bytes(message))
        except FedplugError:
            found += 1
    return found / GAMES


def chosen_plaintexts(sender: Sender, rng: np.random.Generator) -> float:
    """The share of games won by asking for both messages, and taking the one with fewer bits that differ."""
    choices = _two(rng)
    won = 0
    for _ in range(GAMES):
        secret = int(rng.integers(2))
        challenge = sender.send(choices[secret])
        won += int(np.argmin([_bits_changed(challenge, sender.send(choice)) for choice in choices])) == secret
    return won / GAMES


def _bits_changed(message: bytes, other: bytes) -> float:
    size = min(len(message), len(other))
    first, second = (np.frombuffer(one[:size], np.uint8) for one in (message, other))
    return float(np.unpackbits(first ^ second).mean())


def chosen_ciphertexts(sender: Sender, rng: np.random.Generator) -> float:
    """The share of games won by having another message opened: twice the challenge, or one with a bit flipped."""
    choices = _two(rng)
    won = 0
    for _ in range(GAMES):
        secret = int(rng.integers(2))
        challenge = sender.send(choices[secret])
        guess = int(rng.integers(2))
        turned = bytes([challenge[0] ^ 1]) + challenge[1:]
        opened = _or_none(sender, turned)
        if opened is None:
            doubled = _or_none(sender, sender.add([challenge, challenge]))
            opened = None if doubled is None else doubled / np.float32(2)
        if opened is not None:
            guess = int(np.argmin([float(np.median(np.abs(opened - choice))) for choice in choices]))
        won += guess == secret
    return won / GAMES


def _or_none(sender: Sender, message: bytes) -> Values | None:
    try:
        return sender.read(message)
    except FedplugError:
        return None


def _two(rng: np.random.Generator) -> list[Values]:
    return [rng.laplace(0, 0.01, COUNT).astype(np.float32) for _ in range(2)]


def slower(sender: Sender, rng: np.random.Generator) -> float:
    """The share of pairs in which a message of large values takes longer to make than one of small values."""
    sizes = (1e-4, 0.1)
    values = [[rng.laplace(0, size, COUNT).astype(np.float32) for _ in range(GAMES)] for size in sizes]
    spent = np.zeros((2, GAMES))
    for game in range(GAMES):
        for place in rng.permutation(2):  # in turn, so that a change of the machine's speed hits both
            start = time.perf_counter_ns()
            sender.send(values[place][game])
            spent[place, game] = time.perf_counter_ns() - start
    return float(np.mean(spent[1][:, None] > spent[0]))


def table2(sender: Sender) -> dict[str, str]:
    """The tests, by name."""
    rng = np.random.default_rng(0)
    values = rng.laplace(0, 0.01, COUNT).astype(np.float32)
    parts = [rng.laplace(0, 0.01, COUNT).astype(np.float32) for _ in range(10)]
    message, moved = sender.send(values), values.copy()
    moved[0] += 1e-3
    changed = _bits_changed(message, sender.send(moved))
    _, counts = np.unique(np.frombuffer(message, np.uint8), return_counts=True)
    shares = counts / counts.sum()
    try:
        summed = sender.read(sender.add([sender.send(part) for part in parts]))
        error = f"{float(np.abs(summed - np.sum(parts, axis=0)).max()):.1e}"
    except FedplugError:
        error = "no sum"
    read = read_without_key(message)[:COUNT]
    return {
        "integrity: alterations noticed": f"{noticed(sender, values, rng):.0%}",
        "chosen plaintexts: games won": f"{chosen_plaintexts(sender, rng):.0%}",
        "chosen ciphertexts: games won": f"{chosen_ciphertexts(sender, rng):.0%}",
        "precision: largest error": f"{float(np.abs(sender.read(message) - values).max()):.1e}",
        "differential: bits changed": f"{changed:.2%}",
        "distribution: bits a byte": f"{-float(shares @ np.log2(shares)):.3f}",
        "homomorphism: largest error of a sum": error,
        "leakage: correlation without a key": f"{float(np.corrcoef(read, values[: len(read)])[0, 1]):.3f}",
    }


# -- model inversion by an eavesdropper --------------------------------------------------------------------------------

LITERAL = ["negotiate_mask.order=prefix", "protect.encrypted=[{use: std.ckks, key_holder: clients}]"]
STATIC = "{use: fas.scramble, style: static, framing: hex}"
NOISE = "{use: std.clip_l1, norm: 0.01}, {use: std.laplace, epsilon: 8}"
FORMS = {
    "fas.scramble as it is": [],
    "as published, no noise": [*LITERAL, f"protect.noised=[{STATIC}]"],
    "as published, noise for epsilon 8": [*LITERAL, f"protect.noised=[{NOISE}, {STATIC}]"],
}


def tapped(sets: Sequence[str], seed: int) -> dict[str, float]:
    """MSSIM and VIFP of what the eavesdropper rebuilds, mean over images, if anything, and of the mean image."""
    original = Observer.opened

    def opened(self: Observer, block: Block, facts: Any, insiders: Any, sender: int = -1) -> Block | None:
        found = original(self, block, facts, insiders, sender)
        if found is not None or block.sealed_by != "fas.scramble" or sender < 0:
            return found
        try:
            message = bytes.fromhex(block.ciphertexts[0].decode("ascii"))
        except ValueError:  # not framed as text, so not the form as published
            return None
        return block.replace(values=read_without_key(message), ciphertexts=(), sealed_by=None)

    with (
        patch.object(Observer, "opened", opened),
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stdout(sys.stderr),  # only the tables are the output
    ):
        settings = [f"seed={seed}", "attack.adversaries=[eavesdropper]", "attack.compare_forms=false", *sets]
        run = fedplug.run(load_recipe(RECIPE, settings), engine="local", device="cpu", output=folder, quiet=True)
        summary = read_summary(Path(run.folder) / "attacks")
    assert summary is not None
    (row,) = summary.rows
    return {f"{who} {metric}": value for metric in ("mssim", "vifp") for who, value in
            (("rebuilt", row.metrics[metric].mean if metric in row.metrics else None),
             ("mean image", row.baselines["mean image"][metric])) if value is not None}  # fmt: skip


def mean_and_sd(rows: Sequence[dict[str, float]], key: str) -> str:
    """Over seeds; a dash where no row has it."""
    values = [row[key] for row in rows if key in row]
    sd = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.2f} ± {sd:.2f}" if values else "–"


def main() -> int:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--invert", action="store_true", help="model inversion by an eavesdropper, in place of Table 2")
    parser.add_argument("--timing", action="store_true", help="the timing test, in place of the others of Table 2")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options = parser.parse_args()
    if options.invert:
        print("| form | MSSIM | VIFP | mean image, MSSIM | mean image, VIFP |\n" + "| --- " * 5 + "|")
        for name, sets in FORMS.items():
            rows = [tapped(sets, seed) for seed in options.seeds]
            keys = [f"{who} {metric}" for who in ("rebuilt", "mean image") for metric in ("mssim", "vifp")]
            print(f"| {name} | " + " | ".join(mean_and_sd(rows, key) for key in keys) + " |", flush=True)
        return 0
    senders: dict[str, Sender] = {
        "CKKS on everything": Encrypted(10), "fas.scramble": Scrambled("keyed"),
        "as published, no noise": Scrambled("static"), "as published": Noised(Scrambled("static")),
    }  # fmt: skip
    if options.timing:
        for name, sender in senders.items():
            share = slower(sender, np.random.default_rng(0))
            print(f"{name}: {share:.0%} of pairs took longer with large values; a guess is 50%", flush=True)
        return 0
    columns = {name: table2(sender) for name, sender in senders.items()}
    print("| test | " + " | ".join(columns) + " |\n" + "| --- " * (1 + len(columns)) + "|")
    for test in next(iter(columns.values())):
        print(f"| {test} | " + " | ".join(column[test] for column in columns.values()) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
