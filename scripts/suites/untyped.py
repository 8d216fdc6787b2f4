"""Reasons that values of an emitted `qdq` module carry no quantized type."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from jq.ir import Op, Program, dtype_of, ir, kind_of, shape_of
from jq.ir.affine import is_constant
from jq.ir.slicing import Cut, functions
from jq.passes.functions import as_normalization
from jq.passes.integer._ops import as_softmax, is_elementwise, is_float

INTEGER = "integers and conditions"
SOFTMAX, NORMALIZATION = "inside softmax", "inside a normalization"
ELEMENTS = "inside a function of single elements"
BEFORE, BEHIND = "before anything is quantized", "behind the last quantized value"
SUM = "a sum with a float tensor"
ROWS = "rows of a weight, each with a scale of its own"
MEAN = "a sum over axes, and its mean"
OTHER = "others"
KINDS = {
    **dict.fromkeys(("stablehlo.add", "stablehlo.subtract"), SUM),
    **dict.fromkeys(("stablehlo.gather", "stablehlo.dynamic_slice"), ROWS),
    **dict.fromkeys(("stablehlo.reduce", "stablehlo.divide"), MEAN),
}
AFFINE = {f"stablehlo.{name}" for name in ("add", "subtract", "multiply", "divide", "negate")}


def reasons(program: Program, values: Iterable[ir.Value]) -> list[str]:
    """One for each value: the first that holds of integers, being part of a function that has no
    codes, lying outside of all codes, and being a sum with what is float for one of these."""
    ops = list(program.walk())
    inside = _inside(program, ops)
    codes = {v for op in ops for v in op.operation.results if "!quant." in str(v.type)}
    after = _reached(codes, lambda v: [r for use in v.uses for r in use.owner.operation.results])
    before = _reached(codes, _operands)
    return [_reason(v, inside, after, before) for v in values]


def _reason(
    value: ir.Value, inside: dict[ir.Value, str], after: set[ir.Value], before: set[ir.Value]
) -> str:
    if dtype_of(value).kind not in "fV":
        return INTEGER
    if value in inside:
        return inside[value]
    if value not in after:
        return BEFORE
    if value not in before:
        return BEHIND
    return KINDS.get(kind_of(value.owner), OTHER)


def _inside(program: Program, ops: list[Op]) -> dict[ir.Value, str]:
    """The values of functions, with what they are; a function's last value is one of them."""
    found: dict[ir.Value, str] = {}
    for op in ops:
        if len(op.operation.results) != 1 or op.operation.results[0] in found:
            continue
        for x in dict.fromkeys(op.operation.operands):
            if "!quant." in str(x.type) or not is_float(x) or is_constant(program, x):
                continue
            for cut in functions(program, x, op):
                if (name := _name(cut)) is not None:
                    found |= {o.operation.results[0]: name for o in cut.ops}
    return found


def _name(cut: Cut) -> str | None:
    shape = shape_of(cut.source)
    if as_softmax(cut):
        return SOFTMAX
    if shape == shape_of(cut.result) and shape and shape[-1] > 1:
        kinds = {kind_of(op) for op in cut.ops}
        if is_elementwise(cut) and not kinds <= AFFINE:
            return ELEMENTS
        if as_normalization(cut, shape, unit=True):
            return NORMALIZATION
    return None


def _operands(value: ir.Value) -> list[ir.Value]:
    return list(value.owner.operation.operands) if isinstance(value, ir.OpResult) else []


def _reached(values: set[ir.Value], step: Callable[[ir.Value], list[ir.Value]]) -> set[ir.Value]:
    found, todo = set[ir.Value](), list(values)
    while todo:
        value = todo.pop()
        if value not in found:
            found.add(value)
            todo.extend(step(value))
    return found
