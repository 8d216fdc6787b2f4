"""Codes of which the first stands for any float: a scale and a minimum for each block."""

import numpy as np

from jq.formats import NUMPY, Encoding, get_format
from jq.formats.blocks import expand
from jq.formats.imported.minimum import WithMinimum
from jq.ir.types import number_kind
from jq.passes.prepare.stored_weights._blocks import in_blocks, scale_type

BITS = (2, 4, 8)


def with_minimum(
    codes: np.ndarray, scale: np.ndarray, minimum: np.ndarray, kinds: set[str]
) -> tuple[Encoding, dict[str, np.ndarray]] | None:
    """`scale * codes + minimum` in the fewest bits; None where codes take more than 8, or are none.

    Negative codes are counted from the lowest of their type, whose number is then the minimum.
    """
    if number_kind(codes.dtype) != "i" or not codes.size:
        return None
    low, high = int(codes.min()), int(codes.max())
    for bits in BITS:
        first = 0 if low >= 0 else -(1 << (bits - 1))
        if first <= low and high < first + (1 << bits):
            break
    else:
        return None
    if first:
        minimum = (minimum + np.float64(first) * scale).astype(np.float32)
    block, (scale, minimum) = in_blocks(codes.shape, (scale, minimum))
    fmt = get_format(f"uint{bits}_min")
    assert isinstance(fmt, WithMinimum)
    enc = Encoding(fmt.name, codes.shape, block, scale_type=scale_type((scale, minimum), kinds))
    return enc, fmt.with_minimum(codes.astype(np.int64) - first, scale, minimum, enc)


def rounded_sizes(made: tuple[Encoding, dict[str, np.ndarray]]) -> np.ndarray:
    """The magnitudes that are rounded for each element: its product and its minimum together.

    Twice them, for the model and the format round a sum each: in float32 the latter rounds the
    minimum in steps, a sum and a product.
    """
    enc, parts = made
    fmt = get_format(enc.format)
    assert isinstance(fmt, WithMinimum)
    codes = np.asarray(fmt.codes(NUMPY, parts, enc), np.float64) - fmt.first
    scale, low = (
        np.abs(expand(NUMPY, parts[k].astype(np.float64), enc)) for k in ("scale", "minimum")
    )
    return np.asarray(2 * (codes * scale + low))
