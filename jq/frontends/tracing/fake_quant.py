"""Fake quantization for training: values that a format can hold, gradients as if nothing happened.

Each call is one composite in the traced program, which the compiler takes for what it is: the
parameters of a weight or of an activation."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from jq.base.errors import UserError, check_known
from jq.formats import Encoding, affine_format, get_format, is_affine
from jq.formats.blocks import expand
from jq.formats.floats import Mx
from jq.frontends.tracing.arrays import JaxOps
from jq.ir.encodings import FAKE_QUANT, attributes_of

OPS = JaxOps()
Axis = int | Sequence[int] | None


def fake_quant(
    x: Any,
    format: str = "int8",
    *,
    scheme: str = "symmetric",
    granularity: str = "per-tensor",
    axis: Axis = None,
    block_size: int = 32,
    range: tuple[Any, Any] | None = None,
) -> jax.Array:
    """`x` quantized to integers and back, in its own type and shape.

    The gradient of x is passed on where x lies in the range, and is 0 beyond it, where the end of
    the range gets it, so that a range can be learned (Choi et al. 2018, PACT).

    Args:
        x: float array.
        format: an integer format, `int8`, `int4`, ...
        scheme: `symmetric` or `asymmetric`.
        granularity: `per-tensor`; `per-channel`, a scale for each index of `axis` (one axis or
            several, default the last); `per-token`, a scale for each index of all axes but
            `axis` (default the last); `per-block`, blocks of `block_size` along `axis`
            (default the first) and a scale for each index of the others.
        axis: see `granularity`.
        block_size: see `granularity`.
        range: smallest and largest value, numbers or arrays of one number a scale (or one for
            all), constant or learned. None takes them from x: of a weight once and for all, of
            an activation on every call.

    Raises:
        UserError: x is no float array, or an argument does not fit.

    Example:
        ```python
        x = jnp.linspace(-1.0, 1.0, 8)
        print(jq.fake_quant(x, "int4", scheme="asymmetric", range=(-1.0, 1.0)))
        ```"""
    fmt, x = get_format(format), _floats(x)
    if not is_affine(format):
        raise UserError(f"fake_quant has no format {fmt.name}", hint="see jq.mx_fake_quant")
    block = _block(x.ndim, granularity, axis, block_size)
    enc = Encoding(fmt.name, x.shape, block, scheme)
    fmt.check(enc)
    if range is None:
        return _own(enc, x)
    low, high = (_on_grid(v, enc) for v in range)
    return _given(enc, x, low, high)


def mx_fake_quant(x: Any, format: str = "mxint8", axis: int = -1) -> jax.Array:
    """Rounds `x` to an MX format with blocks of 32 along `axis`; type and shape stay.

    The gradient is passed on as it is.

    Args:
        x: float array of any shape.
        format: `mxint8`, `mxfp4`, `mxfp6_e2m3`, `mxfp6_e3m2`, `mxfp8_e4m3` or `mxfp8_e5m2`.
        axis: the axis of the blocks, which share a power of two; the last block may be short.

    Raises:
        UserError: x is no float array, or `format` is no MX format.

    Example:
        ```python
        rounded = jq.mx_fake_quant(jnp.linspace(0.0, 1.0, 64), "mxfp4")
        ```"""
    fmt, x = get_format(format), _floats(x)
    if not isinstance(fmt, Mx):
        raise UserError(f"mx_fake_quant has no format {fmt.name}", hint="see jq.fake_quant")
    block = fmt.default_block(x.shape, _axes(axis, x.ndim)[0])
    assert block is not None
    enc = Encoding(fmt.name, x.shape, block)
    fmt.check(enc)
    return _own(enc, x)


def fake_quant_as(enc: Encoding, x: jax.Array, *range: jax.Array) -> jax.Array:
    """`x` through the codes of an encoding, with its own range or that given as low and high, f32
    of the encoding's grid; gradients as of `fake_quant`."""
    return _given(enc, x, *range) if range else _own(enc, x)


def _array(x: Any, dtype: Any = None) -> jax.Array:
    try:
        return jnp.asarray(x, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise UserError(f"only float arrays can be fake-quantized: {error}") from error


def _floats(x: Any) -> jax.Array:
    x = _array(x)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise UserError(f"only float arrays can be fake-quantized, not {x.dtype}")
    return x


def _axes(axis: Axis, rank: int) -> list[int]:
    given = list(axis or ()) if isinstance(axis, Sequence) or axis is None else [axis]
    if any(not -rank <= a < rank for a in given):
        raise UserError(f"axis {axis} of an array of {rank} axes")
    return [a % rank for a in given]


def _block(rank: int, granularity: str, axis: Axis, size: int) -> tuple[int, ...]:
    # The axis that is meant where none is given, and the block along it and along the others.
    known = {"per-channel": (-1, 1, 0), "per-token": (-1, 0, 1), "per-block": (0, size, 1)}
    check_known("granularity", granularity, ("per-tensor", *known))
    if granularity == "per-tensor" or not rank:
        return (0,) * rank
    default, inside, outside = known[granularity]
    chosen = _axes(default if axis is None else axis, rank)
    return tuple(inside if a in chosen else outside for a in np.arange(rank).tolist())


def _on_grid(value: Any, enc: Encoding) -> jax.Array:
    value = _array(value, jnp.float32)
    if value.size == 1:
        return jnp.broadcast_to(value.reshape(()), enc.grid)
    if value.size != np.prod(enc.grid, dtype=int):
        raise UserError(f"a range of shape {value.shape} for scales of shape {enc.grid}")
    return value.reshape(enc.grid)


@cache
def _marked(enc: Encoding) -> Callable[..., jax.Array]:
    """The composite of an encoding, as a function of x and, when they are given, low and high.

    Under `vmap` it is one composite still: with a scale of its own for each index of the new axis,
    or with those of the others where x alone is mapped and the range is given."""

    def body(x: jax.Array, *given: jax.Array, **_: str) -> jax.Array:
        fmt = get_format(enc.format)
        if not given:
            return fmt.fake_quantize(OPS, x, enc).astype(x.dtype)
        low, high = given
        return affine_format(enc.format).fake_quantize(OPS, x, enc, (low, high)).astype(x.dtype)

    @custom_vmap
    def call(x: jax.Array, *given: jax.Array) -> jax.Array:
        return jax.lax.composite(body, FAKE_QUANT)(x, *given, **attributes_of(enc))

    @call.def_vmap
    def _(size: int, mapped: Sequence[Any], x: jax.Array, *given: jax.Array) -> Any:
        if not mapped[0]:
            x = jnp.broadcast_to(x, (size, *x.shape))
        own = 0 if given and not any(mapped[1:]) else 1
        wider = enc.with_shape(x.shape, (own, *enc.block))
        ranges = [
            v if m else jnp.broadcast_to(v, wider.grid)
            for v, m in zip(given, mapped[1:], strict=True)
        ]
        return _marked(wider)(x, *ranges), True

    return call


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _own(enc: Encoding, x: jax.Array) -> jax.Array:
    return _marked(enc)(x)


_own.defvjp(lambda enc, x: (_own(enc, x), None), lambda enc, _, g: (g,))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _given(enc: Encoding, x: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
    return _marked(enc)(x, low, high)


def _clipped(enc: Encoding, x: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
    """Fake quantization without the steps: its derivatives are taken from this."""
    if enc.scheme == "symmetric":
        high = jnp.maximum(jnp.abs(low), jnp.abs(high))
        low = -high
    low, high = (expand(OPS, v, enc).astype(x.dtype) for v in (low, high))
    return jnp.where(x > high, high, jnp.where(x < low, low, x))


_given.defvjp(
    lambda enc, *args: (_given(enc, *args), args),
    lambda enc, args, g: jax.vjp(partial(_clipped, enc), *args)[1](g),
)
