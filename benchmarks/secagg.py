"""The cost of a round of secure aggregation for a client and the server: `fedplug_secagg` next to Flower's own.

    python benchmarks/secagg.py [--clients 10 100 1000] [--parameters 61000 1000000 11000000] [--out FILE]

Flower's SecAgg+ (flwr 1.x) is run by the functions of its client's mod, and by the operations of its server's workflow
in their order. Both sides get the same graph degree and threshold (a tenth corrupt, a tenth may drop out, sigma = 40,
eta = 30) and the modulus 2^32, which is Flower's; ours has another row at 20 bits. Times are CPU seconds of one thread,
the fastest of some repetitions, ours and Flower's in turn.

A client runs completely, with all its neighbours. The server does not: each of its operations is timed a few times, on
whole vectors, and multiplied by its count in a round where a twentieth of the clients drop out after their shares.
"""

from __future__ import annotations

import argparse
import csv
import gc
import importlib
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from fedplug.api import secrets
from fedplug_secagg import graph, masks, shamir
from fedplug_secagg.fixed_point import FixedPoint
from fedplug_std.shamir import _sums as sums_of_shares
from flwr.common import bytes_to_ndarray, ndarrays_to_parameters
from flwr.common.secure_aggregation.crypto.shamir import combine_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import generate_shared_key
from flwr.common.secure_aggregation.ndarrays_arithmetic import (
    get_parameters_shape,
    parameters_addition,
    parameters_mod,
    parameters_subtraction,
)
from flwr.common.secure_aggregation.quantization import dequantize
from flwr.common.secure_aggregation.secaggplus_constants import Key
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
from flwr.supercore.primitives.asymmetric import bytes_to_private_key, bytes_to_public_key

# By its name, since the package has a function of the same name in the module's place.
flower: Any = importlib.import_module("flwr.client.mod.secure_aggregation.secaggplus_mod")

CORRUPT, DROPPED, LOST = 0.1, 0.1, 0.05
BOUND, RANGE, MODULUS = 8.0, 2**22, 2**32  # Flower's defaults
COLUMNS = [
    "clients", "parameters", "neighbours", "threshold", "bits", "lost",
    "client s, ours", "client s, Flower", "client ratio", "server s, ours", "server s, Flower", "server ratio",
    "client bytes, ours", "client bytes, Flower", "ours / (m b / 8)", "rest of ours per neighbour",
]  # fmt: skip


class Timer:
    """CPU seconds by name: of each repetition the sum, of all the least."""

    def __init__(self) -> None:
        self.best: dict[str, float] = {}

    def __call__(self, name: str, work: Callable[[], Any]) -> Any:
        """Runs something once under that name. Returns its result."""
        gc.collect()
        start = time.process_time()
        result = work()
        seconds = time.process_time() - start
        self.best[name] = min(self.best.get(name, seconds), seconds)
        return result


class Ours:
    """A client and its neighbours: client 0 is measured, and needs the others."""

    def __init__(self, neighbours: int, threshold: int, values: np.ndarray, grid: FixedPoint) -> None:
        self.threshold, self.values, self.grid = threshold, values, grid
        self.others = range(1, neighbours + 1)
        self.peers = {other: (secrets.key_pair(), secrets.key_pair()) for other in self.others}
        self.keys = {other: (channel[1], mask[1]) for other, (channel, mask) in self.peers.items()}

    def client(self, timer: Timer) -> tuple[int, bytes, bytes]:
        """All work of client 0 in a round. Returns its bytes sent, its upload, and a private key for masks."""
        (channel, channel_key), (mask, mask_key) = timer("keys", lambda: (secrets.key_pair(), secrets.key_pair()))
        ends, drawn = masks.KeyAgreement(channel), secrets.draw()

        def deal() -> dict[int, bytes]:
            shares = shamir.deal([drawn, mask], self.others, self.threshold)
            return {
                other: secrets.lock(ends.seed(self.keys[other][0], b"shares"), share, b"0 to %d" % other)
                for other, share in shares.items()
            }

        sent = timer("deal", deal)
        # What the neighbours sent: shares of two secrets each.
        boxes = {
            other: secrets.lock(
                masks.KeyAgreement(channel_pair[0]).seed(channel_key, b"shares"),
                bytes(2 * shamir.SHARE),
                b"%d to 0" % other,
            )
            for other, (channel_pair, _) in self.peers.items()
        }

        def upload() -> tuple[dict[int, bytes], bytes]:
            held = {
                other: secrets.unlock(ends.seed(self.keys[other][0], b"shares"), box, b"%d to 0" % other)
                for other, box in boxes.items()
            }
            pairs = masks.KeyAgreement(mask)
            vector = self.grid.residues(self.values)
            masks.add_masks(vector, [(drawn, 1), *((pairs.seed(self.keys[v][1], b"mask"), 1) for v in self.others)])
            return held, masks.pack(vector, self.grid.bits)

        held, data = timer("upload", upload)
        parts = timer("answer", lambda: {dealer: shamir.part(share, 0) for dealer, share in held.items()})
        size = len(channel_key) + len(mask_key) + sum(map(len, sent.values())) + sum(map(len, parts.values()))
        return size + len(data), data, mask

    def server(self, timer: Timer, data: bytes, mask: bytes, lost: int) -> None:
        """Each of the server's operations once."""
        size, holders = len(self.values), list(self.others)
        total = np.zeros(size, masks.word(self.grid.bits))
        timer("add", lambda: np.add(total, masks.unpack(data, size, self.grid.bits), out=total))
        shares = shamir.deal([mask], [7 * holder for holder in holders], self.threshold)
        parts = dict(itertools.islice(shares.items(), max(self.threshold, len(holders) - lost)))
        sums_of_shares.cache_clear()  # no two clients have the same neighbours
        timer("open", lambda: shamir.combine(parts, self.threshold))
        timer("self mask", lambda: masks.add_masks(total, [(mask, -1)]))
        ends = masks.KeyAgreement(mask)
        timer("ends", lambda: masks.KeyAgreement(mask))
        public = self.keys[holders[0]][1]
        timer("pair mask", lambda: masks.add_masks(total, [(ends.seed(public, b"mask"), -1)]))
        timer("values", lambda: self.grid.values(total))


class Flower:
    """Client 0 of Flower's SecAgg+, by the functions of its mod."""

    def __init__(self, neighbours: int, threshold: int, values: np.ndarray) -> None:
        self.parameters = ndarrays_to_parameters([values])
        self.config = {
            Key.SAMPLE_NUMBER: neighbours + 1,
            Key.SHARE_NUMBER: neighbours + 1,
            Key.THRESHOLD: threshold,
            Key.CLIPPING_RANGE: BOUND,
            Key.TARGET_RANGE: RANGE,
            Key.MOD_RANGE: MODULUS,
            Key.MAX_WEIGHT: 1000.0,
        }
        self.peers = {at: self._state(at) for at in range(1, neighbours + 1)}
        self.keys = {at: (state.pk1, state.pk2) for at, state in self.peers.items()}

    def _state(self, at: int) -> Any:
        state = flower.SecAggPlusState()
        state.nid = at
        flower._setup(state, dict(self.config))
        return state

    def client(self, timer: Timer) -> tuple[int, list[bytes], Any]:
        """As `Ours.client`: bytes sent, the upload, and the client's state."""
        state: Any = timer("keys", lambda: self._state(0))
        keys = {str(at): list(pair) for at, pair in {0: (state.pk1, state.pk2), **self.keys}.items()}
        sent = timer("deal", lambda: flower._share_keys(state, keys))
        boxes = []
        for at, peer in self.peers.items():
            # A neighbour's box for client 0; its shares are as long as those of client 0.
            shared = generate_shared_key(bytes_to_private_key(peer.sk2), bytes_to_public_key(state.pk2))
            plain = flower.share_keys_plaintext_concat(at, 0, state.rd_seed_share_dict[0], state.sk1_share_dict[0])
            boxes.append(flower.encrypt(shared, plain))
        told: Any = {Key.CIPHERTEXT_LIST: boxes, Key.SOURCE_LIST: list(self.peers)}
        data = timer("upload", lambda: flower._collect_masked_vectors(state, told, 60, self.parameters))
        asked: Any = {Key.ACTIVE_NODE_ID_LIST: list(self.peers), Key.DEAD_NODE_ID_LIST: []}
        answer = timer("answer", lambda: flower._unmask(state, asked))
        vectors = data[Key.MASKED_PARAMETERS]
        size = len(state.pk1) + len(state.pk2) + sum(map(len, sent[Key.CIPHERTEXT_LIST]))
        return size + sum(map(len, answer[Key.SHARE_LIST])) + sum(map(len, vectors)), vectors, state

    def server(self, timer: Timer, vectors: list[bytes], state: Any, lost: int) -> None:
        """Each of the server's operations once, as the stages `collect_masked_vectors` and `unmask` do them."""
        total = [bytes_to_ndarray(data) for data in vectors]
        timer("add", lambda: parameters_addition(total, [bytes_to_ndarray(data) for data in vectors]))
        shares = flower.create_shares(state.rd_seed, state.threshold, state.share_num)
        held = shares[: max(state.threshold, len(shares) - lost)]
        secret = timer("open", lambda: combine_shares(held))
        shapes = get_parameters_shape(total)
        timer("self mask", lambda: parameters_subtraction(total, pseudo_rand_gen(secret, MODULUS, shapes)))
        timer("ends", lambda: None)

        def pair() -> None:
            shared = generate_shared_key(bytes_to_private_key(state.sk1), bytes_to_public_key(self.keys[1][0]))
            parameters_subtraction(total, pseudo_rand_gen(shared, MODULUS, shapes))

        timer("pair mask", pair)
        timer("values", lambda: dequantize(parameters_mod(total, MODULUS)[1:], BOUND, RANGE))


def _server_seconds(best: dict[str, float], clients: int, lost: int, neighbours: int) -> float:
    # Flower's workflow opens a mask for every neighbour of a lost client, and so do we.
    return (
        (clients - lost) * (best["add"] + best["self mask"])
        + clients * best["open"]
        + lost * (best["ends"] + neighbours * best["pair mask"])
        + best["values"]
    )


def measure(clients: int, parameters: int, bits: int, repeat: int) -> dict[str, object]:
    """A row of the table."""
    found = graph.smallest(clients, CORRUPT, DROPPED)
    lost = max(1, round(LOST * clients))
    values = np.random.default_rng(1).normal(0, 0.1, parameters).astype(np.float32)
    ours = Ours(found.degree, found.threshold, values, FixedPoint(BOUND, clients, bits))
    theirs = Flower(found.degree, found.threshold, values)
    one, other = Timer(), Timer()
    sizes = {}
    for _ in range(repeat):
        # Some of a client's neighbours are lost too.
        gone = round(lost / clients * found.degree)
        sizes["ours"], data, mask = ours.client(one)
        sizes["flower"], vectors, state = theirs.client(other)
        ours.server(one, data, mask, gone)
        theirs.server(other, vectors, state, gone)
    steps = ("keys", "deal", "upload", "answer")
    client, flowers = (sum(timer.best[step] for step in steps) for timer in (one, other))
    server, flowers_server = (_server_seconds(t.best, clients, lost, found.degree) for t in (one, other))
    least = parameters * bits / 8
    return dict(
        zip(
            COLUMNS,
            [
                clients, parameters, found.degree, found.threshold, bits, lost,
                f"{client:.4f}", f"{flowers:.4f}", f"{client / flowers:.3f}",
                f"{server:.3f}", f"{flowers_server:.3f}", f"{server / flowers_server:.3f}",
                sizes["ours"], sizes["flower"], f"{sizes['ours'] / least:.3f}",
                f"{(sizes['ours'] - masks.packed_size(parameters, bits)) / found.degree:.0f}",
            ],
            strict=True,
        )
    )  # fmt: skip


def main() -> None:
    """Measures all sizes and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--parameters", type=int, nargs="+", default=[61_000, 1_000_000, 11_000_000])
    parser.add_argument("--bits", type=int, nargs="+", default=[32, 20])
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[1] / "docs/numbers/secagg.csv")
    options = parser.parse_args()
    rows = []
    for clients, parameters, bits in itertools.product(options.clients, options.parameters, options.bits):
        rows.append(measure(clients, parameters, bits, repeat=2 if parameters > 5_000_000 else 4))
        print(rows[-1], flush=True)
    with options.out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
