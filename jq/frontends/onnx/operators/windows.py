"""Windows over the axes after batch and channels, and pooling."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import product
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
from jax import lax

from jq.frontends.onnx.registry import Array, Call, microsoft, operator
from jq.frontends.onnx.values import limits_of

Pairs = list[tuple[int, int]]


@dataclass(frozen=True)
class Windowing:
    """The attributes of a window; what is not given is 1 along every axis, and no padding."""

    auto_pad: str = "NOTSET"
    dilations: Any = None
    kernel_shape: Any = None
    pads: Any = None
    strides: Any = None

    @classmethod
    def of(cls, call: Call) -> Self:
        names = (f.name for f in fields(cls))
        return cls(**{name: call.attributes[name] for name in names if name in call.attributes})

    def steps(self, rank: int) -> tuple[list[int], list[int]]:
        """Strides and dilations."""
        return list(self.strides or [1] * rank), list(self.dilations or [1] * rank)

    def padding(self, sizes: Sequence[int], window: Sequence[int]) -> Pairs:
        """Elements before and after each axis."""
        rank = len(window)
        if self.auto_pad in ("NOTSET", ""):
            flat = list(self.pads or [0] * 2 * rank)
            return list(zip(flat[:rank], flat[rank:], strict=True))
        if self.auto_pad == "VALID":
            return [(0, 0)] * rank
        return [
            self.shared(max(0, (-(-n // s) - 1) * s + (k - 1) * d + 1 - n))
            for n, k, s, d in zip(sizes, window, *self.steps(rank), strict=True)
        ]

    def shared(self, total: int) -> tuple[int, int]:
        """The parts of padding before and after an axis, which differ by one at most."""
        small, large = total // 2, total - total // 2
        return (small, large) if self.auto_pad == "SAME_UPPER" else (large, small)


class Window:
    """Places of a pooling window, with those that `ceil_mode` adds at the end."""

    def __init__(self, shape: Sequence[int], given: Windowing, ceil: int) -> None:
        self.kernel = list(given.kernel_shape)
        rank = len(self.kernel)
        self.strides, self.dilations = given.steps(rank)
        sizes = list(shape[2:])
        self.pads = given.padding(sizes, self.kernel)
        self.extra = [0] * rank
        for i, (n, (a, b)) in enumerate(zip(sizes, self.pads, strict=True)):
            reach = (self.kernel[i] - 1) * self.dilations[i] + 1
            left = n + a + b - reach
            count = (-(-left // self.strides[i]) if ceil else left // self.strides[i]) + 1
            if ceil and (count - 1) * self.strides[i] >= n + a:
                count -= 1  # a window that would begin in the padding after
            self.extra[i] = max(0, (count - 1) * self.strides[i] + reach - (n + a + b))

    def reduce(self, x: Any, first: Any, function: Any, counted: bool = False) -> Any:
        """`counted`: what the padding adds, `ceil_mode` left out, counts as one more element."""
        pairs = [(a, b + e) for (a, b), e in zip(self.pads, self.extra, strict=True)]
        if counted:
            fill = [(0, 0, 0)] * 2 + [(a, b, 0) for a, b in self.pads]
            x = lax.pad(x, jnp.ones((), x.dtype), fill)
            pairs = [(0, e) for e in self.extra]
        pads = [(0, 0), (0, 0), *pairs]
        window, strides, spread = ((1, 1, *n) for n in (self.kernel, self.strides, self.dilations))
        return lax.reduce_window(x, first, function, window, strides, pads, window_dilation=spread)


@operator("MaxPool", moves=True)
def max_pool(x: Array, *, ceil_mode: int = 0, storage_order: int = 0, node: Call) -> Any:
    x = jnp.asarray(x)
    places = Window(x.shape, Windowing.of(node), ceil_mode)
    least = limits_of(x.dtype)[0]
    if not node.asks_for(1):
        return places.reduce(x, least, lax.max)
    return _with_places(x, places, least, storage_order)


@microsoft("NhwcMaxPool", moves=True)
def max_pool_channels_last(x: Array, *, ceil_mode: int = 0, node: Call) -> Any:
    y = max_pool(jnp.moveaxis(jnp.asarray(x), -1, 1), ceil_mode=ceil_mode, node=node)
    return jnp.moveaxis(y, 1, -1)


def _with_places(x: Any, window: Window, least: Any, order: int) -> tuple[Any, Any]:
    """The greatest and where the first of them is, an index into the flat tensor."""
    spatial = x.shape[2:]
    places = np.arange(math.prod(x.shape)).reshape(x.shape)
    if order:
        flat = np.arange(math.prod(spatial)).reshape(spatial[::-1]).T
        places = np.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], *[1] * len(spatial))
        places = places * math.prod(spatial) + flat
    views = list(_views(x, window, least))
    spots = list(_views(jnp.asarray(places), window, np.asarray(-1, np.int64)))
    best, where = views[0], spots[0]
    for value, spot in zip(views[1:], spots[1:], strict=True):
        better = (value > best) | ((where < 0) & (spot >= 0))
        best, where = jnp.where(better, value, best), jnp.where(better, spot, where)
    return best, where


def _views(x: Any, window: Window, fill: Any) -> Any:
    """One array an element of the window."""
    widths = [(a, b + e, 0) for (a, b), e in zip(window.pads, window.extra, strict=True)]
    padded = lax.pad(x, jnp.asarray(fill, x.dtype), [(0, 0, 0)] * 2 + widths)
    sizes = padded.shape[2:]
    ends = [(k - 1) * d for k, d in zip(window.kernel, window.dilations, strict=True)]
    for at in product(*(range(k) for k in window.kernel)):
        axes = zip(at, window.dilations, sizes, ends, window.strides, strict=True)
        cut = tuple(slice(i * d, n - end + i * d, s) for i, d, n, end, s in axes)
        yield padded[(slice(None), slice(None), *cut)]


@operator("AveragePool")
def average_pool(x: Array, *, ceil_mode: int = 0, count_include_pad: int = 0, node: Call) -> Array:
    places = Window(x.shape, Windowing.of(node), ceil_mode)
    total = places.reduce(x, np.zeros((), x.dtype), lax.add)
    counts = window_counts(places, x.shape[2:], bool(count_include_pad))
    if counts.min(initial=1) == counts.max(initial=1):
        return total / np.asarray(counts.flat[0], x.dtype)
    return total / counts.astype(x.dtype)


def average_in_order(x: Array, window: Window, padded: bool) -> Array:
    """The elements of each window are added one after the other, row by row, as they stand in
    memory; `padded`: each window counts as a whole one, also where `ceil_mode` goes beyond."""
    total = sum(_views(x, window, 0), start=jnp.zeros((), x.dtype))
    if padded:
        return total / np.asarray(math.prod(window.kernel), x.dtype)
    return total / window_counts(window, x.shape[2:], padded=False).astype(x.dtype)


def window_counts(window: Window, sizes: Sequence[int], padded: bool) -> np.ndarray:
    """Number of elements in each window's average, [1, 1, ...]: a product of counts along axes."""
    counts = np.ones((1, 1), np.int64)
    for i, n in enumerate(sizes):
        (a, b), k = window.pads[i], window.kernel[i]
        total = n + a + b + window.extra[i] - (k - 1) * window.dilations[i]
        starts = np.arange(0, total, window.strides[i])
        places = starts[:, None] + np.arange(k) * window.dilations[i]
        low, high = (0, a + n + b) if padded else (a, a + n)
        along = ((places >= low) & (places < high)).sum(axis=1)
        counts = counts[..., None] * along
    return counts


@operator("LpPool")
def lp_pool(x: Array, *, p: int = 2, ceil_mode: int = 0, node: Call) -> Array:
    places = Window(x.shape, Windowing.of(node), ceil_mode)
    total = places.reduce(jnp.abs(x) ** p, np.zeros((), x.dtype), lax.add)
    return (total ** (1 / p)).astype(x.dtype)
