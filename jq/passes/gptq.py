"""Weights are rounded so that the products with the calibration data change least.

Fills `PassContext.encoded`; the program stays as it is. See `jq.passes._solve` for the method.
A weight that is read by anything but matrix products and convolutions, or not stored as integers,
keeps plain rounding, and the reason is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
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
from jq.passes._solve import Solution, joined, solve
from jq.passes.base import PassContext, Recovery

LOG = logging.getLogger("jq")
MEMORY = 1 << 30  # bytes of moments that are held at once; beyond, the data are run again


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
            if name in cx.encoded:
                continue
            try:
                if isinstance(found, str):
                    raise NotApplicable(found)
                enc = cx.plan.weights[name]
                if not isinstance(get_format(enc.format), Affine):
                    raise NotApplicable(f"{enc.format} is not an integer format")
                solvable[name] = found[0].matrix, matrix_encoding(found[0].matrix, enc)
            except NotApplicable as reason:
                LOG.info("gptq: %s is rounded plainly: %s", name, reason)
        parts = _in_parts(solvable)
        for i, names in enumerate(parts):
            moments = moments_of_weights(program, cx, {n: uses[n] for n in names}, self.power)
            for j, name in enumerate(names):
                matrix, enc = solvable[name]
                weight = matrix.of(np.asarray(program.weights[name]).astype(np.float32))
                solution = self._solve(weight, matrix.groups, enc, moments.pop(name))
                cx.encoded[name] = parts_of(solution, matrix, cx.plan.weights[name])
                cx.report((i + (j + 1) / len(names)) / len(parts))
        return bool(solvable)

    def _solve(self, weight: np.ndarray, groups: int, enc: Encoding, moments: Moments) -> Solution:
        """Each group of columns with the moments of its own rows."""
        count = weight.shape[1] // groups
        own = enc.with_shape((len(weight), count), enc.block)
        grams = moments.gram.reshape(groups, len(weight), len(weight))
        return joined(
            [
                solve(
                    weight[:, g * count : (g + 1) * count],
                    grams[g],
                    own,
                    damping=self.damping,
                    order=self.order,
                    passes=self.passes,
                )
                for g in range(groups)
            ]
        )


def _in_parts(solvable: Mapping[str, tuple[Matrix, Encoding]]) -> list[list[str]]:
    """The weights in as many parts as their moments need to fit in `MEMORY`, in order."""
    parts: list[list[str]] = []
    free = 0
    for name, (matrix, enc) in solvable.items():
        size = matrix.groups * enc.shape[0] ** 2 * np.dtype(np.float64).itemsize
        if not parts or size > free:
            parts.append([])
            free = MEMORY
        parts[-1].append(name)
        free -= size
    return parts


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
