"""Keys to sign artifacts with."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives import serialization as s
from cryptography.hazmat.primitives.asymmetric import ed25519


def keys(folder: Path, name: str, *, ssh: bool = False) -> tuple[Path, Path]:
    """A private and a public key in files."""
    key, plain = ed25519.Ed25519PrivateKey.generate(), s.NoEncryption()
    kind = s.PrivateFormat.OpenSSH if ssh else s.PrivateFormat.PKCS8
    form = s.PublicFormat.OpenSSH if ssh else s.PublicFormat.SubjectPublicKeyInfo
    encoding = s.Encoding.OpenSSH if ssh else s.Encoding.PEM
    private, public = folder / f"{name}.key", folder / f"{name}.{'pub' if ssh else 'pem'}"
    private.write_bytes(key.private_bytes(s.Encoding.PEM, kind, plain))
    public.write_bytes(key.public_key().public_bytes(encoding, form))
    return private, public
