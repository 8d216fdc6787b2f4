"""The artifact: a directory that holds all that is needed to run a compiled model.

    model.vmfb      the module for IREE's runtime
    weights.irpa    weights that are not inside the module
    program.mlir    what the compiler held after its folding, constants elided
    <level>.mlir    the program at a level, when asked for
    manifest.json   everything else: see `jq.artifact.manifest`

`jq.artifact.save` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from jq.artifact.manifest import (
    SCHEMA_VERSION,
    TOOL,
    Manifest,
)
from jq.artifact.parameters import Parameter, check_parameters, sha256
from jq.artifact.signature import verify
from jq.errors import UserError
from jq.ir import Program
from jq.system.files import TEXT_LIMIT, check_input, read_input, read_text

MANIFEST, MODULE, DUMP = "manifest.json", "model.vmfb", "program.mlir"
ARCHIVES = ("weights.irpa", "weights.safetensors")


@dataclass(frozen=True)
class Artifact:
    """What an artifact consists of, in memory or as its files.

    Attributes:
        manifest: see `Manifest`.
        vmfb: the compiled module, or its file.
        parameters: weights that are not inside the module, or their file.
        dump: the compiler's own program.
        levels: the program at each level, of which those in `emit` are written as text.
    """

    manifest: Manifest
    vmfb: bytes | Path
    parameters: Mapping[str, np.ndarray] | Path | None
    dump: str
    levels: Mapping[str, Program] = field(default_factory=dict)
    emit: tuple[str, ...] = ()


def load_artifact(directory: Path, keys: Sequence[Path] = ()) -> Artifact:
    """Reads an artifact and checks it: signature, version, checksums, parameters.

    Args:
        keys: files of public keys; one of them must have signed it. None are asked for nothing.

    Raises:
        UserError: it is damaged, incomplete, from a newer version, or not an artifact.
    """
    content = _manifest_bytes(directory)
    if keys:
        verify(directory, content, keys)
    manifest = _parsed(directory, content)
    _check_files(directory, manifest)
    weights = next((directory / name for name in ARCHIVES if name in manifest.files), None)
    if weights is not None:
        expected = {k: Parameter(p.dtype, p.shape) for k, p in manifest.parameters.items()}
        check_parameters(weights, expected)
    dump = read_text(directory / DUMP)
    return Artifact(manifest, directory / MODULE, weights, dump)


def read_manifest(directory: Path) -> Manifest:
    """The manifest alone, its version checked."""
    return _parsed(directory, _manifest_bytes(directory))


def _manifest_bytes(directory: Path) -> bytes:
    if not directory.is_dir():
        raise UserError(f"no such artifact: {directory}")
    try:
        return read_input(directory / MANIFEST, TEXT_LIMIT)
    except UserError as error:
        reason = f"no readable {MANIFEST} ({error.message})"
        raise UserError(f"{directory} is not an artifact: {reason}") from error


def _parsed(directory: Path, data: bytes) -> Manifest:
    path = directory / MANIFEST
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, "not JSON") from error
    if not isinstance(content, dict) or content.get("tool") != TOOL:
        raise UserError(f"{directory} is not an artifact of {TOOL}")
    number = content.get("schema_version")
    if isinstance(number, int) and number > SCHEMA_VERSION:
        made = content.get("tool_version", "a newer version")
        raise UserError(
            f"{directory} was written by {TOOL} {made} (schema {number}, known: {SCHEMA_VERSION})",
            hint=f"install a newer {TOOL}",
        )
    try:
        return Manifest.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        raise _damaged(path, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def _check_files(directory: Path, manifest: Manifest) -> None:
    for name in (MODULE, DUMP, *manifest.files):
        path = directory / name
        known = manifest.files.get(name)
        if known is None or Path(name).name != name:
            raise _damaged(directory / MANIFEST, f"the file {name!r} is not as it should be")
        if path.is_symlink():
            raise _damaged(path, "it is a link to somewhere else")
        if not path.exists():
            raise UserError(f"the artifact lacks {name}", location=str(directory))
        if (size := check_input(path)) != known.bytes:
            raise _damaged(path, f"{size} bytes instead of {known.bytes}")
        if sha256(path) != known.sha256:
            raise _damaged(path, "its checksum differs")


def _damaged(path: Path, reason: str) -> UserError:
    return UserError(f"{path} is damaged: {reason}", hint="compile the model again")


__all__ = ["Artifact", "Manifest", "load_artifact", "read_manifest"]
