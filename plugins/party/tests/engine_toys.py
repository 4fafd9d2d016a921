"""Recipes for parties, and a protocol over them with a checkpoint after every round."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedplug.api import codec
from fedplug.engines.base import Engine, Job
from fedplug_party.engine import PartyEngine
from fedplug_party.kept import KEPT
from fedplug_runs.checkpoint import Checkpoints, read_file, states_in
from toy_components import recipe_of
from toy_protocol import build


def encrypted(rounds: int = 2, clients: int = 2, **changes: Any) -> dict[str, Any]:
    """Two clients and a key server with a clip, reproducible noise and BFV."""
    noise = {"use": "std.gaussian", "epsilon": 8, "delta": 1e-5, "source": "reproducible"}
    chain = [{"use": "std.clip", "norm": 1.0}, noise, {"use": "std.bfv", "key_holder": "key_server"}]
    plain = recipe_of("encrypted", chain, rounds=rounds, postprocess={"encrypted": ["std.bfv"]}, min_clients=2)
    plain["data"]["clients"] = clients
    return plain | changes


def plain_of(clients: int = 3, **changes: Any) -> dict[str, Any]:
    plain = recipe_of(min_clients=2, **changes)
    plain["data"]["clients"] = clients
    return plain


def vectors_in(folder: Path) -> dict[str, Any]:
    """The global model of each client, from its last checkpoint: in a run folder, or in the folders of parties."""
    found: dict[str, Any] = {}
    for path in sorted(path for path in folder.glob("**/round-*/clients-*.state") if KEPT not in path.parts):
        for address, state in states_in(path):
            found[address.replace(":", "-")] = codec.decode(read_file(path.with_name(codec.decode(state)["vector"])))
    return found


class Checked:
    """A protocol over parties, with a checkpoint after every round and a test's actions in between."""

    def __init__(
        self, plain: Mapping[str, Any], engine: Callable[[Job], Engine], folder: Path,
        before_saving: Callable[[int], None] = lambda _: None,
    ) -> None:  # fmt: skip
        self.protocol, running, self.notes = build(plain, engine)
        assert isinstance(running, PartyEngine)
        self.engine, self.checkpoints = running, Checkpoints(folder)
        self.protocol.after_each_round(before_saving)
        self.protocol.after_each_round(self.save)

    def save(self, done: int) -> None:
        self.checkpoints.write(done, self.protocol.state(), self.engine)

    def set_up(self) -> None:
        self.protocol.setup()
        self.save(0)

    def vectors(self, folder: Path) -> dict[str, Any]:
        """The clients' final models, from the files that their parties write in this folder."""
        end = folder / "end" / f"round-{self.protocol.recipe.rounds + 1:04d}"
        end.mkdir(parents=True)
        self.engine.save(end)
        return vectors_in(folder)

    def dropped(self) -> list[dict[int, str]]:
        return [dict(row.clients.dropped) for row in self.protocol.rows]
