"""The integer program cut into units: what is computed between two tensors of codes.

A unit ends where codes of 8 or 16 bits are made (by anything that does more than move them), where
an integer leaves for floats, and where the program returns. A convolution with its bias, its
rescale and its clamp is one unit; so is a softmax. What only moves codes belongs to the next unit.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.ir import Op, Program, TensorSpec, dtype_of, editing, func, ir, kind_of, maker, shape_of
from jq.ir.build import NAME, string_attr
from jq.ir.ops.integer_step import STEP
from jq.ir.ops.lookup import is_product
from jq.ir.values import CONTROL, functions_of, walk

CODES = ("int8", "uint8", "int16", "uint16")
_MOVES = "reshape transpose broadcast_in_dim pad slice concatenate reverse"
MOVES = frozenset(f"stablehlo.{name}" for name in _MOVES.split(" "))


@dataclass(frozen=True)
class Unit:
    """One unit: its name, its result, the ops that make it and what they read from outside."""

    name: str
    result: ir.Value
    ops: tuple[Any, ...]
    inputs: tuple[ir.Value, ...]

    @property
    def op(self) -> str:
        """The kind of its step, where that is known and no product; else its product or last op."""
        products = [op for op in self.ops if is_product(op)]
        if not products and (kind := string_attr(self.ops[-1], STEP)):
            return kind
        return kind_of((products or self.ops)[-1]).removeprefix("stablehlo.")


def units(program: Program, floats: bool = False, shared_sums: bool = True) -> list[Unit]:
    """The units of a plain integer program, in its order.

    Args:
        floats: as a device with floats would run it, each value computed once: sums of a product
            that become float stay in the unit, which also ends where a product reads what was
            computed, and at what several units read.
        shared_sums: see `Device`: False if a unit has its own product in any case."""
    inputs = set(list(program.body.arguments)[: len(program.inputs)])
    computed, ends = set(inputs), list[ir.Value]()
    for op in program.body.operations:
        if op.operation.name == "func.return" or any(v in computed for v in op.operation.operands):
            read = _returned(op) if floats else _leaving(op)
            if floats and is_product(op):
                read = [_unmoved(v) for v in op.operation.operands]
            ends += [v for v in read if v in computed and v not in inputs]
            computed.update(op.operation.results)
            ends += [v for v in op.operation.results if _codes(v)]
    if floats:
        ends = _with_shared(program, ends, computed - inputs, shared_sums)
    stops = inputs | set(ends)
    found, names = [], dict[str, int]()
    for end in dict.fromkeys(ends):
        ops, read = _back(program, end, stops, computed)
        products = [string_attr(op, NAME) for op in ops if is_product(op)]
        base = next(filter(None, reversed(products)), "") or string_attr(ops[-1], NAME) or ""
        base = base or kind_of(ops[-1]).removeprefix("stablehlo.")
        names[base] = names.get(base, 0) + 1
        name = base if names[base] == 1 else f"{base}#{names[base]}"
        found.append(Unit(name, end, tuple(ops), tuple(read)))
    return found


def _with_shared(
    program: Program, ends: list[ir.Value], computed: set[ir.Value], shared_sums: bool
) -> list[ir.Value]:
    """The ends, and floats and sums of products that lead to several of them, in program order.
    What is computed of codes element by element is computed where it is read."""
    found, leads = set(ends), dict[ir.Value, set[ir.Value]]()
    for op in reversed(list(program.body.operations)):
        reached = set[ir.Value]()
        for v in op.operation.results:
            floats = dtype_of(v).kind in "fV" and kind_of(op) not in MOVES
            kept = floats or (shared_sums and is_product(op))
            if kept and len(leads.get(v, ())) > 1:
                found.add(v)
            reached |= {v} if v in found else leads.get(v, set())
        for v in op.operation.operands:
            if v in computed:
                leads.setdefault(v, set()).update(reached)
    ordered = (v for op in program.body.operations for v in op.operation.results)
    return [v for v in ordered if v in found]


def _returned(op: Op) -> list[ir.Value]:
    return list(op.operation.operands) if op.operation.name == "func.return" else []


def _leaving(op: Op) -> list[ir.Value]:
    """Operands at which the integers end: what is returned, and what becomes float."""
    results = list(op.operation.results)
    floats = kind_of(op) == "stablehlo.convert" and dtype_of(results[0]).kind in "fV"
    return _returned(op) + [v for v in op.operation.operands if floats and dtype_of(v).kind == "i"]


def _unmoved(value: ir.Value) -> ir.Value:
    """The value from which moves lead to this one."""
    while (op := maker(value)) is not None and kind_of(op) in MOVES:
        value = op.operation.operands[0]
    return value


def _codes(value: ir.Value) -> bool:
    op = maker(value)
    return dtype_of(value).name in CODES and op is not None and kind_of(op) not in MOVES


def _back(
    program: Program, end: ir.Value, stops: set[ir.Value], computed: set[ir.Value]
) -> tuple[list[Any], list[ir.Value]]:
    """The ops behind a value in program order, and the values of other units that they read."""
    needed, read, todo = set[Any](), dict[ir.Value, None](), [end]
    while todo:
        value = todo.pop()
        op = maker(value)
        if value in stops and value != end:
            read[value] = None
        elif op is not None and op not in needed:
            needed.add(op)
            todo.extend(op.operands)
    return [op for op in program.body.operations if op.operation in needed], list(read)


def as_program(program: Program, unit: Unit) -> Program:
    """A unit as a program of its own, with the weights that it reads.

    Raises:
        ValueError: it holds a loop or a branch, which read values from outside."""
    if nested := [op for op in unit.ops if kind_of(op) in CONTROL]:
        raise ValueError(f"{kind_of(nested[0]).removeprefix('stablehlo.')} is not replayed")
    specs = tuple(_spec(f"in{i}", v) for i, v in enumerate(unit.inputs))
    with editing():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            main = func.FuncOp("main", ([v.type for v in unit.inputs], []))
        block = main.add_entry_block()
        with ir.InsertionPoint(block):
            func.ReturnOp([])
    made = Program(module, {}, specs, (_spec("out", unit.result),))
    known = dict(zip(unit.inputs, block.arguments, strict=True))
    for op in unit.ops:
        for v in op.operation.operands:
            if v not in known and (name := program.weight_name(v)) is not None:
                known[v] = made.add_weight(name, np.asarray(program.weights[name]))
        with editing(), ir.InsertionPoint(block.operations[len(block.operations) - 1]):
            copy = op.operation.clone()
        for i, v in enumerate(op.operation.operands):
            copy.operands[i] = known[v]
        known |= dict(zip(op.operation.results, copy.results, strict=True))
    made.return_values([known[unit.result]])
    _add_decompositions(made, program)
    made.verify()
    return made


def _add_decompositions(made: Program, program: Program) -> None:
    """Functions that a unit's composites name (an error function is one), and that these name."""
    functions = functions_of(program.module)
    missing = _named_in(made.module.body)
    with editing(), ir.InsertionPoint(made.module.body):
        while missing:
            fn = functions.pop(missing.pop())
            fn.operation.clone()
            missing |= _named_in(fn.entry_block) & functions.keys()


def _named_in(block: ir.Block) -> set[str]:
    """Names of the functions that composites and calls refer to."""
    keys = "decomposition", "callee"
    named = (op.attributes[k] for op in walk(block) for k in keys if k in op.attributes)
    return {ir.FlatSymbolRefAttr(name).value for name in named}


def _spec(name: str, value: ir.Value) -> TensorSpec:
    return TensorSpec(name, shape_of(value), dtype_of(value).name)
