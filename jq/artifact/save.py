"""Writing artifacts: under a temporary name beside the place, then renamed: whole or not at all."""

import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from glob import escape
from pathlib import Path

from jq.artifact.keys import StoredFile
from jq.artifact.load import ARCHIVES, MANIFEST, Artifact, read_manifest
from jq.artifact.manifest import Processor, StoredProgram, StoredTensor
from jq.artifact.parameters import changed, write_parameters
from jq.artifact.programs import TargetProgram, file_names, is_program_file
from jq.artifact.signature import SIGNATURE, sign
from jq.base.errors import UserError
from jq.base.system.files import beside_prefix, check_parent, sha256
from jq.base.system.folders import replacing
from jq.ir import ir
from jq.ir.portable import portable, portable_version
from jq.ir.quantized.markers import to_quant_types

_LEVELS = ("float", "qdq", "integer", "target")
ABANDONED = 3600.0  # seconds after which nobody writes a folder any more
# What an artifact may hold, whatever its manifest lists: nothing else is ever deleted.
MARKED = "integer.marked.mlirbc"  # with the steps that `jaxq export` writes
_OURS = {MANIFEST, SIGNATURE, *ARCHIVES, MARKED}
_OURS |= {f"{level}.{kind}" for level in _LEVELS for kind in ("mlir", "mlirbc", "portable.mlirbc")}


def check_output(directory: Path, *, force: bool = False, how: str = "--force") -> None:
    """Refuses a place that must not be written to, before any work is done for it.

    What exists stays, unless `force` is given and it is an artifact of ours and nothing else."""
    check_parent(directory)
    if not (directory.exists() or directory.is_symlink()):
        return
    if not force:
        what = f"{directory} exists already"
        raise UserError(what, hint=f"choose another directory, or give {how}")
    if directory.is_symlink() or not directory.is_dir():
        raise UserError(f"{directory} is not an artifact; it is left alone")
    try:
        read_manifest(directory)
    except UserError:
        raise UserError(f"{directory} is not an artifact; it is left alone") from None
    if foreign := _foreign(directory):
        what = f"{directory} holds {foreign[0]!r}, which is not part of the artifact"
        raise UserError(what, hint="move it away first")


def save_artifact(
    directory: Path,
    artifact: Artifact,
    *,
    force: bool = False,
    how: str = "--force",
    key: Path | None = None,
    stablehlo_version: str | None = None,
) -> Path:
    """Writes an artifact, wholly or not at all; its path. `how` is how one asks for `force`.

    Args:
        force: replace an artifact that is there.
        key: file of the private key to sign it with (`jq.artifact.signature`).
        stablehlo_version: of the portable artifact of the level `integer`.

    Raises:
        UserError: `directory` exists (see `check_output`), or cannot be written."""
    check_output(directory, force=force, how=how)
    check_version(stablehlo_version, artifact.emit)
    try:
        _remove_abandoned(directory.absolute())
        with replacing(directory) as work:
            _write(work, artifact, stablehlo_version)
            if key is not None:
                signed = sign((work / MANIFEST).read_bytes(), key)
                (work / SIGNATURE).write_bytes(signed)
    except OSError as error:
        reason = error.strerror or str(error)
        what = f"cannot write the artifact: {reason}"
        hint = "make room, or write elsewhere"
        raise UserError(what, location=str(directory), hint=hint) from error
    return directory


def check_version(given: str | None, levels: Sequence[str]) -> str:
    """The version of StableHLO of the portable artifact that is written with these levels.

    Raises:
        UserError: it cannot be written, or nothing is written for which it counts."""
    if given is not None and "integer" not in levels:
        hint = "--emit integer (emit='integer') writes integer.portable.mlirbc"
        raise UserError(f"StableHLO {given[:40]}: no portable artifact is written", hint=hint)
    return portable_version(given)


def _write(work: Path, artifact: Artifact, stablehlo_version: str | None) -> None:
    known = artifact.manifest.files
    programs = tuple(
        _program(work, each, index, known) for index, each in enumerate(artifact.programs)
    )
    parameters = artifact.parameters
    stored = artifact.manifest.parameters
    if isinstance(parameters, Path):
        name = f"weights{parameters.suffix}"
        _put(work / name, parameters, known.get(name))
    elif parameters:
        kind = artifact.manifest.settings.get("storage", {}).get("archive", "irpa")
        write_parameters(work / f"weights.{kind}", parameters)
        stored = {k: StoredTensor(shape=a.shape, dtype=a.dtype.name) for k, a in parameters.items()}
    for level in artifact.emit:
        program = artifact.levels[level]
        if level == "qdq":
            program = program.clone()
            to_quant_types(program)
        (work / f"{level}.mlir").write_text(program.text(), encoding="utf-8")
        if level == "target":  # that one has functions for IREE to fill in
            continue
        module = program.materialize()
        _put_module(work / f"{level}.mlirbc", module)
        if level == "integer":  # the first for tools of other versions
            (work / f"{level}.portable.mlirbc").write_bytes(portable(module, stablehlo_version)[0])
            _put_module(work / MARKED, artifact.levels["marked"].materialize())
    files = {path.name: StoredFile.of(path) for path in sorted(work.iterdir())}
    whole = artifact.manifest.model_copy(
        update={"files": files, "parameters": stored, "programs": programs, "cpu": programs[0].cpu}
    )
    (work / MANIFEST).write_text(whole.model_dump_json(indent=1) + "\n", encoding="utf-8")


def _program(
    work: Path, program: TargetProgram, index: int, known: Mapping[str, StoredFile]
) -> StoredProgram:
    module, dump = file_names(index)
    _put(work / module, program.vmfb, known.get(module))
    (work / dump).write_text(program.dump, encoding="utf-8")
    needed = program.needs
    return StoredProgram(
        target=program.target,
        kernels=program.kernels,
        module=module,
        dump=dump,
        cpu=Processor(**vars(needed) | {"features": sorted(needed.features)}),
        variant=program.variant,
    )


def _put_module(path: Path, module: ir.Module) -> None:
    with path.open("wb") as file:
        module.operation.write_bytecode(file)


def _put(path: Path, content: bytes | Path, known: StoredFile | None = None) -> None:
    if isinstance(content, Path):
        shutil.copyfile(content, path)
        if known is None or sha256(path) != known.sha256:
            raise changed(content)
    else:
        path.write_bytes(content)


def _remove_abandoned(place: Path) -> None:
    """Removes what runs that were killed left beside an artifact; nothing but files of ours."""
    for folder in place.parent.glob(f"{escape(beside_prefix(place))}*"):
        with suppress(OSError):
            old = time.time() - folder.stat().st_mtime > ABANDONED
            if old and not folder.is_symlink() and not _foreign(folder):
                shutil.rmtree(folder)


def _foreign(folder: Path) -> list[str]:
    """Names of files there that no artifact has."""
    names = {path.name for path in folder.iterdir() if not is_program_file(path.name)}
    return sorted(names - _OURS)
