"""Lies of one client or of the key server, in every recipe of the repository that runs small: nothing may raise.

    python benchmarks/fuzz.py [--messages 100000] [--seconds 3600] [--only fas,lwe] [--seed 1]

Each recipe is cut down to the bundled digits, a small model and five clients, run once, and then lied to: one answer of
one party, altered anywhere, is played to the server (`fedplug_kit.lies`). Prints a line a recipe, and the first
lies that had another consequence than their sender's exclusion, with the seed that repeats them; exit code 1 then.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from pathlib import Path

from fedplug.api.errors import FedplugError
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.recipe import Recipe, load_recipe
from fedplug_kit.lies import Lies, altered

ROOT = Path(__file__).parents[1]
FOLDERS = ("recipes", "recipes/baselines", "recipes/hybrids", "plugins-contrib/*/src/*/recipes")
SMALL = (
    "rounds=2", "data.use=std.digits", "data.clients=5", "min_clients=3", "model={use: std.mlp, hidden: [4]}",
    "train.epochs=1", "data.partition={use: std.iid}",
    "sampling.source=reproducible",
)  # fmt: skip
SHOWN = 5


def small(path: Path, catalog: Catalog) -> Recipe:
    """The recipe cut down as far as it lets itself be."""
    sets: list[str] = []
    for change in SMALL:
        try:
            load_recipe(path, [*sets, change], catalog)
            sets.append(change)
        except FedplugError:
            continue
    return load_recipe(path, sets, catalog)


def files() -> list[Path]:
    """The recipes, without grids."""
    found = (path for folder in FOLDERS for path in sorted(ROOT.glob(f"{folder}/*.yaml")))
    return [path for path in found if not path.name.endswith(".grid.yaml")]


def main() -> int:
    """Prints a line a recipe; exit code 1 if a lie had other consequences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000, help="how many, over all recipes")
    parser.add_argument("--seconds", type=float, default=3600.0, help="stop after this many, whatever is left")
    parser.add_argument("--only", default="", help="parts of recipes' names, separated by commas")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    catalog, began, sent, wrong = Catalog.discover(), time.monotonic(), 0, 0
    wanted = [path for path in files() if any(part in path.stem for part in options.only.split(","))]
    for number, path in enumerate(wanted):
        try:
            lies = Lies(small(path, catalog), catalog, os.environ.get("FEDPLUG_DATA"))
        except (FedplugError, AssertionError) as error:
            print(f"{path.stem:32} left out: {str(error).splitlines()[0][:100]}", flush=True)
            continue
        left = len(wanted) - number
        until = time.monotonic() + (began + options.seconds - time.monotonic()) / left
        share, told, found = (options.messages - sent) // left, lies.told(), []
        honest = [act.answers[address][answer] for act, address, answer in told]
        done = 0
        while done < share and time.monotonic() < until:
            seed = f"{options.seed}-{path.stem}-{done}"
            rng = random.Random(seed)
            act, address, answer = rng.choice(told)
            message = altered(act.answers[address][answer], rng, honest)
            if problem := lies.lie(act, address, answer, message):
                found.append(f"    seed {seed}: {act.name}, {address}, answer {answer}: {problem[:300]}")
            done += 1
        sent, wrong = sent + done, wrong + len(found)
        print(f"{path.stem:32} {done:7} messages, {len(found)} with other consequences", flush=True)
        print("\n".join(found[:SHOWN]), end="\n" if found else "", flush=True)
    print(f"{sent} messages in {time.monotonic() - began:.0f} s, {wrong} with other consequences")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
