"""Convolutions and pools of any dimension numbers as windows over NHWC."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.device.forms.canonical.base import Simple, Steps, along, flat, short
from jq.device.network import Node, Tensor
from jq.ir.ops.geometry import of_window
from jq.ir.ops.layout import Window, groups_of

_COMBINED = {"maximum": "maximum", "minimum": "minimum", "add": "integer_add"}
_COMBINED |= {"and": "logical_and", "or": "logical_or"}


class Windows(Steps):
    """Adds convolutions and pools."""

    def _convolution(self, node: Node) -> None:
        x, w = node.inputs
        window = Window.of(node, w.shape)
        d, rank, groups = window.layout, len(window.sizes), groups_of(node)
        if w.data is None or groups_of(node, "batch_group_count") != 1:
            what = "two activations" if w.data is None else "batch groups"
            raise UserError(f"a convolution of {what} has no form here", op=node.name)
        x = self.transposed(x, [d.input_batch, *d.input_spatial, d.input_feature])
        w = self.transposed(w, [d.kernel_out, *d.kernel_spatial, d.kernel_in])
        turned = tuple(1 + i for i, back in enumerate(window.reversal) if back)
        w = replace(w, data=np.flip(w.values, turned))
        geometry: dict[str, Any] = {
            "stride": list(window.strides),
            "padding": list(window.padding),
            "dilation": list(window.dilations),
        }
        spread = list(window.spacing)
        out = [node.output.shape[a] for a in d.output_order]
        for _ in range(rank - 2):
            x, w = self._unfolded(node, x, w, geometry, spread.pop(0), groups)
            out[:2] = [out[0] * out[1]]
        if rank < 2:  # along the second axis of two
            ones = [1] * (2 - rank)
            x, w = (self.reshaped(t, (t.shape[0], *ones, *t.shape[1:])) for t in (x, w))
            geometry = {k: [*ones, *v] for k, v in geometry.items()}
            geometry["padding"][: len(ones)] = [(0, 0)] * len(ones)
            spread, out = ones + spread, [out[0], *ones, *out[1:]]
        made = self.fresh(node.output, out)
        features = [d.output_feature], [node.output.shape[d.output_feature]]
        numbers = {key: along(v, node, *features) for key, v in node.numbers.items()}
        w = replace(w, scale=None if w.scale is None else short(w.scale.reshape(-1)))
        step = Simple("conv2d", node.name, (x, w), made, geometry, numbers)
        self._windows(node, step, spread, groups)
        self.in_order(made, d.output_order)

    def _unfolded(
        self, node: Node, x: Tensor, w: Tensor, geometry: dict[str, Any], spread: int, groups: int
    ) -> tuple[Tensor, Tensor]:
        """A convolution without its first spatial axis: what a window reads along it is channels,
        and its places are part of the batch."""
        stride, sides, dilation = (geometry[k].pop(0) for k in ("stride", "padding", "dilation"))
        x = self.spread(x, [1, spread, *[1] * (len(x.shape) - 2)], x.zero)
        x = self.padded(x, [(0, 0), sides, *[(0, 0)] * (len(x.shape) - 2)], x.zero)
        parts = self.shifted(x, 1, w.shape[1], stride, dilation)
        shape = parts[0].shape
        rows = math.prod(shape[:-1]), groups, x.shape[-1] // groups
        x = self.joined([self.reshaped(part, rows) for part in parts], 2)
        x = self.reshaped(x, (shape[0] * shape[1], *shape[2:-1], math.prod(x.shape[1:])))
        data = np.moveaxis(w.values, 1, -2)
        data = data.reshape(*data.shape[:-2], -1)
        return x, replace(w, shape=data.shape, data=data)

    def _windows(self, node: Node, step: Simple, spread: list[int], groups: int) -> None:
        (x, w), geometry = step.inputs, step.attributes
        depthwise = groups == x.shape[3] and w.shape[3] == 1 and max(spread) == 1
        if groups > 1 and not depthwise:
            self._grouped(node, step, spread, groups)
            return
        if max(spread) > 1 and geometry["stride"] == [1, 1]:
            self._transposed_windows(node, step, spread)
            return
        x, padding = self.spread(x, [1, *spread, 1], x.zero), np.array(geometry["padding"])
        x = self.padded(x, [(0, 0), *np.minimum(padding, 0), (0, 0)])
        if depthwise:
            filters = w.values.reshape(groups, -1, *w.shape[1:3]).transpose(2, 3, 0, 1)
            w = replace(w, shape=filters.shape, data=np.ascontiguousarray(filters))
        how = geometry | {"padding": np.maximum(padding, 0).tolist()}
        kind = "depthwise" if depthwise else "conv2d"
        self.put(kind, [x, w], step.output, how, step.numbers)

    def _grouped(self, node: Node, step: Simple, spread: list[int], groups: int) -> None:
        """Each group is a convolution of its own channels."""
        (x, w), made, numbers = step.inputs, step.output, step.numbers
        parts, (i, o) = list[Tensor](), (x.shape[3] // groups, w.shape[0] // groups)
        for g in range(groups):
            part = self.part(x, [0, 0, 0, g * i], [*x.shape[:3], i])
            own = slice(g * o, (g + 1) * o)
            scale = w.scale if w.scale is None or w.scale.size == 1 else w.scale[own]
            filters = self.part(w, [g * o, 0, 0, 0], [o, *w.shape[1:]])
            parts.append(self.fresh(made, (*made.shape[:3], o)))
            mine = {k: v if v.size == 1 else v[own] for k, v in numbers.items()}
            own_step = replace(
                step, inputs=(part, replace(filters, scale=scale)), output=parts[-1], numbers=mine
            )
            self._windows(node, own_step, spread, 1)
        self.put("concatenate", parts, made, {"axis": 3})

    def _transposed_windows(self, node: Node, step: Simple, spread: list[int]) -> None:
        """Zeros between elements: each input element is spread by the filter, turned around, which
        has the zeros of a dilated filter and those beyond all elements."""
        (x, w), geometry = step.inputs, step.attributes
        by = geometry["dilation"]
        sizes = [(n - 1) * d + 1 for n, d in zip(w.shape[1:3], by, strict=True)]
        filters = np.zeros((w.shape[0], *sizes, w.shape[3]), w.dtype)
        filters[:, :: by[0], :: by[1]] = w.values
        padding = np.array(geometry["padding"]) - np.array(sizes)[:, None] + 1
        beyond = [(0, 0), *np.maximum(padding, 0).tolist(), (0, 0)]
        filters = np.ascontiguousarray(np.pad(np.flip(filters, (1, 2)), beyond))
        w = replace(w, shape=filters.shape, data=filters)
        how = {"stride": spread, "out_padding": np.minimum(padding, 0).tolist()}
        self.put("transposed", [x, w], step.output, how, step.numbers)

    def _pool(self, node: Node) -> None:
        x, g = node.inputs[0], of_window(node)
        rank, window, stride, dilation = len(x.shape), g.window, g.stride, g.dilation
        padding = np.array(g.padding)
        over = [a for a in range(rank) if window[a] > 1 or stride[a] > 1 or padding[a].any()]
        value = x.zero if node.kind == "sum" else int(node.inputs[1].values)
        x = self.spread(x, g.interior, value)
        plain = len(over) < 3 and max(dilation, default=1) == 1 and (padding >= 0).all()
        if node.kind != "sum" and not (plain and node.kind.endswith("maximum")):
            self.folded(x, window, stride, padding, dilation)
            return
        numbers = {k: flat(v, node) for k, v in node.numbers.items()}
        if not plain:  # all that a window reads, behind one another
            x = self.padded(x, padding, value)
            for axis, each in enumerate(zip(window, stride, dilation, strict=True)):
                x = self.joined(self.shifted(x, axis, *each), 0)
            shape = math.prod(node.output.shape[:-1]), *node.output.shape[-1:]
            x = self.reshaped(x, (math.prod(window), *shape))
            made = self.fresh(node.output, (1, *shape))
            self.put("sum", [x], made, {"axes": [0]}, numbers)
            self.named(made)
            return
        others = [a for a in range(rank) if a not in over]
        while len(over) < 2:
            over.insert(0, others.pop(-2) if len(others) > 1 else others.pop(0))
        order = [*others[:-1], *over, *others[-1:]]
        x = self.transposed(x, order)
        moved = [node.output.shape[a] for a in order]
        lead, tail = len(others[:-1]), len(others[-1:])
        nhwc = (math.prod(x.shape[:lead]), *x.shape[lead : lead + 2], x.shape[-1] if tail else 1)
        x = self.reshaped(x, nhwc)
        made = self.fresh(node.output, (nhwc[0], *moved[lead : lead + 2], nhwc[3]))
        geometry = {
            "window": [window[a] for a in over],
            "stride": [stride[a] for a in over],
            "padding": [tuple(map(int, padding[a])) for a in over],
        }
        kind = "sum_pool" if node.kind == "sum" else "max_pool"
        self.put(kind, [x], made, geometry, numbers if node.out else None)
        self.in_order(made, order)

    def folded(self, x: Tensor, window: Any, stride: Any, padding: Any, dilation: Any) -> None:
        """Windows that forms do not have: shifted parts are combined, axis by axis."""
        node = self.node
        if (kind := _COMBINED.get(node.kind.rpartition("_")[2])) is None:
            raise UserError(f"{node.kind} of {x.dtype} has no form here", op=node.name)
        x = self.padded(x, padding, int(node.inputs[1].values))
        for axis, each in enumerate(zip(window, stride, dilation, strict=True)):
            x, *others = self.shifted(x, axis, *each)
            for other in others:
                x = self.put(kind, [x, other], self.fresh(x, x.shape))
        self.named(x)

    def shifted(self, x: Tensor, axis: int, k: int, stride: int, dilation: int) -> list[Tensor]:
        """The elements that all windows of `k` along an axis read, by their place in the window."""
        size, by = [*x.shape], [1] * len(x.shape)
        size[axis] = (size[axis] - (k - 1) * dilation - 1) // stride + 1
        by[axis] = stride
        starts = ([i * dilation * (a == axis) for a in range(len(by))] for i in range(k))
        return [self.strided(x, at, size, by) for at in starts]

    def cut(self, x: Tensor, axis: int, start: int, end: int) -> Tensor:
        """A part along one axis."""
        size, first = [*x.shape], [start * (a == axis) for a in range(len(x.shape))]
        size[axis] = end - start
        return self.part(x, first, size)

    def joined(self, xs: Sequence[Tensor], axis: int) -> Tensor:
        """Tensors one after the other, without those that are nothing."""
        x, *others = xs = [x for x in xs if x.shape[axis]]
        shape = [sum(x.shape[axis] for x in xs) if a == axis else n for a, n in enumerate(x.shape)]
        made = self.fresh(x, shape)
        return self.put("concatenate", xs, made, {"axis": axis}) if others else x

    def spread(self, x: Tensor, by: Sequence[int], value: int) -> Tensor:
        """A tensor with its elements `by` steps apart along each axis, and a number between."""
        for axis in (a for a, s in enumerate(by) if s > 1):
            n, rest = x.shape[axis], math.prod(x.shape[axis + 1 :])
            shape = [*x.shape[:axis], n * by[axis], *x.shape[axis + 1 :]]
            x = self.reshaped(x, (math.prod(x.shape[:axis]), n, rest))
            x = self.padded(x, [(0, 0), (0, 0), (0, (by[axis] - 1) * rest)], value)
            x = self.cut(self.reshaped(x, shape), axis, 0, (n - 1) * by[axis] + 1)
        return x
