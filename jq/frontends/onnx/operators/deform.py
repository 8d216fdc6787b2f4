"""DeformConv: a convolution whose taps each read the image at a place of their own."""

from itertools import product
from typing import Any

import jax.numpy as jnp
import numpy as np

from jq.frontends.onnx.operators.sampling import pick
from jq.frontends.onnx.registry import Array, Call, operator


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
