"""A kernel stores its result as the products behind it multiply it, in bfloat16.

    %y = call @jq_gemm_3136x256x64(...) : f32     %y = call @jq_gemm_3136x256x64'(...) : i16
    %i = reshape %y : 1x56x56x64              ->  %i = reshape %y : 1x56x56x64
    %p = pad %i, 0 ...                            %p = pad %i, 0 ...
    call @jq_convolution_1x58x58x64(%p, ...)      call @jq_convolution_1x58x58x64'(%p, ...)

The number that a product would round is rounded in the epilogue in front of it: the bits are the
same (but of subnormal numbers, which some instructions take for 0), and half as many are stored and
read. Fires where such products alone read the result."""

from dataclasses import replace

import numpy as np

from jq.ir import NAME, OPS, Op, Program, at, evaluate, func, ir, like, shape_of, string_attr
from jq.kernels import Product, RoundToHalves
from jq.passes.base import Pass, PassContext
from jq.passes.kernels._kernel import call_instead, call_kernel, called, declarations, renamed

Known = dict[str, func.FuncOp]
_MOVE = ("stablehlo.reshape", "stablehlo.transpose", "stablehlo.slice", "stablehlo.pad")


class KernelHalves(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        known, changed = declarations(program), False
        for op in reversed(list(program.walk())):  # readers first
            kernel = called(known, op)
            if not isinstance(kernel, Product) or kernel.results[0].element != "f32":
                continue
            if _rounds(program, known, op.results[0]):
                rounded = replace(kernel, epilogue=(*kernel.epilogue, RoundToHalves()))
                with at(op):
                    name = string_attr(op, NAME) or ""
                    (bits,) = call_kernel(program, rounded, list(op.operands), name)
                _read(program, known, op.results[0], bits)
                op.erase()
                known, changed = declarations(program), True
        return renamed(program, changed)


def _rounds(program: Program, known: Known, value: ir.Value) -> bool:
    """True if products read a value and round it, and nothing else does."""

    def rounds(op: Op, number: int) -> bool:
        if number == 0 and op.operation.name in _MOVE:
            fills = [evaluate(program, v) for v in op.operands[1:]]
            zeros = all(fill is not None and not any(fill.tobytes()) for fill in fills)
            return zeros and _rounds(program, known, op.results[0])
        kernel = called(known, op)
        return number == 0 and isinstance(kernel, Product) and kernel.takes_bits

    uses = list(value.uses)
    return bool(uses) and all(rounds(use.owner, use.operand_number) for use in uses)


def _read(program: Program, known: Known, value: ir.Value, bits: ir.Value) -> None:
    """Gives the readers of a value its bits."""
    for use in list(value.uses):
        op = use.owner
        with at(op):
            if op.operation.name in _MOVE:
                zeros = [OPS.constant(np.zeros((), np.int16)) for _ in op.operands[1:]]
                moved = like(op, [bits, *zeros], shape_of(op.results[0]), np.int16)
                _read(program, known, op.results[0], moved)
                op.erase()
                continue
        kernel = called(known, op)
        assert isinstance(kernel, Product)
        reads = replace(kernel, element="bf16_bits")
        call_instead(program, reads, op, [bits, *list(op.operands)[1:]])
