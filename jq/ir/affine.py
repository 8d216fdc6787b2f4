"""Steps `c * x + b` with constant `c` and `b`: how biases, norms of inference and means look.

Constants keep size 1 along the axes on which they do not depend, as NumPy broadcasts."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxlib.mlir import ir

from jq.ir.program import Program
from jq.ir.slicing import compute
from jq.ir.values import Op, maker, only_user

Array = np.ndarray


@dataclass(frozen=True)
class Affine:
    """`result = c * source + b`; `ops` in program order. Computed in float64."""

    source: ir.Value
    result: ir.Value
    c: Array
    b: Array
    ops: tuple[Any, ...] = ()

    def then(self, c: Array, b: Array, op: Op) -> "Affine":
        return Affine(self.source, op.results[0], self.c * c, self.b * c + b, (*self.ops, op))


def constant_of(program: Program, value: ir.Value) -> Array | None:
    """The array that weights and constants alone make of `value`, float64, compact; else None."""
    array = compute(program, value)
    return None if array is None else compact(np.asarray(array)).astype(np.float64)


def is_constant(program: Program, value: ir.Value) -> bool:
    """True if weights and constants alone make `value`."""
    return compute(program, value) is not None


def compact(x: Array) -> Array:
    """The array with size 1 along every axis on which its values do not depend."""
    for axis, size in enumerate(x.shape):
        first = x.take([0], axis) if size else x
        if size > 1 and (x.strides[axis] == 0 or (x == first).all()):
            x = first
    return x


def step(program: Program, op: Op, value: ir.Value) -> tuple[Array, Array] | None:
    """`c`, `b` when `op` computes `c * value + b`; None for any other op."""
    kind, operands = op.operation.name.removeprefix("stablehlo."), list(op.operands)
    one, zero = np.ones(()), np.zeros(())
    if kind == "negate":
        return -one, zero
    if kind not in ("add", "subtract", "multiply", "divide") or operands.count(value) != 1:
        return None
    first = operands[0] == value
    other = constant_of(program, operands[1 if first else 0])
    if other is None or not np.isfinite(other).all():
        return None
    if kind == "add":
        return one, other
    if kind == "subtract":
        return (one, -other) if first else (-one, other)
    if kind == "multiply":
        return other, zero
    return (1 / other, zero) if first and (other != 0).all() else None


def forwards(program: Program, source: ir.Value) -> Affine:
    """The longest chain of affine steps behind `source`, each the only reader of the one before."""
    chain = Affine(source, source, np.ones(()), np.zeros(()))
    while (op := only_user(chain.result)) is not None:
        if (found := step(program, op, chain.result)) is None:
            break
        chain = chain.then(*found, op)
    return chain


def backwards(program: Program, result: ir.Value) -> Affine:
    """The longest chain of affine steps that ends in `result`."""
    ops, value = list[tuple[Array, Array, Any]](), result
    while (op := maker(value)) is not None:
        sides = [v for v in op.operands if constant_of(program, v) is None]
        if len(sides) != 1 or (found := step(program, op, sides[0])) is None:
            break
        ops.append((*found, op))
        value = sides[0]
    chain = Affine(value, value, np.ones(()), np.zeros(()))
    for c, b, op in reversed(ops):
        chain = chain.then(c, b, op)
    return chain
