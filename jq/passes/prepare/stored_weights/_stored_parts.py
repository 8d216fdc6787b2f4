"""Codes, scale and zero point that a model's own arithmetic makes a weight from.

    reshape (multiply (reshape (convert %codes : i4)), (broadcast %scale))     blocks of 32

Backwards from a float value that weights alone make: what moves elements moves all the parts,
factors go into the scale, what is subtracted from codes is their zero point, until integers or
8-bit floats are found, or a lookup of numbers in a table (the elements of `nf4` or `fp4_e2m1`). New
ops compute the parts in the shape of the value; `recognize-dequantize` evaluates them, and looks
whether they give its numbers."""

import math
from dataclasses import dataclass, replace

import numpy as np

from jq.base.deep import Steps, deep
from jq.formats import NUMPY
from jq.formats.floats import Fp4E2M1, Nf4
from jq.formats.imported import Codebook, Codebook2, Codebook4
from jq.formats.scaled import Scaled
from jq.ir import OPS, Op, Program, at, dtype_of, ir, like, maker, shape_of
from jq.ir.ops import Movement, rule_of
from jq.ir.slicing import compute
from jq.passes.prepare.stored_weights import FLOATS
from jq.passes.prepare.stored_weights._probed import float_sources, probed

ELEMENTS = np.arange(16, dtype=np.int8)
LOOKED_UP: tuple[type[Scaled], ...] = (Nf4, Fp4E2M1)
TABLES = {f.name: np.asarray(f.element.decode(NUMPY, ELEMENTS)) for f in LOOKED_UP}
BOOKS: tuple[type[Codebook], ...] = (Codebook2, Codebook4)
WORK = ("stablehlo.multiply", "stablehlo.divide", "stablehlo.subtract", "stablehlo.add")


@dataclass(frozen=True)
class Arriving:
    """`scale * (codes - zero)`, all in the shape of the value; None: 1, and 0.

    `difference`: `codes - zero`, where the model subtracts them as integers. `added`: `zero` is
    what the model adds to scaled codes, divided by the scale. `minimum`: the number of code 0,
    where it is not 0; `zero` is None where two steps add it. `table`: the format whose elements the
    codes are indices of; `numbers`: those of its own table."""

    codes: ir.Value
    scale: ir.Value | None = None
    zero: ir.Value | None = None
    difference: ir.Value | None = None
    minimum: ir.Value | None = None
    added: bool = False
    table: str = ""
    numbers: tuple[float, ...] = ()

    @property
    def values(self) -> tuple[ir.Value | None, ...]:
        return self.codes, self.scale, self.zero, self.difference, self.minimum

    def moved(self, op: Op) -> "Arriving":
        """Every part as a movement moves the value."""
        shape = shape_of(op.results[0])
        rest = list(op.operands)[1:]

        def move(part: ir.Value | None) -> ir.Value | None:
            return None if part is None else like(op, [part, *rest], shape, dtype_of(part))

        codes = move(self.codes)
        assert codes is not None
        names = "scale", "zero", "difference", "minimum"
        scale, zero, difference, minimum = (move(getattr(self, name)) for name in names)
        moved = replace(self, codes=codes, scale=scale, zero=zero)
        return replace(moved, difference=difference, minimum=minimum)


@deep
def arriving(program: Program, value: ir.Value) -> Steps[Arriving | None]:
    """Parts of a value made of weights alone, right after it; None if it comes unquantized."""
    kind = dtype_of(value)
    if kind.name not in FLOATS:
        return _integers(value) if kind.kind != "b" and kind.name not in ("float64",) else None
    op = maker(value)
    if op is None:
        return None
    with at(op, after=True):
        return (yield from _through(program, op))


def _integers(value: ir.Value) -> Arriving:
    """Integers, or the difference of codes and zero points that are integers."""
    op = maker(value, "stablehlo.subtract")
    if op is None:
        return Arriving(value)
    codes, zero = op.operands
    while (wide := maker(codes, "stablehlo.convert")) is not None:
        if dtype_of(wide.operands[0]).kind == "b":
            break
        codes = wide.operands[0]
    with at(op, after=True):
        point = OPS.convert(zero, np.float32)
        return Arriving(codes, zero=point, difference=value, minimum=_negative(point))


def _through(program: Program, op: Op) -> Steps[Arriving | None]:
    operands, name = list(op.operands), op.operation.name
    if name == "stablehlo.gather":
        return _looked_up(program, op)
    if name in WORK:
        return (yield from _computed(program, name, operands))
    if name == "stablehlo.convert":
        return (yield program, operands[0])
    if isinstance(rule_of(op), Movement):
        found = yield program, operands[0]
        if found is not None:
            with at(op, after=True):
                return found.moved(op)
        return None
    plain: dict[ir.Value, ir.Value] = {}  # what is nothing but codes
    for value in float_sources(op):
        found = yield program, value
        if found is not None and (found.scale, found.minimum, found.table) == (None, None, ""):
            plain[value] = found.codes
    with at(op, after=True):
        if (parts := probed(op, plain)) is not None:
            codes, scale, minimum = parts
            return Arriving(codes, scale, minimum=minimum)
    return None


def _computed(program: Program, name: str, operands: list[ir.Value]) -> Steps[Arriving | None]:
    commutes = name in (WORK[0], WORK[3])
    for value, other in zip(operands if commutes else operands[:1], operands[::-1], strict=False):
        found: Arriving | None = yield program, value
        if found is None:
            continue
        by, scale, low = OPS.convert(other, np.float32), found.scale, found.minimum
        if name == "stablehlo.multiply":
            low = None if low is None else OPS.mul(low, by)
            return replace(found, scale=by if scale is None else OPS.mul(scale, by), minimum=low)
        if name == "stablehlo.divide":
            low = None if low is None else OPS.div(low, by)
            scale = OPS.div(1 if scale is None else scale, by)
            return replace(found, scale=scale, minimum=low)
        return _shifted(found, _negative(by) if name == "stablehlo.subtract" else by)
    return None


def _shifted(found: Arriving, by: ir.Value) -> Arriving:
    """The parts with a number added to each."""
    scale = found.scale
    if found.minimum is not None:
        return replace(found, zero=None, difference=None, minimum=OPS.add(found.minimum, by))
    if scale is None:
        return replace(found, zero=_negative(by), minimum=by)
    return replace(found, zero=OPS.div(_negative(by), scale), minimum=by, added=True)


def _negative(x: ir.Value) -> ir.Value:
    return OPS.mul(x, -1)


def _looked_up(program: Program, op: Op) -> Arriving | None:
    """Numbers of a format's table, one for each index."""
    table, indices = op.operands
    numbers, shape = compute(program, table), shape_of(op.results[0])
    if numbers is None or math.prod(shape) != math.prod(shape_of(indices)):
        return None
    for name, elements in TABLES.items():
        if np.array_equal(numbers.astype(np.float32).reshape(-1), elements):
            return Arriving(OPS.reshape(indices, shape), table=name)
    numbers = numbers.astype(np.float32).reshape(-1)
    for fmt in BOOKS:
        if numbers.size <= 1 << fmt.bits and np.isfinite(numbers).all():
            codes = OPS.reshape(indices, shape)
            return Arriving(codes, table=fmt.name, numbers=tuple(numbers.tolist()))
    return None
