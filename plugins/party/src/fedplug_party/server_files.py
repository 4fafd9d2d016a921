"""The files about parties in the server's run folder: the identity of the run, and the names of its checkpoints.

    RUN/parties.run                          drawn when the run begins; a resumed run keeps it
    RUN/checkpoint/round-0007/parties.state  for each party, the names of its last two checkpoints

The names are part of the server's checkpoint and become visible with it. They contain no state of a party.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

from fedplug.api import codec
from fedplug.api.errors import SetupError
from fedplug_runs.checkpoint import holding, read_file, write_file
from fedplug_runs.files import read_text, write_text

_RUN, _NAMES = "parties.run", "parties.state"


def run_of(run_dir: Path | None) -> str:
    """The identity by which the parties know the run of this folder; a new one without a folder."""
    file = run_dir and run_dir / _RUN
    if file and file.is_file():
        return read_text(file).strip()
    run = secrets.token_hex(8)
    if file:
        write_text(file, run)
    return run


def round_in(folder: Path) -> int:
    """The number of rounds in the name of a server's checkpoint folder: 7 for `round-0007` and `round-0007.tmp`.

    Raises:
        SetupError: it is not such a folder.
    """
    number = folder.name.removeprefix("round-").removesuffix(".tmp")
    if not number.isascii() or not number.isdigit():
        raise SetupError(f"{folder} is not the checkpoint folder of a round, such as round-0007, which parties need")
    return int(number)


def write_names(folder: Path, names: Mapping[str, list[str]]) -> None:
    """Writes the names of each party's checkpoints, ascending, into a checkpoint of the server."""
    write_file(folder / _NAMES, codec.encode(dict(names)))


def read_names(folder: Path) -> dict[str, list[str]]:
    """Inverse of `write_names`.

    Raises:
        CheckpointError: the file is missing or damaged, for instance because the run used another engine.
    """
    file = folder / _NAMES
    data = codec.decode_saved(read_file(file))
    with holding(file, "names of the parties' checkpoints"):
        return {address: [str(name) for name in names] for address, names in data.items()}
