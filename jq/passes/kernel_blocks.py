"""Products of quantized activations and weights that have scales in blocks of the contracted axis.

    composite "jq.contract" %x.codes, %x.scale, %w.codes, %w.scale   (dot_general)
    [add bias] [activation] [add residual]
    ->
    call @jq_gemv(%x.codes, %x.scale, %w.packed, ...)

Without the kernel every block is a product of its own, whose sums lie in memory. Fires on integer
weights without zero points and on ggml's types, with symmetric activations of one scale a row or
one a block. The result differs from the `integer` level by the order of a float32 sum of blocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.formats import NUMPY, Encoding, get_format
from jq.formats.affine import Affine
from jq.formats.ggml import GgmlFormat
from jq.ir import Program, at, dtype_of, ir, shape_of
from jq.ir.constants import evaluate
from jq.ir.contract import Contract, match_contract
from jq.kernels import Gemv
from jq.kernels.gemv_weights import PLANES
from jq.ops.dot_general import Dims
from jq.passes._kernel import OPS, NoKernel, call_kernel, isa_of
from jq.passes._tail import Tail
from jq.passes.base import Pass, PassContext


@dataclass(frozen=True)
class KernelBlocks(Pass):
    name = "kernel-blocks"

    def run(self, program: Program, cx: PassContext) -> bool:
        isa, changed = isa_of(cx.target), False
        for op in [op for op in program.walk() if match_contract(op)] if isa else []:
            c = match_contract(op)  # now: an operand may have been replaced since
            if c is None or isa is None or not _has_blocks(c):
                continue
            try:
                cx.kernels[c.name] = _lower(program, c, isa)
                changed = True
            except NoKernel as reason:
                cx.without_kernel[c.name] = str(reason)
        return changed


@dataclass(frozen=True)
class BlockWeight:
    """A weight as the kernel takes it: codes [K, N], scale and minimum [blocks, N]."""

    codes: np.ndarray
    scale: np.ndarray
    minimum: np.ndarray | None
    block: int

    @staticmethod
    def of(program: Program, enc: Encoding, parts: dict[str, ir.Value], dims: Dims) -> BlockWeight:
        arrays = {name: evaluate(program, part) for name, part in parts.items()}
        if any(a is None for a in arrays.values()):
            raise NoKernel("the right operand is no constant weight")
        known = {name: np.asarray(a) for name, a in arrays.items()}
        fmt, minimum = get_format(enc.format), None
        if isinstance(fmt, GgmlFormat):
            codes, scale, minimum = fmt.integer_parts(NUMPY, known, enc)
        elif isinstance(fmt, Affine) and enc.scheme == "symmetric":
            codes, scale = fmt.codes(NUMPY, known, enc), fmt.scale(NUMPY, known, enc)
        else:
            raise NoKernel(f"no kernel for {enc.scheme} {enc.format} in blocks")
        axis, outer = dims.contract[0][1], dims.free(1, len(enc.shape))
        order = [axis, *outer]

        def matrix(values: Any, length: int) -> np.ndarray:
            wide = [length if a == axis else n for a, n in enumerate(enc.shape)]
            return np.broadcast_to(np.asarray(values), wide).transpose(order).reshape(length, -1)

        k, blocks = enc.shape[axis], np.shape(scale)[axis]
        return BlockWeight(
            matrix(codes, k),
            matrix(scale, blocks),
            None if minimum is None else matrix(minimum, blocks),
            enc.block[axis] if isinstance(fmt, Affine) else k // blocks,
        )

    @property
    def bits(self) -> int:
        """The fewest in which the codes can be kept."""
        low, high = int(self.codes.min(initial=0)), int(self.codes.max(initial=0))
        for bits in PLANES:
            if self.block % Gemv.least_block(bits):
                continue
            half = 1 << (bits - 1)
            if self.minimum is not None and low >= 0 and high < 2 * half and bits < 8:
                return bits
            if self.minimum is None and -half <= low and high < half:
                return bits
        raise NoKernel(f"no kernel for blocks of {self.block} of codes from {low} to {high}")

    @property
    def scale_type(self) -> str:
        """f16 where that loses nothing."""
        given = [self.scale] if self.minimum is None else [self.scale, self.minimum]
        with np.errstate(over="ignore"):
            half = all((s.astype(np.float16).astype(s.dtype) == s).all() for s in given)
        return "f16" if half else "f32"


def _has_blocks(c: Contract) -> bool:
    if c.op_type != "dot_general" or any(not isinstance(side, tuple) for side in c.sides):
        return False
    enc, _ = c.sides[1]
    contracted = Dims.read(c.attributes["dot_dimension_numbers"]).contracted(1)
    return any(enc.grid[a] > 1 for a in contracted)


def _lower(program: Program, c: Contract, isa: str) -> str:
    """Replaces the contraction and what follows it by a call; the kernel's name."""
    (x_enc, x), (w_enc, w) = c.sides
    dims = Dims.read(c.attributes["dot_dimension_numbers"])
    if dims.batch or len(dims.contract) != 1:
        raise NoKernel("the weight is not contracted along a single axis")
    if x_enc.format != "int8" or x_enc.scheme != "symmetric":
        raise NoKernel(f"no kernel for {x_enc.scheme} {x_enc.format} activations with blocks")
    if math.prod(c.shapes[0]) == 0 or math.prod(c.shapes[1]) == 0:
        raise NoKernel("an empty product")
    weight = BlockWeight.of(program, w_enc, w, dims)
    k, n = weight.codes.shape
    axis = dims.contract[0][0]
    blocks = x_enc.grid[axis]
    if blocks not in (1, len(weight.scale)):
        raise NoKernel(f"{blocks} blocks of activations meet {len(weight.scale)} of weights")
    dtype = dtype_of(c.op.results[0])
    tail = Tail.behind(program, c.op, n) if dtype == np.float32 else Tail((), (), (c.op,))
    kernel = Gemv(
        isa=isa,
        m=math.prod(c.shapes[0]) // k,
        k=k,
        n=n,
        bits=weight.bits,
        block=weight.block,
        per_block=blocks > 1,
        minimum=weight.minimum is not None,
        scale=weight.scale_type,
        epilogue=tail.steps,
    )
    packed = kernel.pack(weight.codes, weight.scale, weight.minimum)
    order = (*dims.free(0, len(c.shapes[0])), axis)
    with at(tail.last):
        wide = [blocks if a == axis else size for a, size in enumerate(c.shapes[0])]
        scale = OPS.broadcast(OPS.convert(x["scale"], np.float32), wide, range(len(wide)))
        operands = [_moved(x["codes"], order), _moved(scale, order)]
        operands.append(program.add_weight(f"{c.name}:packed", packed))
        operands += tail.values(program, c.name, kernel.pad_columns)
        (result,) = call_kernel(program, kernel, operands, c.name)
        value = OPS.reshape(result, tail.shape)
        tail.replace(value if tail.steps else OPS.convert(value, dtype))
    return kernel.name


def _moved(value: ir.Value, order: tuple[int, ...]) -> ir.Value:
    moves = list(order) != sorted(order) and len(shape_of(value)) > 1
    return OPS.transpose(value, order) if moves else value
