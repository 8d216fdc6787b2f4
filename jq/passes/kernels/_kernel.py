"""Shared parts of the passes that put kernels in place."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from jq.ir import OPS, Op, Program, at, editing, evaluate, func, ir, maker, stablehlo
from jq.ir.build import NAME, replace, string_attr
from jq.ir.decisions import decide, facts_of
from jq.ir.markers import Marker
from jq.ir.types import dtype_of, shape_of, tensor_type
from jq.ir.values import functions_of
from jq.kernels import ATTRIBUTE, Kernel, QuantizeBlocks, detect, get_isa
from jq.target.target import Target

FLIP = np.int8(-128)


class NoKernel(Exception):
    """Reason why an op has no kernel; the message goes to the user."""


class KernelDecisions:
    """Decisions of a pass about ops by name: their kernel, or why they have none."""

    def __init__(self) -> None:
        self._facts: dict[str, dict[str, str | Sequence[str]]] = {}
        self._changed = False

    def kernel(self, kernel: str, *ops: str, **more: Sequence[str]) -> None:
        """`kernel` computes these ops. `types`: of lhs, rhs and accumulator, where they are others
        than at the `integer` level."""
        self._changed = True
        for op in ops:
            self._facts.setdefault(op, {}).update(kernel=kernel, **more)

    def none(self, reason: str, *ops: str) -> None:
        for op in ops:
            self._facts.setdefault(op, {}).update(no_kernel=reason)

    def write(self, program: Program) -> bool:
        """Puts it on the program; whether any op got a kernel."""
        decide(program, self._facts)
        return self._changed


def isa_of(target: Target) -> str | None:
    """The instruction set that the target's kernels are made for; None: no kernels."""
    if target.kernels == "none":
        return None
    return detect().name if target.kernels == "host" else get_isa(target.kernels).name


def call_kernel(
    program: Program, kernel: Kernel, operands: Sequence[ir.Value], name: str
) -> list[ir.Value]:
    """Calls a kernel at the current insertion point; operands are reshaped to the types that it
    declares. It gets its body when the module is handed over. `name`: that of the call."""
    shaped = [OPS.reshape(v, t.shape) for v, t in zip(operands, kernel.operands, strict=True)]
    symbol = f"jq_{kernel.name}"
    with editing():
        kinds = [tensor_type(t.shape, t.dtype) for t in kernel.results]
        if symbol not in functions_of(program.module):
            types = [v.type for v in shaped], kinds
            with ir.InsertionPoint(program.module.body):
                declared = func.FuncOp(symbol, types, visibility="private")
            declared.attributes[ATTRIBUTE] = ir.StringAttr.get(kernel.to_json())
    said = {"callee": ir.FlatSymbolRefAttr.get(symbol), NAME: ir.StringAttr.get(name)}
    return list(ir.Operation.create("func.call", kinds, shaped, said).results)


def quantize_blocks(program: Program, kernel: QuantizeBlocks, marker: Marker) -> list[ir.Value]:
    """The results of the kernel, of what a `jq.quantize_dynamic` reads."""
    x = OPS.convert(marker.op.operands[0], np.float32)
    largest = [OPS.reduce_max(OPS.abs(x), range(len(shape_of(x))))] if kernel.whole else []
    return call_kernel(program, kernel, [x, *largest], f"{marker.tensor}/quantize")


def unsigned_view(codes: ir.Value) -> ir.Value:
    """Codes as a kernel reads them that takes u8: `q + 128`, in the bits of i8 (`q ^ 0x80`). The
    pass `kernel-views` brings this to where the codes are made."""
    return stablehlo.xor(codes, OPS.full(codes, FLIP))


def unrounded(value: ir.Value) -> ir.Value:
    """The float32 value that is rounded to bfloat16 here; any other value is itself."""
    op = maker(value, "stablehlo.convert")
    if op is None or dtype_of(value).name != "bfloat16":
        return value
    return op.operands[0] if dtype_of(op.operands[0]) == np.float32 else value


def column_factors(program: Program, value: ir.Value) -> tuple[ir.Value, np.ndarray] | None:
    """x and f32[K] of `x * vector`, a constant along the last axis; None for anything else."""
    op = maker(value, "stablehlo.multiply")
    if op is None:
        return None
    for x, other in (list(op.operands), list(op.operands)[::-1]):
        array = evaluate(program, other)
        if array is None or array.dtype != np.float32 or not array.ndim or not array.size:
            continue
        rows = array.reshape(-1, array.shape[-1])
        if (rows == rows[:1]).all():
            return x, np.ascontiguousarray(rows[0])
    return None


def rows_and_columns(shape: Sequence[int]) -> tuple[int, int]:
    """[..., K] as a matrix."""
    return math.prod(shape[:-1]), shape[-1]


def declarations(program: Program) -> dict[str, func.FuncOp]:
    """The functions that stand for kernels."""
    functions = functions_of(program.module)
    return {name: f for name, f in functions.items() if ATTRIBUTE in f.attributes}


def described(program: Program, op: Op) -> Kernel | None:
    """The kernel that an op calls."""
    return called(declarations(program), op) if op.operation.name == "func.call" else None


def called(known: Mapping[str, func.FuncOp], op: Op) -> Kernel | None:
    """The same, of declarations that are known."""
    declared = known.get(_callee(op)) if op.operation.name == "func.call" else None
    return None if declared is None else Kernel.from_json(string_attr(declared, ATTRIBUTE) or "")


def drop_declarations(program: Program) -> None:
    """Erases kernels that nobody calls any more."""
    used = {_callee(op) for op in program.walk() if op.operation.name == "func.call"}
    for name, op in declarations(program).items():
        if name not in used:
            op.erase()


def call_instead(program: Program, kernel: Kernel, op: Op, operands: Sequence[ir.Value]) -> None:
    """Calls a kernel in the place of an op, by its name."""
    with at(op):
        replace(op, call_kernel(program, kernel, operands, string_attr(op, NAME) or ""))


def renamed(program: Program, changed: object) -> bool:
    """Drops uncalled kernels, and tells ops the names of theirs; True if any has changed."""
    if not changed:
        return False
    drop_declarations(program)
    calls = [op for op in program.walk() if op.operation.name == "func.call"]
    now = {string_attr(op, NAME): _callee(op) for op in calls}
    kernels = facts_of(program, "kernel")
    names = {old: now[op] for op, old in kernels.items() if op in now}
    found = {op: now.get(op) or names.get(old) for op, old in kernels.items()}
    decide(program, {op: {"kernel": s.removeprefix("jq_")} for op, s in found.items() if s})
    return True


def _callee(op: Op) -> str:
    return ir.FlatSymbolRefAttr(op.attributes["callee"]).value
