"""A module as StableHLO's portable artifact, which other versions read.

StableHLO promises that later versions read an artifact for five years, and earlier ones one that is
written for them: https://openxla.org/stablehlo/compatibility. What is written here is for those of
the last twelve weeks.
"""

from __future__ import annotations

import io

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from jq.errors import InternalError
from jq.ir.mlir_context import context


def portable(module: ir.Module) -> tuple[bytes, str]:
    """The artifact's bytes and StableHLO's version, such as `1.13.0`.

    The module holds ops of StableHLO and functions alone. What our passes noted on them is left
    out: the artifact's own types have no arrays of integers in dictionaries.
    """
    weeks = stablehlo.StablehloCompatibilityRequirement.WEEK_12
    version = str(stablehlo.get_version_from_compatibility_requirement(weeks))
    with context():
        try:
            module.operation.write_bytecode(copy := io.BytesIO())
            plain = ir.Module.parse(copy.getvalue())
            plain.operation.walk(_without_notes)
            found: bytes = stablehlo.serialize_portable_artifact(plain, version)
        except (ir.MLIRError, ValueError) as error:
            raise InternalError(f"no portable artifact of StableHLO: {error}") from error
    return found, version


def _without_notes(op: ir.Operation) -> ir.WalkResult:
    for name in [name for name in op.attributes if name.startswith("jq.")]:
        del op.attributes[name]
    return ir.WalkResult.ADVANCE
