"""The costs of SenseCrypt's devices: its Fig. 5 and 9, the bytes of Fig. 2d to 4d, and values encrypted in vain.

    FEDPLUG_DATA=... python benchmarks/devices.py [--seeds 1 2 3] [--rounds 3] [--json]

Fig. 5: five clients with iid data, 50 MB/s and CPUs that differ ever more. Each protocol really runs, and each client's
round is priced as in `benchmarks/simulated_time.py`, with the same assumptions, for the paper's one scalar per
ciphertext and for `std.bfv`. All five are one cluster, as in the paper. MaskCrypt's mask is as large as the union of
SenseCrypt's. `budget used up` is SenseCrypt where encrypting costs nothing in the selection problem (`beta1` near 0),
so that every client encrypts as much as its budget allows.

Fig. 9: encryption and decryption of a share of 124,534 scalars, the paper's AlexNet, on 6 to 1 CPUs; nothing runs.

Bytes: of one client in one iteration, mean over clients, rounds and seeds, in the three scenarios, with phe; clients
open sums, as in Alg. 1.

In vain: of the scalars that SenseCrypt's clients select, those that fewer than `min_clients` of a cluster select, which
no sum holds (`in_no_sum` in the log of a row). Also the simulated seconds of a round with phe in three cases: the key
server opens everything (the paper), it opens what `min_clients` have encrypted, or no client encrypts the rest at all.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from fedplug.recipe.recipe import Recipe
from fedplug_runs.overlay import load_recipe
from fedplug_sensecrypt.simulated_clock import RoundSeconds
from simulated_time import (
    HOLDERS,
    PROTOCOLS,
    RECIPES,
    SCENARIOS,
    Cipher,
    Mask,
    Run,
    changes,
    ciphers,
    rounds_of,
    sensecrypt,
    shared,
    traffic,
)

DEGREES = ([32, 30, 28, 26, 24], [32, 28, 24, 20, 16], [32, 24, 18, 16, 12], [32, 16, 12, 10, 8])
"""CPUs of the five clients of Fig. 5, in its four rounds."""
ALEXNET, SHARES, CPUS = 124_534, (0.1, 0.5, 0.9), (6, 5, 4, 3, 2, 1)
TRAIN_SIZE = 4000
USED_UP = "SenseCrypt, budget used up"
Measured = dict[str, Any]


def spread(values: Iterable[float]) -> tuple[float, float]:
    """Mean and standard deviation."""
    found = list(values)
    return statistics.mean(found), statistics.stdev(found) if len(found) > 1 else 0.0


# -- Fig. 5 ------------------------------------------------------------------------------------------------------------


def degree(cpus: Sequence[int], seed: int, rounds: int, found: Sequence[Cipher]) -> list[Measured]:
    """Least, mean and greatest seconds of a client, over clients and rounds, for each protocol and cipher."""
    profiles = [{"of": [client], "cpus": count, "bandwidth": 50} for client, count in enumerate(cpus)]
    profiles.append({"of": ["server", "key_server"], "cpus": 32, "bandwidth": 1000})
    sets = [
        f"seed={seed}", f"rounds={rounds}", f"data.train_size={TRAIN_SIZE}", "data.clients=5", "groups=null",
        f"profiles={json.dumps(profiles)}",
    ]  # fmt: skip
    path = RECIPES / "extreme-small.yaml"
    recipe = load_recipe(path, sets)
    ours = sensecrypt(recipe)
    size = len(ours.masks[0][0])
    union = statistics.mean(float(ours.unions(index)[0].mean()) for index in range(1, rounds))
    runs = {"SenseCrypt": ours, USED_UP: sensecrypt(load_recipe(path, [*sets, "negotiate_mask.beta1=1e-9"]))}
    for protocol, share in (("MaskCrypt", round(union, 4)), ("Paillier-FedAvg", 1.0)):
        other = load_recipe(path, sets + changes(protocol, share))
        runs[protocol] = shared(other, int(share * size), size)
    return [
        {"cpus": list(cpus), "seed": seed, "protocol": protocol, "cipher": cipher.name, "holder": holder,
         "union": union, **of_clients(rounds_of(protocol.split(",")[0], run, cipher, holder, recipe))}
        for protocol, run in runs.items() for cipher in found for holder in HOLDERS
    ]  # fmt: skip


def of_clients(rounds: Sequence[RoundSeconds]) -> dict[str, float]:
    """Of all clients in all rounds."""
    seconds = [client.total for one in rounds for client in one.clients.values()]
    return {"min": min(seconds), "mean": statistics.mean(seconds), "max": max(seconds)}


# -- Fig. 9 ------------------------------------------------------------------------------------------------------------


def he_seconds(cipher: Cipher, share: float, cpus: int) -> float:
    """Encryption and decryption of a share of AlexNet by one client, with one mask for all."""
    count = -(-int(share * ALEXNET) // cipher.width)
    return count * (cipher.seconds["encrypt"] + cipher.seconds["decrypt"]) / cpus


# -- bytes, and what is encrypted in vain ------------------------------------------------------------------------------


def scenario(name: str, seed: int, rounds: int, phe: Cipher) -> Measured:
    """SenseCrypt's run in a scenario, and the results from its masks."""
    one_cluster = ["groups=null"] if name == "system" else []
    sets = [f"seed={seed}", f"rounds={rounds}", f"data.train_size={TRAIN_SIZE}", *one_cluster]
    recipe = load_recipe(RECIPES / f"{name}-small.yaml", sets)
    ours = sensecrypt(recipe)
    size = len(ours.masks[0][0])
    union = statistics.mean(float(one.mean()) for index in range(1, rounds) for one in ours.unions(index))
    shares = {"SenseCrypt": None, "MaskCrypt": union, "Paillier-FedAvg": 1.0, "FedAvg": 0.0}
    runs = {name: ours if share is None else alike(ours, share, size) for name, share in shares.items()}
    return {"scenario": name, "seed": seed, "bytes": {p: moved(p, runs[p], phe, rounds) for p in PROTOCOLS},
            **in_vain(recipe, ours, phe)}  # fmt: skip


def alike(ours: Run, share: float, size: int) -> Run:
    """A protocol in which all clients encrypt as many scalars, in one place."""
    mask: Mask = np.arange(size) < int(share * size)
    clients = sorted(ours.masks[0])
    return Run([], [dict.fromkeys(clients, mask)] * len(ours.masks), [clients])


def moved(protocol: str, found: Run, phe: Cipher, rounds: int) -> dict[str, float]:
    """MB up and down of a client in a round after the first, mean."""
    sent = [
        both
        for index in range(1, rounds)
        for party, both in traffic(protocol, found, index, phe, "clients").items()
        if isinstance(party, int)
    ]
    return {way: statistics.mean(both[place] for both in sent) / 1e6 for place, way in enumerate(("up", "down"))}


@dataclasses.dataclass
class Opened(Run):
    """A run that opens less than was encrypted.

    Attributes:
        held: round -> client -> the part of its mask that a sum holds.
    """

    held: list[dict[int, Mask]]

    def unions(self, round: int) -> list[Mask]:
        return Run(self.rows, self.held, self.groups).unions(round)


def in_vain(recipe: Recipe, ours: Run, phe: Cipher) -> Measured:
    """The share of the clients' encryptions that no sum holds, and its cost."""
    kept = []
    for masks in ours.masks:
        held: dict[int, Mask] = {}
        for ids in ours.groups:
            in_sum = np.sum([masks[one] for one in ids], axis=0) >= recipe.min_clients
            held.update({one: masks[one] & in_sum for one in ids})
        kept.append(held)
    encrypted, summed = (sum(int(m.sum()) for masks in all_[1:] for m in masks.values()) for all_ in (ours.masks, kept))
    runs = {
        "all": ours,
        "opened": Opened(ours.rows, ours.masks, ours.groups, kept),
        "without": Run(ours.rows, kept, ours.groups),
    }
    return {
        "left_out": 1 - summed / encrypted, "clusters": sorted(map(len, ours.groups)),
        **{key: statistics.mean(one.seconds for one in rounds_of("SenseCrypt", run, phe, "key server", recipe))
           for key, run in runs.items()},
    }  # fmt: skip


# -- all together ------------------------------------------------------------------------------------------------------


def tables(degrees: Sequence[Measured], ciphers: Sequence[Cipher], scenarios: Sequence[Measured]) -> str:
    """The results as Markdown."""
    lines = [
        f"| CPUs | protocol | cipher |{''.join(f' {h}: min | mean | max |' for h in HOLDERS)}", "|" + " --- |" * 9
    ]  # fmt: skip
    for cpus, protocol, cipher in dict.fromkeys((tuple(d["cpus"]), d["protocol"], d["cipher"]) for d in degrees):
        same = [d for d in degrees if (tuple(d["cpus"]), d["protocol"], d["cipher"]) == (cpus, protocol, cipher)]
        cells = (
            _pm([one[key] for one in same if one["holder"] == holder])
            for holder in HOLDERS
            for key in ("min", "mean", "max")
        )
        lines.append(f"| {', '.join(map(str, cpus))} | {protocol} | {cipher} | {' | '.join(cells)} |")
    lines += ["", f"| share | cipher |{''.join(f' {cpus} CPUs |' for cpus in CPUS)}", "|" + " --- |" * (2 + len(CPUS))]
    for cipher in ciphers:
        for share in SHARES:
            seconds = (f"{he_seconds(cipher, share, count):.3g}" for count in CPUS)
            lines.append(f"| {share:.0%} | {cipher.name} | {' | '.join(seconds)} |")
    lines += ["", "| scenario | protocol | MB up | MB down |", "| --- | --- | --- | --- |"]
    for name in SCENARIOS:
        same = [one for one in scenarios if one["scenario"] == name]
        for protocol in PROTOCOLS:
            cells = (_pm([one["bytes"][protocol][way] for one in same]) for way in ("up", "down"))
            lines.append(f"| {name} | {protocol} | {' | '.join(cells)} |")
    lines += ["", "| scenario | clusters | in no sum | all opened | opened | without |", "|" + " --- |" * 6]
    for name in SCENARIOS:
        same = [one for one in scenarios if one["scenario"] == name]
        mean, sd = spread(100 * one["left_out"] for one in same)
        cells = (_pm([one[key] for one in same]) for key in ("all", "opened", "without"))
        sizes = " / ".join(dict.fromkeys(" ".join(map(str, one["clusters"])) for one in same))
        lines.append(f"| {name} | {sizes} | {mean:.1f} ± {sd:.1f}% | {' | '.join(cells)} |")
    return "\n".join(lines)


def _pm(values: Sequence[float]) -> str:
    mean, sd = spread(values)
    return f"{mean:.3g} ± {sd:.1g}"


def main() -> int:
    """Measures, prices and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--rounds", type=int, default=3, help="2 or more; the first is left out")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the tables")
    given = parser.parse_args()
    if given.rounds < 2:
        parser.error("--rounds must be 2 or more: the first round is left out")
    phe, _, bfv = ciphers(20)
    degrees = [row for cpus in DEGREES for seed in given.seeds for row in degree(cpus, seed, given.rounds, (phe, bfv))]
    scenarios = [scenario(name, seed, given.rounds, phe) for name in SCENARIOS for seed in given.seeds]
    if given.json:
        costs = [{"name": one.name, "width": one.width, "seconds": one.seconds} for one in (phe, bfv)]
        print(json.dumps({"ciphers": costs, "degrees": degrees, "scenarios": scenarios}))
    else:
        print(tables(degrees, (phe, bfv), scenarios))
    return 0


if __name__ == "__main__":
    sys.exit(main())
