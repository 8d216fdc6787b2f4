"""Masks as choices between two numbers: `select(keep, 0, -inf)`, right where softmax reads them.

Softmax takes such a choice as it is, without a range of its own (`terms_of`). So an op that moves
elements of one, or gives them another float type, moves its predicate instead, and a constant of
two numbers, of which one hides what it is added to, becomes a choice. Factors go in front of it."""

from collections.abc import Sequence
from functools import cache

import numpy as np

from jq.base.deep import Steps, deep, every
from jq.ir import OPS, Op, Program, at, dtype_of, ir, kind_of, maker, shape_of, stablehlo
from jq.ir.affine import constant_of
from jq.ir.build import like, replace
from jq.ir.ops.selection import splat_of
from jq.ir.pointwise import ROUNDED
from jq.ir.values import operands_of, reached, users
from jq.passes.integer._ops import is_float

SELECT = "stablehlo.select"
MOVES = ("broadcast_in_dim", "reshape", "transpose", "slice", "convert")
HIDES = -1e8  # in float32 nothing is left of a score beside it


def with_choices(program: Program) -> None:
    """Rewrites the masks of a program."""
    for op in list(program.walk()):
        kind = kind_of(op).removeprefix("stablehlo.")
        if kind in MOVES and is_float(op.operands[0]) and is_float(op.results[0]):
            _move(program, op)
        elif kind == "add":
            _choose(program, op)
        elif kind in ("multiply", "divide"):
            _scale(program, op)
    program.drop_dead()


def _move(program: Program, op: Op) -> None:
    x = op.operands[0]
    nothing = kind_of(op) == "stablehlo.convert" and x.type == op.results[0].type
    moved = x if nothing else _moved(program, op, x)
    if moved is not None:
        replace(op, [moved])


@deep
def _moved(program: Program, op: Op, value: ir.Value) -> Steps[ir.Value | None]:
    """`op` of a choice of two numbers, or of a sum of such; None for any other value."""
    made = maker(value, SELECT, "stablehlo.add")
    if made is None:
        return None
    if kind_of(made) == "stablehlo.add":
        terms = yield from every((program, op, v) for v in made.operands)
        with at(op):
            return None if terms is None else OPS.add(*terms)
    keep, *numbers = made.operands
    splats = [splat_of(program, v) for v in numbers]
    if None in splats or shape_of(keep) != shape_of(value):
        return None
    result = op.results[0]
    with at(op):
        if kind_of(op) != "stablehlo.convert":
            keep = like(op, [keep], shape_of(result), np.bool_)
        return stablehlo.select(keep, *(OPS.full(result, x) for x in splats))


def _choose(program: Program, op: Op) -> None:
    """Makes a choice of the constant mask of a sum."""
    for i, v in enumerate(op.operands):
        found = constant_of(program, v) if is_float(v) else None
        if found is None or found.min(initial=0) > HIDES or len(numbers := np.unique(found)) != 2:
            continue
        with at(op):
            kept = OPS.constant(np.ascontiguousarray(found == numbers[1]))
            keep = OPS.broadcast(kept, shape_of(v), range(found.ndim))
            low, high = (OPS.full(v, float(x)) for x in numbers)
            op.operands[i] = OPS.select(keep, high, low)


def _scale(program: Program, op: Op) -> None:
    """A factor behind a mask goes to what is masked: `(x + mask) * c` -> `x * c + mask * c`."""
    divides, (x, by) = kind_of(op) == "stablehlo.divide", op.operands
    if not divides and splat_of(program, by) is None:
        x, by = by, x
    number = splat_of(program, by) or 0.0

    def terms(v: ir.Value) -> Sequence[ir.Value]:
        return operands_of(v, "stablehlo.add", SELECT)

    found = reached([x], terms, 60)

    @cache
    def scaled(v: ir.Value) -> ir.Value:
        if v in found and any(maker(n, SELECT) for n in reached([v], terms, 60)):
            parts = [scaled(part) if is_float(part) else part for part in terms(v)]
            return like(v.owner, parts, shape_of(v), np.float32)
        if (known := splat_of(program, v)) is None:
            return like(op, [v, by], shape_of(v), np.float32)
        return OPS.full(v, float(np.float32(known / number if divides else known * number)))

    numbers = (splat_of(program, v) or 0.0 for v in found)
    if users(x) == [op] and is_float(x) and 0 < abs(number) < np.inf and min(numbers) <= HIDES:
        with at(op), np.errstate(over="ignore"):
            replace(op, [scaled(x)])


BOUNDED = ("select", "compare", "clamp", "maximum", "minimum", "convert")


def with_own_roundings(program: Program) -> None:
    """Gives each conversion to whole numbers a rounding of its own, where others read that, too:
    with codes of its own 3.0 might be 2.99, and become 2."""
    kinds = {*ROUNDED, *(f"stablehlo.{kind}" for kind in BOUNDED)}
    for op in [op for op in program.walk() if kind_of(op) == "stablehlo.convert"]:
        if is_float(op.results[0]) or not is_float(x := op.operands[0]):
            continue
        behind = reached([x], lambda v: operands_of(v, *kinds), 60)
        inside = [v for v in behind if maker(v, *kinds)]
        owners = {op.operation, *(v.owner.operation for v in inside)}
        read = any(user.operation not in owners for v in inside for user in users(v))
        if read and any(kind_of(v.owner) in ROUNDED for v in inside):
            with at(op):
                op.operands[0] = _again(x, inside, {})


def _again(v: ir.Value, inside: list[ir.Value], made: dict[ir.Value, ir.Value]) -> ir.Value:
    """A value as other ops compute it once more."""
    if v in inside and v not in made:
        parts = [_again(part, inside, made) for part in v.owner.operands]
        made[v] = like(v.owner, parts, shape_of(v), dtype_of(v))
    return made.get(v, v)
