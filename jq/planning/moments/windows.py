"""The part of an image in a convolution's window at each output position."""

from __future__ import annotations

import itertools

import numpy as np

from jq.ir import Op, dtype_of, ir, shape_of
from jq.ir.build import integers, strided_slice
from jq.ir.ops.layout import Layout, pad, padding_of
from jq.planning.calibration.stat_ops import PROGRAM_STATS as OPS


def windows(op: Op) -> ir.Value:
    """[B, positions..., taps..., C] of the input: data moved, nothing computed.

    Positions and taps in the order of the input's spatial axes; C counts all groups.
    """
    d, kernel = Layout.of(op), shape_of(op.operands[1])
    sizes = [kernel[a] for a in d.kernel_spatial]
    ones = (1,) * len(sizes)
    strides = integers(op, "window_strides") or ones
    dilations = integers(op, "rhs_dilation") or ones
    x = _spread(
        op, OPS.transpose(op.operands[0], [d.input_batch, *d.input_spatial, d.input_feature])
    )
    batch, *_, channels = shape_of(x)
    result = shape_of(op.operation.results[0])
    counts = [result[a] for a in d.output_spatial]
    reach = [(n - 1) * by + 1 for n, by in zip(counts, strides, strict=True)]
    offsets = [
        [i * by for i in (reversed(range(n)) if turned else range(n))]
        for n, by, turned in zip(sizes, dilations, _reversed(op, len(sizes)), strict=True)
    ]
    taps = []
    for first in itertools.product(*offsets):
        end = [a + n for a, n in zip(first, reach, strict=True)]
        taps.append(strided_slice(x, [0, *first, 0], [batch, *end, channels], [1, *strides, 1]))
    together = taps[0] if len(taps) == 1 else OPS.concatenate(taps, len(sizes) + 1)
    return OPS.reshape(together, [batch, *counts, *sizes, channels])


def _spread(op: Op, x: ir.Value) -> ir.Value:
    """[B, spatial..., C] with the zeros around and between its elements."""
    padding = padding_of(op)
    between = integers(op, "lhs_dilation") or (1,) * len(padding)
    low, high = ([0, *(p[i] for p in padding), 0] for i in (0, 1))
    interior = [0, *(n - 1 for n in between), 0]
    if not any((*low, *high, *interior)):
        return x
    return pad(x, OPS.constant(np.zeros((), dtype_of(x))), low, high, interior)


def _reversed(op: Op, rank: int) -> list[bool]:
    attributes = op.operation.attributes
    if "window_reversal" not in attributes:
        return [False] * rank
    return [bool(v) for v in ir.DenseBoolArrayAttr(attributes["window_reversal"])]
