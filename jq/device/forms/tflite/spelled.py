"""Steps that no operator of TFLite computes with these bits, spelled out in operators on integers.

They are the functions of `jq.formats`, which the integer program is written in too. No NPU takes
operators of 64 bits: these run on a processor."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.device.forms.canonical.base import Simple
from jq.device.forms.tflite.integers import Floats, Integers
from jq.device.forms.tflite.products import Products
from jq.device.network import Tensor
from jq.formats import integer_functions as functions
from jq.formats.arrays import clip
from jq.formats.requantize import DIGITS, Rescaling

Step = Callable[[Any, Simple], None]


def or_spelled(native: Step, spelled: Step) -> Step:
    """An operator of TFLite where it has the same bits, else operators on integers."""

    def write(self: Any, step: Simple) -> None:
        begun = len(self.operators)
        try:
            native(self, step)
        except UserError:
            del self.operators[begun:]
            spelled(self, step)

    return write


class Spelled(Products):
    """Steps by `IntegerOps`; arrays have the shape [outer, along, inner]."""

    def __init__(self, rescaling: Rescaling, names: set[str]) -> None:
        super().__init__(rescaling, names)
        self.ops = Integers(self)
        self.use(rescaling)

    def use(self, rescaling: Rescaling) -> None:
        """Takes a rescale for the steps that follow."""
        self.rescaling = rescaling
        self.spelled = Floats("float32") if rescaling.rounding == "float32" else rescaling

    def centered(self, x: Tensor, shape: Sequence[int], dtype: Any = np.int32) -> Any:
        """`code - zero point`."""
        codes = x.values if x.data is not None else x
        wide = self.ops.convert(self.ops.reshape(codes, shape), dtype)
        return self.ops.sub(wide, x.zero) if x.zero else wide

    def put(self, step: Simple, codes: Any) -> None:
        """Codes as the result of a step."""
        output = self.given(step)
        self.reshaped(replace(codes, scale=output.scale, zero_point=output.zero_point), output)

    def rescaled(self, x: Any, factor: np.ndarray) -> Any:
        """`x * factor` of int32, one factor or one for each of the last axis."""
        factor = np.asarray(factor, np.float64).reshape(1, 1, -1)
        mantissa, *shifts = self.spelled.split(factor)
        left, right = (by if by.any() else None for by in shifts)
        return self.spelled.rescale(self.ops, x, mantissa, (left, right))

    def finished(self, step: Simple, total: Any) -> None:
        """Bias, rescale and zero point of an int32 sum."""
        ops, out = self.ops, step.out
        given = {k: np.reshape(v, (1, 1, -1)) for k, v in step.numbers.items() if v.size}
        factor, behind = given["factor"], given.get("behind")
        if given["bias"].any():
            total = ops.add(total, given["bias"].astype(np.int32))
        if behind is None or not (behind.any() or step.kind == "normalization"):
            self.put(step, functions.saturated(ops, self.rescaled(total, factor), out))
            return
        steps = self.rescaled(total, factor * (1 << functions.FRACTION))
        steps = ops.add(steps, np.rint(behind * (1 << functions.FRACTION)).astype(np.int32))
        self.put(
            step, functions.saturated(ops, self.spelled.shift(ops, steps, -functions.FRACTION), out)
        )

    # Functions

    def _softmax(self, step: Simple) -> None:
        ops, out, shape, given = self.ops, step.out, step.output.shape, step.numbers
        at, unit = (given[k].reshape(()).item() for k in ("axis", "step"))
        rows = math.prod(shape[:at]), shape[at], math.prod(shape[at + 1 :])
        terms = [
            functions.in_units(ops, self.centered(x, rows), x.largest, float(by), self.spelled)
            for x, by in zip(step.inputs, given["by"].reshape(-1), strict="where" not in given)
        ]
        x = clip(ops, reduce(ops.add, terms), -functions.WIDE, functions.WIDE)
        if "hidden" in given:
            x = ops.select(
                np.broadcast_to(given["hidden"], shape).reshape(rows) != 0, -functions.WIDE, x
            )
        if "where" in given:
            both = [-functions.WIDE, x][:: 1 if given["where"].any() else -1]
            x = ops.select(ops.reshape(step.inputs[-1], rows), *both)
        self.put(step, functions.softmax(ops, x, unit, 1, out, self.spelled))

    def _normalization(self, step: Simple) -> None:
        (x,), out, given, ends = step.inputs, step.out, step.numbers, np.iinfo(step.inputs[0].dtype)
        n = x.shape[-1]
        unit = functions.unit_rows(
            self.ops,
            self.centered(x, (1, math.prod(x.shape[:-1]), n), np.int64),
            *(float(given[k].reshape(())) for k in ("step", "epsilon")),
            center=bool(given["center"]),
            axis=2,
            limits=(ends.min - x.zero, ends.max - x.zero),
        )
        factor = given["gamma"].reshape(-1) * math.sqrt(n) * 2.0**-30 / out.scale
        numbers = {"factor": factor, "behind": given["beta"] / out.scale, "bias": np.zeros(1)}
        self.finished(replace(step, numbers=numbers), self.ops.convert(unit, np.int32))

    def _quotient(self, step: Simple) -> None:
        ops = self.ops
        bits, unit = (step.numbers[k].reshape(()).item() for k in ("bits", "unit"))
        shape = 1, 1, math.prod(step.output.shape)
        over, under = (self.centered(x, shape, np.int64) for x in step.inputs)
        q = ops.convert(functions.ratio(ops, over, under, int(bits)), np.int32)
        numbers = {"factor": np.array([unit * 2.0**-bits / step.out.scale]), "bias": np.zeros(1)}
        self.finished(replace(step, numbers=numbers), q)

    # Sums

    def _rows(self, shape: Sequence[int]) -> tuple[int, int, int]:
        return 1, math.prod(shape[:-1]), shape[-1] if shape else 1

    def _spelled_rescale(self, step: Simple) -> None:
        x = self.centered(step.inputs[0], self._rows(step.output.shape))
        self.finished(step, self.ops.shift_left(x, int(step.numbers["bits"].reshape(()))))

    def _spelled_sum(self, step: Simple, kind: str) -> None:
        """The integer program's sum: of XNNPACK's multipliers, or of rescaled terms."""
        ops, given = self.ops, {k: v.reshape(-1) for k, v in step.numbers.items()}
        terms = [self.centered(x, self._rows(x.shape)) for x in step.inputs]
        if "multipliers" in given:
            shift = int(given["shift"][0])
            x, y = (
                ops.mul(*term) for term in zip(terms, map(int, given["multipliers"]), strict=True)
            )
            total = ops.add(ops.add(x, y), 1 << (shift - 1))
            self.put(step, functions.saturated(ops, ops.shift_right_signed(total, shift), step.out))
            return
        scales = [x.scale.astype(np.float64) for x in step.inputs if x.scale is not None]
        x, y = (
            self.rescaled(ops.shift_left(x, int(given["bits"][0])), scale / given["unit"])
            for x, scale in zip(terms, scales, strict=True)
        )
        self.finished(step, getattr(ops, kind)(x, y))

    def _spelled_multiply(self, step: Simple) -> None:
        ops, bits = self.ops, int(step.numbers["bits"].reshape(()))
        a, b = (self.centered(x, self._rows(x.shape), np.int64) for x in step.inputs)
        self.finished(step, ops.convert(ops.shift_left(ops.mul(a, b), bits), np.int32))

    def _spelled_matmul(self, step: Simple) -> None:
        """Sums of products of floats that are integers below 2^24: as they are, in any order."""
        if "wide" in step.numbers:
            raise self.lacking("a product of two activations with a sum of 64 bits")
        ops = self.ops
        a, b = (ops.convert(self.centered(x, x.shape), np.float32) for x in step.inputs)
        (batch, m, k), n = a.shape, b.shape[2]
        at_once = (1 << DIGITS) // math.prod(x.largest for x in step.inputs)
        parts = []
        for start in range(0, k, at_once):
            size = min(at_once, k - start)
            x = ops.part(a, [0, 0, start], [batch, m, start + size])
            y = ops.part(b, [0, start, 0], [batch, start + size, n])
            made = ops.op("BATCH_MATMUL", x, y, shape=[batch, m, n], adj_x=False, adj_y=False)
            parts.append(ops.convert(made, np.int32))
        self.finished(step, reduce(ops.add, parts))
