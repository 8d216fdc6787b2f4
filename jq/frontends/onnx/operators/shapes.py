"""Shapes, and operators that only move elements."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jq.frontends.onnx.registry import Array, Call, Given, Known, microsoft, operator, operators
from jq.frontends.onnx.values import Codes, plain, traced


def ints(x: Any) -> list[int]:
    return [int(n) for n in np.asarray(x).reshape(-1)]


def _size(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64))


operators(
    {
        "Shape": lambda x, *, start=0, end=None: np.asarray(x.shape[start:end], np.int64),
        "Size": lambda x: np.asarray(_size(x.shape)),
    },
    codes=True,
)
UNSQUEEZE = {"Unsqueeze": lambda x, axes: jnp.expand_dims(x, tuple(ints(axes)))}
operators(
    {
        **UNSQUEEZE,
        "Concat": lambda *xs, axis: jnp.concatenate(xs, axis=axis),
        "Expand": lambda x, shape: jnp.broadcast_to(
            x, np.broadcast_shapes(x.shape, tuple(ints(shape)))
        ),
        "Flatten": lambda x, *, axis: x.reshape(_size(x.shape[:axis]), _size(x.shape[axis:])),
        "Identity": lambda x: x,
        "Squeeze": lambda x, axes=None: (
            x.reshape([n for n in x.shape if n != 1])
            if axes is None
            else jnp.squeeze(x, tuple(ints(axes)))
        ),
        "Tile": lambda x, repeats: jnp.tile(x, ints(repeats)),
        "Transpose": lambda x, *, perm=None: jnp.transpose(x, perm),
    },
    known="axes shape repeats",
    moves=True,
)
microsoft("ExpandDims", known="axes", moves=True)(UNSQUEEZE["Unsqueeze"])


@operator("Reshape", moves=True)
def reshape(x: Array, shape: Known, *, allowzero: int = 0) -> Array:
    sizes = ints(shape)
    if not allowzero:
        sizes = [x.shape[i] if n == 0 else n for i, n in enumerate(sizes)]
    if -1 in sizes:
        rest = _size([n for n in sizes if n != -1])
        sizes[sizes.index(-1)] = _size(x.shape) // rest if rest else 0
    return x.reshape(sizes)


@operator("Split", moves=True)
def split(
    x: Array, split: Known = None, *, axis: int, num_outputs: int | None = None, node: Call
) -> Any:
    n = x.shape[axis]
    if split is not None:
        sizes = ints(split)
    else:
        count = num_outputs or node.results
        each = -(-n // count)
        sizes = [max(0, min(each, n - i * each)) for i in range(count)]
    if sum(sizes) != n:
        raise node.refuse(f"parts {sizes} of an axis of {n}")
    return tuple(jnp.split(x, np.cumsum(sizes)[:-1].tolist(), axis=axis))


@operator("Slice", moves=True)
def slice_of(
    x: Array, starts: Known, ends: Known, axes: Known = None, steps: Known = None
) -> Array:
    first, last = ints(starts), ints(ends)
    chosen = list(range(len(first))) if axes is None else ints(axes)
    step = [1] * len(first) if steps is None else ints(steps)
    index = [slice(None)] * x.ndim
    for axis, a, b, s in zip(chosen, first, last, step, strict=True):
        index[axis % x.ndim] = _slice(a, b, s, x.shape[axis])
    return x[tuple(index)]


def _slice(start: int, end: int, step: int, n: int) -> slice:
    """Negative numbers count from the end; what is beyond is clamped."""
    start = start + n if start < 0 else start
    end = end + n if end < 0 else end
    if step > 0:
        return slice(min(max(start, 0), n), min(max(end, 0), n), step)
    start, end = min(max(start, -1), n - 1), min(max(end, -1), n - 1)
    return slice(0, 0, 1) if start < 0 else slice(start, None if end < 0 else end, step)


PADDED = "x pads! value? axes?!; mode='constant'"


@operator("Pad", codes=True, takes=PADDED)
@microsoft("Pad", codes=True, takes=PADDED)
def pad(o: Given) -> Array:
    x, value = traced(o.x), plain(o.value)
    if isinstance(x, Codes):  # padded with the code of the number
        zero = np.zeros((), np.int32) if value is None else value
        fill = (jnp.asarray(zero).astype(np.int32) - x.offset).astype(x.signed.dtype)
        return Codes(pad(o.but(x=x.signed, value=fill)), x.dtype)
    x = jnp.asarray(plain(x))
    chosen = list(range(x.ndim)) if o.axes is None else [a % x.ndim for a in ints(o.axes)]
    widths = ints(o.pads)
    low, high = [0] * x.ndim, [0] * x.ndim
    for i, axis in enumerate(chosen):
        low[axis], high[axis] = widths[i], widths[i + len(chosen)]
    if o.mode == "constant":
        fill = jnp.zeros((), x.dtype) if value is None else jnp.asarray(value, x.dtype).reshape(())
        return lax.pad(x, fill, [(a, b, 0) for a, b in zip(low, high, strict=True)])
    if o.mode not in ("reflect", "edge", "wrap"):
        raise o.node.refuse(f"mode {o.mode!r:.20} is not supported")
    sizes = zip(low, high, x.shape, strict=True)
    cut = tuple(slice(max(0, -a), n + min(0, b)) for a, b, n in sizes)
    grow = [(max(a, 0), max(b, 0)) for a, b in zip(low, high, strict=True)]
    return jnp.pad(x[cut], grow, mode=o.mode)


@operator("Trilu", moves=True)
@microsoft("Trilu", moves=True)
def trilu(x: Array, k: Known = None, *, upper: int = 1) -> Array:
    by = 0 if k is None else int(k.reshape(()))
    return jnp.triu(x, by) if upper else jnp.tril(x, by)


@operator("ReverseSequence")
def reverse_sequence(x: Array, lengths: Array, *, batch_axis: int, time_axis: int) -> Array:
    moved = jnp.moveaxis(x, (time_axis, batch_axis), (0, 1))
    return jnp.moveaxis(turned(moved, jnp.asarray(lengths)), (0, 1), (time_axis, batch_axis))


def turned(x: Any, lengths: Any) -> Any:
    """`x` [steps, batch, ...], the first steps of each sample in reverse order."""
    time = jnp.arange(x.shape[0], dtype=lengths.dtype)[:, None]
    places = jnp.where(time < lengths, lengths - 1 - time, time)
    places = places.reshape(*places.shape, *[1] * (x.ndim - 2))
    return jnp.take_along_axis(x, places, axis=0, mode="clip")
