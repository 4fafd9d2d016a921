"""Simulated round time of SenseCrypt, MaskCrypt, Paillier-FedAvg and plain FedAvg in SenseCrypt's three scenarios.

    FEDPLUG_DATA=... python benchmarks/simulated_time.py [--rounds 3] [--set KEY=VALUE] [--json]

Each protocol really runs under the profiles of `recipes/paper/sensecrypt/`, encrypted with `std.bfv`. From the runs
come the masks, as each client chose them before they are widened to whole blocks, and how much each party trains,
scores and selects. The rounds are then priced for three ciphers, whose costs are measured in the same process: phe with
one scalar a ciphertext, as in the paper; packed `std.paillier`, also with 2048 bits; and `std.bfv`. The assumptions
are:

* the assumptions of `fedplug_sensecrypt.simulated_clock`, and its prices: medians over the rounds of each run;
* the server and the key server have the 32 CPUs and 1,000 MB/s of the recipes, which are ours;
* round 1, in which clusters form, is left out: the mean of the others is given;
* masks are those of the first rounds of training on few examples, with the paper's B, C and bound on the information;
* in the system scenario all 20 clients are one cluster, as the paper says. `sensecrypt.clusters` would find several,
  because affinity propagation also divides clients that hardly differ;
* MaskCrypt encrypts as many scalars as the union of SenseCrypt's masks holds, as in the paper, mean over clusters, at
  every client. It proposes and interleaves that many, as its recipe does;
* the union of a cluster's masks is opened (`min_clients: 1` of the paper; a recipe here opens less);
* bytes: ciphertexts, 4 for a scalar in the clear, a bit a scalar for a mask, 4 for each index that MaskCrypt proposes.

Two tables: the key server opens the sums and clients get plain values; or every client gets the ciphertexts and opens
them itself, as the paper's Alg. 1, line 14 has it. Accuracy is not compared here.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import fedplug
import numpy as np
from fedplug import Client, at_client
from fedplug.recipe.recipe import Recipe
from fedplug_runs.folder import read_rows
from fedplug_runs.overlay import load_recipe
from fedplug_runs.rows import Row
from fedplug_sensecrypt.devices import by_party, profiles_of
from fedplug_sensecrypt.paillier import Paillier as ScalarPaillier
from fedplug_sensecrypt.select import Select
from fedplug_sensecrypt.simulated_clock import Party, RoundSeconds, round_seconds, samples_of, unit_costs, work_of
from fedplug_std.bfv import Bfv
from fedplug_std.he_blocks import Encryption
from fedplug_std.paillier import Paillier
from numpy.typing import NDArray

RECIPES = Path(__file__).parents[1] / "recipes/paper/sensecrypt"
SCENARIOS = ("statistical", "system", "both")
PROTOCOLS = ("SenseCrypt", "MaskCrypt", "Paillier-FedAvg", "FedAvg")
HOLDERS = ("key server", "clients")
PAPER = {"MaskCrypt": "58.4% to 62.7%", "Paillier-FedAvg": "81.4% to 88.7%"}
"""What SenseCrypt saves according to Sec. 4.2, in the system scenario and in both together."""
STEPS = ("encrypt", "add", "decrypt")
Mask = NDArray[np.bool_]


# -- ciphers -----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Cipher:
    """The cost of one ciphertext of a cipher.

    Attributes:
        width: scalars in it, of a mask that all share or in a block of global positions.
        seconds: for each of `STEPS`, of one thread of this machine.
        num_bytes: its size.
    """

    name: str
    width: int
    seconds: dict[str, float]
    num_bytes: float

    def count(self, mask: Mask) -> int:
        """Ciphertexts of an individual mask: one for each block that it touches."""
        return len(np.unique(np.flatnonzero(mask) // self.width))


def measure(name: str, component: Encryption, ciphertexts: int, num_clients: int, repeats: int = 3) -> Cipher:
    """Medians over the repeats of the CPU time of one thread, in the component's own code."""
    key, terms = component.new_keys(num_clients)
    backend, width = component.backend, component.position_block
    public = backend.load_context(backend.dump_context(key, public_key=True))
    adding = backend.load_context(backend.dump_context(key))
    packing, rng = component.packing(terms), np.random.default_rng(0)
    words, _ = packing.numbers.encode(rng.normal(0, 0.01, ciphertexts * width), rng)
    payload = packing.pack(words.reshape(-1, width))
    rows = np.empty((len(payload), component.slots), payload.dtype)
    rows[:, 0], rows[:, 1:] = packing.count_unit, payload
    backend.encrypt(public, rows[:1])  # builds tables that a process builds only once
    samples: dict[str, list[float]] = {step: [] for step in STEPS}

    def timed(step: str, count: int, call: Callable[..., Any], *given: Any) -> Any:
        started = time.thread_time()
        result = call(*given)
        samples[step].append((time.thread_time() - started) / count)
        return result

    for _ in range(repeats):
        sealed = timed("encrypt", len(rows), backend.encrypt, public, rows)
        total = timed("add", len(rows) * num_clients, backend.add, adding, [sealed] * num_clients, component.slots)
        timed("decrypt", len(rows), backend.decrypt, key, total, component.slots)
    return Cipher(
        name, width, {step: statistics.median(samples[step]) for step in STEPS}, statistics.mean(map(len, sealed))
    )


def ciphers(num_clients: int) -> list[Cipher]:
    """The paper's cipher, and the two that pack; keys of 2048 bits."""
    scalar, packed = ScalarPaillier(ScalarPaillier.Options()), Paillier(Paillier.Options(key_bits=2048))
    return [
        measure("phe, one scalar each", scalar, 16, num_clients),
        measure("std.paillier", packed, 16, num_clients),
        measure("std.bfv", Bfv(Bfv.Options()), 4, num_clients),
    ]


# -- runs --------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Run:
    """A protocol's run in one scenario.

    Attributes:
        rows: of the metrics.
        masks: round -> client -> the encrypted scalars.
        groups: clients that share a model.
    """

    rows: list[Row]
    masks: list[dict[int, Mask]]
    groups: list[list[int]]

    def unions(self, round: int) -> list[Mask]:
        """The opened positions in a round, for each group."""
        return [np.logical_or.reduce([self.masks[round][one] for one in ids]) for ids in self.groups]


def run(recipe: Recipe) -> tuple[list[Row], list[dict[int, Mask]]]:
    """Runs a recipe in this process; the rows of its metrics, and the masks that SenseCrypt's clients chose."""
    masks: list[dict[int, Mask]] = [{} for _ in range(recipe.rounds)]
    original = Select.choose

    @at_client
    def choose(self: Select, client: Client, alpha: float) -> None:  # methods are called by name
        original(self, client, alpha)
        assert client.plan is not None
        mask = np.zeros(client.facts.layout.size, np.bool_)
        mask[client.plan.positions("encrypted")] = True
        masks[client.facts.round][client.client_id] = mask

    with (
        patch.object(Select, "choose", choose),
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stdout(sys.stderr),  # only the tables are the output
    ):
        run = fedplug.run(recipe, engine="local", device="cpu", output=folder, quiet=True)
        return read_rows(run.folder), masks


def sensecrypt(recipe: Recipe) -> Run:
    """SenseCrypt with the clusters that it finds."""
    rows, masks = run(recipe)
    everybody = {"all": list(range(recipe.clients))}
    return Run(rows, masks, list((rows[0].group_members or everybody).values()))


def shared(recipe: Recipe, count: int, size: int) -> Run:
    """A protocol in which all clients encrypt the same `count` scalars; which ones makes no difference to the price."""
    rows, _ = run(recipe)
    mask = np.arange(size) < count
    clients = list(range(recipe.clients))
    return Run(rows, [dict.fromkeys(clients, mask)] * recipe.rounds, [clients])


def changes(protocol: str, share: float) -> list[str]:
    """Changes that turn SenseCrypt's recipe into that of another protocol."""
    if protocol == "MaskCrypt":
        return [
            "groups=null", "score_parameters=[{use: baselines.maskcrypt_priority}]",
            f"negotiate_mask={{use: baselines.maskcrypt, ratio: {share!r}}}",
            "protect.clear=[baselines.maskcrypt_priority]",
        ]  # fmt: skip
    zone = "encrypted" if protocol == "Paillier-FedAvg" else "clear"
    found = ["groups=null", "score_parameters=[]", f"negotiate_mask={{use: std.single_zone, zone: {zone}}}"]
    if zone == "encrypted":
        sealed = "{use: std.bfv, key_holder: key_server, sums_visible_to: clients}"
        return [*found, f"protect={{clear: null, encrypted: [{sealed}]}}"]
    return [*found, "protect={encrypted: null, clear: []}", "postprocess={encrypted: null}"]


# -- prices ------------------------------------------------------------------------------------------------------------


def rounds_of(protocol: str, found: Run, cipher: Cipher, holder: str, recipe: Recipe) -> list[RoundSeconds]:
    """Simulated seconds of the rounds after the first, by party."""
    costs = unit_costs(samples_of(found.rows)) | cipher.seconds
    profiles = by_party(profiles_of(recipe))
    return [
        round_seconds(
            operations(found, index, cipher, holder), traffic(protocol, found, index, cipher, holder), profiles, costs
        )
        for index in range(1, len(found.rows))
    ]


def price(protocol: str, found: Run, cipher: Cipher, holder: str, recipe: Recipe) -> dict[str, float]:
    """Their means; `compute` and `transfer` are the slowest client's."""
    rounds = [one.to_row() for one in rounds_of(protocol, found, cipher, holder, recipe)]
    return {
        key: statistics.mean(getattr(simulated, key) for simulated in rounds)
        for key in ("seconds", "compute", "transfer", "server", "key_server")
    }


def operations(found: Run, round: int, cipher: Cipher, holder: str) -> dict[Party, dict[str, float]]:
    """Those of the run, with the cipher's in place of BFV's."""
    counts = {
        party: {name: count for name, count in one.items() if not name.startswith("std.bfv.")}
        for party, one in work_of(found.rows[round])[0].items()
    }
    added = 0
    for client_id, mask in found.masks[round].items():
        sealed = ciphertexts(found, cipher, mask)
        counts[client_id]["encrypt"] = sealed
        added += sealed
    counts["server"]["add"] = added
    opened = [ciphertexts(found, cipher, union) for union in found.unions(round)]
    counts.setdefault("key_server", {})
    if holder == "clients":
        for ids, number in zip(found.groups, opened, strict=True):
            for client_id in ids:
                counts[client_id]["decrypt"] = number
    else:
        counts["key_server"]["decrypt"] = sum(opened)
    return counts


def traffic(protocol: str, found: Run, round: int, cipher: Cipher, holder: str) -> dict[Party, tuple[float, float]]:
    """Bytes up and down of each party; the server's link carries all of it."""
    moved: dict[Party, tuple[float, float]] = {}
    opened = 0.0
    for ids, union in zip(found.groups, found.unions(round), strict=True):
        size = len(union)
        answer = ciphertexts(found, cipher, union) * cipher.num_bytes
        opened += answer + 4 * int(union.sum())
        for client_id in ids:
            mask = found.masks[round][client_id]
            up = ciphertexts(found, cipher, mask) * cipher.num_bytes + 4 * (size - covered(found, cipher, mask))
            down = answer + 4 * (size - covered(found, cipher, union)) if holder == "clients" else 4.0 * size
            if protocol == "SenseCrypt":
                up, down = up + size / 8, down + size / 8
            elif protocol == "MaskCrypt":
                up, down = up + 4 * int(mask.sum()), down + size / 8
            moved[client_id] = (up, down)
    between = opened if holder == "key server" else 0.0
    everything = sum(map(sum, moved.values()))
    return {**moved, "server": (everything, between), "key_server": (between, 0.0)}


def ciphertexts(found: Run, cipher: Cipher, mask: Mask) -> int:
    """Of masks that differ, blocks of positions; one that all share is gathered."""
    return cipher.count(mask) if _own(found) else -(-int(mask.sum()) // cipher.width)


def covered(found: Run, cipher: Cipher, mask: Mask) -> int:
    """Scalars that travel encrypted: the whole block that an individual mask touches."""
    if not _own(found):
        return int(mask.sum())
    return min(len(mask), cipher.count(mask) * cipher.width)


def _own(found: Run) -> bool:
    masks = list(found.masks[0].values())
    return any(mask is not masks[0] for mask in masks)


# -- all together ------------------------------------------------------------------------------------------------------


def scenario(
    name: str, rounds: int, train_size: int, settings: Sequence[str], found: Sequence[Cipher]
) -> dict[str, Any]:
    """Everything about one scenario; `settings` change only SenseCrypt's recipe."""
    sets = [f"rounds={rounds}", f"data.train_size={train_size}"]
    path = RECIPES / f"{name}-small.yaml"
    ours = load_recipe(path, [*sets, *(["groups=null"] if name == "system" else []), *settings])
    runs = {"SenseCrypt": sensecrypt(ours)}
    masks = runs["SenseCrypt"].masks[1:]
    size = len(masks[0][0])
    later = range(1, rounds)
    union = statistics.mean(float(one.mean()) for index in later for one in runs["SenseCrypt"].unions(index))
    for protocol, share in (("MaskCrypt", round(union, 4)), ("Paillier-FedAvg", 1.0), ("FedAvg", 0.0)):
        recipe = load_recipe(path, sets + changes(protocol, share))
        runs[protocol] = shared(recipe, int(share * size), size)
    prices = [
        {"protocol": protocol, "cipher": cipher.name, "holder": holder, **price(protocol, one, cipher, holder, ours)}
        for holder in HOLDERS
        for cipher in found
        for protocol, one in runs.items()
    ]
    shares = [float(mask.mean()) for masks_of in masks for mask in masks_of.values()]
    return {
        "scenario": name, "clusters": len(runs["SenseCrypt"].groups), "parameters": size, "union": union,
        "selected": {"mean": statistics.mean(shares), "min": min(shares), "max": max(shares)}, "prices": prices,
    }  # fmt: skip


def saved(prices: Sequence[Mapping[str, Any]], cipher: str, holder: str, other: str) -> float:
    """The share of another protocol's round that SenseCrypt saves."""
    seconds = {row["protocol"]: row["seconds"] for row in prices if (row["cipher"], row["holder"]) == (cipher, holder)}
    return float(1 - seconds["SenseCrypt"] / seconds[other])


def tables(results: Sequence[Mapping[str, Any]], found: Sequence[Cipher]) -> str:
    """The results as Markdown."""
    lines = ["| cipher | scalars | bytes | encrypt | add | decrypt |", "| --- | --- | --- | --- | --- | --- |"]
    for cipher in found:
        costs = " | ".join(f"{1e3 * cipher.seconds[step]:.3g} ms" for step in STEPS)
        lines.append(f"| {cipher.name} | {cipher.width} | {cipher.num_bytes:,.0f} | {costs} |")
    for one in results:
        chosen, clusters = one["selected"], one["clusters"]
        between = f"{chosen['min']:.1%} to {chosen['max']:.1%}"
        lines += ["", f"{one['scenario']}, clusters: {clusters}; a client selects {chosen['mean']:.1%} ({between}) of "
                  f"{one['parameters']:,} scalars, a cluster's union holds {one['union']:.1%}."]  # fmt: skip
    for holder in HOLDERS:
        lines += ["", f"Sums opened by the {holder}, simulated seconds a round:", ""]
        lines.append("| scenario | cipher | protocol | seconds | client's compute | transfer | server | key server |")
        lines.append("| --- | --- | --- | --- | --- | --- | --- | --- |")
        for one in results:
            for row in one["prices"]:
                if row["holder"] == holder and (row["protocol"] != "FedAvg" or row["cipher"] == found[0].name):
                    cipher_name = "none" if row["protocol"] == "FedAvg" else row["cipher"]
                    parts = " | ".join(
                        f"{row[key]:.4g}" for key in ("seconds", "compute", "transfer", "server", "key_server")
                    )
                    lines.append(f"| {one['scenario']} | {cipher_name} | {row['protocol']} | {parts} |")
        lines += ["", f"Time that SenseCrypt saves, sums opened by the {holder}:", ""]
        lines += ["| scenario | cipher | against MaskCrypt | against Paillier-FedAvg |", "| --- | --- | --- | --- |"]
        for one in results:
            for cipher in found:
                shares = (f"{saved(one['prices'], cipher.name, holder, other):.1%}" for other in PAPER)
                lines.append(f"| {one['scenario']} | {cipher.name} | {' | '.join(shares)} |")
        lines.append(f"| the paper, system and both | phe | {' | '.join(PAPER.values())} |")
    return "\n".join(lines)


def main() -> int:
    """Measures, prices and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="2 or more; the first is left out")
    parser.add_argument("--train-size", type=int, default=4000)
    change = "of SenseCrypt's recipe alone, such as negotiate_mask.mutual_information=null"
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help=change)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the tables")
    arguments = parser.parse_args()
    if arguments.rounds < 2:
        parser.error("--rounds must be 2 or more: the first round, in which clusters form, is left out")
    found = ciphers(load_recipe(RECIPES / "both-small.yaml").clients)
    given = arguments.rounds, arguments.train_size, arguments.set
    results = [scenario(name, *given, found) for name in SCENARIOS]
    if arguments.json:
        print(json.dumps({"ciphers": [dataclasses.asdict(one) for one in found], "scenarios": results}))
    else:
        print(tables(results, found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
