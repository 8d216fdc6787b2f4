"""`ArrayOps` as StableHLO: every call builds ops at the current insertion point.

Number formats are defined in NumPy; what they define reaches a program through this class,
so that both are one definition. No unsigned, sub-byte or 8-bit float element type is ever
built: compilers are unreliable with them, and formats hold such things as bits of int8."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from jq.base.errors import InternalError
from jq.formats.arrays import arrays_of, halved
from jq.formats.blocks import full
from jq.ir.build import fill
from jq.ir.types import dtype_of, shape_of, tensor_type

SELECT_LIMIT = 16  # tables up to this size become selects, which vectorize; larger ones gathers
SAFE_KINDS = "bif"  # bool, signed integer, float


def _checked(dtype: Any) -> np.dtype[Any]:
    """Refuses the element types that must not enter a program."""
    kind = np.dtype(dtype)
    if (kind.kind in SAFE_KINDS and kind.isbuiltin == 1) or kind.name == "bfloat16":
        return kind
    raise InternalError(f"element type {kind.name} in a format's program", hint="use int8 bits")


def _op(name: str) -> Callable[..., Any]:
    """An operation whose result type StableHLO infers."""
    build = getattr(stablehlo, name)

    def apply(ops: Any, *operands: ir.Value | float) -> ir.Value:
        return build(*arrays_of(ops, operands))

    return apply


class StableHloOps:
    """`ArrayOps` on values of the current MLIR context."""

    def constant(self, value: np.ndarray) -> ir.Value:
        value = np.ascontiguousarray(value).reshape(np.shape(value))
        kind = tensor_type(value.shape, _checked(value.dtype))
        return stablehlo.constant(ir.DenseElementsAttr.get(value, type=kind))

    def full(self, like: ir.Value, value: Any) -> ir.Value:
        """One number in the shape of `like`: of its own type, or else of that of `like`."""
        dtype = value.dtype if isinstance(value, np.generic) else dtype_of(like)
        return full(self, value, shape_of(like), dtype)

    def spread(
        self,
        array: np.ndarray,
        shape: Sequence[int],
        made: Callable[[np.ndarray], ir.Value] | None = None,
    ) -> ir.Value:
        """A compact array over `shape`: the constant, or what `made` makes, of its numbers along
        its axes of more than one, repeated along the others."""
        kept = [axis for axis, n in enumerate(array.shape) if n > 1]
        vector = array.reshape([array.shape[axis] for axis in kept])
        return self.broadcast((made or self.constant)(vector), shape, kept)

    def shape(self, x: ir.Value) -> tuple[int, ...]:
        return shape_of(x)

    def dtype(self, x: ir.Value) -> np.dtype[Any]:
        return dtype_of(x)

    def convert(self, x: ir.Value, dtype: Any) -> ir.Value:
        if dtype_of(x) == np.dtype(dtype):
            return x
        return stablehlo.convert(tensor_type(shape_of(x), _checked(dtype)), x)

    def bitcast(self, x: ir.Value, dtype: Any) -> ir.Value:
        if dtype_of(x).itemsize != np.dtype(dtype).itemsize:
            raise InternalError(f"bitcast from {dtype_of(x)} to {np.dtype(dtype)}")
        return stablehlo.bitcast_convert(tensor_type(shape_of(x), _checked(dtype)), x)

    def reshape(self, x: ir.Value, shape: Sequence[int]) -> ir.Value:
        if shape_of(x) == tuple(shape):
            return x
        return stablehlo.reshape(tensor_type(shape, dtype_of(x)), x)

    def transpose(self, x: ir.Value, perm: Sequence[int]) -> ir.Value:
        return x if list(perm) == sorted(perm) else stablehlo.transpose(x, list(perm))

    def broadcast(self, x: ir.Value, shape: Sequence[int], dims: Sequence[int]) -> ir.Value:
        if shape_of(x) == tuple(shape) and list(dims) == list(range(len(shape))):
            return x
        return stablehlo.broadcast_in_dim(tensor_type(shape, dtype_of(x)), x, list(dims))

    def slice(self, x: ir.Value, start: Sequence[int], limit: Sequence[int]) -> ir.Value:
        return stablehlo.slice(x, list(start), list(limit), [1] * len(start))

    def pad(
        self,
        x: ir.Value,
        value: ir.Value | float,
        low: Sequence[int],
        high: Sequence[int],
        interior: Sequence[int] = (),
    ) -> ir.Value:
        """Negative edges cut."""
        between = list(interior) or [0] * len(low)
        if not any((*low, *high, *between)):
            return x
        if isinstance(value, int | float):
            value = self.constant(np.asarray(value, dtype_of(x)))
        return stablehlo.pad(x, value, list(low), list(high), between)

    def concatenate(self, xs: Sequence[ir.Value], axis: int) -> ir.Value:
        return stablehlo.concatenate(list(xs), axis)

    def take(self, table: np.ndarray, index: ir.Value) -> ir.Value:
        """`table[index]`; an index beyond a table of more than 16 entries is clamped."""
        size = len(table)
        if size <= SELECT_LIMIT:
            entries = [full(self, v, shape_of(index), table.dtype) for v in table]
            return halved(self, entries, index)
        most = min(size - 1, int(np.iinfo(dtype_of(index)).max))
        index = self.convert(self.minimum(self.maximum(index, 0), most), np.int32)
        rank = len(shape_of(index))
        numbers = stablehlo.GatherDimensionNumbers.get([], [0], [], [], [0], rank)
        return stablehlo.gather(self.constant(table), index, numbers, [1])

    add = _op("add")
    sub = _op("subtract")
    mul = _op("multiply")
    div = _op("divide")
    maximum = _op("maximum")
    minimum = _op("minimum")
    abs = _op("abs")
    round_even = _op("round_nearest_even")
    bit_and = _op("and_")
    bit_or = _op("or_")
    bit_xor = _op("xor")
    shift_left = _op("shift_left")
    shift_right = _op("shift_right_logical")
    shift_right_signed = _op("shift_right_arithmetic")
    quotient = _op("divide")
    select = _op("select")
    leading_zeros = _op("count_leading_zeros")

    def equal(self, a: ir.Value | float, b: ir.Value | float) -> ir.Value:
        return self.compare(a, b, "EQ")

    def compare(self, a: ir.Value | float, b: ir.Value | float, direction: str) -> ir.Value:
        how = stablehlo.ComparisonDirectionAttr.get(direction)
        return stablehlo.compare(*arrays_of(self, (a, b)), how)

    def reduce_max(self, x: ir.Value, axes: Sequence[int]) -> ir.Value:
        return self._reduce(x, axes, "maximum")

    def reduce_min(self, x: ir.Value, axes: Sequence[int]) -> ir.Value:
        return self._reduce(x, axes, "minimum")

    def reduce_sum(self, x: ir.Value, axes: Sequence[int], *, keep: bool = True) -> ir.Value:
        """Sum over `axes` in x's own type; `keep` leaves them with size 1."""
        return self._reduce(x, axes, "add", keep) if axes else x

    def _reduce(
        self, x: ir.Value, axes: Sequence[int], combine: str, keep: bool = True
    ) -> ir.Value:
        shape, kind = shape_of(x), dtype_of(x)
        init = self.constant(_identity(combine, kind))
        kept = [n for i, n in enumerate(shape) if i not in axes]
        op = stablehlo.ReduceOp([tensor_type(kept, kind)], [x], [init], sorted(axes))
        fill(op.operation, tensor_type((), kind), getattr(stablehlo, combine))
        sizes = [1 if i in axes else n for i, n in enumerate(shape)]
        return self.reshape(op.result, sizes) if keep else op.result


OPS = StableHloOps()  # it has no state


def _identity(combine: str, kind: np.dtype[Any]) -> np.ndarray:
    """The value that leaves any other operand unchanged."""
    if combine == "add":
        return np.zeros((), kind)
    largest = combine == "minimum"
    if kind.kind == "i":
        info = np.iinfo(kind)
        return np.array(info.max if largest else info.min, kind)
    return np.array(np.inf if largest else -np.inf, kind)
