"""Convolutions and pools of any dimension numbers as windows over NHWC."""

from dataclasses import replace
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.device.forms.canonical.base import Simple, Steps, along, flat, short
from jq.device.network import Node, Tensor
from jq.ir import ir
from jq.ir.build import Attributes, integers
from jq.ir.ops.layout import Layout, groups_of, padding_of

_COMBINED = {"maximum": "maximum", "minimum": "minimum", "add": "integer_add"}
_COMBINED |= {"and": "logical_and", "or": "logical_or"}


class Windows(Steps):
    """Adds convolutions and pools."""

    def _convolution(self, node: Node) -> None:
        attrs = Attributes(node.attributes)
        d, (x, w) = Layout.of(attrs), node.inputs
        rank = len(d.input_spatial)
        if w.data is None:
            raise UserError("a convolution of two activations has no form here", op=node.name)
        if rank > 2 or groups_of(attrs, "batch_group_count") != 1:
            what = f"{rank} spatial axes" if rank > 2 else "batch groups"
            what = f"a convolution of {what} has no form here"
            raise UserError(what, op=node.name, hint="cut the model there")
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
            ones = [1] * (2 - rank)
            x, w = (self.reshaped(node, t, (t.shape[0], *ones, *t.shape[1:])) for t in (x, w))
            geometry = {k: [*ones, *v] for k, v in geometry.items()}
            geometry["padding"][: len(ones)] = [(0, 0)] * len(ones)
            spread, out = ones + spread, [out[0], *ones, *out[1:]]
        made = self.fresh(node.output, out)
        features = [d.output_feature], [node.output.shape[d.output_feature]]
        numbers = {key: along(v, node, *features) for key, v in node.numbers.items()}
        w = replace(w, scale=None if w.scale is None else short(w.scale.reshape(-1)))
        step = Simple("conv2d", node.name, (x, w), made, geometry, numbers)
        self._windows(node, step, spread, groups_of(attrs))
        order = [d.output_order.index(a) for a in range(len(d.output_order))]
        made = self.reshaped(node, made, [node.output.shape[a] for a in d.output_order])
        self.onto(node, made, order)

    def _windows(self, node: Node, step: Simple, spread: list[int], groups: int) -> None:
        (x, w), geometry = step.inputs, step.attributes
        depthwise = groups == x.shape[3] and w.shape[3] == 1 and max(spread) == 1
        if groups > 1 and not depthwise:
            self._grouped(node, step, spread, groups)
            return
        if max(spread) > 1:
            self._transposed_windows(node, step, spread)
            return
        padding = np.array(geometry["padding"])
        x = self.padded(node, x, [(0, 0), *np.minimum(padding, 0), (0, 0)])
        if depthwise:
            filters = w.values.reshape(groups, -1, *w.shape[1:3]).transpose(2, 3, 0, 1)
            w = replace(w, shape=filters.shape, data=np.ascontiguousarray(filters))
        kind = "depthwise" if depthwise else "conv2d"
        geometry = geometry | {"padding": np.maximum(padding, 0).tolist()}
        self.put(kind, node, [x, w], step.output, geometry, step.numbers)

    def _grouped(self, node: Node, step: Simple, spread: list[int], groups: int) -> None:
        """Each group is a convolution of its own channels."""
        (x, w), made, numbers = step.inputs, step.output, step.numbers
        parts, (i, o) = list[Tensor](), (x.shape[3] // groups, w.shape[0] // groups)
        for g in range(groups):
            part = self.part(node, x, [0, 0, 0, g * i], [*x.shape[:3], i])
            own = slice(g * o, (g + 1) * o)
            filters = replace(
                self.fresh(w, (o, *w.shape[1:])),
                data=w.values[own],
                scale=w.scale if w.scale is None or w.scale.size == 1 else w.scale[own],
            )
            parts.append(self.fresh(made, (*made.shape[:3], o)))
            mine = {k: v if v.size == 1 else v[own] for k, v in numbers.items()}
            own_step = replace(step, inputs=(part, filters), output=parts[-1], numbers=mine)
            self._windows(node, own_step, spread, 1)
        self.put("concatenate", node, parts, made, {"axis": 3})

    def _transposed_windows(self, node: Node, step: Simple, spread: list[int]) -> None:
        """Zeros between elements: each input element is spread by the filter, turned around, which
        has the zeros of a dilated filter and those beyond all elements."""
        (x, w), geometry = step.inputs, step.attributes
        if geometry["stride"] != [1, 1]:
            raise UserError("a transposed convolution with a stride has no form here", op=node.name)
        by = geometry["dilation"]
        sizes = [(n - 1) * d + 1 for n, d in zip(w.shape[1:3], by, strict=True)]
        filters = np.zeros((w.shape[0], *sizes, w.shape[3]), w.dtype)
        filters[:, :: by[0], :: by[1]] = w.values
        sides = zip(geometry["padding"], sizes, strict=True)
        padding = np.array([(low - (k - 1), high - (k - 1)) for (low, high), k in sides])
        beyond = [(0, 0), *np.maximum(padding, 0).tolist(), (0, 0)]
        filters = np.ascontiguousarray(np.pad(np.flip(filters, (1, 2)), beyond))
        w = replace(w, shape=filters.shape, data=filters)
        how = {"stride": spread, "out_padding": np.minimum(padding, 0).tolist()}
        self.put("transposed", node, [x, w], step.output, how, step.numbers)

    def _pool(self, node: Node) -> None:
        attrs, x = Attributes(node.attributes), node.inputs[0]
        rank = len(x.shape)
        window = list(integers(attrs, "window_dimensions"))
        keys = "window_strides", "window_dilations", "base_dilations"
        stride, dilation, spread = (list(integers(attrs, key)) or [1] * rank for key in keys)
        given = node.attributes.get("padding")
        padding = np.zeros((rank, 2), int) if given is None else np.array(given).reshape(rank, 2)
        over = [a for a in range(rank) if window[a] > 1 or stride[a] > 1 or padding[a].any()]
        if max(spread, default=1) > 1:
            raise UserError("a pool over a spread tensor has no form here", op=node.name)
        plain = len(over) < 3 and max(dilation, default=1) == 1 and (padding >= 0).all()
        if node.kind != "sum" and not (plain and node.kind.endswith("maximum")):
            self.folded(node, window, stride, padding, dilation)
            return
        if not plain:
            what = "sums of windows that are dilated, cut or of three axes have no form here"
            raise UserError(what, op=node.name)
        others = [a for a in range(rank) if a not in over]
        while len(over) < 2:
            over.insert(0, others.pop(-2) if len(others) > 1 else others.pop(0))
        order = [*others[:-1], *over, *others[-1:]]
        x = self.transposed(node, x, order)
        moved = [node.output.shape[a] for a in order]
        lead, tail = len(others[:-1]), len(others[-1:])
        rows, columns = x.shape[lead : lead + 2]
        nhwc = (int(np.prod(x.shape[:lead])), rows, columns, *(x.shape[-1:] if tail else [1]))
        x = self.reshaped(node, x, nhwc)
        made = self.fresh(node.output, (nhwc[0], *moved[lead : lead + 2], nhwc[3]))
        geometry = {
            "window": [window[a] for a in over],
            "stride": [stride[a] for a in over],
            "padding": [tuple(map(int, padding[a])) for a in over],
        }
        numbers = {k: flat(v, node) for k, v in node.numbers.items()}
        kind = "sum_pool" if node.kind == "sum" else "max_pool"
        self.put(kind, node, [x], made, geometry, numbers if node.out else None)
        made = self.reshaped(node, made, moved)
        self.onto(node, made, [order.index(a) for a in range(rank)])

    def folded(self, node: Node, window: Any, stride: Any, padding: Any, dilation: Any) -> None:
        """Windows that forms do not have: shifted parts are combined, axis by axis."""
        x, start = node.inputs
        if (kind := _COMBINED.get(node.kind.rpartition("_")[2])) is None:
            raise UserError(f"{node.kind} of {x.dtype} has no form here", op=node.name)
        x = self.padded(node, x, padding, int(start.values))
        for axis, (k, s, d) in enumerate(zip(window, stride, dilation, strict=True)):
            before, after = x.shape[:axis], x.shape[axis + 1 :]
            size = [*before, (x.shape[axis] - (k - 1) * d - 1) // s + 1, *after]
            by = [1] * len(before) + [s] + [1] * len(after)
            starts = ([i * d * (a == axis) for a in range(len(by))] for i in range(k))
            first, *others = [self.strided(node, x, at, size, by) for at in starts]
            for other in others:
                first = self.put(kind, node, [first, other], self.fresh(x, size))
            x = first
        self.named(node, x, node.output)
