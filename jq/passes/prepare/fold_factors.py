"""Factors that go: ones, and those that a weight takes."""

from functools import partial

import numpy as np

from jq.ir import NAME, OPS, Op, Program, at, dtype_of, evaluate, ir, shape_of, string_attr
from jq.ir.affine import Affine, forwards
from jq.ir.markers import DEQUANTIZE, match
from jq.ir.ops import Contraction, Dims, rule_of
from jq.ir.ops.integer import number_or_weight
from jq.passes.base import Pass, PassContext
from jq.passes.rewrite import Rewrite


class FoldOnes(Rewrite):
    """A product with ones that sums over nothing is its other operand.

        dot_general %x : [B, L, H, D], dense<1.0> : [H], batching_dims = [2] x [0]  ->  [H, B, L, D]
        ->
        transpose %x, dims = [2, 0, 1, 3]

    Models write masks of heads so (`einsum("blhd,h->blhd", x, mask)`), and most have none."""

    def replacement(self, program: Program, op: Op, cx: PassContext) -> list[ir.Value] | None:
        if not (dims := Dims.match(op)) or dims.contract:
            return None
        arrays = [evaluate(program, v) for v in op.operands]
        ones = [i for i, a in enumerate(arrays) if a is not None and (a == a.dtype.type(1)).all()]
        return [_other(op, ones[-1])] if ones else None


def _other(op: Op, ones: int) -> ir.Value:
    """The operand that is not ones, its axes where the product has them."""
    operands, result = op.operands, op.results[0]
    axes = Dims.of(op).result_axes(1 - ones, *(shape_of(v) for v in operands))
    order = sorted(axes, key=axes.__getitem__)
    x = OPS.transpose(operands[1 - ones], order)
    x = OPS.broadcast(x, shape_of(result), [axes[a] for a in order])
    return OPS.convert(x, dtype_of(result))


class FoldScales(Pass):
    """A factor of every output channel goes into the weight, what is added becomes one constant.

        %y = convolution %x, %w
        %n = add (multiply (subtract %y, %mean), %factor), %beta
        ->
        %y = convolution %x, %w'            // %w * factor, the same name
        %n = add %y, %bias                  // one new weight: beta - mean * factor

    This is how batch norms of inference disappear. Fires where each step is the only reader of the
    one before and the weight has no other reader; a sum of more than one addend becomes one in any
    case. Not where the factor depends on more than the axes that the weight brings."""

    def run(self, program: Program, cx: PassContext) -> bool:
        changed = False
        for op in list(program.walk()):
            rule = rule_of(op)
            if isinstance(rule, Contraction) and op.operation.block == program.body:
                changed |= _fold(program, op, rule)
        return program.tidied(changed)


def _fold(program: Program, op: Op, rule: Contraction) -> bool:
    result = op.results[0]
    chain = forwards(program, result)
    added = [op.operation.name for op in chain.ops] == ["stablehlo.add"]  # and nothing else
    if not chain.ops or added or dtype_of(result) != np.float32:
        return False
    stored = any(match(op.operands[role.index], DEQUANTIZE) for role in rule.roles(op))
    if stored and (chain.c == 1).all() and (chain.b != chain.b.astype(np.float32)).any():
        return False  # integers of more bits than one float32 number has
    if (chain.c != 1).any() and not _scale_weight(program, op, rule, chain):
        return False
    with at(chain.ops[-1]):
        value = _plus(program, op, result, chain.b.astype(np.float32))
    chain.result.replace_all_uses_with(value)
    return True


def _scale_weight(program: Program, op: Op, rule: Contraction, chain: Affine) -> bool:
    """Multiplies the weight by `chain.c` where that is the same; False where it is not."""
    for role in rule.roles(op):
        value = op.operands[role.index]
        name = program.weight_name(value)
        if name is None or len(list(value.uses)) != 1:
            continue
        axes = rule.result_axes(op, role.index)
        old = program.weights[name]
        fits = all(n == 1 or axis in axes.values() for axis, n in enumerate(chain.c.shape))
        if old.dtype != np.float32 or not fits:
            continue
        factor = chain.c
        if chain.c.ndim:
            order = sorted(axes, key=lambda a: axes[a])  # the result may order them otherwise
            kept = chain.c.reshape([chain.c.shape[axes[a]] for a in order])
            sizes = [chain.c.shape[axes[a]] if a in axes else 1 for a in range(old.ndim)]
            factor = kept.transpose(np.argsort(order)).reshape(sizes)
        scaled = np.empty(old.shape, np.float32)
        np.multiply(old, factor, out=scaled, dtype=np.float64, casting="same_kind")
        if not np.isfinite(scaled).all():
            continue
        program.weights[name] = scaled
        return True
    return False


def _plus(program: Program, op: Op, value: ir.Value, bias: np.ndarray) -> ir.Value:
    if not bias.any():
        return value
    name = f"{string_attr(op, NAME) or 'contraction'}:bias"
    made = partial(number_or_weight, program, name)
    return OPS.add(value, OPS.spread(bias, shape_of(value), made))
