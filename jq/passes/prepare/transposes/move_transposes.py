"""Transposes move through the ops between them until they meet and cancel.

    %a = transpose (convolution ...), [0, 3, 1, 2]
    %b = maximum (add %a, %bias), 0                  ->  maximum (add (convolution ...), %bias), 0
    convolution (transpose %b, [0, 2, 3, 1]), ...        convolution %that, ...

What computes on channels first around convolutions on channels last, as imported models do, comes
to have a transpose at its inputs and outputs alone, so that convolutions meet what quantizes their
results. Each op says in which orders of axes it can compute (`OpRule.orders`); of all ways to give
the ops around a transpose its order or leave them, the one is taken that transposes the fewest
bytes. It fires where they become fewer, and transposes not more. Floats are the same but for sums,
which may be taken in another order."""

from dataclasses import dataclass, field

from jq.ir import OPS, Op, Program, at, context, integers, ir, kind_of, maker, replace, shape_of
from jq.ir.ops.dims import Dims
from jq.ir.ops.movement import RESULT, Order, inverse, is_moved, permuted
from jq.ir.ops.reordered import compute_in, orders_of
from jq.passes.base import Pass, PassContext
from jq.passes.prepare.transposes._layout_region import TRANSPOSE, Facts, Region, cost, is_turn


class MoveTransposes(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        with context():
            changed = _joined(program)
            while _sweep(program):
                changed = True
        return changed


def _joined(program: Program) -> bool:
    """Two transposes in a row become one, or none: those that move axes of size 1 alone, too."""
    changed = False
    for op in [op for op in program.walk() if kind_of(op) == TRANSPOSE]:
        if inner := maker(op.operands[0], TRANSPOSE):  # not where two in front of it have cancelled
            order = [integers(inner, "permutation")[a] for a in integers(op, "permutation")]
            with at(op):
                replace(op, [OPS.transpose(inner.operands[0], order)])
            changed = True
    return program.tidied(changed)


def _sweep(program: Program) -> bool:
    changed, facts = False, Facts.of(program)
    done: set[tuple[ir.Operation, bool]] = set()
    for op in [op for op in program.walk() if is_turn(op.operation)]:
        for behind in (True, False):
            idle = op.operands[0] in facts.known or not facts.uses(op.results[0])
            if idle or (op.operation, behind) in done:
                continue
            region = Region.around(op, facts, behind=behind)
            done |= {(other, region.ends_at(other)) for other in region.transposes()}
            changed |= _Move(program, region, region.chosen()).run()
    for op in reversed([op for op in program.walk() if op.operation in facts.dead]):
        op.erase()
    return program.tidied(changed)


@dataclass
class _Move:
    """`chosen` ops of a region computed in its order."""

    program: Program
    region: Region
    chosen: set[ir.Operation]
    stored: dict[ir.Value, tuple[ir.Value, Order]] = field(default_factory=dict)
    turned: dict[ir.Value, ir.Value] = field(default_factory=dict)  # as others read it

    def run(self) -> bool:
        if not self._pays():
            return False
        old = []
        for op in list(self.region.block.operations):
            if op.operation not in self.chosen:
                continue
            if kind_of(op) == TRANSPOSE:
                self._cancel(op)
            else:
                self._compute(op)
                old.append(op.operation)
        for op in old:
            self._give_back(op)
        facts = self.region.facts
        for op in reversed([op.operation for op in self.region.block.operations]):
            if op in self.chosen and not any(facts.uses(v) for v in op.results):
                facts.dead.add(op)
        return True

    def _pays(self) -> bool:
        """True if fewer bytes are transposed, by no more transposes."""
        gone = [op for op in self.chosen if kind_of(op) == TRANSPOSE]
        before = [op.results[0] for op in gone]
        after = [v for v, order in self.region.values.items() if self._turns(v, order)]
        return len(after) <= len(before) and sum(map(cost, after)) < sum(map(cost, before))

    def _turns(self, value: ir.Value, order: Order) -> bool:
        if self.region.known(value) or not is_moved(shape_of(value), order):
            return False
        op = maker(value)
        made = op is not None and op.operation in self.chosen
        return any((reader in self.chosen) != made for reader in self.region.facts.readers(value))

    def _cancel(self, op: Op) -> None:
        """A transpose at an edge: in front, what it gives is stored as what it reads."""
        source, result = op.operands[0], op.results[0]
        order = integers(op, "permutation")
        if self.region.ends_at(op.operation):
            self.stored[result] = (source, inverse(order))
            return
        with at(op):
            result.replace_all_uses_with(self._in_order(source, order))

    def _compute(self, op: Op) -> None:
        orders, operands = self.region.ops[op.operation], list(op.operands)
        with at(op):
            given = [
                v if order is None else self._in_order(v, order)
                for v, order in zip(operands, orders.operands, strict=True)
            ]
            found = compute_in(self.program, op, orders, given)
        for old, new, order in zip(op.results, found, orders.results, strict=True):
            self.stored[old] = (new, order or tuple(range(len(shape_of(old)))))

    def _in_order(self, value: ir.Value, order: Order) -> ir.Value:
        """A value stored in an order, at the current insertion point."""
        shape = permuted(shape_of(value), order)
        if value in self.stored:
            there, its_order = self.stored[value]
            same = its_order == order  # else they differ in axes of size 1
            return there if same else OPS.reshape(there, shape)
        if not is_moved(shape_of(value), order):
            return OPS.reshape(value, shape)
        if self.region.known(value):
            return self._known_in(value, order)
        if value not in self.turned:
            op = maker(value)
            block = self.region.block
            place = at(block.operations[0]) if op is None else at(op, after=True)
            with place:
                self.turned[value] = OPS.transpose(value, list(self.region.values[value]))
        found = self.turned[value]
        return found if self.region.values[value] == order else OPS.reshape(found, shape)

    def _known_in(self, value: ir.Value, order: Order) -> ir.Value:
        """A value that weights make, given in the order if it can be; others read it as before."""
        op = maker(value)
        orders = None if op is None else orders_of(op, RESULT, order)
        if op is None or orders is None or len(list(op.results)) != 1:
            moved = OPS.transpose(value, list(order))
            self.region.facts.known.add(moved)
            return moved
        given = [
            v if its is None else self._in_order(v, its)
            for v, its in zip(op.operands, orders.operands, strict=True)
        ]
        (moved,) = compute_in(self.program, op, orders, given)
        self.region.facts.known.add(moved)
        return moved

    def _give_back(self, op: ir.Operation) -> None:
        """Those that read a result as it was get a transpose."""
        for result in op.results:
            uses = self.region.facts.uses(result)
            readers = [use for use in uses if use.owner.operation not in self.chosen]
            if not readers:
                continue
            new, order = self.stored[result]
            with at(new.owner, after=True):
                moved = is_moved(shape_of(result), order)
                plain = OPS.transpose(new, list(inverse(order))) if moved else new
                value = plain if moved else OPS.reshape(new, shape_of(result))
            for use in readers:
                use.owner.operands[use.operand_number] = value


class AbsorbTransposes(Pass):
    """A transpose in front of a dot_general becomes other dimension numbers.

        dot_general %x, (transpose %w, [1, 0]), contracting [1] x [0]
        ->
        dot_general %x, %w, contracting [1] x [1]

    Fires where the order of the free axes stays as it is, since that order is the result's."""

    def run(self, program: Program, cx: PassContext) -> bool:
        changed = False
        for op in program.walk():
            if Dims.match(op):
                for side in (0, 1):
                    while _absorb(op, side):  # each of several
                        changed = True
        return program.tidied(changed)


def _absorb(op: Op, side: int) -> bool:
    owner = maker(op.operands[side], "stablehlo.transpose")
    if owner is None:
        return False
    order = integers(owner, "permutation")  # axis i of the result is axis order[i] of the source
    dims, rank = Dims.of(op), len(order)
    before = dims.free(side, rank)
    moved = dims.map_side(side, order)
    if moved.free(side, rank) != [order[a] for a in before]:
        return False
    source = owner.operands[0]
    with context():
        op.attributes["dot_dimension_numbers"] = moved.attribute()
    op.operands[side] = source
    return True
