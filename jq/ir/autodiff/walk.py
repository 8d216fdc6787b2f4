"""Samples on their way through the regions of a program, with float weights and with codes."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jq.ir import Program, dtype_of, shape_of
from jq.ir.autodiff.regions import Region
from jq.ir.autodiff.rounding import Learned, Stored
from jq.ir.autodiff.sensitivity import Sensitivity

Values = dict[Any, Any]


class Walk:
    """The values in front of one region, of all samples: the memory that they take does not grow
    with the number of regions."""

    def __init__(self, parts: Sequence[Learned], data: Sequence[Sequence[Any]]) -> None:
        """Args:
        parts: the regions, in order.
        data: inputs of the program, by sample."""
        self.parts, self.data = parts, data
        program = parts[0].region.program
        last = tuple(program.returned[: len(program.outputs)])
        self.read = [*(p.region.inputs for p in parts), last]
        self.start = list(program.body.arguments)[: len(program.inputs)]
        self.begin()

    def begin(self) -> None:
        self.number = 0
        self.ours: list[Values] = [dict(zip(self.start, x, strict=True)) for x in self.data]
        self.theirs: list[Values] = [dict(known) for known in self.ours]

    def go(self, number: int, codes: Stored) -> None:
        """Goes to the front of region `number`, or of the end; regions on the way have these codes.

        A walk that goes on counts on the codes of the regions behind it being those they had."""
        if number < self.number or number == len(self.parts):
            self.begin()
        while self.number < number:
            part = self.parts[self.number]
            later = {v for read in self.read[self.number + 1 :] for v in read}
            part.restart(codes)
            for samples, real in ((self.ours, part.values()), (self.theirs, part.own)):
                for i, known in enumerate(samples):
                    outputs = part.outputs(real, [known[v] for v in part.region.inputs])
                    known = known | dict(zip(part.region.outputs, outputs, strict=True))
                    samples[i] = {v: x for v, x in known.items() if v in later}
            self.number += 1

    def at(self, i: int) -> tuple[list[Any], list[Any]]:
        """The inputs of the region (at the end, the program's outputs) of a sample: computed with
        codes, and with float weights."""
        read = self.read[self.number]
        return [self.ours[i][v] for v in read], [self.theirs[i][v] for v in read]


class Rows:
    """The weight of each row of the regions' outputs, by sample: how far it moves the output."""

    def __init__(
        self, program: Program, regions: Sequence[Region], data: Sequence[Sequence[Any]]
    ) -> None:
        self.regions, self.data = regions, data
        self.ends = set(program.returned)
        wanted = {
            f"{n} {j}": (v, (len(shape_of(v)) - 1,))
            for n, region in enumerate(regions)
            for j, v in enumerate(region.outputs)
            if v not in self.ends and len(shape_of(v)) > 1 and dtype_of(v).kind in "fV"
        }
        self.names = set(wanted)
        self.sensitivity = Sensitivity(program, wanted) if wanted else None
        self.known: dict[int, dict[str, np.ndarray]] = {}

    def of(self, i: int, number: int) -> list[Any]:
        """Weights of the squared error of each output of region `number`."""
        if i not in self.known:
            found = self.sensitivity(self.data[i], i, 1) if self.sensitivity else {}
            self.known[i] = {k: np.asarray(v)[..., None] for k, v in found.items()}
        every = range(len(self.regions[number].outputs))
        return [jnp.asarray(self.known[i].get(f"{number} {j}", np.float32(1))) for j in every]
