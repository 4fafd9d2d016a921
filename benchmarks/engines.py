"""Seconds, processor time and bytes of a round on each engine, one after another, in one table.

    FEDPLUG_DATA=... python benchmarks/engines.py [--rounds 6] [--only clear,200] [--json]

Each run is a separate session with two workers. Seconds and processor time (user and system, of all processes that
the run has started: workers, key server, Ray's and Flower's own) are per round, from the end of the first to the end of
the last but one, with checkpoints; `start` is the time before the first round. Engines that are not installed are
named and left out. A federation of 200 nodes is too much for one machine.

The clear run of 10 clients is compared with Flower's own federated averaging on the same examples, model and batches,
in a deployment on this machine and in its simulation. It keeps no checkpoints, and its bytes are not counted.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import fedplug
from fedplug.recipe.catalog import Catalog
from fedplug_runs.rows import Row

ENGINES = {
    "local": "",
    "processes": "",
    "ray": "fedplug-ray: make cluster installs it",
    "flower": "fedplug-flower: make federation installs it",
    "own-deployment": "fedplug-flower: make federation installs it",
    "own-simulation": "fedplug-flower and fedplug-ray: make federation and make cluster install them",
}
"""The engines, Flower's own two ways, and the source of those that are not part of fedplug."""
OWN = {"own-deployment": {"flower"}, "own-simulation": {"flower", "ray"}}
"""The requirements of Flower's own."""
VOTE: dict[str, Any] = {
    "score_parameters": ["paraaegis.magnitude"],
    "negotiate_mask": {"use": "paraaegis.vote", "ratio": 0.1},
    "protect": {
        "encrypted": [{"use": "std.bfv", "key_holder": "key_server"}],
        "noised": [{"use": "std.clip", "norm": 0.1}, {"use": "std.gaussian", "noise_multiplier": 1.0}],
    },
    "postprocess": {"encrypted": ["std.bfv"]},
}
CLEAR: dict[str, Any] = {"negotiate_mask": {"use": "std.single_zone", "zone": "clear"}, "protect": {"clear": []}}
WORK: dict[str, tuple[str, int, list[int], dict[str, Any]]] = {
    "clear": ("10 clients, 235k, clear", 10, [256, 128], CLEAR),
    "vote": ("10 clients, 235k, ParaAegis with BFV", 10, [256, 128], VOTE),
    "200": ("200 clients, 25k, clear", 200, [32], CLEAR),
}
"""The runs: a description, clients, widths of the model, and the protection. MNIST is split among the clients."""


@dataclasses.dataclass
class Measured:
    """A run: seconds before the first round, then of a round: seconds, processor seconds, bytes up and down."""

    start: float
    seconds: float
    processor: float
    up: float | None = None
    down: float | None = None


class Watch:
    """A display that notes the time, and the processor time of the session, at the end of every round."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.ends: list[tuple[float, float]] = []

    def start(self, plan: Sequence[tuple[str, str, str]], facts: Mapping[str, Any]) -> None: ...
    def phase(self, round: int, phase: str, done: int, total: int) -> None: ...
    def finish(self, rows: Sequence[Row], verdict: Any, pages: Sequence[Path], run_dir: Path) -> None: ...
    def interrupted(self, round: int, run_dir: Path) -> None: ...
    def close(self) -> None: ...

    def note(self, text: str) -> None:
        """A client that dropped out would make the numbers wrong."""
        print(text, file=sys.stderr)

    def round_done(self, row: Row) -> None:
        """A round is over when the next one's first answers have brought its clients' reports."""
        self.ends.append((time.monotonic(), session_seconds()))


def session_seconds() -> float:
    """Processor seconds so far of every process of this session or started by one, and of children that have ended."""
    session, everyone = os.getsid(0), dict[int, list[int]]()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        everyone[int(path.parent.name)] = [int(fields[1]), int(fields[3]), sum(map(int, fields[11:15]))]
    ours, before = {pid for pid, (_, its, _) in everyone.items() if its == session}, set[int]()
    while ours != before:  # programs of a federation have separate sessions
        before = set(ours)
        ours |= {pid for pid, (parent, _, _) in everyone.items() if parent in ours}
    return sum(everyone[pid][2] for pid in ours) / os.sysconf("SC_CLK_TCK")


def measure(work: str, engine: str, rounds: int) -> Measured:
    """Runs one of them in this process."""
    _, clients, hidden, protection = WORK[work]
    if engine in OWN:
        return flowers_own(engine, clients, hidden, rounds)
    recipe = {
        "name": work, "seed": 1, "rounds": rounds,
        "data": {"use": "std.mnist", "clients": clients, "partition": {"use": "std.iid"}},
        "model": {"use": "std.mlp", "hidden": hidden},
        "train": {"use": "std.sgd", "epochs": 1, "batch_size": 32, "lr": 0.05},
        "aggregate": "std.mean",
        **protection,
    }  # fmt: skip
    watch = Watch()
    if engine == "flower":
        return measured(watch, in_a_federation(recipe, watch))
    workers = None if engine == "local" else 2
    with tempfile.TemporaryDirectory() as folder:
        run = fedplug.run(
            recipe, engine=engine, workers=workers, output=folder, display=watch, muted=["lab.report"], device="cpu"
        )
        return measured(watch, list(run.metrics))


def in_a_federation(recipe: dict[str, Any], watch: Watch) -> Sequence[Row]:
    """Runs it in a federation on this machine. Returns the rows."""
    from fedplug_flower.trial import federation

    data = os.environ.get("FEDPLUG_DATA", "")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "federation"
        folder.mkdir()
        with federation(fedplug.check(recipe), folder, Path(data) if data else None, lambda _: None) as running:

            def say(line: str) -> None:
                if line.startswith("round "):
                    watch.ends.append((time.monotonic(), session_seconds()))
                elif line.startswith(("note:", "error:")):
                    watch.note(line)

            running.run({"output": str(Path(name) / "runs"), "data": data}, say)
        (run,) = (Path(name) / "runs").iterdir()
        return list(fedplug.open_run(run).metrics)


def flowers_own(way: str, clients: int, hidden: list[int], rounds: int) -> Measured:
    """The clear run as users of Flower would write it."""
    from peers import run_program, write_work

    row = {"clients": clients, "examples": 60_000, "hidden": hidden, "epochs": 1, "batch_size": 32, "rounds": rounds}
    with tempfile.TemporaryDirectory() as name:
        work = write_work(row, Path(name))
        if way == "own-simulation":
            answer = run_program(Path(sys.executable), "with_flower.py", work)
            # Without the first and the last, as of the other engines.
            seconds, processor = (statistics.mean(answer[key][1:-1]) for key in ("seconds", "rounds"))
            return Measured(answer["start"], seconds, processor)
        from flowers_own import deployed

        watch = Watch()

        def say(line: str) -> None:
            if line.startswith("round "):
                watch.ends.append((time.monotonic(), session_seconds()))

        (folder := Path(name) / "federation").mkdir()
        deployed(work, clients, folder, say)
    # The first is of the evaluation before round 1.
    (began, _), (first, before), *_, (last, after), _ = watch.ends
    between = len(watch.ends) - 3
    return Measured(began - watch.began, (last - first) / between, (after - before) / between)


def measured(watch: Watch, rows: Sequence[Row]) -> Measured:
    """The measurements, by round."""
    between = len(watch.ends) - 2
    (first, before), (last, after) = watch.ends[0], watch.ends[-2]
    up, down = (sum(getattr(row.bytes, way).total for row in rows[1:-1]) / between for way in ("up", "down"))
    start = first - watch.began - rows[0].wall_seconds
    return Measured(start, (last - first) / between, (after - before) / between, up, down)


def main() -> int:
    """Measures each in a separate process and session, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--only", default=",".join(WORK), help="names of what is run, with commas between them")
    parser.add_argument("--engines", default=",".join(ENGINES), help="names of engines, with commas between them")
    parser.add_argument("--json", action="store_true", help="print numbers as JSON")
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        print(json.dumps(dataclasses.asdict(measure(arguments.run[0], arguments.run[1], arguments.rounds))))
        return 0
    installed = Catalog.discover().groups["engine"]
    asked = arguments.engines.split(",")
    engines = [engine for engine in asked if OWN.get(engine, {engine}) <= installed.keys()]
    missing = [engine for engine in asked if engine not in engines]
    found: dict[str, dict[str, Any]] = {}
    if not arguments.json:
        print("| work | engine | start, s | s a round | CPU s a round | MB up | MB down |\n" + "| --- " * 7 + "|")
    for work in arguments.only.split(","):
        for engine in engines:
            if engine == "flower" and WORK[work][1] > 20:
                continue  # a node, a relay and a party for each client are too much for one machine
            if engine in OWN and work != "clear":
                continue
            command = [sys.executable, __file__, "--run", work, engine, "--rounds", str(arguments.rounds)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
            if done.returncode:
                return 2
            told = Measured(**json.loads(done.stdout.splitlines()[-1]))
            found.setdefault(work, {})[engine] = dataclasses.asdict(told)
            if not arguments.json:
                sizes = " | ".join("–" if size is None else f"{size / 1e6:.1f}" for size in (told.up, told.down))
                times = f"{told.start:.1f} | {told.seconds:.2f} | {told.processor:.2f}"
                print(f"| {WORK[work][0]} | `{engine}` | {times} | {sizes} |", flush=True)
    if arguments.json:
        print(json.dumps(found))
    for engine in missing:
        print(f"{engine} is not installed ({ENGINES.get(engine) or 'there is no such engine'})", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
