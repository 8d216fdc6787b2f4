"""Weights are rounded so that the products with the calibration data change least.

Fills `PassContext.encoded`; the program stays as it is. See `jq.passes._solve` for the method.
A weight that is not read by plain matrix products, or not stored as integers, keeps plain
rounding, and the reason is logged.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np

from jq.calibrate.moments import Moments
from jq.formats import Encoding, get_format
from jq.formats.affine import Affine
from jq.ir import Program
from jq.passes._inputs import (
    Matrix,
    NotApplicable,
    matrix_encoding,
    moments_of_weights,
    uses_of_weights,
)
from jq.passes._solve import Solution, solve
from jq.passes.base import PassContext, Recovery

LOG = logging.getLogger("jq")


@dataclass(frozen=True)
class Gptq(Recovery):
    """Options: see `jq.passes._solve.solve`, and `power` in `jq.calibrate.moments.collect`."""

    name = "gptq"
    damping: float = 0.2
    power: float = 0.5
    order: bool = True
    passes: int = 3

    def wanted(self, cx: PassContext) -> bool:
        return any(isinstance(get_format(e.format), Affine) for e in cx.plan.weights.values())

    def recover(self, program: Program, cx: PassContext) -> bool:
        uses = uses_of_weights(program, cx)
        solvable: dict[str, tuple[Matrix, Encoding]] = {}
        for name, found in uses.items():
            try:
                if isinstance(found, str):
                    raise NotApplicable(found)
                enc = cx.plan.weights[name]
                if not isinstance(get_format(enc.format), Affine):
                    raise NotApplicable(f"{enc.format} is not an integer format")
                solvable[name] = found[0].matrix, matrix_encoding(found[0].matrix, enc)
            except NotApplicable as reason:
                LOG.info("gptq: %s is rounded plainly: %s", name, reason)
        moments = moments_of_weights(
            program, cx, {name: uses[name] for name in solvable}, self.power
        )
        for name, (matrix, enc) in solvable.items():
            stored = cx.plan.weights[name]
            cx.encoded[name] = self._encode(
                program.weights[name], matrix, enc, stored, moments[name]
            )
        return bool(solvable)

    def _encode(
        self,
        weight: np.ndarray,
        matrix: Matrix,
        enc: Encoding,
        stored: Encoding,
        moments: Moments,
    ) -> dict[str, np.ndarray]:
        solution = solve(
            matrix.of(weight.astype(np.float32)),
            moments.gram,
            enc,
            damping=self.damping,
            order=self.order,
            passes=self.passes,
        )
        return parts_of(solution, matrix, stored)


def parts_of(solution: Solution, matrix: Matrix, enc: Encoding) -> dict[str, np.ndarray]:
    """What is stored of a solution."""
    fmt = get_format(enc.format)
    assert isinstance(fmt, Affine)
    codes = matrix.back(solution.codes, enc.shape).astype(np.int32)
    scale = matrix.back(solution.scale, enc.grid).astype(enc.scale_type)
    parts = {"codes": fmt.pack(codes, enc), "scale": scale}
    if enc.scheme == "asymmetric":
        parts["zero_point"] = fmt.pack(matrix.back(solution.zero, enc.grid).astype(np.int32), enc)
    return parts
