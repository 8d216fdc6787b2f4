"""Gather, scatter, and what finds places: TopK, OneHot, NonZero."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jq.frontends.onnx.registry import Array, Call, Known, microsoft, operator
from jq.frontends.onnx.values import is_float


def from_front(indices: Any, n: int) -> Any:
    """Indices in [-n, n) counted from the front; known ones are refused where they are others."""
    if isinstance(indices, np.ndarray):
        if indices.size and not -n <= indices.min() <= indices.max() < n:
            raise IndexError(f"indices {indices.min()} to {indices.max()} of an axis of {n}")
        return np.where(indices < 0, indices + n, indices)
    return jnp.where(indices < 0, indices + np.asarray(n, indices.dtype), indices)


@operator("Gather", moves=True)
def gather(data: Array, indices: Array, *, axis: int) -> Array:
    return jnp.take(data, from_front(indices, data.shape[axis]), axis=axis, mode="clip")


@operator("GatherElements", moves=True)
def gather_elements(data: Array, indices: Array, *, axis: int) -> Array:
    data, axis = jnp.asarray(data), axis % data.ndim
    index = from_front(indices, data.shape[axis])
    if tuple(indices.shape) != tuple(data.shape):  # the other axes may be shorter
        cut = [slice(0, n) for n in indices.shape]
        cut[axis] = slice(None)
        data = data[tuple(cut)]
    return jnp.take_along_axis(data, index, axis=axis, mode="clip")


@operator("GatherND", moves=True)
@microsoft("GatherND", moves=True)
def gather_nd(data: Array, indices: Array, *, batch_dims: int = 0) -> Array:
    def pick(data: Any, indices: Any) -> Any:
        parts = [from_front(indices[..., i], data.shape[i]) for i in range(indices.shape[-1])]
        return data[tuple(parts)]

    data, indices = jnp.asarray(data), jnp.asarray(indices)
    for _ in range(batch_dims):
        pick = jax.vmap(pick)
    return pick(data, indices)


def _combine(at: Any, updates: Any, reduction: str) -> Any:
    how = {"none": "set", "add": "add", "mul": "multiply", "max": "max", "min": "min"}[reduction]
    return getattr(at, how)(updates)


@operator("ScatterElements", "Scatter")
def scatter_elements(
    data: Array, indices: Array, updates: Array, *, axis: int, reduction: str = "none"
) -> Array:
    data, axis = jnp.asarray(data), axis % data.ndim
    grid = list(np.ogrid[tuple(slice(0, n) for n in indices.shape)])
    grid[axis] = from_front(indices, data.shape[axis])
    return _combine(data.at[tuple(grid)], updates, reduction)


@operator("ScatterND")
def scatter_nd(data: Array, indices: Array, updates: Array, *, reduction: str = "none") -> Array:
    data, indices = jnp.asarray(data), jnp.asarray(indices)
    parts = tuple(from_front(indices[..., i], data.shape[i]) for i in range(indices.shape[-1]))
    return _combine(data.at[parts], updates, reduction)


@operator("TensorScatter")
def tensor_scatter(
    cache: Array, update: Array, write_indices: Array = None, *, axis: int, mode: str
) -> Array:
    """Writes `update` into each sample's cache from its index on, `circular` around the end."""
    cache, axis = jnp.asarray(cache), axis % cache.ndim
    n, steps = cache.shape[axis], update.shape[axis]
    first = jnp.zeros(cache.shape[0], np.int64) if write_indices is None else write_indices
    places = jnp.asarray(first)[:, None] + jnp.arange(steps)[None]
    if mode == "circular":
        places = places % n
    moved, new = jnp.moveaxis(cache, axis, 1), jnp.moveaxis(jnp.asarray(update), axis, 1)
    return jnp.moveaxis(moved.at[jnp.arange(cache.shape[0])[:, None], places].set(new), 1, axis)


@operator("OneHot")
def one_hot(indices: Array, depth: Known, values: Array, *, axis: int) -> Array:
    n = int(depth.reshape(-1)[0])
    index = jnp.asarray(indices).astype(np.int64)
    places = jnp.expand_dims(from_front(index, n), axis)
    at = axis % places.ndim
    steps = jnp.arange(n).reshape([n if i == at else 1 for i in range(places.ndim)])
    values = jnp.asarray(values)
    return jnp.where(places == steps, values[1], values[0])


@operator("TopK")
def top_k(
    x: Array, k: Known, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Array, Array]:
    """The first of equal elements comes first."""
    x = jnp.asarray(x)
    n = int(np.asarray(k).reshape(-1)[0])
    keys = jnp.moveaxis(x, axis, -1)
    index = lax.broadcasted_iota(np.int64, keys.shape, keys.ndim - 1)
    backwards = -keys if is_float(keys.dtype) else ~keys
    order = backwards if largest else keys
    _, index = lax.sort((order, index), dimension=-1, is_stable=True, num_keys=1)
    index = index[..., :n]
    values = jnp.take_along_axis(keys, index, axis=-1)
    return jnp.moveaxis(values, -1, axis), jnp.moveaxis(index, -1, axis)


@operator("NonZero")
def non_zero(x: Array, *, node: Call) -> Array:
    if isinstance(x, jax.core.Tracer):
        raise node.refuse("how many there are depends on the model's inputs")
    return np.stack(np.nonzero(np.asarray(x))).astype(np.int64)


@operator("Compress")
def compress(x: Array, condition: Known, *, axis: int | None = None) -> Array:
    """A condition may be longer than the axis."""
    x = jnp.asarray(x).reshape(-1) if axis is None else x
    places = np.flatnonzero(condition.reshape(-1)[: x.shape[axis or 0]])
    return jnp.take(x, places, axis=axis or 0)


@operator("Unique")
def unique(x: Known, *, axis: int | None = None, sorted: int = 1) -> Any:
    data = x if axis is not None else x.reshape(-1)
    at = axis or 0
    values, first, inverse, counts = np.unique(
        data, return_index=True, return_inverse=True, return_counts=True, axis=at
    )
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        values, first, counts = np.take(values, order, at), first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    return values, *(v.astype(np.int64) for v in (first, inverse, counts))
