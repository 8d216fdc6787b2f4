"""Ops that move or choose elements: of quantized operands they give the quantized result.

    quantize(f(x, y)) = f(quantize(x), quantize(y))        with the same scale and zero point

exactly, since each element of the result is one of the operands' elements, and quantization keeps
the order that a maximum goes by. (NaN, which has the code of 0, is the exception.)"""

from collections.abc import Sequence

import numpy as np

from jq.ir import OPS, Op, Program, dense_array, dtype_of, ir, kind_of, maker, shape_of, tensor_type
from jq.ir.affine import constant_of
from jq.ir.build import attributes_of, create, direction_of, fill, i64_attr, integer, like
from jq.ir.ops.lookup import rule_of
from jq.ir.values import combiner

SCATTER = "stablehlo.scatter"
EXTREMES = ("maximum", "minimum")
# JAX orders numbers with one zero and one NaN.
CANONICAL = ("stablehlo.select", "stablehlo.compare")
LOWEST = float(np.finfo(np.float32).min)


def elements(program: Program, op: Op) -> tuple[int, ...]:
    """Numbers of the operands whose elements `op` moves or chooses from; none for other ops."""
    rule = rule_of(op)
    return () if rule is None else rule.elements(program, op)


def splat_of(program: Program, value: ir.Value) -> float | None:
    """The number that every element of a constant is, or None."""
    array = constant_of(program, value)
    return float(array.reshape(())) if array is not None and array.size == 1 else None


def combines(op: Op) -> str | None:
    """The one op by which a reduce or reduce_window of one tensor combines its elements."""
    reduces = kind_of(op) in ("stablehlo.reduce", "stablehlo.reduce_window")
    return (combiner(op) or None) if reduces and len(op.operands) == 2 else None


def reduction(program: Program, op: Op) -> str | None:
    """`add`, `maximum` or `minimum` for a plain reduce or reduce_window of one tensor."""
    combined = combines(op)
    start = None if combined is None else splat_of(program, op.operands[1])
    if combined is None or start is None:
        return None
    neutral = {"add": start == 0, "maximum": start <= LOWEST, "minimum": start >= -LOWEST}
    return combined if neutral.get(combined) else None


def written(op: Op) -> str | None:
    """The value that a scatter of one tensor puts where it writes: the update ("update"), or the
    `maximum` or `minimum` of both; None for others."""
    if kind_of(op) != SCATTER or len(op.operands) != 3:
        return None
    block = op.regions[0].blocks[0]
    ops, arguments = [o.operation for o in block.operations], list(block.arguments)
    if len(ops) == 1:
        return "update" if list(ops[0].operands) == arguments[1:] else None
    return extreme if (extreme := combiner(op)) in EXTREMES else None


def select_codes(program: Program, op: Op, codes: Sequence[ir.Value]) -> ir.Value:
    """`op` on codes in the place of its elements, at the current insertion point."""
    kind = kind_of(op)
    if kind in ("stablehlo.reduce", "stablehlo.reduce_window"):
        return _extreme(op, codes[0])
    if kind == SCATTER:
        return _scattered(op, *codes)
    if kind in ("stablehlo.sort", "chlo.top_k"):
        return in_order(op, codes[0])
    dtype, shape = dtype_of(codes[0]), shape_of(op.results[0])
    operands = list(op.operands)
    for index, value in zip(elements(program, op), codes, strict=True):
        operands[index] = value
    return like(op, operands, shape, dtype)


def _extreme(op: Op, codes: ir.Value) -> ir.Value:
    extreme, info = combiner(op), np.iinfo(dtype_of(codes))
    start = info.max if extreme == "minimum" else info.min
    return reduce_like(op, codes, f"stablehlo.{extreme}", start)


def _scattered(op: Op, into: ir.Value, updates: ir.Value) -> ir.Value:
    extreme, dtype = written(op), dtype_of(into)
    given, kind = (into, op.operands[1], updates), tensor_type(shape_of(into), dtype)
    new = create(SCATTER, kind, *given, regions=1, **attributes_of(op))
    writes = {"update": lambda old, update: update, "maximum": OPS.maximum, "minimum": OPS.minimum}
    fill(new.owner, tensor_type((), dtype), writes[extreme or ""])
    return new


def reduce_like(op: Op, x: ir.Value, combine: str, start: int) -> ir.Value:
    """The reduce or reduce_window `op` on integers `x`, combined by the op `combine`."""
    kind, scalar = (tensor_type(shape, dtype_of(x)) for shape in (shape_of(op.results[0]), ()))
    given = x, OPS.constant(np.array(start, dtype_of(x)))
    new = create(op.operation.name, kind, *given, regions=1, **attributes_of(op))
    fill(new.owner, scalar, lambda a, b: create(combine, scalar, a, b))
    return new


def direction(op: Op) -> str | None:
    """`LT` or `GT` for a sort by the numbers themselves; None for any other order."""
    block = op.regions[0].blocks[0]
    compare = maker(list(block.operations)[-1].operands[0], "stablehlo.compare")
    if compare is None:
        return None
    how = direction_of(compare)
    pairs = zip(compare.operands, block.arguments, strict=False)
    return how if how in ("LT", "GT") and all(_is(v, x) for v, x in pairs) else None


def _is(value: ir.Value, x: ir.Value) -> bool:
    """True if a value is `x`, but for which zero and which NaN it is."""
    waiting, seen = [value], {x}
    while waiting:
        if (value := waiting.pop()) in seen:
            continue
        seen.add(value)
        if (op := maker(value)) is None:
            return False
        if op.operation.name in CANONICAL:
            waiting += op.operands
            continue
        array = dense_array(value) if op.operation.name == "stablehlo.constant" else None
        if array is None or np.nan_to_num(array.astype(np.float32)).any():
            return False
    return True


def in_order(op: Op, codes: ir.Value) -> ir.Value:
    """Integers as a sort, or the values of a top_k, give them, at the current insertion point."""
    shape, top = shape_of(op.results[0]), kind_of(op) != "stablehlo.sort"
    how = "GT" if top else str(direction(op))
    axis = len(shape) - 1 if top else integer(op, "dimension")
    said = {} if top else attributes_of(op)
    said |= {"dimension": i64_attr(axis), "is_stable": ir.BoolAttr.get(False)}
    made = create("stablehlo.sort", codes.type, codes, regions=1, **said)
    fill(made.owner, tensor_type((), dtype_of(codes)), lambda a, b: OPS.compare(a, b, how))
    return OPS.slice(made, [0] * len(shape), shape) if top else made
