"""What a folder holds, to the byte: SHA-256 and size of each file, and a signature over that list."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedplug.api.files import read_bytes
from fedplug.api.records import Count, Record, Text

from fedplug_evidence.keys import public_bytes, signs

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

MANIFEST, SIGNATURE = "manifest.json", "manifest.sig"
_PURPOSE = b"fedplug evidence 1\n"
"""Comes before what is signed, so that no signature over something else counts here."""


class Held(Record):
    """What one file holds."""

    sha256: Text
    size: Count


def canonical(plain: Any) -> bytes:
    """JSON in one form alone: keys in order, two blanks, no escapes, a line end."""
    return (json.dumps(plain, sort_keys=True, indent=2, ensure_ascii=False) + "\n").encode()


def held(data: bytes) -> Held:
    """SHA-256 and size of what a file holds."""
    return Held(hashlib.sha256(data).hexdigest(), len(data))


def seal(files: Mapping[str, bytes], key: Ed25519PrivateKey) -> dict[str, bytes]:
    """The manifest of these files, and the signature over it, by the names of their files."""
    manifest = canonical({name: held(data).to_plain() for name, data in files.items()})
    return {MANIFEST: manifest, SIGNATURE: _signature(public_bytes(key), key.sign(_PURPOSE + manifest))}


def _signature(public: bytes, signature: bytes) -> bytes:
    return canonical({"algorithm": "Ed25519", "public_key": public.hex(), "signature": signature.hex()})


class Checked:
    """A folder beside its manifest.

    Args:
        folder: that holds both.

    Attributes:
        problems: what does not fit, each with the name of the file.
        public: the key that signed, 32 bytes; None where the signature cannot be read.
        files: how many the manifest lists.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.problems: list[str] = []
        self.public: bytes | None = None
        self.files = 0
        manifest = self._bytes(MANIFEST)
        self._check_signature(manifest)
        if manifest is not None:
            self.problems += self._wrong_files(manifest)

    def _bytes(self, name: str) -> bytes | None:
        try:
            return read_bytes(self.folder / name)
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            self.problems.append(f"{name}: it is missing" if missing else f"{name}: it cannot be read ({error})")
            return None

    def _check_signature(self, manifest: bytes | None) -> None:
        written = self._bytes(SIGNATURE)
        if written is None:
            return
        try:
            plain = json.loads(written)
            public, signature = bytes.fromhex(plain["public_key"]), bytes.fromhex(plain["signature"])
        except (ValueError, TypeError, KeyError):
            self.problems.append(f"{SIGNATURE}: it was changed; it holds no signature that can be read")
            return
        if _signature(public, signature) != written:
            self.problems.append(f"{SIGNATURE}: it was changed; a signature is written in one form alone")
            return
        self.public = public
        if manifest is not None and not signs(public, signature, _PURPOSE + manifest):
            self.problems.append(f"{SIGNATURE}: it does not sign {MANIFEST}; one of the two was changed")

    def _wrong_files(self, manifest: bytes) -> Iterator[str]:
        try:
            listed = {name: Held.from_plain(plain) for name, plain in json.loads(manifest).items()}
        except (ValueError, AttributeError) as error:
            yield f"{MANIFEST}: it was changed; it is no list of files ({error})"
            return
        self.files = len(listed)
        there = {path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*")}
        yield from (f"{name}: it is missing" for name in sorted(listed.keys() - there))
        yield from (f"{name}: it was added" for name in sorted(there - listed.keys() - {MANIFEST, SIGNATURE}))
        for name in sorted(listed.keys() & there):
            path, said = self.folder / name, listed[name]
            if path.is_symlink():
                yield f"{name}: it is a link, and no file of the folder"
                continue
            try:
                now = held(read_bytes(path))
            except OSError as error:
                yield f"{name}: it cannot be read ({error.strerror or error})"
                continue
            if now != said:
                size = "" if now.size == said.size else f", and has {now.size} bytes, not {said.size}"
                yield f"{name}: it was changed; its SHA-256 is {now.sha256[:16]}..., not {said.sha256[:16]}...{size}"
