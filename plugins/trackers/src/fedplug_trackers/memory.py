"""A tracker's memory in the run folder. With it, a resumed run is the same run in the tracker."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from pathlib import Path
from typing import Self

from fedplug_runs.files import private_folder, read_text, write_text

FOLDER = "trackers"


@dataclasses.dataclass
class Memory:
    """One tracker's file in a run folder, `trackers/NAME.json`.

    Attributes:
        file: path of the memory.
        where: the server and project that have the run. Other places do not know it.
        id: of the run there; empty if it has none yet.
        rounds: how many rounds the tracker has.
    """

    file: Path
    where: str
    id: str = ""
    rounds: int = 0

    @classmethod
    def of(cls, run_dir: Path, name: str, where: str) -> Self:
        """The memory of a run in this place; an empty one if there is none or it cannot be read."""
        file = run_dir / FOLDER / f"{name}.json"
        try:
            found = json.loads(read_text(file))
            known = cls(file, str(found["where"]), str(found["id"]), int(found["rounds"]))
        except (OSError, ValueError, LookupError, TypeError):
            return cls(file, where)
        return known if known.where == where else cls(file, where)

    def keep(self) -> None:
        """Writes the memory. A kill leaves either the old file or the new one."""
        private_folder(self.file.parent)
        write_text(self.file, json.dumps({"where": self.where, "id": self.id, "rounds": self.rounds}))

    def forget(self) -> None:
        """Forgets the run. The tracker then begins another one."""
        self.id, self.rounds = "", 0
        with contextlib.suppress(FileNotFoundError):
            self.file.unlink()
