"""A kernel writes the padding around its result that the next one reads.

    %y = call @jq_gemm_3136x256x64(...)             %y = call @jq_gemm_3136x256x64'(...)
    %i = reshape %y : 1x56x56x64              ->    %p = reshape %y : 1x58x58x64
    %p = pad %i, %c, low = [0, 1, 1, 0], ...

Codes, or floats among zeros, are stored where the padded image has them, and nothing copies it: for
a convolution, and for a pool (`reduce_window`), whose padding IREE writes out. Fires where the
padding is a constant around height and width, and nobody reads the image without it."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.ir import OPS, Op, Program, at, dtype_of, evaluate, func, ir, shape_of
from jq.ir.build import NAME, integers, padding_pairs, string_attr
from jq.kernels import Frame, Kernel
from jq.passes.base import Pass, PassContext
from jq.passes.kernels._kernel import call_kernel, called, declarations, made_alone, renamed


class KernelFrames(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        known = declarations(program)
        framed = [p for op in program.walk() if (p := _Padded.of(program, op, known))]
        for padded in framed:
            padded.rewrite(program)
        return renamed(program, framed)


@dataclass(frozen=True)
class _Padded:
    """A reader that pads a kernel's result, and the kernel that writes the padding. `ops` are those
    in between, readers first: the `pad` or `reduce_window`, reshapes, the call."""

    ops: list[Any]
    kernel: Kernel
    frame: Frame

    @staticmethod
    def of(program: Program, op: Op, known: dict[str, func.FuncOp]) -> "_Padded | None":
        pairs = _padding(op)
        if not any(map(any, pairs)):
            return None
        image, code = op.operands[0], evaluate(program, op.operands[1])
        if len(pairs) != 4 or code is None:
            return None
        if dtype_of(image) != np.int8 and any(code.tobytes()):
            return None  # a frame around floats is of zeros
        (batch, *around, channels), ops = pairs, [op, *made_alone(image)]
        kernel, (_, height, width, n) = called(known, ops[-1]), shape_of(image)
        if kernel is None or len(kernel.results) > 1 or kernel.results[0].shape[-1] != n:
            return None
        if any(batch + channels) or min(map(min, around)) < 0:
            return None
        frame = Frame(height, width, tuple(around), int(code))
        framed = kernel.in_frame(frame)
        return None if framed is None else _Padded(ops, framed, frame)

    def rewrite(self, program: Program) -> None:
        reader, *between, call = self.ops
        batch, _, _, n = shape_of(reader.operands[0])
        with at(call):
            name = string_attr(call, NAME) or ""
            (rows,) = call_kernel(program, self.kernel, list(call.operands), name)
            image = OPS.reshape(rows, [batch, *self.frame.outer, n])
        if reader.operation.name == "stablehlo.pad":
            reader.results[0].replace_all_uses_with(image)
            between.insert(0, reader)
        else:
            reader.operands[0] = image
            with at(reader):
                zeros = ir.DenseElementsAttr.get(np.zeros((4, 2), np.int64))
            reader.attributes["padding"] = zeros
        for op in (*between, call):
            op.erase()


def _padding(op: Op) -> list[tuple[int, ...]]:
    """Low and high padding of every axis by the op's second operand; empty of what has none."""
    if op.operation.name == "stablehlo.pad" and not any(integers(op, "interior_padding")):
        low, high = integers(op, "edge_padding_low"), integers(op, "edge_padding_high")
        return list(zip(low, high, strict=True))
    if op.operation.name != "stablehlo.reduce_window" or len(op.operands) != 2:
        return []
    plain = all(n == 1 for n in integers(op, "base_dilations"))
    return list(padding_pairs(op, len(shape_of(op.operands[0])))) if plain else []
