"""Unsigned integers are computed as signed ones of the same bits.

    maximum(%a, %b) : ui8   ->   xor(maximum(xor(%a, 0x80), xor(%b, 0x80)), 0x80) : i8
    convert %a : ui8 -> f32 ->   convert (and (convert %a : i8 -> i32), 255) : i32 -> f32

IREE has integers without a sign. Most ops treat the bits of both alike; those that do not are
written in signed ones. Inputs and results of the program keep their types."""

from typing import Any

import numpy as np

from jq.ir import OPS, Op, Program, at, dtype_of, ir, shape_of, stablehlo, tensor_type, walk
from jq.ir.build import like, recast, replace
from jq.passes._retype import keep_signature, keep_types, retype, retype_functions, values_of
from jq.passes.base import PassContext
from jq.passes.iree_mends.mend import Mend


def converted(x: ir.Value, result: np.dtype[Any]) -> ir.Value:
    source, whole = dtype_of(x), result.kind in "iu"
    narrow = whole and result.itemsize <= source.itemsize
    if source.kind == "u" and (result.kind == "b" or narrow):
        x = recast(x, signed(source))
    elif source.kind == "u":
        wide = signed(result) if whole else np.dtype(f"i{max(4, 2 * source.itemsize)}")
        x = widened(x, wide)
    elif source.kind not in "ib":
        x = _to(x, np.dtype(f"i{2 * result.itemsize}"))
    return recast(_to(x, signed(result)), result) if result.kind == "u" else _to(x, result)


def _to(x: ir.Value, result: np.dtype[Any]) -> ir.Value:
    """A conversion between any two types."""
    return x if dtype_of(x) == result else stablehlo.convert(tensor_type(shape_of(x), result), x)


def widened(x: ir.Value, wide: np.dtype[Any]) -> ir.Value:
    """The same number as a wider signed integer."""
    source = dtype_of(x)
    bits = OPS.convert(recast(x, signed(source)), wide)
    return OPS.bit_and(bits, OPS.full(bits, np.iinfo(source).max))


def shifted(x: ir.Value) -> ir.Value:
    return flipped(recast(x, signed(dtype_of(x))))


def flipped(x: ir.Value) -> ir.Value:
    """The highest bit changed."""
    return OPS.bit_xor(x, OPS.full(x, np.iinfo(dtype_of(x)).min))


def signed(kind: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"i{kind.itemsize}")


def bits_of(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(signed(array.dtype)).reshape(array.shape)


ORDERED = ("stablehlo.maximum", "stablehlo.minimum", "stablehlo.clamp")
REFUSED = ("stablehlo.reverse", "stablehlo.reduce_window", "stablehlo.while")
WIDENED = ("stablehlo.divide", "stablehlo.remainder", "stablehlo.power")


class PlainUnsigned(Mend):
    """Unsigned integers are refused in reversals, windows, cumulative sums and the carries of
    loops.
    Trap: traps/test_refused.py::test_unsigned_integers"""

    def finds(self, op: Op) -> bool:
        return op.operation.name in REFUSED and any(map(is_unsigned, op.results))

    def run(self, program: Program, cx: PassContext) -> bool:
        bodies = [f.entry_block for f in program.functions()]
        if not any(is_unsigned(v) for block in bodies for v in values_of(block)):
            return False
        kept = keep_signature(program, program.body.arguments, is_unsigned, _cast)
        for block in bodies:
            for op in walk(block):
                if any(is_unsigned(v) and v not in kept for v in (*op.operands, *op.results)):
                    _rewrite(op, kept)
        for block in bodies:
            for value in list(values_of(block)):
                if is_unsigned(value) and value not in kept:
                    retype(value, signed(dtype_of(value)))
            for op in walk(block):
                cast = op.operation.name == "stablehlo.bitcast_convert"
                if cast and op.operands[0].type == op.results[0].type:
                    replace(op, [op.operands[0]])
        retype_functions(program)
        return True


def is_unsigned(value: ir.Value) -> bool:
    """True if a value is a tensor of unsigned integers of whole bytes."""
    kind = value.type.element_type if isinstance(value.type, ir.RankedTensorType) else None
    return isinstance(kind, ir.IntegerType) and bool(kind.is_unsigned) and kind.width >= 8


def _rewrite(op: Op, kept: set[ir.Value]) -> None:
    """Writes an op that reads the sign of its operands in signed integers; types are valid."""
    name = op.operation.name
    with at(op):
        if name == "stablehlo.constant":
            array = np.array(op.attributes["value"])
            whole = np.broadcast_to(array, shape_of(op.results[0]))
            replace(op, [recast(OPS.constant(bits_of(whole)), dtype_of(op.results[0]))])
        elif name == "stablehlo.compare":
            # The order is that of signed integers with the highest bit changed.
            sides = [shifted(v) for v in op.operands]
            kind = ir.Attribute.parse("#stablehlo<comparison_type SIGNED>")
            found = like(op, sides, shape_of(op.results[0]), np.bool_, compare_type=kind)
            replace(op, [found])
        elif name in ORDERED:
            result = dtype_of(op.results[0])
            sides = [shifted(v) for v in op.operands]
            found = like(op, sides, shape_of(op.results[0]), signed(result))
            replace(op, [recast(flipped(found), result)])
        elif name in WIDENED and dtype_of(op.results[0]).itemsize < 8:
            result = dtype_of(op.results[0])
            wide = np.dtype(f"i{2 * result.itemsize}")
            sides = [widened(v, wide) for v in op.operands]
            found = like(op, sides, shape_of(op.results[0]), wide)
            replace(op, [recast(OPS.convert(found, signed(result)), result)])
        elif (
            name == "func.call" or name in WIDENED or (name == "stablehlo.convert" and _is_wide(op))
        ):
            kept.update(keep_types(op, is_unsigned, _cast))
        elif name == "stablehlo.convert":
            replace(op, [converted(op.operands[0], dtype_of(op.results[0]))])


def _is_wide(op: Op) -> bool:
    """True if it converts between floats and 64 bits without a sign: no integer is wider."""
    kinds = [dtype_of(op.operands[0]), dtype_of(op.results[0])]
    wide = any(kind.kind == "u" and kind.itemsize == 8 for kind in kinds)
    return wide and not all(kind.kind in "iub" for kind in kinds)


def _cast(value: ir.Value) -> ir.Value:
    return recast(recast(value, signed(dtype_of(value))), dtype_of(value))
