"""What the server's run folder has of the parties: by what they know the run, and which checkpoints belong to it.

    RUN/parties.run                          drawn when the run begins, and the same when it is resumed
    RUN/checkpoint/round-0007/parties.state  for each party, the names of its last two checkpoints

The names lie in the server's checkpoint, so that they become visible with it. No state of a party is among them.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

from fedplug.api import codec
from fedplug.api.errors import SetupError
from fedplug.api.files import read_text, write_text
from fedplug.round.checkpoint import holding, read_file, write_file

_RUN, _NAMES = "parties.run", "parties.state"


def run_of(run_dir: Path | None) -> str:
    """By what the parties know the run of a folder; without one, by something new."""
    file = run_dir and run_dir / _RUN
    if file and file.is_file():
        return read_text(file).strip()
    run = secrets.token_hex(8)
    if file:
        write_text(file, run)
    return run


def round_in(folder: Path) -> int:
    """After how many rounds a checkpoint folder of the server is made: 7, of `round-0007` and of `round-0007.tmp`.

    Raises:
        SetupError: it is none.
    """
    number = folder.name.removeprefix("round-").removesuffix(".tmp")
    if not number.isascii() or not number.isdigit():
        raise SetupError(f"{folder} is not a round's folder, such as round-0007, by which parties keep checkpoints")
    return int(number)


def write_names(folder: Path, names: Mapping[str, list[str]]) -> None:
    """Writes the names of each party's checkpoints, ascending, into a checkpoint of the server."""
    write_file(folder / _NAMES, codec.encode(dict(names)))


def read_names(folder: Path) -> dict[str, list[str]]:
    """Inverse of `write_names`.

    Raises:
        CheckpointError: the file is missing or damaged: the checkpoint is of a run on another engine, for instance.
    """
    file = folder / _NAMES
    data = codec.decode_saved(read_file(file))
    with holding(file, "names of the parties' checkpoints"):
        return {address: [str(name) for name in names] for address, names in data.items()}
