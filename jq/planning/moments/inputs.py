"""The input of a contraction as rows: each is multiplied by the weight, seen as a matrix [K, N]."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jq.ir import Op, ir, shape_of
from jq.ir.ops import Dims, rule_of
from jq.ir.ops.layout import Layout, Window, groups_of
from jq.ir.ops.rules.convolution import Convolution
from jq.planning.calibration.histogram import PROGRAM_STATS as OPS

F32 = np.float32


@dataclass(frozen=True)
class Wanted:
    """The input of one contraction.

    Attributes:
        name: of the op.
        operand: number of the operand that is not the weight.
        contracted: what K consists of, in order: axes of that operand that are summed over; of a
            convolution, axes of its kernel.
    """

    name: str
    operand: int
    contracted: tuple[int, ...]


@dataclass(frozen=True)
class Extent:
    """groups x rows x K: each group of rows is multiplied by columns of its own.

    The rows of a product with a batch axis and others are as many sequences of equal length; 0:
    nothing says which rows belong together.
    """

    groups: int
    rows: int
    width: int
    sequences: int = 0


def extent(op: Op, w: Wanted) -> Extent:
    """Sizes of `rows_of`."""
    if isinstance(rule_of(op), Convolution):
        kernel, feature = shape_of(op.operands[1]), Layout.of(op).output_feature
        result = shape_of(op.operation.results[0])
        count = math.prod(n for a, n in enumerate(result) if a != feature)
        return Extent(groups_of(op), count, math.prod(kernel[a] for a in w.contracted))
    x, dims = shape_of(op.operands[w.operand]), Dims.of(op)
    free = [x[a] for a in dims.free(w.operand, len(x))]
    return Extent(
        math.prod(x[pair[w.operand]] for pair in dims.batch),
        math.prod(free),
        math.prod(x[a] for a in w.contracted),
        free[0] if len(free) > 1 else 0,
    )


def rows_of(op: Op, w: Wanted) -> ir.Value:
    """f32[groups, rows, K] at the current insertion point."""
    e = extent(op, w)
    if isinstance(rule_of(op), Convolution):
        return _patches(op, w, e)
    dims, x = Dims.of(op), op.operands[w.operand]
    batch = [pair[w.operand] for pair in dims.batch]
    order = [*batch, *dims.free(w.operand, len(shape_of(x))), *w.contracted]
    x = OPS.transpose(OPS.convert(x, F32), order)
    return OPS.reshape(x, [e.groups, e.rows, e.width])


def other_axes(op: Op, w: Wanted) -> Sequence[int]:
    """The axes of the result that come from the weight; without them it has groups x rows
    elements (a convolution: rows alone)."""
    if isinstance(rule_of(op), Convolution):
        return [Layout.of(op).output_feature]
    dims = Dims.of(op)
    ranks = [len(shape_of(v)) for v in op.operands]
    first = len(dims.batch) + (len(dims.free(0, ranks[0])) if w.operand == 0 else 0)
    return range(first, first + len(dims.free(1 - w.operand, ranks[1 - w.operand])))


def _patches(op: Op, w: Wanted, e: Extent) -> ir.Value:
    """The patches that the output positions of a convolution read: f32[groups, rows, K]."""
    window = Window.of(op, shape_of(op.operands[1]))
    d, x = window.layout, OPS.convert(window.taps(op.operands[0]), F32)
    inside = shape_of(op.operands[0])[d.input_feature] // e.groups
    x = OPS.reshape(x, [*shape_of(x)[:-1], *window.sizes, e.groups, inside])
    rank = len(d.kernel_spatial)
    # Where the axes of the result, but for its features, and those of the kernel are in x.
    rows = dict(zip([d.output_batch, *d.output_spatial], range(1 + rank), strict=True))
    inner = dict(
        zip(
            [*d.kernel_spatial, d.kernel_in],
            [*range(1 + rank, 1 + 2 * rank), 2 + 2 * rank],
            strict=True,
        )
    )
    order = [1 + 2 * rank, *(rows[a] for a in sorted(rows)), *(inner[a] for a in w.contracted)]
    return OPS.reshape(OPS.transpose(x, order), [e.groups, e.rows, e.width])
