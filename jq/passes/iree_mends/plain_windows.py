"""Windows are written out: reversed and dilated ones, and those that end early.

Of convolutions, and of pools (`reduce_window`):

    convolution(%x, %w) window = {reverse = [true], pad = [[-1, 0]], lhs_dilate = [2]}
    ->
    convolution(pad %x, reverse %w) window = {}

- A reversed window: the kernel is reversed.
- Negative padding and a dilated input: the input is padded (or cut) and dilated beforehand.
- A result of one row, whose window does not end on the last element: what is never read is cut off.
"""

from collections.abc import Sequence

import numpy as np

from jq.ir import OPS, Op, dtype_of, ir, shape_of, stablehlo
from jq.ir.build import i64_array, integers, padding_pairs, reversed_axes
from jq.ir.ops.layout import Layout, padding_of
from jq.passes.iree_mends.mend import Mend


class PlainWindows(Mend):
    """A reversed window is ignored where each group has one channel.
    Trap: traps/test_contractions.py::test_reversed_window

    Negative padding and dilated inputs of convolutions were refused.
    No trap: IREE 3.13 was right in 16 forms of them; drawn convolutions have not run without it

    A convolution or pool whose result has one row, and whose window ends before the last element,
    reads at a wrong place; with groups it is refused.
    Trap: traps/test_contractions.py::test_strides_that_end_early
    Trap: traps/test_contractions.py::test_convolution_that_ends_early
    Trap: traps/test_contractions.py::test_pool_that_ends_early
    """

    def finds(self, op: Op) -> bool:
        if op.operation.name == "stablehlo.reduce_window":
            return any(_pool_excess(op))
        if Layout.match(op) is None:
            return False
        return bool(_reversed_axes(op)) or any(_excess(op)) or _is_padded_before(op)

    def rewritten(self, op: Op) -> None:
        if op.operation.name == "stablehlo.reduce_window":
            _pad_pool(op)
        else:
            if axes := _reversed_axes(op):
                op.operands[1] = stablehlo.reverse(op.operands[1], axes)
                del op.attributes["window_reversal"]
            _pad(op)


def _is_padded_before(op: Op) -> bool:
    edges = (p for pair in padding_of(op) for p in pair)
    return max(integers(op, "lhs_dilation"), default=1) > 1 or min(edges, default=0) < 0


def _reversed_axes(op: Op) -> list[int]:
    """The kernel's axes along which a convolution's window is reversed."""
    if (layout := Layout.match(op)) is None:
        return []
    flags = reversed_axes(op, len(layout.kernel_spatial))
    return [a for a, flag in zip(layout.kernel_spatial, flags, strict=True) if flag]


def _pad(op: Op) -> None:
    layout, padding = Layout.of(op), padding_of(op)
    axes = layout.input_spatial
    dilation = integers(op, "lhs_dilation") or (1,) * len(axes)
    excess = _excess(op)
    padding = [(low, high - e) for (low, high), e in zip(padding, excess, strict=True)]
    if max(dilation, default=1) == 1 and not any(p < 0 for pair in padding for p in pair):
        _set_padding(op, padding)
        return
    x = op.operands[0]
    low, high, interior = ([0] * len(shape_of(x)) for _ in range(3))
    for axis, pair, d in zip(axes, padding, dilation, strict=True):
        (low[axis], high[axis]), interior[axis] = pair, d - 1
    zero = OPS.constant(np.zeros((), dtype_of(x)))
    op.operands[0] = OPS.pad(x, zero, low, high, interior)
    _set_padding(op, [(0, 0)] * len(axes))
    op.attributes["lhs_dilation"] = i64_array([1] * len(axes))


def _set_padding(op: Op, pairs: list[tuple[int, int]]) -> None:
    array = np.array(pairs, np.int64).reshape(len(pairs), 2)
    op.attributes["padding"] = ir.DenseElementsAttr.get(array)


def _excess(op: Op) -> list[int]:
    """Number of last elements that a convolution's window never reaches, where that matters."""
    layout = Layout.of(op)
    count = len(layout.input_spatial)
    x, kernel = shape_of(op.operands[0]), shape_of(op.operands[1])
    return _unread(
        [x[a] for a in layout.input_spatial],
        [kernel[a] for a in layout.kernel_spatial],
        integers(op, "window_strides") or (1,) * count,
        padding_of(op),
        integers(op, "lhs_dilation") or (1,) * count,
        integers(op, "rhs_dilation") or (1,) * count,
        everywhere=ir.IntegerAttr(op.attributes["feature_group_count"]).value > 1,
    )


def _unread(
    sizes: Sequence[int],
    windows: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    dilation: Sequence[int],
    window_dilation: Sequence[int],
    *,
    everywhere: bool = False,
) -> list[int]:
    """Elements after the last window, by axis: of axes whose result has one row, or of all."""
    unread = []
    for n, window, stride, edges, by, apart in zip(
        sizes, windows, strides, padding, dilation, window_dilation, strict=True
    ):
        left = (n - 1) * by + 1 + sum(edges) - ((window - 1) * apart + 1)
        matters = left > 0 and (everywhere or left < stride)
        unread.append(left % stride if matters else 0)
    return unread


def _pool_excess(op: Op) -> list[int]:
    shape = shape_of(op.operands[0])
    ones = (1,) * len(shape)
    return _unread(
        shape,
        integers(op, "window_dimensions"),
        integers(op, "window_strides") or ones,
        padding_pairs(op, len(shape)),
        integers(op, "base_dilations") or ones,
        integers(op, "window_dilations") or ones,
    )


def _pad_pool(op: Op) -> None:
    """The operands are padded, dilated and cut beforehand."""
    excess = _pool_excess(op)
    rank = len(excess)
    padding = padding_pairs(op, rank)
    low, high = [a for a, _ in padding], [b - e for (_, b), e in zip(padding, excess, strict=True)]
    interior = [n - 1 for n in integers(op, "base_dilations") or (1,) * rank]
    count = len(op.operands) // 2
    for i in range(count):
        x, init = op.operands[i], op.operands[count + i]
        op.operands[i] = OPS.pad(x, init, low, high, interior)
    _set_padding(op, [(0, 0)] * rank)
    op.attributes["base_dilations"] = i64_array([1] * rank)
