"""The parts of a chain from a convolution to its codes, and their numbers for each channel."""

from collections.abc import Sequence

import numpy as np

from jq.formats.integer_functions import Output
from jq.formats.requantize import INT32
from jq.ir import Program, ir, shape_of
from jq.ir.affine import Affine, backwards
from jq.ir.markers import QUANTIZE, match
from jq.ir.ops.lookup import makes_feature_map
from jq.ir.values import maker, only_user
from jq.passes.integer._sums import IntegerProduct
from jq.passes.integer._values import Leaf, leaf_of, output_of

LARGEST = 2.0**30  # steps; a conversion to int32 does not overflow
NEARLY = 2.0**-14  # steps of the result that a bias may be off by rounding, to be a whole number
INT8 = np.iinfo(np.int8)


def rounded_codes(program: Program, value: ir.Value) -> tuple[Output | None, Leaf | None, ir.Value]:
    """The codes a value is rounded to, their encoding, and the rounded value; the value itself
    where it is not made of codes that nothing else reads."""
    leaf = leaf_of(program, value)
    marker = match(leaf.codes, QUANTIZE) if leaf else None
    out = output_of(program, marker) if marker else None
    if leaf is None or marker is None or out is None or out.dtype != np.int8:
        return None, None, value
    if out.zero_point != leaf.zero_point:
        return None, None, value
    if only_user(value) is None or only_user(leaf.codes) is None:
        return None, None, value
    return out, leaf, marker.op.operands[0]


def sum_behind(program: Program, value: ir.Value) -> list[tuple[Leaf, ir.Value]] | None:
    """The two ways to see a sum as codes and something else; None for what is no such sum."""
    if maker(value, "stablehlo.add") is None:
        return None
    a, b = value.owner.operands
    pairs = [(leaf_of(program, x), y) for x, y in ((a, b), (b, a))]
    known = [(leaf, y) for leaf, y in pairs if leaf is not None and leaf.high <= INT8.max]
    return known if known and only_user(value) is not None else None


def convolved(program: Program, value: ir.Value) -> Affine | None:
    """The affine steps after a convolution."""
    affine = backwards(program, value)
    steps = [affine.source, *(op.results[0] for op in affine.ops)]
    source = maker(affine.source)
    if source is None or not makes_feature_map(source):
        return None
    return affine if all(only_user(v) is not None for v in steps) else None


def channel_vectors(
    affine: Affine, product: IntegerProduct, unit: float, step: float, axis: int, whole: bool
) -> tuple[np.ndarray, np.ndarray] | None:
    """i32 bias and f32 multiplier along `axis`; None where they vary along others, are too large,
    or the bias is to be `whole` and is not.
    """
    shape = shape_of(affine.result)
    real = np.asarray(affine.c * product.factor)
    if not np.isfinite(real).all() or (real == 0).any():
        return None
    bias = np.rint(affine.b / real)
    if whole and np.abs(bias * real - affine.b).max() > NEARLY * step:
        return None
    total = np.max(product.bound + np.abs(bias))
    multiplier = (real / unit).astype(np.float32)
    normal = np.abs(multiplier) >= np.finfo(np.float32).tiny
    if not total <= INT32.max or not normal.all() or total * np.abs(real).max() / step > LARGEST:
        return None
    found = [_along(array, shape, axis) for array in (bias, multiplier)]
    if found[0] is None or found[1] is None:
        return None
    return found[0].astype(np.int32), found[1].astype(np.float32)


def _along(array: np.ndarray, shape: Sequence[int], axis: int) -> np.ndarray | None:
    """A compact array as a vector along one axis."""
    array = np.asarray(array)
    full = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
    others = [n for a, n in enumerate(full.shape) if a != axis]
    if any(n != 1 for n in others):
        return None
    return np.broadcast_to(full.reshape(-1), [shape[axis]])
