# mypy: allow-untyped-defs, allow-untyped-calls, allow-incomplete-defs
"""Meaning of the steps of golden vectors, in NumPy: `replay.py` beside it runs them.

Each takes the step, which holds what the op says of itself, and its operands; the result is
converted to the step's type, integers modulo 2^bits."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


def spread(s, x):
    axes, sizes = s["broadcast_dimensions"], [1] * len(s["shape"])
    x = x.transpose(np.argsort(axes))
    for axis, n in zip(sorted(axes), x.shape, strict=True):
        sizes[axis] = n
    return np.broadcast_to(x.reshape(sizes), s["shape"])


def padded(x, pairs, value=0, inside=()):
    for axis, n in enumerate(inside):
        wide = max(0, x.shape[axis] * (n + 1) - n)
        grown = np.full([*x.shape[:axis], wide, *x.shape[axis + 1 :]], value, x.dtype)
        grown[(slice(None),) * axis + (slice(None, None, n + 1),)] = x
        x = grown
    if not pairs:  # a scalar, which `np.pad` refuses
        return x
    x = np.pad(x, [(max(0, a), max(0, b)) for a, b in pairs], constant_values=value)
    cut = [(max(0, -a), n - max(0, -b)) for n, (a, b) in zip(x.shape, pairs, strict=True)]
    return x[tuple(slice(*ends) for ends in cut)]


def windows(x, size, stride, dilation):
    span = [(n - 1) * d + 1 for n, d in zip(size, dilation, strict=True)]
    first = len(x.shape) - len(size)
    found = sliding_window_view(x, span, axis=tuple(range(first, x.ndim)))
    steps = [slice(None, None, n) for n in (*stride, *dilation)]
    return found[(slice(None),) * first + tuple(steps)]


def convolved(s, x, w):
    x, w = x.transpose(s["input"]).astype(float), w.transpose(s["kernel"]).astype(float)
    w = np.flip(w, tuple(2 + i for i, back in enumerate(s["reversal"]) if back))
    x = padded(x, [(0, 0), (0, 0), *s["padding"]], 0, [0, 0, *(n - 1 for n in s["lhs_dilation"])])
    v = windows(x, w.shape[2:], s["window_strides"], s["rhs_dilation"])
    n, space, groups = x.ndim - 2, v.shape[2 : x.ndim], s["groups"]
    parts = [
        np.tensordot(a, b, ([1, *range(2 + n, 2 + 2 * n)], [1, *range(2, 2 + n)]))
        for a, b in zip(np.split(v, groups, 1), np.split(w, groups, 0), strict=True)
    ]
    y = np.moveaxis(np.concatenate(parts, -1), -1, 1).reshape(x.shape[0], w.shape[0], *space)
    return y.transpose(np.argsort(s["output"]))


def leading_zeros(s, x):
    return np.vectorize(lambda v: 8 * x.itemsize - int(v).bit_length() if v >= 0 else 0)(x)


def extended(s, x, value):
    pairs = zip(s["edge_padding_low"], s["edge_padding_high"], strict=True)
    return padded(x, list(pairs), value, s["interior_padding"])


def reduced(s, x, start):
    f, axes = COMBINE[s["combine"]], tuple(s["dimensions"])
    return f(f.reduce(x, axes), start).astype(x.dtype)


def pooled(s, x, start):
    x = padded(x, s["padding"], start)
    size, steps = s["window_dimensions"], (s["window_strides"], s["window_dilations"])
    return COMBINE[s["combine"]].reduce(windows(x, size, *steps), tuple(range(-x.ndim, 0)))


def divided(s, a, b):
    if a.dtype.kind in "iu":  # towards zero
        down = a // b
        return down + ((down < 0) & (down * b != a)).astype(a.dtype)
    return a / b


COMPARE = {"EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal}
COMPARE |= {"GT": np.greater, "GE": np.greater_equal}
COMBINE = {"add": np.add, "maximum": np.maximum, "minimum": np.minimum}
ALIKE = "abs add maximum minimum multiply sign subtract"
ELEMENTWISE: dict[str, Any] = {name: getattr(np, name) for name in ALIKE.split()}
ELEMENTWISE |= {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert}
ELEMENTWISE |= {"shift_left": np.left_shift, "shift_right_arithmetic": np.right_shift}
ELEMENTWISE |= {"round_nearest_even": np.rint, "negate": np.negative, "select": np.where}
OPS: dict[str, Callable[..., Any]] = {
    "constant": lambda s: np.array(s["value"]).reshape(s["shape"]),
    "broadcast_in_dim": spread,
    "reshape": lambda s, x: x.reshape(s["shape"]),
    "transpose": lambda s, x: x.transpose(s["permutation"]),
    "reverse": lambda s, x: np.flip(x, s["dimensions"]),
    "concatenate": lambda s, *x: np.concatenate(x, s["dimension"]),
    "slice": lambda s, x: x[
        tuple(map(slice, s["start_indices"], s["limit_indices"], s["strides"]))
    ],
    "pad": extended,
    "gather": lambda s, table, i: table[np.clip(i, 0, len(table) - 1)].reshape(s["shape"]),
    "convert": lambda s, x: x,
    "compare": lambda s, a, b: COMPARE[s["direction"]](a, b),
    "clamp": lambda s, low, x, high: np.minimum(np.maximum(x, low), high),
    "dot_general": lambda s, a, b: np.einsum(s["einsum"], a.astype(float), b.astype(float)),
    "convolution": convolved,
    "reduce": reduced,
    "reduce_window": pooled,
    "divide": divided,
    **{name: lambda s, *x, f=f: f(*x) for name, f in ELEMENTWISE.items()},
    "count_leading_zeros": leading_zeros,
}
