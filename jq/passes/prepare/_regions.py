"""Softmax and normalizations in a float program, as far as a device computes them on codes."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from jq.ir import Op, Program, integers, ir, kind_of, only_user, shape_of
from jq.ir.affine import compact
from jq.ir.decisions import declined_by_shape
from jq.ir.ops import Contraction
from jq.ir.ops.selection import splat_of
from jq.ir.slicing import Cut, functions
from jq.passes.functions import as_normalization
from jq.passes.integer._functions import terms_of
from jq.passes.integer._ops import as_softmax, is_float


def function_of(program: Program, op: Op, x: ir.Value) -> Cut | None:
    """The whole softmax or normalization of `x` that begins with `op`."""
    if not _begins(op, x):
        return None
    for cut in on_codes(functions(program, x, op)):
        if as_softmax(cut):
            return cut
        if _is_normalization(cut):
            return _with_affine(program, cut, op)
    return None


def terms_inside(program: Program, x: ir.Value, softmax: Cut) -> list[tuple[Op, int]] | None:
    """The terms of a sum and the choices of a select that are `x`, which softmax takes as they are,
    as operands of ops by number; None where `x` is no sum, or others read it."""
    terms = terms_of(program, x)
    inside = {op.operation for op in softmax.ops}
    if terms == [x] or any(use.owner.operation not in inside for use in x.uses):
        return None
    found, todo = list[tuple[Op, int]](), [x]
    while todo:
        op = todo.pop().owner
        for i, v in enumerate(op.operands):
            if v in terms and is_float(v):
                found.append((op, i))
            elif is_float(v) and splat_of(program, v) is None:
                todo.append(v)
    return found


def _begins(op: Op, x: ir.Value) -> bool:
    """True if softmax or a normalization can begin with `op`: it reduces `x` or squares it."""
    kind, operands = op.operation.name, list(op.operands)
    return kind == "stablehlo.reduce" or (kind == "stablehlo.multiply" and operands == [x, x])


def on_codes(found: Iterable[Cut]) -> Iterator[Cut]:
    """Those of which no op has a shape that the device lacks."""
    return (cut for cut in found if not any(map(declined_by_shape, cut.ops)))


def _is_normalization(cut: Cut) -> bool:
    shape = shape_of(cut.source)
    if shape_of(cut.result) != shape or len(shape) < 1 or shape[-1] < 2:
        return False
    return as_normalization(cut, shape, unit=True) is not None


def _with_affine(program: Program, cut: Cut, first: Op) -> Cut:
    """The cut with the factor and the offset of the columns, when they follow."""
    every = on_codes(functions(program, cut.source, first))
    larger = [c for c in every if len(c.ops) > len(cut.ops)]
    return next((c for c in reversed(larger) if _is_normalization(c)), cut)


def is_masked(program: Program, op: Op) -> bool:
    """True for a sum in front of softmax of which a term is a choice of two numbers."""
    reader, chosen = op, False
    while kind_of(reader) in ("stablehlo.add", "stablehlo.select"):
        x = reader.results[0]
        operands = [v for v in reader.operands if is_float(v)]
        chosen |= any(not terms_of(program, v) for v in operands)
        firsts = [use.owner for use in x.uses if _begins(use.owner, x)]
        cuts = (c for first in firsts for c in functions(program, x, first))
        if softmax := next((c for c in on_codes(cuts) if as_softmax(c)), None):
            inside = {o.operation for o in softmax.ops}
            return chosen and all(use.owner.operation in inside for use in x.uses)
        if (following := only_user(x)) is None:
            return False
        reader = following
    return False


def differ(numbers: Iterable[np.ndarray]) -> set[int]:
    """The axes along which some numbers differ."""
    return {a for v in map(compact, numbers) for a, n in enumerate(v.shape) if n > 1}


def channels_of(op: Op, rule: Contraction, free: Sequence[int]) -> set[int]:
    """The axes of a product's result that its weight alone has, or the last of its operands."""
    axes = {r.index: {*rule.result_axes(op, r.index).values()} for r in rule.roles(op)}
    weight = next((i for i in axes if i not in free), max(axes))
    return axes.pop(weight).difference(*axes.values())


def channels_left(op: Op) -> set[int]:
    """The last axis of a sum, if it was the last axis of what is summed."""
    last = len(shape_of(op.operands[0])) - 1
    return set() if last in integers(op, "dimensions") else {len(shape_of(op.results[0])) - 1}
