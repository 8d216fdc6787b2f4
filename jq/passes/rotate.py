"""Values between layers are rotated by Hadamard matrices that end up in weights, at no cost.

    y = f(x W1) W2   ->   y = f(x W1 Q) Q^T W2

for everything between that is linear in the channels, or an RMS norm, whose vector W2 takes in
first: the residual stream of a network of RMS norms as a whole, the values of attention head by
head, two products in a row (Ashkboos et al., "QuaRot: Outlier-Free 4-Bit Inference in Rotated
LLMs", 2024, with the graph instead of a list of layers; random signs as in Liu et al., "SpinQuant:
LLM Quantization with Learned Rotations", 2024). A rotated channel is a sum of all of them, so none
is louder than the others. No data are needed. The float program computes what it did, within
rounding.

What must be rotated together is found by dataflow, see `jq.passes._turns`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np

from jq.ir import Program, at, dtype_of, ir, shape_of
from jq.ir.affine import constant_of
from jq.ir.arrays import StableHloOps
from jq.passes._hadamard import block_of, matrix
from jq.passes._pairs import find_inputs
from jq.passes._turns import Blocked, Closure, Turn
from jq.passes.base import PassContext, Recovery
from jq.settings import FLOAT

LOG = logging.getLogger("jq")
OPS = StableHloOps()
DEPTH = 4  # movements in front of a product that are looked through for the size of heads


@dataclass(frozen=True)
class Rotate(Recovery):
    """Option `seed` of the random signs."""

    name = "rotate"
    needs_data = False
    seed: int = 0

    def wanted(self, cx: PassContext) -> bool:
        return cx.settings.weights.format != FLOAT

    def recover(self, program: Program, cx: PassContext) -> bool:
        count, done = 0, set[ir.Value]()
        for i in find_inputs(program):
            value = _inside_norm(program, i.value, i.axis)
            if value in done:
                continue
            found = _closure(program, value, i.axis)
            if found is None:
                continue
            LOG.info("rotate: %s by %d", ", ".join(found.weights), found.size)
            _apply(program, found, rotation(found.size, self.seed + count))
            done |= found.values.keys()
            count += 1
        if not count:
            self.skip(cx, "nothing between two layers is linear in all channels")
            return False
        program.drop_dead()
        return True


def rotation(size: int, seed: int) -> np.ndarray:
    """f64[size, size], orthogonal: random signs, then Hadamard matrices in blocks."""
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size)
    block = block_of(size)
    h = np.kron(np.eye(size // block), matrix(size) / np.sqrt(block))
    return signs[:, None] * h


def _inside_norm(program: Program, value: ir.Value, axis: int) -> ir.Value:
    """What a vector of channels is multiplied with, where a value is such a product."""
    op = value.owner
    if isinstance(op, ir.Block) or op.operation.name != "stablehlo.multiply":
        return value
    for number in (0, 1):
        vector = constant_of(program, op.operation.operands[1 - number])
        if vector is not None and vector.ndim and vector.shape[axis] > 1:
            return op.operation.operands[number]
    return value


def _closure(program: Program, value: ir.Value, axis: int) -> Closure | None:
    """The set that grows from a value, rotated as a whole or head by head."""
    width = shape_of(value)[axis]
    for size in _sizes(value, width):
        if block_of(size) == 1:
            continue
        found = Closure(program)
        try:
            found.grow(value, Turn(axis, width // size, size))
        except Blocked as reason:
            LOG.debug("rotate: not by %d: %s", size, reason)
            continue
        if len(found.weights) > 1:
            return found
    return None


def _sizes(value: ir.Value, width: int) -> list[int]:
    """The width, then sizes of axes that it was joined from."""
    sizes = [width]
    for _ in range(DEPTH):
        op = value.owner
        if isinstance(op, ir.Block) or not op.operation.operands:
            break
        value = op.operation.operands[0]
        sizes += [n for n in shape_of(value)[-1:] if n not in sizes and width % n == 0 and n > 1]
        if op.operation.name not in ("stablehlo.reshape", "stablehlo.transpose"):
            break
    return sizes


def _apply(program: Program, found: Closure, q: np.ndarray) -> None:
    for name, turn in found.weights.items():
        old = np.asarray(program.weights[name])
        scaled = np.asarray(old, np.float64) * found.scales.get(name, 1.0)
        program.weights[name] = np.ascontiguousarray(turn.apply(scaled, q).astype(old.dtype))
    for op, number, turn in found.constants:
        shape = shape_of(op.operands[number])
        constant = constant_of(program, op.operands[number])
        assert constant is not None
        line = np.broadcast_to(constant.reshape(-1), [shape[turn.axis]])
        new = turn.on(0).apply(line, q).astype(dtype_of(op.operands[number]))
        with at(op):
            weight = program.add_weight(f"{next(iter(found.weights))}:rotated", new)
            op.operands[number] = OPS.broadcast(weight, shape, [turn.axis])
    for op, number in found.norms:
        op.results[0].replace_all_uses_with(op.operands[number])
