"""Integer arithmetic on rows against its formats in NumPy, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from jq.formats.arrays import NUMPY, arrays_of, clip
from jq.formats.integer_functions import Output, ratio, softmax, tabulated, unit_rows
from jq.formats.requantize import Rescaling
from jq.kernels import Line, RowProgram, Source
from tests.kernels.harness import Runner
from tests.kernels.strategies import HERE

I32, I64 = np.int32, np.int64
RNG = np.random.default_rng(0)


class Recorder:
    """`IntegerOps` that writes lines; a value is the number of its line, and whether it is wide."""

    def __init__(self, m: int, k: int) -> None:
        self.m, self.k, self.lines = m, k, list[Line]()
        self.sources, self.operands = list[Source](), list[np.ndarray]()

    def line(self, op: str, *of: Any, dtype: Any, shape: Sequence[int], number: int = 0) -> Any:
        element = {"bool": "i1"}.get(np.dtype(dtype).name) or f"i{8 * np.dtype(dtype).itemsize}"
        self.lines.append(Line(op, tuple(v[0] for v in of), element, number))
        return len(self.lines) - 1, np.dtype(dtype), tuple(shape)

    def source(self, array: np.ndarray, every: int = 1) -> Any:
        self.operands.append(array)
        rows, columns = array.shape
        self.sources.append(Source(f"i{8 * array.itemsize}", rows, columns, every))
        shape = (self.m, self.k if columns > 1 else 1)
        return self.line("source", dtype=array.dtype, shape=shape, number=len(self.sources) - 1)

    def constant(self, value: np.ndarray) -> Any:
        return self.line("constant", dtype=value.dtype, shape=(), number=int(value))

    def shape(self, x: Any) -> Any:
        return x[2]

    def dtype(self, x: Any) -> Any:
        return x[1]

    def broadcast(self, x: Any, shape: Sequence[int], dims: Sequence[int]) -> Any:
        return (x[0], x[1], tuple(shape))

    def convert(self, x: Any, dtype: Any) -> Any:
        return self.line("convert", x, dtype=dtype, shape=x[2])

    def take(self, table: np.ndarray, index: Any) -> Any:
        self.operands.append(table[None])
        self.sources.append(Source(f"i{8 * table.itemsize}", 1, len(table)))
        number = len(self.sources) - 1
        return self.line("take", index, dtype=table.dtype, shape=index[2], number=number)

    def equal(self, a: Any, b: Any) -> Any:
        a, b = arrays_of(self, (a, b))
        return self.line("compare_EQ", a, b, dtype=bool, shape=a[2])

    def select(self, pred: Any, a: Any, b: Any) -> Any:
        pred, a, b = arrays_of(self, (pred, a, b))
        return self.line("select", pred, a, b, dtype=a[1], shape=a[2])

    def reduce_max(self, x: Any, axes: Sequence[int]) -> Any:
        return self.line("reduce_maximum", x, dtype=x[1], shape=(self.m, 1))

    def reduce_sum(self, x: Any, axes: Sequence[int]) -> Any:
        return self.line("reduce_add", x, dtype=x[1], shape=(self.m, 1))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        op = {
            "sub": "subtract",
            "mul": "multiply",
            "bit_and": "and",
            "bit_or": "or",
            "shift_right": "shift_right_logical",
            "shift_right_signed": "shift_right_arithmetic",
            "quotient": "divide",
            "leading_zeros": "count_leading_zeros",
        }.get(name, name)

        def apply(*of: Any) -> Any:
            first, *others = arrays_of(self, of)
            return self.line(op, first, *others, dtype=first[1], shape=first[2])

        return apply

    def kernel(self, isa: str) -> RowProgram:
        shape = {"m": self.m, "k": self.k}
        return RowProgram(isa=isa, sources=tuple(self.sources), lines=tuple(self.lines), **shape)


def _shifted(shift: Callable[..., np.ndarray], signed: bool) -> Callable[..., np.ndarray]:
    def apply(x: np.ndarray, by: np.ndarray) -> np.ndarray:
        bits = 8 * x.dtype.itemsize
        inside = (by >= 0) & (by < bits)
        beyond = x >> x.dtype.type(bits - 1) if signed else np.zeros_like(x)
        return np.where(inside, shift(x, np.where(inside, by, 0).astype(x.dtype)), beyond)

    return apply


def _logical(x: np.ndarray, by: np.ndarray) -> np.ndarray:
    unsigned = x.dtype.str.replace("i", "u")
    return (x.view(unsigned) >> by.astype(unsigned)).view(x.dtype)


def _divided(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Towards 0; by 0 it is -1, and the least number stays where it has no negative."""
    size = np.abs(a.astype(object)) // np.maximum(np.abs(b.astype(object)), 1)
    wrapped = np.where((a < 0) == (b < 0), size, -size)
    return np.where(b == 0, -1, wrapped % (1 << 64)).astype(np.uint64).astype(a.dtype)


def _leading_zeros(x: np.ndarray) -> np.ndarray:
    bits = 8 * x.dtype.itemsize
    lengths = [bits - (int(v) % (1 << bits)).bit_length() for v in x.reshape(-1)]
    return np.array(lengths, x.dtype).reshape(x.shape)


def _reduced(reduce: Callable[..., np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: reduce(x, axis=-1, keepdims=True)


_NUMPY: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": _divided,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "abs": np.abs,
    "negate": np.negative,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "shift_left": _shifted(np.left_shift, False),
    "shift_right_logical": _shifted(_logical, False),
    "shift_right_arithmetic": _shifted(np.right_shift, True),
    "count_leading_zeros": _leading_zeros,
    "convert": lambda x: x,
    "select": np.where,
    "compare_EQ": np.equal,
    "compare_NE": np.not_equal,
    "compare_LT": np.less,
    "compare_LE": np.less_equal,
    "compare_GT": np.greater,
    "compare_GE": np.greater_equal,
    "reduce_add": _reduced(np.add.reduce),
    "reduce_maximum": _reduced(np.maximum.reduce),
    "reduce_minimum": _reduced(np.minimum.reduce),
}


def evaluated(kernel: RowProgram, *operands: np.ndarray) -> np.ndarray:
    """The lines of a kernel in NumPy, i8 or i16 [M, K]."""
    rows, values = np.arange(kernel.m), list[np.ndarray]()
    for line in kernel.lines:
        of = [values[i] for i in line.of]
        dtype = np.dtype({"i1": "bool"}.get(line.element) or f"int{line.element[1:]}")
        if line.op == "source":
            source = kernel.sources[line.number]
            value = operands[line.number][rows // source.every % source.rows]
        elif line.op == "constant":
            value = np.full((1, 1), line.number, dtype)
        elif line.op == "number":
            value = operands[-1][:, line.number : line.number + 1]
        elif line.op == "take":
            table = operands[line.number][0]
            value = table[np.clip(of[0].astype(np.int64), 0, len(table) - 1)]
        else:
            with np.errstate(over="ignore"):
                value = _NUMPY[line.op](*of)
        values.append(value.astype(dtype))
    return np.broadcast_to(values[-1], (kernel.m, kernel.k))


Work = Callable[[Any, Callable[..., Any]], Any]
OUT8, OUT16 = Output(1 / 255, -128, -128, 127), Output(1e-4, 100, -32768, 32767)


def _softmax(ops: Any, given: Callable[..., Any]) -> Any:
    x, mask = given(0, 12, np.int16), given(1, 2, np.int16, every=5)
    terms = [
        ops.convert(Rescaling("single").by(ops, ops.convert(v, I32), 0.75), I64) for v in (x, mask)
    ]
    return softmax(ops, ops.add(*terms), 2e-4, 1, OUT8)


def _normalized(ops: Any, given: Callable[..., Any]) -> Any:
    x = ops.convert(given(0, 12, np.int16), I64)
    limits = (-32768, 32767)
    unit = unit_rows(ops, x, 0.01, 1e-6, center=True, axis=1, limits=limits)
    y = Rescaling().by(ops, ops.convert(unit, I32), 3e-6)
    beta = ops.broadcast(given(1, 1, np.int32), ops.shape(y), (0, 1))
    return ops.convert(clip(ops, ops.add(y, beta), -128, 127), np.int8)


def _table(ops: Any, given: Callable[..., Any]) -> Any:
    index = ops.add(ops.convert(given(0, 12, np.int16), I32), 32768)
    steps = np.tanh(np.arange(-32768, 32768) / 9000) / OUT16.scale
    return tabulated(ops, index, steps, OUT16)


def _quotient(ops: Any, given: Callable[..., Any]) -> Any:
    a, b = (ops.convert(given(i, 12, np.int8), I64) for i in range(2))
    return ops.convert(ratio(ops, a, b, 6), np.int16)


WORKS: list[tuple[Work, tuple[int, int]]] = [
    (_softmax, (12, 37)),
    (_softmax, (12, 128)),
    (_normalized, (12, 70)),
    (_table, (12, 48)),
    (_quotient, (12, 19)),
]


def _drawn(rng: np.random.Generator, rows: int, k: int, dtype: Any) -> np.ndarray:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    array = rng.integers(low, high, (rows, k), dtype, endpoint=True)
    small = rng.integers(-9, 9, (rows, k)).astype(dtype)
    return np.where(rng.random((rows, 1)) < 0.3, small, array).astype(dtype)


@pytest.mark.parametrize("isa", HERE)
def test_rows_have_the_bits_of_their_formats(isa: str) -> None:
    rng, built = np.random.default_rng(5), []
    for work, (m, k) in WORKS:
        recorder, arrays = Recorder(m, k), dict[int, np.ndarray]()

        def given(i: int, rows: int, dtype: Any, every: int = 1) -> np.ndarray:
            array = arrays.setdefault(i, _drawn(rng, rows, k, dtype))  # noqa: B023
            return array[np.arange(m) // every % rows]  # noqa: B023

        want = work(NUMPY, given)

        def source(i: int, rows: int, dtype: Any, every: int = 1) -> Any:
            return recorder.source(arrays[i], every)  # noqa: B023

        work(recorder, source)
        built.append((recorder.kernel(isa), recorder.operands, want))
    runner = Runner([kernel for kernel, _, _ in built])
    for i, (kernel, operands, want) in enumerate(built):
        np.testing.assert_array_equal(evaluated(kernel, *operands), want, WORKS[i][0].__name__)
        (got,) = runner.run(i, *operands)
        np.testing.assert_array_equal(got, want, WORKS[i][0].__name__)


@pytest.mark.parametrize("isa", HERE)
def test_high_halves_and_several_results(isa: str) -> None:
    """Products of 32 bits rounded at 31, of all corners: by vectors, a constant, a row's number."""
    lines = [
        Line("source", (), "i32", 0),
        Line("source", (), "i32", 1),
        Line("multiply_high", (0, 1)),
        Line("result", (2,)),
        Line("constant", (), "i32", 1 << 30),
        Line("multiply_high", (0, 4)),
        Line("result", (5,)),
        Line("source", (), "i32", 2),
        Line("number", (), "i32", 0),
        Line("multiply_high", (7, 8)),
        Line("multiply_high", (1, 9)),
    ]
    ends = np.iinfo(I32)
    corners = np.array([ends.min, ends.min + 1, -(1 << 30), -2, -1, 0, 1, 2, 1 << 30, ends.max])
    m, k = 7, len(corners) ** 2 + 37
    a, b = (RNG.integers(ends.min, ends.max, (m, k), endpoint=True) for _ in range(2))
    a[:, : len(corners) ** 2] = np.repeat(corners, len(corners))
    b[:, : len(corners) ** 2] = np.tile(corners, len(corners))
    c = RNG.choice(corners, (m, 1))
    number = np.array([[(1 << 30) + 12345]])
    shapes = ("i32", m, k), ("i32", m, k), ("i32", m, 1), ("i64", 1, 1)
    kernel = RowProgram(
        isa=isa, m=m, k=k, sources=tuple(Source(*s) for s in shapes), lines=tuple(lines)
    )

    def high(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return ((x.astype(I64) * y + (1 << 30)) >> 31).astype(I32)

    got = Runner([kernel]).run(0, *(v.astype(I32) for v in (a, b, c)), number)
    want = high(a, b), high(a, np.int64(1 << 30)), high(b, high(c, number))
    for one, other in zip(got, want, strict=True):
        np.testing.assert_array_equal(one, other)
