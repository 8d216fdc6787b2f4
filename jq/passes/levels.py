"""Levels: what must not be left in a program of each, and the pass that takes it away.

Checked after the passes of a level have run: a program that the compiler would get wrong is
never handed over.
"""

from collections.abc import Callable
from functools import cache

from jq.base.errors import UserError
from jq.ir import Op, Program
from jq.ir.build import NAME, string_attr
from jq.ir.markers import marker_kind
from jq.passes.base import known_passes
from jq.passes.iree_mends.mend import Mend

Ban = tuple[str, Callable[[Op], object], str]  # a kind of ops, what finds them, what to do
UNKNOWN = "the pass {} does not know how to rewrite it"


def _quantized(op: Op) -> bool:
    values = (*op.operation.operands, *op.operation.results)
    return any("!quant." in str(v.type) for v in values)


def _of_4_bits(op: Op) -> bool:
    values = (*op.operation.operands, *op.operation.results)
    return any("xf4E2M1FN>" in str(v.type) or "<f4E2M1FN>" in str(v.type) for v in values)


@cache
def _bans(level: str) -> tuple[Ban, ...]:
    plain = (
        (f"a marker is left at level {level}", marker_kind, UNKNOWN.format("lower-markers")),
        (f"a quantized type is left at level {level}", _quantized, UNKNOWN.format("lower-markers")),
    )
    float4 = (
        "IREE does not compute with float4_e2m1fn",
        _of_4_bits,
        "convert to float8_e4m3fn, which has these numbers too, or let a weight be quantized to it",
    )
    mends = [kind for kind in known_passes().values() if issubclass(kind, Mend)]
    finding = [kind for kind in mends if kind.finds is not Mend.finds]
    told = ((k.defects()[0].what, k().finds, UNKNOWN.format(k.name)) for k in finding)
    return {"integer": plain, "target": (*plain, float4, *told)}.get(level, ())


def check_level(program: Program, level: str) -> None:
    """Raises `UserError` with the pass that should have acted if `program` does not fit."""
    if not (bans := _bans(level)):
        return
    for op in program.walk():
        for what, found, remedy in bans:
            if found(op):
                raise UserError(what, op=string_attr(op, NAME) or op.operation.name, hint=remedy)
