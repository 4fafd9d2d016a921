"""Facts about the messages of a run: bytes by zone, statistics of ciphertexts, and plain values that clients found."""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import math
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from fedplug.api.errors import CheckpointError, MessageError
from fedplug.api.parties import SERVER
from fedplug_runs.compared import Compared
from fedplug_runs.rows import Row
from fedplug_runs.wire_record import Message, read_wire, recordings

from fedplug_evidence.facts import Closed, Sent, Way


def sent_in(run_dir: Path, rows: Sequence[Row]) -> Sent:
    """The known facts about the messages of a run.

    Args:
        run_dir: the run folder. It has messages in `wire/` if the run was recorded.
        rows: of the run.

    Raises:
        CheckpointError: the record is damaged.
    """
    said = [row.compared for row in rows if row.compared is not None]
    compared = sum(said, Compared()) if said else None
    files = recordings(run_dir / "wire").values()
    if not files:
        return Sent(False, compared=compared)
    looked = _Looked()
    for file in files:
        try:
            for message in read_wire(file):
                looked.at(message)
        except MessageError as error:
            raise CheckpointError(
                f"{file} is damaged ({error}); restore it from a copy, or run the recipe again with --record-wire"
            ) from error
    return dataclasses.replace(looked.facts(), compared=compared)


def ways_of(rows: Iterable[Row], secret: bool) -> tuple[Way, ...]:
    """Bytes by round, way and zone. If participation is `secret`, totals over all rounds: sizes would disclose it."""
    counts: collections.Counter[tuple[int, str, str]] = collections.Counter()
    for row in rows:
        for way in ("up", "down", "key_server"):
            for zone, size in getattr(row.bytes, way).zones.items():
                counts[0 if secret else row.round, way, zone] += size
    return tuple(Way(round, way, zone, size) for (round, way, zone), size in counts.items())


@dataclasses.dataclass
class _Pieces:
    """Ciphertexts of one zone."""

    sealed_by: str
    uploads: int = 0
    repeated: int = 0
    shares: list[float] = dataclasses.field(default_factory=list)
    sizes: list[int] = dataclasses.field(default_factory=list)
    entropies: list[float] = dataclasses.field(default_factory=list)


class _Looked:
    """Statistics of the messages so far."""

    def __init__(self) -> None:
        self.messages = self.bytes = self.answers = 0
        self.pieces: dict[tuple[str, str], _Pieces] = {}
        self.values: collections.Counter[str] = collections.Counter()
        self.seen: set[bytes] = set()

    def at(self, message: Message) -> None:
        self.messages, self.bytes = self.messages + 1, self.bytes + message.size
        if message.receiver != SERVER or not message.sender.startswith("client:"):
            return
        self.answers += 1
        answer = message.answered()
        for zone, block in ((answer and answer.blocks) or {}).items():
            if block.values is not None:
                self.values[zone] += block.values.size
            if block.ciphertexts:
                pieces = self.pieces.setdefault((zone, str(block.sealed_by)), _Pieces(str(block.sealed_by)))
                pieces.uploads += 1
                for data in block.ciphertexts:
                    self._look(data, pieces)

    def _look(self, data: bytes, pieces: _Pieces) -> None:
        digest = hashlib.sha256(data).digest()
        pieces.repeated += digest in self.seen
        self.seen.add(digest)
        pieces.sizes.append(len(data))
        pieces.shares.append(len(zlib.compress(data, 6)) / max(1, len(data)))
        pieces.entropies.append(entropy(data))

    def facts(self) -> Sent:
        closed = [
            Closed(
                zone, each.sealed_by, each.uploads, len(each.sizes), sum(each.sizes), min(each.shares),
                math.fsum(each.shares) / len(each.shares), math.fsum(each.entropies) / len(each.entropies),
                math.fsum(map(entropy_of_random, each.sizes)) / len(each.sizes), each.repeated,
            )
            for (zone, _), each in self.pieces.items() if each.sizes
        ]  # fmt: skip
        return Sent(True, self.messages, self.bytes, self.answers, closed, dict(self.values))


def entropy(data: bytes) -> float:
    """Shannon entropy of the bytes, in bits per byte."""
    counts = np.bincount(np.frombuffer(data, np.uint8), minlength=256)
    shares = counts[counts > 0] / max(1, len(data))
    return float(-(shares * np.log2(shares)).sum())


@functools.lru_cache(maxsize=256)
def entropy_of_random(size: int) -> float:
    """The expected `entropy` of this number of random bytes. It is below 8, and lower for fewer bytes."""
    mean = size / 256
    most = min(size, math.ceil(mean + 40 * math.sqrt(mean) + 40))
    log_choose = (math.lgamma(size + 1) - math.lgamma(k + 1) - math.lgamma(size - k + 1) for k in range(most + 1))
    chances = (
        math.exp(log + k * math.log(1 / 256) + (size - k) * math.log(255 / 256)) for k, log in enumerate(log_choose)
    )
    return -256 * math.fsum(chance * k / size * math.log2(k / size) for k, chance in enumerate(chances) if k)
