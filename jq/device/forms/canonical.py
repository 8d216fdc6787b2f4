"""A network in the few shapes that other forms know: NHWC windows, OHWI filters, batched products.

Convolutions and products of any dimension numbers become one of these, with transposes and reshapes
around them; parameters become one number a channel. Every writer reads this and nothing else.

| kind | inputs | attributes |
|---|---|---|
| `conv2d` | x NHWC, filter OHWI | `stride`, `padding` ((top, bottom), (left, right)), `dilation` |
| `depthwise` | x NHWC, filter HWCM | the same |
| `transposed` | x NHWC, filter OHWI | `stride`, `out_padding` |
| `matmul` | a [B, M, K], b [B, K, N] | |
| `max_pool`, `sum_pool` | x NHWC | `window`, `stride`, `padding` |
| `sum` | x | `axes` (kept, of size 1) |
| `max`, `min` | x | `axis` (kept, of size 1) |
| `transpose` | x | `permutation` |
| `reshape` | x | |
| `pad` | x | `padding`, `value` |
| `slice` | x | `start`, `size` |
| `concatenate` | xs | `axis` |
| `reverse` | x | `axis` |
| `tile` | x | `repeats` |
| `gather_rows` | x, indices of its first axis of any shape | |
| `add`, `subtract`, `multiply`, `maximum`, `minimum`, `rescale`, `table`, `softmax`, ... | | |
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.device.network import Network, Node, Tensor
from jq.formats.integer_functions import Output
from jq.ir import ir, stablehlo
from jq.ir.build import Attributes, integers
from jq.ir.ops.layout import CONVOLUTION, Layout, groups_of, padding_of


@dataclass(frozen=True)
class Simple:
    """One step of the table above; `bias`, `factor` and `behind` are of one number or one a channel
    of the last axis (see `jq.ir.ops.integer_step.IntegerStep`)."""

    kind: str
    name: str
    inputs: tuple[Tensor, ...]
    output: Tensor
    attributes: dict[str, Any] = field(default_factory=dict)
    numbers: dict[str, np.ndarray] = field(default_factory=dict)
    out: Output | None = None


def canonical(network: Network) -> list[Simple]:
    """The steps of a network, in order.

    Raises:
        UserError: an op has none of these shapes, by its name.
    """
    builder = _Builder()
    for node in network.nodes:
        builder.add(node)
    return builder.steps


class _Builder:
    """Adds steps, and names what lies between them."""

    def __init__(self) -> None:
        self.steps: list[Simple] = []
        self.count = 0

    def add(self, node: Node) -> None:
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

    def _same(self, node: Node) -> None:
        numbers = {k: _flat(v, node) for k, v in node.numbers.items()}
        self._put(node.kind, node, node.inputs, node.output, {}, numbers)

    def _put(
        self,
        kind: str,
        node: Node,
        inputs: Sequence[Tensor],
        output: Tensor,
        attributes: dict[str, Any] | None = None,
        numbers: dict[str, np.ndarray] | None = None,
    ) -> Tensor:
        out = node.out if numbers is not None else None
        if kind in ("conv2d", "depthwise", "transposed") and numbers is not None:
            (x, w), numbers = inputs, dict(numbers)
            inputs = x, _positive(w, numbers, kind)
        step = Simple(kind, node.name, tuple(inputs), output, attributes or {}, numbers or {}, out)
        self.steps.append(step)
        return output

    def _fresh(self, like: Tensor, shape: Sequence[int]) -> Tensor:
        self.count += 1
        return replace(like, name=f"{like.name}/{self.count}", shape=tuple(shape), data=None)

    def transposed(self, node: Node, x: Tensor, order: Sequence[int]) -> Tensor:
        """`x` with its axes in another order; of a constant, a constant."""
        if list(order) == list(range(len(x.shape))):
            return x
        shape = [x.shape[a] for a in order]
        made = self._fresh(x, shape)
        made = replace(made, scale=_moved(x.scale, order), zero_point=_moved(x.zero_point, order))
        if x.data is not None:
            return replace(made, data=np.ascontiguousarray(x.data.transpose(order)))
        return self._put("transpose", node, [x], made, {"permutation": list(order)})

    def reshaped(self, node: Node, x: Tensor, shape: Sequence[int]) -> Tensor:
        """`x` in another shape."""
        if tuple(shape) == x.shape:
            return x
        made = self._fresh(x, shape)
        if x.data is not None:
            return replace(made, data=x.data.reshape(shape))
        return self._put("reshape", node, [x], made)

    def _onto(self, node: Node, made: Tensor, order: Sequence[int]) -> None:
        """Names a value as the node's result, with its axes in the node's order."""
        if list(order) != list(range(len(order))):
            self._put("transpose", node, [made], node.output, {"permutation": list(order)})
        elif made.shape != node.output.shape:
            self._put("reshape", node, [made], node.output)
        else:  # the last step made it: it takes the name
            last = self.steps.pop()
            self.steps.append(replace(last, output=node.output))

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
        a = self.transposed(node, a, [*batch[0], *free[0], *summed[0]])
        b = self.transposed(node, b, [*batch[1], *summed[1], *free[1]])
        shared = [node.inputs[0].shape[i] for i in batch[0]]
        m, n = ([x.shape[i] for i in f] for x, f in zip(node.inputs, free, strict=True))
        k = int(np.prod([node.inputs[0].shape[i] for i in summed[0]]))
        sizes = int(np.prod(shared)), int(np.prod(m)), int(np.prod(n))
        a = self.reshaped(node, a, (sizes[0], sizes[1], k))
        b = self.reshaped(node, b, (sizes[0], k, sizes[2]))
        made = self._fresh(node.output, sizes)
        numbers = {key: _flat(v, node) for key, v in node.numbers.items()}
        self._put("matmul", node, [a, b], made, {}, numbers)
        self._onto(node, made, range(len(node.output.shape)))

    def _dense(self, node: Node, side: int, free: list[list[int]], summed: Any) -> None:
        """A product with a weight is a 1x1 convolution over rows: it has a bias, and devices
        have it wherever they have convolutions."""
        x, w = node.inputs[1 - side], node.inputs[side]
        rows, columns = ([t.shape[i] for i in free[s]] for t, s in ((x, 1 - side), (w, side)))
        k = int(np.prod([x.shape[i] for i in summed[1 - side]]))
        r, n = int(np.prod(rows)), int(np.prod(columns))
        x = self.transposed(node, x, [*free[1 - side], *summed[1 - side]])
        x = self.reshaped(node, x, (1, r, 1, k))
        w = self.transposed(node, w, [*free[side], *summed[side]])
        scale = None if w.scale is None else np.broadcast_to(w.scale, w.shape)[_firsts(w, columns)]
        w = replace(self.reshaped(node, w, (n, 1, 1, k)), scale=_short(scale))
        made = self._fresh(node.output, (1, r, 1, n))
        at = len(rows) if side == 1 else 0
        axes = list(range(at, at + len(columns)))
        numbers = {key: _along(v, node, axes, columns) for key, v in node.numbers.items()}
        geometry = {"stride": [1, 1], "padding": [(0, 0), (0, 0)], "dilation": [1, 1]}
        self._put("conv2d", node, [x, w], made, geometry, numbers)
        if side == 0:  # the weight's axes come first
            made = self.reshaped(node, made, (*rows, *columns))
            order = [*range(len(rows), len(rows) + len(columns)), *range(len(rows))]
            self._onto(node, made, order)
        else:
            self._onto(node, made, range(len(node.output.shape)))

    # Windows

    def _convolution(self, node: Node) -> None:
        attrs = Attributes(node.attributes)
        d, (x, w) = Layout.of(attrs), node.inputs
        rank = len(d.input_spatial)
        if w.data is None:
            raise UserError("a convolution of two activations has no form here", op=node.name)
        if rank > 2 or groups_of(attrs, "batch_group_count") != 1:
            what = f"{rank} spatial axes" if rank > 2 else "batch groups"
            raise UserError(f"a convolution of {what} has no form here", op=node.name)
        x = self.transposed(node, x, [d.input_batch, *d.input_spatial, d.input_feature])
        w = self.transposed(node, w, [d.kernel_out, *d.kernel_spatial, d.kernel_in])
        reversal = node.attributes.get("window_reversal")
        turned = list(ir.DenseBoolArrayAttr(reversal)) if reversal is not None else [False] * rank
        w = replace(w, data=np.flip(w.values, tuple(1 + i for i, t in enumerate(turned) if t)))
        geometry: dict[str, Any] = {
            "stride": list(integers(attrs, "window_strides")) or [1] * rank,
            "padding": padding_of(attrs),
            "dilation": list(integers(attrs, "rhs_dilation")) or [1] * rank,
        }
        spread = list(integers(attrs, "lhs_dilation")) or [1] * rank
        out = [node.output.shape[a] for a in d.output_order]
        if rank < 2:  # along the second axis of two
            lacking = 2 - rank
            x = self.reshaped(node, x, (x.shape[0], *[1] * lacking, *x.shape[1:]))
            w = self.reshaped(node, w, (w.shape[0], *[1] * lacking, *w.shape[1:]))
            geometry = {
                key: [*[(0, 0) if key == "padding" else 1] * lacking, *v]
                for key, v in geometry.items()
            }
            spread = [1] * lacking + spread
            out = [out[0], *[1] * lacking, *out[1:]]
        made = self._fresh(node.output, out)
        features = [d.output_feature], [node.output.shape[d.output_feature]]
        numbers = {key: _along(v, node, *features) for key, v in node.numbers.items()}
        w = replace(w, scale=None if w.scale is None else _short(w.scale.reshape(-1)))
        self._windows(node, x, w, made, geometry, spread, numbers, groups_of(attrs))
        order = [d.output_order.index(a) for a in range(len(d.output_order))]
        if rank < 2:
            made = self.reshaped(node, made, [node.output.shape[a] for a in d.output_order])
        self._onto(node, made, order)

    def _windows(
        self,
        node: Node,
        x: Tensor,
        w: Tensor,
        made: Tensor,
        geometry: dict[str, Any],
        spread: list[int],
        numbers: dict[str, np.ndarray],
        groups: int,
    ) -> None:
        if max(spread) > 1:
            self._transposed_windows(node, x, w, made, geometry, spread, numbers, groups)
            return
        x, geometry = self._cut(node, x, geometry)
        if groups == x.shape[3] and w.shape[3] == 1:
            filters = w.values.reshape(groups, -1, *w.shape[1:3]).transpose(2, 3, 0, 1)
            w = replace(w, shape=filters.shape, data=np.ascontiguousarray(filters))
            self._put("depthwise", node, [x, w], made, geometry, numbers)
        elif groups == 1:
            self._put("conv2d", node, [x, w], made, geometry, numbers)
        else:
            self._grouped(node, x, w, made, geometry, numbers, groups)

    def _cut(
        self, node: Node, x: Tensor, geometry: dict[str, Any]
    ) -> tuple[Tensor, dict[str, Any]]:
        """Negative padding is a slice in front."""
        padding = geometry["padding"]
        if all(v >= 0 for pair in padding for v in pair):
            return x, geometry
        low = [0, *(max(0, -p[0]) for p in padding), 0]
        high = [0, *(max(0, -p[1]) for p in padding), 0]
        size = [n - a - b for n, a, b in zip(x.shape, low, high, strict=True)]
        x = self._put("slice", node, [x], self._fresh(x, size), {"start": low, "size": size})
        return x, geometry | {"padding": [(max(0, a), max(0, b)) for a, b in padding]}

    def _grouped(
        self,
        node: Node,
        x: Tensor,
        w: Tensor,
        made: Tensor,
        geometry: dict[str, Any],
        numbers: dict[str, np.ndarray],
        groups: int,
    ) -> None:
        """Each group is a convolution of its own channels."""
        parts, (i, o) = [], (x.shape[3] // groups, w.shape[0] // groups)
        for g in range(groups):
            part = self._fresh(x, (*x.shape[:3], i))
            cut = {"start": [0, 0, 0, g * i], "size": list(part.shape)}
            self._put("slice", node, [x], part, cut)
            own = slice(g * o, (g + 1) * o)
            filters = replace(
                self._fresh(w, (o, *w.shape[1:])),
                data=w.values[own],
                scale=w.scale if w.scale is None or w.scale.size == 1 else w.scale[own],
            )
            result = self._fresh(made, (*made.shape[:3], o))
            mine = {k: v if v.size == 1 else v[own] for k, v in numbers.items()}
            parts.append(self._put("conv2d", node, [part, filters], result, geometry, mine))
        self._put("concatenate", node, parts, made, {"axis": 3})

    def _transposed_windows(
        self,
        node: Node,
        x: Tensor,
        w: Tensor,
        made: Tensor,
        geometry: dict[str, Any],
        spread: list[int],
        numbers: dict[str, np.ndarray],
        groups: int,
    ) -> None:
        """Zeros between elements: each input element is spread by the filter, turned around."""
        if groups != 1 or geometry["stride"] != [1, 1] or geometry["dilation"] != [1, 1]:
            what = "groups" if groups != 1 else "a stride or a dilated filter"
            raise UserError(f"a transposed convolution with {what} has no form here", op=node.name)
        kernel = w.shape[1:3]
        padding = [
            (low - (k - 1), high - (k - 1))
            for (low, high), k in zip(geometry["padding"], kernel, strict=True)
        ]
        w = replace(w, data=np.ascontiguousarray(np.flip(w.values, (1, 2))))
        geometry = {"stride": spread, "out_padding": padding}
        self._put("transposed", node, [x, w], made, geometry, numbers)

    def _pool(self, node: Node) -> None:
        attrs, x = Attributes(node.attributes), node.inputs[0]
        rank = len(x.shape)
        ones = [1] * rank
        window = list(integers(attrs, "window_dimensions"))
        stride = list(integers(attrs, "window_strides")) or ones
        dilated = (integers(attrs, k) for k in ("base_dilations", "window_dilations"))
        if any(max(d, default=1) > 1 for d in dilated):
            raise UserError("a pool over a spread tensor has no form here", op=node.name)
        given = node.attributes.get("padding")
        padding = np.zeros((rank, 2), int) if given is None else np.array(given).reshape(rank, 2)
        over = [a for a in range(rank) if window[a] > 1 or stride[a] > 1 or padding[a].any()]
        if len(over) > 2:
            raise UserError("a pool over more than two axes has no form here", op=node.name)
        others = [a for a in range(rank) if a not in over]
        while len(over) < 2:
            over.insert(0, others.pop(-2) if len(others) > 1 else others.pop(0))
        order = [*others[:-1], *over, *others[-1:]]
        x = self.transposed(node, x, order)
        moved = [node.output.shape[a] for a in order]
        lead, tail = len(others[:-1]), len(others[-1:])
        flat = (
            int(np.prod(x.shape[:lead])),
            *x.shape[lead : lead + 2],
            *(x.shape[-1:] if tail else [1]),
        )
        x = self.reshaped(node, x, flat)
        made = self._fresh(node.output, (flat[0], *moved[lead : lead + 2], flat[3]))
        geometry = {
            "window": [window[a] for a in over],
            "stride": [stride[a] for a in over],
            "padding": [tuple(map(int, padding[a])) for a in over],
        }
        numbers = {k: _flat(v, node) for k, v in node.numbers.items()}
        kind = "sum_pool" if node.kind == "sum" else node.kind.replace("reduce_window", "pool")
        kind = {"pool_maximum": "max_pool", "pool_minimum": "min_pool"}.get(kind, kind)
        self._put(kind, node, [x], made, geometry, numbers if node.out else None)
        if tuple(moved) != made.shape:
            made = self.reshaped(node, made, moved)
        self._onto(node, made, [order.index(a) for a in range(rank)])

    def _reduced(self, node: Node) -> None:
        """Sums along all axes at once; extremes along one after the other."""
        axes, x = list(integers(Attributes(node.attributes), "dimensions")), node.inputs[0]
        kind = {"sum": "sum", "reduce_maximum": "max", "reduce_minimum": "min"}[node.kind]
        numbers = {k: _flat(v, node) for k, v in node.numbers.items()}
        shape = list(x.shape)
        if kind == "sum":
            for axis in axes:
                shape[axis] = 1
            made = self._fresh(node.output, shape)
            self._put("sum", node, [x], made, {"axes": axes}, numbers)
        for axis in axes if kind != "sum" else ():
            shape[axis] = 1
            made = self._fresh(node.output, shape)
            x = self._put(kind, node, [x], made, {"axis": axis})
        self._onto(node, made, range(len(node.output.shape)))

    # Moves

    def _reshape(self, node: Node) -> None:
        self._put("reshape", node, node.inputs[:1], node.output)

    def _transpose(self, node: Node) -> None:
        order = list(integers(Attributes(node.attributes), "permutation"))
        self._put("transpose", node, node.inputs[:1], node.output, {"permutation": order})

    def _reverse(self, node: Node) -> None:
        (x,), axes = node.inputs, integers(Attributes(node.attributes), "dimensions")
        for i, axis in enumerate(axes):
            made = node.output if i == len(axes) - 1 else self._fresh(node.output, x.shape)
            x = self._put("reverse", node, [x], made, {"axis": axis})

    def _concatenate(self, node: Node) -> None:
        axis = ir.IntegerAttr(node.attributes["dimension"]).value
        self._put("concatenate", node, node.inputs, node.output, {"axis": axis})

    def _slice(self, node: Node) -> None:
        attrs = Attributes(node.attributes)
        start, limit = (list(integers(attrs, k)) for k in ("start_indices", "limit_indices"))
        stride = list(integers(attrs, "strides"))
        if max(stride, default=1) > 1:
            raise UserError("a slice of every second element has no form here", op=node.name)
        size = [b - a for a, b in zip(start, limit, strict=True)]
        self._put("slice", node, node.inputs, node.output, {"start": start, "size": size})

    def _pad(self, node: Node) -> None:
        attrs, (x, value) = Attributes(node.attributes), node.inputs
        low, high, inner = (
            list(integers(attrs, f"{k}_padding" if k == "interior" else f"edge_padding_{k}"))
            for k in ("low", "high", "interior")
        )
        if max(inner, default=0) > 0 or value.data is None:
            raise UserError("padding between elements has no form here", op=node.name)
        if min([*low, *high], default=0) < 0:
            start = [max(0, -v) for v in low]
            size = [n - s - max(0, -v) for n, s, v in zip(x.shape, start, high, strict=True)]
            x = self._put("slice", node, [x], self._fresh(x, size), {"start": start, "size": size})
        pairs = [(max(0, a), max(0, b)) for a, b in zip(low, high, strict=True)]
        number = int(value.data.reshape(()))
        self._put("pad", node, [x], node.output, {"padding": pairs, "value": number})

    def _gather(self, node: Node) -> None:
        """Rows along the first axis, as of an embedding."""
        x, index = node.inputs
        d = stablehlo.GatherDimensionNumbers(node.attributes["dimension_numbers"])
        sizes = list(integers(Attributes(node.attributes), "slice_sizes"))
        last, rank = d.index_vector_dim, len(node.output.shape)
        shape = [n for a, n in enumerate(index.shape) if a != last]
        trailing = list(range(len(shape), rank))
        if (
            (list(d.collapsed_slice_dims), list(d.start_index_map)) != ([0], [0])
            or sizes != [1, *x.shape[1:]]
            or list(d.offset_dims) != trailing
            or list(d.operand_batching_dims)
        ):
            raise UserError("a gather of anything but rows has no form here", op=node.name)
        index = self.reshaped(node, index, shape)
        self._put("gather_rows", node, [x, index], node.output)

    def _broadcast_in_dim(self, node: Node) -> None:
        (x,), shape = node.inputs, node.output.shape
        axes = list(integers(Attributes(node.attributes), "broadcast_dimensions"))
        order = sorted(range(len(axes)), key=axes.__getitem__)
        x = self.transposed(node, x, order)
        kept = [1] * len(shape)
        for at, source in enumerate(order):
            kept[axes[source]] = x.shape[at]
        x = self.reshaped(node, x, kept)
        repeats = [n // k for n, k in zip(shape, kept, strict=True)]
        self._put("tile", node, [x], node.output, {"repeats": repeats})


def _positive(w: Tensor, numbers: dict[str, np.ndarray], kind: str) -> Tensor:
    """Filters with the signs of their factors, which become positive, as the bias does: the sums
    change their signs. Forms have no negative factors."""
    factor, data = numbers["factor"], w.values
    if (factor >= 0).all() or data.min(initial=0) == np.iinfo(w.dtype).min:
        return w
    sign = np.where(factor.reshape(-1) < 0, -1, 1)
    numbers |= {"factor": np.abs(factor), "bias": numbers["bias"] * sign}
    if kind == "depthwise":
        data = (data.reshape(*w.shape[:2], -1) * sign).reshape(w.shape)
    else:
        data = data * sign.reshape(-1, 1, 1, 1)
    return replace(w, name=f"{w.name} signed", data=data.astype(w.dtype))


def _flat(value: np.ndarray, node: Node) -> np.ndarray:
    """Numbers of a whole tensor, or one for each element of the last axis."""
    if value.size == 1 or value.ndim == 0:
        return value.reshape(-1)
    if value.ndim == len(node.output.shape) and value.size == value.shape[-1]:
        return value.reshape(-1)
    return value


def _along(value: np.ndarray, node: Node, axes: list[int], sizes: list[int]) -> np.ndarray:
    """Numbers that depend on some axes of the result alone, as one vector."""
    if value.size == 1:
        return value.reshape(-1)
    others = [a for a in range(value.ndim) if a not in axes]
    if any(value.shape[a] > 1 for a in others):
        raise UserError("its parameters differ along more than the channels", op=node.name)
    moved = value.transpose([*axes, *others]).reshape([value.shape[a] for a in axes])
    return np.broadcast_to(moved, sizes).reshape(-1)


def _moved(grid: np.ndarray | None, order: Sequence[int]) -> np.ndarray | None:
    """A grid of parameters with the axes of a tensor that was transposed."""
    return grid if grid is None or grid.ndim != len(order) else grid.transpose(order)


def _firsts(w: Tensor, columns: Sequence[int]) -> tuple[Any, ...]:
    return (*(slice(None) for _ in columns), *(0 for _ in w.shape[len(columns) :]))


def _short(scale: np.ndarray | None) -> np.ndarray | None:
    """One number, or one a channel."""
    if scale is None:
        return None
    flat = np.ascontiguousarray(scale).reshape(-1)
    return flat[:1] if (flat == flat[0]).all() else flat
