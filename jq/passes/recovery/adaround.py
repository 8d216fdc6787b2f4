"""Every weight is rounded up or down as learned on the calibration data (AdaRound).

Nagel et al., "Up or Down? Adaptive Rounding for Post-Training Quantization", 2020. Layer by layer,
as there, on the layer's own result; the squared change of that result over all calibration data is
tr(D^T H D), D = W' - W, H = sum x x^T, so that each of a bounded number of steps sees all data (see
`jq.autodiff.rounding`). Scales are those of least error of plain rounding. Where that result is
no better than that, plain rounding stays.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np

from jq.autodiff.rounding import learn_rounding
from jq.formats import Encoding, get_format
from jq.formats.affine import Affine
from jq.passes.recovery._ranges import search_ranges
from jq.passes.recovery._rounding import Rounding
from jq.passes.recovery._solve import Solution, block_slices, error

LOG = logging.getLogger("jq")


@dataclass(frozen=True)
class AdaRound(Rounding):
    """Options: see `jq.autodiff.rounding.learn_rounding`; `damping`: `_solve.solve`."""

    name = "adaround"
    damping: float = 0.05
    steps: int = 300
    rate: float = 0.2
    strength: float = 2.0

    def solve(self, name: str, weight: np.ndarray, gram: np.ndarray, enc: Encoding) -> Solution:
        fmt = get_format(enc.format)
        assert isinstance(fmt, Affine)
        mean = max(float(np.trace(gram)) / len(gram), 1e-30)
        h = gram + self.damping * mean * np.eye(len(gram))
        scale, zero = search_ranges(fmt, weight, np.diag(h)[:, None], enc)
        groups, limits = block_slices(enc), fmt.limits(enc)
        sizes = [s.stop - s.start for s in groups]
        steps, points = (np.repeat(v, sizes, axis=0) for v in (scale, zero))
        plain = np.clip(np.rint(weight / steps) + points, *limits).astype(np.float32)
        learned = learn_rounding(
            weight,
            h,
            steps,
            points,
            limits,
            steps=self.steps,
            rate=self.rate,
            strength=self.strength,
        )
        found = [Solution(codes, scale, zero, groups, limits) for codes in (plain, learned)]
        errors = [error(solution, weight, gram) for solution in found]
        LOG.info("adaround: %s: %.3f of the error of plain rounding", name,
                 errors[1] / max(errors[0], 1e-300))  # fmt: skip
        return found[int(errors[1] < errors[0])]
