"""Operators on two tensors of 8-bit codes whose only definition is what ONNX Runtime computes, a
table (`jq.formats.pairs`). The program computes what gives the same table:

    quantize(op(dequantize(a), dequantize(b)))      with whole numbers in the place of the scales,

whose products and sums are exact, so that there is one rounding, and the passes see a sum or a
product of codes as everywhere. Which numbers come to the side of each middle that the table says is
found by trying; where none do (sums of which many are half way, with odd zero points) the program
looks up the table."""

from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np

from jq.formats.pairs import F32, F64, Scaled, Table, products, sums
from jq.formats.rescale import EXACT, MAX_FACTOR
from jq.frontends.onnx.quantized import dequantize, quantize
from jq.frontends.onnx.values import Codes, to_signed

TRIES = 400  # pairs of whole numbers that are tried, those first that are closest to the scales
ULPS = 8  # and steps of the result around the one that belongs to them
NEAR = 0.01  # steps; codes of sums that are further from the middle of two are not in doubt


def add(a: Any, b: Any, given: tuple[Scaled, Scaled, Scaled], name: str) -> Codes:
    """Adds two tensors, as `QLinearAdd` does."""
    x, z, y = given
    # A side that is repeated along the innermost axis is the second one.
    table = sums(z, x, y).T if _repeated(a.shape, b.shape) else sums(x, z, y)
    left, right = (n.numbers - n.zero for n in (x, z))
    found = _scales(left, right, F64(x.scale) / y.scale, F64(z.scale) / x.scale, table, y)
    return _computed(a, b, given, table, found, jnp.add, name)


def multiply(a: Any, b: Any, given: tuple[Scaled, Scaled, Scaled], name: str) -> Codes:
    """Multiplies two tensors, as `QLinearMul` does."""
    x, z, y = given
    table = products(x, z, y)
    whole = (x.numbers - x.zero)[:, None] * (z.numbers - z.zero)
    step = F32(F64(y.scale) / (F64(x.scale) * z.scale))
    fits = (s for s in _around(step) if np.array_equal(_coded(whole.astype(F32) / s, y), table))
    found = next(((1, 1, s) for s in fits), None)
    return _computed(a, b, given, table, found, jnp.multiply, name)


def _repeated(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """True if `a` has one element along the innermost axis of the result that has several."""
    shape = np.broadcast_shapes(a, b)
    full = (1,) * (len(shape) - len(a)) + tuple(a)
    inner = [mine for mine, size in zip(full, shape, strict=True) if size > 1]
    return bool(inner) and inner[-1] == 1


def _computed(
    a: Any,
    b: Any,
    given: tuple[Scaled, Scaled, Scaled],
    table: Table,
    found: tuple[int, int, np.float32] | None,
    function: Callable[[Any, Any], Any],
    name: str,
) -> Codes:
    x, z, y = given
    if found is None:
        left, right = (jnp.asarray(to_signed(v)).astype(np.int32) + 128 for v in (a, b))
        return Codes(jnp.take(table.reshape(-1), left * 256 + right, mode="clip"), y.dtype)
    gain, factor, step = found
    left = dequantize(a, np.asarray(gain, F32), np.asarray(x.zero, x.dtype), name=name)
    right = dequantize(b, np.asarray(factor, F32), np.asarray(z.zero, z.dtype), name=name)
    zero = np.asarray(y.zero, y.dtype)
    return quantize(function(left, right), np.asarray(step), zero, y.dtype, name=name)


def _coded(steps: np.ndarray, y: Scaled) -> np.ndarray:
    return y.rounded(np.rint(steps) + F32(y.zero))


def _scales(
    a: np.ndarray, b: np.ndarray, left: float, ratio: float, table: Table, y: Scaled
) -> tuple[int, int, np.float32] | None:
    """Whole numbers in the place of both scales, and the step of their sums that is a code.

    Args:
        a, b: the whole numbers of both sides, without their zero points.
        left, ratio: what one of `a` is in codes of the result, and one of `b` in those of `a`."""
    exact = left * (a[:, None] + ratio * b)
    low, high = (bound - y.zero for bound in y.bounds)
    doubt = (abs(exact - np.floor(exact) - 0.5) < NEAR) & (exact > low - 1) & (exact < high + 1)
    i, j = np.nonzero(doubt)
    some_a, some_b, wanted = a[i].astype(F32), b[j].astype(F32), table[i, j]
    for gain, factor in _whole(ratio):
        near = some_a * F32(gain) + some_b * F32(factor)
        for step in _around(F32(gain / left)):
            if not np.array_equal(_coded(near / step, y), wanted):
                continue
            full = a.astype(F32)[:, None] * F32(gain) + b.astype(F32) * F32(factor)
            # A kernel multiplies where a program divides.
            if all(np.array_equal(_coded(v, y), table) for v in (full / step, full * (1 / step))):
                return gain, factor, step
    return None


def _whole(ratio: float) -> Iterator[tuple[int, int]]:
    """Pairs whose quotient is next to `ratio`, the best first; sums of products are exact."""
    largest = min(MAX_FACTOR, int(EXACT / (1 + ratio)))
    gains = np.arange(1, largest + 1)
    factors = np.rint(gains * ratio).astype(np.int64)
    lowest = (factors > 0) & (factors <= MAX_FACTOR) & (np.gcd(gains, factors) == 1)
    gains, factors = gains[lowest], factors[lowest]
    best = np.argsort(abs(factors / gains - ratio), kind="stable")[:TRIES]
    yield from zip(gains[best].tolist(), factors[best].tolist(), strict=True)


def _around(step: np.float32) -> Iterator[np.float32]:
    """A number and its neighbours, those first that are next to it."""
    yield step
    below = above = step
    for _ in range(ULPS):
        below, above = np.nextafter(below, F32(0)), np.nextafter(above, F32(np.inf))
        yield from (below, above)
