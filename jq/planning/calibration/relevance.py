"""Rows of the activations that reach the output: padding that a mask removes does not.

A range need not hold what is thrown away later, and one that does is coarser for the rest."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jq.base.errors import LOG
from jq.ir import Program, ir, maker, shape_of
from jq.ir.autodiff.evaluate import Unsupported
from jq.ir.autodiff.sensitivity import Sensitivity

Rows = Mapping[str, tuple[ir.Value, Sequence[int]]]  # site -> value, the axes of one row


class Relevance:
    """Rows of a batch of inputs, by site: 1 for those that move the output and 0 for others.

    Exact zeros of a gradient decide (never a NaN), in one random direction of the output. Sites of
    one row, or not followed, are missing; one of which no row moves the output counts whole: it may
    be read by what has no gradient, a rounding or the place of a maximum."""

    def __init__(self, program: Program, rows: Rows) -> None:
        inside = {
            name: (value, axes)
            for name, (value, axes) in rows.items()
            if math.prod(n for a, n in enumerate(shape_of(value)) if a not in axes) > 1
            and maker(value) is not None
            and value.owner.operation.block == program.body
        }
        self.shapes = {
            name: [n for a, n in enumerate(shape_of(value)) if a not in axes]
            for name, (value, axes) in inside.items()
        }
        self._gain: Sensitivity | None = None
        try:
            self._gain = Sensitivity(program, inside) if inside else None
        except Unsupported as reason:
            LOG.warning("ranges hold all rows of the calibration data: %s", reason)
            self.shapes = {}

    def __call__(self, inputs: Sequence[np.ndarray], seed: int) -> dict[str, Any]:
        if self._gain is None:
            return {}
        moving = {k: (~(g == 0)).astype(np.float32) for k, g in self._gain(inputs, seed, 1).items()}
        return {k: g if g.any() else np.ones_like(g) for k, g in moving.items()}
