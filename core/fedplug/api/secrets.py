"""The cohort secret: 32 bytes that all clients share and the server that relays them does not know.

Each client makes an X25519 key pair and sends the public half. The first client draws the secret and seals it for every
other client with HPKE (RFC 9180: X25519, HKDF-SHA256, ChaCha20-Poly1305), bound to the recipe digest and the
receiver; the server relays the sealed copies. This holds against a server that is honest but curious. A server that
replaces public keys could read along: without certificates nobody can tell (docs/edges/encryption.md).
"""

from __future__ import annotations

import functools
import secrets as system
from typing import TYPE_CHECKING

from fedplug.api.errors import MessageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.hpke import Suite

# `cryptography` is imported where it is used: components that can do without a secret are shown and checked, and whole
# runs go on, without ever calling it.


@functools.cache
def _suite() -> Suite:
    from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

    return Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)


def key_pair() -> tuple[bytes, bytes]:
    """A fresh X25519 key pair: (private, public), 32 raw bytes each."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    private = X25519PrivateKey.generate()
    return private.private_bytes_raw(), private.public_key().public_bytes_raw()


def draw() -> bytes:
    """A fresh secret of 32 bytes from the system's randomness."""
    return system.token_bytes(32)


def seal(secret: bytes, public_key: bytes, purpose: bytes) -> bytes:
    """Encrypts `secret` so that only the holder of the private key can read it, and only for this purpose."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    return _suite().encrypt(secret, X25519PublicKey.from_public_bytes(public_key), purpose)


def unseal(sealed: bytes, private_key: bytes, purpose: bytes) -> bytes:
    """Inverse of `seal`.

    Raises:
        MessageError: the box was altered, or was made for somebody or something else.
    """
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    try:
        return _suite().decrypt(sealed, X25519PrivateKey.from_private_bytes(private_key), purpose)
    except Exception as error:
        raise MessageError("a sealed secret does not open: it was altered, or meant for another client") from error


def shared(private_key: bytes, public_key: bytes, *purpose: object) -> bytes:
    """32 bytes that the holders of two X25519 key pairs work out, each with the other's public half, for one purpose.

    Raises:
        MessageError: it is no public key: 32 bytes that give everybody the same secret are none.
    """
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    try:
        private = X25519PrivateKey.from_private_bytes(private_key)
        agreed = private.exchange(X25519PublicKey.from_public_bytes(public_key))
    except ValueError as error:
        raise MessageError("a public key of another client is none that X25519 can use") from error
    return derive(agreed, *purpose)


def derive(secret: bytes, *purpose: object) -> bytes:
    """32 bytes for one purpose (HKDF-SHA256); different purposes give independent keys."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    info = b"\x1f".join(str(part).encode() for part in ("fedplug", *purpose))
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive(secret)


def lock(key: bytes, plaintext: bytes, purpose: bytes) -> bytes:
    """Authenticated encryption under a shared key (ChaCha20-Poly1305, random nonce in front)."""
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    nonce = system.token_bytes(12)
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, plaintext, purpose)


def unlock(key: bytes, locked: bytes, purpose: bytes) -> bytes:
    """Inverse of `lock`.

    Raises:
        MessageError: the bytes were altered, or the key or the purpose differs.
    """
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    try:
        return ChaCha20Poly1305(key).decrypt(locked[:12], locked[12:], purpose)
    except (InvalidTag, ValueError) as error:
        raise MessageError("locked bytes do not open: they were altered, or the key is another") from error


def signing_pair(private_key: bytes | None = None) -> tuple[bytes, bytes]:
    """An Ed25519 key pair (RFC 8032): (private, public), 32 raw bytes each; fresh, or that of a private half."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.from_private_bytes(private_key) if private_key else Ed25519PrivateKey.generate()
    return private.private_bytes_raw(), private.public_key().public_bytes_raw()


def sign(private_key: bytes, statement: bytes) -> bytes:
    """An Ed25519 signature, 64 bytes."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(private_key).sign(statement)


def signs(public_key: bytes, signature: bytes, statement: bytes) -> bool:
    """Whether a signature over a statement is by the holder of this Ed25519 key."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, statement)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True
