"""Turns what follows a product and has no other reader into the epilogue of its kernel."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jq import kernels
from jq.ir import OPS, Op, Program, dtype_of, evaluate, integers, ir, maker, only_user, shape_of
from jq.ir.markers import DEQUANTIZE, QUANTIZE, match
from jq.ir.ops.movement import plain
from jq.passes.functions import find_activation
from jq.passes.kernels._kernel import call_kernel, column_factors, unsigned_view
from jq.passes.kernels.kernel_quantize import row_scheme, static_parameters, wide_codes


@dataclass(frozen=True)
class Columns:
    """A constant with one value a column."""

    values: np.ndarray


@dataclass(frozen=True)
class Measured:
    """Numbers by column that are found at run time: a vector of `n`, or one number for all."""

    value: ir.Value
    n: int


@dataclass(frozen=True)
class Unsigned:
    """Codes that are read in the unsigned view."""

    codes: ir.Value


@dataclass(frozen=True)
class Tail:
    """Ops that follow a product and have no other reader: an epilogue's steps and their operands.
    `ops` are all ops that go, the contraction first; `last` gives the result. Where the kernel
    reads codes as `unsigned`, it reads those that it adds so, too. `exact`: without functions that
    kernels have within a bound."""

    steps: tuple[kernels.Step, ...]
    operands: tuple[Any, ...]  # values, constants, `Columns`, `Measured` or `Unsigned`
    ops: tuple[Any, ...]
    unsigned: bool = False
    exact: bool = False

    @property
    def last(self) -> Any:
        return self.ops[-1]

    @property
    def shape(self) -> tuple[int, ...]:
        return shape_of(self.last.operation.results[0])

    @staticmethod
    def behind(
        program: Program, op: Op, n: int, unsigned: bool = False, exact: bool = False
    ) -> "Tail":
        tail = _followed(program, Tail((), (), (op,), unsigned, exact), n)
        while (decoded := _decoded(program, tail)) is not None:
            longer = _followed(program, decoded, n)
            if not isinstance(longer.steps[-1], kernels.Quantize):
                break  # codes are less to store than what they stand for
            tail = longer
        return tail

    def then(self, step: kernels.Step, operands: Sequence[Any], ops: Sequence[Any]) -> "Tail":
        more = (*self.steps, step), (*self.operands, *operands), (*self.ops, *ops)
        return Tail(*more, self.unsigned, self.exact)

    def _values(self, program: Program, name: str, kernel: Any) -> list[ir.Value]:
        """The steps' operands in the program, at the current insertion point."""
        found: list[ir.Value] = []
        for x in self.operands:
            if isinstance(x, Columns):
                padded = kernel.pad_columns(x.values)
                found.append(program.add_weight(f"{name}:column_bias", padded))
            elif isinstance(x, Measured):
                width = len(kernel.pad_columns(np.zeros(x.n, np.float32)))
                one = math.prod(shape_of(x.value)) == 1
                number = OPS.reshape(x.value, () if one else [x.n])
                vector = OPS.broadcast(number, [x.n], () if one else [0])
                found.append(OPS.pad(vector, 0, [0], [width - x.n]))
            elif isinstance(x, Unsigned):
                found.append(unsigned_view(x.codes))
            else:
                found.append(OPS.constant(x) if isinstance(x, np.ndarray) else x)
        return found

    def lower(
        self,
        program: Program,
        name: str,
        kernel: Any,
        operands: list[ir.Value],
        view: Callable[[ir.Value, tuple[int, ...]], ir.Value],
    ) -> str:
        """Puts a call of the kernel in the place of the tail; the kernel's name. `operands`: those
        up to the tail's own; `view` makes of its result the contraction's, of a shape."""
        given = [*operands, *self._values(program, name, kernel)]
        (value,) = call_kernel(program, kernel, given, name)
        value = OPS.reshape(value, self.shape) if self.steps else view(value, self.shape)
        result = self.last.operation.results[0]
        # A narrower result is the float32 one, converted.
        result.replace_all_uses_with(OPS.convert(value, dtype_of(result)))
        for op in reversed(self.ops):
            op.operation.erase()
        return kernel.name


def _followed(program: Program, tail: Tail, n: int) -> Tail:
    """The tail with what follows it up to a quantization."""
    for step in (_scales, _bias, _activation, _factors, _residual, _activation, _quantize):
        tail = step(program, tail, n)
    return tail


def _joining(tail: Tail, kind: str) -> tuple[Any, ir.Value] | None:
    """The op of that kind that is the only reader of the tail, and what it takes besides."""
    result = tail.last.operation.results[0]
    if (op := only_user(result, f"stablehlo.{kind}")) is None:
        return None
    others = [v for v in op.operation.operands if v != result]
    return (op, others[0]) if len(others) == 1 else None


def _scales(program: Program, tail: Tail, n: int) -> Tail:
    """A product with what the activation's range has made, one number a column: sums of codes
    that a model itself scales."""
    found = _joining(tail, "multiply")
    if found is None or evaluate(program, found[1]) is not None:
        return tail
    value = _by_column(found[1], n)
    if value is None:
        return tail
    return tail.then(kernels.ColumnScale(), [Measured(value, n)], [found[0]])


def _by_column(value: ir.Value, n: int) -> ir.Value | None:
    """A value of `n` elements or one, repeated along all axes but the last, which has `n`."""
    last = len(shape_of(value)) - 1
    if dtype_of(value) != np.float32 or last < 0 or shape_of(value)[last] != n:
        return None
    while math.prod(shape_of(value)) not in (1, n):
        op = maker(value, "stablehlo.broadcast_in_dim")
        if op is None:
            return None
        value, dims = op.operation.operands[0], integers(op, "broadcast_dimensions")
        wide = [a for a, size in enumerate(shape_of(value)) if size > 1]
        if [dims[a] for a in wide] not in ([], [last]):
            return None
        last = wide[0] if wide else 0
    return value


def _bias(program: Program, tail: Tail, n: int) -> Tail:
    """A constant vector along the columns, which are the trailing axes of the result."""
    found = _joining(tail, "add")
    array = None if found is None else evaluate(program, found[1])
    if found is None or array is None or array.dtype != np.float32:
        return tail
    rows = array.reshape(-1, n)
    if not (rows == rows[:1]).all():
        return tail
    return tail.then(kernels.Bias(), [Columns(np.ascontiguousarray(rows[0]))], [found[0]])


def _factors(program: Program, tail: Tail, n: int) -> Tail:
    """A constant vector along the columns that multiplies."""
    result = tail.last.operation.results[0]
    if (product := only_user(result, "stablehlo.multiply")) is None:
        return tail
    scaled = column_factors(program, product.operation.results[0])
    if scaled is None or scaled[0] != result or len(scaled[1]) != n:
        return tail
    return tail.then(kernels.ColumnScale(), [Columns(scaled[1])], [product])


def _residual(program: Program, tail: Tail, n: int) -> Tail:
    found = _joining(tail, "add")
    if found is None or evaluate(program, found[1]) is not None:
        return tail
    stored = _stored(program, found[1])
    if stored is None:
        return tail.then(kernels.Residual(), [found[1]], [found[0]])
    if dtype_of(stored[0]) == np.int16:
        return tail.then(kernels.WideResidual(), stored, [found[0]])
    codes = Unsigned(stored[0]) if tail.unsigned else stored[0]
    return tail.then(kernels.QuantizedResidual(tail.unsigned), [codes, *stored[1:]], [found[0]])


def _stored(program: Program, value: ir.Value) -> tuple[ir.Value, np.ndarray, np.ndarray] | None:
    """Codes, scale f32 [1] and zero point i32 [1] of what is dequantized from int8 or int16."""
    marker = match(value, DEQUANTIZE)
    if marker is None or not plain(marker) or dtype_of(value) != np.float32:
        return None
    if marker.encoding.format not in ("int8", "int16"):
        return None
    found = static_parameters(program, marker)
    return None if found is None else (marker.parts["codes"], *found)


def _decoded(program: Program, tail: Tail) -> Tail | None:
    """A tail that ends in codes with what they stand for in their place, if that alone is read."""
    last = tail.steps[-1] if tail.steps else None
    decoded = match(only_user(tail.last.operation.results[0]), DEQUANTIZE)
    if type(last) is not kernels.Quantize or decoded is None:
        return None  # codes may be a result, too; those of 16 bits are no step
    stored = _stored(program, decoded.op.operation.results[0])
    if stored is None or not np.array_equal(stored[2], tail.operands[-1]):
        return None
    step = kernels.FakeQuantize(last.low, last.high, last.exact)
    return replace(tail, steps=tail.steps[:-1]).then(step, [stored[1]], [decoded.op])


def _activation(program: Program, tail: Tail, n: int) -> Tail:
    """The tail with its activation; not a GELU that a model itself scales: its error, of 1e-4 and
    less, would move codes away from those of the model's own float, by the range found of it."""
    found = find_activation(program, tail.last.operation.results[0])
    measured = any(isinstance(x, Measured) for x in tail.operands)
    if found is None or (measured and isinstance(found.step, kernels.Gelu)):
        return tail
    if tail.exact and not isinstance(found.step, kernels.Clamp):
        return tail
    return tail.then(found.step, [], found.cut.ops)


def _quantize(program: Program, tail: Tail, n: int) -> Tail:
    """The static quantization of the result, when nothing reads the float."""
    marker = match(only_user(tail.last.operation.results[0]), QUANTIZE)
    if marker is None:
        return tail
    given = static_parameters(program, marker) or ()
    if (ends := wide_codes(program, marker)) is not None:
        return tail.then(kernels.WideQuantize(*ends), given, [marker.op])
    scheme = row_scheme(program, marker)
    if scheme is None:
        return tail
    last = tail.steps[-1] if tail.steps else None
    if isinstance(last, kernels.Gelu):
        tail = replace(tail, steps=(*tail.steps[:-1], replace(last, codes=True)))
    step = kernels.Quantize(low=scheme.low, exact=not isinstance(last, kernels.Gelu))
    return tail.then(step, given, [marker.op])
