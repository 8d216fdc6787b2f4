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
            lacking = 2 - rank
            x = self.reshaped(node, x, (x.shape[0], *[1] * lacking, *x.shape[1:]))
            w = self.reshaped(node, w, (w.shape[0], *[1] * lacking, *w.shape[1:]))
            geometry = {
                key: [*[(0, 0) if key == "padding" else 1] * lacking, *v]
                for key, v in geometry.items()
            }
            spread = [1] * lacking + spread
            out = [out[0], *[1] * lacking, *out[1:]]
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
        if max(spread) > 1:
            self._transposed_windows(node, step, spread, groups)
            return
        x, geometry = self._cut(node, step.inputs[0], step.attributes)
        made, w, numbers = step.output, step.inputs[1], step.numbers
        if groups == x.shape[3] and w.shape[3] == 1:
            filters = w.values.reshape(groups, -1, *w.shape[1:3]).transpose(2, 3, 0, 1)
            w = replace(w, shape=filters.shape, data=np.ascontiguousarray(filters))
            self.put("depthwise", node, [x, w], made, geometry, numbers)
        elif groups == 1:
            self.put("conv2d", node, [x, w], made, geometry, numbers)
        else:
            self._grouped(node, replace(step, inputs=(x, w), attributes=geometry), groups)

    def _cut(
        self, node: Node, x: Tensor, geometry: dict[str, Any]
    ) -> tuple[Tensor, dict[str, Any]]:
        """Negative padding is a slice in front."""
        padding = geometry["padding"]
        low, high = ([0, *(max(0, -pair[end]) for pair in padding), 0] for end in (0, 1))
        size = [n - a - b for n, a, b in zip(x.shape, low, high, strict=True)]
        kept = [(max(0, a), max(0, b)) for a, b in padding]
        return self.part(node, x, low, size), geometry | {"padding": kept}

    def _grouped(self, node: Node, step: Simple, groups: int) -> None:
        """Each group is a convolution of its own channels."""
        (x, w), made, numbers = step.inputs, step.output, step.numbers
        parts, (i, o) = [], (x.shape[3] // groups, w.shape[0] // groups)
        for g in range(groups):
            part = self.part(node, x, [0, 0, 0, g * i], [*x.shape[:3], i])
            own = slice(g * o, (g + 1) * o)
            filters = replace(
                self.fresh(w, (o, *w.shape[1:])),
                data=w.values[own],
                scale=w.scale if w.scale is None or w.scale.size == 1 else w.scale[own],
            )
            result = self.fresh(made, (*made.shape[:3], o))
            mine = {k: v if v.size == 1 else v[own] for k, v in numbers.items()}
            given = [part, filters], result, step.attributes, mine
            parts.append(self.put("conv2d", node, *given))
        self.put("concatenate", node, parts, made, {"axis": 3})

    def _transposed_windows(self, node: Node, step: Simple, spread: list[int], groups: int) -> None:
        """Zeros between elements: each input element is spread by the filter, turned around."""
        (x, w), geometry = step.inputs, step.attributes
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
        self.put("transposed", node, [x, w], step.output, geometry, step.numbers)

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
        kind = "sum_pool" if node.kind == "sum" else node.kind.replace("reduce_window", "pool")
        kind = {"pool_maximum": "max_pool", "pool_minimum": "min_pool"}.get(kind, kind)
        self.put(kind, node, [x], made, geometry, numbers if node.out else None)
        made = self.reshaped(node, made, moved)
        self.onto(node, made, [order.index(a) for a in range(rank)])
