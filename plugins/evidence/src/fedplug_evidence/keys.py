"""Keys that sign evidence: Ed25519 (RFC 8032). The user's key is created on first use. Only its owner can read it."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from fedplug.api.errors import SetupError
from fedplug_runs.files import open_private, private_folder

NAME = "evidence-key.pem"
"""The file of the user's key, next to the config file."""
_KINDS = "an Ed25519 private key without a password, as PEM or as OpenSSH writes it (ssh-keygen -t ed25519)"


def users_key() -> Path:
    """The path of the user's key, next to `fedplug/config.toml`. It need not exist."""
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "fedplug" / NAME


def own_key(file: Path | None = None) -> tuple[Ed25519PrivateKey, Path | None]:
    """The key in a file, or the user's key, which is created if there is none.

    Args:
        file: PEM or OpenSSH; None: the user's key.

    Returns:
        The key, and its file if it was just created; None if it existed.

    Raises:
        SetupError: the key cannot be read or written, or is of another kind.
    """
    if file is not None:
        return read_private(file), None
    place = users_key()
    if place.is_file():
        return read_private(place), None
    key = Ed25519PrivateKey.generate()
    written = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    try:
        if not place.parent.is_dir():
            private_folder(place.parent)
        with open_private(place, "xb") as made:
            made.write(written)
    except OSError as error:
        raise SetupError(
            f"{place} cannot be written ({error.strerror or error}); name your key with --key FILE: {_KINDS}"
        ) from error
    return key, place


def read_private(file: Path) -> Ed25519PrivateKey:
    """The private key in a file.

    Raises:
        SetupError: there is none. The message says what the file must contain.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise SetupError(f"the key {file} cannot be read ({error.strerror or error}); it must be {_KINDS}") from error
    for load in (serialization.load_pem_private_key, serialization.load_ssh_private_key):
        try:
            key = load(data, None)
        except TypeError as error:  # it has a password
            raise SetupError(f"the key {file} has a password; it must be {_KINDS}") from error
        except (ValueError, UnsupportedAlgorithm):
            continue
        if isinstance(key, Ed25519PrivateKey):
            return key
        raise SetupError(f"the key {file} is {type(key).__name__.strip('_')}; it must be {_KINDS}")
    hint = "; a public key cannot sign" if data.lstrip().startswith((b"ssh-", b"-----BEGIN PUBLIC")) else ""
    raise SetupError(f"the key file {file} contains no readable private key{hint}; it must be {_KINDS}")


def public_bytes(key: Ed25519PrivateKey) -> bytes:
    """The public key, 32 bytes."""
    return key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)


def public_pem(public: bytes) -> bytes:
    """A public key as a PEM file."""
    return Ed25519PublicKey.from_public_bytes(public).public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def read_public(given: str) -> bytes:
    """A public key as given by the user: a file (PEM or OpenSSH), or 32 bytes in hexadecimal digits or base64.

    Raises:
        SetupError: the text is none of these.
    """
    text = given.strip()
    data = _of_file(Path(text)) if _is_file(text) else text.encode()
    for load in (serialization.load_pem_public_key, serialization.load_ssh_public_key):
        try:
            key = load(data)
        except (ValueError, UnsupportedAlgorithm):
            continue
        if isinstance(key, Ed25519PublicKey):
            return key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        raise SetupError(f"--signer {text}: it is {type(key).__name__.strip('_')}; it must be an Ed25519 public key")
    short = data.decode("ascii", "replace").strip().removeprefix("ed25519:")
    for read in (bytes.fromhex, lambda code: base64.b64decode(code, validate=True)):
        try:
            found = read(short)
        except (ValueError, binascii.Error):
            continue
        if len(found) == 32:
            return found
    raise SetupError(
        f"--signer {text[:80]}: it is neither a file with an Ed25519 public key nor 32 bytes in hexadecimal digits or "
        "base64; fedplug evidence prints the public key and writes it next to the private one"
    )


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # no file has such a name
        return False


def _of_file(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise SetupError(f"--signer {file}: it cannot be read ({error.strerror or error})") from error


def fingerprint(public: bytes) -> str:
    """The fingerprint of a public key, as in OpenSSH: `SHA256:` and base64 of the digest of its wire format."""
    wire = b"\x00\x00\x00\x0bssh-ed25519\x00\x00\x00\x20" + public
    return "SHA256:" + base64.b64encode(hashlib.sha256(wire).digest()).decode().rstrip("=")


def signs(public: bytes, signature: bytes, data: bytes) -> bool:
    """Whether this is a signature over these bytes with this key."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True
