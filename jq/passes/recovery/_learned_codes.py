"""Stored parts of weights as codes and scales that are learned, and back."""

from collections.abc import Mapping

import numpy as np

from jq.formats import Encoding, get_format
from jq.formats.arrays import NUMPY
from jq.formats.blocks import sizes
from jq.formats.scaled import Scaled
from jq.ir import Program
from jq.ir.autodiff.rounding import Codes
from jq.passes.base import PassContext, of_weight
from jq.passes.recovery._grids import Integer, bits_of, has_grid, integers_stored, levels_of, packed

Parts = dict[str, dict[str, np.ndarray]]


def learnable(program: Program, cx: PassContext) -> Parts:
    """Stored parts of weights in few bits: as another pass chose them, else by plain rounding."""
    found: Parts = {}
    for name, enc in cx.plan.weights.items():
        if has_grid(enc) and bits_of(enc) < 8:
            chosen = program.chosen.get(name)
            with of_weight(name):
                found[name] = chosen or get_format(enc.format).encode(
                    np.asarray(program.weights[name]).astype(np.float32), enc
                )
    return found


def codes_of(parts: Mapping[str, np.ndarray], enc: Encoding) -> Codes:
    """The stored parts of a weight."""
    fmt = get_format(enc.format)
    if isinstance(fmt, Scaled):
        levels, scale = levels_of(fmt.element), fmt.scale(NUMPY, parts, enc)
        numbers = fmt.element.decode(NUMPY, fmt.codes(NUMPY, parts, enc))
        codes = np.searchsorted(levels, np.asarray(numbers)).astype(np.float32)
        none, ends = np.zeros(enc.grid, np.float32), (0, len(levels) - 1)
        return Codes(codes, np.asarray(scale), none, sizes(enc), ends, levels)
    assert isinstance(fmt, Integer)
    found, zero = fmt.integers(NUMPY, parts, enc), np.zeros(enc.grid, np.float32)
    codes, scale = (np.asarray(v, np.float32) for v in (found.codes, found.scale))
    zero = zero if found.zero_point is None else np.asarray(found.zero_point, np.float32)
    zero = zero if found.offset is None else -np.asarray(found.offset) / scale
    return Codes(codes, scale, zero, sizes(enc), fmt.limits(enc), free=found.offset is not None)


def stored(
    found: Mapping[str, np.ndarray], before: Codes, parts: Mapping[str, np.ndarray], enc: Encoding
) -> dict[str, np.ndarray]:
    """Parts of what was learned, as they are stored, in place of `parts`."""
    if before.levels is not None:
        return {**parts, "codes": packed(before.levels[found["codes"].astype(int)], enc)}
    scale, zero = _held(found["scale"], before, enc), found.get("zero", before.zero)
    return integers_stored(found["codes"], scale, zero, enc)


def _held(scale: np.ndarray, before: Codes, enc: Encoding) -> np.ndarray:
    """Scales as their type has them, f32; one that it does not hold stays as it was."""
    with np.errstate(over="ignore"):
        new = scale.astype(enc.scale_type).astype(np.float32)
    return np.where(np.isfinite(new) & (new > 0), new, before.scale)
