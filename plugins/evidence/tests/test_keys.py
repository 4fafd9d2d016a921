"""Signing keys: created once, readable only by their owner. Other kinds of keys are refused with a reason."""

from __future__ import annotations

import base64
import stat
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fedplug.api.errors import SetupError
from fedplug_evidence.keys import fingerprint, own_key, public_bytes, public_pem, read_public, signs

PEM, SSH = serialization.Encoding.PEM, serialization.Encoding.OpenSSH
PKCS8, OPEN = serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.OpenSSH
NONE = serialization.NoEncryption()
OTHER = Ed25519PrivateKey.generate()


def written(folder: Path, data: bytes) -> Path:
    file = folder / "key"
    file.write_bytes(data)
    return file


def test_a_key_is_made_once_for_its_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "new"))
    key, made = own_key()
    assert made == tmp_path / "new" / "fedplug" / "evidence-key.pem"
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    again, second = own_key()
    assert second is None
    assert public_bytes(again) == public_bytes(key)


@pytest.mark.parametrize(("encoding", "form"), [(PEM, PKCS8), (PEM, OPEN)])
def test_keys_of_both_forms_are_read(tmp_path: Path, encoding: Any, form: Any) -> None:
    key = Ed25519PrivateKey.generate()
    read, made = own_key(written(tmp_path, key.private_bytes(encoding, form, NONE)))
    assert made is None
    assert public_bytes(read) == public_bytes(key)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (ec.generate_private_key(ec.SECP256R1()).private_bytes(PEM, PKCS8, NONE), "ECPrivateKey; it must be an Ed"),
        (rsa.generate_private_key(65537, 2048).private_bytes(PEM, PKCS8, NONE), "RSAPrivateKey; it must be an Ed"),
        (public_pem(public_bytes(OTHER)), "no readable private key; a public key cannot sign"),
        (b"nonsense", "no readable private key; it must be an Ed25519"),
        (OTHER.private_bytes(PEM, PKCS8, serialization.BestAvailableEncryption(b"x")), "has a password"),
    ],
)
def test_another_kind_of_key_is_refused(tmp_path: Path, data: bytes, why: str) -> None:
    with pytest.raises(SetupError, match=why):
        own_key(written(tmp_path, data))


def test_a_key_that_is_not_there_or_cannot_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SetupError, match=r"cannot be read .*; it must be an Ed25519 private key"):
        own_key(tmp_path / "absent")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    with pytest.raises(SetupError, match=r"cannot be written .*--key FILE"):
        own_key()


def test_a_public_key_is_read_in_each_form(tmp_path: Path) -> None:
    public = public_bytes(key := Ed25519PrivateKey.generate())
    ssh = key.public_key().public_bytes(SSH, serialization.PublicFormat.OpenSSH)
    for number, data in enumerate((public_pem(public), ssh, public.hex().encode(), base64.b64encode(public) + b"\n")):
        file = tmp_path / str(number)
        file.write_bytes(data)
        assert read_public(str(file)) == public
    for given in (public.hex(), base64.b64encode(public).decode(), ssh.decode()):
        assert read_public(given) == public


@pytest.mark.parametrize("given", ["", "absent.pem", "00" * 31, "zz" * 32, "x" * 5000])
def test_what_is_no_public_key_is_refused(given: str) -> None:
    with pytest.raises(SetupError, match="neither a file with an Ed25519 public key nor 32 bytes"):
        read_public(given)


def test_a_public_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    other = ec.generate_private_key(ec.SECP256R1()).public_key()
    file = written(tmp_path, other.public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo))
    with pytest.raises(SetupError, match="ECPublicKey; it must be an Ed25519 public key"):
        read_public(str(file))


def test_signatures_and_fingerprints() -> None:
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    public = public_bytes(key)
    assert signs(public, key.sign(b"x"), b"x")
    assert not signs(public, key.sign(b"x"), b"y")
    assert not signs(b"short", key.sign(b"x"), b"x")
    assert fingerprint(public) == "SHA256:lbmsoA0yIEcEiVDRnMWuzm+nV+3ZEEpVIURqFoeSspg", "as ssh-keygen -l shows it"
