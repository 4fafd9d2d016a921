"""A limit on the clients in memory: those of a process that were not used for longest lie on its disk."""

from __future__ import annotations

import contextlib
import mmap
import tempfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
from fedplug.api.blocks import Block, Plan, is_unchangeable
from fedplug.api.errors import SetupError
from fedplug.round.hosted import HostedClient
from numpy.typing import NDArray

_LEAST = 1024
"""Bytes of an array that is worth putting away."""
_ALIGNED = 64
_FILE = 1 << 28
"""Bytes of a file; it takes space on the disk as far as it is filled."""
Array = NDArray[Any]


class Residents:
    """The clients of a process that were used last; all others are put away.

    Args:
        most: how many may be in memory.
        folder: on whose disk the others lie; None: the system's folder for temporary files.
    """

    def __init__(self, most: int, folder: Path | None) -> None:
        self.most, self.folder = most, folder
        self._last: OrderedDict[int, HostedClient] = OrderedDict()
        self._there: mmap.mmap | None = None
        self._file: IO[bytes] | None = None
        self._filled = 0

    def loaded(self, client: HostedClient) -> None:
        """Notes that a client was read from its own file: what it alone holds of that can be put away from here on."""
        labels = client.plan and client.plan.labels  # which clients may share
        replace_arrays(client, np.array, lambda array: array is not labels and is_unchangeable(array))
        self.used(client)

    def used(self, client: HostedClient) -> None:
        """Notes that a client was used, and puts the one away that was not for longest, if there are too many."""
        self._last[client.client_id] = client
        self._last.move_to_end(client.client_id)
        while len(self._last) > self.most:
            self._put_away(self._last.popitem(last=False)[1])

    def _put_away(self, client: HostedClient) -> None:
        """Writes a client's arrays to a file, of which it sees copies from here on that the system reads when needed.

        Raises:
            SetupError: the file cannot be written, or not be mapped.
        """
        held: list[Array] = []

        def hold(array: Array) -> Array:
            held.append(array)
            return array

        replace_arrays(client, hold)
        if not held:
            return
        starts, size = [], 0
        for array in held:
            starts.append(size)
            size += -(-array.nbytes // _ALIGNED) * _ALIGNED
        try:
            there, begin = self._written(held, starts, size)
        except OSError as error:
            where = self.folder or tempfile.gettempdir()
            raise SetupError(
                f"a client cannot be put away in {where} ({error.strerror or error}), as --max-clients-in-memory "
                f"{self.most} asks; free space there, raise the number, or leave --max-clients-in-memory out"
            ) from error
        mapped: dict[int, Array] = {}
        for array, start in zip(held, starts, strict=True):
            copy = np.frombuffer(there, array.dtype, array.size, begin + start).reshape(array.shape)
            copy.flags.writeable = array.flags.writeable
            mapped[id(array)] = copy
        replace_arrays(client, lambda array: mapped[id(array)])

    def _written(self, held: list[Array], starts: list[int], size: int) -> tuple[mmap.mmap, int]:
        """Writes arrays behind what the file holds, and gives what maps it and where they begin.

        Every client begins on a separate page: a page that it writes to becomes private, and no longer the file's.
        """
        if self._file is None or self._there is None or self._filled + size > len(self._there):
            with contextlib.ExitStack() as opened:
                file = opened.enter_context(tempfile.TemporaryFile(dir=self.folder))
                file.truncate(max(_FILE, size))
                there = mmap.mmap(file.fileno(), max(_FILE, size), access=mmap.ACCESS_COPY)
                opened.pop_all()
            if self._file is not None:
                self._file.close()  # its map lives as long as an array does that lies there
            self._file, self._there, self._filled = file, there, 0
        begin = self._filled
        for array, start in zip(held, starts, strict=True):
            self._file.seek(begin + start)
            self._file.write(np.ascontiguousarray(array).data)
        self._file.flush()
        self._filled = begin + -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        return self._there, begin


def _is_own(array: Array) -> bool:
    """Whether a client alone holds it: one that nobody can change may be held by others too."""
    return not is_unchangeable(array)


def replace_arrays(
    client: HostedClient, change: Callable[[Array], Array], is_own: Callable[[Array], bool] = _is_own
) -> None:
    """Puts another array in the place of each large one that a client alone holds; the others stay."""

    def changes(array: Array) -> bool:
        return array.nbytes >= _LEAST and array.dtype.kind in "biuf" and is_own(array)

    def changed(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return change(value) if changes(value) else value
        if isinstance(value, Plan):
            labels = changed(value.labels)
            return value if labels is value.labels else Plan(labels, value.zones, value.whole)
        if isinstance(value, Block):
            values, positions = changed(value.values), changed(value.positions)
            same = values is value.values and positions is value.positions
            return value if same else value.replace(values=values, positions=positions)
        if type(value) is dict:
            for key in value:
                value[key] = changed(value[key])
        elif type(value) is list:
            value[:] = map(changed, value)
        return value

    if client.update is not None and client.update.nbytes >= _LEAST and client.update is client.trained:
        client.update = client.trained = change(client.update)  # nobody can change it, and yet no other client holds it
    client.personal = changed(client.personal)
    client.plan, client.previous_plan = changed(client.plan), changed(client.previous_plan)
    client.remembered.retained = changed(client.remembered.retained)
    for kept in (client.scores, client.state):
        changed(kept)
