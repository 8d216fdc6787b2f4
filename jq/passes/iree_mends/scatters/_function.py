"""The function by which a scatter combines what is there with an update."""

from typing import Any

import numpy as np

from jq.ir import Op, at, dtype_of, ir, stablehlo
from jq.ir.arrays import StableHloOps
from jq.ir.build import constant_of

OPS = StableHloOps()


def body_of(op: Op) -> ir.Block:
    return op.operation.regions[0].blocks[0]


def last_of(block: ir.Block) -> Any:
    return block.operations[len(block.operations) - 1].operation


def take_body(op: Op, to: ir.Operation) -> None:
    """Gives `to` a copy of the scatter's function."""
    copy = op.operation.clone()
    copy.regions[0].blocks[0].append_to(to.regions[0])
    for result, value in zip(copy.results, copy.operands, strict=False):
        result.replace_all_uses_with(value)
    copy.erase()


def _binary(op: Op) -> str | None:
    """The one op of two arguments that the function is."""
    ops, block = list(body_of(op).operations), body_of(op)
    if len(ops) != 2 or len(block.arguments) != 2:
        return None
    made = ops[0].operation
    both = len(made.operands) == 2 and set(made.operands) == set(block.arguments)
    whole = both and list(ops[1].operation.operands) == list(made.results)
    return made.name.removeprefix("stablehlo.") if whole else None


def neutral(op: Op, operand: ir.Value) -> ir.Value | None:
    """The scalar that the function leaves its other argument unchanged by, where there is one."""
    kind, name = dtype_of(operand), _binary(op)
    table: dict[str, float]
    if kind.kind == "c" or name is None:  # a product by 1 + 0i changes infinities
        return None
    if kind.kind in "biu":
        low, high = (0, 1) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max)
        ones = high if kind.kind in "bu" else -1
        table = {"add": 0, "multiply": 1, "maximum": low, "minimum": high, "or": 0, "and": ones}
    elif kind in (np.float16, np.float32, np.float64) or kind.name == "bfloat16":
        table = {"add": -0.0, "multiply": 1, "maximum": -np.inf, "minimum": np.inf}
    else:
        return None
    return constant_of(np.array(table[name], kind)) if name in table else None


def zero_of(operand: ir.Value) -> ir.Value:
    kind = dtype_of(operand)
    if kind.kind != "c":
        return constant_of(np.zeros((), kind))
    part = constant_of(np.zeros((), np.float64 if kind == np.complex128 else np.float32))
    return stablehlo.complex(part, part)


def bool_sums(op: Op) -> list[Any]:
    """Sums of bools, which IREE takes modulo 2."""
    inner = [o.operation for o in body_of(op).operations]
    return [o for o in inner if o.name == "stablehlo.add" and dtype_of(o.results[0]) == np.bool_]


def or_bools(op: Op) -> None:
    for found in bool_sums(op):
        with at(found):
            either = OPS.bit_or(*found.operands)
        found.results[0].replace_all_uses_with(either)
        found.erase()
