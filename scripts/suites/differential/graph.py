"""A graph of StableHLO that is being drawn, as text, and what is known of its numbers.

Of every float value the graph knows the largest magnitude and a power of two that all its numbers
are multiples of. As long as their quotient fits the type's mantissa, sums are exact in any order,
fused or not. What would not fit is brought back by `fit`: rounded to multiples of 1/16, and
clamped. Integers wrap around alike everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import ml_dtypes
import numpy as np

T = TypeVar("T")
STEP, MOST = 1 / 16, 32.0  # of a value that has been brought back
ROOM = {"f32": 2.0**24, "bf16": 2.0**8, "f16": 2.0**11}
FLOATS, INTEGERS = tuple(ROOM), ("i8", "i16", "i32", "ui8")
SIZES = (1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 16, 17, 32, 33)
LARGEST = 1024  # elements of a value
BLOCK = 16  # elements of the smallest that a format has
DTYPES = {
    "f32": np.dtype("float32"),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype("float16"),
    "i1": np.dtype("bool"),
    "ui8": np.dtype("uint8"),
} | {f"i{n}": np.dtype(f"int{n}") for n in (8, 16, 32, 64)}


@dataclass(frozen=True)
class Value:
    """A result of the graph.

    Attributes:
        kind: the element type, as StableHLO writes it.
        most, step: of floats: the largest magnitude, and what all numbers are multiples of.
    """

    name: str
    shape: tuple[int, ...]
    kind: str
    most: float = 0.0
    step: float = 1.0

    @property
    def type(self) -> str:
        return tensor(self.shape, self.kind)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def is_float(self) -> bool:
        return self.kind in ROOM


@dataclass(frozen=True)
class Codes:
    """A weight's numbers, in steps of a power of two.

    Attributes:
        low, high: the least and the largest; both are in each channel and block.
        ends: whether there are no others but zero.
        alone: that of a block of one element.
    """

    low: int = -127
    high: int = 127
    ends: bool = False
    alone: int = 0


def tensor(shape: Sequence[int], kind: str) -> str:
    return f"tensor<{''.join(f'{n}x' for n in shape)}{kind}>"


@dataclass
class Graph:
    """Attributes:
    prefix: of all its names, so that several graphs fit in one function.
    rounds: whether the pipeline quantizes what products read: their results are then brought back.
    codes, rows: the numbers of weights, and of those that are looked up.
    splits: whether kernels split the floats of products into digits: results may be off in their
        last place.
    lines: the ops, one a line; `names` of those that were drawn.
    """

    rng: np.random.Generator
    prefix: str = "g"
    rounds: bool = False
    codes: Codes = field(default_factory=lambda: Codes())
    rows: Codes = field(default_factory=lambda: Codes())
    splits: bool = False
    lines: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    inputs: list[tuple[Value, np.ndarray]] = field(default_factory=list)
    weights: list[tuple[Value, np.ndarray]] = field(default_factory=list)
    read: set[str] = field(default_factory=set)
    count: int = 0

    # What is drawn

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def choose(self, options: Sequence[T]) -> T:
        return options[int(self.rng.integers(len(options)))]

    def pick(self, wanted: Callable[[Value], bool] = lambda v: True) -> Value | None:
        """A value, the later the likelier."""
        there = [v for v in self.values if wanted(v)]
        if not there:
            return None
        return there[-1 - int(len(there) * self.rng.random() ** 2.5)]

    # What is written

    def name(self) -> str:
        self.count += 1
        return f"%{self.prefix}_{self.count}"

    def op(
        self,
        name: str,
        operands: Sequence[Value],
        shape: Sequence[int],
        kind: str,
        most: float = 0.0,
        step: float = 1.0,
        attributes: str = "",
        regions: str = "",
    ) -> Value:
        """Writes `stablehlo.name` in MLIR's generic form."""
        result = Value(self.name(), tuple(shape), kind, most, step)
        given = ", ".join(v.name for v in operands)
        types = ", ".join(v.type for v in operands)
        inside = f" ({regions})" if regions else ""
        written = f" {{{attributes}}}" if attributes else ""
        self.lines.append(
            f'{result.name} = "stablehlo.{name}"({given}){inside}{written}'
            f" : ({types}) -> {result.type}"
        )
        self.read |= {v.name for v in operands}
        return result

    def like(self, name: str, v: Value, *others: Value, **known: float) -> Value:
        """An op whose result has the type of `v`, and its numbers unless said otherwise."""
        most, step = known.get("most", v.most), known.get("step", v.step)
        return self.op(name, [v, *others], v.shape, v.kind, most, step)

    def moved(
        self, name: str, v: Value, shape: Sequence[int], attributes: str = "", *others: Value
    ) -> Value:
        """An op that only moves the numbers of `v`."""
        return self.op(name, [v, *others], shape, v.kind, v.most, v.step, attributes)

    def constant(self, array: np.ndarray, kind: str) -> Value:
        most = float(np.abs(array.astype(np.float64)).max(initial=0)) if kind in ROOM else 0.0
        if array.size and (array == array.flat[0]).all():
            data = f"{_written(array.flat[0], kind)}"
        else:
            data = str(_nested(array, kind))
        value = f"value = dense<{data}> : {tensor(array.shape, kind)}"
        return self.op("constant", [], array.shape, kind, most, STEP, value)

    def full(self, v: Value, number: float, kind: str = "") -> Value:
        """A constant of the shape of `v`."""
        kind = kind or v.kind
        return self.constant(np.full(v.shape, number, np.float64), kind)

    def scalar(self, number: float, kind: str) -> Value:
        return self.constant(np.array(number, np.float64), kind)

    def input(self, shape: Sequence[int], kind: str) -> Value:
        value = Value(f"%{self.prefix}_in{len(self.inputs)}", tuple(shape), kind, 8.0, 1.0)
        self.inputs.append((value, numbers(self.rng, shape, kind)))
        return value

    def weight(self, shape: Sequence[int], kind: str, axis: int, rows: bool = False) -> Value:
        """Multiples of a power of two; the least and the largest of them are in every channel and
        block along `axis`, so that scales of integers, and of blocks, are powers of two as well.

        Args:
            rows: whether it is looked up.
        """
        codes = self.rows if rows else self.codes
        if codes.high > 128 and kind != "f32":  # 16 bits are more than such a type has
            codes = Codes(ends=True)
        low, high = codes.low, codes.high
        fine = max(0, high.bit_length() - 7)
        scale = 2.0 ** -(int(self.rng.integers(4, 8)) + fine)
        array = self.rng.integers(low, high + 1, shape).astype(np.float64)
        if codes.ends:
            array = np.where(array < low / 2, low, np.where(array > high / 2, high, 0.0))
        along = np.moveaxis(array, axis, 0)
        along[::BLOCK], along[1::BLOCK] = low, high
        if len(along) % BLOCK == 1:
            along[-1] = codes.alone or low
        array = (array * scale).astype(DTYPES[kind])
        name = f"%{self.prefix}_w{len(self.weights)}"
        value = Value(name, tuple(shape), kind, -low * scale, scale)
        self.weights.append((value, array))
        return value

    def keep(self, value: Value) -> Value:
        """Lets later ops read it."""
        self.values.append(value)
        return value

    # Exactness

    def fit(self, v: Value, room: float = 0.0, most: float = MOST) -> Value:
        """`v`, brought back where its numbers are larger than `most` or too fine."""
        if v.most <= most and v.most / v.step <= (room or ROOM[v.kind]):
            return v
        return self.settle(v, most, room)

    def settle(self, v: Value, most: float = MOST, room: float = 0.0, offset: float = 0.0) -> Value:
        """Rounded to multiples of a power of two, and clamped."""
        step = STEP
        while most / step > (room or ROOM[v.kind]):
            step *= 2
        fine = self.like("multiply", v, self.full(v, 1 / step))
        if offset:
            fine = self.like("floor", self.like("add", fine, self.full(v, offset)))
        else:
            fine = self.like("round_nearest_even", fine)
        low, high = self.full(v, -most / step), self.full(v, most / step)
        inside = self.op("clamp", [low, fine, high], v.shape, v.kind, most / step, 1.0)
        return self.op("multiply", [inside, self.full(v, step)], v.shape, v.kind, most, step)

    def result(self) -> list[Value]:
        """Values that no op reads."""
        return [v for v in self.values if v.name not in self.read]


_INFINITE = {"f32": "0xFF800000", "bf16": "0xFF80", "f16": "0xFC00"}  # minus infinity


def numbers(rng: np.random.Generator, shape: Sequence[int], kind: str) -> np.ndarray:
    """Small integers."""
    low, high = (0, 2) if kind == "i1" else (0, 9) if kind.startswith("u") else (-8, 9)
    return rng.integers(low, high, tuple(shape)).astype(DTYPES[kind])


def _written(number: object, kind: str) -> str:
    if kind == "i1":
        return "true" if number else "false"
    value = float(number)  # type: ignore[arg-type]
    if kind not in ROOM:
        return str(int(value))
    return f"{value!r}" if math.isfinite(value) else _INFINITE[kind]


def _nested(array: np.ndarray, kind: str) -> str:
    if array.ndim == 0:
        return _written(array.item(), kind)
    return f"[{', '.join(_nested(part, kind) for part in array)}]"
