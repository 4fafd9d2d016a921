"""Runs whose clients are really killed, phase by phase, and their required results; see `mortal`."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from engine_toys import vectors_in
from fedplug.engines.base import Engine, Job
from fedplug_ledger.entries import RoundEntry
from fedplug_runs.checkpoint import Checkpoints
from fedplug_runs.own_files import read_file
from fedplug_runs.trust import RUNS
from fedplug_secagg.masked import Masked
from run_toys import start
from toy_components import recipe_of
from toy_protocol import Outcome, Watched, build, run_protocol

MORTAL = str(Path(__file__).with_name("mortal.py"))
CLIENTS = 6
NOISE = {"use": "std.distributed_gaussian", "noise_multiplier": 2.0}
SECONDS = 60
"""Seconds that a server waits for a party, sufficient even on a busy machine."""
KILLS = ("1 1 advertise", "2 2 dealt", "3 3 sealing", "4 4 sealed", "5 5 opening", "6 0 answered")
"""One kill a round, each of a different client. In the seventh round all are back."""
AWAY = {"advertise": "round", "dealt": "round", "sealing": "upload", "sealed": "upload", "agreeing": "opening",
        "opening": "opening", "answered": "opening"}  # fmt: skip
"""By phase of a kill, the time at which the section `availability` must remove a client to give the same sums."""
_OPTIONS: dict[str, dict[str, Any]] = {
    "Bonawitz": {"threshold": 3}, "Plus": {"dropped": 0.4, "corrupt": 0.1}, "Lwe": {"noise_multiplier": 2.0},
}  # fmt: skip


def mortal(
    name: str = "Bonawitz", faults: Iterable[str] = (), rounds: int = 7, source: str = "reproducible",
    clients: int = CLIENTS, **options: Any,
) -> dict[str, Any]:  # fmt: skip
    """Clients whose sums are priced, and their faults. Reproducible noise, which lets models be compared exactly,
    protects nobody and has no price.
    """
    RUNS.covers([read_file(Path(MORTAL))], "this test")
    use = {"use": f"{MORTAL}:{name}", "name": "mortal", "faults": list(faults), **_OPTIONS[name], **options}
    if name == "Lwe":
        use["source"] = source
    least = 4 if name == "Plus" or options.get("signed") else 3
    noise = [] if name == "Lwe" else [NOISE | {"source": source}]
    plain = recipe_of(
        "encrypted", [{"use": "std.clip", "norm": 8.0}, *noise, use], train={"use": "toy.push", "scale": 0.01},
        min_clients=least, aggregate={"use": "std.mean", "weighting": "uniform"}, postprocess={"encrypted": ["mortal"]},
        rounds=rounds,
    )  # fmt: skip
    plain["data"]["clients"] = clients
    return plain


def parts_of(fault: str) -> tuple[int, int, str]:
    """Round from 1, client, and fault."""
    round, client, what = fault.split()
    return int(round), int(client), what


def killed(faults: Iterable[str], rounds: int = 7) -> list[list[int]]:
    """By round, the client that is killed."""
    found = [parts_of(fault) for fault in faults]
    return [sorted(c for at, c, what in found if at == round and what in AWAY) for round in range(1, rounds + 1)]


def in_one_process(name: str, faults: Iterable[str], **changes: Any) -> Outcome:
    """The same run in one process, where an error takes the place of each kill."""
    return run_protocol(mortal(name, faults, raises=True, **changes))


def away(name: str, faults: Iterable[str], folder: Path) -> list[RoundEntry]:
    """The ledger of a run without faults, where the killed clients are away from the same phase on."""
    found = [parts_of(fault) for fault in faults]
    trace = folder / "away.csv"
    trace.write_text("round,client\n" + "".join(f"{round},{client}\n" for round, client, _ in found))
    phases = {round: AWAY[what] for round, _, what in found}
    logs = {
        when: run_protocol(mortal(name) | {"availability": {"trace": str(trace), "when": when}}).protocol.ledger.log
        for when in ("round", "upload", "opening")
    }
    return [logs[phases.get(round, "round")][round - 1] for round in range(1, 8)]


class Faulty:
    """A run with a checkpoint after every round, so that killed parties come back.

    Args:
        plain: the recipe.
        engine: `processes`, or the class of another.
        folder: for checkpoints.
        prepare: called before the set-up.

    Attributes:
        protocol: with its ledger and rows.
        notes: the notes of the run.
        vectors: the model of each client in the end, by `client-3`.
    """

    def __init__(
        self, plain: dict[str, Any], engine: str | Callable[[Job], Engine], folder: Path,
        prepare: Callable[[Watched, Engine], None] = lambda protocol, engine: None,
    ) -> None:  # fmt: skip
        self.protocol, running, watch = build(plain, engine, workers=plain["data"]["clients"], timeout=SECONDS)
        checkpoints = Checkpoints(folder)

        def save(done: int) -> None:
            checkpoints.write(done, self.protocol.state(), running)

        try:
            prepare(self.protocol, running)
            self.protocol.after_each_round(save)
            self.protocol.setup()
            save(0)
            self.protocol.run()
            end = folder / "end" / f"round-{plain['rounds'] + 1:04d}"
            end.mkdir(parents=True)
            running.save(end)
        finally:
            running.close()
        self.notes: list[str] = watch.notes
        self.vectors = vectors_in(folder)

    @property
    def log(self) -> list[RoundEntry]:
        """The ledger's entries."""
        return self.protocol.ledger.log

    @property
    def dropped(self) -> list[dict[int, str]]:
        """By round, the clients that dropped out and the reasons."""
        return [dict(row.clients.dropped) for row in self.protocol.rows]

    def require_equal(self, other: Outcome) -> None:
        """The models are exactly equal, and so are the ledgers."""
        assert len(self.vectors) == self.protocol.recipe.data.clients
        assert all(np.array_equal(vector, other.vector) for vector in self.vectors.values())
        assert self.log == other.protocol.ledger.log


def epsilon(protocol: Watched) -> float:
    """The cost of the run toward the server."""
    found = protocol.ledger.report().views["server"].epsilon
    assert found is not None
    return float(found)


def closed(log: list[RoundEntry]) -> list[bool]:
    """By round, whether the sum stayed closed, and so costs nothing toward parties that cannot open it."""
    return [entry.zones["encrypted"].closed for entry in log]


def serve(folder: Path, plain: dict[str, Any], moment: str, settings: dict[str, Any]) -> None:
    """A server that kills itself in round 2, before (`asking`) or after (`in hand`) it has shares; for a process."""
    collected = Masked._collected

    def dies(self: Masked, *given: Any) -> Any:
        facts = given[-1].facts
        found = collected(self, *given) if moment == "in hand" or facts.round != 1 else None
        if facts.round == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    Masked._collected = dies  # type: ignore[method-assign]
    start(folder, plain, **settings)
