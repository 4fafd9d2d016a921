"""What a party with a key has opened, and from whose uploads: notes that no checkpoint takes back.

The difference of two sums of one round can be the update of a single client. A run that goes back to a checkpoint
repeats a round, with other clients or other noise, and its sum must not be opened a second time. So whoever opens sums
keeps a file of its own beside the checkpoints, adds a line before it answers, and refuses a second, different sum.

    RUN/openings/   key_server.jsonl, client-0.jsonl, ...; each party writes and reads its own, and nobody else's

Whose uploads a sum holds is what the aggregation server says, which is honest but curious here as everywhere.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from fedplug.api.errors import CheckpointError, OpenedBefore
from fedplug.api.record import Count, Record, Text

_KEPT_BYTES = 1 << 24
"""Ciphertexts of a sum whose digest is kept until later ones: those of a large model would take too much memory."""


class Opening(Record, frozen=True):
    """One sum that was opened.

    Attributes:
        round: 0-based.
        zone: of the sum.
        group: of the clients.
        clients: whose uploads are in the sum, ascending.
        digest: of its ciphertexts.
    """

    round: Count
    zone: Text
    group: Text
    clients: list[Count]
    digest: Text

    def bars(self, other: Opening) -> bool:
        """Whether the other sum must stay closed because of this one: same round and zone, and a client in both."""
        if (self.round, self.zone) != (other.round, other.zone) or self == other:
            return False
        return self.group == other.group or not set(self.clients).isdisjoint(other.clients)


class Openings:
    """The sums that one party has opened.

    Args:
        file: where they are noted; None remembers them for as long as the process lives.

    Raises:
        CheckpointError: the file is damaged.
    """

    def __init__(self, file: Path | None = None) -> None:
        self.file = file
        self._noted = self._read(file) if file is not None and file.is_file() else []

    def __len__(self) -> int:
        return len(self._noted)

    @contextlib.contextmanager
    def once(
        self, round: int, zone: str, group: str, clients: Iterable[int], ciphertexts: Iterable[bytes]
    ) -> Iterator[None]:
        """Inside, the sum is opened; at the end it is noted, unless that failed. The answer must come after that.

        Args:
            round: 0-based.
            zone: of the sum.
            group: of the clients; a client is in one.
            clients: whose uploads are in the sum.
            ciphertexts: of the sum. The same bytes from the same clients may be opened again: they show nothing new.

        Raises:
            OpenedBefore: another sum of the round and zone was opened, of this group or with a client of this one.
        """
        this, line = _noting(round, zone, group, tuple(clients), _digest(tuple(ciphertexts)))
        for noted in self._noted:
            if noted.bars(this):
                differs = "with other ciphertexts" if noted.clients == this.clients else "from other clients"
                raise OpenedBefore(
                    f"a sum of zone {zone} in round {round + 1} was opened before, {differs}; the difference of the "
                    "two could show a single update"
                ).of(zone)
        yield
        if this not in self._noted:
            self._append(line)
            self._noted.append(this)

    def require(self, known: int) -> None:
        """Refuses a file that holds fewer notes than a checkpoint knows of.

        Raises:
            CheckpointError: the file is missing or was shortened.
        """
        if self.file is not None and len(self) < known:
            has = f"has {len(self)} lines" if self.file.is_file() else "is missing"
            raise CheckpointError(
                f"{self.file} {has}, but a checkpoint knows of {known} sums that were opened; {_remedy(self.file)}"
            )

    def _append(self, line: bytes) -> None:
        if self.file is None:
            return
        self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab", buffering=0) as file:
            before = os.fstat(file.fileno()).st_size
            try:
                if file.write(line) != len(line):
                    raise OSError(f"{self.file} could not be written to its end")
                os.fsync(file.fileno())  # the sum goes to others, so a power failure must not take the note back
            except OSError:
                file.truncate(before)
                raise

    def _read(self, file: Path) -> list[Opening]:
        data = file.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):  # cut off while it was written, so that sum was never answered
            os.truncate(file, len(whole))
        noted = []
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                noted.append(Opening.from_json(line.decode()))
            except ValueError as error:
                raise CheckpointError(f"{file}, line {number}, is damaged ({error}); {_remedy(file)}") from error
        return noted


def _remedy(file: Path) -> str:
    recipe = file.parent.parent / "recipe.yaml"
    return (
        "without it sums could be opened twice; put the file back as it was, or start a run of its own: "
        f"fedplug run {recipe}"
    )


@functools.lru_cache(maxsize=4)
def _noting(round: int, zone: str, group: str, clients: tuple[int, ...], digest: str) -> tuple[Opening, bytes]:
    """The note of a sum, and its line; made once for the clients of a process, which open the same sums."""
    opening = Opening(round, zone, group, sorted(set(clients)), digest)
    return opening, f"{opening.to_json()}\n".encode()


def _digest(ciphertexts: tuple[bytes, ...]) -> str:
    small = sum(map(len, ciphertexts)) <= _KEPT_BYTES
    return _small_digest(ciphertexts) if small else _whole_digest(ciphertexts)


def _whole_digest(ciphertexts: tuple[bytes, ...]) -> str:
    total = hashlib.blake2b(digest_size=32)
    for ciphertext in ciphertexts:
        total.update(len(ciphertext).to_bytes(8, "big"))
        total.update(ciphertext)
    return total.hexdigest()


_small_digest = functools.lru_cache(maxsize=2)(_whole_digest)
