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
sums, normalizations and softmax may take more bits (`activations.residual`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from jq.formats.affine import is_affine
from jq.ir import Op, Program, dtype_of, ir, kind_of, last_of, only_user, shape_of, walk
from jq.ir.affine import is_constant, step
from jq.ir.decisions import declined, declined_by_shape
from jq.ir.markers import DEQUANTIZE, QUANTIZE, match
from jq.ir.ops import Contraction, rule_of
from jq.ir.ops.selection import elements, reduction, splat_of
from jq.ir.quantized.edges import Edges
from jq.ir.slicing import Cut, functions
from jq.ir.values import BRANCHES, LOOP
from jq.passes.base import Pass, PassContext
from jq.passes.functions import as_normalization
from jq.passes.integer._functions import terms_of
from jq.passes.integer._ops import PRODUCTS_AND_SUMS, as_softmax, clamp_of, is_float, is_table
from jq.passes.prepare._choices import with_choices
from jq.planning.operands import find_weight

# open: affine steps and clamps may follow. clamped: clamps may. closed: nothing may; a quantize
# comes next. float: an op without an integer form came before.
COMPARE = "stablehlo.compare"  # a table may begin with it: where(x > 0, x, f(x))
State = Literal["open", "clamped", "closed", "float"]


class MarkEdges(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        with_choices(program)
        marking = _Marking(program)
        marking.run()
        return bool(marking.edges.names)


@dataclass
class _Marking:
    program: Program
    state: dict[Any, State] = field(default_factory=dict)
    claimed: set[Any] = field(default_factory=set)  # ops inside a recognised function

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
                self.need_all(op, wide=True)
            elif any(v in self.state for v in op.operands) or _reads(op, self.state):
                self.visit(op)
            elif len(op.results) == 1 and (state := self.contraction(op)):
                self.state[op.results[0]] = state

    def visit(self, op: Op) -> None:
        """Finds the state of the op's results."""
        if self.stored(op) or self.nested(op) or (kind_of(op) == COMPARE and self.table(op)):
            return
        plain = len(op.results) == 1 and is_float(op.results[0]) and not declined_by_shape(op)
        state = self.result(op) if plain else None
        if op.operation in self.claimed:  # a function begins here: its result has a state
            return
        if state is None:
            self.need_all(op, wide=True)
        self.state |= dict.fromkeys(op.results, state or "float")

    def result(self, op: Op) -> State | None:
        """The state of its result; None for an op without an integer form."""
        if found := self.function(op) or self.contraction(op):
            return found
        if any(self.state.get(v) == "float" for v in op.operands):
            return None
        if declined(op):
            return self.table(op)
        forms = (self.selection, self.continued, self.table, self.affine, self.binary, self.reduced)
        return next(filter(None, (form(op) for form in forms)), None)

    def stored(self, op: Op) -> bool:
        """The model's own quantization ends a region with its own codes, which its own
        dequantization begins another with."""
        marker = match(op, QUANTIZE, DEQUANTIZE)
        if marker is None or not is_affine(marker.encoding.format) or any(marker.encoding.block):
            return False
        if any(self.state.get(v) == "float" for v in op.operands):
            return False
        self.state[op.results[0]] = "closed"
        return True

    def nested(self, op: Op) -> bool:
        """A loop or a branch: what it hands on passes through codes on every way."""
        if op.operation.name not in (LOOP, *BRANCHES):
            return False
        self.hand_on(op)
        if op.operation.name == LOOP:
            self.closed(op.regions[1].blocks[0].arguments)
        for region in list(op.regions)[int(op.operation.name == LOOP) :]:
            self.block(region.blocks[0])
            self.hand_on(last_of(region.blocks[0]))
        self.closed(op.results)
        return True

    def closed(self, values: Iterable[ir.Value]) -> None:
        self.state |= {v: "closed" for v in values if is_float(v)}

    def hand_on(self, op: Op) -> None:
        for i, v in enumerate(op.operands):
            if is_float(v):
                self.edges.need(op, i, wide=True, carried=True)

    # Each gives the state of the result of an op of its kind; None for other ops.

    def function(self, op: Op) -> State | None:
        """Softmax or a normalization of an operand begins here."""
        for x in op.operands:
            if self.state.get(x) in (None, "float") or not _summed(op, x):
                continue
            every = list(_on_codes(functions(self.program, x, op)))
            for cut in every:
                softmax = as_softmax(cut)
                if softmax is None and not _is_normalization(cut):
                    continue
                # A normalization has the factor and the offset of the columns that follow.
                larger = [] if softmax else [c for c in every if len(c.ops) > len(cut.ops)]
                whole = next((c for c in reversed(larger) if _is_normalization(c)), cut)
                if softmax is None or not self.need_terms(x, whole):
                    self.need_source(whole, wide=True)
                return self.claim(whole)
        return None

    def claim(self, cut: Cut) -> State:
        self.claimed |= {o.operation for o in cut.ops}
        self.state[cut.result] = "closed"
        return "closed"

    def need_terms(self, x: ir.Value, softmax: Cut) -> bool:
        """Softmax takes the terms of a sum and the choices of a select as they are."""
        terms = terms_of(self.program, x)
        inside = {op.operation for op in softmax.ops}
        if terms == [x] or any(use.owner.operation not in inside for use in x.uses):
            return False
        todo = [x]
        for value in todo:  # which grows
            for i, v in enumerate(value.owner.operands):
                if v in terms and is_float(v):
                    self.edges.need(value.owner, i, wide=True)
                elif is_float(v) and splat_of(self.program, v) is None:
                    todo.append(v)
        return True

    def contraction(self, op: Op) -> State | None:
        rule = rule_of(op)
        roles = rule.roles(op) if isinstance(rule, Contraction) else ()
        sides = {r: op.operands[r.index] for r in roles}
        free = [
            r.index
            for r, v in sides.items()
            if find_weight(self.program, v, r) is None and not is_constant(self.program, v)
        ]
        if len(roles) < 2 or not free or not all(map(is_float, sides.values())):
            return None
        for i in free:
            self.edges.need(op, i)
        return "open"

    def selection(self, op: Op) -> State | None:
        """An op that quantization goes through: the edge is put after it."""
        places = elements(self.program, op)
        return "closed" if any(op.operands[i] in self.state for i in places) else None

    def continued(self, op: Op) -> State | None:
        """A step of the region that the operand belongs to."""
        for x in op.operands:
            state = self.state.get(x)
            if only_user(x) is None or state not in ("open", "clamped"):
                continue
            if state == "open" and step(self.program, op, x) is not None:
                return "open"
            if clamp_of(self.program, op, x) is not None:
                return "clamped"
        return None

    def table(self, op: Op) -> State | None:
        sources = {v for v in op.operands if v in self.state}
        if len(sources) != 1:
            return None
        found = functions(self.program, sources.pop(), op)
        tables = [cut for cut in _on_codes(found) if is_table(cut)]
        if not tables:
            return None
        self.need_source(tables[-1])
        return self.claim(tables[-1])

    def affine(self, op: Op) -> State | None:
        for i, x in enumerate(op.operands):
            if x in self.state and step(self.program, op, x) is not None:
                self.edges.need(op, i, wide=True)
                return "open"
        return None

    def binary(self, op: Op) -> State | None:
        divides = kind_of(op) == "stablehlo.divide"
        if kind_of(op) not in PRODUCTS_AND_SUMS and not divides:
            return None
        if any(is_constant(self.program, v) for v in op.operands):
            return None
        if not self.masked(op):  # else softmax takes its terms
            self.need_all(op, prefix=True, wide=True)
        return "closed" if divides else "open"

    def masked(self, op: Op) -> bool:
        """True for a sum in front of softmax of which a term is a choice of two numbers."""
        reader, chosen = op, False
        while kind_of(reader) in ("stablehlo.add", "stablehlo.select"):
            x = reader.results[0]
            operands = [v for v in reader.operands if is_float(v)]
            chosen |= any(not terms_of(self.program, v) for v in operands)
            firsts = [use.owner for use in x.uses if _summed(use.owner, x)]
            cuts = (c for first in firsts for c in functions(self.program, x, first))
            if softmax := next((c for c in _on_codes(cuts) if as_softmax(c)), None):
                inside = {o.operation for o in softmax.ops}
                return chosen and all(use.owner.operation in inside for use in x.uses)
            if (following := only_user(x)) is None:
                return False
            reader = following
        return False

    def reduced(self, op: Op) -> State | None:
        if reduction(self.program, op) != "add":
            return None
        self.edges.need(op, 0, wide=True)
        return "open"

    # Edges

    def need_all(self, op: Op, *, prefix: bool = False, wide: bool = False) -> None:
        for i, v in enumerate(op.operands):
            wanted = v in self.state or prefix
            if wanted and is_float(v) and self.state.get(v) != "float":
                self.edges.need(op, i, wide=wide)

    def need_source(self, cut: Cut, *, wide: bool = False) -> None:
        """The ops of a recognised function read an edge in the place of its source."""
        for op in cut.ops:
            for i, v in enumerate(op.operands):
                if v == cut.source:
                    self.edges.need(op, i, wide=wide)


def _summed(op: Op, x: ir.Value) -> bool:
    """True if softmax or a normalization can begin with `op`: it reduces `x` or squares it."""
    kind, operands = op.operation.name, list(op.operands)
    return kind == "stablehlo.reduce" or (kind == "stablehlo.multiply" and operands == [x, x])


def _on_codes(found: Iterable[Cut]) -> Iterator[Cut]:
    """Those of which no op has a shape that the device lacks."""
    return (cut for cut in found if not any(map(declined_by_shape, cut.ops)))


def _is_normalization(cut: Cut) -> bool:
    shape = shape_of(cut.source)
    if shape_of(cut.result) != shape or len(shape) < 1 or shape[-1] < 2:
        return False
    return as_normalization(cut, shape, unit=True) is not None


def _reads(op: Op, state: dict[Any, State]) -> bool:
    """True if an op's regions (a loop, a branch) read a value from outside that has a state."""
    return any(
        v in state
        for region in op.regions
        for block in region.blocks
        for inner in walk(block)
        for v in inner.operands
    )
