"""Marks what a sum of convolutions adds: it is stored as codes, as the convolutions' inputs are.

    %y = convolution %x, %w              %e = composite "jq.edge" %x
    %s = add %y, %x             ->       %y = convolution %e, %w
                                         %s = add %y, %e

A feature map in float32 takes four times the memory traffic of its codes, which are there anyway
where a convolution reads them. Only sums whose terms come from convolutions through biases, clamps,
pooling and other such sums; the residual sums of a transformer have outliers that 8 bits do not
hold. With static ranges and `convolution_sums=codes`; `placement=early` has edges at all."""

from dataclasses import dataclass, field

from jq.ir import NAME, Op, Program, at, ir, kind_of, only_user, string_attr
from jq.ir.affine import step
from jq.ir.ops import Contraction, elements
from jq.ir.ops.lookup import makes_feature_map, rule_of
from jq.ir.quantized.edges import edge
from jq.passes.base import Pass, PassContext
from jq.passes.integer._ops import clamp_of, is_float


class MarkResiduals(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        maps = _Maps(program)
        sums = [(op, value) for op in program.walk() if (value := maps.visit(op)) is not None]
        marked: dict[ir.Value, ir.Value] = {}
        for op, value in sums:
            if value not in marked:
                made = value.owner
                name = string_attr(made, NAME) or f"{kind_of(made)} {len(marked)}"
                with at(made, after=True):
                    marked[value] = edge(program, value, f"{name} residual")
            for use in list(value.uses):
                if use.owner == op or isinstance(rule_of(use.owner), Contraction):
                    use.owner.operands[use.operand_number] = marked[value]
        return bool(sums)


@dataclass
class _Maps:
    """Feature maps among the values, and the ways of convolutions to them.

    Attributes:
        known: maps, and when each was computed.
        ends: those that are a convolution and the steps and clamps that nothing else reads."""

    program: Program
    known: dict[ir.Value, int] = field(default_factory=dict)
    ends: set[ir.Value] = field(default_factory=set)

    def visit(self, op: Op) -> ir.Value | None:
        """Learns of the op's result; the term that is to be stored when the op is a sum."""
        results = list(op.results)
        if len(results) != 1 or not is_float(results[0]):
            return None
        (result,), operands = results, list(op.operands)
        if makes_feature_map(op):
            self._learn(result)
            self.ends.add(result)
            return None
        for x in operands:
            bounds = clamp_of(self.program, op, x) if x in self.known else None
            if bounds or (x in self.known and step(self.program, op, x) is not None):
                self._learn(result)
                if x in self.ends and only_user(x) is not None:
                    self.ends.add(result)
                return None
        if any(operands[i] in self.known for i in elements(self.program, op)):
            self._learn(result)
        return self._sum(op, result) if kind_of(op) == "stablehlo.add" else None

    def _sum(self, op: Op, result: ir.Value) -> ir.Value | None:
        a, b = op.operands
        if a == b or a not in self.known or b not in self.known:
            return None
        self._learn(result)
        single = [v for v in (a, b) if v in self.ends and only_user(v) is not None]
        if not single:
            return None
        return b if max(single, key=self.known.__getitem__) == a else a

    def _learn(self, value: ir.Value) -> None:
        self.known[value] = len(self.known)
