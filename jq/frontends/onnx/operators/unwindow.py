"""Windows put back into an image: MaxUnpool, Col2Im."""

import math
from itertools import product
from typing import Any

import jax.numpy as jnp

from jq.frontends.onnx.registry import Array, Known, operator


@operator("MaxUnpool")
def max_unpool(
    x: Array,
    indices: Array,
    output_shape: Known = None,
    *,
    kernel_shape: list[int],
    pads: Any = None,
    strides: Any = None,
) -> Array:
    rank = x.ndim - 2
    s, p = strides or [1] * rank, pads or [0] * 2 * rank
    sizes = [
        (n - 1) * s[i] - p[i] - p[i + rank] + kernel_shape[i] for i, n in enumerate(x.shape[2:])
    ]
    natural = (*x.shape[:2], *sizes)
    shape = natural if output_shape is None else tuple(int(n) for n in output_shape)
    # The indices are those of the tensor that was pooled.
    parts = jnp.unravel_index(jnp.asarray(indices).reshape(-1), natural)
    return jnp.zeros(shape, x.dtype).at[parts].set(jnp.asarray(x).reshape(-1))


@operator("Col2Im")
def col2im(
    x: Array,
    image_shape: Known,
    block_shape: Known,
    *,
    dilations: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Array:
    """Blocks, one a column, are added up where they lie in the image."""
    sizes, block = [int(n) for n in image_shape], [int(n) for n in block_shape]
    rank = len(sizes)
    s, d, p = strides or [1] * rank, dilations or [1] * rank, pads or [0] * 2 * rank
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
