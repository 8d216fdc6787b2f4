"""Weights are rounded so that products with the calibration data change least (GPTQ).

See `_solve` for the method, `_rounding` for the weights that it takes.
"""

import numpy as np

from jq.base.system.threads import one_thread
from jq.formats import Encoding
from jq.passes.recovery._descent import Solution
from jq.passes.recovery._rounding import Rounding
from jq.passes.recovery._solve import solve


class Gptq(Rounding):
    """Options: see `_solve.solve`."""

    optional = False
    damping: float = 0.1
    order: bool = True
    passes: int = 3

    def solve(self, name: str, weight: np.ndarray, gram: np.ndarray, enc: Encoding) -> Solution:
        damping, order, passes = self.damping, self.order, self.passes
        with one_thread() as threads:
            return solve(
                weight, gram, enc, damping=damping, order=order, passes=passes, threads=threads
            )
