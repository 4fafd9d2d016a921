"""The folder of a party: its identity, lock, checkpoints and notes. Only its owner can read it.

    STATE/party.json            the party, the recipe, the data and the run that the folder belongs to
    STATE/party.key, .sock      the line for a server's messages, see `line`
    STATE/party.lock            held by the running program
    STATE/uploads.jsonl         the answers of the party, see `notes`
    STATE/openings/             what the party has opened with a key
    STATE/checkpoint/round-0007/   its state after seven rounds, including keys; the last two are kept

A checkpoint becomes visible by a rename. It records the length of the notes, and the notes record the last checkpoint.
They disagree if one of them was restored from an older copy.
"""

from __future__ import annotations

import dataclasses
import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from fedplug.api import codec
from fedplug.api.errors import CheckpointError, SetupError
from fedplug.api.records import Record, Text
from fedplug_runs.checkpoint import holding, read_file, write_file
from fedplug_runs.files import private_folder, to_disk, write_text

from fedplug_party.frames import round_of
from fedplug_party.notes import Notes
from fedplug_party.owned import open_own, require_own_folder

KEPT = 2
_NAME = "name.state"
_FORMER = ".old"
"""The suffix of a checkpoint while another one of the same round replaces it."""


class Belongs(Record, frozen=True):
    """The party, recipe, data and run that a folder belongs to.

    Attributes:
        party: its address.
        recipe: the digest.
        data: a digest of the party's examples; empty for the key server.
        run: the server's identity of the run; empty until its first round.
    """

    party: Text
    recipe: Text
    data: Text = ""
    run: Text = ""


class State:
    """The folder of one party. Only this process uses it until `close`.

    Args:
        folder: created if it does not exist.

    Raises:
        SetupError: the folder cannot be used, belongs to another user, or another program uses it.
        CheckpointError: its contents are damaged, or older than its notes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            private_folder(folder)
            require_own_folder(folder)
            self._lock = open_own(folder / "party.lock", os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise SetupError(
                f"{folder} cannot be written ({error.strerror or error}); name a folder that you can write with --state"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise SetupError(
                f"another program uses {folder}; end that program, or name another folder with --state"
            ) from error
        self._file, self._checkpoints = folder / "party.json", folder / "checkpoint"
        self.notes = Notes(folder / "uploads.jsonl")
        self._settle()
        self._require_as_noted()

    def close(self) -> None:
        """Releases the folder."""
        os.close(self._lock)

    # -- identity ------------------------------------------------------------------------------------------------------

    @property
    def belongs(self) -> Belongs | None:
        """What the folder belongs to; None if it is new.

        Raises:
            CheckpointError: the file that says so is damaged.
        """
        if not self._file.exists():
            return None
        try:
            return Belongs.from_json(self._file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{self._file} is damaged ({error}); restore it from a copy") from error

    def claim(self, wanted: Belongs) -> None:
        """Records what the folder belongs to, if it is new."""
        if self.belongs is None:
            self._write(wanted)

    def require(self, wanted: Belongs) -> None:
        """Checks what the folder belongs to. A new folder belongs to nothing.

        Raises:
            SetupError: it belongs to another party or recipe, or to other data. The message has a remedy.
        """
        found = self.belongs
        if found is None:
            return
        remedy = "name another folder with --state"
        if found.party != wanted.party:
            raise SetupError(f"{self.folder} holds the state of {found.party}, not of {wanted.party}; {remedy}")
        if found.recipe != wanted.recipe:
            raise SetupError(
                f"{self.folder} belongs to recipe {found.recipe[:12]}, but this is recipe {wanted.recipe[:12]}; undo "
                f"the change, or {remedy}"
            )
        if found.data != wanted.data:
            raise SetupError(
                f"the data of {found.party} have changed since the run in {self.folder} began; restore them, or "
                f"{remedy}: with other data, a new run must begin"
            )

    def require_run(self, run: str) -> None:
        """Checks that the folder does not hold the state of another run. Before round 1 it holds that of no run.

        Raises:
            SetupError: it holds the state of another run. The message has a remedy.
        """
        found = self.belongs
        if found is not None and found.run not in ("", run):
            raise SetupError(
                f"its folder holds the state of run {found.run}, but this is run {run}; its answers count in that run, "
                "so start it with another --state for a new run"
            )

    def bind(self, run: str) -> None:
        """Records that the folder holds the state of this run. It then never accepts another run."""
        found = self.belongs
        if found is not None and not found.run:
            self._write(dataclasses.replace(found, run=run))

    def _write(self, belongs: Belongs) -> None:
        write_text(self._file, belongs.to_json(indent=2) + "\n")

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def kept(self) -> list[str]:
        """The names of the checkpoints in the folder, by round."""
        names = [self._name(path)[0] for path in sorted(self._checkpoints.glob("round-*")) if not path.suffix]
        return sorted(names, key=round_of)

    def path(self, checkpoint: str) -> Path:
        """The folder of a checkpoint.

        Raises:
            CheckpointError: there is no such checkpoint.
        """
        path = self._path(checkpoint)
        if checkpoint not in self.kept():
            has = ", ".join(self.kept()) or "none"
            raise CheckpointError(f"there is no checkpoint {checkpoint}; the folder has: {has}")
        return path

    def save(self, checkpoint: str, write: Callable[[Path], None], needed: str) -> None:
        """Makes a checkpoint and deletes those that are no longer needed.

        Args:
            checkpoint: its name.
            write: called with an empty folder; writes the state into it.
            needed: a checkpoint to keep, whatever its age.

        Raises:
            CheckpointError: there is a checkpoint of a later round.
        """
        self._settle()
        kept, final = self.kept(), self._path(checkpoint)
        if kept and round_of(checkpoint) < round_of(kept[-1]):
            raise CheckpointError(
                f"{checkpoint} would be older than the existing checkpoint {kept[-1]}; go back to an earlier one first"
            )
        draft = final.with_suffix(".tmp")
        shutil.rmtree(draft, ignore_errors=True)
        private_folder(self._checkpoints)
        private_folder(draft)
        write(draft)
        write_file(draft / _NAME, codec.encode([checkpoint, len(self.notes.lines)]))
        for file in [*draft.iterdir(), draft]:
            to_disk(file)  # the server forgets everything that the party has saved
        former = final.with_suffix(_FORMER)
        if final.exists():
            os.replace(final, former)
        os.replace(draft, final)
        to_disk(self._checkpoints)
        self.notes.saved(checkpoint)
        _remove(former)
        for old in self.kept()[:-KEPT]:
            if old not in (needed, checkpoint):
                _remove(self._path(old))

    def go_back(self, checkpoint: str) -> None:
        """Continues from this checkpoint, or from the beginning, and deletes the later checkpoints."""
        self.notes.sent_back(checkpoint)
        for other in self.kept():
            if not checkpoint or round_of(other) > round_of(checkpoint):
                _remove(self._path(other))

    def _path(self, checkpoint: str) -> Path:
        return self._checkpoints / f"round-{round_of(checkpoint):04d}"

    def _name(self, path: Path) -> tuple[str, int]:
        """The name of a checkpoint, and the number of notes when it was made."""
        data = codec.decode(read_file(path / _NAME))
        with holding(path / _NAME, "name of a checkpoint"):
            name, lines = data
            if round_of(name) != int(path.stem[6:]) or type(lines) is not int:
                raise ValueError("it belongs to another checkpoint")
        return name, lines

    def _settle(self) -> None:
        """Completes the replacement of a checkpoint that a kill interrupted."""
        for former in sorted(self._checkpoints.glob(f"round-*{_FORMER}")):
            final = former.with_suffix("")
            if not final.exists() or self._name(former)[0] == self.notes.current:
                _remove(final)
                os.replace(former, final)
            else:
                _remove(former)

    def _require_as_noted(self) -> None:
        """Refuses a folder whose parts have different ages."""
        remedy = "restore the folder as it was when the party last ran, or begin a new run with another --state"
        for name in self.kept():
            lines = self._name(self._path(name))[1]
            if lines > len(self.notes.lines):
                raise CheckpointError(
                    f"{self.notes.file} has {len(self.notes.lines)} lines, but had {lines} when checkpoint {name} was "
                    f"made; {remedy}"
                )
        if self.notes.current and self.notes.current not in self.kept():
            has = ", ".join(self.kept()) or "none"
            raise CheckpointError(
                f"{self._checkpoints} is older than {self.notes.file}, which names checkpoint {self.notes.current}; "
                f"the folder has: {has}; {remedy}"
            )


def _remove(path: Path) -> None:
    """Removes a checkpoint in one step. After a kill, a half removed one would keep the party from starting."""
    if path.exists():
        draft = path.with_suffix(".tmp")
        shutil.rmtree(draft, ignore_errors=True)
        os.replace(path, draft)
        shutil.rmtree(draft, ignore_errors=True)
