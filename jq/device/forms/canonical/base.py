"""The steps that a network becomes, and how they are put one after another.

| kind | inputs | attributes |
|---|---|---|
| `conv2d` | x NHWC, filter OHWI | `stride`, `padding` ((top, bottom), (left, right)), `dilation` |
| `depthwise` | x NHWC, filter HWCM | the same |
| `transposed` | x NHWC, filter OHWI | `stride`, `out_padding` (0 or less) |
| `matmul` | a [B, M, K], b [B, K, N] | |
| `fully_connected`, `average_pool`, `mean` | as `conv2d`, `sum_pool`, `sum` | |
| `max_pool`, `sum_pool` | x NHWC | `window`, `stride`, `padding` |
| `sum`; `max`, `min` | x | `axes`; `axis` (kept, of size 1) |
| `transpose` | x | `permutation` |
| `reshape` | x | |
| `pad` | x | `padding`, `value` |
| `slice` | x | `start`, `size` |
| `concatenate`, `reverse` | xs | `axis` |
| `tile` | x | `repeats` |
| `gather_rows` | x, indices within its first axis, of any shape | |
| `greater`, `greater_equal`, `equal`, `select` | (a condition,) a, b | |
| `logical_*`; `integer_add` and its like | conditions; int32 that are no codes | |
| `add`, `subtract`, `multiply`, `maximum`, `minimum`, `rescale`, `table`, `softmax`, ... | | |"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.device.network import Node, Tensor
from jq.formats.arrays import NUMPY
from jq.formats.integer_functions import NO_OUTPUT, Output, tabulated


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
    out: Output = NO_OUTPUT  # of moves

    @property
    def table(self) -> np.ndarray:
        """The code of every code, of a function of single ones."""
        steps, out = self.numbers["steps"].reshape(-1).astype(np.float64), self.out
        if "whole" in self.numbers:  # of 16 bits as well
            return np.clip(np.rint(steps) + out.zero_point, out.low, out.high).astype(out.dtype)
        return np.asarray(tabulated(NUMPY, np.arange(len(steps), dtype=np.int32), steps, out))


# Steps that TFLite's kernels round as they round no other (`own` in their numbers).
OWN = {"conv2d": "fully_connected", "sum": "mean", "sum_pool": "average_pool"}
OWN |= {"rescale": "kernel_rescale", "normalization": "unit_rows", "subtract": "squares"}


class Steps:
    """Adds steps, and names what lies between them."""

    node: Node  # that is added

    def __init__(self) -> None:
        self.steps: list[Simple] = []
        self.count = 0

    def put(
        self,
        kind: str,
        inputs: Sequence[Tensor],
        output: Tensor,
        attributes: dict[str, Any] | None = None,
        numbers: dict[str, np.ndarray] | None = None,
    ) -> Tensor:
        out = self.node.out if self.node.out and numbers is not None else NO_OUTPUT
        if kind in ("conv2d", "depthwise", "transposed") and numbers is not None:
            (x, w), numbers = inputs, dict(numbers)
            inputs = x, _positive(w, numbers, kind)
        if numbers and "own" in numbers:
            kind = OWN.get(kind, f"{kind}_own")
        given = tuple(inputs), output, attributes or {}, numbers or {}
        self.steps.append(Simple(kind, self.node.name, *given, out))
        return output

    def fresh(self, like: Tensor, shape: Sequence[int]) -> Tensor:
        self.count += 1
        return replace(like, name=f"{like.name}/{self.count}", shape=tuple(shape), data=None)

    def transposed(self, x: Tensor, order: Sequence[int]) -> Tensor:
        """`x` with its axes in another order; of a constant, a constant."""
        if list(order) == list(range(len(x.shape))):
            return x
        made = self.fresh(x, [x.shape[a] for a in order])
        made = replace(made, scale=_moved(x.scale, order), zero_point=_moved(x.zero_point, order))
        if x.data is not None:
            return replace(made, data=np.ascontiguousarray(x.data.transpose(order)))
        return self.put("transpose", [x], made, {"permutation": list(order)})

    def reshaped(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """`x` in another shape."""
        if tuple(shape) == x.shape:
            return x
        made = self.fresh(x, shape)
        if x.data is not None:
            return replace(made, data=x.data.reshape(shape))
        return self.put("reshape", [x], made)

    def part(self, x: Tensor, start: Sequence[int], size: Sequence[int]) -> Tensor:
        """A part of a tensor; of a constant, a constant."""
        if tuple(size) == x.shape:
            return x
        made = self.fresh(x, size)
        if 0 in size:
            return made
        if x.data is not None:
            kept = tuple(slice(a, a + n) for a, n in zip(start, size, strict=True))
            return replace(made, data=x.data[kept])
        return self.put("slice", [x], made, {"start": list(start), "size": list(size)})

    def strided(
        self, x: Tensor, start: Sequence[int], size: Sequence[int], by: Sequence[int]
    ) -> Tensor:
        """`size` elements of a tensor along each axis, from `start` on, `by` steps apart."""
        ends = zip(size, by, start, x.shape, strict=True)
        x = self.part(x, start, [min(n * s, b - a) for n, s, a, b in ends])
        for axis in (a for a, s in enumerate(by) if s > 1):  # the first of every s is kept
            n, rest = size[axis], math.prod(x.shape[axis + 1 :])
            more = n * by[axis] - x.shape[axis]
            x = self.padded(x, [(0, more * (a == axis)) for a in range(len(size))], x.zero)
            shape = [*x.shape[:axis], n, *x.shape[axis + 1 :]]
            before = math.prod(shape[:axis])
            x = self.reshaped(x, (before, n, by[axis] * rest))
            x = self.reshaped(self.part(x, [0, 0, 0], [before, n, rest]), shape)
        return x

    def padded(self, x: Tensor, padding: Iterable[Sequence[int]], value: int = 0) -> Tensor:
        """A tensor with these elements more, or fewer, at both ends of each axis."""
        sides = [(int(a), int(b)) for a, b in padding]
        kept = [n + min(0, a) + min(0, b) for n, (a, b) in zip(x.shape, sides, strict=True)]
        x = self.part(x, [max(0, -a) for a, _ in sides], kept)
        pairs = [(max(0, a), max(0, b)) for a, b in sides]
        if not any(map(any, pairs)):
            return x
        made = self.fresh(x, [n + a + b for n, (a, b) in zip(x.shape, pairs, strict=True)])
        return self.put("pad", [x], made, {"padding": pairs, "value": value})

    def in_order(self, made: Tensor, order: Sequence[int]) -> None:
        """Names a value as the node's result, of which its axes are these in turn."""
        made = self.reshaped(made, [self.node.output.shape[a] for a in order])
        self.named(self.transposed(made, [order.index(a) for a in range(len(order))]))

    def named(self, made: Tensor) -> None:
        """Names a value as the node's result, in its shape: the last step takes the name, if that
        made it."""
        output = self.node.output
        if made.shape == output.shape and self.steps and self.steps[-1].output is made:
            self.steps.append(replace(self.steps.pop(), output=output))
        else:
            self.put("reshape", [made], output)

    def _same(self, node: Node) -> None:
        """A step on elements alike; the axes that its numbers differ by come last, as one."""
        rank, shape, inputs = len(node.output.shape), node.output.shape, node.inputs
        grids = [v.shape for v in node.numbers.values() if v.ndim == rank]
        axes = sorted({a for grid in grids for a, n in enumerate(grid) if n > 1})
        order = [*(a for a in range(rank) if a not in axes), *axes]
        alike = {x.shape for x in inputs} == {shape} or len(axes) == 1
        kept = "axis" in node.numbers or not alike or {len(x.shape) for x in inputs} != {rank}
        if kept or (order == sorted(order) and len(axes) < 2):  # of softmax its axis stays
            numbers = {k: flat(v, node) for k, v in node.numbers.items()}
            self.put(node.kind, inputs, node.output, {}, numbers)
            return
        grid = [n if a in axes else 1 for a, n in enumerate(shape)]
        numbers = {
            k: (np.broadcast_to(v, grid).transpose(order) if v.ndim == rank else v).reshape(-1)
            for k, v in node.numbers.items()
        }
        moved, first = [self.transposed(x, order) for x in inputs], rank - len(axes)
        last = ([*x.shape[:first], math.prod(x.shape[first:])] for x in moved)
        inputs = tuple(map(self.reshaped, moved, last))
        made = self.fresh(node.output, [*(shape[a] for a in order[:first]), math.prod(grid)])
        self.put(node.kind, inputs, made, {}, numbers)
        self.in_order(made, order)


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


def flat(value: np.ndarray, node: Node) -> np.ndarray:
    """Numbers of a whole tensor, or one for each element of the last axis."""
    last = value.shape[-1:] == (value.size,) and value.ndim == len(node.output.shape)
    return value.reshape(-1) if value.size == 1 or last else value


def along(value: np.ndarray, node: Node, axes: list[int], sizes: list[int]) -> np.ndarray:
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


def short(scale: np.ndarray | None) -> np.ndarray | None:
    """One number, or one a channel."""
    if scale is None:
        return None
    flat = np.ascontiguousarray(scale).reshape(-1)
    return flat[:1] if (flat == flat[0]).all() else flat
