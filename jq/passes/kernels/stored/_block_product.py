"""A contraction of activations with a weight, as `Gemv` takes both."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jq.formats import Encoding, affine_format, get_format, is_affine
from jq.formats.affine_math import HALF
from jq.ir import OPS, Op, Program, at, dtype_of, integers, ir, maker, only_user, shape_of
from jq.ir.affine import constant_of
from jq.ir.contract import Contract
from jq.ir.ops.dims import Dims
from jq.kernels import Gemv, Scale, ZeroPoint
from jq.kernels.rowwise.row_chain import STEPS
from jq.passes.kernels._kernel import NoKernel
from jq.passes.kernels._tail import Tail
from jq.passes.kernels.stored._block_weight import BlockWeight


@dataclass(frozen=True)
class BlockProduct:
    """Attributes:
    axis, other: the axes that are summed, of the activations and of the weight.
    blocks: of a row of activations.
    weight: in the same blocks, where there are several.
    chosen: which weight of a stack each row takes, i32 [n]; None for a single weight.
    factors: the scale by column f32 [N] where all sums are whole numbers that float32 holds,
        and scales come last; None where the weight has its scales.
    tail: what follows, and the kernel computes as well."""

    axis: int
    other: int
    blocks: int
    weight: BlockWeight
    chosen: ir.Value | None
    factors: np.ndarray | None
    tail: Tail
    kernel: Gemv

    @staticmethod
    def of(program: Program, c: Contract, isa: str) -> "BlockProduct":
        (x_enc, _), (w_enc, w) = c.sides
        dims = Dims.read(c.attributes["dot_dimension_numbers"])
        if len(dims.contract) != 1:
            raise NoKernel("the weight is not contracted along a single axis")
        chosen, last = None, c.op
        if dims.batch:
            chosen, last, w_enc, w = _stack(program, c, w_enc, w)
        digits, shifted = _digits(x_enc), x_enc.scheme == "asymmetric"
        if math.prod(c.shapes[0]) == 0 or math.prod(c.shapes[1]) == 0:
            raise NoKernel("an empty product")
        ((axis, other),) = dims.contract
        columns = [*(b for _, b in dims.batch), *dims.free(1, len(w_enc.shape))]
        weight = BlockWeight.of(program, w_enc, w, [other], columns, apart=True)
        (k, n), blocks = weight.codes.shape, x_enc.grid[axis]
        if blocks > 1 and shifted:
            raise NoKernel("no kernel for activations with zero points in blocks")
        if blocks > 1:
            weight = weight.cut(x_enc.block[axis])
        if chosen is not None:
            if dims.batch != ((0, 0),) or blocks == 1:
                raise NoKernel("products with weights of a stack take activations in blocks")
            weight, n = weight.stacked(w_enc.shape[0]), n // w_enc.shape[0]
        if digits > 1 and blocks == 1:
            raise NoKernel(f"no kernel for {x_enc.format} activations without blocks")
        floats, factors = dtype_of(c.op.results[0]) == np.float32, None
        tail = Tail.behind(program, last, n) if floats else Tail((), (), (last,))
        largest = 2 * 128 << (weight.bits - 1)  # product of codes, less that with a zero point
        if blocks == 1 and weight.by_column and k * largest < 1 << 24:
            factors = np.asarray(weight.scale)
            weight = replace(weight, scale=np.ones_like(factors))
        steps = (*(ZeroPoint(),) * shifted, *(Scale(),) * (factors is not None), *tail.steps)
        kernel = weight.kernel(isa, math.prod(c.shapes[0]) // k, blocks > 1, digits, steps)
        if chosen is not None:
            kernel = replace(kernel, tiles=c.shapes[0][0])
        return BlockProduct(axis, other, blocks, weight, chosen, factors, tail, kernel)


def _digits(enc: Encoding) -> int:
    """Number of int8 digits in a code of the activations."""
    if (get_format(enc.format).integer_bits or 16) <= 8:
        return 1
    low, high = affine_format(enc.format).limits(enc) if is_affine(enc.format) else (0, 1 << 31)
    if high > STEPS[2] or low < -STEPS[2] or enc.scheme != "symmetric":
        others = f"but for symmetric ones with the divisor {HALF}"
        raise NoKernel(f"no kernel for {enc.format} activations with such weights, {others}")
    return 2


def _stack(
    program: Program, c: Contract, enc: Encoding, parts: dict[str, ir.Value]
) -> tuple[ir.Value, Any, Encoding, dict[str, ir.Value]]:
    """Numbers of the weights that a lookup takes from a stack, i32 [n]; the op of the result;
    encoding and parts of the stack. A result that is 0 where a mask says so takes no weight."""
    lookups = [op for op in (maker(v, "stablehlo.gather") for v in parts.values()) if op]
    if len(lookups) < len(parts) or len({op.operands[1] for op in lookups}) != 1:
        raise NoKernel("each index of a batch has a weight of its own")
    whole = {name: op.operands[0] for name, op in zip(parts, lookups, strict=True)}
    count = shape_of(whole[min(whole)])[0]
    stack, user = enc.with_shape((count, *enc.shape[1:]), enc.block), only_user(c.op.results[0])
    mask = None if user is None else _mask(program, c, user)
    last = c.op if mask is None or user is None else user
    with at(last):
        chosen = OPS.reshape(OPS.convert(lookups[0].operands[1], np.int32), enc.shape[:1])
        if mask is not None:
            mask = OPS.reshape(mask, enc.shape[:1])
            chosen = OPS.select(mask, chosen, count)
    return chosen, last, stack, whole


def _mask(program: Program, c: Contract, user: Op) -> ir.Value | None:
    """The i1 of n elements in `select(broadcast(mask), product, 0)`; None for anything else."""
    if user.operation.name != "stablehlo.select" or user.operands[1] != c.op.results[0]:
        return None
    other, mask = constant_of(program, user.operands[2]), user.operands[0]
    count = shape_of(mask)[0]
    if other is None or other.any():
        return None
    while shape_of(mask)[:1] == (count,) and math.prod(shape_of(mask)) != count:
        op = maker(mask, "stablehlo.broadcast_in_dim")
        if op is None or list(integers(op, "broadcast_dimensions"))[:1] != [0]:
            return None
        mask = op.operands[0]
    return mask if math.prod(shape_of(mask)) == count else None
