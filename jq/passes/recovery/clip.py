"""Ends of weights' ranges are chosen for the least squared error, not for the largest value.

    least over r in shares of  sum over a block of  h_k (Q(w; r * lo, r * hi) - w)^2

for every scale by itself; with zero points, also for both ends. h_k = E[x_k^2] of the input that a
weight is multiplied by where there are calibration data, else 1. A few large weights are cut off,
all others get a finer step. Weights that another recovery pass chose codes for are left alone."""

import numpy as np

from jq.formats import get_format
from jq.formats.blocks import per_block
from jq.ir import Program
from jq.passes.base import LOG, PassContext, Recovery, of_weight
from jq.passes.recovery._grids import Integer, grid_of
from jq.passes.recovery._inputs import Matrix, moments_of_weights, uses_of_weights
from jq.passes.recovery._ranges import near_one

F32 = np.float32


class Clip(Recovery):
    """Option `power`: of the mean squared gradient of a row of the input, which is its weight."""

    needs_data = False
    power: float = 0.5

    def wanted(self, program: Program, cx: PassContext) -> bool:
        return any(isinstance(get_format(e.format), Integer) for e in cx.plan.weights.values())

    def recover(self, program: Program, cx: PassContext) -> bool:
        importance = self._importance(program, cx)
        for i, (name, enc) in enumerate(cx.plan.weights.items()):
            if name in program.chosen or not isinstance(get_format(enc.format), Integer):
                LOG.info("clip: %s is left as it is", name)
                continue
            weight = np.asarray(program.weights[name]).astype(F32)
            if not np.isfinite(weight).all():
                continue  # refused, by its name, where it is stored
            with of_weight(name):
                grid = grid_of(weight, enc)
                scale, zero = grid.begin(weight, importance.get(name, np.ones(1)), enc)
                steps = per_block(np.divide, weight, scale, enc)
                codes = grid.near(per_block(np.add, steps, zero, enc))
                program.chosen[name] = grid.stored(codes, scale, zero, enc)
            cx.report((i + 1) / len(cx.plan.weights))
        return bool(program.chosen)

    def _importance(self, program: Program, cx: PassContext) -> dict[str, np.ndarray]:
        """E[x^2] for the elements of weights, in their own shape, of those that products read."""
        if not cx.data:
            return {}
        left = {n: u for n, u in uses_of_weights(program, cx).items() if n not in program.chosen}
        moments = moments_of_weights(program, cx, left, self.power, full=False)
        found: dict[str, np.ndarray] = {}
        for name, uses in left.items():
            if not isinstance(uses, str):
                found[name] = spread(uses[0].matrix, near_one(moments[name].gram))
        return found


def spread(matrix: Matrix, rows: np.ndarray) -> np.ndarray:
    """A number per row of a matrix (per group and row, with groups) for each stored element."""
    count = int(np.prod(matrix.permuted)) // rows.shape[-1]
    wide = np.repeat(rows.reshape(matrix.groups, -1), count // matrix.groups, axis=0).T
    return matrix.back(np.ascontiguousarray(wide, F32), matrix.shape)
