"""Levels: what must not be left in a program of each, and the pass that takes it away.

Checked after the passes of a level have run: a program that the compiler would get wrong is
never handed over.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from jq.base.errors import UserError
from jq.ir import Op, Program
from jq.ir.build import NAME, string_attr
from jq.ir.markers import marker_kind
from jq.passes.base import known_passes
from jq.passes.iree_mends.mend import Mend

Ban = tuple[str, Callable[[Op], object], str]  # a kind of ops, what finds them, the pass


def _quantized(op: Op) -> bool:
    values = (*op.operation.operands, *op.operation.results)
    return any("!quant." in str(v.type) for v in values)


@cache
def _bans(level: str) -> tuple[Ban, ...]:
    plain = (
        ("a marker", marker_kind, "lower-markers"),
        ("a quantized type", _quantized, "lower-markers"),
    )
    mends = [kind for kind in known_passes().values() if issubclass(kind, Mend)]
    finding = [kind for kind in mends if kind.finds is not Mend.finds]
    told = tuple((kind.defects()[0].what, kind().finds, kind.name) for kind in finding)
    return {"integer": plain, "target": (*plain, *told)}.get(level, ())


def check_level(program: Program, level: str) -> None:
    """Raises `UserError` with the pass that should have acted if `program` does not fit."""
    if not (bans := _bans(level)):
        return
    for op in program.walk():
        for what, found, cure in bans:
            if found(op):
                raise UserError(
                    f"{what} is left at level {level}" if cure == "lower-markers" else what,
                    op=string_attr(op, NAME) or op.operation.name,
                    hint=f"the pass {cure} does not know how to rewrite it",
                )
