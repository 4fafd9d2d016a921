"""The manifest of a folder: the SHA-256 and size of each file, and a signature over that list."""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedplug.api.records import Count, Record, Text, one_line
from fedplug_runs.files import read_bytes

from fedplug_evidence.keys import public_bytes, signs
from fedplug_evidence.strict import read_json

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

MANIFEST, SIGNATURE = "manifest.json", "manifest.sig"
_PURPOSE = b"fedplug evidence 1\n"
"""A prefix of the signed bytes. With it, no signature over something else counts here."""

_LARGEST = {MANIFEST: 2**16, SIGNATURE: 2**12, "recipe.yaml": 10**6}
_LARGEST_OTHER, _MOST_FILES = 2**28, 64
"""The largest size of a file in bytes, and the largest number of files in a folder."""


class Held(Record):
    """The contents of one file, as a hash and a size."""

    sha256: Text
    size: Count


def canonical(plain: Any) -> bytes:
    """JSON in one canonical form: sorted keys, two spaces of indentation, no escapes, a newline at the end."""
    return (json.dumps(plain, sort_keys=True, indent=2, ensure_ascii=False) + "\n").encode()


def held(data: bytes) -> Held:
    """SHA-256 and size of the contents of a file."""
    return Held(hashlib.sha256(data).hexdigest(), len(data))


def seal(files: Mapping[str, bytes], key: Ed25519PrivateKey) -> dict[str, bytes]:
    """The manifest of these files and its signature, by file name."""
    manifest = canonical({name: held(data).to_plain() for name, data in files.items()})
    return {MANIFEST: manifest, SIGNATURE: _signature(public_bytes(key), key.sign(_PURPOSE + manifest))}


def _signature(public: bytes, signature: bytes) -> bytes:
    return canonical({"algorithm": "Ed25519", "public_key": public.hex(), "signature": signature.hex()})


class Checked:
    """A folder compared with its manifest. It checks links, pipes and sizes before it opens any file.

    Args:
        folder: with the files and the manifest.

    Attributes:
        problems: the mismatches, each with the name of the file.
        public: the key that signed, 32 bytes; None if the signature cannot be read.
        data: the contents of the files in the manifest, by name; complete if there is no problem.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.problems: list[str] = []
        self.public: bytes | None = None
        self.data: dict[str, bytes] = {}
        self.problems += _wrong_kinds(folder)
        if self.problems:
            return
        manifest = self._bytes(MANIFEST)
        self._check_signature(manifest)
        if manifest is not None:
            self.problems += self._wrong_files(manifest)

    def _bytes(self, name: str) -> bytes | None:
        try:
            return read_bytes(self.folder / name)
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            why = "missing" if missing else f"cannot be read ({error.strerror or error})"
            self.problems.append(f"{name}: {why}")
            return None

    def _check_signature(self, manifest: bytes | None) -> None:
        written = self._bytes(SIGNATURE)
        if written is None:
            return
        try:
            plain = read_json(written)
            public, signature = bytes.fromhex(plain["public_key"]), bytes.fromhex(plain["signature"])
        except (ValueError, TypeError, KeyError):
            self.problems.append(f"{SIGNATURE}: changed; it contains no readable signature")
            return
        if _signature(public, signature) != written:
            self.problems.append(f"{SIGNATURE}: changed; it is not in the form that fedplug writes")
            return
        self.public = public
        if manifest is not None and not signs(public, signature, _PURPOSE + manifest):
            self.problems.append(f"{SIGNATURE}: does not sign {MANIFEST}; one of the two was changed")

    def _wrong_files(self, manifest: bytes) -> Iterator[str]:
        try:
            listed = {name: Held.from_plain(plain) for name, plain in read_json(manifest).items()}
        except (ValueError, AttributeError) as error:
            yield f"{MANIFEST}: changed; it is not a list of files ({error})"
            return
        if canonical({name: each.to_plain() for name, each in listed.items()}) != manifest:
            yield f"{MANIFEST}: changed; it is not in the form that fedplug writes"
            return
        there = {path.name for path in self.folder.iterdir()} - {MANIFEST, SIGNATURE}
        yield from (f"{one_line(name)}: missing" for name in sorted(listed.keys() - there))
        yield from (f"{one_line(name)}: added" for name in sorted(there - listed.keys()))
        for name in sorted(listed.keys() & there):
            said, data = listed[name], self._bytes(name)
            if data is None:
                continue
            self.data[name] = data
            if (now := held(data)) != said:
                size = "" if now.size == said.size else f", and it has {now.size} bytes, not {said.size}"
                yield f"{name}: changed; its SHA-256 is {now.sha256[:16]}..., not {said.sha256[:16]}...{size}"


def _wrong_kinds(folder: Path) -> Iterator[str]:
    """Paths that are not files of a sensible size. It opens nothing and follows no link."""
    for number, path in enumerate(sorted(folder.rglob("*"))):
        name, found = one_line(path.relative_to(folder).as_posix()), path.lstat()
        most = _LARGEST.get(name, _LARGEST_OTHER)
        if number >= _MOST_FILES:
            yield f"{name}: added, and the folder has more files than evidence ever has"
            return
        if stat.S_ISLNK(found.st_mode):
            yield f"{name}: a link, not a file of the folder"
        elif stat.S_ISDIR(found.st_mode) or path.parent != folder:
            yield f"{name}: added"
        elif not stat.S_ISREG(found.st_mode):
            yield f"{name}: cannot be read (it is not a file)"
        elif found.st_size > most:
            yield f"{name}: too large, {found.st_size} bytes; such a file has at most {most}"
