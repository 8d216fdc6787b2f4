"""A product with a stored weight that is scaled, or that has an update, becomes several.

    dot_general %x, (multiply %w, %c)      ->  multiply (dot_general %x, %w), %c    (and negate)
    dot_general %x, (add %w, (%a @ %b))    ->  add (dot_general %x, %w), (%x @ %a) @ %b
    dot_general %x, %y that sums nothing   ->  multiply %x, %y, both spread over the result

so that %w stays as it is stored: the sum would be a float weight, quantized anew. A factor of each
index that is summed over goes to %x. A low-rank update (LoRA) costs two small products. What is
transposed after such a sum or product is transposed before it. A sum of more than 16 terms stays.
As a matrix product, what sums nothing would have weights with a scale for every element.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.base.deep import Steps, deep
from jq.ir import NAME, OPS, Op, Program, dtype_of, ir, like, maker, shape_of
from jq.ir.affine import constant_of
from jq.ir.markers import DEQUANTIZE, match
from jq.ir.ops import Contraction, Movement, rule_of
from jq.ir.ops.dims import Dims, dot
from jq.ir.ops.integer import constant_or_weight
from jq.ir.ops.rules.dot_general import DotGeneral
from jq.passes.base import PassContext
from jq.passes.rewrite import Rewrite
from jq.planning.operands import is_stored, op_name

ADD, SUBTRACT = "stablehlo.add", "stablehlo.subtract"
MULTIPLY, DIVIDE = "stablehlo.multiply", "stablehlo.divide"
NEGATE = "stablehlo.negate"
TERMS = (ADD, SUBTRACT, MULTIPLY, DIVIDE, NEGATE)
TRANSPOSE = "stablehlo.transpose"
MOST = 16  # products of one; updates of a weight are few
LONGEST = 64  # ops between a product and a term


class DistributeProducts(Rewrite):
    def replacement(self, program: Program, op: Op, cx: PassContext) -> list[ir.Value] | None:
        if not isinstance(rule := rule_of(op), Contraction) or len(rule.roles(op)) != 2:
            return None
        dims = Dims.match(op)
        if dims and not dims.contract and not any(_has_stored(program, v) for v in op.operands):
            over = [dims.spread(side, *map(shape_of, op.operands)) for side in range(2)]
            x, y = (OPS.convert(v, dtype_of(op.results[0])) for v in op.operands)
            return [OPS.mul(over[0](x), over[1](y))]
        for role in rule.roles(op):
            value = op.operands[role.index]
            if _kind(_untransposed(value)) in TERMS and _has_stored(program, value):
                count, length = _extent(program, value)
                if count <= MOST and length <= LONGEST:
                    return [_Product(program, op, rule, role.index).of(value)]
        return None


def _kind(value: ir.Value) -> str:
    return str(op.operation.name) if (op := maker(value)) else ""


def _untransposed(value: ir.Value) -> ir.Value:
    while _kind(value) == TRANSPOSE:
        value = value.owner.operands[0]
    return value


@deep
def _has_stored(program: Program, value: ir.Value) -> Steps[bool]:
    """True if a stored weight is among the terms."""
    if marker := match(value, DEQUANTIZE):
        return is_stored(program, marker)
    if (op := maker(value)) is None:
        return False
    operands = list(op.operands)
    if _kind(value) in TERMS:
        for operand in operands:
            if (yield program, operand):
                return True
        return False
    return isinstance(rule_of(op), Movement) and (yield program, operands[0])


@deep
def _extent(program: Program, value: ir.Value) -> Steps[tuple[int, int]]:
    """Number of products that one with such an operand becomes, one for each way to a term, and the
    number of ops on the longest way."""
    if _kind(value) not in (*TERMS, TRANSPOSE):
        return 1, 0
    count, length = 0, 0
    for operand in value.owner.operands:
        ways, longest = yield program, operand
        count = count + ways if _kind(value) in (ADD, SUBTRACT) else max(count, ways)
        length = max(length, longest)
    return count, length + 1


def _transposed_before(value: ir.Value) -> ir.Value:
    """A transpose of a sum or product, as that of transposes."""
    op, inner = value.owner, value.owner.operands[0]
    if _kind(inner) == TRANSPOSE:
        inner = _transposed_before(inner)
    shape, terms = shape_of(value), inner.owner
    operands = [like(op, [v], shape, dtype_of(v)) for v in terms.operands]
    return like(terms, operands, shape, dtype_of(value))


@dataclass
class _Product:
    """One contraction, of other operands in the place of `index`."""

    program: Program
    op: Op
    rule: Contraction
    index: int
    count: int = 0

    def of(self, value: ir.Value) -> ir.Value:
        if _kind(value) == TRANSPOSE and _kind(_untransposed(value)) in TERMS:
            value = _transposed_before(value)
        operands = [] if not _kind(value) else list(value.owner.operands)
        if _kind(value) in (ADD, SUBTRACT):
            first, second = map(self._is_zero, operands)
            if second or (first and _kind(value) == ADD):
                return self.of(operands[not second])
            return (OPS.add if _kind(value) == ADD else OPS.sub)(*map(self.of, operands))
        if _kind(value) == NEGATE:
            found = self.of(operands[0])
            return like(value.owner, [found], shape_of(found), dtype_of(found))
        if _kind(value) == MULTIPLY:
            for inner, other in (operands, operands[::-1]):
                factor = constant_of(self.program, other)
                if factor is not None and (found := self._scaled(inner, factor)) is not None:
                    return found
        if _kind(value) == DIVIDE:
            by = constant_of(self.program, operands[1])
            if by is not None and by.all() and (found := self._scaled(operands[0], 1 / by)):
                return found
        if (inner := maker(value)) and Dims.match(inner) and (found := self._low_rank(inner)):
            return found
        operands, result = list(self.op.operands), self.op.results[0]
        operands[self.index] = value
        return like(self.op, operands, shape_of(result), dtype_of(result), **self._name())

    def _name(self) -> dict[str, ir.Attribute]:
        """The op's own name for the first, then others."""
        self.count += 1
        own = op_name(self.op)
        return {NAME: ir.StringAttr.get(own if self.count == 1 else f"{own}#update{self.count}")}

    def _is_zero(self, value: ir.Value) -> bool:
        """True of constants and weights that are zeros, and of their products with finite ones, as
        an update that is not trained yet."""
        parts = inner.operands if (inner := maker(value)) and Dims.match(inner) else [value]
        plain = [constant_of(self.program, v) for v in parts if not _has_stored(self.program, v)]
        known = [array for array in plain if array is not None and np.isfinite(array).all()]
        return len(known) == len(plain) and not all(array.any() for array in known)

    def _scaled(self, value: ir.Value, factor: np.ndarray) -> ir.Value | None:
        """The factor after the product, where each element of the result has one of its own."""
        axes = [a for a, n in enumerate(factor.shape) if n > 1]
        target = self.rule.result_axes(self.op, self.index)
        if set(axes) <= set(target):
            result = self.of(value)
            return OPS.mul(result, self._spread(factor, axes, target, result))
        if isinstance(self.rule, DotGeneral):
            pairs = {p[self.index]: p[1 - self.index] for p in Dims.of(self.op).contract}
            if set(axes) <= set(pairs):
                other = 1 - self.index
                x = self.op.operands[other]
                self.op.operands[other] = OPS.mul(x, self._spread(factor, axes, pairs, x))
                found = self.of(value)
                self.op.operands[other] = x
                return found
        return None

    def _spread(self, factor: np.ndarray, axes: list[int], to: dict[int, int], x: Any) -> ir.Value:
        """The factor of some axes over the shape of `x`, whose axes are given for each of them."""
        order = sorted(axes, key=to.__getitem__)
        vector = factor.squeeze().transpose([axes.index(a) for a in order]).astype(np.float32)
        value = constant_or_weight(self.program, vector, f"{op_name(self.op)}:factor")
        return OPS.broadcast(OPS.convert(value, dtype_of(x)), shape_of(x), [to[a] for a in order])

    def _low_rank(self, inner: Any) -> ir.Value | None:
        """`x @ (a @ b)` as `(x @ a) @ b`, where `a` has all the axes that are summed over."""
        if self.index != 1 or not isinstance(self.rule, DotGeneral):
            return None
        outer, dims = Dims.of(self.op), Dims.of(inner)
        a, b = inner.operands
        free = [dims.free(s, len(shape_of(v))) for s, v in enumerate((a, b))]
        summed = [w for _, w in outer.contract]
        if outer.batch or dims.batch or sorted(summed) != list(range(len(free[0]))):
            return None
        x, dtype = self.op.operands[0], dtype_of(self.op.results[0])
        first = Dims((), tuple((i, free[0][w]) for i, w in outer.contract))
        lead = len(first.free(0, len(shape_of(x))))
        rest = sorted(i for i, _ in dims.contract)  # what is left of `a`, in order
        second = Dims((), tuple((lead + rest.index(i), j) for i, j in dims.contract))
        middle = self._named(dot(self.op, x, a, first, dtype))
        return self._named(dot(self.op, middle, b, second, dtype))

    def _named(self, value: ir.Value) -> ir.Value:
        if self.count == 0:
            self.count = 1  # the op's own name is that of the stored weight
        value.owner.attributes[NAME] = self._name()[NAME]
        return value
