"""The input of a contraction as rows: each is multiplied by the weight, seen as a matrix [K, N]."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from jq.formats.arrays import Array, ArrayOps
from jq.ir import OPS, Op, shape_of
from jq.ir.ops import Dims, rule_of
from jq.ir.ops.layout import Layout, Window, groups_of
from jq.ir.ops.rules.convolution import Convolution

F32 = np.float32


@dataclass(frozen=True)
class Wanted:
    """The input of one contraction.

    Attributes:
        name: of the op.
        operand: number of the operand that is not the weight.
        contracted: what K consists of, in order: axes of that operand that are summed over; of a
            convolution, axes of its kernel."""

    name: str
    operand: int
    contracted: tuple[int, ...]


@dataclass(frozen=True)
class Extent:
    """groups x rows x K: each group of rows is multiplied by columns of its own.

    The rows of a product with a batch axis and others are as many sequences of equal length; 0:
    nothing says which rows belong together."""

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


def rows_of(op: Op, w: Wanted, ops: ArrayOps = OPS) -> Callable[[Array], Array]:
    """The function that makes f32[groups, rows, K] of the operand."""
    e = extent(op, w)
    if isinstance(rule_of(op), Convolution):
        taps, order = _patches(op, w, e, ops)
    else:
        dims, rank = Dims.of(op), len(shape_of(op.operands[w.operand]))
        lead = [pair[w.operand] for pair in dims.batch]
        taps, order = (lambda x: x), [*lead, *dims.free(w.operand, rank), *w.contracted]
    shape = [e.groups, e.rows, e.width]
    return lambda x: ops.reshape(ops.transpose(ops.convert(taps(x), F32), order), shape)


def other_axes(op: Op, w: Wanted) -> Sequence[int]:
    """The axes of the result that come from the weight; without them it has groups x rows
    elements (a convolution: rows alone)."""
    if isinstance(rule_of(op), Convolution):
        return [Layout.of(op).output_feature]
    dims = Dims.of(op)
    ranks = [len(shape_of(v)) for v in op.operands]
    first = len(dims.batch) + (len(dims.free(0, ranks[0])) if w.operand == 0 else 0)
    return range(first, first + len(dims.free(1 - w.operand, ranks[1 - w.operand])))


def _patches(
    op: Op, w: Wanted, e: Extent, ops: ArrayOps
) -> tuple[Callable[[Array], Array], list[int]]:
    """The patches that the output positions of a convolution read, and the order of their axes."""
    window = Window.of(op, shape_of(op.operands[1]))
    d, rank = window.layout, len(window.sizes)
    ends = [*window.sizes, e.groups, shape_of(op.operands[0])[d.input_feature] // e.groups]
    # Where the axes of the result, but for its features, and those of the kernel are among taps.
    rows = dict(zip([d.output_batch, *d.output_spatial], range(1 + rank), strict=True))
    places = [*range(1 + rank, 1 + 2 * rank), 2 + 2 * rank]
    inner = dict(zip([*d.kernel_spatial, d.kernel_in], places, strict=True))
    order = [1 + 2 * rank, *(rows[a] for a in sorted(rows)), *(inner[a] for a in w.contracted)]

    def taps(x: Array) -> Array:
        found = window.taps(x, ops)
        return ops.reshape(found, [*ops.shape(found)[:-1], *ends])

    return taps, order
