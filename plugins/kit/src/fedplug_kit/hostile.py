"""Hostile inputs: frames of a message, and whole run folders. Both are seeded, and made from honest ones.

A reader accepts a frame or refuses it with a `MessageError`, in time and memory that follow from its bytes. A command
uses a run folder or refuses it with a sentence: no traceback, nothing written or removed outside of it, and none of its
code run.
"""

from __future__ import annotations

import contextlib
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
from fedplug.recipe import yaml_source

from fedplug_kit.lies import altered

SECONDS = 3.0
"""Seconds of process time in which a reader must finish a frame of a megabyte; a good one takes milliseconds."""
PATIENCE = 60
"""Seconds after which a command on a small run folder counts as hanging."""

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


def _altered(honest: Sequence[bytes], rng: random.Random) -> bytes:
    return altered(rng.choice(honest), rng, list(honest))


def _flipped(honest: Sequence[bytes], rng: random.Random) -> bytes:
    """Flips bits of the body, with a matching checksum."""
    body = bytearray(codec.unframe(rng.choice(honest)))
    for _ in range(rng.choice((1, 1, 2, 16))):
        at = rng.randrange(len(body))
        body[at] ^= 1 << rng.randrange(8)
    return codec.frame(bytes(body))


def _cut(honest: Sequence[bytes], rng: random.Random) -> bytes:
    body = codec.unframe(rng.choice(honest))
    return codec.frame(body[: rng.randrange(len(body) + 1)])


def _spliced(honest: Sequence[bytes], rng: random.Random) -> bytes:
    one, other = (codec.unframe(rng.choice(honest)) for _ in range(2))
    return codec.frame(one[: rng.randrange(len(one) + 1)] + other[rng.randrange(len(other) + 1) :])


def _repeated(honest: Sequence[bytes], rng: random.Random) -> bytes:
    """Repeats a few of its bytes many times."""
    body = codec.unframe(rng.choice(honest))
    at = rng.randrange(len(body))
    piece = body[at : at + rng.choice((1, 2, 5, 40))]
    return codec.frame(body[:at] + piece * rng.choice((10, 10, 1000)) + body[at:])


def _damaged_header(honest: Sequence[bytes], rng: random.Random) -> bytes:
    frame = bytearray(rng.choice(honest))
    frame[rng.randrange(codec.FRAME_SIZE)] = rng.randrange(256)
    return bytes(frame)


def _noise(honest: Sequence[bytes], rng: random.Random) -> bytes:
    data = rng.randbytes(rng.choice((0, 1, 15, 16, 17, 200, 2000)))
    return codec.frame(data) if rng.random() < 0.8 else data


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
    make: Callable[[int], bytes] = rng.choice(
        (
            lambda n: msgpack.packb(msgpack.ExtType(2, ((n + 2**20) * modulus + 5).to_bytes(11, "big"))),
            lambda n: msgpack.packb(float(n)), lambda n: msgpack.packb([n]), lambda n: msgpack.packb(n << 40),
            lambda n: msgpack.packb("a"), lambda n: msgpack.packb(msgpack.ExtType(1, b"\x90")),
        )
    )  # fmt: skip
    pairs = b"".join(make(n) + b"\x01" for n in range(count))
    return codec.frame(b"\xdf" + count.to_bytes(4, "big") + pairs)


def _small_and_many(honest: Sequence[bytes], rng: random.Random) -> bytes:
    """Values that need much more memory than their bytes."""
    count = rng.choice((100, 100, 100, 1000, 1000, 1000, 1000, 1000, 1000, 60_000))
    thing = rng.choice(
        (
            b"\x90", b"\x80", b"\xa2ab", b"\xcd\x12\x34", b"\xcb" + bytes(8), b"\xd4\x02\x01",
            msgpack.packb(msgpack.ExtType(1, msgpack.packb(["|u1", [1], b"a"]))),
            msgpack.packb(msgpack.ExtType(3, msgpack.packb({"zone": "clear", "size": 0}))),
        )
    )  # fmt: skip
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
    "a value altered": _altered, "bits flipped": _flipped, "cut off": _cut, "two spliced": _spliced,
    "a piece repeated": _repeated, "a damaged header": _damaged_header, "noise": _noise,
    "lengths that lie": _claiming, "deeply nested": _deep, "strange keys": _keyed,
    "many small things": _small_and_many, "arrays that lie": _arrays,
}  # fmt: skip

# -- run folders -------------------------------------------------------------------------------------------------------

_TEXTS = (
    "", "x" * 100_000, "../../outside", "/", "\x1b[2J\r\n", "<script>alert(1)</script>", "\ud800", "\u0000", "%s{0}",
)  # fmt: skip
_DEEP = (
    "[" * 100_000, '{"a":' * 100_000, "[" * 500 + "]" * 500, "- " * 5000, "&a [*a]", "\t", "\ufeff",
)  # fmt: skip
_INSTEAD = ("is missing", "is a folder", "is a link outside", "is a link to itself", "is a pipe", "is endless")
_PLAIN: tuple[Any, ...] = (
    None, True, -1, 0, 2**31, 2**63, 2**64, 10**400, -(10**400), 0.5, -0.0, 1e308, math.nan, math.inf, -math.inf, [],
    [[]], {}, {"": None}, [1, "a"], {"a": {"b": 1}}, *_TEXTS,
)  # fmt: skip
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
        said, data = _changed(yaml_source.read_text(raw, path.name).data, rng)
        with contextlib.suppress(Exception):  # what YAML cannot hold
            path.write_text(yaml_source.dump(data), errors="replace")
        return said
    lines = raw.splitlines() if path.suffix == ".jsonl" else [raw]
    if not lines:
        path.write_text(rng.choice(("\n", "null\n", "{}\n", "[]")))
        return "is another"
    at = rng.randrange(len(lines))
    try:
        said, data = _changed(json.loads(lines[at]), rng)
        lines[at] = json.dumps(data)  # NaN and Infinity, as Python writes them
    except (ValueError, RecursionError):
        return _other_bytes(path, rng)
    if path.suffix == ".jsonl" and rng.random() < 0.2:
        lines = [*lines, *lines] if rng.random() < 0.5 else lines[::-1]
    path.write_text("\n".join(lines) + ("\n" if path.suffix == ".jsonl" else ""), errors="replace")
    return said


def _changed(data: Any, rng: random.Random, at: str = "") -> tuple[str, Any]:
    """Plain data with a change at a random place, and that place."""
    if not isinstance(data, dict | list) or not data or rng.random() < 0.1:
        value = rng.choice(_PLAIN)
        if rng.random() < 0.05:
            for _ in range(200):
                value = [value]
        return f"{at} is {str(value)[:20]!r}" if not isinstance(value, int) or value < 2**64 else f"{at} is huge", value
    key = rng.choice(list(data)) if isinstance(data, dict) else rng.randrange(len(data))
    chance = rng.random()
    if isinstance(data, dict) and chance < 0.1:
        return f"{at} lacks {key!r}", {k: v for k, v in data.items() if k != key}
    if isinstance(data, dict) and chance < 0.15:
        return f"{at} has more", {**data, rng.choice(("x", "", "a" * 1000, str(key) + " ")): rng.choice(_PLAIN)}
    if isinstance(data, list) and chance < 0.1:
        return f"{at} is longer", data * rng.choice((0, 2, 50))
    said, inner = _changed(data[key], rng, f"{at}.{str(key)[:20]}")
    copy: Any = data.copy()
    copy[key] = inner
    return said, copy


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
    data = path.read_bytes()
    how = rng.choice(("is empty", "is cut off", "is noise", "has bits flipped", "is not text", "is long"))
    if how == "is empty":
        data = b""
    elif how == "is cut off":
        data = data[: rng.randrange(len(data) + 1)]
    elif how == "is noise":
        data = rng.randbytes(200)
    elif how == "is not text":
        data += b"\xff\xfe\x00"
    elif how == "is long":
        data *= 20
    elif data:
        flipped = bytearray(data)
        flipped[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        data = bytes(flipped)
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
