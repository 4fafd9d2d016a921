"""Checkpoints: one complete folder a round, made visible by a rename: a kill at any moment loses a round at most.

    RUN/checkpoint/round-0007/   server.state, clients-0.state, ..., key_server.state, framed with checksums

Each party writes its own state, those of a process into one file: neither model nor keys of a client pass through the
server. The last two checkpoints are kept; a damaged one is reported together with the round to go on from.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Protocol

from fedplug.api import codec
from fedplug.api.errors import CheckpointError
from fedplug.round.state_files import is_whole, read_file, write_file

KEPT = 2


class Keeper(Protocol):
    """What a checkpoint needs of an engine."""

    def save(self, folder: Path) -> None:
        """Has every party write its own state into the folder."""

    def saved(self, folder: Path) -> None:
        """The checkpoint is complete and lies in this folder now."""


class Checkpoints:
    """The checkpoints of one run folder.

    Args:
        run_dir: the run folder.
        kept: how many of the last ones are kept; None: all, for attacks on earlier rounds.
    """

    def __init__(self, run_dir: Path, kept: int | None = KEPT) -> None:
        self.folder, self.kept = run_dir / "checkpoint", kept

    def rounds(self) -> list[int]:
        """Rounds that have a complete checkpoint, ascending: 7 means that 7 rounds are done.

        Raises:
            CheckpointError: the folder is there and cannot be read: a run must not begin anew because of that.
        """
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise CheckpointError(
                f"{self.folder} cannot be read ({error.strerror or error}); nothing in it was touched: make it "
                f"readable, and go on: fedplug resume {self.folder.parent}"
            ) from error
        return sorted(int(name[6:]) for name in names if name.startswith("round-") and name[6:].isdigit())

    def path(self, round: int) -> Path:
        return self.folder / f"round-{round:04d}"

    def write(self, round: int, server_state: dict[str, Any], engine: Keeper) -> Path:
        """Writes the checkpoint after `round` rounds and forgets those that are not kept."""
        final = self.path(round)
        draft = final.with_suffix(".tmp")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        engine.save(draft)
        write_file(draft / "server.state", codec.encode(server_state))
        if final.exists():
            self._forget(round)
        os.replace(draft, final)
        engine.saved(final)
        for old in self.rounds()[: -self.kept] if self.kept else ():
            shutil.rmtree(self.path(old), ignore_errors=True)
        return final

    def forget_after(self, round: int) -> None:
        """Forgets the checkpoints of later rounds, the latest first: a run goes on from this one."""
        for later in reversed(self.rounds()):
            if later > round:
                self._forget(later)

    def _forget(self, round: int) -> None:
        final = self.path(round)
        stale = final.with_suffix(".old.tmp")  # so that a kill leaves no half of it behind
        shutil.rmtree(stale, ignore_errors=True)
        os.replace(final, stale)
        shutil.rmtree(stale)

    def read(self, round: int | None = None) -> tuple[int, dict[str, Any], Path] | None:
        """A checkpoint (the last one by default): its round, the server's state, its folder. None if there is none.

        Raises:
            CheckpointError: it is damaged, or there is none of that round.
        """
        rounds = self.rounds()
        if round is None:
            if not rounds:
                return None
            round = rounds[-1]
        if round not in rounds:
            raise CheckpointError(f"{self.folder} has no checkpoint of round {round}; it has {rounds or 'none'}")
        file = self.path(round) / "server.state"
        try:
            state = codec.decode(read_file(file))
        except CheckpointError as error:
            raise CheckpointError(f"{error}; {self.remedy(round)}") from error
        except Exception as error:
            raise CheckpointError(f"{file} holds no server's state; {self.remedy(round)}") from error
        return round, state, self.path(round)

    def remedy(self, damaged: int) -> str:
        """What to do about a damaged checkpoint: go back, or forward, to one that is whole."""
        resume = f"fedplug resume {self.folder.parent} --round"
        whole = [round for round in self.rounds() if round != damaged and self._is_whole(round)]
        later = [round for round in whole if round > damaged]
        if earlier := [round for round in whole if round < damaged]:
            onward = f", or go on from a later one: {resume} {later[-1]}" if later else ""
            return f"go back one: {resume} {earlier[-1]}{onward}"
        if later:
            return f"there is no earlier one that is whole; go on from a later one: {resume} {later[-1]}"
        none = "there is no earlier one" if len(self.rounds()) < 2 else "no other one is whole"
        return f"{none}; run the recipe again: fedplug run {self.folder.parent / 'recipe.yaml'}"

    def _is_whole(self, round: int) -> bool:
        files = list(self.path(round).glob("*.state"))
        return "server.state" in {path.name for path in files} and all(map(is_whole, files))
