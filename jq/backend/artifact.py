"""The artifact: a directory that holds all that is needed to run a compiled model.

    model.vmfb      the module for IREE's runtime
    weights.irpa    weights that are not inside the module
    program.mlir    what the compiler held after its folding, constants elided
    <level>.mlir    the program at a level, when asked for
    manifest.json   everything else: see `jq.backend.manifest`

It is written under a temporary name beside its place, then renamed: it is there whole, or not.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from pydantic import ValidationError

from jq.backend import cpu
from jq.backend.manifest import (
    SCHEMA_VERSION,
    TOOL,
    Manifest,
    Processor,
    StoredFile,
    StoredTensor,
    describe_build,
)
from jq.backend.parameters import Parameter, check_parameters, sha256, write_parameters
from jq.errors import UserError
from jq.files import check_parent
from jq.ir import Program

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


class _ArtifactLike(Protocol):
    @property
    def manifest(self) -> Manifest: ...
    @property
    def vmfb(self) -> bytes | Path: ...
    @property
    def parameters(self) -> Mapping[str, np.ndarray] | Path | None: ...
    @property
    def dump(self) -> str: ...
    @property
    def levels(self) -> Mapping[str, Program]: ...
    @property
    def emit(self) -> tuple[str, ...]: ...


# Writing


def check_output(directory: Path, *, force: bool = False) -> None:
    """Refuses a place that must not be written to, before any work is done for it.

    What exists stays, unless `force` is given and it is an artifact of ours and nothing else.
    """
    check_parent(directory)
    if not (directory.exists() or directory.is_symlink()):
        return
    if not force:
        raise UserError(
            f"{directory} exists already", hint="choose another directory, or give --force"
        )
    if directory.is_symlink() or not directory.is_dir():
        raise UserError(f"{directory} is not an artifact; it is left alone")
    try:
        ours = {MANIFEST, *read_manifest(directory).files}
    except UserError:
        raise UserError(f"{directory} is not an artifact; it is left alone") from None
    if foreign := sorted({path.name for path in directory.iterdir()} - ours):
        raise UserError(
            f"{directory} holds {foreign[0]!r}, which is not part of the artifact",
            hint="move it away first",
        )


def save_artifact(directory: Path, artifact: _ArtifactLike, *, force: bool = False) -> Path:
    """Writes an artifact, wholly or not at all; its path.

    Raises:
        UserError: `directory` exists (see `check_output`), or cannot be written; nothing is
            left behind.
    """
    check_output(directory, force=force)
    try:
        with _replacing(directory) as work:
            _write(work, artifact)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(
            f"cannot write the artifact: {reason}",
            location=str(directory),
            hint="make room, or write elsewhere",
        ) from error
    return directory


def _write(work: Path, artifact: _ArtifactLike) -> None:
    _put(work / MODULE, artifact.vmfb)
    parameters = artifact.parameters
    stored = artifact.manifest.parameters
    if isinstance(parameters, Path):
        _put(work / f"weights{parameters.suffix}", parameters)
    elif parameters:
        kind = artifact.manifest.settings.get("storage", {}).get("archive", "irpa")
        write_parameters(work / f"weights.{kind}", parameters)
        stored = {k: StoredTensor(shape=a.shape, dtype=a.dtype.name) for k, a in parameters.items()}
    (work / DUMP).write_text(artifact.dump, encoding="utf-8")
    for level in artifact.emit:
        (work / f"{level}.mlir").write_text(artifact.levels[level].text(), encoding="utf-8")
    needed = cpu.needed_by(artifact.dump)
    files = {
        path.name: StoredFile(bytes=path.stat().st_size, sha256=sha256(path))
        for path in sorted(work.iterdir())
    }
    whole = artifact.manifest.model_copy(
        update={
            "files": files,
            "parameters": stored,
            "cpu": Processor(
                architecture=needed.architecture,
                features=tuple(sorted(needed.features)),
                name=needed.name,
            ),
        }
    )
    (work / MANIFEST).write_text(whole.model_dump_json(indent=1) + "\n", encoding="utf-8")


def _put(path: Path, content: bytes | Path) -> None:
    if isinstance(content, Path):
        shutil.copyfile(content, path)
    else:
        path.write_bytes(content)


@contextmanager
def _replacing(directory: Path) -> Iterator[Path]:
    """A new directory that takes the place of `directory` when the block succeeds."""
    place = directory.absolute()
    work = Path(tempfile.mkdtemp(dir=place.parent, prefix=f".{place.name}."))
    old = work.with_name(f"{work.name}.old")
    try:
        yield work
        work.chmod(0o777 & ~_umask())
        if place.exists():
            place.rename(old)
        work.rename(place)
    finally:
        if old.exists() and not place.exists():  # interrupted between the two
            old.rename(place)
        shutil.rmtree(work, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


# Reading


def load_artifact(directory: Path) -> Artifact:
    """Reads an artifact and checks it: version, checksums, parameters, and this processor.

    Raises:
        UserError: it is damaged, incomplete, from a newer version, not an artifact, or compiled
            for a processor with more instructions than this one has.
    """
    manifest = read_manifest(directory)
    _check_files(directory, manifest)
    needed = manifest.cpu
    cpu.check_host(cpu.Cpu(needed.architecture, frozenset(needed.features), needed.name))
    weights = next((directory / name for name in ARCHIVES if name in manifest.files), None)
    if weights is not None:
        expected = {k: Parameter(p.dtype, p.shape) for k, p in manifest.parameters.items()}
        check_parameters(weights, expected)
    dump = (directory / DUMP).read_text(encoding="utf-8")
    return Artifact(manifest, directory / MODULE, weights, dump)


def read_manifest(directory: Path) -> Manifest:
    """The manifest alone, its version checked."""
    path = directory / MANIFEST
    if not directory.is_dir():
        raise UserError(f"no such artifact: {directory}")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{directory} is not an artifact: no readable {MANIFEST}") from error
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
        if not path.is_file():
            raise UserError(f"the artifact lacks {name}", location=str(directory))
        if path.stat().st_size != known.bytes:
            raise _damaged(path, f"{path.stat().st_size} bytes instead of {known.bytes}")
        if sha256(path) != known.sha256:
            raise _damaged(path, "its checksum differs")


def _damaged(path: Path, reason: str) -> UserError:
    return UserError(f"{path} is damaged: {reason}", hint="compile the model again")


__all__ = [
    "Artifact",
    "Manifest",
    "check_output",
    "describe_build",
    "load_artifact",
    "read_manifest",
    "save_artifact",
]
