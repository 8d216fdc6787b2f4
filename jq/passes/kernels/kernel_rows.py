"""A product and what takes whole rows of it become one kernel: nothing between them is stored.

    %y = call @jq_gemm_128x384x384(%x, %w, ..., %residual)
    %r:2 = call @jq_normalize_128x384(%y, %gamma, ...)
 ->
    %r:2 = call @jq_gemm_rows_128x384x384(%x, %w, ..., %residual, %gamma, ...)

Nothing else may read the product, and its rows must be worth keeping (`GemmRows.fits`)."""

from jq.ir import NAME, Op, Program, at, replace, string_attr
from jq.ir.decisions import decide, facts_of
from jq.kernels import Gemm, GemmRows, Normalize, QuantizeRows
from jq.passes.base import Pass, PassContext
from jq.passes.kernels._kernel import call_kernel, described, drop_declarations, made_alone


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
    *between, product = made_alone(op.operands[0]) or [op]
    gemm = described(program, product)
    if type(gemm) is not Gemm or gemm.results[0] != second.operands[0]:
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
