"""The largest sum that an int32 accumulator can reach: proved from the codes of a weight."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from jq.formats import NUMPY, Encoding
from jq.formats.affine import affine_format, is_affine
from jq.formats.blocks import expand, reduce_blocks
from jq.ir.ops.base import Axes
from jq.planning.decisions import TensorPlan
from jq.planning.encodings import code_bits

LIMIT = 2**31 - 1


def worst_case(terms: int, sides: list[TensorPlan]) -> int:
    """Any codes on both sides."""
    return terms * math.prod(largest_code(p) for p in sides)


def largest_code(p: TensorPlan) -> int:
    """Bound on |code - zero point|."""
    if p.parameters is not None and is_affine(p.encoding.format):
        low, high = affine_format(p.encoding.format).limits(p.encoding)
        zero = p.parameters[1] or 0
        return max(high - zero, zero - low)
    bits = code_bits(p.encoding)
    return 2**bits - 1 if p.encoding.scheme == "asymmetric" else 2 ** (bits - 1)


def largest_sum(parts: Mapping[str, Any], enc: Encoding, contracted: Axes) -> int:
    """The largest sum of |code - zero point| over what is summed into one accumulator."""
    fmt = affine_format(enc.format)
    codes = np.asarray(fmt.codes(NUMPY, parts, enc), np.int64)
    zero = fmt.zero_point(NUMPY, parts, enc)
    if zero is not None:
        codes = codes - np.asarray(expand(NUMPY, np.asarray(zero, np.int64), enc))
    block = tuple(b if a in contracted else 1 for a, b in enumerate(enc.block))
    sums = reduce_blocks(NUMPY, _total, np.abs(codes), enc.with_shape(enc.shape, block))
    return int(np.max(sums, initial=0))


def _total(x: np.ndarray, axes: list[int]) -> np.ndarray:
    return x.sum(axis=tuple(axes), keepdims=True)
