"""Values between layers are rotated by Hadamard matrices that end up in weights, at no cost.

    y = f(x W1) W2   ->   y = f(x W1 Q) Q^T W2

for everything between that is linear in the channels, or an RMS norm, whose vector W2 takes in
first: the residual stream of a network of RMS norms as a whole, the values of attention head by
head, two products in a row (Ashkboos et al., "QuaRot: Outlier-Free 4-Bit Inference in Rotated
LLMs", 2024, with the graph instead of a list of layers; random signs as in Liu et al., "SpinQuant:
LLM Quantization with Learned Rotations", 2024). A rotated channel is a sum of all of them, so none
is an outlier. No data are needed. The float program computes the same within rounding.

What must be rotated together is found by dataflow, see `_rotations`. Where activations stay float,
only what makes the rounding of weights better is rotated."""

from collections.abc import Mapping

import numpy as np

from jq.formats import NUMPY, Encoding, get_format
from jq.ir import OPS, Program, at, dtype_of, ir, maker, shape_of
from jq.ir.affine import constant_of
from jq.passes.base import LOG, PassContext, Recovery
from jq.passes.recovery._hadamard import block_of, matrix
from jq.passes.recovery._inputs import planned_weights
from jq.passes.recovery._product_inputs import find_inputs
from jq.passes.recovery._rotated_set import Closure
from jq.passes.recovery._rotations import Blocked, Rotation
from jq.target.settings import FLOAT

DEPTH = 4  # movements in front of a product that are looked through for the size of heads


class Rotate(Recovery):
    """Option `seed` of the random signs."""

    needs_data = False
    seed: int = 0

    def wanted(self, program: Program, cx: PassContext) -> bool:
        return cx.settings.weights.format != FLOAT

    def recover(self, program: Program, cx: PassContext) -> bool:
        count, done = 0, set[ir.Value]()
        weights_alone = cx.settings.activations.format == FLOAT
        encodings = planned_weights(program, cx) if weights_alone else {}
        for i in find_inputs(program):
            value = _inside_norm(program, i.value, i.axis)
            if value in done or (closure := _closure(program, value, i.axis)) is None:
                continue
            done |= closure.values.keys()
            q = rotation(closure.size, self.seed + count)
            if weights_alone and not _better(program, closure, q, encodings):
                LOG.info("rotate: not %s: its rounding would lose more", ", ".join(closure.weights))
                continue
            LOG.info("rotate: %s by %d", ", ".join(closure.weights), closure.size)
            _apply(program, closure, q)
            count += 1
        if not count:
            reason = "nothing between two layers is linear in all channels, or gains by it"
            self.skip(program, reason)
            return False
        program.drop_dead()
        return True


def rotation(size: int, seed: int) -> np.ndarray:
    """f64[size, size], orthogonal: random signs, then Hadamard matrices in blocks."""
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size)
    block = block_of(size)
    return signs[:, None] * np.kron(np.eye(size // block), matrix(size) / np.sqrt(block))


def _better(
    program: Program, found: Closure, q: np.ndarray, encodings: Mapping[str, Encoding]
) -> bool:
    """True if the weights, rotated, lose less by rounding, relative to their size."""
    before = after = 0.0
    for name in found.weights.keys() & encodings.keys():
        weight = np.asarray(program.weights[name], np.float32)
        before += _lost(weight, encodings[name])
        after += _lost(found.rotated(name, q).astype(np.float32), encodings[name])
    return after < before


def _lost(weight: np.ndarray, enc: Encoding) -> float:
    fmt = get_format(enc.format)
    stored = np.asarray(fmt.decode(NUMPY, fmt.encode(weight, enc), enc))
    return float(np.square(stored - weight).sum() / max(np.square(weight).sum(), 1e-30))


def _inside_norm(program: Program, value: ir.Value, axis: int) -> ir.Value:
    """The other factor, where a value is a product with a vector of channels; else the value."""
    op = maker(value, "stablehlo.multiply")
    if op is None:
        return value
    for number in (0, 1):
        vector = constant_of(program, op.operands[1 - number])
        if vector is not None and vector.ndim and vector.shape[axis] > 1:
            return op.operands[number]
    return value


def _closure(program: Program, value: ir.Value, axis: int) -> Closure | None:
    """The set that grows from a value, rotated as a whole or head by head."""
    width = shape_of(value)[axis]
    for size in _sizes(value, width):
        if block_of(size) == 1:
            continue
        closure = Closure(program)
        try:
            closure.grow(value, Rotation(axis, width // size, size))
            if len(closure.weights) > 1:
                return closure
        except Blocked as reason:
            LOG.debug("rotate: not by %d: %s", size, reason)
    return None


def _sizes(value: ir.Value, width: int) -> list[int]:
    """The width, then sizes of axes that it was joined from."""
    sizes = [width]
    for _ in range(DEPTH):
        op = maker(value)
        if op is None or not op.operands:
            break
        value = op.operands[0]
        sizes += [n for n in shape_of(value)[-1:] if n not in sizes and width % n == 0 and n > 1]
        if op.operation.name not in ("stablehlo.reshape", "stablehlo.transpose"):
            break
    return sizes


def _apply(program: Program, found: Closure, q: np.ndarray) -> None:
    for name in found.weights:
        dtype = program.weights[name].dtype
        program.weights[name] = np.ascontiguousarray(found.rotated(name, q).astype(dtype))
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
