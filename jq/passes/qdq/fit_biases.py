"""A channel whose bias is beyond the accumulator gets a larger scale, in which the bias fits.

    %y = convolution (dequantize %x), (dequantize %w);  %b = add %y, %bias
    // channel i: bias[i] / (scale of %x * scale of %w[i]) is 2^31 or more

Such a channel is next to dead, as BatchNorm leaves them behind: its weights are so small that their
products are lost beside the bias, and more so their rounding to the larger scale. Fires for weights
of one scale a channel that one product reads."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jq.formats import is_affine
from jq.formats.requantize import INT32
from jq.ir import Op, Program, evaluate, integers, ir, kind_of, maker, shape_of, users
from jq.ir.affine import forwards
from jq.ir.markers import DEQUANTIZE, Marker, match
from jq.ir.ops.base import Contraction
from jq.passes.base import Pass, PassContext
from jq.passes.qdq.place_weights import sums_of
from jq.planning.encodings import code_bits
from jq.planning.operands import contractions

Array = np.ndarray


class FitBiases(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        changed = False
        for op, rule in contractions(program):
            markers = [m for v in op.operands if (m := match(v, DEQUANTIZE))]
            weights = [i for i, m in enumerate(markers) if m.tensor in program.encodings]
            if len(op.operands) != 2 or len(markers) != 2 or len(weights) != 1:
                continue
            (index,) = weights
            if len(users(op.operands[index])) == 1:
                changed |= _fitted(program, op, rule, index, markers)
        return changed


def _fitted(
    program: Program, op: Op, rule: Contraction, index: int, markers: Sequence[Marker]
) -> bool:
    """Stores the codes of some channels with a larger scale, if they need one."""
    weight, other = markers[index], markers[1 - index]
    given = evaluate(program, other.parts["scale"])
    if given is None or given.size != 1:
        return False
    parts = {k: _Part.of(program, v) for k, v in weight.parts.items()}
    known = {k: part for k, part in parts.items() if part is not None}
    if not is_affine(weight.encoding.format) or known.keys() != parts.keys():
        return False
    codes, scale = (known[k].array(program) for k in ("codes", "scale"))
    axes = [a for a, n in enumerate(scale.shape) if n > 1]
    at = rule.result_axes(op, index).get(axes[0]) if len(axes) == 1 else None
    whole = codes.shape == weight.encoding.shape and scale.ndim == codes.ndim
    if at is None or not whole or codes.shape[axes[0]] != scale.size or "zero_point" in parts:
        return False
    chain = forwards(program, op.results[0])
    unit, bias = (_vector(v, at, scale.size) for v in (chain.c * given.item(), chain.b))
    if unit is None or bias is None:
        return False
    rest = tuple(a for a in range(codes.ndim) if a != axes[0])
    steps = 2 ** code_bits(other.encoding) - 1  # of an activation from its zero point
    sums = steps * np.abs(codes.astype(np.int64)).sum(rest).max(initial=0)
    room = int(INT32.max) - sums - 1  # fewer bits of a device: the bias is added behind
    if room <= 0 or (unit == 0).any():
        return False
    least = np.abs(bias / unit) / room
    wanted = np.where(least > scale.reshape(-1), least * (1 + 1e-6), scale.reshape(-1))
    larger = wanted.astype(scale.dtype).reshape(scale.shape)
    if (larger == scale).all():
        return False
    moved = np.rint(codes * (scale.astype(np.float64) / larger)).astype(codes.dtype)
    made = {"codes": moved, "scale": larger}
    if "sum" in parts:
        made["sum"] = sums_of(made, weight.encoding)
    for key, array in made.items():
        known[key].put(program, array)
    return True


@dataclass(frozen=True)
class _Part:
    """A part of a stored weight that one op alone reads, and the order in which it reads axes."""

    name: str
    order: tuple[int, ...]

    @staticmethod
    def of(program: Program, value: ir.Value) -> "_Part | None":
        order = np.arange(len(shape_of(value)))
        while len(users(value)) == 1:
            if (name := program.weight_name(value)) is not None:
                return _Part(name, tuple(order.tolist()))
            if (op := maker(value)) is None or kind_of(op) != "stablehlo.transpose":
                return None
            order = np.array(integers(op, "permutation"))[order]
            value = op.operation.operands[0]
        return None

    def array(self, program: Program) -> Array:
        return np.asarray(program.weights[self.name]).transpose(self.order)

    def put(self, program: Program, array: Array) -> None:
        back = np.argsort(self.order)
        program.weights[self.name] = np.ascontiguousarray(array.transpose(back))


def _vector(value: Array, axis: int, size: int) -> Array | None:
    """Numbers that depend on one axis of a result alone, one for each index of it."""
    alone = value.size == 1 or (axis < value.ndim and value.size == value.shape[axis])
    return np.broadcast_to(value.reshape(-1), size) if alone else None
