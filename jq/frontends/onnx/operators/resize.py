"""Resize: along each axis a product with known weights, or a gather of the nearest elements."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from jq.frontends.onnx.registry import Array, Given, operator

ATTRIBUTES = (
    "mode antialias=0 axes? cubic_coeff_a=-0.75 exclude_outside=0 extrapolation_value=0.0"
    " coordinate_transformation_mode='half_pixel' keep_aspect_ratio_policy='stretch'"
    " nearest_mode='round_prefer_floor'"
)


@operator("Resize", takes=f"x roi?! scales?! sizes?!; {ATTRIBUTES}")
@operator("Upsample", takes=f"x scales!; {ATTRIBUTES}")
def resize(o: Given) -> Array:
    old = {"roi": None, "sizes": None, "coordinate_transformation_mode": "asymmetric"}
    if o.node.node.op == "Upsample":
        o = o.but(**old, nearest_mode="floor")
    elif o.node.version == 10:  # its second input is the scales
        o = o.but(**old, nearest_mode="", scales=o.roi)
    x, rank, cropped = jnp.asarray(o.x), o.x.ndim, False
    outside: Any = False
    chosen = list(range(rank)) if o.axes is None else [a % rank for a in o.axes]
    for i, (axis, m, s) in enumerate(zip(chosen, *_targets(o, chosen), strict=True)):
        n, ends = x.shape[axis], (0.0, 1.0)
        cropped = o.coordinate_transformation_mode == "tf_crop_and_resize"
        if n == m and s == 1 and not cropped:
            continue
        if cropped and o.roi is not None:
            ends = float(o.roi[i]), float(o.roi[i + len(chosen)])
        # The nearest element is chosen as ONNX Runtime and torch do: the scale 1.2, a little more
        # in float32, brings 6 to the old element 5, and not below it.
        precision = np.float32 if o.mode == "nearest" else np.float64
        at = coordinates(n, m, s, o.coordinate_transformation_mode, ends, precision)
        if o.mode == "nearest":
            rounding = o.nearest_mode or ("ceil" if s < 1 else "floor")
            index, times = _nearest(at, rounding, n), m // max(1, n)
            even = np.array_equal(index, np.repeat(np.arange(n), times))
            # Repeated where it can be: devices have no gather of anything but rows.
            x = jnp.repeat(x, times, axis) if even else jnp.take(x, index, axis, mode="clip")
        else:
            x = _along(x, _weights(o, at, n, s), axis)
        if cropped:
            shape = [-1 if a == axis else 1 for a in range(rank)]
            outside = outside | ((at < 0) | (at > n - 1)).reshape(shape)
    if cropped:
        x = jnp.where(outside, np.asarray(o.extrapolation_value, x.dtype), x)
    return _of_type(x, o.x.dtype, bool(o.antialias))


def _of_type(x: Any, kind: Any, rounds: bool) -> Any:
    """Integers as ONNX Runtime has them: rounded after antialiasing, else cut."""
    if x.dtype == kind:
        return x
    if kind.kind in "iu":
        limits = jnp.iinfo(kind)
        x = jnp.clip(jnp.round(x) if rounds else jnp.trunc(x), limits.min, limits.max)
    return x.astype(kind)


def _targets(o: Given, axes: list[int]) -> tuple[list[int], list[float]]:
    """New sizes and scale factors of the axes."""
    old = [o.x.shape[a] for a in axes]
    if o.sizes is None or not np.size(o.sizes):
        factor = [float(s) for s in np.asarray(o.scales).reshape(-1)]
        return [int(np.floor(n * s)) for n, s in zip(old, factor, strict=True)], factor
    new = [int(n) for n in np.asarray(o.sizes).reshape(-1)]
    if min(new) < 0:
        raise ValueError(f"sizes {new}")
    ratio = [m / n for m, n in zip(new, old, strict=True)]
    if o.keep_aspect_ratio_policy == "stretch":
        return new, ratio
    one = min(ratio) if o.keep_aspect_ratio_policy == "not_larger" else max(ratio)
    return [int(np.floor(one * n + 0.5)) for n in old], [one] * len(old)


def coordinates(
    n: int, m: int, scale: float, mode: str, roi: tuple[float, float], dtype: Any = np.float64
) -> np.ndarray:
    """Place of each of the `m` new elements among the `n` old ones."""
    at = np.arange(m, dtype=dtype)
    length = n * scale  # not rounded to a whole number of elements
    if mode == "half_pixel":
        return (at + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        return n / 2 * (1 - m / length) + (at + 0.5) / scale - 0.5
    if mode == "pytorch_half_pixel":
        return (at + 0.5) / scale - 0.5 if m > 1 else at * 0
    if mode == "align_corners":
        return at * (n - 1) / (length - 1) if length > 1 else at * 0
    if mode == "asymmetric":
        return at / scale
    if mode == "tf_half_pixel_for_nn":
        return (at + 0.5) / scale
    start, end = roi
    if m > 1:
        return start * (n - 1) + at * (end - start) * (n - 1) / (m - 1)
    return at * 0 + 0.5 * (start + end) * (n - 1)


def _nearest(at: np.ndarray, mode: str, n: int) -> np.ndarray:
    rounding: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "round_prefer_floor": lambda v: np.ceil(v - 0.5),
        "round_prefer_ceil": lambda v: np.floor(v + 0.5),
        "floor": np.floor,
        "ceil": np.ceil,
    }
    return np.clip(rounding[mode](at), 0, n - 1).astype(np.int64)


def _weights(o: Given, at: np.ndarray, n: int, scale: float) -> np.ndarray:
    """Share of each old element in each new one, f32[m, n]."""
    squeeze = min(scale, 1.0) if o.antialias else 1.0
    reach = {"linear": 1, "cubic": 2}[o.mode] / squeeze
    count = int(np.ceil(reach)) * 2 + 1
    first = np.floor(at).astype(np.int64) - count // 2
    places = first[:, None] + np.arange(count + 1)
    distance = np.abs(places - at[:, None]) * squeeze
    linear = o.mode == "linear"
    share = np.maximum(0, 1 - distance) if linear else keys(distance, np, o.cubic_coeff_a)
    if o.exclude_outside:
        share = np.where((places < 0) | (places >= n), 0, share)
    total = share.sum(axis=1, keepdims=True)
    share = share / np.where(total == 0, 1, total)
    matrix = np.zeros((len(at), n))
    rows = np.broadcast_to(np.arange(len(at))[:, None], places.shape)
    np.add.at(matrix, (rows, np.clip(places, 0, n - 1)), share)
    return matrix.astype(np.float32)


def keys(d: Any, xp: Any, a: float = -0.75) -> Any:
    """The cubic kernel of Keys (1981); `xp`: NumPy, or JAX's."""
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return xp.where(d <= 1, near, xp.where(d < 2, far, 0))


def _along(x: Any, matrix: np.ndarray, axis: int) -> Any:
    """Two elements a result: gathers and a weighted sum; more: a product."""
    kind = np.float64 if x.dtype == np.float64 else np.float32
    used = (matrix != 0).sum(axis=1).max(initial=0)
    if used <= 2:
        first = np.argmax(matrix != 0, axis=1)
        last = matrix.shape[1] - 1 - np.argmax(matrix[:, ::-1] != 0, axis=1)
        rows = np.arange(len(matrix))
        shape = [-1 if i == axis else 1 for i in range(x.ndim)]
        w0 = matrix[rows, first].reshape(shape).astype(kind)
        w1 = np.where(first == last, 0, matrix[rows, last]).reshape(shape).astype(kind)
        x = x.astype(kind)
        return jnp.take(x, first, axis=axis) * w0 + jnp.take(x, last, axis=axis) * w1
    moved = jnp.moveaxis(x.astype(kind), axis, -1)
    return jnp.moveaxis(moved @ matrix.T.astype(kind), -1, axis)
