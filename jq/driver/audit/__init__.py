"""Proof of what an artifact is: claims of the manifest checked against the compiler's program.

The manifest says what was meant: how each weight is encoded, which types each contraction has. The
dump says what the compiler was left with after its folding, the files how large it is. Reported are
the latter; where they disagree the audit is not `verified` and says so."""

from collections.abc import Mapping
from typing import Any

from jq.driver.audit.claims import UNSEEN, Claims
from jq.driver.audit.report import Audit, AuditedContraction, FloatUse, StoredWeight
from jq.iree.dump.reader import Dump


def audit_program(
    manifest: Mapping[str, Any], dump: Dump, module_bytes: int, parameter_bytes: int
) -> Audit:
    """Joins claims and facts.

    Args:
        manifest: `ops` (a list of dicts: name, op, decision, lhs, rhs, acc, kernel, reason,
            merged_from), `encodings` (weight -> dict: format, shape, granularity, parts,
            float_dtype), and, when there are weights that stay float, `weights`
            (weight -> dict: shape, dtype) and `float_parameter_bytes`.
        dump: the compiler's program.
        module_bytes, parameter_bytes: sizes of the files."""
    claims = Claims(manifest, dump)
    weights = claims.weights()
    contractions = claims.contractions()
    claims.program()
    settings = manifest.get("settings", {})
    whole = manifest.get("float_parameter_bytes") or sum(w.float_bytes for w in weights)
    return Audit(
        weights=weights,
        contractions=contractions,
        float_ops=tuple(claims.float_ops),
        module_bytes=module_bytes,
        parameter_bytes=parameter_bytes,
        float_parameter_bytes=int(whole),
        other_constant_bytes=sum(c.bytes for c in claims.stored.rest),
        verified=not claims.false,
        warnings=(*claims.false, *claims.notes),
        float_asked=settings.get("activations", {}).get("format", "") == "float",
    )
