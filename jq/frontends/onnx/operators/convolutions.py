"""Convolutions, and what undoes windows: ConvTranspose, MaxUnpool, Col2Im."""

import math
from itertools import product
from typing import Any

import jax.numpy as jnp
from jax import lax

from jq.frontends.onnx.operators.windows import Windowing
from jq.frontends.onnx.registry import Array, Call, Given, Known, operator


def convolve(x: Any, w: Any, window: Windowing, group: int, dtype: Any = None) -> Any:
    """NCHW by OIHW. Computed in NHWC by HWIO, which is what integer kernels take."""
    strides, dilations = window.steps(x.ndim - 2)
    pads = window.padding(x.shape[2:], w.shape[2:])
    return _convolved(x, w, strides, pads, dilations, group, preferred_element_type=dtype)


def _convolved(
    x: Any, w: Any, strides: Any, pads: Any, dilations: Any, group: int, **options: Any
) -> Any:
    rank = x.ndim - 2
    back = tuple(range(2, 2 + rank))
    letters = "DHW"[-rank:] if rank <= 3 else "".join(map(chr, range(97, 97 + rank)))
    y = lax.conv_general_dilated(
        jnp.transpose(x, (0, *back, 1)),
        jnp.transpose(w, (*back, 1, 0)),
        strides,
        pads,
        rhs_dilation=dilations,
        dimension_numbers=(f"N{letters}C", f"{letters}IO", f"N{letters}C"),
        feature_group_count=group,
        **options,
    )
    return jnp.transpose(y, (0, rank + 1, *range(1, rank + 1)))


def _biased(y: Any, b: Any) -> Any:
    return y if b is None else y + b.reshape(-1, *[1] * (y.ndim - 2))


@operator("Conv", takes="x[N C L ...] w b[M]?; group=1")
def conv(o: Given) -> Array:
    return _biased(convolve(o.x, o.w, Windowing.of(o.node), o.group), o.b)


@operator("ConvTranspose", takes="x[N C ...] w b[m*group]?; group=1 output_padding? output_shape?")
def conv_transpose(o: Given) -> Array:
    """Weights are [C_in, C_out / group, ...]; computed as a convolution of the spread input."""
    x, w, group, window = o.x, o.w, o.group, Windowing.of(o.node)
    rank, sizes, pads = x.ndim - 2, w.shape[2:], window.pads
    s, d = window.steps(rank)
    extra = o.output_padding or [0] * rank
    reach = [(k - 1) * g + 1 for k, g in zip(sizes, d, strict=True)]
    pairs = []
    for i, (n, k) in enumerate(zip(x.shape[2:], reach, strict=True)):
        if o.output_shape or window.auto_pad.startswith("SAME"):
            full = s[i] * (n - 1) + extra[i] + k
            total = full - (o.output_shape[i - rank] if o.output_shape else n * s[i])
            pairs.append(window.shared(total))
        elif window.auto_pad == "VALID":
            pairs.append((0, 0))
        else:
            pairs.append((pads[i], pads[i + rank]) if pads else (0, 0))
    c_in, c_out = w.shape[:2]
    # Turned round, and [C_in, C_out / g] of each group as [C_out, C_in / g].
    kernel = jnp.flip(jnp.asarray(w), tuple(range(2, 2 + rank)))
    kernel = kernel.reshape(group, c_in // group, c_out, *sizes).swapaxes(1, 2)
    kernel = kernel.reshape(group * c_out, c_in // group, *sizes)
    padding = [(k - 1 - a, k - 1 - b + e) for k, (a, b), e in zip(reach, pairs, extra, strict=True)]
    return _biased(_convolved(x, kernel, [1] * rank, padding, d, group, lhs_dilation=s), o.b)


@operator("MaxUnpool")
def max_unpool(x: Array, indices: Array, output_shape: Known = None, *, node: Call) -> Array:
    window = Windowing.of(node)
    rank, kernel = x.ndim - 2, window.kernel_shape
    s, p = window.steps(rank)[0], window.pads or [0] * 2 * rank
    sizes = [(n - 1) * s[i] - p[i] - p[i + rank] + kernel[i] for i, n in enumerate(x.shape[2:])]
    natural = (*x.shape[:2], *sizes)
    shape = natural if output_shape is None else tuple(int(n) for n in output_shape)
    # The indices are those of the tensor that was pooled.
    parts = jnp.unravel_index(jnp.asarray(indices).reshape(-1), natural)
    return jnp.zeros(shape, x.dtype).at[parts].set(jnp.asarray(x).reshape(-1))


@operator("Col2Im")
def col2im(x: Array, image_shape: Known, block_shape: Known, *, node: Call) -> Array:
    """Blocks, one a column, are added up where they lie in the image."""
    sizes, block = [int(n) for n in image_shape], [int(n) for n in block_shape]
    rank, window = len(sizes), Windowing.of(node)
    (s, d), p = window.steps(rank), window.pads or [0] * 2 * rank
    padded = [n + p[i] + p[i + rank] for i, n in enumerate(sizes)]
    counts = [(n - d[i] * (block[i] - 1) - 1) // s[i] + 1 for i, n in enumerate(padded)]
    n, c = x.shape[0], x.shape[1] // math.prod(block)
    blocks = jnp.asarray(x).reshape(n, c, *block, *counts)
    image = jnp.zeros((n, c, *padded), x.dtype)
    whole = slice(None), slice(None)  # batch and channels
    for at in product(*map(range, block)):
        axes = zip([i * by for i, by in zip(at, d, strict=True)], s, counts, strict=True)
        places = [slice(first, first + step * (m - 1) + 1, step) for first, step, m in axes]
        image = image.at[*whole, *places].add(blocks[*whole, *at])
    inner = [slice(p[i], p[i] + n) for i, n in enumerate(sizes)]
    return image[*whole, *inner]
