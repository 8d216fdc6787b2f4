"""Samples of images at places between pixels: grids, regions, and deformable convolutions."""

from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.frontends.onnx.operators.resize import keys
from jq.frontends.onnx.registry import MICROSOFT, Array, Call, operator


@operator("GridSample")
@operator("GridSample", domain=MICROSOFT)
def grid_sample(
    x: Array,
    grid: Array,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Array:
    """`grid` [n, ..., rank] holds places in [-1, 1], the last axis of the image first."""
    x, grid = jnp.asarray(x), jnp.asarray(grid)
    sizes, rank = x.shape[2:], x.ndim - 2
    at = []
    for axis in range(rank):
        place, n = grid[..., rank - 1 - axis], sizes[axis]
        at.append((place + 1) / 2 * (n - 1) if align_corners else ((place + 1) * n - 1) / 2)
    kind = mode.removeprefix("bi")
    if kind == "nearest":
        return pick(x, [jnp.round(v) for v in at], padding_mode, bool(align_corners))
    taps = range(-1, 3) if kind == "cubic" else range(2)
    floors = [jnp.floor(v) for v in at]
    total: Any = 0
    for corner in np.ndindex(*[len(taps)] * rank):
        places = [f + taps[c] for f, c in zip(floors, corner, strict=True)]
        share: Any = 1
        for v, p in zip(at, places, strict=True):
            distance = jnp.abs(v - p)
            share = share * (
                keys(distance, jnp) if kind == "cubic" else jnp.maximum(0, 1 - distance)
            )
        picked = pick(x, places, padding_mode, bool(align_corners))
        total = total + picked * share[:, None].astype(x.dtype)
    return total


def _reflected(at: Any, n: int, corners: bool) -> Any:
    low, span = (0.0, n - 1.0) if corners else (-0.5, float(n))
    if not span:
        return jnp.zeros_like(at)
    period = jnp.mod(at - low, 2 * span)
    return jnp.where(period > span, 2 * span - period, period) + low


def pick(x: Any, places: list[Any], padding: str, corners: bool) -> Any:
    """Elements [n, channels, ...] at whole places [n, ...]. Outside of the image they are zeros,
    those of the border, or reflected.
    """
    sizes = x.shape[2:]
    if padding == "reflection":
        places = [_reflected(p, n, corners) for p, n in zip(places, sizes, strict=True)]
    inside: Any = True
    index = []
    for p, n in zip(places, sizes, strict=True):
        inside = inside & (p >= 0) & (p <= n - 1)
        index.append(jnp.clip(p, 0, n - 1).astype(np.int32))
    picked = jax.vmap(lambda image, *i: image[(slice(None), *i)])(x, *index)
    if padding == "zeros":
        return jnp.where(inside[:, None], picked, jnp.zeros((), x.dtype))
    return picked


@operator("RoiAlign")
def roi_align(
    x: Array,
    rois: Array,
    batch_indices: Array,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    node: Any,
) -> Array:
    if sampling_ratio <= 0:
        raise node.refuse("sampling_ratio=0 makes the number of samples depend on the inputs")
    x, rois = jnp.asarray(x), jnp.asarray(rois)
    half = coordinate_transformation_mode == "half_pixel" and node.version >= 16
    x1, y1, x2, y2 = jnp.moveaxis(rois * spatial_scale - (0.5 if half else 0.0), 1, 0)
    width, height = x2 - x1, y2 - y1
    if not half:
        width, height = jnp.maximum(width, 1), jnp.maximum(height, 1)
    images = x[jnp.asarray(batch_indices)]
    places = []
    for start, length, bins in ((y1, height, output_height), (x1, width, output_width)):
        steps = (np.arange(bins * sampling_ratio) + 0.5) / sampling_ratio
        places.append(start[:, None] + length[:, None] / bins * steps.astype(np.float32))
    taken = [_line(p, n) for p, n in zip(places, x.shape[2:], strict=True)]
    parts = []
    for low_high in np.ndindex(2, 2):
        (iy, wy), (ix, wx) = ((t[0][b], t[1][b]) for t, b in zip(taken, low_high, strict=True))
        read = jax.vmap(lambda image, a, b: image[:, a[:, None], b[None, :]])(images, iy, ix)
        parts.append(read * (wy[:, None, :, None] * wx[:, None, None, :]))
    shape = (*parts[0].shape[:2], output_height, sampling_ratio, output_width, sampling_ratio)
    if mode == "max":
        best = jnp.max(jnp.stack(parts), axis=0)
        return best.reshape(shape).max(axis=(3, 5))
    return sum(parts).reshape(shape).mean(axis=(3, 5))


def _line(at: Any, n: int) -> tuple[list[Any], list[Any]]:
    """The two elements around each place and their shares; nothing more than one beyond the end."""
    live = (at >= -1) & (at <= n)
    at = jnp.clip(at, 0, n - 1)
    low = jnp.minimum(jnp.floor(at), n - 1)
    share = at - low
    high = jnp.minimum(low + 1, n - 1)
    index = [low.astype(np.int32), high.astype(np.int32)]
    return index, [jnp.where(live, 1 - share, 0), jnp.where(live, share, 0)]


@operator("DeformConv")
def deform_conv(
    x: Array,
    w: Array,
    offset: Array,
    b: Array = None,
    mask: Array = None,
    *,
    dilations: Any = None,
    group: int = 1,
    offset_group: int = 1,
    pads: Any = None,
    strides: Any = None,
    node: Call,
) -> Array:
    """`x` [n, c, h, w]; `offset` [n, offset_group * taps * 2, h', w'] moves each tap down and to
    the right, for all channels of a group alike; `mask` [n, offset_group * taps, h', w'] weighs."""
    if x.ndim != 4:
        raise node.refuse(f"images of {x.ndim - 2} axes are not supported")
    (n, c), (rows, columns), kernel = x.shape[:2], offset.shape[2:], w.shape[2:]
    taps = kernel[0] * kernel[1]
    moved = jnp.asarray(offset).reshape(n, offset_group, taps, 2, rows, columns)
    images = jnp.asarray(x).reshape(n, offset_group, c // offset_group, *x.shape[2:])
    shares = (
        None if mask is None else jnp.asarray(mask).reshape(n, offset_group, taps, rows, columns)
    )
    s, d, p = strides or [1, 1], dilations or [1, 1], pads or [0] * 4
    reads = []
    for tap, at in enumerate(product(*map(range, kernel))):
        down, right = (
            np.arange(size, dtype=np.float32) * s[a] - p[a] + at[a] * d[a]
            for a, size in enumerate((rows, columns))
        )
        y = moved[:, :, tap, 0] + down[:, None].astype(x.dtype)
        z = moved[:, :, tap, 1] + right.astype(x.dtype)
        groups = [_between(images[:, g], y[:, g], z[:, g]) for g in range(offset_group)]
        read = jnp.stack(groups, 1)
        reads.append(read if shares is None else read * shares[:, :, tap, None])
    taken = jnp.stack(reads, 3).reshape(n, group, c // group, taps, rows, columns)
    kernels = jnp.asarray(w).reshape(group, w.shape[0] // group, c // group, taps)
    result = jnp.einsum("ngcthw,goct->ngohw", taken, kernels).reshape(n, w.shape[0], rows, columns)
    return result if b is None else result + b.reshape(-1, 1, 1)


def _between(image: Any, y: Any, x: Any) -> Any:
    """[n, c, h', w'] read at places [n, h', w'] by linear interpolation, zero outside."""
    total: Any = 0
    for corner in product(range(2), repeat=2):
        places = [jnp.floor(v) + one for v, one in zip((y, x), corner, strict=True)]
        shares = [1 - jnp.abs(v - p) for v, p in zip((y, x), places, strict=True)]
        total = total + pick(image, places, "zeros", False) * (shares[0] * shares[1])[:, None]
    return total
