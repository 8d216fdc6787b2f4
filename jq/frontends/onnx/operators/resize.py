"""Resize: along each axis a product with known weights, or a gather of the nearest elements."""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jq.frontends.onnx.registry import Array, Call, Known, operator


@operator("Resize")
def resize(
    x: Array,
    roi: Known = None,
    scales: Known = None,
    sizes: Known = None,
    *,
    mode: str,
    antialias: int = 0,
    axes: Any = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    nearest_mode: str = "round_prefer_floor",
    node: Call,
) -> Array:
    if node.version == 10:  # its second input is the scales
        roi, scales = None, roi
        coordinate_transformation_mode, nearest_mode = "asymmetric", ""
    rank = x.ndim
    chosen = list(range(rank)) if axes is None else [a % rank for a in axes]
    new, factor = _targets(x.shape, chosen, scales, sizes, keep_aspect_ratio_policy)
    x = jnp.asarray(x)
    kind = x.dtype
    outside = None
    for i, axis in enumerate(chosen):
        n, m, s = x.shape[axis], new[i], factor[i]
        cropped = coordinate_transformation_mode == "tf_crop_and_resize"
        if n == m and s == 1 and not cropped:
            continue
        ends = (
            (float(roi[i]), float(roi[i + len(chosen)]))
            if cropped and roi is not None
            else (0.0, 1.0)
        )
        at = coordinates(n, m, s, coordinate_transformation_mode, ends, _precision(mode))
        if mode == "nearest":
            rounding = nearest_mode or ("ceil" if s < 1 else "floor")
            x = jnp.take(x, _nearest(at, rounding, n), axis=axis)
        else:
            matrix = _weights(at, n, s, mode, bool(antialias), cubic_coeff_a, bool(exclude_outside))
            x = _along(x, matrix, axis)
        if cropped:
            beyond = ((at < 0) | (at > n - 1)).reshape(
                [-1 if a == axis else 1 for a in range(rank)]
            )
            outside = beyond if outside is None else outside | beyond
    if outside is not None:
        x = jnp.where(outside, np.asarray(extrapolation_value, x.dtype), x)
    return _of_type(x, kind, bool(antialias))


def _of_type(x: Any, kind: Any, rounds: bool) -> Any:
    """Integers as ONNX Runtime has them: rounded after antialiasing, else cut."""
    if x.dtype == kind:
        return x
    if kind.kind in "iu":
        limits = jnp.iinfo(kind)
        x = jnp.clip(jnp.round(x) if rounds else jnp.trunc(x), limits.min, limits.max)
    return x.astype(kind)


@operator("Upsample")
def upsample(x: Array, scales: Known, *, mode: str) -> Array:
    factor = [float(s) for s in scales]
    x = jnp.asarray(x)
    for axis, s in enumerate(factor):
        n = x.shape[axis]
        m = int(np.floor(n * s))
        if m == n:
            continue
        at = coordinates(n, m, s, "asymmetric", (0.0, 1.0), _precision(mode))
        if mode == "nearest":
            x = jnp.take(x, _nearest(at, "floor", n), axis=axis)
        else:
            x = _along(x, _weights(at, n, s, "linear", False, -0.75, False), axis)
    return x


def _targets(
    shape: Sequence[int], axes: list[int], scales: Any, sizes: Any, policy: str
) -> tuple[list[int], list[float]]:
    """New sizes and scale factors of the axes."""
    old = [shape[a] for a in axes]
    if sizes is None or not np.size(sizes):
        factor = [float(s) for s in np.asarray(scales).reshape(-1)]
        return [int(np.floor(n * s)) for n, s in zip(old, factor, strict=True)], factor
    new = [int(n) for n in np.asarray(sizes).reshape(-1)]
    if min(new) < 0:
        raise ValueError(f"sizes {new}")
    ratio = [m / n for m, n in zip(new, old, strict=True)]
    if policy == "stretch":
        return new, ratio
    one = min(ratio) if policy == "not_larger" else max(ratio)
    return [int(np.floor(one * n + 0.5)) for n in old], [one] * len(old)


def _precision(mode: str) -> Any:
    """Type of coordinates. The nearest element is chosen as ONNX Runtime and torch do: the scale
    1.2, a little more in float32, brings 6 to the old element 5, and not below it.
    """
    return np.float32 if mode == "nearest" else np.float64


def coordinates(
    n: int, m: int, scale: float, mode: str, roi: tuple[float, float], dtype: Any = np.float64
) -> np.ndarray:
    """Place of each of the `m` new elements among the `n` old ones."""
    at = np.arange(m, dtype=dtype)
    length = n * scale  # not rounded to a whole number of elements
    if mode == "half_pixel":
        return (at + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        adjusted = m / length
        return n / 2 * (1 - adjusted) + (at + 0.5) / scale - 0.5
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


def _weights(
    at: np.ndarray, n: int, scale: float, mode: str, antialias: bool, a: float, exclude: bool
) -> np.ndarray:
    """Share of each old element in each new one, f32[m, n]."""
    squeeze = min(scale, 1.0) if antialias else 1.0
    reach = {"linear": 1, "cubic": 2}[mode] / squeeze
    count = int(np.ceil(reach)) * 2 + 1
    first = np.floor(at).astype(np.int64) - count // 2
    places = first[:, None] + np.arange(count + 1)
    distance = np.abs(places - at[:, None]) * squeeze
    share = np.maximum(0, 1 - distance) if mode == "linear" else keys(distance, np, a)
    if exclude:
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
