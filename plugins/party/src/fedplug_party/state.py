"""The folder of a party: what it belongs to, its lock, its checkpoints and its notes. Nobody but its owner can read it.

    STATE/party.json            which party of which recipe, with which data, in which run
    STATE/party.key, .sock      how a server's messages reach the party, see `line`
    STATE/party.lock            held by the program that runs
    STATE/uploads.jsonl         what it has answered, see `notes`
    STATE/openings/             what it has opened with a key
    STATE/checkpoint/round-0007/   its state after seven rounds, keys among it; the last two are kept

A checkpoint becomes visible by a rename. It knows how long the notes were, and they know which one is the last: where
one part was put back from an older copy, they disagree.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from fedplug.api import codec
from fedplug.api.errors import CheckpointError, SetupError
from fedplug.api.files import private_folder, write_text
from fedplug.round.checkpoint import holding, read_file, write_file

from fedplug_party.frames import round_of
from fedplug_party.notes import Notes
from fedplug_party.owned import open_own, require_own_folder

KEPT = 2
_NAME = "name.state"
_FORMER = ".old"
"""Of a checkpoint in whose place another one of the same round is being put."""


@dataclasses.dataclass(frozen=True)
class Belongs:
    """What a folder belongs to.

    Attributes:
        party: its address.
        recipe: the digest.
        data: a digest of the party's examples; empty for the key server.
        run: by what the server knows the run; empty until its first round.
    """

    party: str
    recipe: str
    data: str = ""
    run: str = ""


class State:
    """The folder of one party, which this process alone uses from here on.

    Args:
        folder: made if it is not there.

    Raises:
        SetupError: it cannot be used, is another user's, or another program uses it.
        CheckpointError: what lies in it is damaged, or older than its own notes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            private_folder(folder)
            require_own_folder(folder)
            self._lock = open_own(folder / "party.lock", os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise SetupError(
                f"{folder} cannot be written ({error.strerror or error}); name a folder of yours with --state"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise SetupError(
                f"another program uses {folder}; end that one, or name another folder with --state"
            ) from error
        self._file, self._checkpoints = folder / "party.json", folder / "checkpoint"
        self.notes = Notes(folder / "uploads.jsonl")
        self._settle()
        self._require_as_noted()

    def close(self) -> None:
        """Lets go of the folder."""
        os.close(self._lock)

    # -- what it belongs to --------------------------------------------------------------------------------------------

    @property
    def belongs(self) -> Belongs | None:
        """What the folder belongs to; None where it is new.

        Raises:
            CheckpointError: nobody can tell.
        """
        if not self._file.exists():
            return None
        try:
            return Belongs(**json.loads(self._file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise CheckpointError(f"{self._file} is damaged ({error}); put it back as it was") from error

    def claim(self, wanted: Belongs) -> None:
        """Notes what the folder belongs to, where it is new."""
        if self.belongs is None:
            self._write(wanted)

    def require(self, wanted: Belongs) -> None:
        """Checks what the folder belongs to; a new one belongs to nothing.

        Raises:
            SetupError: it belongs to another party or recipe, or to other data; says what to do.
        """
        found = self.belongs
        if found is None:
            return
        remedy = "name a folder of its own with --state"
        if found.party != wanted.party:
            raise SetupError(f"{self.folder} holds the state of {found.party}, not of {wanted.party}; {remedy}")
        if found.recipe != wanted.recipe:
            raise SetupError(
                f"{self.folder} belongs to recipe {found.recipe[:12]}, and this one is {wanted.recipe[:12]}; undo the "
                f"change, or {remedy}"
            )
        if found.data != wanted.data:
            raise SetupError(
                f"the data of {found.party} are not those with which {self.folder} began; put them back, or {remedy}: "
                "for other data a run begins anew"
            )

    def require_run(self, run: str) -> None:
        """Checks which run the folder holds the state of; before round 1 it holds that of none.

        Raises:
            SetupError: it is another; says what to do.
        """
        found = self.belongs
        if found is not None and found.run not in ("", run):
            raise SetupError(
                f"its folder holds the state of run {found.run}, and this is run {run}; what it has sent counts in "
                "that one, so for another it must be started with another --state"
            )

    def bind(self, run: str) -> None:
        """Notes that the folder holds the state of this run, and of no other from here on."""
        found = self.belongs
        if found is not None and not found.run:
            self._write(dataclasses.replace(found, run=run))

    def _write(self, belongs: Belongs) -> None:
        write_text(self._file, json.dumps(dataclasses.asdict(belongs), indent=2) + "\n")

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def kept(self) -> list[str]:
        """The names of the checkpoints that lie there, by round."""
        names = [self._name(path)[0] for path in sorted(self._checkpoints.glob("round-*")) if not path.suffix]
        return sorted(names, key=round_of)

    def path(self, checkpoint: str) -> Path:
        """Where a checkpoint lies.

        Raises:
            CheckpointError: it does not.
        """
        path = self._path(checkpoint)
        if checkpoint not in self.kept():
            has = ", ".join(self.kept()) or "none"
            raise CheckpointError(f"there is no checkpoint {checkpoint}; there is: {has}")
        return path

    def save(self, checkpoint: str, write: Callable[[Path], None], needed: str) -> None:
        """Makes a checkpoint, and forgets those that nobody needs.

        Args:
            checkpoint: its name.
            write: is handed an empty folder.
            needed: a checkpoint that is kept whatever its age.

        Raises:
            CheckpointError: there is one of a later round.
        """
        self._settle()
        kept, final = self.kept(), self._path(checkpoint)
        if kept and round_of(checkpoint) < round_of(kept[-1]):
            raise CheckpointError(
                f"{checkpoint} would be older than checkpoint {kept[-1]}, which lies there; go back to an earlier one "
                "first"
            )
        draft = final.with_suffix(".tmp")
        shutil.rmtree(draft, ignore_errors=True)
        private_folder(self._checkpoints)
        private_folder(draft)
        write(draft)
        write_file(draft / _NAME, codec.encode([checkpoint, len(self.notes.lines)]))
        for file in [*draft.iterdir(), draft]:
            _to_disk(file)  # the server forgets what it knows to be saved
        former = final.with_suffix(_FORMER)
        if final.exists():
            os.replace(final, former)
        os.replace(draft, final)
        _to_disk(self._checkpoints)
        self.notes.saved(checkpoint)
        _remove(former)
        for old in self.kept()[:-KEPT]:
            if old not in (needed, checkpoint):
                _remove(self._path(old))

    def go_back(self, checkpoint: str) -> None:
        """The party goes on from this checkpoint, or from the beginning; later ones are of another course of it."""
        self.notes.sent_back(checkpoint)
        for other in self.kept():
            if not checkpoint or round_of(other) > round_of(checkpoint):
                _remove(self._path(other))

    def _path(self, checkpoint: str) -> Path:
        return self._checkpoints / f"round-{round_of(checkpoint):04d}"

    def _name(self, path: Path) -> tuple[str, int]:
        """The name of a checkpoint, and how many notes there were when it was made."""
        data = codec.decode(read_file(path / _NAME))
        with holding(path / _NAME, "name of a checkpoint"):
            name, lines = data
            if round_of(name) != int(path.stem[6:]) or type(lines) is not int:
                raise ValueError("it is that of another")
        return name, lines

    def _settle(self) -> None:
        """Ends what a kill has interrupted while one checkpoint took the place of another of its round."""
        for former in sorted(self._checkpoints.glob(f"round-*{_FORMER}")):
            final = former.with_suffix("")
            if not final.exists() or self._name(former)[0] == self.notes.current:
                _remove(final)
                os.replace(former, final)
            else:
                _remove(former)

    def _require_as_noted(self) -> None:
        """Refuses a folder of which one part is older than another."""
        remedy = "put the folder back as it was when the party last ran, or begin a run of its own with another --state"
        for name in self.kept():
            lines = self._name(self._path(name))[1]
            if lines > len(self.notes.lines):
                raise CheckpointError(
                    f"{self.notes.file} has {len(self.notes.lines)} lines, and checkpoint {name} knows of {lines}; "
                    f"{remedy}"
                )
        if self.notes.current and self.notes.current not in self.kept():
            has = ", ".join(self.kept()) or "none"
            raise CheckpointError(
                f"{self._checkpoints} is older than {self.notes.file}: that knows of checkpoint {self.notes.current}, "
                f"and there is: {has}; {remedy}"
            )


def _remove(path: Path) -> None:
    """Removes a checkpoint at once: one that is half there would keep the party from starting after a kill."""
    if path.exists():
        draft = path.with_suffix(".tmp")
        shutil.rmtree(draft, ignore_errors=True)
        os.replace(path, draft)
        shutil.rmtree(draft, ignore_errors=True)


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
