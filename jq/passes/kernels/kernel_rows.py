"""A product and what takes whole rows of it become one kernel: nothing between them is stored.

    %y = call @jq_gemm_128x384x384(%x, %w, ..., %residual)
    %r:2 = call @jq_normalize_128x384(%y, %gamma, ...)
 ->
    %r:2 = call @jq_gemm_rows_128x384x384(%x, %w, ..., %residual, %gamma, ...)

Nothing else may read the product, and its rows must be worth keeping (`GemmRows.fits`).
"""

from typing import Any

from jq.ir import NAME, Op, Program, at, ir, maker, only_user, replace, string_attr
from jq.ir.decisions import decide, facts_of
from jq.kernels import Gemm, GemmRows, Normalize, QuantizeRows
from jq.passes.base import Pass, PassContext
from jq.passes.kernels._kernel import call_kernel, described, drop_declarations


class KernelRows(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        calls = [op for op in program.walk() if op.operation.name == "func.call"]
        found = [_fuse(program, op) for op in calls]
        if any(found):
            drop_declarations(program)
        return any(found)


def _fuse(program: Program, op: Op) -> bool:
    """True if `op` was made one with the product of its rows."""
    second = described(program, op)
    if not isinstance(second, Normalize | QuantizeRows):
        return False
    between, product = _product(op.operands[0])
    if product is None:
        return False
    gemm = described(program, product)
    if not isinstance(gemm, Gemm) or gemm.results[0] != second.operands[0]:
        return False
    if not GemmRows.fits(gemm):
        return False
    normalize = second if isinstance(second, Normalize) else None
    quantize = second if isinstance(second, QuantizeRows) else None
    kernel = GemmRows(isa=gemm.isa, gemm=gemm, normalize=normalize, quantize=quantize)
    operands = [*product.operands, *list(op.operands)[1:]]
    names = [string_attr(product, NAME) or "", string_attr(op, NAME) or ""]
    with at(op):
        replace(op, call_kernel(program, kernel, operands, names[0]))
    for dead in (*between, product):
        dead.erase()
    known = facts_of(program, "kernel")
    decide(program, {name: {"kernel": kernel.name} for name in names if name in known})
    return True


def _product(value: ir.Value) -> tuple[list[Any], Any | None]:
    """The reshapes between a value and the op that makes it, and that op; None where another op
    reads on the way."""
    between: list[Any] = []
    while only_user(value) is not None and maker(value) is not None:
        owner: Any = value.owner
        if owner.operation.name != "stablehlo.reshape":
            return between, owner
        between.append(owner)
        value = owner.operands[0]
    return between, None
