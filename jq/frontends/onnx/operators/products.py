"""Matrix products."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jq.frontends.onnx.registry import MICROSOFT, Array, operator


@operator("MatMul")
def matmul(a: Array, b: Array) -> Array:
    """Batch axes that both have stay as they are, those of size 1 too, which `jnp.matmul` takes out
    of the product: an attention is found by the axes of its scores."""
    kind, rank = np.dtype(a.dtype), len(a.shape)
    if rank < 3 or a.shape[:-2] != b.shape[:-2]:
        return jnp.matmul(a, b, preferred_element_type=kind)
    batch = tuple(range(rank - 2))
    dims = ((rank - 1,), (rank - 2,)), (batch, batch)
    return lax.dot_general(a, b, dims, preferred_element_type=kind)


@operator("Gemm")
def gemm(
    a: Array, b: Array, c: Array = None, *, alpha: float, beta: float, transA: int, transB: int
) -> Array:
    y = matmul(a.T if transA else a, b.T if transB else b)
    if alpha != 1:
        y = y * np.asarray(alpha, y.dtype)
    if c is None:
        return y
    return y + (c if beta == 1 else c * np.asarray(beta, y.dtype))


@operator("Einsum")
def einsum(*xs: Array, equation: str) -> Array:
    kind = np.dtype(xs[0].dtype)
    return jnp.einsum(equation.replace(" ", ""), *xs, preferred_element_type=kind)


@operator("Det")
def det(x: Array) -> Array:
    return jnp.linalg.det(x)


@operator("Inverse", domain=MICROSOFT)
def inverse(x: Array) -> Array:
    return jnp.linalg.inv(x)


@operator("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(
    a: Array,
    b: Array,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Array:
    a, b = _turned(a, transA, transBatchA), _turned(b, transB, transBatchB)
    y = matmul(a, b)
    return y if alpha == 1 else y * np.asarray(alpha, y.dtype)


def _turned(x: Any, transpose: int, batch: int) -> Any:
    """`batch` moves the first axis in front of the last one before anything else."""
    if batch:
        x = jnp.moveaxis(x, 0, -2)
    return jnp.swapaxes(x, -1, -2) if transpose else x
