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

from jq.ir import OPS, Op, i64_array, integers, ir, shape_of, stablehlo
from jq.ir.ops.geometry import Geometry
from jq.ir.ops.layout import Layout, padding_of, turned_axes
from jq.ir.ops.lookup import rule_named
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
    Trap: traps/test_contractions.py::test_pool_that_ends_early"""

    def finds(self, op: Op) -> bool:
        if op.operation.name == "stablehlo.reduce_window":
            return any(_unread(op))
        if Layout.match(op) is None:
            return False
        edges = (p for pair in padding_of(op) for p in pair)
        dilated = max(integers(op, "lhs_dilation"), default=1) > 1
        return bool(turned_axes(op)) or any(_unread(op)) or dilated or min(edges, default=0) < 0

    def rewritten(self, op: Op) -> None:
        if Layout.match(op) and (axes := turned_axes(op)):
            op.operands[1] = stablehlo.reverse(op.operands[1], axes)
            del op.attributes["window_reversal"]
        _pad(op)


def _geometry(op: Op) -> tuple[Sequence[int], Geometry]:
    """Axes of the first operand that a convolution or pool has windows along, and these windows."""
    rule, layout = rule_named(op.operation.name), Layout.match(op)
    assert rule is not None
    found = rule.geometry(op)
    return layout.input_spatial if layout else range(len(found.window)), found


def _unread(op: Op) -> list[int]:
    """Number of last elements that no window reaches, by axis of the window: of axes whose result
    has one row, and of all where there are groups."""
    (axes, g), shape, unread = _geometry(op), shape_of(op.operands[0]), []
    figures = zip(axes, g.window, g.stride, g.padding, g.interior, g.dilation, strict=True)
    for axis, window, stride, edges, by, apart in figures:
        left = (shape[axis] - 1) * by + 1 + sum(edges) - ((window - 1) * apart + 1)
        matters = left > 0 and (g.groups > 1 or left < stride)
        unread.append(left % stride if matters else 0)
    return unread


def _pad(op: Op) -> None:
    """The operands are padded, dilated and cut beforehand; those of a convolution where they need
    more than other padding."""
    (axes, g), pools = _geometry(op), Layout.match(op) is None
    padding = [(low, high - e) for (low, high), e in zip(g.padding, _unread(op), strict=True)]
    if pools or max(g.interior, default=1) > 1 or any(p < 0 for pair in padding for p in pair):
        low, high, interior = ([0] * len(shape_of(op.operands[0])) for _ in range(3))
        for axis, pair, by in zip(axes, padding, g.interior, strict=True):
            (low[axis], high[axis]), interior[axis] = pair, by - 1
        count = len(op.operands) // 2  # a pool's others are what it starts with
        for i, x in enumerate(list(op.operands)[:count]):
            edge = op.operands[count + i] if pools else 0
            op.operands[i] = OPS.pad(x, edge, low, high, interior)
        padding = [(0, 0)] * len(axes)
        ones = i64_array([1] * len(axes))
        op.attributes["base_dilations" if pools else "lhs_dilation"] = ones
    array = np.array(padding, np.int64).reshape(len(padding), 2)
    op.attributes["padding"] = ir.DenseElementsAttr.get(array)
