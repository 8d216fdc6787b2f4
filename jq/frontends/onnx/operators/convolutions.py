"""Convolutions, and what undoes windows: ConvTranspose, MaxUnpool, Col2Im."""

import math
from itertools import product
from typing import Any

import jax.numpy as jnp
from jax import lax

from jq.frontends.onnx.operators.windows import Windowing
from jq.frontends.onnx.registry import Array, Known, operator


def convolve(x: Any, w: Any, window: Windowing, group: int, dtype: Any = None) -> Any:
    """NCHW by OIHW. Computed in NHWC by HWIO, which is what integer kernels take."""
    rank = x.ndim - 2
    s, d = window.steps(rank)
    pairs = window.padding(x.shape[2:], w.shape[2:])
    letters = "DHW"[-rank:] if rank <= 3 else "".join(map(chr, range(97, 97 + rank)))
    numbers = (f"N{letters}C", f"{letters}IO", f"N{letters}C")
    back = tuple(range(2, 2 + rank))
    y = lax.conv_general_dilated(
        jnp.transpose(x, (0, *back, 1)),
        jnp.transpose(w, (*back, 1, 0)),
        s,
        pairs,
        rhs_dilation=d,
        dimension_numbers=numbers,
        feature_group_count=group,
        preferred_element_type=dtype,
    )
    return jnp.transpose(y, (0, rank + 1, *range(1, rank + 1)))


@operator("Conv")
def conv(x: Array, w: Array, b: Array = None, *, window: Windowing, group: int = 1) -> Array:
    y = convolve(x, w, window, group)
    return y if b is None else y + b.reshape(-1, *[1] * (x.ndim - 2))


@operator("ConvTranspose")
def conv_transpose(
    x: Array,
    w: Array,
    b: Array = None,
    *,
    window: Windowing,
    group: int = 1,
    output_padding: Any = None,
    output_shape: Any = None,
) -> Array:
    """Weights are [C_in, C_out / group, ...]; computed as a convolution of the spread input."""
    rank, sizes = x.ndim - 2, w.shape[2:]
    (s, d), auto_pad, pads = window.steps(rank), window.auto_pad, window.pads
    extra = output_padding or [0] * rank
    reach = [(k - 1) * g + 1 for k, g in zip(sizes, d, strict=True)]
    pairs = []
    for i, (n, k) in enumerate(zip(x.shape[2:], reach, strict=True)):
        full = s[i] * (n - 1) + extra[i] + k
        if output_shape or auto_pad.startswith("SAME"):
            total = full - (output_shape[i - rank] if output_shape else n * s[i])
            small, large = total // 2, total - total // 2
            upper = auto_pad == "SAME_UPPER"
            pairs.append((small, large) if upper else (large, small))
        elif auto_pad == "VALID":
            pairs.append((0, 0))
        else:
            pairs.append((pads[i], pads[i + rank]) if pads else (0, 0))
    c_in, c_out = w.shape[:2]
    # Turned round, and [C_in, C_out / g] of each group as [C_out, C_in / g].
    kernel = jnp.flip(jnp.asarray(w), tuple(range(2, 2 + rank)))
    kernel = kernel.reshape(group, c_in // group, c_out, *sizes).swapaxes(1, 2)
    kernel = kernel.reshape(group * c_out, c_in // group, *sizes)
    back = tuple(range(2, 2 + rank))
    letters = "".join(map(chr, range(97, 97 + rank)))
    y = lax.conv_general_dilated(
        jnp.transpose(x, (0, *back, 1)),
        jnp.transpose(kernel, (*back, 1, 0)),
        [1] * rank,
        [(k - 1 - a, k - 1 - e + o) for k, (a, e), o in zip(reach, pairs, extra, strict=True)],
        lhs_dilation=s,
        rhs_dilation=d,
        dimension_numbers=(f"N{letters}C", f"{letters}IO", f"N{letters}C"),
        feature_group_count=group,
    )
    y = jnp.transpose(y, (0, rank + 1, *range(1, rank + 1)))
    return y if b is None else y + b.reshape(-1, *[1] * rank)


@operator("MaxUnpool")
def max_unpool(x: Array, indices: Array, output_shape: Known = None, *, window: Windowing) -> Array:
    rank, kernel = x.ndim - 2, window.kernel_shape
    s, p = window.steps(rank)[0], window.pads or [0] * 2 * rank
    sizes = [(n - 1) * s[i] - p[i] - p[i + rank] + kernel[i] for i, n in enumerate(x.shape[2:])]
    natural = (*x.shape[:2], *sizes)
    shape = natural if output_shape is None else tuple(int(n) for n in output_shape)
    # The indices are those of the tensor that was pooled.
    parts = jnp.unravel_index(jnp.asarray(indices).reshape(-1), natural)
    return jnp.zeros(shape, x.dtype).at[parts].set(jnp.asarray(x).reshape(-1))


@operator("Col2Im")
def col2im(x: Array, image_shape: Known, block_shape: Known, *, window: Windowing) -> Array:
    """Blocks, one a column, are added up where they lie in the image."""
    sizes, block = [int(n) for n in image_shape], [int(n) for n in block_shape]
    rank = len(sizes)
    (s, d), p = window.steps(rank), window.pads or [0] * 2 * rank
    padded = [n + p[i] + p[i + rank] for i, n in enumerate(sizes)]
    counts = [(n - d[i] * (block[i] - 1) - 1) // s[i] + 1 for i, n in enumerate(padded)]
    n, c = x.shape[0], x.shape[1] // math.prod(block)
    blocks = jnp.asarray(x).reshape(n, c, *block, *counts)
    image = jnp.zeros((n, c, *padded), x.dtype)
    for at in product(*(range(b) for b in block)):
        places = tuple(
            slice(i * d[a], i * d[a] + s[a] * (counts[a] - 1) + 1, s[a]) for a, i in enumerate(at)
        )
        image = image.at[(slice(None), slice(None), *places)].add(
            blocks[(slice(None), slice(None), *at)]
        )
    inner = tuple(slice(p[i], p[i] + n) for i, n in enumerate(sizes))
    return image[(slice(None), slice(None), *inner)]
