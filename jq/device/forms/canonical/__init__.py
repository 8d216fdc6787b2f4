"""A network in the few shapes that other forms know: NHWC windows, OHWI filters, batched products.

Convolutions and products of any dimension numbers become one of these, with transposes and reshapes
around them; parameters become one number a channel. Every writer reads this and nothing else."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.device.ends import leading_to
from jq.device.forms.canonical.base import Simple, along, flat, short
from jq.device.forms.canonical.lookups import Lookups
from jq.device.network import Network, Node
from jq.ir import ir, stablehlo
from jq.ir.build import integers
from jq.ir.ops.layout import CONVOLUTION


def canonical(network: Network) -> list[Simple]:
    """The steps of a network, in order.

    Raises:
        UserError: an op has none of these shapes, by its name."""
    builder = _Builder()
    for node in network.nodes:
        builder.add(node)
    made = dict[str, Simple]()
    for i, step in enumerate(builder.steps):
        if step.kind == "reshape":  # of a reshape: of what that reads
            before = made.get(step.inputs[0].name, step)
            made[step.output.name] = builder.steps[i] = replace(step, inputs=before.inputs)
    return leading_to(network.outputs, builder.steps)


class _Builder(Lookups):
    """Adds the steps of a node by its kind."""

    def add(self, node: Node) -> None:
        self.node = node
        _check_start(node)
        if node.kind == "float":
            raise UserError(f"{node.op.split('.')[-1]} of floats has no form here", op=node.name)
        if node.kind == "contraction":
            (self._convolution if node.op.endswith(CONVOLUTION) else self._product)(node)
        elif node.op.endswith("reduce_window"):
            self._pool(node)
        elif node.op.endswith("stablehlo.reduce"):
            self._reduced(node)
        elif (move := getattr(self, f"_{node.kind}", None)) is not None:
            move(node)
        else:
            self._same(node)

    # Products

    def _product(self, node: Node) -> None:
        d = stablehlo.DotDimensionNumbers(node.attributes["dot_dimension_numbers"])
        batch = list(d.lhs_batching_dimensions), list(d.rhs_batching_dimensions)
        summed = list(d.lhs_contracting_dimensions), list(d.rhs_contracting_dimensions)
        free = [
            [a for a in range(len(x.shape)) if a not in (*b, *s)]
            for x, b, s in zip(node.inputs, batch, summed, strict=True)
        ]
        weights = [x.data is not None for x in node.inputs]
        if any(weights) and not batch[0]:
            self._dense(node, weights.index(True), free, summed)
            return
        a, b = node.inputs
        if any((x.zero_point != x.zero).any() for x in (a, b) if x.zero_point is not None):
            raise UserError("zero points by channel have no form in such a product", op=node.name)
        a = self.transposed(a, [*batch[0], *free[0], *summed[0]])
        b = self.transposed(b, [*batch[1], *summed[1], *free[1]])
        m, n = ([x.shape[i] for i in f] for x, f in zip(node.inputs, free, strict=True))
        shared, k = (math.prod(node.inputs[0].shape[i] for i in f[0]) for f in (batch, summed))
        a = self.reshaped(a, (shared, math.prod(m), k))
        b = self.reshaped(b, (shared, k, math.prod(n)))
        made = self.fresh(node.output, (shared, math.prod(m), math.prod(n)))
        axes = list(range(len(node.output.shape) - len(n), len(node.output.shape)))
        numbers = {key: along(v, node, axes, n) for key, v in node.numbers.items()}
        self.named(self.put("matmul", [a, b], made, {}, numbers))

    def _dense(self, node: Node, side: int, free: list[list[int]], summed: Any) -> None:
        """A product with a weight is a 1x1 convolution over rows: it has a bias, and devices
        have it wherever they have convolutions."""
        x, w = node.inputs[1 - side], node.inputs[side]
        rows, columns = ([t.shape[i] for i in free[s]] for t, s in ((x, 1 - side), (w, side)))
        k = int(np.prod([x.shape[i] for i in summed[1 - side]]))
        r, n = int(np.prod(rows)), int(np.prod(columns))
        x = self.transposed(x, [*free[1 - side], *summed[1 - side]])
        x, w = self.reshaped(x, (1, r, 1, k)), self.transposed(w, [*free[side], *summed[side]])
        first: Any = (..., *[0] * len(summed[side]))
        scale = None if w.scale is None else np.broadcast_to(w.scale, w.shape)[first]
        w = replace(self.reshaped(w, (n, 1, 1, k)), scale=short(scale))
        made = self.fresh(node.output, (1, r, 1, n))
        at = len(rows) if side == 1 else 0
        axes = list(range(at, at + len(columns)))
        numbers = {key: along(v, node, axes, columns) for key, v in node.numbers.items()}
        geometry = {"stride": [1, 1], "padding": [(0, 0), (0, 0)], "dilation": [1, 1]}
        self.put("conv2d", [x, w], made, geometry, numbers)
        order = [*range(len(columns), len(columns) + len(rows)), *range(len(columns))]
        self.in_order(made, sorted(order) if side else order)  # else the weight's come first

    def _reduced(self, node: Node) -> None:
        """Sums along all axes at once; extremes along one after the other, as others are folded."""
        axes, x = list(integers(node, "dimensions")), node.inputs[0]
        kind = {"sum": "sum", "reduce_maximum": "max", "reduce_minimum": "min"}.get(node.kind)
        if kind is None:
            window, one = [n if a in axes else 1 for a, n in enumerate(x.shape)], [1] * len(x.shape)
            self.folded(x, window, one, [(0, 0)] * len(one), one)
            return
        shape = list(x.shape)
        for axis in axes:
            shape[axis] = 1
            if kind != "sum":
                x = self.put(kind, [x], self.fresh(node.output, shape), {"axis": axis})
        if kind == "sum":
            numbers = {k: flat(v, node) for k, v in node.numbers.items()}
            x = self.put(kind, [x], self.fresh(node.output, shape), {"axes": axes}, numbers)
        self.named(x)

    # Moves

    def _reshape(self, node: Node) -> None:
        self.put("reshape", node.inputs[:1], node.output)

    def _transpose(self, node: Node) -> None:
        order = list(integers(node, "permutation"))
        self.put("transpose", node.inputs[:1], node.output, {"permutation": order})

    def _reverse(self, node: Node) -> None:
        (x,), axes = node.inputs, integers(node, "dimensions")
        for i, axis in enumerate(axes):
            made = node.output if i == len(axes) - 1 else self.fresh(node.output, x.shape)
            x = self.put("reverse", [x], made, {"axis": axis})

    def _concatenate(self, node: Node) -> None:
        axis = ir.IntegerAttr(node.attributes["dimension"]).value
        self.put("concatenate", node.inputs, node.output, {"axis": axis})

    def _slice(self, node: Node) -> None:
        size = node.output.shape
        start, stride = (list(integers(node, k)) for k in ("start_indices", "strides"))
        self.named(self.strided(node.inputs[0], start, size, stride))

    def _pad(self, node: Node) -> None:
        x, value = node.inputs
        keys = "edge_padding_low", "edge_padding_high", "interior_padding"
        low, high, inner = (integers(node, k) for k in keys)
        if value.data is None:
            raise UserError("padding with a computed number has no form here", op=node.name)
        x = self.spread(x, [n + 1 for n in inner], code := int(value.data.reshape(())))
        self.named(self.padded(x, zip(low, high, strict=True), code))

    def _select(self, node: Node) -> None:
        """A choice that is known is the one operand."""
        which = node.inputs[0].data
        if which is None or which.any() != which.all():
            self._same(node)
        else:
            self.put("reshape", [node.inputs[1 if which.any() else 2]], node.output)

    def _compare(self, node: Node) -> None:
        direction = stablehlo.ComparisonDirectionAttr(node.attributes["comparison_direction"]).value
        kinds = {"G": "greater", "L": "greater", "E": "equal", "N": "equal"}
        kind = kinds[direction[0]] + ("_equal" if direction in ("GE", "LE") else "")
        (a, b), made = node.inputs, node.output
        made = made if direction != "NE" else self.fresh(made, made.shape)
        self.put(kind, [b, a] if direction[0] == "L" else [a, b], made)
        if direction == "NE":
            self.put("logical_not", [made], node.output)

    def _broadcast_in_dim(self, node: Node) -> None:
        (x,), shape = node.inputs, node.output.shape
        axes = list(integers(node, "broadcast_dimensions"))
        order = sorted(range(len(axes)), key=axes.__getitem__)
        x = self.transposed(x, order)
        kept = [1] * len(shape)
        for at, source in enumerate(order):
            kept[axes[source]] = x.shape[at]
        times = [n // k for n, k in zip(shape, kept, strict=True)]
        if len(shape) > 4:  # as jnp.tile has them: neighbours that are repeated alike are one
            long = [(k, t) for k, t in zip(kept, times, strict=True) if k * t > 1]
            parts = [list(part) for _, part in groupby(long, lambda pair: pair[1] > 1)]
            kept, times = ([math.prod(p[i] for p in part) for part in parts] for i in (0, 1))
        x = self.reshaped(x, kept)
        made = self.fresh(node.output, [k * t for k, t in zip(kept, times, strict=True)])
        self.named(self.put("tile", [x], made, {"repeats": times}))


def _check_start(node: Node) -> None:
    """Refuses a reduction of integers that are no codes from a number that changes its result."""
    if not node.kind.startswith("reduce_") or (x := node.inputs[0]).scale is not None:
        return
    known = [0, 1] if x.dtype == "bool" else [np.iinfo(x.dtype).min, np.iinfo(x.dtype).max]
    kind = node.kind.rpartition("_")[2]
    combined = getattr(np, f"logical_{kind}" if kind in ("and", "or") else kind, None)
    ends = np.array(known, x.dtype)
    if combined and (combined(node.inputs[1].values, ends) != ends).any():
        raise UserError("a reduction that starts from a number has no form here", op=node.name)
