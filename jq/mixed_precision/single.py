"""One op of a program as a program of its own, to be measured alone.

What leads from a weight to the op comes along; everything else that the op reads is an input.
"""

from dataclasses import dataclass
from typing import Any

from jq.base.deep import Steps, deep, every
from jq.ir import Op, Program, TensorSpec, dtype_of, editing, func, ir, shape_of
from jq.ir.ops.lookup import rule_of
from jq.ir.ops.moves import Movement
from jq.ir.values import maker


def single(program: Program, op: Op) -> Program:
    """The program of one op, with the weights of `program` that it reads."""
    operands = list(op.operation.operands)
    inputs = list(dict.fromkeys(v for x in operands for v in _inputs(program, x)))
    specs = tuple(
        TensorSpec(f"arg{i}", shape_of(v), dtype_of(v).name) for i, v in enumerate(inputs)
    )
    result = op.results[0]
    output = TensorSpec("out0", shape_of(result), dtype_of(result).name)
    with editing():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            main = func.FuncOp("main", ([v.type for v in inputs], []))
        block = main.add_entry_block()
        with ir.InsertionPoint(block):
            func.ReturnOp([])
    made = Program(module, {}, specs, (output,))
    copies = _Copies(program, made, dict(zip(inputs, block.arguments, strict=True)))
    values = [copies.of(value) for value in operands]
    made.return_values([_clone(made, op, values).results[0]])
    made.verify()
    return made


@deep
def _inputs(program: Program, value: ir.Value) -> Steps[list[ir.Value]]:
    """The values that an operand needs from outside."""
    op, found = _movement(program, value), list[ir.Value]()
    if op is not None:
        for operand in op.operation.operands:
            found += yield program, operand
    elif program.weight_name(value) is None:
        found.append(value)
    return found


def _movement(program: Program, value: ir.Value) -> Any:
    """The op that moves a weight to `value`; None for a weight itself and for anything else."""
    start, first = value, None
    while program.weight_name(value) is None:
        op = maker(value)
        if op is None or not isinstance(rule_of(op), Movement):
            return None
        first = first or op
        value = op.operation.operands[0]
    return None if value == start else first


@dataclass(eq=False)
class _Copies:
    """Values of `program` in `made`."""

    program: Program
    made: Program
    known: dict[ir.Value, ir.Value]

    @deep
    def of(self, value: ir.Value) -> Steps[ir.Value]:
        if value not in self.known:
            name, op = self.program.weight_name(value), _movement(self.program, value)
            if name is not None:
                self.known[value] = self.made.add_weight(name, self.program.weights[name])
            else:
                operands = yield from every((self, v) for v in op.operation.operands)
                self.known[value] = _clone(self.made, op, operands or []).results[0]
        return self.known[value]


def _clone(made: Program, op: Op, operands: list[ir.Value]) -> ir.Operation:
    last = made.body.operations[len(made.body.operations) - 1]
    with editing(), ir.InsertionPoint(last):
        copy: ir.Operation = op.operation.clone()
    for i, value in enumerate(operands):
        copy.operands[i] = value
    return copy
