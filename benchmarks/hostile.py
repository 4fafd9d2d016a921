"""Hostile inputs: frames of a message, and whole run folders. Both are seeded, and made from honest ones.

A reader accepts a frame or refuses it with a `MessageError`, in time and memory that follow from its bytes. A command
uses a run folder or refuses it with a sentence: no traceback, nothing written or removed outside of it, and none of its
code run.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import math
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgpack
from fedplug.api import codec
from fedplug.api.errors import MessageError
from fedplug_runs import yaml_source

SECONDS = 3.0
"""Seconds of process time in which a reader must finish a frame of a megabyte; a good one takes milliseconds."""
PATIENCE = 60
"""Seconds after which a command on a small run folder counts as hanging."""

_TEXTS = (
    "", "x" * 100_000, "../../outside", "/", "\x1b[2J\r\n", "<script>alert(1)</script>", "\ud800", "\u0000", "%s{0}",
)  # fmt: skip
_PLAIN: tuple[Any, ...] = (
    None, True, -1, 0, 2**31, 2**63, 2**64, 10**400, -(10**400), 0.5, -0.0, 1e308, math.nan, math.inf, -math.inf, [],
    [[]], {}, {"": None}, [1, "a"], {"a": {"b": 1}}, *_TEXTS,
)  # fmt: skip
"""Values of files."""
_ARRAYS, _BLOCKS = 1, 3
_PACKED: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2**31, 2**63, 2**64 - 1, -(2**63), 0.5, -0.0, 1e308, -1e308, math.nan, math.inf, "",
    "\x1b[2J\r\n", "x" * 5000, "clear", "client:0", b"", b"\0" * 16, b"x" * 5000, [], [[]], {}, {"": None}, {-1: -1},
    msgpack.ExtType(2, b"\xff" * 40), msgpack.ExtType(2, b"\x7f" * 400), msgpack.ExtType(9, b"?"),
    msgpack.ExtType(_ARRAYS, msgpack.packb(["<f4", [3], b"\0\0\xc0\x7f" * 3])),
    msgpack.ExtType(_ARRAYS, msgpack.packb(["<f4", [2**40], b""])),
    msgpack.ExtType(_ARRAYS, msgpack.packb(["<i8", [0], b""])),
    msgpack.ExtType(_ARRAYS, msgpack.packb(["<f8", [1, 1], b"\xff" * 8])),
    msgpack.ExtType(_ARRAYS, msgpack.packb(["O", [1], b"\0" * 8])),
    msgpack.ExtType(_BLOCKS, msgpack.packb({"zone": "clear", "size": 1})),
)  # fmt: skip
"""Values of messages."""


def changed(data: Any, rng: random.Random, values: Sequence[Any], at: str = "") -> tuple[str, Any]:
    """Data with a change at a random place, in words and as it is then: another value, too few parts, or too many."""
    if not isinstance(data, dict | list | msgpack.ExtType) or not data or rng.random() < 0.1:
        value = rng.choice(values) if rng.random() < 0.8 else _near(data, rng)
        return f"{at} is {str(value)[:20]!r}" if not isinstance(value, int) or value < 2**64 else f"{at} is huge", value
    if isinstance(data, msgpack.ExtType):
        try:
            said, inner = changed(msgpack.unpackb(data.data, strict_map_key=False), rng, values, at)
            return said, msgpack.ExtType(data.code, msgpack.packb(inner))
        except Exception:  # it holds no packed data, or cannot hold this
            return f"{at} is cut off", msgpack.ExtType(data.code, data.data[: rng.randrange(len(data.data) + 1)])
    key, chance = rng.choice(list(data)) if isinstance(data, dict) else rng.randrange(len(data)), rng.random()
    if chance < 0.1 and isinstance(data, dict):
        return f"{at} lacks {key!r}", {k: v for k, v in data.items() if k != key}
    if chance < 0.1 and isinstance(data, list):
        return f"{at} is longer", data * rng.choice((0, 2, 50)) if rng.random() < 0.5 else [*data, *data[key:]]
    if chance < 0.2 and isinstance(data, dict):
        more = rng.choice(("x", "", "a" * 1000, "zone", "retained", f"{key} ", 0, -1, 2**40))
        return f"{at} has more", {**data, more: rng.choice(values)}
    said, inner = changed(data[key], rng, values, f"{at}.{str(key)[:20]}")
    copy: Any = data.copy()
    copy[key] = inner
    return said, copy


def _near(value: Any, rng: random.Random) -> Any:
    """A value of the same type, or one that is nested deeply."""
    match value:
        case bool():
            return not value
        case int():
            return max(-(2**63), min(2**64 - 1, value + rng.choice((-1, 1, -value, 2**32))))
        case float():
            return rng.choice((-value, value * 1e300, value / 1e300, math.nan))
        case str():
            return value[::-1] + rng.choice(("", "\x00", "\u202e"))
        case bytes() if value:
            return _spoilt(value, rng)[1]
    return functools.reduce(lambda inner, _: [inner], range(200), value)


# -- frames ------------------------------------------------------------------------------------------------------------


def hostile_frame(honest: Sequence[bytes], rng: random.Random) -> tuple[str, bytes]:
    """A hostile frame that tries to break or to stall its reader, and its kind.

    Args:
        honest: framed messages of a real run.
        rng: source of the random choices.
    """
    kind = rng.choice([*_KINDS])
    return kind, _KINDS[kind](honest, rng)


def frame_problem(data: bytes, readers: Mapping[str, Callable[[bytes], Any]]) -> str:
    """The problem with a frame; empty if each reader accepted it, or refused it with a MessageError, in time.

    Args:
        data: the frame.
        readers: by name, functions that read such bytes as a party or the server does.
    """
    for name, read in readers.items():
        began = time.process_time()
        try:
            read(data)
        except MessageError:
            pass
        except Exception as error:
            return f"{name}: {type(error).__name__}: {str(error)[:200]}"
        if (took := time.process_time() - began) > SECONDS:
            return f"{name}: {took:.1f} s for {len(data)} bytes"
    return ""


def altered(message: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    """A message from a party that wants the receiver to fail.

    Args:
        message: an honest one, framed.
        rng: source of the random choices.
        others: further honest messages, from any party.
    """
    way = rng.random()
    if way < 0.75:
        return _altered([message], rng)
    return rng.choice(others) if way < 0.85 else rng.choice((_other, _other, _damaged_header))([message], rng)


def _altered(honest: Sequence[bytes], rng: random.Random) -> bytes:
    body = msgpack.unpackb(codec.unframe(rng.choice(honest)), strict_map_key=False)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        _, body = changed(body, rng, _PACKED)
    try:
        return codec.frame(bytes(msgpack.packb(body)))
    except (ValueError, TypeError, OverflowError, RecursionError):
        return codec.frame(b"\xc1")


def _other(honest: Sequence[bytes], rng: random.Random) -> bytes:
    """Other bytes with a matching checksum, or without."""
    frame = rng.choice(honest)
    return codec.frame(_spoilt(codec.unframe(frame), rng)[1]) if rng.random() < 0.8 else _spoilt(frame, rng)[1]


def _spoilt(data: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Bytes that no reader expects, and what is wrong with them."""
    at, flipped = rng.randrange(len(data) + 1), bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 16)) if data else 0):
        flipped[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    piece = data[at : at + rng.choice((1, 2, 5, 40))] * rng.choice((10, 10, 1000))
    return rng.choice((
        ("is empty", b""), ("is cut off", data[:at]), ("has bits flipped", bytes(flipped)), ("is long", data * 20),
        ("repeats a piece", data[:at] + piece + data[at:]), ("is not text", data + b"\xff\xfe\x00"),
        ("is noise", rng.randbytes(rng.choice((1, 15, 16, 17, 200, 2000)))),
    ))  # fmt: skip


def _spliced(honest: Sequence[bytes], rng: random.Random) -> bytes:
    one, other = (codec.unframe(rng.choice(honest)) for _ in range(2))
    return codec.frame(one[: rng.randrange(len(one) + 1)] + other[rng.randrange(len(other) + 1) :])


def _damaged_header(honest: Sequence[bytes], rng: random.Random) -> bytes:
    frame = bytearray(rng.choice(honest))
    frame[rng.randrange(codec.FRAME_SIZE)] = rng.randrange(256)
    return bytes(frame)


def _claiming(honest: Sequence[bytes], rng: random.Random) -> bytes:
    """Nested containers, each of which claims more items than it has."""
    claim = rng.choice((b"\xdd", b"\xdf")) + rng.choice((2**32 - 1, 2**20 - 100, 70_000)).to_bytes(4, "big")
    key = b"\x01" if claim[0] == 0xDF else b""
    return codec.frame((claim + key) * rng.choice((1, 3, 30, 2000)))


def _deep(honest: Sequence[bytes], rng: random.Random) -> bytes:
    opened = rng.choice((b"\x91", b"\x81\x01", b"\x81\xa1a", b"\xc7\x02\x03", b"\xc7\x03\x04\x91"))
    return codec.frame(opened * rng.choice((5, 31, 32, 33, 500, 5000)) + b"\x01")


def _keyed(honest: Sequence[bytes], rng: random.Random) -> bytes:
    """A dictionary with keys of equal hash, or with keys of invalid types."""
    count, modulus = rng.choice((3, 3, 3, 3, 3000)), 2**61 - 1
    make: Callable[[int], bytes] = rng.choice((
        lambda n: msgpack.packb(msgpack.ExtType(2, ((n + 2**20) * modulus + 5).to_bytes(11, "big"))),
        lambda n: msgpack.packb(float(n)), lambda n: msgpack.packb([n]), lambda n: msgpack.packb(n << 40),
        lambda n: msgpack.packb("a"), lambda n: msgpack.packb(msgpack.ExtType(1, b"\x90")),
    ))  # fmt: skip
    pairs = b"".join(make(n) + b"\x01" for n in range(count))
    return codec.frame(b"\xdf" + count.to_bytes(4, "big") + pairs)


def _small_and_many(honest: Sequence[bytes], rng: random.Random) -> bytes:
    """Values that need much more memory than their bytes."""
    count = rng.choice((100, 100, 100, 1000, 1000, 1000, 1000, 1000, 1000, 60_000))
    thing = rng.choice((
        b"\x90", b"\x80", b"\xa2ab", b"\xcd\x12\x34", b"\xcb" + bytes(8), b"\xd4\x02\x01",
        msgpack.packb(msgpack.ExtType(1, msgpack.packb(["|u1", [1], b"a"]))),
        msgpack.packb(msgpack.ExtType(3, msgpack.packb({"zone": "clear", "size": 0}))),
    ))  # fmt: skip
    return codec.frame(b"\xdd" + count.to_bytes(4, "big") + thing * count)


def _arrays(honest: Sequence[bytes], rng: random.Random) -> bytes:
    """Arrays and bitmaps that do not match their headers."""
    raw = rng.randbytes(rng.choice((0, 8, 64, 4096)))
    kind = rng.choice(("<f4", "|u1", "|b1", "<f8", "|O", "<U9", "i4,i4", "M8[s]", ",".join(["i4"] * 500), "", None, 7))
    shape = rng.choice(([len(raw)], [len(raw) // 4], [-1], [2**62, 4], [0, 2**60], [1] * 200, [], None, [0.5], ["a"]))
    array = msgpack.ExtType(1, msgpack.packb([kind, shape, raw]))
    if rng.random() < 0.5:
        return codec.frame(bytes(msgpack.packb({"value": array})))
    bits = msgpack.ExtType(1, msgpack.packb(["|u1", [len(raw)], raw]))
    extent = rng.choice((0, 1, 8 * len(raw), 2**40, -1, 0.5, None))
    block = {"zone": "clear", "size": rng.choice((0, 1, 8 * len(raw), 2**63)), "positions": rng.choice(
        (array, {"bits": bits, "extent": extent}, {"bits": array, "extent": extent}, {}, {"bits": bits}))}  # fmt: skip
    reply = {"value": {"blocks": {"clear": msgpack.ExtType(3, msgpack.packb(block))}}}
    return codec.frame(bytes(msgpack.packb(reply)))


_KINDS: dict[str, Callable[[Sequence[bytes], random.Random], bytes]] = {
    "a value altered": _altered, "other bytes": _other, "two spliced": _spliced, "a damaged header": _damaged_header,
    "lengths that lie": _claiming, "deeply nested": _deep, "strange keys": _keyed,
    "many small things": _small_and_many, "arrays that lie": _arrays,
}  # fmt: skip

# -- run folders -------------------------------------------------------------------------------------------------------

_DEEP = (
    "[" * 100_000, '{"a":' * 100_000, "[" * 500 + "]" * 500, "- " * 5000, "&a [*a]", "\t", "\ufeff",
)  # fmt: skip
_INSTEAD = ("is missing", "is a folder", "is a link outside", "is a link to itself", "is a pipe", "is endless")
_OWN = "import pathlib\npathlib.Path({mark!r}).write_text('ran')\n\n\nclass Sgd:\n    pass\n"


def make_hostile(run: Path, outside: Path, rng: random.Random) -> str:
    """Changes files of a run folder as a hostile sender might; returns a description of the change.

    Args:
        run: a copy of a finished run.
        outside: a folder that nobody may write to, with a file `precious`; code of the run folder would leave its mark
            there.
        rng: source of the random choices.
    """
    return "; ".join(_one_change(run, outside, rng) for _ in range(rng.choice((1, 1, 2, 3))))


def _one_change(run: Path, outside: Path, rng: random.Random) -> str:
    files = [path for path in sorted(run.rglob("*")) if path.is_file() and not path.is_symlink()]
    if not files:
        return "nothing is left"
    # Each kind of file is chosen equally often: there are more states and pictures than summaries.
    suffix = rng.choice(sorted({path.suffix for path in files}))
    path = rng.choice([each for each in files if each.suffix == suffix])
    name = str(path.relative_to(run))
    chance = rng.random()
    if chance < 0.15:
        return f"{name} {_replaced(path, outside, rng)}"
    if chance < 0.2:
        return _with_code(run, outside, rng)
    if chance < 0.25:
        return _more_rounds(run, rng)
    if path.suffix in (".json", ".jsonl", ".yaml") and chance < 0.85:
        return f"{name}: {_other_values(path, rng)}"
    if path.suffix in (".state", ".wire") and chance < 0.85:
        return f"{name}: {_other_frames(path, rng)}"
    return f"{name}: {_other_bytes(path, rng)}"


def _replaced(path: Path, outside: Path, rng: random.Random) -> str:
    path.unlink()
    how = rng.choice(_INSTEAD)
    if how == "is a folder":
        path.mkdir()
    elif how == "is a link outside":
        path.symlink_to(outside / "precious")
    elif how == "is a link to itself":
        path.symlink_to(path)
    elif how == "is a pipe":
        os.mkfifo(path)
    elif how == "is endless":
        path.symlink_to("/dev/zero")
    return how


def _with_code(run: Path, outside: Path, rng: random.Random) -> str:
    recipe = run / "recipe.yaml"
    if not recipe.is_file():
        return "no recipe to add code to"
    (run / "sgd.py").write_text(_OWN.format(mark=str(outside / "mark")))
    text = recipe.read_text(errors="replace")
    place = rng.choice(("std.sgd", "std.mean", "std.mlp"))
    recipe.write_text(text.replace(f"use: {place}", "use: sgd.py:Sgd"), errors="replace")
    return f"code instead of {place}"


def _more_rounds(run: Path, rng: random.Random) -> str:
    """Checkpoints and recordings of rounds that do not exist."""
    known = sorted(run.glob("checkpoint/round-*")) + sorted(run.glob("wire/round-*"))
    if not known:
        return "no rounds to add to"
    one = rng.choice(known)
    number = rng.choice(("9999", "0000", "99999999999999999999", "0001.tmp", "-1", "²", "x"))
    new = one.with_name(f"round-{number}{one.suffix if one.is_file() else ''}")
    if not new.exists():
        shutil.copytree(one, new) if one.is_dir() else shutil.copy(one, new)
    return f"{new.relative_to(run)} is {one.name}"


def _other_values(path: Path, rng: random.Random) -> str:
    """Wrong types, huge numbers, deep nesting, and missing or extra keys in a file of plain data."""
    raw = path.read_text(encoding="utf-8", errors="replace")
    if rng.random() < 0.12:
        deep = rng.choice(_DEEP)
        path.write_text(deep if rng.random() < 0.5 else raw + deep)
        return "nests deeply"
    if path.suffix == ".yaml":
        said, data = changed(yaml_source.read_text(raw, path.name).data, rng, _PLAIN)
        with contextlib.suppress(Exception):  # what YAML cannot hold
            path.write_text(yaml_source.dump(data), errors="replace")
        return said
    lines = raw.splitlines() if path.suffix == ".jsonl" else [raw]
    if not lines:
        path.write_text(rng.choice(("\n", "null\n", "{}\n", "[]")))
        return "is another"
    at = rng.randrange(len(lines))
    try:
        said, data = changed(json.loads(lines[at]), rng, _PLAIN)
        lines[at] = json.dumps(data)  # NaN and Infinity, as Python writes them
    except (ValueError, RecursionError):
        return _other_bytes(path, rng)
    if path.suffix == ".jsonl" and rng.random() < 0.2:
        lines = [*lines, *lines] if rng.random() < 0.5 else lines[::-1]
    path.write_text("\n".join(lines) + ("\n" if path.suffix == ".jsonl" else ""), errors="replace")
    return said


def _other_frames(path: Path, rng: random.Random) -> str:
    """Frames with other content and matching checksums."""
    data, frames = path.read_bytes(), []
    while data:
        size = codec.framed_size(data)
        frames.append(data[:size])
        data = data[size:]
    whole = []
    for frame in frames:
        with contextlib.suppress(MessageError):
            if codec.unframe(frame):
                whole.append(frame)
    if not whole:
        return _other_bytes(path, rng)
    at = rng.randrange(len(frames))
    kind, frames[at] = hostile_frame(whole if rng.random() < 0.5 else whole[:1], rng)
    path.write_bytes(b"".join(frames))
    return f"frame {at + 1} is {kind}"


def _other_bytes(path: Path, rng: random.Random) -> str:
    how, data = _spoilt(path.read_bytes(), rng)
    path.write_bytes(data)
    return how


def folder_problems(run: Path, outside: Path, commands: Mapping[str, Callable[[], int]]) -> Iterator[str]:
    """Problems of commands that use a run folder; none if each succeeds or ends with a sentence.

    Args:
        run: the folder, hostile or not.
        outside: see `make_hostile`; commands must not write there.
        commands: by name; each returns its exit code, prints to the standard streams, and raises nothing.
    """
    for name, command in commands.items():
        before = _content(outside)
        printed = io.StringIO()
        try:
            with _alarm(PATIENCE), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                code = command()
        except BaseException as error:
            yield f"{name}: {type(error).__name__}: {str(error)[:300]}"
            continue
        text = printed.getvalue()
        if "Traceback (most recent call last)" in text:
            yield f"{name}: a traceback"
        if code and not text.strip():
            yield f"{name}: exit code {code} without a word"
        if len(text) > 100_000:
            yield f"{name}: {len(text)} characters of output"
        if (after := _content(outside)) != before:
            yield f"{name}: wrote outside the folder: {sorted(after.items() ^ before.items())[0]}"


def _content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class TookTooLong(BaseException):
    """A command hangs. The class is not an error that a command could handle as its own."""


@contextlib.contextmanager
def _alarm(seconds: int) -> Iterator[None]:
    """Interrupts code that takes longer; works in the main thread alone."""

    def late(*_: object) -> None:
        raise TookTooLong(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
