"""A module as StableHLO's portable artifact, which other versions read.

StableHLO promises that later versions read an artifact for five years, and earlier ones one that is
written for them: https://openxla.org/stablehlo/compatibility. What is written here is for those of
the last twelve weeks, or for the version that is asked for."""

import re

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from jq.base.errors import UserError
from jq.ir.mlir_context import bytecode_of, context


def newest_version() -> str:
    """The version of StableHLO that the installed JAX writes."""
    return str(stablehlo.get_current_version())


def portable_version(given: str | None = None) -> str:
    """The version that an artifact is written for: that of twelve weeks ago, or the given one.

    Args:
        given: `1.13.0`, or `1.13` for its first release.

    Raises:
        UserError: it is no version, or none that the installed JAX writes."""
    if given is None:
        weeks = stablehlo.StablehloCompatibilityRequirement.WEEK_12
        return str(stablehlo.get_version_from_compatibility_requirement(weeks))
    oldest, newest = str(stablehlo.get_minimum_version()), newest_version()
    hint = f"one from {oldest} to {newest}"
    if not re.fullmatch(r"[0-9]{1,4}\.[0-9]{1,4}(\.[0-9]{1,4})?", given):
        raise UserError(f"{given[:40]!r} is no version of StableHLO", hint=hint)
    found = given if given.count(".") == 2 else f"{given}.0"
    if not _numbers(oldest) <= _numbers(found) <= _numbers(newest):
        raise UserError(f"StableHLO {found} cannot be written by the installed JAX", hint=hint)
    return found


def portable(module: ir.Module, version: str | None = None) -> tuple[bytes, str]:
    """The artifact's bytes, and its version of StableHLO as `portable_version` gives it.

    The module holds ops of StableHLO and functions alone. What our passes noted on them is left
    out: the artifact's own types have no arrays of integers in dictionaries.

    Raises:
        UserError: the module holds something that this version does not have."""
    version = portable_version(version)
    with context():
        plain = ir.Module.parse(bytecode_of(module))
        plain.operation.walk(_without_notes)
        try:
            found: bytes = stablehlo.serialize_portable_artifact(plain, version)
        except (ir.MLIRError, ValueError) as error:
            lines = [line for line in str(error).splitlines() if "error:" in line] or [str(error)]
            what = f"the program cannot be written for StableHLO {version}: {lines[0].strip()}"
            raise UserError(what, hint=f"a newer version, up to {newest_version()}") from error
    return found, version


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def later_version(data: bytes) -> str:
    """The version an artifact is written for, if the installed JAX is older; else an empty text."""
    found = re.search(rb"StableHLO_v([0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4})", data[:200])
    version = found[1].decode() if found else ""
    return version if version and _numbers(version) > _numbers(newest_version()) else ""


def _without_notes(op: ir.Operation) -> ir.WalkResult:
    for name in [name for name in op.attributes if name.startswith("jq.")]:
        del op.attributes[name]
    return ir.WalkResult.ADVANCE
