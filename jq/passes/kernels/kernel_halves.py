"""A kernel stores its result as the products behind it multiply it, in bfloat16.

    %y = call @jq_gemm_3136x256x64(...) : f32     %y = call @jq_gemm_3136x256x64'(...) : i16
    %i = reshape %y : 1x56x56x64              ->  %i = reshape %y : 1x56x56x64
    %p = pad %i, 0 ...                            %p = pad %i, 0 ...
    call @jq_convolution_1x58x58x64(%p, ...)      call @jq_convolution_1x58x58x64'(%p, ...)

The number that a product would round is rounded in the epilogue in front of it: the bits are the
same (but of subnormal numbers, which some instructions take for 0), and half as many are stored and
read. Fires where such products alone read the result, and sums behind others that read it rounded
(`place-float-types`)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from jq.ir import NAME, OPS, Op, Program, at, dtype_of, evaluate, ir, shape_of, string_attr
from jq.ir.build import integers, like, padding_pairs
from jq.ir.ops.selection import reduce_like, reduction
from jq.kernels import Clamp, HalfResidual, Product, Residual, RoundToHalves
from jq.passes.base import Pass, PassContext
from jq.passes.kernels._kernel import call_instead, call_kernel, described, renamed

_CONVERT, _POOL = "stablehlo.convert", "stablehlo.reduce_window"
_MOVE = ("stablehlo.reshape", "stablehlo.transpose", "stablehlo.slice", "stablehlo.pad")


class KernelHalves(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        changed = False
        for op in reversed(list(program.walk())):  # readers first
            kernel = described(program, op)
            if not isinstance(kernel, Product) or kernel.results[0].element != "f32":
                continue
            last, readers = kernel.epilogue[-1] if kernel.epilogue else None, _Readers(program)
            positive = isinstance(last, Clamp) and last.low is not None and last.low >= 0
            if readers.round(op.results[0]) and (positive or not readers.pools):
                step = RoundToHalves(ordered=readers.pools > 0)
                rounded = replace(kernel, epilogue=(*kernel.epilogue, step))
                with at(op):
                    name = string_attr(op, NAME) or ""
                    (bits,) = call_kernel(program, rounded, list(op.operands), name)
                _read(program, op.results[0], bits)
                op.erase()
                changed = True
        return renamed(program, changed)


class _Readers:
    """Readers of a value, and the number of pools among them: a maximum of rounded numbers is the
    maximum, rounded."""

    def __init__(self, program: Program) -> None:
        self.program, self.pools = program, 0

    def round(self, value: ir.Value) -> bool:
        """True if products read a value and round it, or epilogues add it rounded, and nothing else
        reads it."""
        return _each(value, self._rounds)

    def _rounds(self, op: Op, number: int) -> bool:
        kind, kernel = op.operation.name, described(self.program, op)
        if kind == _CONVERT and dtype_of(op.results[0]) == ml_dtypes.bfloat16:
            return _each(op.results[0], self._adds)
        if number == 0 and kind in _MOVE:
            fills = [evaluate(self.program, v) for v in op.operands[1:]]
            zeros = all(fill is not None and not any(fill.tobytes()) for fill in fills)
            return zeros and self.round(op.results[0])
        if number == 0 and kind == _POOL and reduction(self.program, op) == "maximum":
            self.pools += 1
            window = integers(op, "window_dimensions")
            sides = zip(padding_pairs(op, len(window)), window, strict=True)
            return all(max(pair) < size for pair, size in sides) and self.round(op.results[0])
        return number == 0 and isinstance(kernel, Product) and kernel.takes_bits

    def _adds(self, op: Op, number: int) -> bool:
        if op.operation.name in (_CONVERT, *_MOVE[:1]):
            return _each(op.results[0], self._adds)
        return _adding(described(self.program, op), number) is not None


def _each(value: ir.Value, test: Callable[[Op, int], bool]) -> bool:
    """True if all uses of a value, of which there are some, pass a test."""
    uses = list(value.uses)
    return bool(uses) and all(test(use.owner, use.operand_number) for use in uses)


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
                if op.operation.name == _POOL:
                    moved = reduce_like(op, bits, "stablehlo.maximum", 0)
                elif op.operation.name != _CONVERT:
                    zeros = [OPS.constant(np.zeros((), np.int16)) for _ in operands[1:]]
                    moved = like(op, [bits, *zeros], shape_of(op.results[0]), np.int16)
            _read(program, op.results[0], moved)
            op.erase()
            continue
        reads = _adding(kernel, number) or replace(kernel, element="bf16_bits")
        operands[number] = bits
        call_instead(program, reads, op, operands)
