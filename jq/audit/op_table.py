"""The table of ops that an artifact carries: what was decided, and what the integer level holds."""

from __future__ import annotations

from typing import Any

from jq.ir import Program, dtype_name, dtype_of
from jq.ir.build import NAME, string_attr
from jq.ops.base import is_product
from jq.passes.base import PassContext


def op_table(cx: PassContext, integer: Program | None) -> list[dict[str, Any]]:
    """One row an op of the plan: the decision, the element types at the `integer` level (or in its
    kernel), and the kernel that computes it, or why there is none. Without a program (it was
    refused) there are no types."""
    types = {
        name: (op.operation.name.removeprefix("stablehlo."), *_types(op))
        for op in (integer.walk() if integer else ())
        if (name := string_attr(op, NAME)) is not None and is_product(op)
    }
    types |= {name: ("", *kinds) for name, kinds in cx.kernel_types.items()}
    rows = []
    for op in cx.plan.ops:
        row = op.to_dict()
        weight = next((p.weight for p in op.operands.values() if p.weight), None)
        _, lhs, rhs, acc = types.get(op.name, ("", None, None, None))
        row |= {"weight": weight, "lhs": lhs, "rhs": rhs, "acc": acc}
        row |= {"kernel": cx.kernels.get(op.name), "no_kernel": cx.without_kernel.get(op.name, "")}
        row |= {"merged_from": list(cx.merged.get(op.name, ()))}
        rows.append(row)
    return rows


def _types(op: Any) -> tuple[str, str, str]:
    lhs, rhs, acc = op.operands[0], op.operands[1], op.results[0]
    return tuple(dtype_name(dtype_of(v)) for v in (lhs, rhs, acc))  # type: ignore[return-value]
