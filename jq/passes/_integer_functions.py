"""Softmax and normalizations of a region, as calls of `jq.formats.integer_functions`."""

from __future__ import annotations

import math

import numpy as np

from jq.formats.integer_functions import FRACTION, Output, unit_rows
from jq.formats.integer_functions import softmax as integer_softmax
from jq.formats.requantize import clip, rescale_by, rounding_right_shift, splat
from jq.ir import Program, ir, shape_of
from jq.ir.arrays import StableHloOps
from jq.ir.cone import between, kind_of
from jq.passes._functions import as_normalization
from jq.passes._integer_ops import as_softmax, behind
from jq.passes._integer_values import I64, Leaf, centered, leaf_of, saturated, scaled, spread

OPS = StableHloOps()
WIDE = 1 << 30  # a sum in front of softmax saturates here: no difference leaves int32


def softmax(program: Program, value: ir.Value, out: Output) -> ir.Value | None:
    """Softmax of a leaf, or of a sum of two, that ends in `value`."""
    if isinstance(value.owner, ir.Block) or kind_of(value.owner) != "stablehlo.divide":
        return None
    for source in behind(value):
        terms = _terms(program, source)
        if not terms:
            continue
        cut = between(program, source, value)
        found = as_softmax(cut) if cut else None
        if found is None:
            continue
        step = min(leaf.scale for leaf in terms)
        x = None
        for leaf in terms:
            wide = rescale_by(OPS, centered(leaf, I64), leaf.scale / step)
            x = wide if x is None else OPS.add(x, wide)
        x = clip(OPS, x, -WIDE, WIDE)
        return integer_softmax(OPS, x, step, found.axis, out)
    return None


def _terms(program: Program, source: ir.Value) -> list[Leaf]:
    """The leaf that `source` is, or the two leaves that it is the sum of."""
    leaf = leaf_of(program, source)
    if leaf is not None:
        return [leaf]
    if isinstance(source.owner, ir.Block) or kind_of(source.owner) != "stablehlo.add":
        return []
    leaves = [leaf_of(program, v) for v in source.owner.operation.operands]
    return [] if any(v is None for v in leaves) else [v for v in leaves if v]


def normalization(program: Program, value: ir.Value, out: Output, name: str) -> ir.Value | None:
    """LayerNorm or RMSNorm of a leaf that ends in `value`."""
    for source in behind(value):
        leaf = leaf_of(program, source)
        if leaf is None:
            continue
        cut, shape = between(program, source, value), shape_of(value)
        found = as_normalization(cut, shape) if cut and shape_of(source) == shape else None
        if found is None:
            continue
        axis, n = len(shape) - 1, shape[-1]
        unit = unit_rows(
            OPS, centered(leaf, I64), leaf.scale, found.epsilon, center=found.center, axis=axis
        )
        gamma = np.ones(n) if found.gamma is None else found.gamma.astype(np.float64)
        row = [1] * axis + [n]
        factor = gamma.reshape(row) * math.sqrt(n) * 2.0**-30 / out.scale * (1 << FRACTION)
        y = scaled(program, unit, factor, name)
        if found.beta is not None:
            beta = np.rint(found.beta.astype(np.float64) / out.scale * (1 << FRACTION))
            y = OPS.add(y, spread(program, beta.reshape(row), shape, f"{name}:beta"))
        y = rounding_right_shift(OPS, y, splat(OPS, FRACTION, y))
        return saturated(y, out)
    return None
