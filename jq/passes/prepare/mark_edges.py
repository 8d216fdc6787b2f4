"""Marks the tensors between regions: what a device without floats keeps in low bits.

    %y = convolution %x, %w          %e = composite "jq.edge" %x
    %a = add %y, %bias        ->     %y = convolution %e, %w
    %r = maximum %a, 0               %a = add %y, %bias
    %z = tanh %r                     %r = maximum %a, 0
                                     %z = tanh (composite "jq.edge" %r)

A region is what becomes one chain of integer ops: a contraction with all that is added and
multiplied by constants and the clamp after it; a sum of two tensors; a function of one
tensor (a table); softmax; a normalization. Ops that only move or choose elements have no edge
of their own: `hoist-quantize` moves the one after them up. Calibration observes every edge. What
is computed from no float input of the program stays float: it lies in front of the first quantize.

Only for `placement=early`. An edge is *wide* where what reads it is no contraction and no table:
sums, normalizations and softmax may take more bits (`activations.residual`)."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from jq.formats import is_affine
from jq.ir import Op, Program, dtype_of, ir, kind_of, last_of, only_user
from jq.ir.affine import is_constant, step
from jq.ir.decisions import declined, declined_by_shape, rounded_as
from jq.ir.markers import DEQUANTIZE, QUANTIZE, match
from jq.ir.ops import Contraction, elements, reduction, rule_of
from jq.ir.quantized.edges import Edges
from jq.ir.slicing import Cut, functions
from jq.ir.values import CONTROL, LOOP, reads
from jq.passes.base import Pass, PassContext
from jq.passes.integer._ops import PRODUCTS_AND_SUMS, as_softmax, clamp_of, is_float, is_table
from jq.passes.prepare import _regions
from jq.passes.prepare._choices import with_choices, with_own_roundings
from jq.passes.prepare._regions import function_of, is_masked, on_codes, terms_inside
from jq.planning.operands import find_weight

# open: affine steps and clamps may follow. clamped: clamps may. closed: nothing may; a quantize
# comes next. float: an op without an integer form came before.
COMPARE = "stablehlo.compare"  # a table may begin with it: where(x > 0, x, f(x))
State = Literal["open", "clamped", "closed", "float"]


class MarkEdges(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        with_choices(program)
        with_own_roundings(program)
        marking = _Marking(program, cx.target.device.integer_only)
        marking.run()
        return bool(marking.edges.names)


@dataclass
class _Marking:
    program: Program
    by_channel: bool  # numbers of a sum of products differ by channel alone
    state: dict[Any, State] = field(default_factory=dict)
    claimed: set[Any] = field(default_factory=set)  # ops inside a recognised function
    channels: dict[Any, set[int]] = field(default_factory=dict)  # axes of them in a region

    def __post_init__(self) -> None:
        self.edges = Edges(self.program)

    def run(self) -> None:
        body = self.program.body
        inputs = list(body.arguments)[: len(self.program.inputs)]
        self.closed(inputs)
        for x in inputs:  # of another float type: as float32, see `widen-floats`
            if dtype_of(x).kind in "fV":
                self.closed(v for use in x.uses for v in use.owner.results)
        self.block(body)

    def block(self, block: ir.Block) -> None:
        for op in list(block.operations):
            if op.operation in self.claimed or op.operation.name == "stablehlo.return":
                continue
            if op.operation.name == "func.return":
                self.need_all(op)
            elif any(v in self.state for v in reads(op)):
                self.visit(op)
            elif isinstance(rule_of(op), Contraction) and len(op.results) == 1:
                self.contraction(op)

    def visit(self, op: Op) -> None:
        """Finds the state of the op's results."""
        known = self.stored(op) or self.nested(op) or (kind_of(op) == COMPARE and self.table(op))
        if not known and len(op.results) == 1 and is_float(op.results[0]):
            known = not declined_by_shape(op) and self.numbers(op)
        if not known:
            self.need_all(op)
            floats = any(self.state.get(v) == "float" for v in op.operands)
            self.state |= {v: "float" for v in op.results if floats or is_float(v)}

    # Each returns whether the op is of its kind; then the result has a state.

    def numbers(self, op: Op) -> bool:
        """An op of floats, its operands codes or, for functions and products, anything."""
        if self.squared(op) or self.function(op) or self.contraction(op):
            return True
        if any(self.state.get(v) == "float" for v in op.operands):
            return False
        forms = (self.selection, self.continued, self.table, self.affine, self.binary, self.reduced)
        return self.table(op) if declined(op) else any(form(op) for form in forms)

    def squared(self, op: Op) -> bool:
        """The square of a difference, which has no codes of the difference."""
        one = rounded_as(op.results[0]) == "SquaredDifference"
        return one and self.state.get(op.operands[0]) == "open" and self.become(op, "open")

    def stored(self, op: Op) -> bool:
        """The model's own quantization ends a region with its own codes, which its own
        dequantization begins another with."""
        marker = match(op, QUANTIZE, DEQUANTIZE)
        if marker is None or not is_affine(marker.encoding.format) or any(marker.encoding.block):
            return False
        if any(self.state.get(v) == "float" for v in op.operands):
            return False
        return self.become(op, "closed")

    def nested(self, op: Op) -> bool:
        """A loop or a branch: what it hands on passes through codes on every way."""
        if op.operation.name not in CONTROL:
            return False
        self.hand_on(op)
        if op.operation.name == LOOP:
            self.closed(op.regions[1].blocks[0].arguments)
        for region in list(op.regions)[int(op.operation.name == LOOP) :]:
            self.block(region.blocks[0])
            self.hand_on(last_of(region.blocks[0]))
        self.closed(op.results)
        return True

    def become(self, op: Op, state: State, channels: set[int] | None = None) -> bool:
        """Gives the result of an op its state; True, for the op belongs to a region."""
        self.state[op.results[0]] = state
        if channels is not None and self.by_channel:
            self.channels[op.results[0]] = channels
        return True

    def closed(self, values: Iterable[ir.Value]) -> None:
        self.state |= {v: "closed" for v in values if is_float(v)}

    def hand_on(self, op: Op) -> None:
        for i, v in enumerate(op.operands):
            if is_float(v):
                self.edges.need(op, i, wide=True, carried=True)

    def function(self, op: Op) -> bool:
        """Softmax or a normalization of an operand begins here."""
        for x in op.operands:
            if self.state.get(x) in (None, "float"):
                continue
            if whole := function_of(self.program, op, x):
                terms = terms_inside(self.program, x, whole) if as_softmax(whole) else None
                for reader, i in terms or ():
                    self.edges.need(reader, i, wide=True)
                if terms is None:
                    self.need_source(whole, wide=True)
                self.claim(whole)
                return True
        return False

    def claim(self, cut: Cut) -> None:
        self.claimed |= {o.operation for o in cut.ops}
        self.closed([cut.result])

    def contraction(self, op: Op) -> bool:
        rule, program = rule_of(op), self.program
        if not isinstance(rule, Contraction) or len(roles := rule.roles(op)) < 2:
            return False
        operands = {r: op.operands[r.index] for r in roles}
        known = [r for r, v in operands.items() if is_constant(program, v)]
        stored = [r for r, v in operands.items() if find_weight(program, v, r) is not None]
        free = [r.index for r in roles if r not in known + stored]
        if not free or not all(map(is_float, operands.values())):
            return False
        for i in free:
            self.edges.need(op, i)
        return self.become(op, "open", _regions.channels_of(op, rule, free))

    def selection(self, op: Op) -> bool:
        """An op that quantization goes through: the edge is put after it."""
        places = elements(self.program, op)
        if not any(op.operands[i] in self.state for i in places):
            return False
        return self.become(op, "closed")

    def continued(self, op: Op) -> bool:
        """A step of the region that the operand belongs to."""
        for x in op.operands:
            state = self.state.get(x)
            if only_user(x) is None or state not in ("open", "clamped"):
                continue
            found = step(self.program, op, x) if state == "open" else None
            channels = self.channels.get(x)
            if found and (channels is None or _regions.differ(found) <= channels):
                return self.become(op, "open", channels)
            if clamp_of(self.program, op, x) is not None:
                return self.become(op, "clamped")
        return False

    def table(self, op: Op) -> bool:
        sources = [v for v in op.operands if v in self.state]
        if len(set(sources)) != 1:
            return False
        x = sources[0]
        found = [c for c in on_codes(functions(self.program, x, op)) if is_table(c)]
        if not found:
            return False
        self.need_source(found[-1])
        self.claim(found[-1])
        return True

    def affine(self, op: Op) -> bool:
        for i, x in enumerate(op.operands):
            if x in self.state and step(self.program, op, x) is not None:
                self.edges.need(op, i, wide=True)
                return self.become(op, "open")
        return False

    def binary(self, op: Op) -> bool:
        divides = kind_of(op) == "stablehlo.divide"
        if kind_of(op) not in PRODUCTS_AND_SUMS and not divides:
            return False
        if any(is_constant(self.program, v) for v in op.operands):
            return False
        if not is_masked(self.program, op):  # else softmax takes its terms
            self.need_all(op, prefix=True)
        return self.become(op, "closed" if divides else "open")

    def reduced(self, op: Op) -> bool:
        if reduction(self.program, op) != "add":
            return False
        self.edges.need(op, 0, wide=True)
        return self.become(op, "open", _regions.channels_left(op))

    # Edges

    def need_all(self, op: Op, *, prefix: bool = False) -> None:
        for i, v in enumerate(op.operands):
            wanted = v in self.state or prefix
            if wanted and is_float(v) and self.state.get(v) != "float":
                self.edges.need(op, i, wide=True)

    def need_source(self, cut: Cut, *, wide: bool = False) -> None:
        """The ops of a recognised function read an edge in the place of its source."""
        for op in cut.ops:
            for i, v in enumerate(op.operands):
                if v == cut.source:
                    self.edges.need(op, i, wide=wide)
