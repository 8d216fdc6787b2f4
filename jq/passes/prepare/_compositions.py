"""Softmax, normalizations and attention, by the ops that they are made of, in whatever axes.

Only to name them: whether they have a form on codes is asked elsewhere, by what they compute."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from jq.ir import Op, Program, ir, kind_of, maker
from jq.ir.affine import is_constant
from jq.ir.ops.lookup import multiplies
from jq.ir.ops.selection import combines
from jq.ir.values import operands_of, reached, short_kind

VIEWS = ("broadcast_in_dim", "convert", "reshape", "transpose")
SCORES = (*VIEWS, "add", "divide", "maximum", "minimum", "multiply", "select", "subtract")
FURTHEST = 60  # ops between the parts of one function


@dataclass(frozen=True)
class Composition:
    """The ops of one function, in program order, and the values between which they stand."""

    function: str
    source: ir.Value
    result: ir.Value
    ops: tuple[Op, ...]


def compositions(program: Program) -> Iterator[Composition]:
    """Softmax and normalizations; attention last, which has softmax in it."""
    found = list[Composition]()
    for op in list(program.walk()):
        one = _softmax(program, op) or _normalization(program, op)
        if one is not None:
            found.append(one)
            yield one
    for one in found:
        if one.function == "softmax" and (whole := _attention(program, one)) is not None:
            yield whole


def _back(value: ir.Value, through: tuple[str, ...]) -> list[ir.Value]:
    """Values that one is computed from by ops of these kinds, nearest first, itself included."""
    kinds = [f"stablehlo.{kind}" for kind in through]
    return list(reached([value], lambda v: operands_of(v, *kinds), FURTHEST))


def _first(value: ir.Value, through: tuple[str, ...], wanted: Callable[[Op], bool]) -> Op | None:
    """The nearest op that `value` comes from by others of these kinds."""
    made = map(maker, _back(value, through))
    return next((op for op in made if op is not None and wanted(op)), None)


def _reduces(how: str) -> Callable[[Op], bool]:
    return lambda op: combines(op) == how and kind_of(op) == "stablehlo.reduce"


def _softmax(program: Program, op: Op) -> Composition | None:
    """exp(x - max(x)) by its sum."""
    if short_kind(op) != "divide":
        return None
    above, below = op.operands
    power = _first(above, VIEWS, lambda o: short_kind(o) == "exponential")
    total = _first(below, VIEWS, _reduces("add"))
    summed = () if total is None else map(maker, _back(total.operands[0], VIEWS))
    if power is None or power not in summed:
        return None
    source = _shifted(power.operands[0], "maximum")
    return _between(program, "softmax", source, op.results[0])


def _shifted(x: ir.Value, by: str) -> ir.Value:
    """The tensor of which `x` is the difference with its largest elements, or mean; else `x`."""
    difference = _first(x, VIEWS, lambda o: short_kind(o) == "subtract")
    if difference is None:
        return x
    own, reduced = difference.operands
    row = _first(reduced, (*VIEWS, "divide", "maximum", "multiply", "select"), _reduces(by))
    return own if row is not None else x


def _normalization(program: Program, op: Op) -> Composition | None:
    """Something divided by a root of its mean square: LayerNorm, RMSNorm, group norms, L2."""
    if short_kind(op) not in ("divide", "multiply"):
        return None
    root_kind = "sqrt" if short_kind(op) == "divide" else "rsqrt"
    first, second = op.operands
    for top, below in ((first, second), (second, first)):
        root = _first(below, (*VIEWS, "multiply", "maximum"), lambda o: short_kind(o) == root_kind)
        total = _first(root.operands[0], SCORES, _reduces("add")) if root else None
        square = _first(total.operands[0], VIEWS, _squares) if total else None
        if square is not None and not is_constant(program, top):
            source = _shifted(square.operands[0], "add")
            return _between(program, "normalization", source, op.results[0])
    return None


def _squares(op: Op) -> bool:
    operands = op.operands
    return short_kind(op) == "power" or (
        short_kind(op) == "multiply" and operands[0] == operands[1]
    )


def _attention(program: Program, softmax: Composition) -> Composition | None:
    """Softmax of a product of two computed tensors, times a third."""
    scores = _first(softmax.source, SCORES, lambda o: _multiplies(program, o))
    if scores is None:
        return None
    found = [softmax.result]
    for value in found:
        for use in value.uses:
            op: Op = use.owner
            if _multiplies(program, op):
                first, last = scores.results[0], op.results[0]
                whole = _between(program, "attention", first, last)
                return whole and Composition("attention", first, last, (scores, *whole.ops))
            if short_kind(op) in (*VIEWS, "select", "multiply"):
                found += [v for v in op.results if v not in found]
    return None


def _multiplies(program: Program, op: Op) -> bool:
    """True for a product of two tensors that are both computed."""
    return multiplies(op) and not any(is_constant(program, v) for v in op.operands)


def _between(
    program: Program, function: str, source: ir.Value, result: ir.Value
) -> Composition | None:
    """The ops on all ways from one value to the other."""
    after = reached([source], lambda v: (r for use in v.uses for r in use.owner.results))
    before = reached([result], operands_of)
    both = [v for v in before if v in after and v != source]
    inside = {v.owner.operation for v in both}
    kept = tuple(op for op in result.owner.operation.block.operations if op.operation in inside)
    return Composition(function, source, result, kept) if kept else None
