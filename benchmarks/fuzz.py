"""Hostile input: lies of one party, frames, run folders. None may raise, hang, or write outside.

    python benchmarks/fuzz.py [--messages 100000] [--seconds 3600] [--only fas,lwe] [--seed 1]
    python benchmarks/fuzz.py --frames 200000
    python benchmarks/fuzz.py --folders 200

Each recipe is cut down to the bundled digits, a small model and five clients, run once, and then lied to: one answer of
one party, altered anywhere, is played to the server (`fedplug_kit.lies`). Prints a line per recipe, and the first
lies with a consequence other than their sender's exclusion, with the seed that repeats them; exit code 1 then.

Frames (`hostile.py`) are made from all messages of small recorded runs, and go to every reader of messages at
a party and at the server. Run folders are copies of such runs, changed, and are reported, compared, attacked and
resumed by the command line in this process. Prints a line per kind, and each fault with its seed.
"""

from __future__ import annotations

import argparse
import functools
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedplug.api.errors import FedplugError
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.recipe import Recipe
from fedplug.wire.post_office import Transport
from fedplug_kit.lies import Lies
from fedplug_kit.world import build
from fedplug_runs.overlay import load_recipe
from hostile import altered, folder_problems, frame_problem, hostile_frame, make_hostile

ROOT = Path(__file__).parents[1]
FOLDERS = ("recipes", "recipes/baselines", "recipes/hybrids", "plugins-contrib/*/src/*/recipes")
SMALL = (
    "rounds=2", "data.use=std.digits", "data.clients=5", "min_clients=3", "model={use: std.mlp, hidden: [4]}",
    "train.epochs=1", "data.partition={use: std.iid}",
    "sampling.source=reproducible",
)  # fmt: skip
SHOWN = 5


def small(path: Path, catalog: Catalog) -> Recipe:
    """The recipe, reduced as far as possible."""
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


RUNS = ("fedavg", "paraaegis-key-server", "selectiveshield")
"""Recipes whose runs are changed: clear sums, sealed ones with a key server, and individual positions."""


def recorded(folder: Path, catalog: Catalog) -> list[Path]:
    """Runs of small recipes, recorded, one of them attacked."""
    from fedplug_runs.execution import start
    from fedplug_runs.settings import Settings

    settings = Settings(output=folder, record_wire=True, quiet=True, device="cpu")
    made = []
    for name in RUNS:
        recipe = small(ROOT / "recipes" / f"{name}.yaml", catalog)
        made.append(start(recipe, settings, catalog, name)[1])
    words = ["--attack", "ilrg", "--adversary", "server", "--round", "1", "--target", "0", "-q"]
    called(["attack", str(made[0]), *words])
    return made


def called(words: list[str]) -> int:
    """Runs the command line in this process. Returns its exit code."""
    from fedplug_terminal.main import main as command

    before, sys.argv = sys.argv, ["fedplug", *words]
    try:
        return command()
    finally:
        sys.argv = before


def frames(count: int, seed: int, catalog: Catalog) -> int:
    """Sends frames to every reader of messages; exit code 1 if one was not accepted or refused as required."""
    from fedplug.api import codec
    from fedplug.wire.calls import read_reply
    from fedplug_party.frames import Reply, Request
    from fedplug_runs.wire_record import read_wire

    with tempfile.TemporaryDirectory() as folder:
        files = [file for run in recorded(Path(folder), catalog) for file in sorted(run.glob("wire/*.wire"))]
        honest = [message.data for file in files for message in read_wire(file)]
    honest += [
        Request("client:0", "d" * 64, "r", "s", 3, "i", "deliver", message=honest[0]).to_bytes(),
        Reply("s", 3, "i", kept=["0-ab", "1-cd"], message=honest[-1]).to_bytes(),
    ]

    def asked(engine: Transport, address: str, data: bytes) -> None:
        ((_, answer),) = engine.exchange({address: data})
        read_reply(answer)

    readers: dict[str, Callable[[bytes], Any]] = {
        "decode": lambda data: codec.decode(codec.unframe(data)), "server": read_reply,
        "party's request": Request.read, "party's reply": Reply.read,
    }  # fmt: skip
    for name in RUNS:
        books, engine, _ = build(small(ROOT / "recipes" / f"{name}.yaml", catalog), catalog)
        books.protocol.setup()
        readers[f"client of {name}"] = functools.partial(asked, engine, "client:0")
        if name == "paraaegis-key-server":
            readers["key server"] = functools.partial(asked, engine, "key_server")
    told: Counter[str] = Counter()
    slowest, wrong, began, peak = 0.0, 0, time.monotonic(), 0
    for number in range(count):
        kind, data = hostile_frame(honest, random.Random(f"{seed}-frame-{number}"))
        told[kind] += 1
        at = time.process_time()
        if problem := frame_problem(data, readers):
            wrong += 1
            print(f"    seed {seed}-frame-{number}, {kind}, {len(data)} bytes: {problem}", flush=True)
        slowest = max(slowest, time.process_time() - at)
        if number == 1000:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print("\n".join(f"{kind:24} {sent:7}" for kind, sent in sorted(told.items())))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) / 1024
    print(
        f"{count} frames made of {len(honest)} messages, {len(readers)} readers each, in "
        f"{time.monotonic() - began:.0f} s; slowest for all readers {slowest:.2f} s, peak memory grew by "
        f"{grown:.0f} MB; {wrong} faults"
    )
    return 1 if wrong else 0


def folders(count: int, seed: int, catalog: Catalog) -> int:
    """Reports, compares, attacks and resumes run folders; exit code 1 if one did more than report an error."""
    began, wrong, ended, changes = time.monotonic(), 0, Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["XDG_STATE_HOME"] = str(Path(scratch) / "state")
        os.chdir(scratch)
        made = recorded(Path(scratch) / "made", catalog)
        outside = Path(scratch) / "outside"
        for number in range(count):
            rng = random.Random(f"{seed}-folder-{number}")
            outside.mkdir()
            (outside / "precious").write_text("mine")
            run = Path(shutil.copytree(rng.choice(made), Path(scratch) / "given" / "run"))
            said = make_hostile(run, outside, rng)
            changes[said.split(":")[0].split("/")[0]] += 1
            words = {
                "report": ["report", str(run)], "compare": ["compare", str(run), str(made[0]), "--output", "compared"],
                "attack": ["attack", str(run), "--attack", "ilrg", "--adversary", "server", "--target", "0", "-q"],
                "resume": ["resume", str(run), "--round", str(rng.choice((0, 1, 1, 2))), "-q"],
            }  # fmt: skip
            codes: dict[str, int] = {}

            def command(name: str, words: list[str], codes: dict[str, int] = codes) -> int:
                codes[name] = called(words)
                return codes[name]

            commands = {name: functools.partial(command, name, each) for name, each in words.items()}
            for problem in folder_problems(run, outside, commands):
                wrong += 1
                print(f"    seed {seed}-folder-{number}, {said[:150]!r}: {problem}", flush=True)
            ended.update(f"{name} {'used it' if code == 0 else 'refused it'}" for name, code in codes.items())
            shutil.rmtree(Path(scratch) / "given")
            shutil.rmtree(outside)
        os.chdir(ROOT)
    print("\n".join(f"{what:24} {many:5}" for what, many in sorted(ended.items())))
    print(f"{count} run folders, {len(words)} commands each, in {time.monotonic() - began:.0f} s; {wrong} faults")
    return 1 if wrong else 0


def main() -> int:
    """Prints a line per recipe or kind; exit code 1 if anything had other consequences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000, help="how many, over all recipes")
    parser.add_argument("--seconds", type=float, default=3600.0, help="stop after this many, whatever is left")
    parser.add_argument("--only", default="", help="parts of recipes' names, separated by commas")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--frames", type=int, default=0, help="send so many frames instead")
    parser.add_argument("--folders", type=int, default=0, help="use so many run folders instead")
    options = parser.parse_args()
    if options.frames or options.folders:
        installed = Catalog.discover()
        failed = frames(options.frames, options.seed, installed) if options.frames else 0
        return failed or (folders(options.folders, options.seed, installed) if options.folders else 0)
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
