"""Products of codes that have scales in blocks of the contracted axis, on either side.

    composite "jq.contract" %x.codes, %x.scale, %w.codes, %w.scale   (dot_general)
    [add bias] [activation] [add residual]
    ->
    call @jq_gemv(%x.codes, %x.scale, %w.packed, ...)

Without the kernel every block is a product of its own, whose sums lie in memory. Fires on integer
weights and on ggml's types, with symmetric activations of one scale a row or one a block; also on
weights with one scale a column, where the activations have blocks. The result differs from the
`integer` level by the order of a float32 sum of blocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from jq.ir import Program, at, dtype_of, ir, shape_of
from jq.ir.contract import Contract, match_contract
from jq.ops.dot_general import Dims
from jq.passes.base import Pass, PassContext
from jq.passes.kernels._block_weight import BlockWeight
from jq.passes.kernels._kernel import OPS, Decided, NoKernel, call_kernel, isa_of
from jq.passes.kernels._tail import Tail


@dataclass(frozen=True)
class KernelBlocks(Pass):
    name = "kernel-blocks"

    def run(self, program: Program, cx: PassContext) -> bool:
        isa, decided = isa_of(cx.target), Decided()
        for op in [op for op in program.walk() if match_contract(op)] if isa else []:
            c = match_contract(op)  # now: an operand may have been replaced since
            if c is None or isa is None or not _has_blocks(c):
                continue
            try:
                decided.kernel(_lower(program, c, isa), c.name)
            except NoKernel as reason:
                decided.none(str(reason), c.name)
        return decided.write(program)


def _has_blocks(c: Contract) -> bool:
    dims = Dims.of_contract(c)
    if dims is None or any(not isinstance(side, tuple) for side in c.sides):
        return False
    return any(side[0].grid[a] > 1 for i, side in enumerate(c.sides) for a in dims.contracted(i))


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
    ((axis, other),) = dims.contract
    weight = BlockWeight.of(program, w_enc, w, [other], dims.free(1, len(w_enc.shape)))
    k, n = weight.codes.shape
    blocks = x_enc.grid[axis]
    if blocks > 1:
        weight = weight.cut(x_enc.block[axis])
    dtype = dtype_of(c.op.results[0])
    tail = Tail.behind(program, c.op, n) if dtype == np.float32 else Tail((), (), (c.op,))
    kernel = weight.kernel(isa, math.prod(c.shapes[0]) // k, blocks > 1, 1, tail.steps)
    order = (*dims.free(0, len(c.shapes[0])), axis)
    with at(tail.last):
        wide = [blocks if a == axis else size for a, size in enumerate(c.shapes[0])]
        scale = OPS.broadcast(OPS.convert(x["scale"], np.float32), wide, range(len(wide)))
        operands = [_moved(x["codes"], order), _moved(scale, order)]
        operands += weight.operands(program, c.name, kernel)
        operands += tail.values(program, c.name, kernel.pad_columns)
        (result,) = call_kernel(program, kernel, operands, c.name)
        value = OPS.reshape(result, tail.shape)
        tail.replace(value if tail.steps else OPS.convert(value, dtype))
    return kernel.name


def _moved(value: ir.Value, order: tuple[int, ...]) -> ir.Value:
    moves = list(order) != sorted(order) and len(shape_of(value)) > 1
    return OPS.transpose(value, order) if moves else value
