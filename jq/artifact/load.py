"""The artifact: a directory that holds all that is needed to run a compiled model.

    model.vmfb      the module for IREE's runtime
    model.2.vmfb    that for the next target, where there are several; program.2.mlir likewise
    weights.irpa    weights that are not inside the modules
    program.mlir    what the compiler held after its folding, constants elided
    <level>.mlir    the program at a level, when asked for
    manifest.json   everything else: see `jq.artifact.manifest`

`jq.artifact.save` writes it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os.path import lexists
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from jq.artifact.manifest import SCHEMA_VERSION, TOOL, Manifest, StoredProgram
from jq.artifact.parameters import Parameter, check_parameters
from jq.artifact.programs import DUMP, MODULE, TargetProgram, choose
from jq.artifact.signature import verify
from jq.base.errors import UserError
from jq.base.system.files import TEXT_LIMIT, damaged, once, read_input, read_text
from jq.ir import Program

MANIFEST = "manifest.json"
ARCHIVES = ("weights.irpa", "weights.safetensors")


@dataclass(eq=False)  # one by itself
class Artifact:
    """Contents of an artifact, in memory or as its files.

    Attributes:
        manifest: see `Manifest`.
        programs: for each target, the best first.
        parameters: weights that are not inside the modules, or their file.
        levels: the program at each level, of which those in `emit` are written as text."""

    manifest: Manifest
    programs: tuple[TargetProgram, ...]
    parameters: Mapping[str, np.ndarray] | Path | None
    levels: Mapping[str, Program] = field(default_factory=dict)
    emit: tuple[str, ...] = ()

    @property
    def program(self) -> TargetProgram:
        """The best program that this machine runs; without one, the first."""
        return choose(self.programs) or self.programs[0]

    @property
    def vmfb(self) -> bytes | Path:
        """The compiled module of `program`, or its file."""
        return self.program.vmfb


def load_artifact(directory: Path, keys: Sequence[Path] = ()) -> Artifact:
    """Reads an artifact and checks it: signature, version, checksums, parameters.

    Args:
        keys: files of public keys; one of them must have signed it. None are asked for nothing.

    Raises:
        UserError: it is damaged, incomplete, from a newer version, or not an artifact."""
    content = _manifest_bytes(directory)
    if keys:
        verify(directory, content, keys)
    manifest = _parsed(directory, content)
    _check_files(directory, manifest)
    weights = next((directory / name for name in ARCHIVES if name in manifest.files), None)
    if weights is not None:
        expected = {k: Parameter(p.dtype, p.shape) for k, p in manifest.parameters.items()}
        check_parameters(weights, expected)
    programs = tuple(
        TargetProgram(
            p.target, p.kernels, directory / p.module, read_text(directory / p.dump), p.variant
        )
        for p in sorted(listed(manifest), key=lambda p: p.variant)
    )
    return Artifact(manifest, programs, weights)


def listed(manifest: Manifest) -> tuple[StoredProgram, ...]:
    """The programs of a manifest; those that list none have one."""
    only = StoredProgram(target=manifest.target, module=MODULE, dump=DUMP, cpu=manifest.cpu)
    return manifest.programs or (only,)


def read_manifest(directory: Path) -> Manifest:
    """The manifest alone, its version checked."""
    return _parsed(directory, _manifest_bytes(directory))


def _manifest_bytes(directory: Path) -> bytes:
    if not directory.is_dir():
        hint = "an artifact is the folder that `jaxq compile MODEL -o DIR` writes"
        raise UserError(f"no such artifact: {directory}", hint=hint)
    try:
        return read_input(directory / MANIFEST, TEXT_LIMIT)
    except UserError as error:
        reason = f"no readable {MANIFEST} ({error.message})"
        raise UserError(f"{directory} is not an artifact: {reason}") from error


def _parsed(directory: Path, data: bytes) -> Manifest:
    path = directory / MANIFEST
    try:
        content = json.loads(data, object_pairs_hook=once)
    except UserError as error:
        raise damaged(path, error.message) from error
    except (ValueError, RecursionError) as error:
        raise damaged(path, "not JSON") from error
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
        raise damaged(path, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def _check_files(directory: Path, manifest: Manifest) -> None:
    programs = [name for each in listed(manifest) for name in (each.module, each.dump)]
    for name in (*programs, *manifest.files):
        path = directory / name
        known = manifest.files.get(name)
        if known is None or Path(name).name != name:
            raise damaged(directory / MANIFEST, f"the file {name!r} is not as it should be")
        if not lexists(path):
            raise UserError(f"the artifact lacks {name}", location=str(directory))
        known.check(path)
