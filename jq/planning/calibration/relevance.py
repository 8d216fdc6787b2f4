"""Rows of the activations that reach the output: padding that a mask removes does not.

A range need not hold what is thrown away later, and one that does is coarser for the rest."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jq.base.errors import LOG
from jq.ir import Program, dtype_of, ir, kind_of, maker, shape_of
from jq.ir.autodiff.evaluate import Unsupported
from jq.ir.autodiff.sensitivity import Reached
from jq.ir.pointwise import ROUNDED
from jq.ir.types import number_kind
from jq.ir.values import reached, reads

Rows = Mapping[str, tuple[ir.Value, Sequence[int]]]  # site -> value, the axes of one row


class Relevance:
    """Rows of a batch of inputs, by site: 1 for those that move the output and 0 for others.

    Exact zeros of a gradient decide (never a NaN), in one random direction of the output. Sites of
    one row, or not followed (as what is only rounded, or searched for its maximum: without a
    gradient), are missing; a batch that does not move the output counts whole."""

    def __init__(self, program: Program, rows: Rows) -> None:
        moving = reached(program.returned[: len(program.outputs)], _followed)
        shapes = {
            name: [n for a, n in enumerate(shape_of(value)) if a not in axes]
            for name, (value, axes) in rows.items()
            if value in moving and (op := maker(value)) and op.operation.block == program.body
        }
        self.shapes = {name: shape for name, shape in shapes.items() if math.prod(shape) > 1}
        inside = {name: rows[name] for name in self.shapes}
        try:
            self._gain = Reached(program, inside) if inside else None
        except Unsupported as reason:
            LOG.warning("ranges hold all rows of the calibration data: %s", reason)
            self._gain, self.shapes = None, {}

    def __call__(self, inputs: Sequence[np.ndarray], seed: int) -> dict[str, Any]:
        found = self._gain.once(inputs, seed) if self._gain else {}
        moving = {k: np.asarray(g, np.float32) for k, g in found.items()}
        some = any(g.any() for g in moving.values())
        return moving if some else {k: np.ones_like(g) for k, g in moving.items()}


def _followed(value: ir.Value) -> list[ir.Value]:
    """The values that the gradient of one may go back to."""
    op = maker(value)
    if op is None or kind_of(op) in ROUNDED or number_kind(dtype_of(value)) != "f":
        return []
    return list(reads(op))
