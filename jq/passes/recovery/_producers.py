"""Multiplying a value channel by channel without an op: weights that make it take the factors.

The factors are positive and move up through what is linear, or positively homogeneous: a bias, a
product, ReLU, a maximum over a window, the size of complex numbers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from jq.ir import OPS, Op, Program, at, dtype_of, evaluate, integers, ir, maker, shape_of
from jq.ir.ops import contraction, reduction
from jq.ir.ops.rules.reshape import groups

Factor = np.ndarray  # of the value's rank, each axis of its size or of 1


class Blocked(Exception):
    """Something on the way cannot take factors."""


@dataclass
class Edits:
    """Weights to multiply; operands (op, number) that repeat a vector, which gets a weight."""

    program: Program
    weights: dict[str, Factor] = field(default_factory=dict)
    operands: list[tuple[Any, int, Factor]] = field(default_factory=list)

    def apply(self, name: str) -> None:
        """Carries them out; new weights are called `name:scaled`."""
        program = self.program
        for weight, factor in self.weights.items():
            old = np.asarray(program.weights[weight])
            program.weights[weight] = (old * factor).astype(old.dtype)
        for op, number, factor in self.operands:
            vector = _vector(program, op.operands[number])
            assert vector is not None
            changed = np.asarray(vector * factor).astype(vector.dtype)
            made = partial(program.add_weight, f"{name}:scaled")
            with at(op):
                op.operands[number] = OPS.spread(changed, shape_of(op.operands[number]), made)

    def attempt(self, visit: Callable[..., None], *args: Any) -> bool:
        """True if a visit goes through; one that does not leaves nothing behind."""
        before = dict(self.weights), list(self.operands)
        try:
            visit(self, *args)
        except Blocked:
            self.weights, self.operands = before
            return False
        return True


def edits_for(program: Program, value: ir.Value, factor: Factor, readers: int) -> Edits | None:
    """The edits that multiply `value`, which has so many readers, by `factor`; or None."""
    edits = Edits(program)
    fits = sum(1 for _ in value.uses) == readers and edits.attempt(_visit, value, factor)
    return edits if fits else None


def _visit(edits: Edits, value: ir.Value, factor: Factor) -> None:
    """Adds what multiplies a value whose every reader wants it multiplied."""
    name = edits.program.weight_name(value)
    if name is not None and dtype_of(value).kind in "fV":
        other = edits.weights.get(name, np.ones_like(factor))
        if ((factor == 1) | (other == 1)).all():  # parts of a result that are apart
            edits.weights[name] = factor * other
            return
    if maker(value) is None:
        raise Blocked
    op = value.owner.operation
    _RULES.get(op.name, _contraction)(edits, op, factor)


def _operand(edits: Edits, op: Op, number: int, factor: Factor) -> None:
    """Multiplies what one op reads."""
    value = op.operands[number]
    alone = sum(1 for _ in value.uses) == 1
    if (factor == 1).all() or (alone and edits.attempt(_visit, value, factor)):
        return
    vector = _vector(edits.program, value)
    if vector is None or np.ndim(np.squeeze(vector * factor)) != 1:
        raise Blocked
    edits.operands.append((op, number, factor))


def _vector(program: Program, value: ir.Value) -> np.ndarray | None:
    """A constant, once along axes of repetitions; None if that leaves more than one axis."""
    array = evaluate(program, value)
    if array is None or array.size == 0:
        return None
    for axis in range(array.ndim):
        first = np.take(array, [0], axis)
        if (array == first).all():
            array = first
    return array if sum(n > 1 for n in array.shape) <= 1 else None


def _both(edits: Edits, op: Op, factor: Factor) -> None:
    if op.operands[0] == op.operands[1]:
        raise Blocked
    for number in (0, 1):
        _operand(edits, op, number, factor)


def _either(edits: Edits, op: Op, factor: Factor) -> None:
    """A product: a vector first. A plain number stays: what it is part of is known by it. A square
    takes the root of powers of four."""
    vectors = [_vector(edits.program, v) for v in op.operands]
    order = sorted((0, 1), key=lambda i: vectors[i] is None)
    others = [i for i in order if (v := vectors[i]) is None or v.size != 1]
    if (x := op.operands[0]) == op.operands[1]:
        exact = (np.frexp(root := np.sqrt(factor))[0] == 0.5).all()
        if not exact or any(use.owner.operation != op for use in x.uses):
            raise Blocked
        _visit(edits, x, root)
    elif not any(edits.attempt(_operand, op, i, factor) for i in others):
        raise Blocked


def _first(edits: Edits, op: Op, factor: Factor) -> None:
    _operand(edits, op, 0, factor)


def _maximum(edits: Edits, op: Op, factor: Factor) -> None:
    """ReLU."""
    for number in (0, 1):
        zero = evaluate(edits.program, op.operands[1 - number])
        if zero is not None and not zero.any():
            return _operand(edits, op, number, factor)
    raise Blocked


def _reduced(edits: Edits, op: Op, factor: Factor) -> None:
    """A sum or an extreme over other axes than those that the factor depends on."""
    if reduction(edits.program, op) is None:
        raise Blocked
    if op.name == "stablehlo.reduce":
        factor = np.expand_dims(factor, integers(op, "dimensions"))
    else:
        window = integers(op, "window_dimensions")
        before, after = shape_of(op.operands[0]), shape_of(op.results[0])
        axes = [a for a, n in enumerate(factor.shape) if n > 1]
        if any(window[a] != 1 or before[a] != after[a] for a in axes):
            raise Blocked
    _operand(edits, op, 0, factor)


def _transpose(edits: Edits, op: Op, factor: Factor) -> None:
    _operand(edits, op, 0, np.transpose(factor, np.argsort(integers(op, "permutation"))))


def _reshape(edits: Edits, op: Op, factor: Factor) -> None:
    before, after = shape_of(op.operands[0]), shape_of(op.results[0])
    shape = [1] * len(before)
    for left, right in groups(before, after):
        if any(factor.shape[a] > 1 for a in right):
            wide = [after[a] if a in right else n for a, n in enumerate(factor.shape)]
            factor = np.broadcast_to(factor, wide)
            for a in left:
                shape[a] = before[a]
    _operand(edits, op, 0, factor.reshape(shape))


def _broadcast(edits: Edits, op: Op, factor: Factor) -> None:
    source, dims = shape_of(op.operands[0]), integers(op, "broadcast_dimensions")
    repeated = set(range(factor.ndim)) - {d for d, n in zip(dims, source, strict=True) if n > 1}
    if any(factor.shape[a] > 1 for a in repeated):
        raise Blocked
    order = np.argsort(dims)
    moved = factor.reshape([factor.shape[d] for d in sorted(dims)])
    _operand(edits, op, 0, np.transpose(moved, np.argsort(order)))


def _slice(edits: Edits, op: Op, factor: Factor) -> None:
    """The part of the operand that is read is multiplied; its other readers read other parts."""
    source = op.operands[0]
    axes = [a for a, n in enumerate(factor.shape) if n > 1]
    mine = _window(op)
    for use in source.uses:
        other = use.owner.operation
        if other != op and (
            other.name != "stablehlo.slice"
            or not any(_apart(mine[a], _window(other)[a]) for a in axes)
        ):
            raise Blocked
    shape = shape_of(source)
    whole = np.ones([n if a in axes else 1 for a, n in enumerate(shape)], factor.dtype)
    whole[tuple(mine[a] if a in axes else slice(None) for a in range(len(shape)))] = factor
    _visit(edits, source, whole)


def _window(op: Op) -> list[slice]:
    keys = ("start_indices", "limit_indices", "strides")
    return [slice(*ends) for ends in zip(*(integers(op, k) for k in keys), strict=True)]


def _apart(a: slice, b: slice) -> bool:
    return bool(a.stop <= b.start or b.stop <= a.start)


def _contraction(edits: Edits, op: Op, factor: Factor) -> None:
    """The weight of a product. A product of activations ends the way: each of them may be
    quantized too, and what suits the result need not suit it."""
    rule = contraction(op.name)
    if rule is None or len(rule.roles(op)) != 2 or rule.decline(op):
        raise Blocked
    wanted = {a for a, n in enumerate(factor.shape) if n > 1}
    for side in (1, 0):
        axes = rule.result_axes(op, side)
        order = [axes[a] for a in sorted(axes)]
        if wanted <= set(order) and evaluate(edits.program, op.operands[side]) is not None:
            rank = len(shape_of(op.operands[side]))
            moved = np.transpose(factor, order + [a for a in range(factor.ndim) if a not in order])
            shape = [factor.shape[axes[a]] if a in axes else 1 for a in range(rank)]
            return _operand(edits, op, side, moved.reshape(shape))
    raise Blocked


_RULES: dict[str, Any] = {
    "stablehlo.add": _both,
    "stablehlo.subtract": _both,
    "stablehlo.multiply": _either,
    "stablehlo.divide": _first,
    "stablehlo.negate": _first,
    "stablehlo.sqrt": lambda edits, op, factor: _first(edits, op, np.square(factor)),
    "stablehlo.maximum": _maximum,
    "stablehlo.reduce": _reduced,
    "stablehlo.reduce_window": _reduced,
    "stablehlo.transpose": _transpose,
    "stablehlo.reshape": _reshape,
    "stablehlo.broadcast_in_dim": _broadcast,
    "stablehlo.slice": _slice,
}
