"""Keys and certificates of a trial federation: a root, a certificate for the server, and a key pair for each node.

They are for one machine and one day. A real federation uses certificates from its organisation's certificate authority.
"""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from fedplug_runs.files import write_bytes

_LASTS = datetime.timedelta(days=1)


def make_certificates(folder: Path) -> None:
    """Writes `ca.crt`, `server.pem` and `server.key` for a server at 127.0.0.1. It does not keep the root's key."""
    root_key, root_name = ec.generate_private_key(ec.SECP256R1()), _name("fedplug trial root")
    root = (
        _certificate(root_name, root_name, root_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(root_key, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        _certificate(_name("localhost"), root_name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(root_key, hashes.SHA256())
    )
    write_bytes(folder / "ca.crt", root.public_bytes(serialization.Encoding.PEM))
    write_bytes(folder / "server.pem", certificate.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    plain = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    write_bytes(folder / "server.key", plain)


def make_node_key(folder: Path, name: str) -> tuple[Path, bytes]:
    """Writes the key pair of a node in OpenSSH format; returns the file of the private key and the public key."""
    key = ec.generate_private_key(ec.SECP384R1())
    form = serialization.PrivateFormat.OpenSSH
    write_bytes(folder / name, key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    write_bytes(folder / f"{name}.pub", public)
    return folder / name, public


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + _LASTS)
    )
