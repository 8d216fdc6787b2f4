"""Samples of images at places between pixels: grids, regions, and deformable convolutions."""

from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.frontends.onnx.operators.resize import keys
from jq.frontends.onnx.operators.windows import Windowing
from jq.frontends.onnx.registry import Array, Given, microsoft, operator

SAMPLED = "align_corners=0 mode='linear' padding_mode='zeros'"


@operator("GridSample", takes=f"x grid; {SAMPLED}")
@microsoft("GridSample", takes=f"x[N C H W] grid[N R S 2]; {SAMPLED}")
def grid_sample(o: Given) -> Array:
    """`grid` [n, ..., rank] holds places in [-1, 1], the last axis of the image first."""
    x, grid, corners = jnp.asarray(o.x), jnp.asarray(o.grid), bool(o.align_corners)
    sizes, rank = x.shape[2:], x.ndim - 2
    at = []
    for axis in range(rank):
        place, n = grid[..., rank - 1 - axis], sizes[axis]
        at.append((place + 1) / 2 * (n - 1) if corners else ((place + 1) * n - 1) / 2)
    kind = o.mode.removeprefix("bi")
    if kind == "nearest":
        return pick(x, [jnp.round(v) for v in at], o.padding_mode, corners)
    return _between(x, at, o.padding_mode, corners, cubic=kind == "cubic")


def _between(
    x: Any, at: list[Any], padding: str = "zeros", corners: bool = False, cubic: bool = False
) -> Any:
    """[n, c, ...] read at places [n, ...] by linear or cubic interpolation."""
    taps = range(-1, 3) if cubic else range(2)
    total: Any = 0
    for corner in product(taps, repeat=len(at)):
        places = [jnp.floor(v) + tap for v, tap in zip(at, corner, strict=True)]
        share: Any = 1
        for v, p in zip(at, places, strict=True):
            far = jnp.abs(v - p)
            share = share * (keys(far, jnp) if cubic else jnp.maximum(0, 1 - far))
        total = total + pick(x, places, padding, corners) * share[:, None].astype(x.dtype)
    return total


def _reflected(at: Any, n: int, corners: bool) -> Any:
    low, span = (0.0, n - 1.0) if corners else (-0.5, float(n))
    if not span:
        return jnp.zeros_like(at)
    period = jnp.mod(at - low, 2 * span)
    return jnp.where(period > span, 2 * span - period, period) + low


def pick(x: Any, places: list[Any], padding: str, corners: bool) -> Any:
    """Elements [n, channels, ...] at whole places [n, ...]. Outside of the image they are zeros,
    those of the border, or reflected."""
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


ROI = (
    "mode output_height output_width sampling_ratio spatial_scale"
    " coordinate_transformation_mode='half_pixel'"
)


@operator("RoiAlign", takes=f"x rois batch_indices; {ROI}")
def roi_align(o: Given) -> Array:
    ratio = o.sampling_ratio
    if ratio <= 0:
        raise o.node.refuse("sampling_ratio=0 makes the number of samples depend on the inputs")
    x, rois = jnp.asarray(o.x), jnp.asarray(o.rois)
    half = o.coordinate_transformation_mode == "half_pixel" and o.node.version >= 16
    x1, y1, x2, y2 = jnp.moveaxis(rois * o.spatial_scale - (0.5 if half else 0.0), 1, 0)
    width, height = x2 - x1, y2 - y1
    if not half:
        width, height = jnp.maximum(width, 1), jnp.maximum(height, 1)
    images = x[jnp.asarray(o.batch_indices)]
    places = []
    for start, length, bins in ((y1, height, o.output_height), (x1, width, o.output_width)):
        steps = (np.arange(bins * ratio) + 0.5) / ratio
        places.append(start[:, None] + length[:, None] / bins * steps.astype(np.float32))
    taken = [_line(p, n) for p, n in zip(places, x.shape[2:], strict=True)]
    parts = []
    for low_high in np.ndindex(2, 2):
        (iy, wy), (ix, wx) = ((t[0][b], t[1][b]) for t, b in zip(taken, low_high, strict=True))
        read = jax.vmap(lambda image, a, b: image[:, a[:, None], b[None, :]])(images, iy, ix)
        parts.append(read * (wy[:, None, :, None] * wx[:, None, None, :]))
    shape = (*parts[0].shape[:2], o.output_height, ratio, o.output_width, ratio)
    if o.mode == "max":
        return jnp.max(jnp.stack(parts), axis=0).reshape(shape).max(axis=(3, 5))
    return sum(parts).reshape(shape).mean(axis=(3, 5))


def _line(at: Any, n: int) -> tuple[list[Any], list[Any]]:
    """The two elements around each place and their shares; nothing more than one beyond the end."""
    live = (at >= -1) & (at <= n)
    at = jnp.clip(at, 0, n - 1)
    low = jnp.minimum(jnp.floor(at), n - 1)
    share = at - low
    index = [low.astype(np.int32), jnp.minimum(low + 1, n - 1).astype(np.int32)]
    return index, [jnp.where(live, 1 - share, 0), jnp.where(live, share, 0)]


DEFORMED = "x[N C H W] w[M c k l] offset[N K R S] b[M]? mask[N T R S]?; group offset_group"


@operator("DeformConv", takes=DEFORMED)
def deform_conv(o: Given) -> Array:
    """`x` [n, c, h, w]; `offset` [n, offset_group * taps * 2, h', w'] moves each tap down and to
    the right, for all channels of a group alike; `mask` [n, offset_group * taps, h', w'] weighs."""
    x, w, groups = o.x, o.w, o.offset_group
    (n, c), (rows, columns), kernel = x.shape[:2], o.offset.shape[2:], w.shape[2:]
    taps = kernel[0] * kernel[1]
    moved = jnp.asarray(o.offset).reshape(n, groups, taps, 2, rows, columns)
    images = jnp.asarray(x).reshape(n, groups, c // groups, *x.shape[2:])
    if o.mask is not None:
        shares = jnp.asarray(o.mask).reshape(n, groups, taps, rows, columns)
    window = Windowing.of(o.node)
    (s, d), p = window.steps(2), window.pads or [0] * 4
    ways = zip(x.shape[2:], kernel, s, d, p, p[2:], strict=False)
    places = [(n + a + b - (k - 1) * by - 1) // step + 1 for n, k, step, by, a, b in ways]
    if places != [rows, columns]:
        raise o.node.refuse(f"'offset' has shape {list(o.offset.shape)}, for {places} places")
    reads = []
    for tap, at in enumerate(product(*map(range, kernel))):
        down, right = (
            np.arange(size, dtype=np.float32) * s[a] - p[a] + at[a] * d[a]
            for a, size in enumerate((rows, columns))
        )
        y = moved[:, :, tap, 0] + down[:, None].astype(x.dtype)
        z = moved[:, :, tap, 1] + right.astype(x.dtype)
        read = jnp.stack([_between(images[:, g], [y[:, g], z[:, g]]) for g in range(groups)], 1)
        reads.append(read if o.mask is None else read * shares[:, :, tap, None])
    taken = jnp.stack(reads, 3).reshape(n, o.group, c // o.group, taps, rows, columns)
    kernels = jnp.asarray(w).reshape(o.group, w.shape[0] // o.group, c // o.group, taps)
    result = jnp.einsum("ngcthw,goct->ngohw", taken, kernels).reshape(n, w.shape[0], rows, columns)
    return result if o.b is None else result + o.b.reshape(-1, 1, 1)
