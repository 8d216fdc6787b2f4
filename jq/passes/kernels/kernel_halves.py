"""A kernel stores its result as the products behind it multiply it, in bfloat16.

    %y = call @jq_gemm_3136x256x64(...) : f32     %y = call @jq_gemm_3136x256x64'(...) : i16
    %i = reshape %y : 1x56x56x64              ->  %i = reshape %y : 1x56x56x64
    %p = pad %i, 0 ...                            %p = pad %i, 0 ...
    call @jq_convolution_1x58x58x64(%p, ...)      call @jq_convolution_1x58x58x64'(%p, ...)

The number that a product would round is rounded in the epilogue in front of it: the bits are the
same (but of subnormal numbers, which some instructions take for 0), and half as many are stored and
read. Fires where such products alone read the result, and sums behind others that read it rounded
(`place-float-types`)."""

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from jq.ir import NAME, OPS, Op, Program, at, dtype_of, evaluate, ir, shape_of, string_attr
from jq.ir.build import like
from jq.kernels import HalfResidual, Product, Residual, RoundToHalves
from jq.passes.base import Pass, PassContext
from jq.passes.kernels._kernel import call_instead, call_kernel, described, renamed

_CONVERT = "stablehlo.convert"
_MOVE = ("stablehlo.reshape", "stablehlo.transpose", "stablehlo.slice", "stablehlo.pad")


class KernelHalves(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        changed = False
        for op in reversed(list(program.walk())):  # readers first
            kernel = described(program, op)
            if not isinstance(kernel, Product) or kernel.results[0].element != "f32":
                continue
            if _rounds(program, op.results[0]):
                rounded = replace(kernel, epilogue=(*kernel.epilogue, RoundToHalves()))
                with at(op):
                    name = string_attr(op, NAME) or ""
                    (bits,) = call_kernel(program, rounded, list(op.operands), name)
                _read(program, op.results[0], bits)
                op.erase()
                changed = True
        return renamed(program, changed)


def _rounds(program: Program, value: ir.Value, halves: bool = False) -> bool:
    """True if products read a value and round it, or epilogues add its `halves`, and nothing else
    reads it."""

    def rounds(op: Op, number: int) -> bool:
        kernel, kind = described(program, op), op.operation.name
        if halves:
            passed = kind in (_CONVERT, *_MOVE[:1]) and _rounds(program, op.results[0], True)
            return passed or _adding(kernel, number) is not None
        if number == 0 and kind in _MOVE:
            fills = [evaluate(program, v) for v in op.operands[1:]]
            zeros = all(fill is not None and not any(fill.tobytes()) for fill in fills)
            return zeros and _rounds(program, op.results[0])
        if kind == _CONVERT and dtype_of(op.results[0]) == ml_dtypes.bfloat16:
            return _rounds(program, op.results[0], True)
        return number == 0 and isinstance(kernel, Product) and kernel.takes_bits

    uses = list(value.uses)
    return bool(uses) and all(rounds(use.owner, use.operand_number) for use in uses)


def _adding(kernel: Any, number: int) -> Product | None:
    """A kernel that adds an operand, with one that adds its bits."""
    steps, place = list(getattr(kernel, "epilogue", ())), len(getattr(kernel, "operands", ()))
    for i, step in reversed(list(enumerate(steps))):
        place -= len(step.operands)
        if place == number and type(step) is Residual:
            steps[i] = HalfResidual()
            return replace(kernel, epilogue=tuple(steps))
    return None


def _read(program: Program, value: ir.Value, bits: ir.Value) -> None:
    """Gives the readers of a value its bits; one may read it twice."""
    while (use := next(iter(value.uses), None)) is not None:
        op, number, operands = use.owner, use.operand_number, list(use.owner.operands)
        kernel = described(program, op)
        if not isinstance(kernel, Product):
            moved = bits
            with at(op):
                if op.operation.name != _CONVERT:
                    zeros = [OPS.constant(np.zeros((), np.int16)) for _ in operands[1:]]
                    moved = like(op, [bits, *zeros], shape_of(op.results[0]), np.int16)
            _read(program, op.results[0], moved)
            op.erase()
            continue
        reads = _adding(kernel, number) or replace(kernel, element="bf16_bits")
        operands[number] = bits
        call_instead(program, reads, op, operands)
