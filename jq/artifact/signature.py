"""Signatures of artifacts: who wrote one, which checksums beside the files cannot say.

`manifest.sig` signs the bytes of `manifest.json`, which holds the checksum of every other file, so
a signature is of the whole artifact. Ed25519 (RFC 8032), by the package `cryptography`; keys are
the user's own files, as `ssh-keygen -t ed25519` or `openssl genpkey -algorithm ed25519` write them.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import platformdirs

from jq.base import UserError, as_path, check_type, read_input
from jq.base.registry import need

SIGNATURE = "manifest.sig"
ALGORITHM = "ed25519"
PASSWORD = "JAXQ_SIGN_PASSWORD"  # of an encrypted private key
_DOMAIN = b"jaxq artifact manifest 1\0"  # nothing else that is signed with a key begins so
_EXTRA = "sign", "signatures need"  # that `need` tells of
_LIMIT = 1 << 16  # bytes of a key or a signature


def sign(manifest: bytes, key: Path) -> bytes:
    """The content of `manifest.sig` for a manifest, signed with the private key in a file."""
    private = _private(key)
    document = {
        "algorithm": ALGORITHM,
        "public_key": private.public_key().public_bytes_raw().hex(),
        "signature": private.sign(_DOMAIN + manifest).hex(),
    }
    return json.dumps(document, indent=1).encode() + b"\n"


def verify(directory: Path, manifest: bytes, keys: Sequence[Path]) -> None:
    """Raises `UserError` unless one of the public keys in `keys` signed these bytes."""
    place = directory / SIGNATURE
    if not place.exists():
        raise UserError("the artifact is not signed", location=str(directory))
    data = read_input(place, _LIMIT)
    try:
        found = json.loads(data)
        signature, algorithm = bytes.fromhex(found["signature"]), found["algorithm"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError("this is no signature", location=str(place)) from error
    if algorithm != ALGORITHM:
        raise UserError(f"signatures are {ALGORITHM}, not {algorithm!r:.40}", location=str(place))
    invalid = need("cryptography.exceptions", *_EXTRA).InvalidSignature
    for key in [_key(path, "public") for path in keys]:
        try:
            key.verify(signature, _DOMAIN + manifest)
        except invalid:
            continue
        return
    what = f"the artifact is signed with none of the {len(keys)} keys that you trust, or it changed"
    raise UserError(what, location=str(directory))


def trusted_keys() -> list[Path]:
    """The user's trusted public keys, which `--trust verify` goes by."""
    folder = Path(platformdirs.user_config_dir("jaxq")) / "trusted"
    found = [p for p in sorted(folder.glob("*")) if p.suffix in (".pem", ".pub")]
    if not found:
        what = f"there is no trusted key in {folder}"
        raise UserError(what, hint="put public keys there, or give --verify")
    return found


def asked_keys(
    verify: str | Path | Sequence[str | Path] | None = None, trust: str = "any"
) -> list[Path]:
    """Files of the keys one of which must have signed an artifact; none: it need not be signed.

    Args:
        verify: such files.
        trust: `any`, or `verify`: without any files given, those in the user's folder of keys."""
    if trust not in ("any", "verify"):
        raise UserError(f"unknown trust {trust!r}", hint="any, or verify")
    check_type("verify", verify, str, Path, list, tuple, type(None))
    given = [verify] if isinstance(verify, str | Path) else verify or ()
    keys = [as_path(key) for key in given]
    return trusted_keys() if trust == "verify" and not keys else keys


def check_key(path: Path) -> None:
    """Refuses, before any work, a private key that nothing can be signed with."""
    _private(path)


_HINT = "make one with ssh-keygen -t ed25519"


def _private(path: Path) -> Any:
    given = os.environ.get(PASSWORD)
    return _key(path, "private", given.encode() if given else None)


def _key(path: Path, kind: str, *password: bytes | None) -> Any:
    """A `private` or `public` key of Ed25519."""
    data = read_input(path, _LIMIT)
    serialization = need("cryptography.hazmat.primitives.serialization", *_EXTRA)
    ssh = b"OPENSSH PRIVATE KEY" in data or data.lstrip().startswith(b"ssh-")
    load = getattr(serialization, f"load_{'ssh' if ssh else 'pem'}_{kind}_key")
    try:
        key = load(data, *password)
    except Exception as error:  # the readers raise several kinds
        hint = f"its password goes into {PASSWORD}" if "assword" in str(error) else _HINT
        message = f"this is no {kind} key: {error}"[:200]
        raise UserError(message, location=str(path), hint=hint) from error
    kinds = need("cryptography.hazmat.primitives.asymmetric.ed25519", *_EXTRA)
    if not isinstance(key, getattr(kinds, f"Ed25519{kind.title()}Key")):
        raise UserError("the key is not of Ed25519", location=str(path), hint=_HINT)
    return key
