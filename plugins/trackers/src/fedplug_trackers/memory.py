"""What a tracker remembers in the run folder, so that a run that goes on is the same run there."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from pathlib import Path
from typing import Self

from fedplug.api.files import private_folder, read_text, write_text

FOLDER = "trackers"


@dataclasses.dataclass
class Memory:
    """One tracker's file in a run folder, `trackers/NAME.json`.

    Attributes:
        file: where it is.
        where: in which the run is: server and project; another one has not heard of the run.
        id: of the run there; empty where it has none yet.
        rounds: how many rounds it has.
    """

    file: Path
    where: str
    id: str = ""
    rounds: int = 0

    @classmethod
    def of(cls, run_dir: Path, name: str, where: str) -> Self:
        """What is remembered of a run in that place; an empty memory where nothing is, or nothing that can be read."""
        file = run_dir / FOLDER / f"{name}.json"
        try:
            found = json.loads(read_text(file))
            known = cls(file, str(found["where"]), str(found["id"]), int(found["rounds"]))
        except (OSError, ValueError, LookupError, TypeError):
            return cls(file, where)
        return known if known.where == where else cls(file, where)

    def keep(self) -> None:
        """Writes it; a kill leaves the old file or the new one."""
        private_folder(self.file.parent)
        write_text(self.file, json.dumps({"where": self.where, "id": self.id, "rounds": self.rounds}))

    def forget(self) -> None:
        """From here on the run is another one there."""
        self.id, self.rounds = "", 0
        with contextlib.suppress(FileNotFoundError):
            self.file.unlink()
